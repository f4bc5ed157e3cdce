# SPDX-License-Identifier: Apache-2.0

"""Texts in, vectors out: `DocumentEmbedder` wraps any encoder of this package or of the Hub.

from tmde.embedding import DocumentEmbedder

# The model that comes with the package, a folder, or a Hub id.
embedder = DocumentEmbedder.from_pretrained()
vectors = embedder.encode(["Guten Tag", "Good day"])  # (2, d) float32
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import nn
from tqdm.std import tqdm as tqdm_std
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import BagModel, TmdeError
from modeling_tmde.common import pool_states
from modeling_tmde.inspection import NO_LIMIT, encoder_body, is_ours, position_limit
from modeling_tmde.tokenization import load_tokenizer
from tmde.embedding.loading import (
    DEFAULT_MODEL,
    default_prompt,
    load_encoder,
    local_or_hub,
)
from tmde.embedding.long_documents import LongDocuments, SplitDocuments
from tmde.embedding.progress import progress_bar
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.text_tokenizer import TextTokenizer, TokenizedTexts, private_copy

logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")

POOLINGS = ("cls", "mean")
_DEFAULT_LENGTH = 750  # The limit in tokens of a model of the Hub that names none.
_CPU_BATCH_TOKENS = 4096  # The caches of a CPU hold no more.
_ACCELERATOR_BATCH_TOKENS = 16384
# The texts that are tokenized at once: so many, or more if batches are large, but no more than fit
# into 2^22 characters, which take about 100 MB.
_GROUP_TEXTS = 4096
_GROUP_CHARACTERS = 2**22
_PROGRESS_BAR_FROM = 2000  # texts


@dataclass(frozen=True)
class EncodeReport:
    """What was read to embed some texts. The reports of two lists of texts can be added.

    Attributes:
        texts: The number of texts.
        tokens: The number of tokens given to the model, special tokens included, after truncation.
        truncated: The number of texts of which something was cut off.
        longest: The number of tokens of the longest text **before** truncation.
        seconds: The wall-clock time.
        split: The number of texts that became several inputs of the model.
        pieces: The number of inputs of the model.
    """

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    longest: int = 0
    seconds: float = 0.0
    split: int = 0
    pieces: int = 0

    def __add__(self, other: EncodeReport) -> EncodeReport:
        return EncodeReport(
            texts=self.texts + other.texts,
            tokens=self.tokens + other.tokens,
            truncated=self.truncated + other.truncated,
            longest=max(self.longest, other.longest),
            seconds=self.seconds + other.seconds,
            split=self.split + other.split,
            pieces=self.pieces + other.pieces,
        )


class EncodeOutput(NamedTuple):
    """Vectors, and what was read to make them.

    Attributes:
        vectors: (n, d) float32, a numpy array or a tensor; (d,) for a single string.
        report: The report on these texts.
    """

    vectors: np.ndarray | torch.Tensor
    report: EncodeReport


class DocumentEmbedder:
    """Embed documents with a transformer encoder and its tokenizer.

    Args:
        model: An encoder. Only the encoder of an encoder-decoder (T5, Marian, BART) is used, and
            only the body of a model with a head.
        tokenizer: Its tokenizer, fast or slow.
        pooling: `"cls"`, the first output, or `"mean"`, the average over the tokens. Default:
            `"cls"` for the models of this package (position 0 is the document embedding in every
            variant), `"mean"` for any other.
        max_length: Longest input in tokens, special tokens included. Default: all that model and
            tokenizer can take, and 750 for a model of the Hub if neither names a limit. A larger
            number is lowered to what they can take.
        long_documents: What happens to a text of more than `window` tokens. `"truncate"`: it is cut
            off at `max_length`, counted in the report and warned of. `"chunk"`: it is cut into
            overlapping windows of `window` tokens. `"sentences"`: it is split into sentences. Every
            other text gets its plain vector.
        window: Tokens, special tokens included, up to which a text is not split. Default:
            `max_length`.
        stride: Tokens from the start of one window to that of the next; a sentence longer than
            `max_length` is cut into windows as well. Default: half of the text in a window.
        aggregation: How the vectors of a text's pieces become one: `"mean"`, `"max"` of each
            element, or a fitted `SentenceDensity` (or the file of a saved one), whose weights the
            mean is taken with.
        prompt: Put before every text, and before every piece of a text that is split; its tokens
            count in `window` and `max_length`. E5 was trained with "query: ".

    Attributes:
        max_length: The `max_length` that was asked for, within what model and tokenizer can take;
            1,000,000,000 without a limit.

    Raises:
        TmdeError: The pooling is unknown, `max_length` leaves no room for text, settings for long
            documents exclude each other or leave text out, or a density is of other vectors.
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
        aggregation: str | os.PathLike[str] | SentenceDensity = "mean",
        prompt: str = "",
    ) -> None:
        self.model = encoder_body(model)
        self.tokenizer = tokenizer
        self.pooling = self._checked_pooling(pooling)
        self.prompt = prompt
        self.max_length = _length_limit(self.model, tokenizer, max_length, prompt)
        self._pad_id = _padding_id(self.model, tokenizer)
        empty_id = _empty_text_id(tokenizer, self._pad_id)
        self._tokenize = TextTokenizer(tokenizer, self.max_length, empty_id, prompt)
        self.long_documents = long_documents
        self.aggregation: str | SentenceDensity = "mean"
        self._long: LongDocuments | None = None
        if long_documents != "truncate":
            self._long = LongDocuments(self._tokenize, long_documents, window, stride, aggregation)
            self.aggregation = self._long.aggregation
        elif (window, stride, aggregation) != (None, None, "mean"):
            raise TmdeError(
                f"window, stride, aggregation: found {window}, {stride}, {aggregation}, but "
                "long_documents='truncate' splits nothing; give 'chunk' or 'sentences'"
            )
        self._check_density()

    def _checked_pooling(self, pooling: str | None) -> str:
        """Return the pooling, by default that of the model."""
        if pooling is None:
            return "cls" if is_ours(self.model) else "mean"
        if pooling not in POOLINGS:
            raise TmdeError(f"pooling: found {pooling!r}, expected one of {POOLINGS}")
        return pooling

    def _check_density(self) -> None:
        """Check that a density is of vectors of this model."""
        if not isinstance(self.aggregation, SentenceDensity):
            return
        density_dimension = len(self.aggregation.mean_)
        if density_dimension != self.dimension:
            raise TmdeError(
                f"aggregation: found a density of vectors of dimension {density_dimension}, "
                f"expected {self.dimension}, the dimension of the model"
            )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str] = DEFAULT_MODEL,
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
        aggregation: str | os.PathLike[str] | SentenceDensity = "mean",
        prompt: str | None = None,
        **model_kwargs: Any,
    ) -> DocumentEmbedder:
        """Load model and tokenizer from a folder or the Hub, ready to encode.

        Args:
            path_or_hub_id: What `AutoModel.from_pretrained` takes; or `"default"`, the model that
                comes with the package (a folder of that name is `"./default"`).
            pooling: See the class.
            max_length: See the class.
            device: Default: cuda, else mps, else cpu. With `device_map`, the model stays where that
                puts it.
            dtype: The type of the weights, e.g. `torch.bfloat16` or `"bfloat16"`. Default: that of
                the checkpoint. Vectors are float32 in any case.
            compile: Run the model by `torch.compile`, which takes up to a minute at the first batch
                and needs a C++ compiler on a CPU. A bag gains nothing from it.
            trust_remote_code: Passed on to `AutoModel` and `AutoTokenizer`.
            revision: Passed on to `AutoModel` and `AutoTokenizer`.
            token: Passed on to `AutoModel` and `AutoTokenizer`.
            long_documents: See the class.
            window: See the class.
            stride: See the class.
            aggregation: See the class.
            prompt: See the class. Default: the one that the model carries, see `default_prompt`;
                "" is none.
            model_kwargs: Passed on to `AutoModel`.

        Raises:
            OSError: There is no such folder, the Hub is not reached, or the repository or a file of
                it is missing.
            ValueError: transformers finds something wrong with the repository.
            RuntimeError: There is no such device.
        """
        name = local_or_hub(path_or_hub_id, revision, token)
        hub_options = {
            "trust_remote_code": trust_remote_code,
            "revision": revision or "main",
            "token": token,
        }
        tokenizer = load_tokenizer(name, **hub_options)
        if prompt is None:
            prompt = default_prompt(name, revision=revision, token=token)
        if dtype is not None:
            model_kwargs["dtype"] = dtype
        whole_model = load_encoder(name, **hub_options, **model_kwargs)
        model = encoder_body(whole_model.eval())
        if device is None and "device_map" not in model_kwargs:
            device = _best_device()
        if device is not None:
            # transformers' wrapper of `to` hides its `self` from type checkers.
            model.to(device)  # type: ignore[arg-type]
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

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what calls add, so that `datasets` recognizes the same embedder."""
        state = dict(self.__dict__)
        state.pop("dimension", None)
        return state

    # ---- Properties

    @property
    def long_document_settings(self) -> dict[str, str | int]:
        """All settings that decide the vectors of long documents, with their defaults."""
        if self._long is None:
            return {"long_documents": "truncate"}
        return self._long.describe()

    @property
    def device(self) -> torch.device:
        """The device of the model's inputs."""
        device = self.model.device
        if device.type == "meta":  # Weights that are offloaded have no place of their own.
            return torch.device("cpu")
        return device

    @cached_property
    def dimension(self) -> int:
        """The length d of a vector, measured with a tiny batch: configs name it in many ways."""
        texts = TokenizedTexts(
            np.full(3, self._tokenize.empty_id), lengths=np.array([3]), full_lengths=np.array([3])
        )
        if self.needs_language:
            texts.language_ids = torch.tensor([0])
        with evaluating(self.model), torch.inference_mode():
            return self._embed_padded_batch(texts, np.array([0, 0])).shape[-1]

    @property
    def needs_language(self) -> bool:
        """Whether the model has a part for each language (NTDV, aligned), which `encode` names."""
        return bool(getattr(self.model, "needs_language_ids", False))

    @property
    def _is_ragged(self) -> bool:
        """Whether the model takes texts without padding, as a bag of tokens does.

        A mean is taken over the outputs of a padded batch, and weights that are offloaded come
        back only where the model itself is called.
        """
        return (
            self.pooling == "cls"
            and hasattr(self.model, "embed_ragged")
            and not hasattr(self.model, "_hf_hook")
        )

    # ---- Encoding

    def to(self, device: str | torch.device) -> DocumentEmbedder:
        """Move the model, and return this embedder."""
        # transformers' wrapper of `to` hides its `self` from type checkers.
        self.model.to(device)  # type: ignore[arg-type]
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
        """Embed texts, as they are but for the prompt: no lower-casing.

        A vector does not depend on the other texts of the call, nor on `batch_tokens` (in float32
        to 1e-5). An empty text is a text: if the tokenizer adds no special token, the model gets
        one end-of-sequence (else begin, else padding) token for it, so that its vector is finite
        and not zero.

        Args:
            texts: n strings; or one string, which gives one vector.
            batch_tokens: The padded size of a batch, rows times longest row; for a bag, its tokens.
                A longer text is a batch of its own. Default: 4,096 on a CPU, else 16,384.
            show_progress_bar: Default: when this module's logger is at INFO or below, or when there
                are more than 2,000 texts and stderr is a terminal.
            normalize: Scale each vector to Euclidean length 1.
            convert_to_tensor: Return a tensor on the model's device instead of a numpy array.
            language: The code of the language of all texts, or one for each, of
                `model.config.languages`; for a model that `needs_language`. Others embed all
                languages alike; any code helps to find the ends of sentences if `long_documents`
                is "sentences".

        Returns:
            float32 (n, d) in the order of `texts`, or (d,) for one string; (0, d) for no texts.

        Raises:
            TypeError: A text is not a string (index and type are named).
            TmdeError: A text is not valid Unicode, or a language is missing or unknown.
        """
        return self.encode_with_report(
            texts, batch_tokens, show_progress_bar, normalize, convert_to_tensor, language
        ).vectors

    def encode_with_report(
        self,
        texts: str | Iterable[str],
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
        language: str | Sequence[str] | None = None,
    ) -> EncodeOutput:
        """Embed texts as `encode` does, and report what was read.

        Args:
            texts: See `encode`, as for all other arguments.
            batch_tokens: See `encode`.
            show_progress_bar: See `encode`.
            normalize: See `encode`.
            convert_to_tensor: See `encode`.
            language: See `encode`.

        Raises:
            TypeError: See `encode`.
            TmdeError: See `encode`.

        Example:
            ```python
            vectors, report = embedder.encode_with_report(texts)
            print(f"{report.truncated} of {report.texts} texts were truncated")
            ```
        """
        is_single_text = isinstance(texts, str)
        text_list = [texts] if isinstance(texts, str) else list(texts)
        codes = _codes_of_texts(language, len(text_list))
        options = _EncodeOptions(batch_tokens, normalize, convert_to_tensor)
        with self._progress_bar(show_progress_bar, len(text_list)) as bar:
            vectors, report = self._encode_list(text_list, codes, options, bar.update)
        self.warn_of_truncation(report)
        return EncodeOutput(vectors[0] if is_single_text else vectors, report)

    def embed_batch(
        self, batch: Mapping[str, Sequence[Any]], column: str = "text", **options: Any
    ) -> dict[str, np.ndarray | torch.Tensor]:
        """Return the vectors of some rows of a dataset as a column `embedding`, for `datasets`.

        Args:
            batch: Rows by column.
            column: The column of the texts.
            options: Arguments of `encode`.

        Example:
            ```python
            options = {"column": "body", "normalize": True}
            rows = rows.map(embedder.embed_batch, batched=True, fn_kwargs=options)
            ```
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
        """Embed a stream in flat memory: read `chunk_size` texts, yield their vectors, in order.

        Truncation is warned of once, at the end.

        Args:
            texts: Any number of strings.
            chunk_size: The number of texts read at once.
            batch_tokens: See `encode`.
            show_progress_bar: See `encode`.
            normalize: See `encode`.
            convert_to_tensor: See `encode`.
            total: The number of texts, if known, for the progress bar.
            language: See `encode`; the codes are read in step with the texts.

        Yields:
            (texts, d) of at most `chunk_size` texts.

        Raises:
            TypeError: `texts` is one string, or see `encode`.
            TmdeError: See `encode`.
        """
        outputs = self.encode_iter_with_reports(
            texts,
            chunk_size,
            batch_tokens,
            show_progress_bar,
            normalize,
            convert_to_tensor,
            total,
            language,
        )
        # Closed with this generator, so that the warning comes if the reader stops early.
        with closing(outputs):
            for output in outputs:
                yield output.vectors

    def encode_iter_with_reports(
        self,
        texts: Iterable[str],
        chunk_size: int = 8192,
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        normalize: bool = False,
        convert_to_tensor: bool = False,
        total: int | None = None,
        language: str | Iterable[str] | None = None,
    ) -> Generator[EncodeOutput, None, None]:
        """Embed a stream as `encode_iter` does, and report what was read for each chunk.

        Args:
            texts: See `encode_iter`, as for all other arguments.
            chunk_size: See `encode_iter`.
            batch_tokens: See `encode`.
            show_progress_bar: See `encode`.
            normalize: See `encode`.
            convert_to_tensor: See `encode`.
            total: See `encode_iter`.
            language: See `encode_iter`.

        Yields:
            The vectors (texts, d) of a chunk, and the report on it; reports can be added.

        Raises:
            TypeError: See `encode_iter`.
            TmdeError: See `encode`.
        """
        if isinstance(texts, str):
            raise TypeError(
                "texts: found one str, expected an iterable of str; for one text use encode()"
            )
        codes: Iterator[str | None]
        if language is None or isinstance(language, str):
            codes = itertools.repeat(language)
        else:
            codes = iter(language)
        stream = iter(texts)
        options = _EncodeOptions(batch_tokens, normalize, convert_to_tensor)
        total_report = EncodeReport()
        with self._progress_bar(show_progress_bar, total) as bar:
            try:
                while chunk := list(itertools.islice(stream, chunk_size)):
                    chunk_codes = list(itertools.islice(codes, len(chunk)))
                    output = self._encode_list(
                        chunk, chunk_codes, options, bar.update, first_number=total_report.texts
                    )
                    total_report += output.report
                    yield output
            finally:
                # Also reached when the reader of this stream stops early.
                self.warn_of_truncation(total_report)

    def _encode_list(
        self,
        texts: list[str],
        codes: list[str | None],
        options: _EncodeOptions,
        progress: Callable[[int], object],
        first_number: int = 0,
    ) -> EncodeOutput:
        """Embed one list of texts.

        Args:
            texts: n strings.
            codes: The language code of each.
            options: How to embed them.
            progress: Called with the number of texts that are done.
            first_number: The number of the first text in error messages.
        """
        start = time.perf_counter()
        _check_texts(texts, first_number)
        if len(codes) != len(texts):
            raise TmdeError(f"language: found {len(codes)} codes for {len(texts)} texts")
        language_ids = self._language_ids(codes, first_number) if self.needs_language else None
        batch_tokens = options.batch_tokens or self._default_batch_tokens()
        # Batches are filled from groups of texts: large ones need less padding, small ones are
        # tokenized while the model works on the group before.
        groups = _split_into_groups(texts, max(_GROUP_TEXTS, batch_tokens // 2))
        device = self.device if options.convert_to_tensor else "cpu"
        vectors = torch.empty((len(texts), self.dimension), device=device)
        report = EncodeReport()
        with evaluating(self.model), torch.inference_mode():
            documents_of_groups = self._tokenized_groups(texts, codes, groups)
            for group, documents in zip(groups, documents_of_groups, strict=True):
                if language_ids is not None:
                    documents.language_ids = language_ids[group]
                group_vectors, group_report = self._embed_group(documents, batch_tokens, progress)
                if options.normalize:
                    group_vectors = nn.functional.normalize(group_vectors, dim=-1)
                vectors[group] = group_vectors
                report += group_report
        report = replace(report, seconds=time.perf_counter() - start)
        return EncodeOutput(vectors if options.convert_to_tensor else vectors.numpy(), report)

    def _default_batch_tokens(self) -> int:
        if self.device.type == "cpu":
            return _CPU_BATCH_TOKENS
        return _ACCELERATOR_BATCH_TOKENS

    def _language_ids(self, codes: Sequence[str | None], first_number: int) -> torch.Tensor:
        """Return the position of each code in the model's languages, (texts,) int64."""
        languages = list(self.model.config.languages)
        for number, code in enumerate(codes, first_number):
            if code not in languages:
                raise TmdeError(
                    f"language of text {number}: found {code!r}, expected one of {languages}; "
                    f"{type(self.model).__name__} has an encoder for each language"
                )
        return torch.tensor([languages.index(code) for code in codes], dtype=torch.long)

    def _tokenized_groups(
        self, texts: list[str], codes: list[str | None], groups: list[slice]
    ) -> Iterator[TokenizedTexts | SplitDocuments]:
        """Return the tokens of each group of texts, which a second thread prepares in time."""
        documents: Iterator[TokenizedTexts | SplitDocuments]
        if self._long is None:
            documents = (self._tokenize(texts[group]) for group in groups)
        else:
            documents = (self._long.split(texts[group], codes[group]) for group in groups)
        return _prefetched(documents) if len(groups) > 1 else documents

    def _embed_group(
        self,
        documents: TokenizedTexts | SplitDocuments,
        batch_tokens: int,
        progress: Callable[[int], object],
    ) -> tuple[torch.Tensor, EncodeReport]:
        """Return the vectors (n, d) float32 of a group, on any device, and the report on it."""
        longest = int(documents.full_lengths.max())
        if isinstance(documents, TokenizedTexts):
            report = EncodeReport(
                texts=len(documents),
                tokens=len(documents.token_ids),
                truncated=int((documents.full_lengths > documents.lengths).sum()),
                longest=longest,
                pieces=len(documents),
            )
            return self._embed_texts(documents, batch_tokens, progress), report

        assert self._long is not None  # Nothing else splits documents.

        def embed_pieces(pieces: TokenizedTexts) -> torch.Tensor:
            return self._embed_texts(pieces, batch_tokens, _ignore_progress)

        embedded = self._long.embed(documents, embed_pieces, progress)
        report = EncodeReport(
            texts=len(embedded.piece_counts),
            tokens=embedded.num_tokens,
            longest=longest,
            split=int((embedded.piece_counts > 1).sum()),
            pieces=int(embedded.piece_counts.sum()),
        )
        return embedded.vectors, report

    def _embed_texts(
        self, texts: TokenizedTexts, batch_tokens: int, progress: Callable[[int], object]
    ) -> torch.Tensor:
        """Return the vectors (n, d) float32 of inputs of the model, on its device."""
        vectors = torch.empty((len(texts), self.dimension), device=self.device)
        if self._is_ragged:
            bag = cast(BagModel, self.model)
            for batch in texts.ragged_batches(batch_tokens):
                token_ids = self._to_device(batch.token_ids)
                lengths = self._to_device(batch.lengths)
                vectors[batch.texts] = bag.embed_ragged(token_ids, lengths).float()
                progress(len(batch.lengths))
            return vectors
        is_compiled = self.model._compiled_call_impl is not None
        for numbers in texts.padded_batches(batch_tokens):
            rows = numbers
            if is_compiled and len(numbers) == 1:
                # torch.compile would compile batches of one row separately.
                rows = numbers.repeat(2)
            places = self._to_device(torch.from_numpy(numbers))
            vectors[places] = self._embed_padded_batch(texts, rows)[: len(numbers)]
            progress(len(numbers))
        return vectors

    def _embed_padded_batch(self, texts: TokenizedTexts, rows: np.ndarray) -> torch.Tensor:
        """Return the vectors of the texts with these numbers, from one padded batch.

        Args:
            texts: The tokens.
            rows: (rows,) numbers of texts.

        Returns:
            (rows, d) float32, on the model's device.
        """
        input_ids, attention_mask = texts.padded(rows, self._pad_id)  # (rows, length) both
        input_ids = self._to_device(input_ids)
        attention_mask = self._to_device(attention_mask)
        options: dict[str, Any] = {}
        if texts.language_ids is not None:
            options["language_ids"] = self._to_device(texts.language_ids[rows])
        if self.pooling == "cls" and is_ours(self.model):
            options["pooled_only"] = True
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **options)
        hidden: torch.Tensor = outputs[0]  # (rows, length or 1, d)
        if self.pooling == "cls":
            return hidden[:, 0].float()
        check_token_outputs(hidden, attention_mask)
        return pool_states(hidden.float(), attention_mask, "mean")

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor to the model's device, on cuda without waiting for it."""
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    # ---- Progress and warnings

    def _progress_bar(self, show: bool | None, total: int | None) -> tqdm_std:
        """Return a bar that counts texts, by default one that shows if there are many.

        Args:
            show: Whether it shows.
            total: The number of texts, if known.
        """
        if show is None:
            is_verbose = logger.isEnabledFor(logging.INFO)
            are_many = total is None or total > _PROGRESS_BAR_FROM
            is_terminal = sys.stderr is not None and sys.stderr.isatty()
            show = is_verbose or (are_many and is_terminal)
        return progress_bar(total=total, desc="Embedding", unit=" texts", disable=not show)

    def warn_of_truncation(self, report: EncodeReport) -> None:
        """Log a warning with the number of texts that were truncated, if any."""
        if report.truncated:
            logger.warning(
                f"{report.truncated:,} of {report.texts:,} texts were longer than "
                f"{self.max_length:,} tokens and were truncated (longest {report.longest:,} "
                "tokens); what lies beyond is not in their vectors. Embed them whole with "
                "long_documents='chunk' or 'sentences', or raise max_length if the model can take "
                "more"
            )


