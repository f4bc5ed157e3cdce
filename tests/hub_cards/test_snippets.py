"""The code of a card runs as it is printed, in a process of its own, for every family."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from modeling_tmde.hub_cards import model_card
from tests.hub_cards.conftest import FAMILIES

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Each block in a namespace of its own; what it calls vectors is kept.
RUNNER = """
import json, sys
import numpy
blocks, hidden, target = json.load(open(sys.argv[1])), sys.argv[2] == "hidden", sys.argv[3]
if hidden:
    sys.modules["modeling_tmde"] = None
found = {}
for name, code in blocks:
    space = {"__name__": "__main__"}
    exec(compile(code, name, "exec"), space)
    vectors = space.get("vectors", space.get("vector"))
    if vectors is None:
        vectors = [space["first"], space["second"]]
    found[name] = numpy.stack([numpy.asarray(row.detach() if hasattr(row, "detach") else row) for row in vectors])
numpy.savez(target, **found)
"""


def blocks_of(folder: Path) -> list[tuple[str, str]]:
    """Language and code of each block."""
    return BLOCK.findall(str(model_card(folder)))


def run(command: list[str], folder: Path, home: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "custom code" not in done.stdout + done.stderr  # nobody is asked whether to run it
    return done


def run_python(blocks: list[tuple[str, str]], hidden: bool, folder: Path, home: Path) -> dict[str, np.ndarray]:
    codes = {str(number): code for number, (_, code) in enumerate(blocks)}
    (home / "blocks.json").write_text(json.dumps(list(codes.items())))
    (home / "runner.py").write_text(RUNNER)
    target = home / f"vectors-{hidden}.npz"
    command = [sys.executable, str(home / "runner.py"), str(home / "blocks.json")]
    run([*command, "hidden" if hidden else "there", str(target)], folder, home)
    with np.load(target) as stored:
        return {name: stored[name] for name in codes}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_block_of_a_card_runs(runs, family, tmp_path):
    """Those that need no package where it cannot be imported; all find the same vectors."""
    pytest.importorskip("sentence_transformers")
    folder = runs[family]
    blocks = blocks_of(folder)
    python = [block for block in blocks if block[0] == "python"]
    ours = [block for block in python if "modeling_tmde" in block[1]]
    others = [block for block in python if "modeling_tmde" not in block[1]]
    bash = [code for language, code in blocks if language == "bash"]
    assert len(ours) == len(bash) == 1
    decodes = family in ("tmde", "laser", "adapted")
    assert len(others) == 2 + decodes and any("SentenceTransformer" in code for _, code in others)

    (vectors,) = run_python(ours, False, folder.parent, tmp_path).values()
    found = list(run_python(others, True, folder.parent, tmp_path).values())
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for other in found:  # the decoder's block embeds the first text alone
        unit = other / np.linalg.norm(other, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, vectors[: len(unit)], atol=1e-5)

    work = tmp_path / "work"
    work.mkdir()
    (work / folder.name).symlink_to(folder)
    run(["bash", "-euc", bash[0]], work, tmp_path)
    embedded = np.load(work / "vectors.npy")
    unit = embedded / np.linalg.norm(embedded, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, vectors[: len(unit)], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_differ_by_family(runs, family):
    code = "\n".join(code for _, code in blocks_of(runs[family]))
    told = family in ("ntdv", "aligned")
    assert ('language=["de", "en"]' in code) is told and ("language_ids" in code) is told
    assert ("--language de" in code) is told
    assert ("truncation=True" in code) is (family in ("tmde", "encoder", "adapted"))  # the others take any length
    assert ("generate(" in code) is (family in ("tmde", "laser", "adapted"))


def test_code_names_the_repository(runs):
    card = str(model_card(runs["bag"], repo_id="somebody/a-bag"))
    assert card.count('"somebody/a-bag"') == 4 and "--model somebody/a-bag" in card and "# a-bag\n" in card
    assert "tiny-bag" not in card
