"""Read how sentence-transformers makes vectors from the files beside a model.

Whatever `DocumentEmbedder` can't follow is refused by name, because the vectors would differ.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Dense, Module, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import MODULES_FILE, TRANSFORMER_FILE
from tmde.embedding.loading import errors_about
from tmde.embedding.model_files import find_model_file

# Modules by the last part of their names, which differ between versions of sentence-transformers.
_LATER_MODULES: dict[str, type[Module]] = {
    "Dense": Dense,
    "Dropout": Dropout,
    "LayerNorm": LayerNorm,
    "Normalize": Normalize,
}
_PACKAGE = "sentence_transformers."

# The settings of the Transformer module that are followed, and values of others that change nothing
# in a vector.
_FOLLOWED = {"max_seq_length", "do_lower_case", "model_kwargs", "processor_kwargs", "unpad_inputs"}
_NAMES_OF_VERSION_5 = {
    "model_args": "model_kwargs",
    "tokenizer_args": "processor_kwargs",
    "config_args": "config_kwargs",
}
_HARMLESS: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}


@dataclass(frozen=True)
class StoredModules:
    """What `modules.json` and its modules say; without that file, nothing.

    Attributes:
        later_modules: The modules after the encoder, a Pooling first; empty without the file.
        max_length: The longest input in tokens.
        lower_case: Whether texts are lowercased.
        model_kwargs: Arguments of `AutoModel.from_pretrained`.
        tokenizer_kwargs: Arguments of `AutoTokenizer.from_pretrained`.
    """

    later_modules: list[Module] = field(default_factory=list)
    max_length: int | None = None
    lower_case: bool = False
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    tokenizer_kwargs: dict[str, Any] = field(default_factory=dict)


def stored_modules(
    name: str,
    revision: str | None = None,
    token: str | bool | None = None,
    trust_remote_code: bool = False,
) -> StoredModules:
    """Read the modules of a model.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.
        token: The token to read it with.
        trust_remote_code: Whether an activation function may come from any package.

    Raises:
        TmdeError: A file is damaged, or there is a module or a setting that `DocumentEmbedder`
            cannot follow.
    """
    path = find_model_file(name, MODULES_FILE, revision, token)
    if path is None:
        return StoredModules()
    with errors_about(path):
        entries = json.loads(path.read_text(encoding="utf-8"))
        kinds = [_kind_of_module(entry["type"]) for entry in entries]
        folders = [Path(entry["path"]) for entry in entries]
    if set(kinds) <= {"Transformer", *_LATER_MODULES}:
        raise TmdeError(
            f"{name}/{MODULES_FILE}: found the modules {kinds} without a Pooling, expected a "
            "Transformer and a Pooling; add the Pooling, or delete this file and set "
            "pooling="
        )
    if kinds[:2] != ["Transformer", "Pooling"] or folders[0] != Path():
        raise _refusal(
            f"{name}/{MODULES_FILE}",
            f"the modules {kinds}",
            "a Transformer in the model's folder, a Pooling, and optionally more modules",
        )
    hub_options: dict[str, Any] = {"revision": revision, "token": token}
    later_modules: list[Module] = []
    for entry, kind, folder in zip(entries[1:], kinds[1:], folders[1:], strict=True):
        if folder.is_absolute() or ".." in folder.parts:
            raise TmdeError(
                f"{name}/{MODULES_FILE}: found the path {entry['path']!r}, expected a folder "
                "inside the model's"
            )
        module_class = Pooling if not later_modules else _LATER_MODULES.get(kind)
        if module_class is None:
            raise _refusal(
                f"{name}/{MODULES_FILE}",
                f"the module {entry['type']!r}",
                f"one of {sorted(_LATER_MODULES)} after the pooling",
            )
        with errors_about(f"{name}/{entry['path']}"):
            module = module_class.load(
                name, subfolder=entry["path"], trust_remote_code=trust_remote_code, **hub_options
            )
        later_modules.append(module)
    settings = _transformer_settings(name, hub_options)
    return StoredModules(
        later_modules,
        settings.get("max_seq_length"),
        settings.get("do_lower_case", False),
        settings.get("model_kwargs", {}),
        settings.get("processor_kwargs", {}),
    )


def _kind_of_module(type_name: str) -> str:
    """Return the class of a module of sentence-transformers, and the whole name of any other."""
    if type_name.startswith(_PACKAGE):
        return type_name.rpartition(".")[-1]
    return type_name


def _transformer_settings(name: str, hub_options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the Transformer module, by their names in version 6.

    Raises:
        TmdeError: There is a setting that `DocumentEmbedder` cannot follow.
    """
    settings: dict[str, Any] = {}
    with errors_about(f"{name}/{TRANSFORMER_FILE}"):
        stored = Transformer.load_config(name, **hub_options)
    for key, value in stored.items():
        settings[_NAMES_OF_VERSION_5.get(key, key)] = value
    # `DocumentEmbedder` always takes a literal `</s>` for text.
    settings.get("processor_kwargs", {}).pop("split_special_tokens", None)
    for key, value in settings.items():
        is_unset = value in (None, {})
        if key not in _FOLLOWED and not is_unset and value != _HARMLESS.get(key):
            raise _refusal(f"{name}/{TRANSFORMER_FILE}", f"{key}={value!r}", "no such setting")
    return settings


def _refusal(source: str, found: str, expected: str) -> TmdeError:
    return TmdeError(
        f"{source}: found {found}, expected {expected}; use SentenceTransformer for this "
        "model, because DocumentEmbedder would compute different vectors"
    )


def lowercase_texts(tokenizer: PreTrainedTokenizerBase) -> None:
    """Let a tokenizer lowercase every text first.

    Raises:
        TmdeError: It is a slow tokenizer, which has no place for this.
    """
    if not tokenizer.is_fast:
        raise _refusal(TRANSFORMER_FILE, "do_lower_case=true", "a fast tokenizer with it")
    backend = tokenizer.backend_tokenizer
    steps = [normalizers.Lowercase()]
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    backend.normalizer = normalizers.Sequence(steps)
