"""The notebooks of `examples/`: what is stored in git, and that they run again."""

import re
from pathlib import Path

import pytest

from examples.run_notebooks import METADATA, execute

nbformat = pytest.importorskip("nbformat", reason="pip install 'tmde[notebooks]'")

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# Home folders, temporary folders of kernels, and drives of Windows.
PATH = re.compile(r"/(?:home|root|work|Users|tmp|opt|usr)/|[A-Z]:\\\\")


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    """Return all text that a cell put out."""
    texts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            texts.append(output.text)
        else:
            data = output.get("data", {})
            texts.extend(text for kind, text in data.items() if kind.startswith("text/"))
    return "\n".join(texts)


def test_there_are_five():
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_stored_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    assert not [cell.id for cell in notebook.cells if cell.metadata]

    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    assert "display_data" in kinds, "a notebook has at least one picture"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_outputs_hold_no_noise_and_no_path_of_a_machine(path):
    for cell in code_cells(path):
        text = printed(cell)
        assert not PATH.search(text), f"cell {cell.execution_count}: {text[:500]}"
        assert "Warning" not in text, f"cell {cell.execution_count}: {text[:500]}"
        assert not any(output.get("name") == "stderr" for output in cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_list_of_the_examples_names_it(path):
    assert f"]({path.name})" in (FOLDER / "README.md").read_text("utf-8")


def test_the_data_are_small_and_named():
    files = [path for path in (FOLDER / "data").iterdir() if path.name != "README.md"]
    assert sum(path.stat().st_size for path in files) < 200_000
    page = (FOLDER / "data" / "README.md").read_text("utf-8")
    for path in files:
        assert f"`{path.name}`" in page


def test_the_translation_memory_has_no_row_twice_and_no_empty_text():
    lines = (FOLDER / "data" / "memory.tsv").read_text("utf-8").splitlines()
    assert lines[0].split("\t") == ["de", "en"]
    rows = [line.split("\t") for line in lines[1:]]
    assert {len(row) for row in rows} == {2}
    for texts in zip(*rows, strict=True):
        assert all(texts)
        assert len(set(texts)) == len(rows)
    page = (FOLDER / "data" / "README.md").read_text("utf-8")
    assert f"{len(rows):,} German-English rows" in page


@pytest.mark.nightly
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebooks_run(path, tmp_path, monkeypatch):
    """Every cell runs; those with an assertion check their numbers."""
    pytest.importorskip("nbclient", reason="pip install 'tmde[notebooks]'")
    pytest.importorskip("ipykernel", reason="pip install 'tmde[notebooks]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # The command `tmde` is found all the same.
    stored = code_cells(path)
    notebook = execute(path, tmp_path / "examples")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == len(stored)
    for cell, stored_cell in zip(cells, stored, strict=True):
        kinds = [output.output_type for output in cell.outputs]
        stored_kinds = [output.output_type for output in stored_cell.outputs]
        assert kinds == stored_kinds, f"cell {cell.execution_count}: {printed(cell)[:500]}"
        assert not any(output.get("name") == "stderr" for output in cell.outputs)
