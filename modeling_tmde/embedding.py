"""Texts in, vectors out: `DocumentEmbedder` wraps any encoder of this package or of the Hub.

from modeling_tmde.embedding import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained("path/to/checkpoint")
vectors = embedder.encode(["Guten Tag", "Good day"])  # (2, d) float32
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .loading import check_device, default_device, filler_ids, input_vocabulary, length_limit, local_or_hub
from .text_batches import TextTokenizer, TokenizedTexts

logger = logging.getLogger(__name__)

POOLINGS = ("cls", "mean")
_PROGRESS_BAR_FROM = 2000  # texts; fewer are done before a bar is read


@dataclass(frozen=True)
class EncodeReport:
    """What one `encode` (or `encode_iter`, up to now) did.

    texts: number of texts; tokens: tokens given to the model, special tokens included, after truncation; truncated:
    texts longer than the limit; longest: tokens of the longest text **before** truncation; seconds: wall clock.
    """

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    longest: int = 0
    seconds: float = 0.0

    def __add__(self, other: EncodeReport) -> EncodeReport:
        sums = (getattr(self, name) + getattr(other, name) for name in ("texts", "tokens", "truncated"))
        return EncodeReport(*sums, max(self.longest, other.longest), self.seconds + other.seconds)


class DocumentEmbedder:
    """Embeds documents with a transformer encoder and its tokenizer.

    Args:
        model: an encoder. Of an encoder-decoder model (T5, Marian, BART) only the encoder is used, of a model with a
            head only its body.
        tokenizer: its tokenizer, fast or slow.
        pooling: `"cls"`, the first output, or `"mean"`, the average over the real tokens. Default: `"cls"` for this
            package's models (position 0 is the document embedding in every variant), `"mean"` for any other.
        max_length: longest input in tokens, special tokens included. Default: all that model and tokenizer can take,
            and 750 for a model of the Hub where neither names a limit. A larger number is lowered to what they can
            take. Texts beyond it are truncated, counted in `last_report` and warned of.

    Raises:
        ValueError: unknown pooling, a `max_length` that leaves no room for text, a tokenizer without vocabulary.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str | None = None,
        max_length: int | None = None,
    ) -> None:
        model = getattr(model, "base_model", model)
        ours = model.config.model_type.startswith("tmde")
        # TmdeModel is an encoder alone, although its config describes an encoder-decoder.
        if getattr(model.config, "is_encoder_decoder", False) and not ours:
            model = model.get_encoder()
        if pooling is None:
            pooling = "cls" if ours else "mean"
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: found {pooling!r}, expected one of {POOLINGS}")
        # Where tokenizer files are missing, transformers 5 makes up a tokenizer of special tokens without a warning.
        if len(tokenizer) <= len(tokenizer.all_special_ids) + 1:  # mBART's made-up one has a word mark as well
            raise ValueError(
                f"tokenizer: found a vocabulary of {len(tokenizer)} with {len(tokenizer.all_special_ids)} special "
                f"tokens, expected more than these: are the tokenizer's files in {tokenizer.name_or_path!r}?"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        # Of T-MDE's last layer, only what the embedding needs.
        self._options = {"pooled_only": True} if pooling == "cls" and model.config.model_type == "tmde" else {}
        self.last_report: EncodeReport | None = None
        # A bag of tokens needs no padding, and gets none; a mean is taken over the outputs of a padded batch.
        self._ragged = hasattr(model, "embed_ragged") and pooling == "cls"
        self._max_length = length_limit(model, tokenizer, ours, max_length)
        special_tokens = tokenizer.num_special_tokens_to_add(pair=False)
        if self._max_length <= special_tokens:
            raise ValueError(
                f"max_length: found {self._max_length}, expected more than the {special_tokens} special tokens "
                "that the tokenizer adds to every text"
            )
        self._pad_id, self._empty_id = filler_ids(model, tokenizer)
        self._tokenize = TextTokenizer(tokenizer, self._max_length, input_vocabulary(model), self._empty_id)
        self._dimension: int | None = None

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike,
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        **model_kwargs,
    ) -> DocumentEmbedder:
        """Loads model and tokenizer from a folder or the Hub, ready to encode.

        Args:
            path_or_hub_id: what `AutoModel.from_pretrained` takes.
            pooling, max_length: see the class.
            device: default: cuda, else mps, else cpu; untouched when `device_map` is given.
            dtype: of the weights, e.g. `torch.bfloat16` or `"bfloat16"`; default: that of the checkpoint. Vectors are
                float32 in any case.
            trust_remote_code, revision, token, **model_kwargs: passed on to `AutoModel` and `AutoTokenizer` (the last
                only to `AutoModel`).

        Raises:
            FileNotFoundError: a path (not a possible Hub id) that is no folder of a model.
            OSError, ValueError: a device that is not there, or what transformers finds wrong with the repository.
        """
        name = local_or_hub(path_or_hub_id)
        if device is None and "device_map" not in model_kwargs:
            device = default_device()
        check_device(device)
        shared = {"trust_remote_code": trust_remote_code, "revision": revision or "main", "token": token}
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, **shared)
        except OSError:
            raise
        except Exception as error:  # without its files, anything from KeyError to a Rust error
            raise ValueError(f"{name}: its tokenizer cannot be loaded; are its files there? {error}") from error
        if dtype is not None:
            model_kwargs["dtype"] = dtype
        model = AutoModel.from_pretrained(name, **shared, **model_kwargs).eval()
        embedder = cls(model, tokenizer, pooling=pooling, max_length=max_length)
        return embedder if device is None else embedder.to(device)

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included: what was asked for, within what the model can take.

        1,000,000,000 where nothing limits it.
        """
        return self._max_length

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def dimension(self) -> int:
        """Length d of a vector. Measured once, by one input token: configs name it in too many ways."""
        if self._dimension is None:
            with _evaluating(self.model), torch.inference_mode():
                one = torch.tensor([[self._empty_id]])
                self._dimension = self._embed(one, torch.ones_like(one)).shape[-1]
        return self._dimension

    def to(self, device: str | torch.device) -> DocumentEmbedder:
        """Moves the model; returns self."""
        self.model.to(device)
        return self

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(model={type(self.model).__name__}, name={self.model.name_or_path!r}, "
            f"pooling={self.pooling!r}, max_length={self.max_length}, device={str(self.device)!r}, "
            f"dtype={self.model.dtype})"
        )

    def encode(
        self,
        texts: str | Iterable[str],
        batch_tokens: int = 16384,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
    ) -> np.ndarray | torch.Tensor:
        """Embeds texts, as they are: no lower-casing, no prompt.

        A vector does not depend on the other texts of the call, nor on `batch_tokens` (in float32 to 1e-5). An empty
        text is a text: where the tokenizer adds no special token, the model gets one end-of-sequence (else begin, else
        padding) token for it, so that its vector is finite and not zero.

        Args:
            texts: n strings; or one string, which gives one vector.
            batch_tokens: padded size of a batch, rows times longest row; for a bag, its tokens. A longer text is a
                batch of its own.
            show_progress_bar: default: when this module's logger is at INFO or below, or when there are more than
                2,000 texts and stderr is a terminal.
            normalize: scale each vector to Euclidean length 1.
            convert_to_tensor: return a tensor on the model's device instead of a numpy array.

        Returns:
            float32 (n, d) in the order of `texts`, or (d,) for one string; (0, d) for no texts.

        Raises:
            TypeError: a text that is not a string (index and type are named).
            ValueError: a text that is not valid Unicode, a token beyond the model's vocabulary, a bad `batch_tokens`.
        """
        _check_arguments(texts, batch_tokens)
        single = isinstance(texts, str)
        texts = [texts] if single else list(texts)
        with _progress_bar(show_progress_bar, len(texts)) as bar:
            vectors, report = self._encode(texts, batch_tokens, normalize, convert_to_tensor, bar.update)
        self._finish(report)
        return vectors[0] if single else vectors

    def encode_iter(
        self,
        texts: Iterable[str],
        chunk_size: int = 8192,
        batch_tokens: int = 16384,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
        total: int | None = None,
    ) -> Iterator[np.ndarray | torch.Tensor]:
        """Embeds a stream in flat memory: reads `chunk_size` texts, yields their vectors (<= chunk_size, d), in order.

        Arguments as for `encode`; `total` is the number of texts, if known, for the progress bar. `last_report` covers
        all chunks yielded so far; truncation is warned of once, at the end.
        """
        _check_arguments(texts, batch_tokens, chunk_size)
        if isinstance(texts, str):
            raise TypeError("texts: found one str, expected an iterable of str; for one text use encode()")

        def chunks() -> Iterator[np.ndarray | torch.Tensor]:
            report = EncodeReport()
            stream = iter(texts)
            with _progress_bar(show_progress_bar, total, stream=True) as bar:
                try:
                    while chunk := list(itertools.islice(stream, chunk_size)):
                        vectors, part = self._encode(
                            chunk, batch_tokens, normalize, convert_to_tensor, bar.update, first_index=report.texts
                        )
                        report = self.last_report = report + part
                        yield vectors
                finally:  # also when the reader of this stream stops early
                    self._finish(report)

        return chunks()

    def _encode(
        self,
        texts: list[str],
        batch_tokens: int,
        normalize: bool,
        convert_to_tensor: bool,
        progress: Callable[[int], object],
        first_index: int = 0,
    ) -> tuple[np.ndarray | torch.Tensor, EncodeReport]:
        """One list of texts to (n, d), with its report; warns of nothing."""
        start = time.perf_counter()
        _check_texts(texts, first_index)
        tokenized = self._tokenize(texts, first_index)
        device = self.device if convert_to_tensor else torch.device("cpu")
        vectors = torch.empty((len(texts), self.dimension), dtype=torch.float32, device=device)
        with _evaluating(self.model), torch.inference_mode():
            for numbers, batch in self._embedded_batches(tokenized, batch_tokens):
                if normalize:
                    batch = nn.functional.normalize(batch, dim=-1)
                vectors[numbers] = batch.to(device)
                progress(len(batch))
        report = EncodeReport(
            texts=len(texts),
            tokens=int(tokenized.lengths.sum()),
            truncated=int((tokenized.full_lengths > self.max_length).sum()),
            longest=int(tokenized.full_lengths.max(initial=0)),
            seconds=time.perf_counter() - start,
        )
        return (vectors if convert_to_tensor else vectors.numpy()), report

    def _embedded_batches(
        self, texts: TokenizedTexts, batch_tokens: int
    ) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
        """Which texts, and their vectors (rows, d) in float32, on the model's device."""
        if self._ragged:
            for numbers, token_ids, lengths in texts.ragged_batches(batch_tokens):
                yield numbers, self.model.embed_ragged(token_ids.to(self.device), lengths.to(self.device)).float()
        else:
            for numbers in texts.padded_batches(batch_tokens):
                yield torch.from_numpy(numbers), self._embed(*texts.padded(numbers, self._pad_id))

    def _embed(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Token ids of one padded batch, (rows, length), to float32 (rows, d), on the model's device."""
        attention_mask = attention_mask.to(self.device)
        outputs = self.model(input_ids=input_ids.to(self.device), attention_mask=attention_mask, **self._options)
        hidden = outputs[0]  # last_hidden_state (rows, length, d)
        if self.pooling == "cls":
            return hidden[:, 0].float()
        if hidden.shape[:2] != attention_mask.shape:
            raise ValueError(
                f"pooling 'mean' needs one output per token: found {tuple(hidden.shape)}, expected "
                f"{(*attention_mask.shape, 'd')}; use pooling='cls'"
            )
        # fp32 sum: in bf16 a long text would lose its last tokens. masked_fill: padding may hold anything, even NaN.
        summed = hidden.masked_fill(attention_mask[:, :, None] == 0, 0.0).sum(dim=1, dtype=torch.float32)
        return summed / attention_mask.sum(dim=1, keepdim=True)

    def _finish(self, report: EncodeReport) -> None:
        self.last_report = report
        if report.truncated:
            logger.warning(
                f"{report.truncated:,} of {report.texts:,} texts were longer than {self.max_length:,} tokens and were "
                f"truncated (longest {report.longest:,} tokens); what lies beyond is not in their vectors. Split long "
                "texts, or raise max_length if the model can take more"
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a `with` block: an embedder may share the model with a training run."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _progress_bar(show: bool | None, total: int | None, stream: bool = False) -> tqdm:
    if show is None:
        many = stream or (total or 0) > _PROGRESS_BAR_FROM
        show = logger.isEnabledFor(logging.INFO) or (many and sys.stderr is not None and sys.stderr.isatty())
    return tqdm(total=total, desc="Embedding", unit=" texts", disable=not show)


def _check_arguments(texts: object, batch_tokens: int, chunk_size: int = 1) -> None:
    for name, value in (("batch_tokens", batch_tokens), ("chunk_size", chunk_size)):
        if value < 1:
            raise ValueError(f"{name}: found {value}, expected at least 1")
    if isinstance(texts, (bytes, bytearray, Mapping, set, frozenset)) or not isinstance(texts, Iterable):
        raise TypeError(f"texts: found {type(texts).__name__}, expected a sequence of str")


def _check_texts(texts: list[str], first_index: int) -> None:
    for i, text in enumerate(texts, first_index):
        if not isinstance(text, str):
            raise TypeError(f"text {i}: found {type(text).__name__}, expected str")
