"""Export a bag of tokens as a table of vectors, for sentence-transformers and model2vec."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import BagModel, TmdeError
from modeling_tmde.sentence_transformers_files import (
    MODULES_FILE,
    PROMPTS_FILE,
    prompt_settings,
    write_json,
)
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.export_check import TEXTS, TOLERANCE, weighted_table

_MODULES = "sentence_transformers.models"  # the names of version 5, which later ones read too


def export_static_embedding(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    prompt: str = "",
) -> float:
    """Write a bag model as a static one: a table of vectors, and a tokenizer.

    `SentenceTransformer(folder)` and model2vec's `StaticModel.from_pretrained(folder)` open it
    without this package. The vector of a text is the mean of `exp(w_t) E_t` in float32 over its
    tokens, scaled to length 1 if the model does so. It is that of [`BagModel`], but for these
    points:

    - A static model counts a token that occurs n times n times. With `sublinear_counts`, the bag
      counts it sqrt(n) times, so that only texts without a repeated token keep their vectors.
    - `<s>` and `</s>`, of next to no weight, are left out. A text without any other token gets
      zeros.
    - With `normalize=False`, vectors keep their directions. They are longer than those of the bag,
      which counts `<s>` and `</s>` in the number of tokens that it divides by.
    - model2vec leaves out tokens that are unknown to the tokenizer.

    Args:
        model: A [`BagModel`].
        tokenizer: Its tokenizer.
        folder: Where to write; files of an earlier export are overwritten.
        prompt: What sentence-transformers is to put before every text; model2vec has no prompts.

    Returns:
        The largest difference between unit vectors of the table and of the model on `TEXTS`, if
        both count a repeated token as often as it occurs.

    Raises:
        TmdeError: The model is no bag, or the table gives other vectors.
    """
    bag = _checked_bag(model)
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as temporary:
        # The temporary folder itself is closed to other users.
        written = Path(temporary) / "static"
        written.mkdir()
        _write_files(bag, tokenizer, written, prompt)
        difference = _checked_difference(bag, tokenizer, written, prompt)
        shutil.copytree(written, folder, dirs_exist_ok=True)
    return difference


def _checked_bag(model: PreTrainedModel) -> BagModel:
    """Return a model, whose vectors a static one can give."""
    if model.config.model_type != "tmde_bag":
        raise TmdeError(
            f"model: found {type(model).__name__}, expected a BagModel; export other models "
            "with `tmde export onnx`"
        )
    return cast(BagModel, model)


def _write_files(
    bag: BagModel, tokenizer: PreTrainedTokenizerBase, folder: Path, prompt: str
) -> None:
    """Write the files of both packages; they share the table and the tokenizer."""
    plain_tokenizer = _tokenizer_of_plain_text(tokenizer)
    plain_tokenizer.save(str(folder / "tokenizer.json"))
    save_file(_tensors(bag, plain_tokenizer), folder / "model.safetensors")
    config = bag.config
    modules = [_module(0, "", "StaticEmbedding")]
    if config.normalize:
        modules.append(_module(1, "1_Normalize", "Normalize"))
    write_json(folder / MODULES_FILE, modules)
    write_json(folder / PROMPTS_FILE, prompt_settings(prompt))
    model2vec = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "normalize": config.normalize,
        # Without this, model2vec reads no more than 512 tokens.
        "max_length": None,
        "embedding_dtype": "float32",
        "hidden_dim": config.d_model,
        "languages": list(config.languages),
    }
    write_json(folder / "config.json", model2vec)


def _tensors(bag: BagModel, tokenizer: Tokenizer) -> dict[str, torch.Tensor]:
    """Return what `model.safetensors` holds, by the names of model2vec."""
    tensors = {"embeddings": weighted_table(bag).contiguous()}
    num_rows = len(tensors["embeddings"])
    if num_rows != tokenizer.get_vocab_size():
        # Only with a row named for each token does model2vec open a table of another size.
        tensors["mapping"] = torch.arange(num_rows)
    return tensors


def _module(number: int, path: str, kind: str) -> dict[str, Any]:
    """Return an entry of `modules.json`."""
    return {"idx": number, "name": str(number), "path": path, "type": f"{_MODULES}.{kind}"}


def _checked_difference(
    bag: BagModel, tokenizer: PreTrainedTokenizerBase, folder: Path, prompt: str
) -> float:
    """Return the largest difference of unit vectors on `TEXTS`, if it is small.

    Raises:
        TmdeError: It is not.
    """
    undamped = _undamped(bag)
    expected = DocumentEmbedder(undamped, tokenizer, prompt=prompt).encode(TEXTS)
    assert isinstance(expected, np.ndarray)  # A tensor comes only if it is asked for.
    vectors = static_encoder(folder)(TEXTS)
    difference = float(np.abs(_unit_rows(vectors) - _unit_rows(expected)).max())
    if not difference <= TOLERANCE:  # Written so that NaN fails.
        raise TmdeError(
            f"the table's vectors differ from the model's by {difference:.1e}, expected at "
            f"most {TOLERANCE:.0e}"
        )
    return difference


def static_encoder(
    folder: str | os.PathLike[str],
) -> Callable[[Sequence[str]], np.ndarray]:
    """Open an exported model with sentence-transformers.

    Returns:
        A function from texts to their vectors, (texts, d) float32.
    """
    static_model = SentenceTransformer(str(folder), device="cpu")

    def encode(texts: Sequence[str]) -> np.ndarray:
        vectors: np.ndarray = static_model.encode(list(texts), show_progress_bar=False)
        return vectors

    return encode


def _undamped(bag: BagModel) -> BagModel:
    """Return a bag with the same weights that counts tokens as often as they occur."""
    twin = copy.copy(bag)
    twin.config = copy.copy(bag.config)
    twin.config.sublinear_counts = False
    return twin


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (texts, d) scaled to length 1."""
    unit_vectors: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit_vectors


def _tokenizer_of_plain_text(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return a tokenizer without special tokens, for which a literal `</s>` is text."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["truncation"] = None
    state["padding"] = None
    state["added_tokens"] = []
    state["post_processor"] = None
    return Tokenizer.from_str(json.dumps(state))
