"""Where the graphs of a model are kept, and the record beside each that tells of which weights it is."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, OfflineModeIsEnabled
from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)

FILES = {None: "onnx/model.onnx", "int8": "onnx/model_int8.onnx"}
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_CONFIG = "config.json"

Sources = dict[str, str]  # SHA-256 by file name


def read_sources(folder: Path) -> Sources:
    """Of the weights and the config of a model; empty for a folder without weights, such as one of a graph alone.

    The contents count, not times: `cp -p` gives other weights an older time, a plain copy the same weights a newer.
    """
    weights = sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern))
    files = [*weights, *folder.glob(_CONFIG)] if weights else []
    return {path.name: sha256_of([path]).hex() for path in files}


def sha256_of(paths: Iterable[Path]) -> bytes:
    """Of the contents of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.digest()


def data_file(graph: Path) -> Path:
    """Where the weights of a graph are that are too large for one file."""
    return graph.with_name(graph.name + ".data")


def record_file(graph: Path) -> Path:
    """JSON of the sources of a graph; a graph without one was not written by this package."""
    return graph.with_name(graph.name + ".tmde.json")


def replace_graph(written: Path, target: Path, sources: Sources) -> None:
    """Moves a graph, with its data and its record, into the folder of `target`.

    The old record goes first and the new one comes last, so that none is ever beside a graph that it is not of.
    """
    record_file(written).write_text(json.dumps(sources, indent=2), encoding="utf-8")
    record_file(target).unlink(missing_ok=True)
    for part in (data_file(written), written, record_file(written)):
        if part.exists():
            os.replace(part, target.parent / part.name)


def _read_record(graph: Path) -> Sources | None:
    try:
        return json.loads(record_file(graph).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def find_graph(
    name: str, config: PreTrainedConfig, quantization: str | None, hub: Mapping[str, Any] | None = None
) -> tuple[Path | None, list[Path], Sources]:
    """Where the graph of a model is, if there is one of its weights.

    A graph in the model's folder that has no record is the user's: it is left alone, and not used unless the folder
    has no weights to compare it with.

    Args:
        name: Folder or Hub id. A Hub id, and a folder that cannot be written to, have their graphs in `HF_HOME`; that
            of a Hub id is downloaded if the repository has one of its weights.
        hub: Arguments of downloads: revision, token, cache_dir, local_files_only.

    Returns:
        The graph or None; the folders that one may be written to, best first; what it is to be written from.
    """
    folder = Path(name)
    cache = Path(constants.HF_HOME) / "tmde"
    if not folder.is_dir():
        commit = commit_of(name, config, hub or {})
        places = [cache / f"{name.replace('/', '--')}-{commit or 'main'}"]
        sources = {}
    else:
        places = [folder, cache / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]]
        sources = read_sources(folder)
        own = folder / FILES[quantization]
        if own.is_file() and not sources:
            return own, places, sources
        if own.is_file() and not record_file(own).is_file():
            logger.info(f"{own} was not written by this package: it is left alone, the graph goes into {places[1]}")
            del places[0]
    for place in places:
        path = place / FILES[quantization]
        if path.is_file() and _read_record(path) == sources:
            return path, places, sources
    if not folder.is_dir() and commit and _download_graph(name, commit, path, FILES[quantization], hub or {}):
        return path, places, sources
    return None, places, sources


def commit_of(name: str, config: PreTrainedConfig, hub: Mapping[str, Any]) -> str | None:
    """Of a Hub id whose config was just loaded; newer configs do not say it, but the place of their file does."""
    cached = try_to_load_from_cache(name, _CONFIG, hub.get("cache_dir"), hub.get("revision"))
    found = Path(cached).parent.name if isinstance(cached, str) else None
    return getattr(config, "_commit_hash", None) or found


def _download_graph(name: str, commit: str, target: Path, file: str, hub: Mapping[str, Any]) -> bool:
    """Whether the repository has a graph of its weights, which is copied to `target`: in the cache of the Hub there
    are links, beside which ONNX Runtime would not find the data."""
    graph, hub = Path(file), {**hub, "revision": commit}
    try:
        record = Path(hf_hub_download(name, record_file(graph).as_posix(), **hub))
        sources = _read_record(record.with_name(graph.name))
        if not isinstance(sources, dict):
            return False
        wanted = [*sources, graph.as_posix(), data_file(graph).as_posix()]
        folder = Path(snapshot_download(name, allow_patterns=wanted, **hub))
    except (EntryNotFoundError, OfflineModeIsEnabled):
        return False
    found = read_sources(folder)  # of a run's folder, the record may name weights that were not pushed
    if not (folder / graph).is_file() or not found or not found.items() <= sources.items():
        logger.info(f"{name}: the graph of the repository is not of its weights; another is written")
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        written = Path(temporary) / graph.name
        for part in (folder / graph, data_file(folder / graph)):
            if part.is_file():
                shutil.copyfile(part, Path(temporary) / part.name)
        replace_graph(written, target, {})
    return True


def first_writable(places: list[Path]) -> Path:
    """The first folder in which a graph can be written; the last one if there is none."""
    for place in places[:-1]:
        try:
            (place / "onnx").mkdir(exist_ok=True)
            tempfile.TemporaryFile(dir=place / "onnx").close()
        except OSError:
            continue
        return place
    return places[-1]
