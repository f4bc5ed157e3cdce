"""The code on which cached results depend: all that the measurement imports, and nothing else."""

import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from modeling_tmde import BagModel
from tmde import DocumentEmbedder
from tmde.documents import align_documents
from tmde.eval import environment, figures, mteb_adapter, published, report, runner, tasks
from tmde.eval.imported_code import imported_files, imported_libraries

# Libraries that read, show or move data. What they read has a fingerprint of its own.
DECIDES_NO_NUMBER = {
    "evaluate",
    "filelock",
    "huggingface_hub",
    "pandas",
    "pyarrow",
    "threadpoolctl",
    "tqdm",
    "yaml",
}


def names_of(*modules: str) -> set[str]:
    return {file.stem for file in imported_files(*modules)}


def test_results_depend_on_protocols_tasks_and_what_they_compute_with():
    names = names_of(runner.__name__)
    assert {
        "classification",
        "contrast",
        "folds",
        "heads",
        "retrieval",
        "similarity",
        "statistics",
    } <= names
    assert {"lawdr", "mining", "neighbours", "embedding", "long_documents", "tokenization"} <= names
    assert {"translation_retrieval", "sts_correlation", "same_cross_accuracy"} <= names
    files = {*imported_files(runner.__name__)}
    assert {*Path(tasks.__file__).parent.glob("*.py")} <= files
    assert Path(sys.modules[align_documents.__module__].__file__) in files


@pytest.mark.parametrize("module", [figures, mteb_adapter, published, report])
def test_results_do_not_depend_on_how_they_are_shown(module: ModuleType):
    assert module.__file__ not in map(str, imported_files(runner.__name__))


def test_every_imported_library_is_recorded_or_decides_no_number():
    imported = imported_libraries(runner.__name__) - DECIDES_NO_NUMBER
    distributions = metadata.packages_distributions()
    for library in imported:
        assert set(distributions.get(library, [library])) & set(environment.PACKAGES), library
    assert {"sentencex", "sklearn", "torch"} <= imported


def test_vectors_depend_on_embedder_and_architecture_alone():
    names = names_of(DocumentEmbedder.__module__, BagModel.__module__)
    assert {
        "embedding",
        "long_documents",
        "tokenization",
        "modeling_bag",
        "configuration_bag",
        "common",
    } <= names
    assert not {"export", "modeling_laser", "modeling_tmde"} & names


def test_imports_are_found_wherever_they_stand(tmp_path, monkeypatch):
    """A package with imports of every kind, one of them in a circle."""
    sources = {
        "__init__": "from .shown import table, version",
        "start": "from .near import one\nimport project.plain\nimport numpy.linalg\nfrom . import sibling, version",
        "near": "def one():\n    from project.late import two\n    import scipy",
        "late": "from project import start",
        "plain": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import project.shown, pandas",
        "sibling": "import json",
        "shown": "import yaml\ntable = version = None",
    }
    (tmp_path / "project").mkdir()
    for name, source in sources.items():
        (tmp_path / "project" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tmde.eval.imported_code.PROJECT_PACKAGES", {"project"})
    assert names_of("project.sibling") == {"sibling"}
    assert names_of("project.late") == {*sources}  # `version` is imported from the package itself
    assert imported_libraries("project.near") == {"numpy", "scipy", "yaml"}  # no pandas
    (tmp_path / "project" / "start.py").write_text("from .near import one\nfrom . import sibling")
    imported_files.cache_clear()
    assert names_of("project.late") == {"late", "start", "near", "sibling"}
    imported_files.cache_clear()


def test_another_version_of_the_sentence_splitter_makes_other_results(monkeypatch):
    before = runner._code_fingerprint.__wrapped__()
    real = metadata.Distribution.version.fget

    def changed(distribution: metadata.Distribution) -> str:
        return "0.0.1" if distribution.name == "sentencex" else real(distribution)

    monkeypatch.setattr(metadata.Distribution, "version", property(changed))
    assert runner._code_fingerprint.__wrapped__() != before
