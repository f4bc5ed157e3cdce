"""Texts in, vectors out: `DocumentEmbedder` wraps any encoder of this package or of the Hub.

from modeling_tmde import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained("path/to/checkpoint")
vectors = embedder.encode(["Guten Tag", "Good day"])  # (2, d) float32
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm
from tqdm.std import tqdm as tqdm_std
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from .long_documents import MODES, NO_LIMIT, DocumentGroup, LongDocuments, SentenceDensity, load_aggregation
from .tokenization import TextTokenizer, TokenizedTexts, check_vocabulary, load_tokenizer

logger = logging.getLogger(__name__)

POOLINGS = ("cls", "mean")
_DEFAULT_LENGTH = 750  # tokens, for a model of the Hub that names no limit
_LENGTH_MULTIPLE = 16  # lengths of a compiled model's batches are multiples of this
_PROGRESS_BAR_FROM = 2000  # texts

Progress = Callable[[int], object]


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
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
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

    Raises:
        ValueError: Unknown pooling, a `max_length` that leaves no room for text, a tokenizer without vocabulary,
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
        self.model = model = encoder_body(model)
        self.tokenizer = tokenizer
        self.pooling = pooling or ("cls" if is_ours(model) else "mean")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling: found {pooling!r}, expected one of {POOLINGS}")
        check_vocabulary(tokenizer)
        self.last_report: EncodeReport | None = None
        # A bag of tokens needs no padding. A mean is taken over the outputs of a padded batch.
        self._ragged = hasattr(model, "embed_ragged") and self.pooling == "cls" and not self.needs_language
        self._max_length = _length_limit(model, tokenizer, max_length)
        self._pad_id, self._empty_id = _filler_ids(model, tokenizer)
        self._tokenize = TextTokenizer(tokenizer, self._max_length, _input_vocabulary(model), self._empty_id)
        self._dimension: int | None = None
        self.long_documents = long_documents
        self._long: LongDocuments | None = None
        if long_documents != "truncate":
            self._long = LongDocuments(self._tokenize, self._max_length, long_documents, window, stride, aggregation)
            aggregation = self._long.aggregation
            if isinstance(aggregation, SentenceDensity) and len(aggregation.mean_) != self.dimension:
                raise ValueError(
                    f"aggregation: found a density of vectors of dimension {len(aggregation.mean_)}, expected "
                    f"{self.dimension}, that of the model; fit it to vectors of this model"
                )
        else:
            given = {"window": window, "stride": stride, "aggregation": None if aggregation == "mean" else aggregation}
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"{name}: found {value} with long_documents='truncate', which splits nothing; give "
                        f"long_documents={MODES[1]!r} or {MODES[2]!r} as well"
                    )
        self.aggregation = aggregation

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike,
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
        **model_kwargs,
    ) -> DocumentEmbedder:
        """Loads model and tokenizer from a folder or the Hub, ready to encode.

        Args:
            path_or_hub_id: What `AutoModel.from_pretrained` takes.
            pooling, max_length, long_documents, window, stride, aggregation: See the class.
            device: Default: cuda, else mps, else cpu; untouched when `device_map` is given.
            dtype: Of the weights, e.g. `torch.bfloat16` or `"bfloat16"`; default: that of the checkpoint. Vectors are
                float32 in any case.
            compile: Run by `torch.compile`, which takes up to a minute at first; on a CPU it needs a C++ compiler.
            trust_remote_code, revision, token, **model_kwargs: Passed on to `AutoModel` and `AutoTokenizer` (the last
                only to `AutoModel`).

        Raises:
            FileNotFoundError: A path (not a possible Hub id) that is no folder of a model.
            OSError, ValueError: A device that is not there, a model that cannot be compiled, or what transformers
                finds wrong with the repository.
        """
        name = local_or_hub(path_or_hub_id)
        shared = {"trust_remote_code": trust_remote_code, "revision": revision or "main", "token": token}
        aggregation = load_aggregation(aggregation)
        if device is None and "device_map" not in model_kwargs:
            device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError) as error:  # torch without CUDA raises an AssertionError
            raise ValueError(f"device: found {str(device)!r}, which cannot be used here: {error}") from error
        tokenizer = load_tokenizer(name, **shared)
        if dtype is not None:
            model_kwargs["dtype"] = dtype
        model = encoder_body(AutoModel.from_pretrained(name, **shared, **model_kwargs).eval())
        if device is not None:
            model.to(device)
        if model.dtype == torch.bfloat16 and not has_fast_bf16(model.device.type == "cpu"):
            logger.warning(f"dtype: this {model.device.type} has no bfloat16 instructions; float32 is faster on it")
        embedder = cls(model, tokenizer, pooling, max_length, long_documents, window, stride, aggregation)
        if compile:
            embedder._compile()
        return embedder

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included: what was asked for, within what the model can take.

        1,000,000,000 where nothing limits it.
        """
        return self._max_length

    @property
    def long_document_settings(self) -> dict[str, str | int]:
        """All settings that decide the vectors of long documents, with their defaults."""
        return {"long_documents": "truncate"} if self._long is None else self._long.describe()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def dimension(self) -> int:
        """Length d of a vector, measured once by an input of one token: configs name it in too many ways."""
        if self._dimension is None:
            with evaluating(self.model), torch.inference_mode():
                token = torch.tensor([[self._empty_id]])
                language = torch.tensor([0]) if self.needs_language else None
                self._dimension = self._embed_batch(token, torch.ones_like(token), language).shape[-1]
        return self._dimension

    @property
    def needs_language(self) -> bool:
        """Whether the model has a part of its own for each language (NTDV, aligned), so that `encode` needs it."""
        return bool(getattr(self.model, "needs_language_ids", False))

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
            TypeError: A text or code that is not a string (index and type are named).
            ValueError: A text that is not valid Unicode, a token beyond the model's vocabulary, a bad `batch_tokens`;
                where it is needed, a missing or unknown language, or not one for each text.
        """
        _check_arguments(texts, batch_tokens)
        single = isinstance(texts, str)
        texts = [texts] if single else list(texts)
        codes = self._codes(language)
        if codes is not None and not isinstance(language, str) and len(language) != len(texts):
            raise ValueError(f"language: found {len(language)} codes for {len(texts)} texts")
        options = (batch_tokens, normalize, convert_to_tensor)
        with self._progress_bar(show_progress_bar, len(texts)) as bar:
            vectors, report = self._encode(texts, codes, *options, bar.update)
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
        _check_arguments(texts, batch_tokens, chunk_size)
        if isinstance(texts, str):
            raise TypeError("texts: found one str, expected an iterable of str; for one text use encode()")
        codes = self._codes(language)
        options = (batch_tokens, normalize, convert_to_tensor)

        def chunks() -> Iterator[np.ndarray | torch.Tensor]:
            report = EncodeReport()
            stream = iter(texts)
            with self._progress_bar(show_progress_bar, total, stream=True) as bar:
                try:
                    while chunk := list(itertools.islice(stream, chunk_size)):
                        vectors, part = self._encode(chunk, codes, *options, bar.update, report.texts)
                        report = self.last_report = report + part
                        yield vectors
                    if codes is not None and not isinstance(language, str) and next(codes, None) is not None:
                        raise ValueError(f"language: found more codes than the {report.texts} texts")
                finally:  # also when the reader of this stream stops early
                    self._finish(report)

        return chunks()

    def _codes(self, language: str | Iterable[str] | None) -> Iterator[str] | None:
        """The code of each text, if the model needs it or the splitter of sentences has a use for it."""
        if language is None and self.needs_language:
            raise ValueError(
                f"language: found None, but {type(self.model).__name__} has an encoder for each language; give "
                f"language=, the code of all texts or one for each, of {list(self.model.config.languages)}"
            )
        if language is None or not (self.needs_language or self.long_documents == "sentences"):
            return None
        return itertools.repeat(language) if isinstance(language, str) else iter(language)

    def _language_ids(self, codes: Sequence[str], first_number: int) -> torch.Tensor:
        """(texts,) int64 positions in the languages of a model that needs them."""
        known = list(self.model.config.languages)
        for number, code in enumerate(codes, first_number):
            if code not in known:
                raise ValueError(f"language of text {number}: found {code!r}, expected one of {known}")
        return torch.tensor([known.index(code) for code in codes], dtype=torch.long)

    def _encode(
        self,
        texts: list[str],
        codes: Iterator[str] | None,
        batch_tokens: int | None,
        normalize: bool,
        convert_to_tensor: bool,
        progress: Progress,
        first_number: int = 0,
    ) -> tuple[np.ndarray | torch.Tensor, EncodeReport]:
        """One list of texts to (n, d), with its report; warns of nothing."""
        start = time.perf_counter()
        for number, text in enumerate(texts, first_number):
            if not isinstance(text, str):
                raise TypeError(f"text {number}: found {type(text).__name__}, expected str")
        languages = None
        if codes is not None:
            languages = list(itertools.islice(codes, len(texts)))
            if len(languages) < len(texts):
                found = first_number + len(languages)
                raise ValueError(f"language: found {found} codes for {first_number + len(texts)} texts")
        language_ids = self._language_ids(languages, first_number) if self.needs_language else None
        batch_tokens = batch_tokens or (4096 if self.device.type == "cpu" else 16384)
        # Batches are filled from groups of texts: large groups need less padding, small ones are tokenized in time.
        size = max(4096, batch_tokens // 2)
        if self._long is None:
            starts = range(0, len(texts), size)
            groups = (self._tokenize(texts[begin : begin + size], first_number + begin) for begin in starts)
        else:
            groups = self._long.groups(texts, size, first_number, languages)
        vectors, report = None, EncodeReport()
        with evaluating(self.model), torch.inference_mode():
            for group in _prefetched(groups) if len(texts) > size or self._long else groups:
                done = slice(report.texts, report.texts + len(group))
                if language_ids is not None:
                    group = replace(group, language_ids=language_ids[done])
                part = self._embed_group(group, batch_tokens, normalize, progress)
                if vectors is None:
                    device = self.device if convert_to_tensor else torch.device("cpu")
                    with torch.inference_mode(False):  # for whoever trains on these vectors
                        vectors = torch.empty((len(texts), part.shape[-1]), dtype=torch.float32, device=device)
                vectors[done] = part.to(vectors.device)
                report += self._report(group)
        if vectors is None:
            vectors = torch.empty((0, self.dimension), device=self.device if convert_to_tensor else "cpu")
        report = replace(report, seconds=time.perf_counter() - start)
        return (vectors if convert_to_tensor else vectors.numpy()), report

    def _embed_group(
        self, group: TokenizedTexts | DocumentGroup, batch_tokens: int, normalize: bool, progress: Progress
    ) -> torch.Tensor:
        """(n, d) float32, on the model's device."""
        if isinstance(group, DocumentGroup):
            vectors = group.embed(lambda pieces: self._embed_texts(pieces, batch_tokens, lambda _: None), progress)
        else:
            vectors = self._embed_texts(group, batch_tokens, progress)
        return nn.functional.normalize(vectors, dim=-1) if normalize else vectors

    def _embed_texts(self, texts: TokenizedTexts, batch_tokens: int, progress: Progress) -> torch.Tensor:
        """(n, d) float32, on the model's device."""
        vectors = None
        for numbers, batch in self._embedded_batches(texts, batch_tokens):
            if vectors is None:
                self._dimension = batch.shape[-1]
                vectors = batch.new_empty((len(texts), self._dimension))
            vectors[numbers] = batch
            progress(len(batch))
        return vectors

    def _embedded_batches(
        self, texts: TokenizedTexts, batch_tokens: int
    ) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
        """Which texts, and their vectors (rows, d) in float32, on the model's device."""
        if self._ragged:
            for numbers, token_ids, lengths in texts.ragged_batches(batch_tokens):
                yield numbers, self.model.embed_ragged(self._to_device(token_ids), self._to_device(lengths)).float()
            return
        # torch.compile would compile batches of one row separately, and look at each new length.
        compiled = getattr(self.model, "_compiled_call_impl", None) is not None
        for numbers in texts.padded_batches(batch_tokens):
            rows = numbers.repeat(2) if compiled and len(numbers) == 1 else numbers
            padded = texts.padded(rows, self._pad_id, _LENGTH_MULTIPLE if compiled else 1, self.max_length)
            languages = None if texts.language_ids is None else texts.language_ids[torch.from_numpy(rows)]
            yield self._to_device(torch.from_numpy(numbers)), self._embed_batch(*padded, languages)[: len(numbers)]

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type == "cuda":  # which does not wait for it
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def _embed_batch(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, language_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One padded batch, (rows, length), with language_ids (rows,), to float32 (rows, d), on the model's device."""
        attention_mask = self._to_device(attention_mask)
        options = {} if language_ids is None else {"language_ids": self._to_device(language_ids)}
        if self.pooling == "cls" and self.model.config.model_type == "tmde":
            options["pooled_only"] = True  # of the last layer, only what the embedding needs
        outputs = self.model(input_ids=self._to_device(input_ids), attention_mask=attention_mask, **options)
        hidden = outputs[0]  # last_hidden_state (rows, length, d)
        return hidden[:, 0].float() if self.pooling == "cls" else mean_pooled(hidden, attention_mask)

    def _compile(self) -> None:
        """Compiles the forward pass for every batch size and length, and runs it once.

        Raises:
            ValueError: The model cannot be compiled, or not here: on a CPU it needs a C++ compiler.
        """
        name = type(self.model).__name__
        if self._ragged or self.needs_language:
            kind = "adds up rows of a table" if self._ragged else "runs another encoder for each language"
            raise ValueError(f"compile: {name} {kind}, which gains nothing; leave compile out")
        self.model.compile(dynamic=True)
        ids = torch.full((2, _LENGTH_MULTIPLE), self._empty_id)
        try:
            with torch.inference_mode():  # as `encode` does: another mode would compile again
                self._embed_batch(ids, torch.ones_like(ids))
        except Exception as error:  # from a missing header to an operation that the compiler does not know
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise ValueError(f"compile: {name} cannot be compiled here: {first[0]}") from error

    def _report(self, group: TokenizedTexts | DocumentGroup) -> EncodeReport:
        longest = int(group.full_lengths.max(initial=0))
        if isinstance(group, DocumentGroup):
            pieces = group.pieces
            split = int((pieces > 1).sum())
            return EncodeReport(len(group), group.tokens, longest=longest, split=split, pieces=int(pieces.sum()))
        truncated = int((group.full_lengths > group.lengths).sum())
        return EncodeReport(len(group), int(group.lengths.sum()), truncated, longest, pieces=len(group))

    def _progress_bar(self, show: bool | None, total: int | None, stream: bool = False) -> tqdm_std:
        if show is None:
            many = stream or total > _PROGRESS_BAR_FROM
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


def mean_pooled(hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """(rows, d) float32 of outputs (rows, length, d): the mean over the tokens of the mask, (rows, length).

    Raises:
        ValueError: Another number of outputs than of tokens.
    """
    if hidden.shape[:2] != attention_mask.shape:
        raise ValueError(
            f"pooling 'mean' needs one output per token: found {tuple(hidden.shape)}, expected "
            f"{(*attention_mask.shape, 'd')}; use pooling='cls'"
        )
    # A float32 sum: in bfloat16 a long text would lose its last tokens. Padding may hold anything, even NaN.
    summed = hidden.masked_fill(attention_mask[:, :, None] == 0, 0.0).sum(dim=1, dtype=torch.float32)
    return summed / attention_mask.sum(dim=1, keepdim=True)


def is_ours(model: nn.Module) -> bool:
    """Whether this is a model of this package."""
    return model.config.model_type.startswith("tmde")


def encoder_body(model: nn.Module) -> nn.Module:
    """The part that embeds: of a model with a head its body, of an encoder-decoder (T5, Marian, BART) its encoder."""
    model = getattr(model, "base_model", model)
    # TmdeModel is an encoder alone, although its config describes an encoder-decoder.
    if getattr(model.config, "is_encoder_decoder", False) and not is_ours(model):
        return model.get_encoder()
    return model


def position_limit(model: PreTrainedModel) -> int:
    """Longest input that the model has positions for; NO_LIMIT if it does not say."""
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:  # T5 has none, XLNet says -1
        return NO_LIMIT
    if is_ours(model):
        return limit
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from padding_idx + 1: of 514, 512 are usable.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - module.padding_idx - 1
    return limit


def local_or_hub(path: str | os.PathLike) -> str:
    """The folder or the Hub id, with a better error for what can be neither than the Hub client's.

    Raises:
        FileNotFoundError, NotADirectoryError: It is no folder of a saved model and cannot be a Hub id.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise FileNotFoundError(f"folder {folder} has no config.json; expected the folder of a saved model")
        return str(folder)
    if folder.exists():
        raise NotADirectoryError(f"{folder} is a file; expected the folder of a saved model")
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", str(path)):
        raise FileNotFoundError(f"no folder {folder}; expected a saved model's folder or a Hub id, 'name/model'")
    return str(path)


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


def _length_limit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None) -> int:
    """See `DocumentEmbedder.max_length`; where a model of ours has no positions (a bag), nothing limits it."""
    limit = position_limit(model)
    if limit < NO_LIMIT or not is_ours(model):
        limit = min(limit, int(min(tokenizer.model_max_length or NO_LIMIT, NO_LIMIT)))
    if asked is not None:
        limit = min(asked, limit)
    elif limit >= NO_LIMIT and not is_ours(model):
        limit = _DEFAULT_LENGTH
    special_tokens = tokenizer.num_special_tokens_to_add(pair=False)
    if limit <= special_tokens:
        raise ValueError(
            f"max_length: found {limit}, expected more than the {special_tokens} special tokens that the tokenizer "
            "adds to every text"
        )
    return limit


def _input_vocabulary(model: PreTrainedModel) -> int | None:
    try:
        return getattr(model.get_input_embeddings(), "num_embeddings", None)
    except (NotImplementedError, AttributeError):
        return None


def _filler_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Ids for padding (masked, so any will do) and for a text without any token (attended)."""
    pads = (tokenizer.pad_token_id, getattr(model.config, "pad_token_id", None), tokenizer.eos_token_id)
    pad = next((i for i in pads if i is not None and i >= 0), 0)
    attended = (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.unk_token_id)
    return pad, next((i for i in attended if i is not None), pad)


def _check_arguments(texts: object, batch_tokens: int | None, chunk_size: int = 1) -> None:
    for name, value in (("batch_tokens", batch_tokens), ("chunk_size", chunk_size)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: found {value}, expected at least 1")
    if isinstance(texts, (bytes, bytearray, Mapping, set, frozenset)) or not isinstance(texts, Iterable):
        raise TypeError(f"texts: found {type(texts).__name__}, expected a sequence of str")


def _prefetched(items: Iterator) -> Iterator:
    """The same items; each is made by a second thread while the caller works on the one before it.

    Neither tokenizer nor model holds Python's lock for most of its time.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer") as pool:
        pending = pool.submit(next, items, None)
        while (item := pending.result()) is not None:
            pending = pool.submit(next, items, None)
            yield item


class _LogLines(tqdm_std):
    """Progress for a log: whole lines, at most one every 30 seconds, and none for what takes less."""

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
