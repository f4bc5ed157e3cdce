"""The code on which cached results depend: all that the measurement imports, and nothing else."""

import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from modeling_tmde import BagModel
from tmde import DocumentEmbedder
from tmde.documents import align_documents
from tmde.eval import (
    environment,
    figures,
    imported_code,
    mteb_adapter,
    report,
    runner,
    tasks,
)
from tmde.eval.imported_code import imported_files, imported_libraries

# Libraries that read, show or move data. What they read has a fingerprint of its own.
DECIDES_NO_NUMBER = {
    "defusedxml",
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
    """The names of the files, without folder and ending."""
    return {file.stem for file in imported_files(*modules)}


@pytest.mark.parametrize(
    "names",
    [
        {
            "classification",
            "contrast",
            "folds",
            "heads",
            "retrieval",
            "similarity",
            "statistics",
        },
        {"lawdr", "competitive_matching", "quality", "ranks"},
        {"document_embedder", "long_documents", "tokenization"},
        {"translation_retrieval", "sts_correlation", "same_cross_accuracy"},
    ],
    ids=["protocols", "documents", "embedder", "metrics"],
)
def test_results_depend_on_what_they_compute_with(names):
    assert names <= names_of(runner.__name__)


def test_results_depend_on_every_task():
    task_files = {*Path(tasks.__file__).parent.glob("*.py")}

    assert task_files <= {*imported_files(runner.__name__)}


def test_results_depend_on_the_alignment_of_documents():
    alignment_file = Path(sys.modules[align_documents.__module__].__file__)

    assert alignment_file in imported_files(runner.__name__)


@pytest.mark.parametrize("module", [figures, mteb_adapter, report])
def test_results_do_not_depend_on_how_they_are_shown(module: ModuleType):
    assert Path(module.__file__) not in imported_files(runner.__name__)


def test_every_imported_library_is_recorded_or_decides_no_number():
    distributions = metadata.packages_distributions()

    for library in imported_libraries(runner.__name__) - DECIDES_NO_NUMBER:
        names = set(distributions.get(library, [library]))
        assert names & set(environment.PACKAGES), library


def test_libraries_that_decide_numbers_are_found():
    assert {"sentencex", "sklearn", "torch"} <= imported_libraries(runner.__name__)


def test_vectors_depend_on_embedder_and_architecture():
    names = names_of(DocumentEmbedder.__module__, BagModel.__module__)

    assert {"document_embedder", "long_documents", "tokenization"} <= names
    assert {"modeling_bag", "configuration_bag", "common"} <= names


def test_vectors_do_not_depend_on_other_architectures():
    names = names_of(DocumentEmbedder.__module__, BagModel.__module__)

    assert names.isdisjoint({"export", "modeling_laser", "modeling_tmde"})


SOURCES = {
    "__init__": "from .shown import table as shown_table\nversion = '1'",
    "start": (
        "from .near import one\n"
        "import project.plain\n"
        "import numpy.linalg\n"
        "from . import sibling, version"
    ),
    "near": "def one():\n    from project.late import two\n    import scipy",
    "late": "from project import start",
    "plain": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import project.shown, pandas"
    ),
    "sibling": "import json",
    "shown": "import yaml\ntable = None",
}


def forget_project():
    """Forget what the module under test and Python know of the package."""
    for function in (imported_files, imported_code._file_of, imported_code._names_passed_on):
        function.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "project"]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A package with imports of every kind, some of them in a circle."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tmde.eval.imported_code.PROJECT_PACKAGES", {"project"})
    forget_project()
    yield folder
    forget_project()


def test_a_module_without_imports_depends_on_itself(project):
    assert names_of("project.sibling") == {"sibling"}


def test_imports_are_found_wherever_they_stand(project):
    # `version` is defined in the package itself, so its `__init__` counts, and what that imports.
    assert names_of("project.late") == {*SOURCES}


def test_libraries_for_type_checkers_do_not_count(project):
    assert imported_libraries("project.near") == {"numpy", "scipy", "yaml"}


def test_a_name_that_a_package_passes_on_counts_as_of_its_module(project):
    (project / "start.py").write_text("from project import shown_table")

    assert names_of("project.start") == {"start", "shown"}


def test_a_package_does_not_count_if_only_its_modules_are_imported(project):
    (project / "start.py").write_text("from .near import one\nfrom . import sibling")

    assert names_of("project.late") == {"late", "start", "near", "sibling"}


def test_another_version_of_the_sentence_splitter_makes_other_results(monkeypatch):
    before = runner._code_fingerprint.__wrapped__()
    real_version = metadata.Distribution.version.fget

    def changed_version(distribution: metadata.Distribution) -> str:
        return "0.0.1" if distribution.name == "sentencex" else real_version(distribution)

    monkeypatch.setattr(metadata.Distribution, "version", property(changed_version))

    assert runner._code_fingerprint.__wrapped__() != before