@dataclass(frozen=True)
class _EncodeOptions:
    """The arguments of `encode` that are the same for all its texts; see there."""

    batch_tokens: int | None
    normalize: bool
    convert_to_tensor: bool


# ---- Pooling and devices


def check_token_outputs(hidden: torch.Tensor, attention_mask: torch.Tensor) -> None:
    """Check that a model gave an output for every token, of which a mean can be taken.

    Args:
        hidden: (rows, length, d).
        attention_mask: (rows, length), 1 at tokens and 0 at padding.

    Raises:
        TmdeError: There is another number of outputs than of tokens.
    """
    if hidden.shape[:2] != attention_mask.shape:
        raise TmdeError(
            f"pooling 'mean' needs one output per token: found {tuple(hidden.shape)}, expected "
            f"{(*attention_mask.shape, 'd')}; use pooling='cls'"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode for a `with` block.

    Afterwards every module is in the mode of before, because an embedder may share its model with
    a training run.
    """
    training_modules = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training_modules:
            module.training = True


def _best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


# ---- Limits and tokens of a model


def _length_limit(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None, prompt: str
) -> int:
    """Return the longest input in tokens, see `DocumentEmbedder.max_length`.

    Args:
        model: The encoder. A model of this package without positions (a bag) has no limit, whatever
            its tokenizer says.
        tokenizer: Its tokenizer.
        asked: The `max_length` that the user gave.
        prompt: Must fit in as well.
    """
    limit = position_limit(model)
    if limit < NO_LIMIT or not is_ours(model):
        tokenizer_limit = int(min(tokenizer.model_max_length or NO_LIMIT, NO_LIMIT))
        limit = min(limit, tokenizer_limit)
    if asked is not None:
        limit = min(asked, limit)
    elif limit >= NO_LIMIT and not is_ours(model):
        limit = _DEFAULT_LENGTH
    num_taken = tokenizer.num_special_tokens_to_add(pair=False)
    if prompt:
        prompt_ids = private_copy(tokenizer)(prompt, add_special_tokens=False)["input_ids"]
        num_taken += len(prompt_ids)
    if limit <= num_taken:
        raise TmdeError(
            f"max_length: found {limit}, expected more than {num_taken}, the number of special "
            "tokens and tokens of the prompt"
        )
    return limit


def _padding_id(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return an id for padding, which is masked, so that any id will do."""
    candidates: tuple[int | None, ...] = (
        tokenizer.pad_token_id,
        getattr(model.config, "pad_token_id", None),
        tokenizer.eos_token_id,
    )
    for token_id in candidates:
        if token_id is not None and token_id >= 0:
            return token_id
    return 0


def _empty_text_id(tokenizer: PreTrainedTokenizerBase, pad_id: int) -> int:
    """Return the token that stands for a text without any token."""
    candidates: tuple[int | None, ...] = (
        tokenizer.eos_token_id,
        tokenizer.bos_token_id,
        tokenizer.cls_token_id,
        tokenizer.unk_token_id,
    )
    for token_id in candidates:
        if token_id is not None:
            return token_id
    return pad_id


# ---- Texts


def _codes_of_texts(language: str | Sequence[str] | None, num_texts: int) -> list[str | None]:
    """Return the language code of each text, from one code for all or one for each."""
    if language is None or isinstance(language, str):
        return [language] * num_texts
    return list(language)


def _check_texts(texts: Sequence[object], first_number: int) -> None:
    """Check that all texts are strings of valid Unicode; fast tokenizers do not say which is not.

    Args:
        texts: What the user gave.
        first_number: The number of the first text in error messages.
    """
    for number, text in enumerate(texts, first_number):
        if not isinstance(text, str):
            raise TypeError(f"text {number}: found {type(text).__name__}, expected str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TmdeError(
                f"text {number}: found a lone surrogate, expected valid Unicode ({error})"
            ) from error


def _split_into_groups(texts: Sequence[str], max_texts: int) -> list[slice]:
    """Divide texts into groups that are tokenized at once.

    Args:
        texts: All texts.
        max_texts: Most texts of a group; it has fewer if they are long.

    Returns:
        Consecutive slices of `texts`.
    """
    groups = []
    start = 0
    num_characters = 0
    for number, text in enumerate(texts):
        has_most_texts = number - start == max_texts
        is_too_long = number > start and num_characters + len(text) > _GROUP_CHARACTERS
        if has_most_texts or is_too_long:
            groups.append(slice(start, number))
            start = number
            num_characters = 0
        num_characters += len(text)
    if start < len(texts):
        groups.append(slice(start, len(texts)))
    return groups


def _prefetched(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the same items; a second thread makes each while the caller works on the one before.

    Neither tokenizer nor model holds Python's lock for most of its time.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer") as pool:
        pending = pool.submit(next, items, None)
        while (item := pending.result()) is not None:
            pending = pool.submit(next, items, None)
            yield item


def _ignore_progress(num_texts: int) -> None:
    """Do nothing with the number of texts that are done."""
