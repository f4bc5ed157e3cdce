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
    figures,
    imported_code,
    mteb_adapter,
    published,
    report,
    runner,
    systems,
    tasks,
)
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


@pytest.fixture(scope="module")
def names_of_runner() -> set[str]:
    return names_of(runner.__name__)


def test_results_depend_on_the_protocols(names_of_runner):
    protocols = {"classification", "contrast", "folds", "heads", "retrieval", "similarity"}
    assert protocols | {"statistics"} <= names_of_runner


def test_results_depend_on_what_protocols_compute_with(names_of_runner):
    documents = {"lawdr", "mining", "neighbours"}
    embedding = {"document_embedder", "long_documents", "tokenization"}
    metrics = {"translation_retrieval", "sts_correlation", "same_cross_accuracy"}
    assert documents | embedding | metrics <= names_of_runner


def test_results_depend_on_every_task_and_on_alignment():
    files = set(imported_files(runner.__name__))
    assert set(Path(tasks.__file__).parent.glob("*.py")) <= files
    assert Path(sys.modules[align_documents.__module__].__file__) in files


@pytest.mark.parametrize("module", [figures, mteb_adapter, published, report])
def test_results_do_not_depend_on_how_they_are_shown(module: ModuleType):
    assert Path(module.__file__) not in imported_files(runner.__name__)


def test_every_imported_library_is_recorded_or_decides_no_number():
    imported = imported_libraries(runner.__name__) - DECIDES_NO_NUMBER
    distributions = metadata.packages_distributions()
    for library in imported:
        assert set(distributions.get(library, [library])) & set(systems.PACKAGES), library


def test_libraries_that_decide_numbers_are_found():
    assert {"sentencex", "sklearn", "torch"} <= imported_libraries(runner.__name__)


@pytest.fixture(scope="module")
def names_of_bag_embedder() -> set[str]:
    return names_of(DocumentEmbedder.__module__, BagModel.__module__)


def test_vectors_depend_on_embedder_and_architecture(names_of_bag_embedder):
    embedding = {"document_embedder", "long_documents", "tokenization"}
    architecture = {"modeling_bag", "configuration_bag", "common"}
    assert embedding | architecture <= names_of_bag_embedder


def test_vectors_do_not_depend_on_export_or_other_architectures(names_of_bag_embedder):
    assert not {"export", "modeling_laser", "modeling_tmde"} & names_of_bag_embedder


# A package with imports of every kind, one of them in a circle.
SOURCES = {
    "__init__": "from .shown import table, version",
    "start": """
from .near import one
import project.plain
import numpy.linalg
from . import sibling, version
""",
    "near": """
def one():
    from project.late import two
    import scipy
""",
    "late": "from project import start",
    "plain": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import project.shown, pandas
""",
    "sibling": "import json",
    "shown": """
import yaml
table = version = None
""",
}


def forget_project() -> None:
    """Forget what another test has found in its own folder."""
    sys.modules.pop("project", None)
    imported_code.imported_files.cache_clear()
    imported_code._file_of.cache_clear()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The package in a folder from which it can be imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tmde.eval.imported_code.PROJECT_PACKAGES", {"project"})
    forget_project()
    yield folder
    forget_project()


def test_a_module_without_imports_of_the_project_is_alone(project):
    assert names_of("project.sibling") == {"sibling"}


def test_imports_are_found_wherever_they_stand(project):
    """The package takes `version` from the module `shown`."""
    assert names_of("project.late") == set(SOURCES) - {"__init__"}


def test_a_package_does_not_count_if_only_its_modules_are_imported(project):
    (project / "start.py").write_text("from .near import one\nfrom . import sibling")
    assert names_of("project.late") == {"late", "start", "near", "sibling"}


def test_a_package_counts_if_something_that_it_defines_is_imported(project):
    (project / "__init__.py").write_text("from .shown import table\nversion = 1")
    (project / "start.py").write_text("from . import version")
    assert names_of("project.start") == {"__init__", "start", "shown"}


def test_libraries_for_type_checkers_alone_do_not_count(project):
    assert imported_libraries("project.near") == {"numpy", "scipy", "yaml"}


def test_another_version_of_the_sentence_splitter_makes_other_results(monkeypatch):
    before = runner._code_fingerprint.__wrapped__()
    real = metadata.Distribution.version.fget

    def changed(distribution: metadata.Distribution) -> str:
        return "0.0.1" if distribution.name == "sentencex" else real(distribution)

    monkeypatch.setattr(metadata.Distribution, "version", property(changed))
    assert runner._code_fingerprint.__wrapped__() != before
