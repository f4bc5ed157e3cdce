"""The files around the code agree with it: versions, addresses, workflows, forms, public names."""

import ast
import configparser
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from packaging.requirements import Requirement

import tmde
from tmde.cli.main import app

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
# Files that repeat the address of the repository.
ADDRESSED = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "README.md",
    "SECURITY.md",
    "mkdocs.yml",
    ".github/ISSUE_TEMPLATE/config.yml",
)
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TOOLS = {"mkdocs": "docs", "pytest": "dev", "tmde": "dev"}  # a command, and the extra that has it
CHANGES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def read_setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup


SETUP = read_setup()
PACKAGE_FOLDERS = dict(
    [part.strip() for part in line.split("=")]
    for line in SETUP["options"]["package_dir"].strip().splitlines()
)


def folder_of(package: str) -> Path:
    """Return where a package of setup.cfg lies in the repository."""
    parent = package
    while parent not in PACKAGE_FOLDERS:
        parent = parent.rpartition(".")[0]
    rest = package[len(parent) :].strip(".").replace(".", "/")
    return ROOT / PACKAGE_FOLDERS[parent] / rest


PACKAGES = SETUP["options"]["packages"].split()


# ---- Versions and addresses


def test_the_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == tmde.__version__


def test_the_citation_has_the_license():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["license"] == SETUP["metadata"]["license"]


def test_every_page_that_introduces_the_package_has_its_tagline():
    tagline = SETUP["metadata"]["description"]
    assert f"**{tagline}.**" in (ROOT / "README.md").read_text("utf-8")
    assert f"**{tagline}.**" in (ROOT / "docs" / "index.md").read_text("utf-8")
    assert f'site_description: "{tagline}"' in (ROOT / "mkdocs.yml").read_text("utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["abstract"].startswith(f"{tagline}.")
    assert tmde.__doc__ is not None
    assert tmde.__doc__.startswith(f"{tagline}.")


def test_the_changelog_begins_with_the_version_or_what_follows_it():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    if versions[0] == "Unreleased":
        versions = versions[1:]
    assert versions[0] == tmde.__version__


def test_the_changelog_has_the_headings_of_its_form():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert headings <= CHANGES


@pytest.mark.parametrize("name", ADDRESSED)
def test_the_address_of_the_repository_is_that_of_setup_cfg(name):
    path = ROOT / name
    text = path.read_text("utf-8") if path.exists() else ""
    addresses = set(re.findall(r"https://github\.com/[\w.-]+/tmde\b", text))
    assert addresses <= {SETUP["metadata"]["url"]}


def test_the_versions_of_python_are_those_of_the_workflow_and_the_classifiers():
    (workflow,) = [path for path in WORKFLOWS if path.stem == "tests"]
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    classifiers = SETUP["metadata"]["classifiers"]
    assert tuple(jobs["systems"]["strategy"]["matrix"]["python"]) == PYTHONS
    stated = re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    assert tuple(stated) == PYTHONS


# ---- Pins


def pins_for(python: str) -> dict[str, str]:
    """Return the pinned version of every package on one version of Python."""
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(line)
        environment = {"python_version": python}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in pins, f"{requirement.name} has two pins on {python}"
            pins[requirement.name] = str(requirement.specifier).removeprefix("==")
    return pins


def requirements() -> list[Requirement]:
    lines = SETUP["options"]["install_requires"].split("\n")
    for extra in SETUP["options.extras_require"].values():
        lines += extra.split("\n")
    return [Requirement(line) for line in lines if line.strip()]


def pinned_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_one_pin_that_it_admits(python):
    pins = pins_for(python)
    refused = []
    for requirement in requirements():
        version = pins.get(pinned_name(requirement.name))
        if version is None or version not in requirement.specifier:
            refused.append(f"{requirement}: pinned {version}")
    assert refused == []


# ---- Workflows and forms


def steps_of(job: dict) -> list[list[str]]:
    """Return the words of every command of a job."""
    commands = []
    for step in job["steps"]:
        for line in step.get("run", "").splitlines():
            commands.append(shlex.split(line))
    return commands


def job_cases() -> list:
    cases = []
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text("utf-8"))["jobs"].items():
            cases.append(pytest.param(job, id=f"{path.stem}-{name}"))
    return cases


def installed_extras(commands: list[list[str]]) -> set[str]:
    extras: set[str] = set()
    for words in commands:
        if words[:2] == ["pip", "install"]:
            match = re.fullmatch(r"\.\[(.+)\]", words[-1])
            assert match, f"pip installs {words[-1]}, not the package"
            extras |= set(match[1].split(","))
    return extras


@pytest.mark.parametrize("job", job_cases())
def test_a_job_installs_extras_that_exist(job):
    assert installed_extras(steps_of(job)) <= set(SETUP["options.extras_require"])


@pytest.mark.parametrize("job", job_cases())
def test_a_job_runs_commands_that_it_has(job):
    commands = steps_of(job)
    extras = installed_extras(commands)
    for words in commands:
        if words[0] == "bash":
            assert (ROOT / words[1]).is_file(), words
        elif words[0] != "pip":
            assert TOOLS[words[0]] in extras, words


@pytest.mark.parametrize("job", job_cases())
def test_a_job_ends_in_time(job):
    assert job["timeout-minutes"] <= 240


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_a_workflow_may_only_read(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())


