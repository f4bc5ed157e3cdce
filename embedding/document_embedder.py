# SPDX-License-Identifier: Apache-2.0

"""Texts in, vectors out: `DocumentEmbedder` wraps any encoder of this package or of the Hub.

from tmde.embedding import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained()  # the model that comes with the package, or a folder, or a Hub id
vectors = embedder.encode(["Guten Tag", "Good day"])  # (2, d) float32
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.std import tqdm as tqdm_std
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT, encoder_body, is_ours, position_limit
from modeling_tmde.tokenization import load_tokenizer
from tmde.embedding.loading import DEFAULT_MODEL, default_prompt, local_or_hub
from tmde.embedding.long_documents import LongDocuments, SentenceDensity, SplitDocuments
from tmde.embedding.progress import progress_bar
from tmde.embedding.text_tokenizer import TextTokenizer, TokenizedTexts, private_copy

logger = logging.getLogger(__name__)

POOLINGS = ("cls", "mean")
_DEFAULT_LENGTH = 750  # tokens, for a model of the Hub that names no limit
_GROUP_CHARACTERS = 2**22  # of texts tokenized at once, about 100 MB
_PROGRESS_BAR_FROM = 2000  # texts


@dataclass(frozen=True)
class EncodeReport:
    """What one `encode` (or `encode_iter`, so far) did.

    texts: Number of texts.
    tokens: Tokens given to the model, special tokens included, after truncation.
    truncated: Texts of which something was cut off.
    longest: Tokens of the longest text **before** truncation.
    seconds: Wall clock.
    split: Texts that became several inputs of the model.
    pieces: Inputs of the model, of all texts.
    """

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    longest: int = 0
    seconds: float = 0.0
    split: int = 0
    pieces: int = 0

    def __add__(self, other: EncodeReport) -> EncodeReport:
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
        }
        return EncodeReport(**sums | {"longest": max(self.longest, other.longest)})


class DocumentEmbedder:
    """Embeds documents with a transformer encoder and its tokenizer.

    Args:
        model: An encoder. Of an encoder-decoder model (T5, Marian, BART) only the encoder is used, of a model with a
            head only its body.
        tokenizer: Its tokenizer, fast or slow.
        pooling: `"cls"`, the first output, or `"mean"`, the average over the real tokens. Default: `"cls"` for this
            package's models (position 0 is the document embedding in every variant), `"mean"` for any other.
        max_length: Longest input in tokens, special tokens included. Default: all that model and tokenizer can take,
            and 750 for a model of the Hub where neither names a limit. A larger number is lowered to what they can
            take.
        long_documents: What becomes of a text of more than `window` tokens. `"truncate"`: it is cut off at
            `max_length`, counted in `last_report` and warned of. `"chunk"`: it is cut into overlapping windows of
            `window` tokens. `"sentences"`: it is split into sentences. Every other text gets its plain vector.
        window: Tokens, special tokens included, up to which a text is not split. Default: `max_length`.
        stride: Tokens from the start of one window to that of the next; a sentence longer than `max_length` is cut
            into windows as well. Default: half of the text in a window.
        aggregation: Of the vectors of a text's pieces: `"mean"`, `"max"` of each element, or a fitted
            `SentenceDensity` (or the file of a saved one), by whose weights the mean is taken.
        prompt: Put before every text, and before every piece of a text that is split; its tokens count in `window`
            and `max_length`. E5 was trained with "query: ".

    Attributes:
        max_length: What was asked for, within what model and tokenizer can take; 1,000,000,000 without a limit.
        last_report: `EncodeReport` of the last call.

    Raises:
        ValueError: Unknown pooling, a `max_length` that leaves no room for text, settings for long documents that
            exclude each other or leave text out, a density of other vectors.
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
        prompt: str = "",
    ) -> None:
        self.model = model = encoder_body(model)
        self.tokenizer = tokenizer
        self.pooling = pooling or ("cls" if is_ours(model) else "mean")
        if self.pooling not in POOLINGS:
            raise TmdeError(f"pooling: found {pooling!r}, expected one of {POOLINGS}")
        self.last_report: EncodeReport | None = None
        # A bag of tokens needs no padding. A mean is taken over the outputs of a padded batch, and weights that are
        # offloaded come back where the model is called.
        self._ragged = (
            hasattr(model, "embed_ragged")
            and self.pooling == "cls"
            and not hasattr(model, "_hf_hook")
        )
        self.prompt = prompt
        self.max_length = _length_limit(model, tokenizer, max_length, prompt)
        self._pad_id, self._empty_id = _filler_ids(model, tokenizer)
        self._tokenize = TextTokenizer(tokenizer, self.max_length, self._empty_id, prompt)
        self.long_documents = long_documents
        self.aggregation = aggregation
        self._long: LongDocuments | None = None
        if long_documents != "truncate":
            self._long = LongDocuments(self._tokenize, long_documents, window, stride, aggregation)
            self.aggregation = self._long.aggregation
        elif (window, stride, aggregation) != (None, None, "mean"):
            found = f"window, stride, aggregation: found {window}, {stride}, {aggregation}"
            raise TmdeError(
                f"{found}, but long_documents='truncate' splits nothing; give 'chunk' or 'sentences'"
            )
        if (
            isinstance(self.aggregation, SentenceDensity)
            and len(self.aggregation.mean_) != self.dimension
        ):
            found = f"a density of vectors of dimension {len(self.aggregation.mean_)}"
            raise TmdeError(
                f"aggregation: found {found}, expected {self.dimension}, that of the model"
            )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike = DEFAULT_MODEL,
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        compile: bool = False,
        trust_remote_code: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        long_documents: str = "truncate",
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike | SentenceDensity = "mean",
        prompt: str | None = None,
        **model_kwargs,
    ) -> DocumentEmbedder:
        """Loads model and tokenizer from a folder or the Hub, ready to encode.

        Args:
            path_or_hub_id: What `AutoModel.from_pretrained` takes; or `"default"`, the model that comes with the
                package (a folder of that name is `"./default"`).
            pooling, max_length, long_documents, window, stride, aggregation: See the class.
            device: Default: cuda, else mps, else cpu; untouched when `device_map` is given.
            dtype: Of the weights, e.g. `torch.bfloat16` or `"bfloat16"`; default: that of the checkpoint. Vectors are
                float32 in any case.
            compile: Run by `torch.compile`, which takes up to a minute at the first batch; on a CPU it needs a C++
                compiler. A bag gains nothing from it.
            prompt: See the class. Default: the one that the model carries, see `default_prompt`; "" is none.
            trust_remote_code, revision, token, **model_kwargs: Passed on to `AutoModel` and `AutoTokenizer` (the last
                only to `AutoModel`).

        Raises:
            FileNotFoundError: A path (not a possible Hub id) that is no folder of a model.
            OSError, ValueError, RuntimeError: A device that is not there, or what transformers finds wrong with the
                repository.
        """
        name = local_or_hub(path_or_hub_id)
        shared = {
            "trust_remote_code": trust_remote_code,
            "revision": revision or "main",
            "token": token,
        }
        tokenizer = load_tokenizer(name, **shared)
        if prompt is None:
            prompt = default_prompt(name, revision=revision, token=token)
        if dtype is not None:
            model_kwargs["dtype"] = dtype
        model = encoder_body(AutoModel.from_pretrained(name, **shared, **model_kwargs).eval())
        if device is None and "device_map" not in model_kwargs:
            device = (
                "cuda"
                if torch.cuda.is_available()
                else "mps"
                if torch.backends.mps.is_available()
                else "cpu"
            )
        if device is not None:
            model.to(device)
        if compile:
            model.compile(dynamic=True)
        return cls(
            model,
            tokenizer,
            pooling,
            max_length,
            long_documents,
            window,
            stride,
            aggregation,
            prompt,
        )

    @property
    def long_document_settings(self) -> dict[str, str | int]:
        """All settings that decide the vectors of long documents, with their defaults."""
        return {"long_documents": "truncate"} if self._long is None else self._long.describe()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device = self.model.device
        return (
            torch.device("cpu") if device.type == "meta" else device
        )  # weights that are offloaded

    @cached_property
    def dimension(self) -> int:
        """Length d of a vector, measured by a tiny batch: configs name it in too many ways."""
        texts = TokenizedTexts(np.full(3, self._empty_id), np.array([3]), np.array([3]))
        if self.needs_language:
            texts.language_ids = torch.tensor([0])
        with evaluating(self.model), torch.inference_mode():
            return self._embed_batch(texts, np.array([0, 0])).shape[-1]

    @property
    def needs_language(self) -> bool:
        """Whether the model has a part of its own for each language (NTDV, aligned), so that `encode` needs it."""
        return bool(getattr(self.model, "needs_language_ids", False))

    def to(self, device: str | torch.device) -> DocumentEmbedder:
        """Moves the model; returns self."""
        self.model.to(device)
        return self

    def encode(
        self,
        texts: str | Iterable[str],
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
        language: str | Sequence[str] | None = None,
    ) -> np.ndarray | torch.Tensor:
        """Embeds texts, as they are but for the prompt: no lower-casing.

        A vector does not depend on the other texts of the call, nor on `batch_tokens` (in float32 to 1e-5). An empty
        text is a text: where the tokenizer adds no special token, the model gets one end-of-sequence (else begin, else
        padding) token for it, so that its vector is finite and not zero.

        Args:
            texts: n strings; or one string, which gives one vector.
            batch_tokens: Padded size of a batch, rows times longest row; for a bag, its tokens. A longer text is a
                batch of its own. Default: 4,096 on a CPU, whose caches hold no more, else 16,384.
            show_progress_bar: Default: when this module's logger is at INFO or below, or when there are more than
                2,000 texts and stderr is a terminal.
            normalize: Scale each vector to Euclidean length 1.
            convert_to_tensor: Return a tensor on the model's device instead of a numpy array.
            language: Code of the language of all texts, or one for each, of `model.config.languages`; for a model
                that `needs_language`. Others embed all languages alike; any code helps to find the ends of sentences,
                where `long_documents` is "sentences".

        Returns:
            float32 (n, d) in the order of `texts`, or (d,) for one string; (0, d) for no texts.

        Raises:
            TypeError: A text that is not a string (index and type are named).
            ValueError: A text that is not valid Unicode; a missing or unknown language where the model needs one, or
                not one for each text.
        """
        single = isinstance(texts, str)
        texts = [texts] if single else list(texts)
        codes = (
            [language] * len(texts)
            if language is None or isinstance(language, str)
            else list(language)
        )
        with self._progress_bar(show_progress_bar, len(texts)) as bar:
            vectors, report = self._encode(
                texts, codes, batch_tokens, normalize, convert_to_tensor, bar.update
            )
        self._finish(report)
        return vectors[0] if single else vectors

    def __getstate__(self) -> dict[str, Any]:
        """Without what earlier calls left behind, so that `datasets` knows the same embedder again."""
        return {name: value for name, value in self.__dict__.items() if name != "dimension"} | {
            "last_report": None
        }

    def embed_batch(
        self, batch: Mapping[str, Sequence], column: str = "text", **options: Any
    ) -> dict:
        """The vectors of some rows of a dataset, as a column `embedding`, for `datasets`:

        ```python
        >>> rows = rows.map(embedder.embed_batch, batched=True, fn_kwargs={"column": "body", "normalize": True})
        ```

        Args:
            batch: Rows by column.
            column: Of the texts.
            options: Of `encode`.
        """
        return {"embedding": self.encode(list(batch[column]), **options)}

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
        if isinstance(texts, str):
            raise TypeError(
                "texts: found one str, expected an iterable of str; for one text use encode()"
            )
        one_language = language is None or isinstance(language, str)
        stream, codes = iter(texts), itertools.repeat(language) if one_language else iter(language)
        report = EncodeReport()
        with self._progress_bar(show_progress_bar, total) as bar:
            try:
                while chunk := list(itertools.islice(stream, chunk_size)):
                    found = list(itertools.islice(codes, len(chunk)))
                    vectors, part = self._encode(
                        chunk,
                        found,
                        batch_tokens,
                        normalize,
                        convert_to_tensor,
                        bar.update,
                        report.texts,
                    )
                    report = self.last_report = report + part
                    yield vectors
            finally:  # also when the reader of this stream stops early
                self._finish(report)

    def _encode(
        self,
        texts: list[str],
        codes: list[str | None],
        batch_tokens: int | None,
        normalize: bool,
        convert_to_tensor: bool,
        progress: Callable[[int], object],
        first_number: int = 0,
    ) -> tuple[np.ndarray | torch.Tensor, EncodeReport]:
        """One list of texts to (n, d), with its report; errors count texts from `first_number`."""
        start = time.perf_counter()
        _check_texts(texts, first_number)
        if len(codes) != len(texts):
            raise TmdeError(f"language: found {len(codes)} codes for {len(texts)} texts")
        language_ids = self._language_ids(codes, first_number) if self.needs_language else None
        batch_tokens = batch_tokens or (4096 if self.device.type == "cpu" else 16384)
        # Batches are filled from groups of texts: large groups need less padding, small ones are tokenized in time.
        groups = _groups(texts, max(4096, batch_tokens // 2))
        if self._long is None:
            prepared = (self._tokenize(texts[group]) for group in groups)
        else:
            prepared = (self._long.split(texts[group], codes[group]) for group in groups)
        device, report = self.device if convert_to_tensor else "cpu", EncodeReport()
        vectors = torch.empty((len(texts), self.dimension), device=device)
        with evaluating(self.model), torch.inference_mode():
            for group, documents in zip(
                groups, _prefetched(prepared) if len(groups) > 1 else prepared, strict=True
            ):
                if language_ids is not None:
                    documents.language_ids = language_ids[group]
                part, counts = self._embed_group(documents, batch_tokens, progress)
                vectors[group] = nn.functional.normalize(part, dim=-1) if normalize else part
                report += counts
        report = replace(report, seconds=time.perf_counter() - start)
        return (vectors if convert_to_tensor else vectors.numpy()), report

    def _language_ids(self, codes: Sequence[str | None], first_number: int) -> torch.Tensor:
        """(texts,) int64 positions in the languages of a model that needs them."""
        known = list(self.model.config.languages)
        for number, code in enumerate(codes, first_number):
            if code not in known:
                why = f"{type(self.model).__name__} has an encoder for each language"
                raise TmdeError(
                    f"language of text {number}: found {code!r}, expected one of {known}; {why}"
                )
        return torch.tensor([known.index(code) for code in codes], dtype=torch.long)

    def _embed_group(
        self,
        documents: TokenizedTexts | SplitDocuments,
        batch_tokens: int,
        progress: Callable[[int], object],
    ) -> tuple[torch.Tensor, EncodeReport]:
        """(n, d) float32, and what was embedded."""
        longest = int(documents.full_lengths.max())
        if isinstance(documents, TokenizedTexts):
            truncated = int((documents.full_lengths > documents.lengths).sum())
            report = EncodeReport(
                len(documents), len(documents.token_ids), truncated, longest, pieces=len(documents)
            )
            return self._embed_texts(documents, batch_tokens, progress), report
        vectors, pieces, tokens = self._long.embed(
            documents,
            lambda inputs: self._embed_texts(inputs, batch_tokens, lambda _: None),
            progress,
        )
        counts = {"split": int((pieces > 1).sum()), "pieces": int(pieces.sum())}
        return vectors, EncodeReport(len(pieces), tokens, longest=longest, **counts)

    def _embed_texts(
        self, texts: TokenizedTexts, batch_tokens: int, progress: Callable[[int], Any]
    ) -> torch.Tensor:
        """(n, d) float32, on the model's device."""
        vectors = torch.empty((len(texts), self.dimension), device=self.device)
        if self._ragged:
            for numbers, *batch in texts.ragged_batches(batch_tokens):
                vectors[numbers] = self.model.embed_ragged(*map(self._to_device, batch)).float()
                progress(numbers.stop - numbers.start)
            return vectors
        # torch.compile would compile batches of one row separately.
        compiled = self.model._compiled_call_impl is not None
        for numbers in texts.padded_batches(batch_tokens):
            rows = numbers.repeat(2) if compiled and len(numbers) == 1 else numbers
            vectors[self._to_device(torch.from_numpy(numbers))] = self._embed_batch(texts, rows)[
                : len(numbers)
            ]
            progress(len(numbers))
        return vectors

    def _embed_batch(self, texts: TokenizedTexts, rows: np.ndarray) -> torch.Tensor:
        """(rows, d) float32 of the texts with these numbers, in one padded batch, on the model's device."""
        input_ids, attention_mask = map(self._to_device, texts.padded(rows, self._pad_id))
        options = {}
        if texts.language_ids is not None:
            options["language_ids"] = self._to_device(texts.language_ids[rows])
        if self.pooling == "cls" and self.model.config.model_type == "tmde":
            options["pooled_only"] = True  # of the last layer, only what the embedding needs
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, **options)[
            0
        ]  # (rows, length, d)
        return (
            hidden[:, 0].float() if self.pooling == "cls" else mean_pooled(hidden, attention_mask)
        )

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type == "cuda":  # which does not wait for it
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def _progress_bar(self, show: bool | None, total: int | None) -> tqdm_std:
        if show is None:
            many = total is None or total > _PROGRESS_BAR_FROM
            show = logger.isEnabledFor(logging.INFO) or (
                many and sys.stderr is not None and sys.stderr.isatty()
            )
        return progress_bar(total=total, desc="Embedding", unit=" texts", disable=not show)

    def _finish(self, report: EncodeReport) -> None:
        self.last_report = report
        if report.truncated:
            logger.warning(
                f"{report.truncated:,} of {report.texts:,} texts were longer than {self.max_length:,} tokens and were "
                f"truncated (longest {report.longest:,} tokens); what lies beyond is not in their vectors. Embed them "
                "whole with long_documents='chunk' or 'sentences', or raise max_length if the model can take more"
            )


def mean_pooled(hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """(rows, d) float32 of outputs (rows, length, d): the mean over the tokens of the mask, (rows, length).

    Raises:
        ValueError: Another number of outputs than of tokens.
    """
    if hidden.shape[:2] != attention_mask.shape:
        shapes = f"found {tuple(hidden.shape)}, expected {(*attention_mask.shape, 'd')}"
        raise TmdeError(f"pooling 'mean' needs one output per token: {shapes}; use pooling='cls'")
    # A float32 sum: in bfloat16 a long text would lose its last tokens. Padding may hold anything, even NaN.
    summed = hidden.masked_fill(attention_mask[:, :, None] == 0, 0.0).sum(
        dim=1, dtype=torch.float32
    )
    return summed / attention_mask.sum(dim=1, keepdim=True)


def has_fast_bf16(use_cpu: bool) -> bool:
    """Whether this machine multiplies matrices in bfloat16 faster than in float32; `bf16: auto` of a recipe.

    A CPU needs its own instructions for that (AVX512-BF16, AMX).
    """
    if not use_cpu and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8").split() if cpuinfo.exists() else ()
    return "avx512_bf16" in flags or "amx_bf16" in flags


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a `with` block: an embedder may share the model with a training run."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _length_limit(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None, prompt: str
) -> int:
    """See `DocumentEmbedder.max_length`; where a model of ours has no positions (a bag), nothing limits it."""
    limit = position_limit(model)
    if limit < NO_LIMIT or not is_ours(model):
        limit = min(limit, int(min(tokenizer.model_max_length or NO_LIMIT, NO_LIMIT)))
    if asked is not None:
        limit = min(asked, limit)
    elif limit >= NO_LIMIT and not is_ours(model):
        limit = _DEFAULT_LENGTH
    taken = tokenizer.num_special_tokens_to_add(pair=False)
    taken += (
        len(private_copy(tokenizer)(prompt, add_special_tokens=False)["input_ids"]) if prompt else 0
    )
    if limit <= taken:
        raise TmdeError(
            f"max_length: found {limit}, expected more than the {taken} special tokens and the prompt's"
        )
    return limit


def _filler_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Ids for padding (masked, so any will do) and for a text without any token (attended)."""
    pads = (
        tokenizer.pad_token_id,
        getattr(model.config, "pad_token_id", None),
        tokenizer.eos_token_id,
    )
    pad = next((i for i in pads if i is not None and i >= 0), 0)
    attended = (
        tokenizer.eos_token_id,
        tokenizer.bos_token_id,
        tokenizer.cls_token_id,
        tokenizer.unk_token_id,
    )
    return pad, next((i for i in attended if i is not None), pad)


def _check_texts(texts: Sequence[object], first_number: int) -> None:
    """Fast tokenizers do not say which text is wrong."""
    for number, text in enumerate(texts, first_number):
        if not isinstance(text, str):
            raise TypeError(f"text {number}: found {type(text).__name__}, expected str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TmdeError(
                f"text {number}: found a lone surrogate, expected valid Unicode ({error})"
            ) from error


def _groups(texts: Sequence[str], size: int) -> list[slice]:
    """Consecutive texts that are tokenized at once: at most `size`, fewer where they are long."""
    groups, start, characters = [], 0, 0
    for number, text in enumerate(texts):
        if number - start == size or (
            number > start and characters + len(text) > _GROUP_CHARACTERS
        ):
            groups.append(slice(start, number))
            start, characters = number, 0
        characters += len(text)
    return groups + [slice(start, len(texts))] * (len(texts) > start)


def _prefetched(items: Iterator) -> Iterator:
    """The same items; each is made by a second thread while the caller works on the one before it.

    Neither tokenizer nor model holds Python's lock for most of its time.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer") as pool:
        pending = pool.submit(next, items, None)
        while (item := pending.result()) is not None:
            pending = pool.submit(next, items, None)
            yield item
