"""Execute the notebooks of this folder and store their outputs.

    python examples/run_notebooks.py                              # all of them
    python examples/run_notebooks.py align_and_mine.ipynb

A notebook runs in a temporary copy of the folder, so its files do not stay. What is stored holds no
times, no paths and no metadata but the name of the kernel, so that a difference in git is one of
content.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SECONDS_PER_CELL = 600


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook in a copy of its folder, and return it with its outputs.

    Args:
        path: The notebook, which stays as it is.
        folder: Where the copy is made. It must not exist.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell failed.
    """
    ignored = shutil.ignore_patterns("*.ipynb", "runs", "__pycache__")
    shutil.copytree(path.parent, folder, ignore=ignored)
    notebook = nbformat.read(path, as_version=4)
    # The command `tmde` of this Python comes first, even if its environment is not activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
    )
    return client.execute()


def with_minimal_metadata(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what differs between two machines: times, widgets, versions, random ids of cells."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.metadata = nbformat.from_dict({})
        cell.id = f"cell-{number}"
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
    return notebook


def main() -> None:
    """Execute the notebooks that the arguments name, or all."""
    names = sys.argv[1:]
    paths = [FOLDER / Path(name).name for name in names] or sorted(FOLDER.glob("*.ipynb"))
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder) / "examples")
        nbformat.write(with_minimal_metadata(notebook), path)
        print(path.name)


if __name__ == "__main__":
    main()