def test_every_test_runs_for_every_change_or_every_night(pytestconfig):
    """Nothing but `nightly` is left out by day, and the workflow of the night runs it."""
    (workflow,) = [path for path in WORKFLOWS if path.stem == "nightly"]
    options = pytestconfig.getini("addopts")
    (marker,) = re.findall(r"not (\w+)", options[options.index("-m") + 1])
    assert marker in {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert f"pytest -n auto -m {marker}\n" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert "run: bash .ci/run nightly\n" in workflow.read_text("utf-8")


@pytest.mark.parametrize("path", FORMS, ids=[path.stem for path in FORMS])
def test_a_form_has_what_github_requires(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in {"input", "textarea", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]


def tmde_commands() -> list[str]:
    commands: list[str] = []
    for path in [*FORMS, ROOT / "SECURITY.md"]:
        commands += re.findall(r"`tmde ([^`]+)`", path.read_text("utf-8"))
    return commands


@pytest.mark.parametrize("command", sorted(set(tmde_commands())))
def test_a_command_that_a_report_needs_exists(command):
    leaf = typer.main.get_command(app)
    words = command.split()
    if not words[0].startswith("--"):
        leaf = leaf.commands[words.pop(0)]
    options = {option for parameter in leaf.params for option in parameter.opts}
    assert set(words) <= options


def test_dependabot_looks_where_there_is_something():
    dependabot = yaml.safe_load((GITHUB / "dependabot.yml").read_text("utf-8"))
    ecosystems = {update["package-ecosystem"] for update in dependabot["updates"]}
    assert ecosystems == {"github-actions", "pip"}
    assert {update["directory"] for update in dependabot["updates"]} == {"/"}


# ---- Public names


def has_names(module: ast.Module) -> bool:
    """Tell whether an `__init__` defines or imports anything but its `__getattr__`."""
    kinds = (ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    return any(isinstance(node, kinds) for node in module.body)


def is_all(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def test_a_package_with_names_lists_the_public_ones():
    for package in PACKAGES:
        module = ast.parse((folder_of(package) / "__init__.py").read_text("utf-8"))
        assert any(map(is_all, module.body)) or not has_names(module), package


def test_public_names_exist_once():
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = getattr(module, "__all__", [])
        missing = [name for name in names if not hasattr(module, name)]
        assert missing == [], package
        assert len(set(names)) == len(names), package


@pytest.mark.parametrize("package", ["tmde", "modeling_tmde"])
def test_the_marker_of_types_is_in_the_package(package):
    assert (folder_of(package) / "py.typed").is_file()
    assert "py.typed" in SETUP["options.package_data"][package]


CONSUMER = """
from tmde import DocumentEmbedder, TmdeConfig, TmdeModel

embedder = DocumentEmbedder.from_pretrained()
reveal_type(embedder.encode(["a"]))
reveal_type(embedder.encode(["a"], convert_to_tensor=True))
reveal_type(TmdeModel(TmdeConfig()))
"""
# mypy needs a minute to read torch; this is the part that the program above sees.
TORCH = """
from typing import Any
class Tensor: ...
class device: ...
class dtype: ...
def __getattr__(name: str) -> Any: ...
"""
# The other libraries are as good as untyped for the program above.
SKIPPED = "transformers datasets sklearn scipy pandas pyarrow accelerate huggingface_hub lancedb"


@pytest.mark.nightly
def test_a_type_checker_sees_the_types_of_the_installed_package(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed (extra dev)")
    # A copy, because setuptools writes its folder `build` beside what it builds.
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "default")
    for folder in {path.partition("/")[0] for path in PACKAGE_FOLDERS.values()}:
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    layout = tmp_path / "layout"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    install += ["--no-build-isolation", "--target", str(layout), str(source)]
    subprocess.run(install, check=True, cwd=tmp_path)

    consumer = tmp_path / "consumer"
    (consumer / "stubs" / "torch").mkdir(parents=True)
    (consumer / "stubs" / "torch" / "__init__.pyi").write_text(TORCH, "utf-8")
    (consumer / "program.py").write_text(CONSUMER, "utf-8")
    sections = ",".join(f"mypy-{name}.*" for name in SKIPPED.split())
    settings = f"[mypy]\nstrict = true\nmypy_path = stubs\n[{sections}]\nfollow_imports = skip\n"
    (consumer / "mypy.ini").write_text(settings, "utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "program.py"],
        cwd=consumer,
        env=os.environ | {"PYTHONPATH": str(layout)},
        capture_output=True,
        text=True,
    )
    revealed = re.findall(r'Revealed type is "([\w.]+)', checked.stdout)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert revealed == ["numpy.ndarray", "torch.Tensor", "modeling_tmde.modeling_tmde.TmdeModel"]


# ---- License headers

LICENSE_HEADER = "# SPDX-License-Identifier: Apache-2.0\n"


def test_the_files_that_travel_with_checkpoints_have_a_license_header_and_no_others_do():
    """Weights may have another license than the code beside them; elsewhere, LICENSE applies."""
    folders = {path.partition("/")[0] for path in PACKAGE_FOLDERS.values()}
    with_header = set()
    for folder in folders | {"benchmarks", "docs", "examples", "tests"}:
        for path in (ROOT / folder).rglob("*.py"):
            if path.read_text("utf-8").startswith(LICENSE_HEADER):
                with_header.add(path)
    assert with_header == set((ROOT / "modeling_tmde").glob("*.py"))


# ---- Scripts


SCRIPTS = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("docs/**/*.py")])


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_scripts_import_names_that_the_package_has(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        name = node.module or ""
        if name.partition(".")[0] not in ("tmde", "modeling_tmde"):
            continue
        module = importlib.import_module(name)
        for alias in node.names:
            if not hasattr(module, alias.name):
                importlib.import_module(f"{name}.{alias.name}")  # a module, or an error
