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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm
from tqdm.std import tqdm as tqdm_std
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .backends import LENGTH_MULTIPLE, fetch_vectors, is_compiled, load_encoder, mean_pooled, store_vectors
from .loading import (
    check_vocabulary,
    encoder_body,
    evaluating,
    filler_ids,
    input_vocabulary,
    is_ours,
    length_limit,
    load_tokenizer,
    local_or_hub,
    pooled_options,
)
from .long_documents import DocumentGroup, Progress, check_dimension, load_aggregation, long_documents_of
from .text_batches import EncodeReport, TextTokenizer, TokenizedTexts, check_arguments, check_texts
from .text_languages import TextLanguages, needs_language

if TYPE_CHECKING:
    from .density import SentenceDensity

logger = logging.getLogger(__name__)

POOLINGS = ("cls", "mean")


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
            take.
        long_documents: what becomes of a text of more than `window` tokens. `"truncate"`: it is cut off at
            `max_length`, counted in `last_report` and warned of. `"chunk"`: it is cut into overlapping windows of
            `window` tokens. `"sentences"`: it is split into sentences. Every other text gets its plain vector.
        window: tokens, special tokens included, up to which a text is not split. Default: `max_length`.
        stride: tokens from the start of one window to that of the next; a sentence longer than `max_length` is cut
            into windows as well. Default: half of the text in a window.
        aggregation: of the vectors of a text's pieces: `"mean"`, `"max"` of each element, or a fitted
            `SentenceDensity` (or the file of a saved one), by whose weights the mean is taken.

    Raises:
        ValueError: unknown pooling, a `max_length` that leaves no room for text, a tokenizer without vocabulary,
            settings for long documents that exclude each other or leave text out, a density of other vectors.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str | None = None,
        max_length: int | None = None,
        long_documents: str = "truncate",
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike | SentenceDensity = "mean",
    ) -> None:
        model = encoder_body(model)
        ours = is_ours(model)
        pooling = ("cls" if ours else "mean") if pooling is None else pooling
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: found {pooling!r}, expected one of {POOLINGS}")
        if pooling == "mean" and getattr(model, "pooled_only", False):
            raise ValueError(
                "pooling: found 'mean' with backend='onnx', whose graph of T-MDE gives P alone; use 'cls'"
            )
        check_vocabulary(tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        # Of T-MDE's last layer, only what the embedding needs.
        self._options = pooled_options(model) if pooling == "cls" else {}
        self.last_report: EncodeReport | None = None
        # A bag of tokens needs no padding, and gets none; a mean is taken over the outputs of a padded batch.
        self._ragged = hasattr(model, "embed_ragged") and pooling == "cls" and not needs_language(model)
        self._max_length = length_limit(model, tokenizer, ours, max_length)
        self._pad_id, self._empty_id = filler_ids(model, tokenizer)
        self._tokenize = TextTokenizer(tokenizer, self._max_length, input_vocabulary(model), self._empty_id)
        self.long_documents = long_documents
        self._long = long_documents_of(self._tokenize, long_documents, window, stride, aggregation)
        self.aggregation = "mean" if self._long is None else self._long.aggregation
        self._dimension: int | None = None
        if not isinstance(self.aggregation, str):
            check_dimension(self.aggregation, self.dimension)

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike,
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        backend: str = "torch",
        quantization: str | None = None,
        compile: bool = False,
        trust_remote_code: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        long_documents: str = "truncate",
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike | SentenceDensity = "mean",
        **model_kwargs,
    ) -> DocumentEmbedder:
        """Loads model and tokenizer from a folder or the Hub, ready to encode.

        Args:
            path_or_hub_id: what `AutoModel.from_pretrained` takes.
            pooling, max_length, long_documents, window, stride, aggregation: see the class.
            device: default: cuda, else mps, else cpu; untouched when `device_map` is given.
            dtype: of the weights, e.g. `torch.bfloat16` or `"bfloat16"`; default: that of the checkpoint. Vectors are
                float32 in any case.
            backend: `"torch"`, or `"onnx"` for ONNX Runtime (`pip install 'tmde[onnx]'`). The graph is written once,
                to `onnx/model.onnx` in the folder of the model, or in `HF_HOME` for a Hub id or a folder that cannot
                be written to, and again when the weights are newer. It takes as many threads as torch now does.
            quantization: `"int8"` for weights of 8 bits, and inputs of linear maps rounded to 8 bits; on a CPU with
                backend `"torch"`. With `"onnx"` a vector depends on its batch a little: the graph is rounded by batch.
            compile: run by `torch.compile`, which takes up to a minute at first; on a CPU it needs a C++ compiler.
            trust_remote_code, revision, token, **model_kwargs: passed on to `AutoModel` and `AutoTokenizer` (the last
                only to `AutoModel`).

        Raises:
            FileNotFoundError: a path (not a possible Hub id) that is no folder of a model.
            OSError, ValueError: a device that is not there, modes that exclude each other or that the model does not
                take (a bag takes none), or what transformers finds wrong with the repository.
            ImportError: `backend="onnx"` without ONNX Runtime.
        """
        name = local_or_hub(path_or_hub_id)
        shared = {"trust_remote_code": trust_remote_code, "revision": revision or "main", "token": token}
        aggregation = load_aggregation(aggregation)  # before a large model
        tokenizer = load_tokenizer(name, shared)
        modes = {"backend": backend, "quantization": quantization, "compile": compile, "dtype": dtype}
        model = load_encoder(name, device=device, shared=shared, **modes, **model_kwargs)
        return cls(model, tokenizer, pooling, max_length, long_documents, window, stride, aggregation)

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included: what was asked for, within what the model can take.

        1,000,000,000 where nothing limits it.
        """
        return self._max_length

    @property
    def long_document_settings(self) -> dict[str, str | int]:
        """What decides the vectors of long documents, with its defaults; only the mode where they are truncated."""
        return {"long_documents": "truncate"} if self._long is None else self._long.describe()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def dimension(self) -> int:
        """Length d of a vector. Measured once, by one input token at most: configs name it in too many ways."""
        if self._dimension is None:
            with evaluating(self.model), torch.inference_mode():
                one = torch.tensor([[self._empty_id]])
                language = torch.tensor([0]) if self.needs_language else None
                self._dimension = self._embed(one, torch.ones_like(one), language).shape[-1]
        return self._dimension

    @property
    def needs_language(self) -> bool:
        """Whether the model has a part of its own for each language, so that `encode` needs to know them."""
        return needs_language(self.model)

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
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
        language: str | Sequence[str] | None = None,
    ) -> np.ndarray | torch.Tensor:
        """Embeds texts, as they are: no lower-casing, no prompt.

        A vector does not depend on the other texts of the call, nor on `batch_tokens` (in float32 to 1e-5). An empty
        text is a text: where the tokenizer adds no special token, the model gets one end-of-sequence (else begin, else
        padding) token for it, so that its vector is finite and not zero.

        Args:
            texts: n strings; or one string, which gives one vector.
            batch_tokens: padded size of a batch, rows times longest row; for a bag, its tokens. A longer text is a
                batch of its own. Default: 4,096 on a CPU, whose caches hold no more, else 16,384.
            show_progress_bar: default: when this module's logger is at INFO or below, or when there are more than
                2,000 texts and stderr is a terminal.
            normalize: scale each vector to Euclidean length 1.
            convert_to_tensor: return a tensor on the model's device instead of a numpy array.
            language: code of the language of all texts, or one for each, of `model.config.languages`; for a model
                that `needs_language`. Others embed all languages alike; any code helps to find the ends of sentences,
                where `long_documents` is "sentences".

        Returns:
            float32 (n, d) in the order of `texts`, or (d,) for one string; (0, d) for no texts.

        Raises:
            TypeError: a text or code that is not a string (index and type are named).
            ValueError: a text that is not valid Unicode, a token beyond the model's vocabulary, a bad `batch_tokens`;
                where it is needed, a missing or unknown language, or not one for each text.
        """
        check_arguments(texts, batch_tokens)
        single = isinstance(texts, str)
        texts = [texts] if single else list(texts)
        languages = TextLanguages(self.model, language, self.long_documents == "sentences")
        languages.take(len(texts))
        languages.finish(len(texts))
        with self._bar(show_progress_bar, len(texts)) as bar:
            vectors, report = self._encode(texts, batch_tokens, normalize, convert_to_tensor, bar.update, languages)
        self._finish(report)
        return vectors[0] if single else vectors

    def encode_iter(
        self,
        texts: Iterable[str],
        chunk_size: int = 8192,
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
        total: int | None = None,
        language: str | Iterable[str] | None = None,
    ) -> Iterator[np.ndarray | torch.Tensor]:
        """Embeds a stream in flat memory: reads `chunk_size` texts, yields their vectors (<= chunk_size, d), in order.

        Arguments as for `encode`; `total` is the number of texts, if known, for the progress bar, and codes of
        `language` are read in step with the texts. `last_report` covers all chunks yielded so far; truncation is
        warned of once, at the end.
        """
        check_arguments(texts, batch_tokens, chunk_size)
        if isinstance(texts, str):
            raise TypeError("texts: found one str, expected an iterable of str; for one text use encode()")
        languages = TextLanguages(self.model, language, self.long_documents == "sentences")

        def chunks() -> Iterator[np.ndarray | torch.Tensor]:
            report = EncodeReport()
            stream = iter(texts)
            with self._bar(show_progress_bar, total, stream=True) as bar:
                try:
                    while chunk := list(itertools.islice(stream, chunk_size)):
                        languages.take(len(chunk), report.texts)
                        vectors, part = self._encode(
                            chunk, batch_tokens, normalize, convert_to_tensor, bar.update, languages, report.texts
                        )
                        report = self.last_report = report + part
                        yield vectors
                    languages.finish(report.texts)
                finally:  # also when the reader of this stream stops early
                    self._finish(report)

        return chunks()

    def _encode(
        self,
        texts: list[str],
        batch_tokens: int | None,
        normalize: bool,
        convert_to_tensor: bool,
        progress: Progress,
        languages: TextLanguages,
        first_index: int = 0,
    ) -> tuple[np.ndarray | torch.Tensor, EncodeReport]:
        """One list of texts to (n, d), with its report; warns of nothing."""
        start = time.perf_counter()
        check_texts(texts, first_index)
        batch_tokens = batch_tokens or (4096 if self.device.type == "cpu" else 16384)
        device = self.device if convert_to_tensor else torch.device("cpu")
        # Batches are filled from windows of texts: large ones need less padding, small ones are tokenised in time.
        window = max(4096, batch_tokens // 2)
        vectors, pending, report = None, None, EncodeReport()
        with evaluating(self.model), torch.inference_mode():
            if self._long is None:
                groups = self._tokenize.windows(texts, window, first_index)
            else:
                groups = self._long.groups(texts, window, first_index, languages.codes)
            for group in groups:
                if languages.ids is not None:
                    group = replace(group, language_ids=languages.ids[report.texts : report.texts + len(group)])
                part = self._embed_group(group, batch_tokens, normalize, progress)
                if vectors is None:
                    with torch.inference_mode(False):  # for whoever trains on these vectors
                        vectors = torch.empty((len(texts), part.shape[-1]), dtype=torch.float32, device=device)
                # One window behind, so that a GPU need not wait for its vectors to be fetched.
                store_vectors(pending, vectors)
                pending = (report.texts, *fetch_vectors(part, device))
                report += group.report()
            store_vectors(pending, vectors)
        report = replace(report, seconds=time.perf_counter() - start)
        return (vectors if convert_to_tensor else vectors.numpy()), report

    def _embed_group(
        self, group: TokenizedTexts | DocumentGroup, batch_tokens: int, normalize: bool, progress: Progress
    ) -> torch.Tensor:
        """(n, d) float32, on the model's device."""
        if isinstance(group, TokenizedTexts):
            return self._embed_window(group, batch_tokens, normalize, progress)
        vectors = group.embedded(lambda pieces, done: self._embed_window(pieces, batch_tokens, False, done), progress)
        return nn.functional.normalize(vectors, dim=-1) if normalize else vectors

    def _embed_window(
        self, texts: TokenizedTexts, batch_tokens: int, normalize: bool, progress: Progress
    ) -> torch.Tensor:
        """(n, d) float32, on the model's device."""
        vectors = None
        for numbers, batch in self._embedded_batches(texts, batch_tokens):
            if vectors is None:
                self._dimension = batch.shape[-1]
                vectors = batch.new_empty((len(texts), self._dimension))
            vectors[numbers] = nn.functional.normalize(batch, dim=-1) if normalize else batch
            progress(len(batch))
        return torch.empty((0, self.dimension), device=self.device) if vectors is None else vectors

    def _embedded_batches(
        self, texts: TokenizedTexts, batch_tokens: int
    ) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
        """Which texts, and their vectors (rows, d) in float32, on the model's device."""
        if self._ragged:
            for numbers, token_ids, lengths in texts.ragged_batches(batch_tokens):
                yield numbers, self.model.embed_ragged(self._sent(token_ids), self._sent(lengths)).float()
            return
        # torch.compile would make one program for batches of one row, and look at each new length.
        compiled = is_compiled(self.model)
        for numbers in texts.padded_batches(batch_tokens):
            rows = numbers.repeat(2) if compiled and len(numbers) == 1 else numbers
            padded = texts.padded(rows, self._pad_id, LENGTH_MULTIPLE if compiled else 1, self.max_length)
            languages = None if texts.language_ids is None else texts.language_ids[torch.from_numpy(rows)]
            yield self._sent(torch.from_numpy(numbers)), self._embed(*padded, languages)[: len(numbers)]

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the model's device; a GPU does not wait for it."""
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def _embed(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, language_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Token ids of one padded batch, (rows, length), to float32 (rows, d), on the model's device.

        language_ids: (rows,), for a model that needs them.
        """
        attention_mask = self._sent(attention_mask)
        options = self._options if language_ids is None else self._options | {"language_ids": self._sent(language_ids)}
        outputs = self.model(input_ids=self._sent(input_ids), attention_mask=attention_mask, **options)
        hidden = outputs[0]  # last_hidden_state (rows, length, d)
        if self.pooling == "cls":
            return hidden[:, 0].float()
        return mean_pooled(hidden, attention_mask)

    def _bar(self, show: bool | None, total: int | None, stream: bool = False) -> tqdm_std:
        if show is None:
            many = stream or total > 2000
            show = logger.isEnabledFor(logging.INFO) or (many and sys.stderr is not None and sys.stderr.isatty())
        return progress_bar(total=total, desc="Embedding", unit=" texts", disable=not show)

    def _finish(self, report: EncodeReport) -> None:
        self.last_report = report
        if report.truncated:
            logger.warning(
                f"{report.truncated:,} of {report.texts:,} texts were longer than {self.max_length:,} tokens and were "
                f"truncated (longest {report.longest:,} tokens); what lies beyond is not in their vectors. Embed them "
                "whole with long_documents='chunk' or 'sentences', or raise max_length if the model can take more"
            )


class _LogLines(tqdm_std):
    """A bar for a log: whole lines, at most one every 30 seconds, and none for what takes less."""

    @staticmethod
    def status_printer(file):
        return lambda text: print(text.strip(), file=file, flush=True)


def progress_bar(
    iterable: Iterable | None = None,
    *,
    total: int | None = None,
    desc: str | None = None,
    unit: str = "it",
    disable: bool = False,
) -> tqdm_std:
    """A tqdm bar on stderr; where that is no terminal, one line every 30 seconds."""
    options = {"total": total, "desc": desc, "unit": unit, "disable": disable}
    if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
        return tqdm(iterable, **options)
    return _LogLines(iterable, **options, mininterval=30, delay=30, miniters=1)
