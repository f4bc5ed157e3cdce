"""The report of `tmde doctor` on the machine, and how it is printed."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import torch
import typer
from huggingface_hub import constants
from packaging.requirements import Requirement

from tmde import __version__
from tmde.cli.errors import install_command
from tmde.data.cpus import usable_cpus
from tmde.embedding.machine import has_fast_bf16

# What each extra of tmde is for, in the order in which it is printed.
EXTRA_PURPOSES = {
    "search": "tmde index, search and mine",
    "clean": "tmde clean, and tmde dedupe across languages",
    "localization": "gettext's .po files, in all commands",
    "demo": "tmde demo",
    "figures": "training curves and the figures of tmde eval",
    "lora": "tmde train --lora",
    "onnx": "tmde export onnx",
    "mteb": "the tasks of MTEB",
    "ray": "embed on several machines",
    "integrations": "the software in docs/guides/integrations.md",
    "notebooks": "rerun the notebooks in examples/",
}
# Those who work on tmde need these two, and `eval` is another name of `figures`.
_HIDDEN_EXTRAS = {"dev", "docs", "eval"}
_HUB_TIMEOUT = 3.0  # seconds
_WITHOUT_HUB = "only local folders and cached models can be loaded"
_GIGABYTE = 2**30
_SMALL_DISK = 2 * _GIGABYTE


@dataclass(frozen=True)
class ExtraState:
    """An extra of tmde.

    Attributes:
        purpose: What it is for.
        missing: The packages that are not installed, as their requirements say.
    """

    purpose: str
    missing: list[str]


@dataclass(frozen=True)
class Problem:
    """Something that a user can fix.

    Attributes:
        finding: What was found.
        advice: What to do about it.
    """

    finding: str
    advice: str


@dataclass(frozen=True)
class MachineReport:
    """The environment of tmde.

    Attributes:
        versions: The versions of Python, tmde and its dependencies, by name.
        system: Operating system and processor.
        device: The default device: `cpu`, `mps`, or the names of the GPUs.
        bf16: Whether bfloat16 is faster than float32 on this device.
        cpus: The number of CPUs that this process may use.
        threads: The number of threads that torch uses.
        memory_bytes: The machine's memory; None if it is unknown.
        caches: The download folders by content, with their free bytes.
        extras: The extras of tmde by name.
        hub: A sentence on whether the Hugging Face Hub answers.
        problems: What could be improved.
    """

    versions: dict[str, str]
    system: str
    device: str
    bf16: bool
    cpus: int
    threads: int
    memory_bytes: int | None
    caches: dict[str, dict[str, str | int]]
    extras: dict[str, ExtraState]
    hub: str
    problems: list[Problem] = field(default_factory=list)


def make_report() -> MachineReport:
    """Look at the machine."""
    requirements = list(_requirements())
    report = MachineReport(
        versions=_versions(requirements),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        device=_device(),
        bf16=has_fast_bf16(use_cpu=False),
        cpus=usable_cpus(),
        threads=torch.get_num_threads(),
        memory_bytes=_memory_bytes(),
        caches=_caches(),
        extras=_extras(requirements),
        hub=_hub_state(),
    )
    report.problems.extend(_version_problems(requirements))
    report.problems.extend(_device_problems())
    report.problems.extend(_speed_problems(report))
    report.problems.extend(_disk_problems(report))
    return report


# ---- Packages


def _requirements() -> Iterator[Requirement]:
    """Yield what tmde requires on this machine; those of an extra keep its name in their marker."""
    for line in metadata.requires("tmde") or ():
        yield Requirement(line)


def _extra_of(requirement: Requirement) -> str | None:
    """Return the extra that a requirement belongs to; None for the core."""
    if requirement.marker is None:
        return None
    for extra in metadata.metadata("tmde").get_all("Provides-Extra") or ():
        without = requirement.marker.evaluate({"extra": ""})
        if not without and requirement.marker.evaluate({"extra": extra}):
            return extra
    return None


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions(requirements: list[Requirement]) -> dict[str, str]:
    versions = {"tmde": __version__, "python": platform.python_version()}
    for requirement in requirements:
        if _extra_of(requirement) is None:
            versions[requirement.name] = _installed_version(requirement.name) or "missing"
    return versions


def _extras(requirements: list[Requirement]) -> dict[str, ExtraState]:
    missing: dict[str, list[str]] = {extra: [] for extra in EXTRA_PURPOSES}
    for requirement in requirements:
        extra = _extra_of(requirement)
        if extra is None or extra in _HIDDEN_EXTRAS:
            continue
        packages = missing.setdefault(extra, [])
        if _installed_version(requirement.name) is None:
            packages.append(requirement.name)
    states = {}
    for extra, packages in missing.items():
        states[extra] = ExtraState(EXTRA_PURPOSES.get(extra, ""), packages)
    return states


def _version_problems(requirements: list[Requirement]) -> Iterator[Problem]:
    """Yield the packages whose version is not one that tmde takes."""
    for requirement in requirements:
        version = _installed_version(requirement.name)
        if version is None or requirement.specifier.contains(version, prereleases=True):
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        yield Problem(
            f"{requirement.name} {version} is installed, but tmde requires {wanted}",
            f"pip install '{wanted}'",
        )


# ---- Device, memory, disk


def _device() -> str:
    if torch.cuda.is_available():
        indices = range(torch.cuda.device_count())
        return ", ".join(torch.cuda.get_device_name(index) for index in indices)
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf.
        return None


def _caches() -> dict[str, dict[str, str | int]]:
    """Return the folders of downloads, and the space that is left for each."""
    import datasets

    folders = {
        "models": Path(constants.HF_HUB_CACHE),
        "datasets": Path(datasets.config.HF_DATASETS_CACHE),
    }
    caches: dict[str, dict[str, str | int]] = {}
    for name, folder in folders.items():
        caches[name] = {"folder": str(folder), "free_bytes": _free_bytes(folder)}
    return caches


def _free_bytes(folder: Path) -> int:
    """Return the free space where a folder is or would be made."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free


