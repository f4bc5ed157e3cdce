"""The arrows between the folders, and no circle inside one: the contracts of pyproject.toml.

In the repository the folders are not where Python finds them, so the contracts are checked on a
copy of the layout that a wheel installs.
"""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def install_layout(folder: Path) -> Path:
    """Copy the Python files of every package of setup.cfg to its place below `folder`."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    for line in setup["options"]["package_dir"].strip().splitlines():
        package, source = map(str.strip, line.split("="))
        target = folder / package.replace(".", "/")
        shutil.copytree(
            REPOSITORY / source,
            target,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("default", "__pycache__"),
        )
    return folder


def check_contracts(layout: Path) -> subprocess.CompletedProcess:
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("import-linter is not installed (extra dev)")
    return subprocess.run(
        [command, "--no-cache", "--config", str(REPOSITORY / "pyproject.toml")],
        cwd=layout,
        env=os.environ | {"PYTHONPATH": str(layout)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Path:
    return install_layout(tmp_path_factory.mktemp("layout"))


def test_arrows_run_one_way_and_no_folder_has_a_circle(layout):
    result = check_contracts(layout)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("contract", "module", "imported"),
    [
        ("Arrows run one way", "tmde/data/io.py", "tmde.documents.mining"),
        ("Arrows run one way", "modeling_tmde/common.py", "tmde.embedding.progress"),
        ("No folder's imports form a circle", "tmde/data/checks.py", "tmde.data.parallel"),
        (
            "Cards are filled from files of a run alone",
            "tmde/hub_cards/model_files.py",
            "tmde.training.checkpoints",
        ),
        ("Arrows run one way", "tmde/training/run.py", "tmde.papers.table"),
        (
            "Only the commands import what repeats the papers",
            "tmde/cli/train.py",
            "tmde.papers.table",
        ),
        (
            "Only training and the commands fill cards",
            "tmde/data/io.py",
            "tmde.hub_cards.model_files",
        ),
    ],
)
def test_a_wrong_import_breaks_its_contract(contract, module, imported, tmp_path):
    layout = install_layout(tmp_path)
    file = layout / module
    file.write_text(f"{file.read_text(encoding='utf-8')}\nimport {imported}\n", encoding="utf-8")
    result = check_contracts(layout)
    assert f"{contract} BROKEN" in result.stdout