def _device_problems() -> Iterator[Problem]:
    has_driver = shutil.which("nvidia-smi") is not None
    if torch.cuda.is_available():
        return
    if has_driver and torch.version.cuda is None:
        yield Problem(
            "an NVIDIA driver is installed, but torch is built for CPUs only",
            "install the CUDA build of torch, see https://pytorch.org/get-started",
        )
    elif has_driver:
        yield Problem(
            f"torch is built for CUDA {torch.version.cuda}, but finds no usable GPU",
            "run nvidia-smi, and update the driver or install a build for an older CUDA",
        )


def _speed_problems(report: MachineReport) -> Iterator[Problem]:
    if report.threads < report.cpus and report.device == "cpu":
        reason = ""
        if "OMP_NUM_THREADS" in os.environ:
            reason = f" (OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']})"
        yield Problem(
            f"torch uses {report.threads} of {report.cpus} CPUs{reason}",
            "unset OMP_NUM_THREADS, unless several processes share the machine",
        )


def _disk_problems(report: MachineReport) -> Iterator[Problem]:
    for name, cache in report.caches.items():
        free_bytes = int(cache["free_bytes"])
        if free_bytes < _SMALL_DISK:
            yield Problem(
                f"only {free_bytes / _GIGABYTE:.1f} GiB are free in {cache['folder']}, the {name} "
                "cache",
                "free some space, or set HF_HOME to a folder on another disk",
            )


# ---- The Hub


def _hub_state() -> str:
    """Return whether the Hub answers, within a few seconds."""
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return f"not contacted (HF_HUB_OFFLINE=1): {_WITHOUT_HUB}"
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT)
    except Exception as error:  # Whatever a proxy, a certificate or a name server may raise.
        reason = type(error).__name__
        return f"{constants.ENDPOINT} does not answer ({reason}): {_WITHOUT_HUB}"
    return f"{constants.ENDPOINT} answers"


# ---- Printing


def print_report(as_json: bool) -> None:
    """Look at the machine, and print what was found."""
    report = make_report()
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
        return
    _print_section("Versions", report.versions)
    _print_section("Machine", _machine_lines(report))
    _print_section("Extras", _extra_lines(report))
    _print_section("Hub", _hub_lines(report))
    if not report.problems:
        typer.echo("No problems found.")
        return
    typer.secho("Problems", bold=True)
    for problem in report.problems:
        typer.echo(f"  - {problem.finding}: {problem.advice}")


def _machine_lines(report: MachineReport) -> dict[str, str]:
    bf16 = "faster than float32" if report.bf16 else "not faster than float32"
    memory = "unknown"
    if report.memory_bytes is not None:
        memory = f"{report.memory_bytes / _GIGABYTE:.1f} GiB"
    return {
        "system": report.system,
        "device": report.device,
        "bfloat16": bf16,
        "CPUs": f"{report.cpus} (torch uses {report.threads})",
        "memory": memory,
    }


def _extra_lines(report: MachineReport) -> dict[str, str]:
    lines = {}
    for name, state in report.extras.items():
        status = "installed"
        if state.missing:
            status = f"missing {', '.join(state.missing)}: {install_command(name)}"
        purpose = f" ({state.purpose})" if state.purpose else ""
        lines[name] = status + purpose
    return lines


def _hub_lines(report: MachineReport) -> dict[str, str]:
    lines = {"Hub": report.hub}
    for name, cache in report.caches.items():
        free = int(cache["free_bytes"]) / _GIGABYTE
        lines[f"{name} cache"] = f"{cache['folder']}, {free:.1f} GiB free"
    return lines


def _print_section(title: str, lines: dict[str, str]) -> None:
    width = max(len(name) for name in lines)
    typer.secho(title, bold=True)
    for name, value in lines.items():
        typer.echo(f"  {name:<{width}}  {value}")
    typer.echo()
