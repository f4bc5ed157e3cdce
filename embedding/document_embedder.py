"""`DocumentEmbedder` turns texts into vectors with any encoder of this package or of the Hub."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypedDict,
    TypeVar,
    cast,
    overload,
)

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from sentence_transformers.util import get_device_name
from torch import nn
from tqdm.std import tqdm as tqdm_std
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import BagModel, TmdeError
from modeling_tmde.inspection import NO_LIMIT, is_ours
from modeling_tmde.sentence_transformers_files import (
    MODULES_FILE,
    TRANSFORMER_TYPE,
    write_json,
)
from modeling_tmde.tokenization import load_tokenizer
from tmde.embedding.decoding import decodes_vectors, open_decoder
from tmde.embedding.loading import load_encoder, local_or_hub
from tmde.embedding.long_documents import LongDocuments, SplitDocuments, load_aggregation
from tmde.embedding.machine import cpu_batch_tokens, has_fast_bf16
from tmde.embedding.model_files import (
    copy_card,
    languages_of_card,
    license_of,
    replace_calibration,
    stored_settings,
)
from tmde.embedding.packaged_models import BFLOAT16_MODELS, DEFAULT_MODEL, packaged_name
from tmde.embedding.progress import progress_bar
from tmde.embedding.quantization import (
    DTYPES,
    Embeddings,
    check_precision,
    quantized,
    restored_vectors,
    stored_width,
)
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.stored_modules import lowercase_texts, stored_modules
from tmde.embedding.text_model import TextModel, evaluating
from tmde.embedding.text_tokenizer import BatchLimits, TextTokenizer, TokenizedTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Method = TypeVar("_Method", bound=Callable[..., Any])

_ACCELERATOR_BATCH_TOKENS = 16384
# The texts that are tokenized at once: so many, or more if batches are large, but no more than fit
# into 2^22 characters, which take about 100 MB.
_GROUP_TEXTS = 4096
_GROUP_CHARACTERS = 2**22
_PROGRESS_BAR_FROM = 2000  # texts

_SEVERAL_PROCESSES = "to embed a file with several processes, see `tmde embed --help`"
# Arguments that only SentenceTransformer.encode takes: the value that changes nothing, which the
# functions of sentence-transformers pass, and what to do instead of any other.
_INSTEAD = {
    "pool": (None, _SEVERAL_PROCESSES),
    "chunk_size": (None, _SEVERAL_PROCESSES),
    "output_value": (
        "sentence_embedding",
        "for token outputs, use embedder(embedder.preprocess(texts))['token_embeddings']",
    ),
}


@dataclass(frozen=True)
class EncodeReport:
    """Counts of what `encode` read. Two reports can be added.

    Attributes:
        texts: The number of texts.
        tokens: The number of tokens read, including special tokens.
        truncated: The number of truncated texts.
        longest: The token count of the longest text **before** truncation.
        seconds: The wall-clock time.
        split: The number of texts split into several pieces.
        pieces: The number of model inputs, including whole texts.

    Example:
        ```python
        from tmde import DocumentEmbedder

        embedder = DocumentEmbedder.from_pretrained()
        vectors, report = embedder.encode_with_report(["Guten Tag", "Good day"])
        print(f"{report.truncated} of {report.texts} texts were truncated")
        ```
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
    """Vectors with a report.

    Attributes:
        vectors: (n, d) float32, a numpy array or a tensor; (d,) for a single string. For other
            types, see `precision` of `encode`.
        report: The counts of texts and tokens.
    """

    vectors: np.ndarray | torch.Tensor
    report: EncodeReport


class VectorOptions(TypedDict, total=False):
    """Arguments of `encode` that control how vectors are computed and stored."""

    batch_size: int | None
    batch_tokens: int | None
    normalize: bool
    normalize_embeddings: bool
    truncate_dim: int | None
    precision: str | None


class EncodeArguments(VectorOptions, total=False):
    """Arguments of `encode` except the texts and the kind of array it returns."""

    prompt_name: str | None
    prompt: str | None
    show_progress_bar: bool | None
    device: str | torch.device | None
    language: str | Sequence[str] | None


def _takes_names_of_peer(method: _Method) -> _Method:
    """Let a method take its texts as `sentences=` or `inputs=` too.

    These are the names of sentence-transformers before version 6 and since then. Its arguments that
    are not supported raise a `TmdeError` that says what to do instead.
    """

    @wraps(method)
    def renaming(embedder: DocumentEmbedder, *args: Any, **options: Any) -> Any:
        for name in ("sentences", "inputs"):
            if name in options:
                if args or "texts" in options:
                    raise TypeError(
                        f"{method.__name__}() received both the texts and {name!r}; pass one"
                    )
                options["texts"] = options.pop(name)
        for name, (default, remedy) in _INSTEAD.items():
            value = options.pop(name, default)
            if value != default:
                raise TmdeError(f"{name}: found {value!r}, expected {default!r}; {remedy}")
        return method(embedder, *args, **options)

    return cast(_Method, renaming)


class DocumentEmbedder(SentenceTransformer):
    """Turn texts into vectors with a model and its tokenizer.

    Load one with `from_pretrained`. The model is from this package, or any encoder of
    transformers.

    An embedder is a `SentenceTransformer` (sentence-transformers 6) and works wherever one does.
    Shared methods match it in name and result, with these differences: batches are sized in tokens
    instead of texts, a report counts truncated texts, long documents can be split, and with
    `precision="int8"` or `"uint8"`, each vector has its own scale. `output_value`, `pool` and
    `chunk_size` are not supported.

    Example:
        ```python
        from tmde import DocumentEmbedder

        embedder = DocumentEmbedder.from_pretrained()
        vectors = embedder.encode(["Das Haus ist alt.", "The house is old."])  # (2, 384) float32
        print(embedder.similarity(vectors[0], vectors[1]))
        ```
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        pooling: str | None = None,
        max_length: int | None = None,
        long_documents: str = "truncate",
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike[str] | SentenceDensity = "mean",
        prompt: str = "",
        prompts: Mapping[str, str] | None = None,
        later_modules: Sequence[nn.Module] = (),
    ) -> None:
        """Create an embedder from a loaded model and its tokenizer.

        Args:
            model: The loaded model. Only its encoder is used, not its decoder or head.
            tokenizer: The model's tokenizer, fast or slow.
            pooling: How token outputs become one vector: `"cls"` takes the first output, `"mean"`
                the average over the tokens. `"max"`, `"mean_sqrt_len_tokens"`, `"weightedmean"`,
                `"lasttoken"` and combinations joined by "+" work as in sentence-transformers.
                Default: `"cls"` for the models of this package, `"mean"` for any other.
            max_length: The maximum input length in tokens, including special tokens. Default and
                upper limit: that of model and tokenizer; 750 for a Hub model that states no limit.
            long_documents: How to handle a text of more than `window` tokens:

                - `"truncate"`: truncate it to `max_length`, and warn.
                - `"chunk"`: split it into overlapping windows of `window` tokens.
                - `"sentences"`: split it into sentences.
                - `"punctuation"`: split it after every `.`, `!` and `?`; with `window=1`, as in Yu
                  et al. (2018).
                - `"words"`: split it into overlapping windows of `window` words, as Yu et al.
                  (2018) do with 128.
            window: The number of tokens, including special tokens, above which a text is split; for
                `"words"`, the number of words. Default: `max_length`; 128 for `"words"`.
            stride: The distance between the starts of two windows, in tokens or words. Default:
                half a window. Pieces longer than `max_length` are also split into token windows.
            aggregation: How the vectors of the pieces are combined: `"mean"`, elementwise `"max"`,
                or a mean weighted by a fitted `SentenceDensity` (an object or a saved file).
            prompt: A prefix for every text and every piece of a split text, such as "query: " for
                E5. Its tokens count toward `window` and `max_length`.
            prompts: Prompts by name, for `encode(prompt_name=...)`. `encode_query` and
                `encode_document` use "query" and "document". Default: `prompt` for both; for
                documents, a prompt named "passage" or "corpus" if there is one.
            later_modules: The sentence-transformers modules after the encoder: a Pooling, possibly
                followed by others. `pooling` replaces the first one. Default: only the pooling.

        Raises:
            TmdeError: The model is a name (use `from_pretrained`), the tokenizer is missing, the
                pooling is unknown, `max_length` leaves no room for text, the settings for long
                documents conflict, or a density was fitted to vectors of another size.
        """
        if isinstance(model, str | os.PathLike):
            # SentenceTransformer takes a name here.
            raise TmdeError(
                f"model: found the name {os.fspath(model)!r}, expected a loaded model; use "
                f"DocumentEmbedder.from_pretrained({os.fspath(model)!r})"
            )
        if tokenizer is None:
            raise TmdeError(
                "tokenizer: found none, expected the model's tokenizer; "
                "DocumentEmbedder.from_pretrained(...) loads both"
            )
        text_model = TextModel(model, tokenizer, max_length)
        later_modules = _with_pooling(text_model, pooling, later_modules)
        named_prompts, default_name = _prompts_by_role(prompt, prompts)
        super().__init__(
            modules=[text_model],
            device=str(text_model.model.device),  # The model stays where it is.
            prompts=named_prompts,
            similarity_fn_name="cosine",
        )
        # SentenceTransformer warns of one that is given to it.
        self.default_prompt_name = default_name
        for module in later_modules:
            # SentenceTransformer would round the weights of its modules to the encoder's type.
            self.append(module.float().to(self.device))
        if self.needs_language:
            self.module_kwargs = {"0": ["language"]}
        if prompt and prompt == self._prompt_of_model:
            logger.warning(
                f"prompt: found {prompt!r}, which this model already puts before every text "
                "and now reads twice; omit the prompt"
            )
        self.long_documents = long_documents
        self._window = window
        self._stride = stride
        if long_documents == "truncate" and (window, stride, aggregation) != (None, None, "mean"):
            raise TmdeError(
                f"window, stride, aggregation: found {window}, {stride}, {aggregation}, but "
                "long_documents='truncate' does not split texts; use 'chunk', 'sentences', "
                "'punctuation' or 'words'"
            )
        self.aggregation = load_aggregation(aggregation)
        self._reader(prompt)  # Raises for settings that leave no room for text.
        self._check_density()

    def _reader(self, prompt: str, max_length: int | None = None) -> TextTokenizer | LongDocuments:
        """Return what reads texts with a prompt.

        It is made for every call, in less than a millisecond, because users may set `tokenizer` and
        `prompts` at any time.

        Args:
            prompt: The prompt; "" for none.
            max_length: The longest input in tokens. Default: that of the embedder.

        Raises:
            TmdeError: The prompt leaves no room for text, or settings for long documents exclude
                each other or leave text out.
        """
        tokenize = self._text_model.text_tokenizer(prompt, max_length)
        if self.long_documents == "truncate":
            return tokenize
        return LongDocuments(
            tokenize, self.long_documents, self._window, self._stride, self.aggregation
        )

    @property
    def _whole_dimension(self) -> int:
        """The dimension of the last module's vectors, before `truncate_dim`."""
        # Modules such as `Normalize` state no dimension: theirs is that of the module before.
        stating: list[Any] = [
            module for module in self if hasattr(module, "get_embedding_dimension")
        ]
        dimension: int = stating[-1].get_embedding_dimension()
        return dimension

    def _check_density(self) -> None:
        """Check that a density is of vectors of this model."""
        if not isinstance(self.aggregation, SentenceDensity):
            return
        density_dimension = len(self.aggregation.mean_)
        if density_dimension != self._whole_dimension:
            raise TmdeError(
                f"aggregation: found a density of vectors of dimension {density_dimension}, "
                f"expected {self._whole_dimension}, the dimension of the model"
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
        prompts: Mapping[str, str] | None = None,
        truncate_dim: int | None = None,
        similarity_fn_name: str | None = None,
        **model_kwargs: Any,
    ) -> DocumentEmbedder:
        """Load a model with its tokenizer and modules from a folder or the Hub.

        Vectors match those of `SentenceTransformer`; unsupported modules and settings raise an
        error.

        Args:
            path_or_hub_id: A folder, a Hub id, or the name of a packaged model: `"default"`,
                `"tmde"` or `"accurate"`. Use `"./default"` for a folder with that name.
            pooling: How token outputs become one vector, see the constructor. Default: the pooling
                in the model's `modules.json`; another one replaces it and keeps later modules.
            max_length: The maximum input length in tokens. Default: the model's `max_seq_length`.
            device: The device, such as "cuda". Default: an accelerator if available, otherwise the
                CPU. With `device_map`, the model stays where it is placed.
            dtype: The type of the weights, such as `"bfloat16"`. Default: the checkpoint's type;
                for `"accurate"` and `"tmde"` on a CPU with bfloat16 instructions, bfloat16, which
                is two to three times as fast. Vectors are float32 either way.
            compile: Compile the model with `torch.compile`. The first batch then takes up to a
                minute, and a CPU requires a C++ compiler.
            trust_remote_code: Run code from the model's repository.
            revision: The branch, tag or commit on the Hub.
            token: The Hub token for a private repository.
            long_documents: How to handle texts longer than `window`, see the constructor.
            window: The length above which a text is split, see the constructor.
            stride: The distance between the starts of two windows, see the constructor.
            aggregation: How the vectors of the pieces are combined, see the constructor.
            prompt: A prefix for every text; "" for none. Default: the model's default prompt.
            prompts: Prompts by name, in addition to the model's. Without a `prompt`, "query" and
                "document" default to "", as in sentence-transformers.
            truncate_dim: Keep only the first `truncate_dim` elements of each vector. Default: the
                model's setting, or all.
            similarity_fn_name: The measure of `similarity`: "cosine", "dot", "euclidean" or
                "manhattan". Default: the model's setting, or "cosine".
            model_kwargs: More arguments for `AutoModel.from_pretrained`.

        Raises:
            OSError: The model or one of its files does not exist, or the Hub can't be reached.
            TmdeError: A sentence-transformers module or setting is not supported.
            ValueError: transformers can't read the repository.
            RuntimeError: The device does not exist.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained("default", long_documents="sentences")
            ```
        """
        name = local_or_hub(path_or_hub_id, revision, token)
        hub_options = {
            "trust_remote_code": trust_remote_code,
            "revision": revision or "main",
            "token": token,
        }
        settings = stored_settings(name, revision=revision, token=token)
        modules = stored_modules(name, revision, token, trust_remote_code)
        tokenizer = load_tokenizer(name, **(modules.tokenizer_kwargs | hub_options))
        if modules.lower_case:
            lowercase_texts(tokenizer)
        all_prompts = settings.prompts | dict(prompts or {})
        if prompt is None:
            prompt = settings.default_prompt
            all_prompts = {"query": "", "document": ""} | all_prompts
        if device is None and "device_map" not in model_kwargs:
            device = get_device_name()
        is_measured = packaged_name(name) in BFLOAT16_MODELS
        if dtype is None and is_measured and str(device) == "cpu" and has_fast_bf16(use_cpu=True):
            dtype = torch.bfloat16
        if dtype is not None:
            model_kwargs["dtype"] = dtype
        whole_model = load_encoder(name, **(modules.model_kwargs | hub_options | model_kwargs))
        whole_model.eval()  # type: ignore[no-untyped-call]  # transformers wraps it without types
        if device is not None:
            # transformers' wrapper of `to` hides its `self` from type checkers.
            whole_model.to(device)  # type: ignore[arg-type]
        embedder = cls(
            whole_model,
            tokenizer,
            pooling,
            modules.max_length if max_length is None else max_length,
            long_documents,
            window,
            stride,
            aggregation,
            prompt,
            all_prompts,
            modules.later_modules,
        )
        similarity: Any = similarity_fn_name or settings.similarity_fn_name
        if similarity_fn_name is not None or similarity in cls.SUPPORTED_SIMILARITY_FN_NAMES:
            embedder.similarity_fn_name = similarity
        embedder.truncate_dim = settings.truncate_dim if truncate_dim is None else truncate_dim
        embedder.trust_remote_code = trust_remote_code
        if compile:
            embedder.model.compile(dynamic=True)
        return embedder

    @classmethod
    def _load_with_module_classes(
        cls, model_name_or_path: str, module_classes: Mapping[str, type[nn.Module]], **options: Any
    ) -> DocumentEmbedder:
        """Load a checkpoint for `SentenceTransformerTrainer`, which wants the best one back."""
        return cls.from_pretrained(model_name_or_path, **options)

    def _apply(self, *args: Any, **options: Any) -> DocumentEmbedder:
        """Move or cast all modules, as `half()` and `to()` do; those after the encoder to float32.

        They take float32 vectors, whatever the type of the encoder.
        """
        super()._apply(*args, **options)
        for module in list(self.children())[1:]:
            module.float()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what calls add, so that `datasets` recognizes the same embedder."""
        state = dict(self.__dict__)
        state.pop("_accelerate_placement_hook", None)
        return state

    def __repr__(self) -> str:
        """Say which model this is, the width of its vectors, its limit and its languages."""
        parts = [
            f"model={self.model_label!r}",
            f"kind={type(self.model).__name__}",
            f"dimension={self.dimension}",
            f"max_seq_length={self.max_seq_length}",
            f"languages={self.languages}",
        ]
        # A bag is a sum over all tokens of a document, which needs neither.
        if not isinstance(self.model, BagModel):
            parts.append(f"pooling={self.pooling!r}")
            parts.append(f"long_documents={self.long_documents!r}")
        if self.projections:
            parts.append(f"then={[type(module).__name__ for module in self.projections]}")
        parts.append(f"prompt={self.prompt or self._prompt_of_model!r}")
        parts.append(f"device={str(self.device)!r}")
        parts.append(f"dtype={self.arithmetic!r}")
        return f"DocumentEmbedder({', '.join(parts)})"

    @property
    def arithmetic(self) -> str:
        """The type in which the encoder computes, such as "bfloat16"."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def _prompt_of_model(self) -> str:
        """The prompt that the model puts before every text by itself; "" for none."""
        prompt: str = getattr(self.model.config, "prompt", "") or ""
        return prompt

    # ---- Modules

    @property
    def _text_model(self) -> TextModel:
        """The first module."""
        return cast(TextModel, self[0])

    @property
    def _pooling_module(self) -> Pooling:
        """The second module."""
        return cast(Pooling, self[1])

    @property
    def model(self) -> PreTrainedModel:
        """The encoder."""
        return self._text_model.model

    @property
    def pooling(self) -> str:
        """The name of the pooling; "+" joins several."""
        modes = self._pooling_module.pooling_mode
        return modes if isinstance(modes, str) else "+".join(modes)

    @property
    def includes_prompt(self) -> bool:
        """Whether the pooling includes the prompt's tokens."""
        return self._pooling_module.include_prompt

    @property
    def projections(self) -> list[nn.Module]:
        """The modules after the pooling, such as a Dense and a Normalize."""
        return list(self.children())[2:]

    # ---- Properties

    @property
    def prompt(self) -> str:
        """The default prompt of `encode`; "" for none."""
        return self._resolve_prompt(None, None) or ""

    @property
    def long_document_settings(self) -> dict[str, str | int]:
        """All settings that affect the vectors of long documents, with their defaults."""
        reader = self._reader(self.prompt)
        if isinstance(reader, LongDocuments):
            return reader.describe()
        return {"long_documents": "truncate"}

    @property
    def model_label(self) -> str:
        """The name of the packaged model, or the model's folder or Hub id."""
        path = str(self.model.name_or_path)
        return packaged_name(path) or path

    @property
    def languages(self) -> list[str] | None:
        """The codes of the model's languages, from its configuration or card; None if unknown."""
        languages = getattr(self.model.config, "languages", None)
        return list(languages) if languages else languages_of_card(self.model)

    @property
    def decoded_languages(self) -> list[str]:
        """The codes of the languages that `decode` can generate; empty without a decoder.

        They are the model's pivot languages.
        """
        if not decodes_vectors(self.model):
            return []
        return list(getattr(self.model.config, "pivot_languages", None) or [])

    @property
    def max_length(self) -> int:
        """The maximum input length in tokens; 1,000,000,000 without a limit."""
        return self._text_model.max_seq_length

    @property
    def max_seq_length(self) -> int | None:
        """The maximum input length in tokens; None if there is no limit.

        You can set it, up to the limit of model and tokenizer.

        Raises:
            TmdeError: The value is too large, or leaves no room for text.
        """
        return None if self.max_length >= NO_LIMIT else self.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        limit = self._text_model.length_limit(value)
        if value is not None and limit < value:
            raise TmdeError(
                f"max_seq_length: found {value:,}, expected at most {limit:,}, the longest "
                "input of model and tokenizer; embed longer texts with "
                "long_documents='chunk' or 'sentences'"
            )
        self._reader(self.prompt, limit)  # Raises if the limit leaves no room for text.
        self._text_model.max_seq_length = limit

    @property
    def dimension(self) -> int:
        """The width d of the vectors."""
        return cast(int, self.get_embedding_dimension())

    @property
    def needs_language(self) -> bool:
        """Whether `encode` requires `language`, because each language has its own encoder."""
        return bool(getattr(self.model, "needs_language_ids", False))

    @property
    def _takes_first_output(self) -> bool:
        """Whether a vector is made of the first output of the model alone."""
        return self.pooling == "cls" and self.includes_prompt

    @property
    def _is_ragged(self) -> bool:
        """Whether the model takes texts without padding, as a bag of tokens does.

        A mean is taken over the outputs of a padded batch, and weights that are offloaded come
        back only where the model itself is called.
        """
        return (
            self._takes_first_output
            and hasattr(self.model, "embed_ragged")
            and not hasattr(self.model, "_hf_hook")
        )

    # ---- Encoding

    @overload  # type: ignore[override]  # Batches hold tokens, and models may need a language.
    def encode(
        self, texts: str | Iterable[str], **arguments: Unpack[EncodeArguments]
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        convert_to_tensor: Literal[True],
        **arguments: Unpack[EncodeArguments],
    ) -> torch.Tensor: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **arguments: Unpack[EncodeArguments],
    ) -> np.ndarray | torch.Tensor | list[torch.Tensor]: ...

    @_takes_names_of_peer
    def encode(
        self,
        texts: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        *,
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | torch.device | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        batch_tokens: int | None = None,
        normalize: bool = False,
        language: str | Sequence[str] | None = None,
    ) -> np.ndarray | torch.Tensor | list[torch.Tensor]:
        """Embed texts.

        The vector of a text does not depend on the other texts or the batch size (to 1e-5 in
        float32). Texts are not lowercased. The vector of an empty text is finite and nonzero.

        Args:
            texts: n strings, or one string. The names `sentences` and `inputs` of
                sentence-transformers also work.
            prompt_name: The name of one of `prompts`.
            prompt: A prefix for every text instead of the embedder's `prompt`; "" for none.
            batch_size: The maximum number of texts in a batch. With `batch_tokens`, the first limit
                reached ends a batch.
            show_progress_bar: Whether to show progress. Default: if this module logs at INFO, or if
                there are more than 2,000 texts and stderr is a terminal.
            precision: The type of the returned elements: "float32"; "int8" or "uint8", where each
                vector is scaled by its largest element (this keeps cosines, not lengths); "binary"
                or "ubinary" for one bit per element, its sign. `similarity` accepts all of them.
            convert_to_numpy: Whether to return an array, not a list of n tensors on the model's
                device.
            convert_to_tensor: Return one tensor on the model's device.
            device: Move the model there permanently.
            normalize_embeddings: Scale each vector to Euclidean length 1.
            truncate_dim: Keep only the first `truncate_dim` elements of each vector, before
                scaling; for models trained this way (Matryoshka embeddings). Default: the
                embedder's.
            batch_tokens: The batch size in tokens, including padding: rows times the longest row. A
                longer text is its own batch. Default: 16,384 on an accelerator; a measured value
                for each model on a CPU.
            normalize: Short for `normalize_embeddings`.
            language: The language code of all texts, or one per text. Models with `needs_language`
                require it. Otherwise, it only helps to detect sentence ends with
                `long_documents="sentences"`.

        Returns:
            (n, d) float32 in the order of `texts`; (d,) for one string. With another `precision`,
            (n, d) int8 or uint8; binary vectors are (n, d / 8), rounded up.

        Raises:
            TypeError: A text is not a string. The message names its index and type.
            TmdeError: A text is not valid Unicode, a language is missing or unknown, or an argument
                is out of range for the model.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            vectors = embedder.encode(["Guten Tag", "Good day"], normalize_embeddings=True)
            small = embedder.encode(["Guten Tag", "Good day"], precision="int8")
            ```
        """
        vectors = self.encode_with_report(
            texts,
            convert_to_tensor=convert_to_tensor or not convert_to_numpy,
            prompt_name=prompt_name,
            prompt=prompt,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            precision=precision,
            device=device,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            batch_tokens=batch_tokens,
            normalize=normalize,
            language=language,
        ).vectors
        is_list = not convert_to_numpy and not convert_to_tensor
        if is_list and isinstance(vectors, torch.Tensor) and vectors.ndim == 2:
            return list(vectors)
        return vectors

    @_takes_names_of_peer
    def encode_query(  # type: ignore[override]  # As `encode`.
        self, texts: str | Iterable[str], **arguments: Any
    ) -> np.ndarray | torch.Tensor | list[torch.Tensor]:
        """Embed search queries with the prompt named "query".

        Args:
            texts: The queries.
            arguments: More arguments for `encode`. A `prompt` or `prompt_name` takes precedence.

        Raises:
            TypeError: A text is not a string.
            TmdeError: As for `encode`.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            query = embedder.encode_query("Why is the bridge closed?")
            documents = embedder.encode_document(["Die Brücke wird saniert.", "Es regnet."])
            best = embedder.similarity(query, documents).argmax()
            ```
        """
        return self._encode_with_role("query", texts, arguments)

    @_takes_names_of_peer
    def encode_document(  # type: ignore[override]  # As `encode`.
        self, texts: str | Iterable[str], **arguments: Any
    ) -> np.ndarray | torch.Tensor | list[torch.Tensor]:
        """Embed documents for search with the prompt named "document".

        Args:
            texts: The documents.
            arguments: As for `encode_query`.

        Raises:
            TypeError: A text is not a string.
            TmdeError: As for `encode`.
        """
        return self._encode_with_role("document", texts, arguments)

    def _encode_with_role(
        self, role: str, texts: str | Iterable[str], arguments: dict[str, Any]
    ) -> np.ndarray | torch.Tensor | list[torch.Tensor]:
        """Embed texts with the prompt of a role, if there is one and a call names no other one."""
        is_named = arguments.get("prompt") is not None or arguments.get("prompt_name") is not None
        if role in self.prompts and not is_named:
            arguments = arguments | {"prompt_name": role}
        vectors: np.ndarray | torch.Tensor | list[torch.Tensor] = self.encode(texts, **arguments)
        return vectors

    @_takes_names_of_peer
    def encode_with_report(
        self,
        texts: str | Iterable[str],
        *,
        convert_to_tensor: bool = False,
        language: str | Sequence[str] | None = None,
        show_progress_bar: bool | None = None,
        device: str | torch.device | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        **options: Unpack[VectorOptions],
    ) -> EncodeOutput:
        """Embed texts like `encode`, and also return a report.

        Args:
            texts: See `encode`.
            convert_to_tensor: See `encode`.
            language: See `encode`.
            show_progress_bar: See `encode`.
            device: See `encode`.
            prompt: See `encode`.
            prompt_name: See `encode`.
            options: More arguments for `encode`.

        Raises:
            TypeError: A text is not a string.
            TmdeError: As for `encode`.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            vectors, report = embedder.encode_with_report(["Guten Tag", "Good day"])
            print(f"{report.tokens} tokens in {report.seconds:.2f} s")
            ```
        """
        if device is not None:
            self._move_to(device)
        reader = self._reader(self._prompt_of_call(prompt, prompt_name))
        form = self._vector_form(convert_to_tensor, **options)
        is_single_text = isinstance(texts, str)
        text_list = [texts] if isinstance(texts, str) else _listed(texts)
        codes = _codes_of_texts(language, len(text_list))
        with self._progress_bar(show_progress_bar, len(text_list)) as bar:
            vectors, report = self._encode_list(reader, text_list, codes, form, bar.update)
        self.warn_of_truncation(report)
        return EncodeOutput(vectors[0] if is_single_text else vectors, report)

    def _prompt_of_call(self, prompt: str | None, prompt_name: str | None) -> str:
        """Return the prompt of a call of `encode`, by default that of the embedder.

        Raises:
            TmdeError: There is no prompt of that name.
        """
        if prompt is None and prompt_name is not None and prompt_name not in self.prompts:
            raise TmdeError(
                f"prompt_name: found {prompt_name!r}, expected one of {sorted(self.prompts)}, "
                "the prompts of this model; or give the prompt itself with prompt="
            )
        return self._resolve_prompt(prompt, prompt_name) or ""

    def _vector_form(
        self,
        convert_to_tensor: bool,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        normalize: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: str | None = "float32",
    ) -> _VectorForm:
        """Return how a call computes and stores vectors.

        Raises:
            TypeError: There is no such argument.
            TmdeError: A value is out of range.
        """
        return _VectorForm(
            batch=self._batch_limits(batch_tokens, batch_size),
            normalize=normalize or normalize_embeddings,
            convert_to_tensor=convert_to_tensor,
            dimension=self._dimension_of_call(truncate_dim),
            precision=precision or "float32",
        )

    def _batch_limits(self, batch_tokens: int | None, batch_size: int | None) -> BatchLimits:
        """Return how much a batch may hold.

        Raises:
            TmdeError: A limit is below 1.
        """
        for name, limit in (("batch_tokens", batch_tokens), ("batch_size", batch_size)):
            if limit is not None and limit < 1:
                raise TmdeError(f"{name}: found {limit}, expected at least 1")
        if batch_size is None:
            return BatchLimits(tokens=batch_tokens or self._default_batch_tokens())
        return BatchLimits(tokens=batch_tokens or NO_LIMIT, texts=batch_size)

    def _dimension_of_call(self, truncate_dim: int | None) -> int:
        """Return how many numbers of a vector a call keeps, by default `dimension`.

        Raises:
            TmdeError: The model has fewer.
        """
        if truncate_dim is None:
            return self.dimension
        if not 1 <= truncate_dim <= self._whole_dimension:
            raise TmdeError(
                f"truncate_dim: found {truncate_dim}, expected 1 to {self._whole_dimension}, the "
                "dimension of the model"
            )
        return truncate_dim

    def _move_to(self, device: str | torch.device) -> None:
        """Move the model for a call of `encode`.

        Raises:
            TmdeError: There are several devices, or weights that have their own places.
        """
        if not isinstance(device, str | torch.device):
            raise TmdeError(
                f"device: found {device!r}, expected one device such as 'cuda'; "
                f"{_SEVERAL_PROCESSES}"
            )
        if hasattr(self.model, "_hf_hook"):
            raise TmdeError(
                f"device: found {str(device)!r}, but device_map has placed this model's "
                "weights; omit device"
            )
        self.to(device)

    def start_multi_process_pool(self, target_devices: list[str] | None = None) -> NoReturn:
        """Reject a request for processes, because `encode` has no `pool` argument.

        Args:
            target_devices: Not used.

        Raises:
            TmdeError: Always.
        """
        raise TmdeError(
            f"start_multi_process_pool: encode() does not support a pool; {_SEVERAL_PROCESSES}"
        )

    def __call__(self, batch: Mapping[str, Any], column: str = "text", **options: Any) -> Any:
        """Embed the rows of a dataset, as `embed_batch` does.

        A batch of tensors comes from a trainer: it goes through the modules, as in
        `SentenceTransformer`.

        Args:
            batch: Rows by column, or one row.
            column: The column of the texts.
            options: Arguments of `encode`.

        Raises:
            TypeError: The argument is not a batch of a dataset.

        Example:
            ```python
            from datasets import Dataset
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            rows = Dataset.from_dict({"text": ["Guten Tag", "Good day"]})
            rows = rows.map(embedder, batched=True)
            ```
        """
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"batch: found {type(batch).__name__}, expected a batch from Dataset.map; to "
                "embed texts, use encode()"
            )
        if isinstance(batch.get("input_ids"), torch.Tensor):
            return super().__call__(batch, **options)
        return self.embed_batch(batch, column, **options)

    def embed_batch(
        self, batch: Mapping[str, Any], column: str = "text", **options: Any
    ) -> dict[str, Any]:
        """Add an `embedding` column to a batch, for `Dataset.map`.

        Args:
            batch: Rows by column, or one row.
            column: The text column.
            options: Arguments for `encode`.

        Raises:
            TmdeError: The column does not exist, or as for `encode`.

        Example:
            ```python
            from datasets import Dataset
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            rows = Dataset.from_dict({"body": ["Guten Tag", "Good day"]})
            options = {"column": "body", "normalize": True}
            rows = rows.map(embedder.embed_batch, batched=True, fn_kwargs=options)
            ```
        """
        if column not in batch:
            raise TmdeError(
                f"column: found {column!r}, expected one of {sorted(batch)}; set the text "
                "column with fn_kwargs={'column': ...}"
            )
        texts = batch[column]
        if not isinstance(texts, str):
            texts = list(texts)
        return {"embedding": self.encode(texts, **options)}

    # ---- Decoding

    def decode(
        self,
        embeddings: Embeddings,
        language: str | None = None,
        *,
        max_new_tokens: int = 100,
        num_beams: int = 4,
        batch_size: int = 32,
        **options: Any,
    ) -> list[str]:
        """Turn vectors back into text, if the model has a decoder, such as T-MDE's.

        The text shows what a vector stores: topic and names survive more often than wording.

        Args:
            embeddings: Vectors (n, d) or (d,), as `encode` returns them by default: not scaled,
                quantized or truncated.
            language: The output language, one of the model's pivot languages. Default: the only
                pivot language.
            max_new_tokens: The maximum output length in tokens.
            num_beams: The width of the beam search.
            batch_size: The number of vectors to decode together.
            options: More arguments for transformers' `generate`.

        Returns:
            One text for each vector.

        Raises:
            TmdeError: The model has no decoder or was not loaded from a folder or the Hub, it can't
                generate the language, or the vectors have the wrong width or type.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained("runs/tmde")
            vector = embedder.encode("Die Brücke ist gesperrt.")
            (text,) = embedder.decode(vector, "en")
            ```
        """
        if not self.model.name_or_path:
            raise TmdeError(
                "decode: found a model without a folder; load it with "
                "DocumentEmbedder.from_pretrained(folder), so that its decoder is found"
            )
        revision = getattr(self.model.config, "_commit_hash", None)
        model = open_decoder(self.model.name_or_path, revision)
        vectors = torch.from_numpy(np.atleast_2d(np.asarray(embeddings)))  # (n, d)
        texts: list[str] = []
        for start in range(0, len(vectors), batch_size):
            token_ids = model.generate(
                encoder_outputs=vectors[start : start + batch_size],
                target_language=language,
                max_new_tokens=max_new_tokens,
                num_beams=num_beams,
                **options,
            )
            texts += self.tokenizer.batch_decode(token_ids, skip_special_tokens=True)
        return texts

    # ---- Similarity

    def similarity(
        self, embeddings1: Embeddings, embeddings2: Embeddings, *, precision: str | None = None
    ) -> torch.Tensor:
        """Return the similarity of every vector in one list to every vector in another, (n, m).

        The measure is `similarity_fn_name`, by default the cosine. Quantized vectors are scaled to
        length 1. Binary vectors have the cosine `1 - 2 h / d`, where h is their Hamming distance.
        One side may be float32: such queries retrieve binary documents better than binary ones do.

        Args:
            embeddings1: (n, d), or one vector (d,).
            embeddings2: (m, d), or one vector (d,).
            precision: The `precision` with which vectors were encoded. Required for binary vectors
                and for quantized vectors truncated by `truncate_dim`.

        Raises:
            TmdeError: The vectors differ in width, or `precision` is required.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            documents = embedder.encode(["Die Brücke ist zu.", "Es regnet."], precision="ubinary")
            query = embedder.encode_query("Why is the bridge closed?")
            scores = embedder.similarity(query, documents, precision="ubinary")
            ```
        """
        first, second = restored_vectors(embeddings1, embeddings2, precision, self.dimension)
        return super().similarity(first, second)

    def similarity_pairwise(
        self, embeddings1: Embeddings, embeddings2: Embeddings, *, precision: str | None = None
    ) -> torch.Tensor:
        """Return the similarity of vectors at the same position in two lists, (n,).

        Args:
            embeddings1: (n, d).
            embeddings2: (n, d).
            precision: See `similarity`.

        Raises:
            TmdeError: The vectors differ in width or number, or `precision` is required.
        """
        first, second = restored_vectors(embeddings1, embeddings2, precision, self.dimension)
        if first.ndim == second.ndim == 2 and len(first) != len(second):
            raise TmdeError(
                f"embeddings2: found {len(second)} vectors, expected {len(first)}, one for "
                "each of embeddings1; similarity() compares all pairs"
            )
        return super().similarity_pairwise(first, second)

    # ---- Saving

    def save_pretrained(
        self,
        path: str | os.PathLike[str],
        model_name: str | None = None,
        create_model_card: bool = True,
        train_datasets: list[str] | None = None,
        safe_serialization: bool = True,
    ) -> None:
        """Save model, tokenizer, modules and prompts in a folder.

        `DocumentEmbedder`, `SentenceTransformer` and `AutoModel` load the folder and compute the
        same vectors. Settings for long documents are not stored; pass them to `from_pretrained`
        again. A loaded model's card is copied with its license; after `SentenceTransformerTrainer`,
        a new card retains the license. The decoder of a loaded T-MDE is copied, unless the encoder
        has been trained without it since.

        Args:
            path: The folder. Files of an earlier save are replaced.
            model_name: The name of the model in a new card.
            create_model_card: Whether to copy or write a card.
            train_datasets: Not used.
            safe_serialization: Not used.

        Raises:
            TmdeError: The path is a file.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            embedder.save_pretrained("my-embedder")
            same = DocumentEmbedder.from_pretrained("my-embedder")
            ```
        """
        self.save(path, model_name, create_model_card, train_datasets, safe_serialization)

    def save(
        self,
        path: str | os.PathLike[str],
        model_name: str | None = None,
        create_model_card: bool = True,
        train_datasets: list[str] | None = None,
        safe_serialization: bool = True,
    ) -> None:
        """Do what `save_pretrained` does; sentence-transformers calls it by this name too.

        Args:
            path: The folder, created if missing.
            model_name: The name of the model in a new card.
            create_model_card: Whether to copy or write a card.
            train_datasets: Not used.
            safe_serialization: Not used.

        Raises:
            TmdeError: The path is a file.
        """
        folder = Path(path).expanduser()
        if folder.is_file():
            raise TmdeError(f"path: found the file {folder}, expected a folder")
        is_trained = "generated_from_trainer" in self.model_card_data.tags
        if is_trained and self.model_card_data.license is None:
            self.model_card_data.license = license_of(self.model)
        super().save(str(folder), model_name, create_model_card and is_trained)
        modules_file = folder / MODULES_FILE
        entries = json.loads(modules_file.read_text(encoding="utf-8"))
        # `TextModel` stands in for the module that whoever opens the folder has.
        entries[0]["type"] = TRANSFORMER_TYPE
        write_json(modules_file, entries)
        if create_model_card and not is_trained:
            copy_card(self.model, folder)
        replace_calibration(self.model, folder)

    # ---- Streams

    def encode_iter(
        self,
        texts: Iterable[str],
        chunk_size: int = 8192,
        *,
        convert_to_tensor: bool = False,
        total: int | None = None,
        language: str | Iterable[str] | None = None,
        show_progress_bar: bool | None = None,
        **options: Unpack[VectorOptions],
    ) -> Iterator[np.ndarray | torch.Tensor]:
        """Embed a stream of texts in constant memory, chunk by chunk.

        A single warning at the end counts truncated texts.

        Args:
            texts: Any number of texts.
            chunk_size: The number of texts to read at once.
            convert_to_tensor: Yield tensors instead of numpy arrays.
            total: The number of texts, if known, for the progress bar.
            language: One language code, or an iterable with one code per text.
            show_progress_bar: See `encode`.
            options: More arguments for `encode`.

        Yields:
            The vectors of at most `chunk_size` texts, in order.

        Raises:
            TypeError: `texts` is one string, or a text is not a string.
            TmdeError: As for `encode`.

        Example:
            ```python
            from tmde import DocumentEmbedder

            embedder = DocumentEmbedder.from_pretrained()
            texts = (f"Sentence number {number}." for number in range(10_000))
            for vectors in embedder.encode_iter(texts, chunk_size=4096):
                print(vectors.shape)
            ```
        """
        outputs = self.encode_iter_with_reports(
            texts,
            chunk_size,
            convert_to_tensor=convert_to_tensor,
            total=total,
            language=language,
            show_progress_bar=show_progress_bar,
            **options,
        )
        # Closed with this generator, so that the warning comes if the reader stops early.
        with closing(outputs):
            for output in outputs:
                yield output.vectors

    def encode_iter_with_reports(
        self,
        texts: Iterable[str],
        chunk_size: int = 8192,
        *,
        convert_to_tensor: bool = False,
        total: int | None = None,
        language: str | Iterable[str] | None = None,
        show_progress_bar: bool | None = None,
        **options: Unpack[VectorOptions],
    ) -> Generator[EncodeOutput, None, None]:
        """Embed a stream like `encode_iter`, with a report on each chunk.

        Args:
            texts: See `encode_iter`.
            chunk_size: See `encode_iter`.
            convert_to_tensor: See `encode_iter`.
            total: See `encode_iter`.
            language: See `encode_iter`.
            show_progress_bar: See `encode`.
            options: More arguments for `encode`.

        Yields:
            The vectors (texts, d) and the report of a chunk.

        Raises:
            TypeError: As for `encode_iter`.
            TmdeError: As for `encode`.
        """
        if isinstance(texts, str):
            raise TypeError(
                "texts: found one str, expected an iterable of str; for one text, use encode()"
            )
        if chunk_size < 1:
            raise TmdeError(f"chunk_size: found {chunk_size}, expected at least 1")
        _check_no_table(texts)
        codes: Iterator[str | None]
        if language is None or isinstance(language, str):
            codes = itertools.repeat(language)
        else:
            codes = iter(language)
        stream = iter(texts)
        form = self._vector_form(convert_to_tensor, **options)
        reader = self._reader(self.prompt)
        total_report = EncodeReport()
        with self._progress_bar(show_progress_bar, total) as bar:
            try:
                while chunk := list(itertools.islice(stream, chunk_size)):
                    chunk_codes = list(itertools.islice(codes, len(chunk)))
                    output = self._encode_list(
                        reader,
                        chunk,
                        chunk_codes,
                        form,
                        bar.update,
                        first_number=total_report.texts,
                    )
                    total_report += output.report
                    yield output
            finally:
                # Also reached when the reader of this stream stops early.
                self.warn_of_truncation(total_report)

    def _encode_list(
        self,
        reader: TextTokenizer | LongDocuments,
        texts: list[str],
        codes: list[str | None],
        form: _VectorForm,
        progress: Callable[[int], object],
        first_number: int = 0,
    ) -> EncodeOutput:
        """Embed one list of texts.

        Args:
            reader: Reads them.
            texts: n strings.
            codes: The language code of each.
            form: How vectors are computed and stored.
            progress: Called with the number of texts that are done.
            first_number: The number of the first text in error messages.
        """
        start = time.perf_counter()
        _check_texts(texts, first_number)
        if len(codes) != len(texts):
            raise TmdeError(f"language: found {len(codes)} codes for {len(texts)} texts")
        language_ids = self._language_ids(codes, first_number) if self.needs_language else None
        # Batches are filled from groups of texts: large ones need less padding, small ones are
        # tokenized while the model works on the group before.
        groups = _split_into_groups(texts, max(_GROUP_TEXTS, form.batch.most_texts))
        device = self.device if form.convert_to_tensor else "cpu"
        vectors = form.empty_vectors(len(texts), device)
        report = EncodeReport()
        with evaluating(self.model), torch.inference_mode():
            documents_of_groups = _tokenized_groups(reader, texts, codes, groups)
            for group, documents in zip(groups, documents_of_groups, strict=True):
                if language_ids is not None:
                    documents.language_ids = language_ids[group]
                group_vectors, group_report = self._embed_group(
                    reader, documents, form.batch, progress
                )
                vectors[group] = form.stored(group_vectors)
                report += group_report
        report = replace(report, seconds=time.perf_counter() - start)
        return EncodeOutput(vectors if form.convert_to_tensor else vectors.numpy(), report)

    def _default_batch_tokens(self) -> int:
        if self.device.type == "cpu":
            return cpu_batch_tokens(self.model)
        return _ACCELERATOR_BATCH_TOKENS

    def _language_ids(self, codes: Sequence[str | None], first_number: int) -> torch.Tensor:
        """Return the position of each code in the model's languages, (texts,) int64."""
        languages = list(self.model.config.languages)
        for number, code in enumerate(codes, first_number):
            if code not in languages:
                raise TmdeError(
                    f"language of text {number}: found {code!r}, expected one of {languages}; "
                    f"{type(self.model).__name__} has one encoder per language"
                )
        return torch.tensor([languages.index(code) for code in codes], dtype=torch.long)

    def _embed_group(
        self,
        reader: TextTokenizer | LongDocuments,
        documents: TokenizedTexts | SplitDocuments,
        batch: BatchLimits,
        progress: Callable[[int], object],
    ) -> tuple[torch.Tensor, EncodeReport]:
        """Return the vectors (n, d) float32 of a group, on any device, and the report on it."""
        longest = int(documents.full_lengths.max())
        prompt_length = 0
        if not self.includes_prompt:
            prompt_length = self._text_model.prompt_length(reader.prompt)
        if isinstance(documents, TokenizedTexts):
            report = EncodeReport(
                texts=len(documents),
                tokens=len(documents.token_ids),
                truncated=int((documents.full_lengths > documents.lengths).sum()),
                longest=longest,
                pieces=len(documents),
            )
            vectors = self._embed_texts(documents, batch, prompt_length, progress)
            return vectors, report

        assert isinstance(reader, LongDocuments)  # Nothing else splits documents.

        def embed_pieces(pieces: TokenizedTexts) -> torch.Tensor:
            return self._embed_texts(pieces, batch, prompt_length, _ignore_progress)

        embedded = reader.embed(documents, embed_pieces, progress)
        report = EncodeReport(
            texts=len(embedded.piece_counts),
            tokens=embedded.num_tokens,
            longest=longest,
            split=int((embedded.piece_counts > 1).sum()),
            pieces=int(embedded.piece_counts.sum()),
        )
        return embedded.vectors, report

    def _embed_texts(
        self,
        texts: TokenizedTexts,
        limits: BatchLimits,
        prompt_length: int,
        progress: Callable[[int], object],
    ) -> torch.Tensor:
        """Return the vectors (n, d) float32 of inputs of the model, on its device."""
        vectors = torch.empty((len(texts), self._whole_dimension), device=self.device)
        if self._is_ragged:
            bag = cast(BagModel, self.model)
            for batch in texts.ragged_batches(limits):
                token_ids = self._to_device(batch.token_ids)
                lengths = self._to_device(batch.lengths)
                pooled = bag.embed_ragged(token_ids, lengths).float()
                vectors[batch.texts] = self._projected({"sentence_embedding": pooled})
                progress(len(batch.lengths))
            return vectors
        is_compiled = self.model._compiled_call_impl is not None
        for numbers in texts.padded_batches(limits):
            rows = numbers
            if is_compiled and len(numbers) == 1:
                # torch.compile would compile batches of one row separately.
                rows = numbers.repeat(2)
            places = self._to_device(torch.from_numpy(numbers))
            embedded = self._embed_padded_batch(texts, rows, prompt_length)
            vectors[places] = embedded[: len(numbers)]
            progress(len(numbers))
        return vectors

    def _embed_padded_batch(
        self, texts: TokenizedTexts, rows: np.ndarray, prompt_length: int
    ) -> torch.Tensor:
        """Return the vectors of the texts with these numbers, from one padded batch.

        Args:
            texts: The tokens.
            rows: (rows,) numbers of texts.
            prompt_length: The number of first tokens that the pooling leaves out.

        Returns:
            (rows, d) float32, on the model's device.
        """
        input_ids, attention_mask = texts.padded(rows, self._text_model.pad_id)  # (rows, length)
        input_ids = self._to_device(input_ids)
        attention_mask = self._to_device(attention_mask)
        options: dict[str, Any] = {}
        if texts.language_ids is not None:
            options["language_ids"] = self._to_device(texts.language_ids[rows])
        if self._takes_first_output and is_ours(self.model):
            options["pooled_only"] = True
        outputs = self._text_model.token_outputs(input_ids, attention_mask, **options)
        if self._takes_first_output:
            outputs = outputs[:, :1]
        else:
            check_token_outputs(outputs, attention_mask, self.pooling)
        outputs = outputs.float()
        if self._takes_first_output and getattr(self.model.config, "normalize", False):
            # In half precision, the length that the model gives is 1 to two digits only.
            outputs = nn.functional.normalize(outputs, dim=-1)
        features = {
            "token_embeddings": outputs,  # (rows, length or 1, d)
            "attention_mask": attention_mask,
            "prompt_length": prompt_length,
        }
        return self._projected(self._pooling_module(features))

    def _projected(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the vectors (rows, d) that the modules after the pooling make."""
        for module in self.projections:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors

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
                "tokens), so their vectors ignore the rest. Embed them whole with "
                "long_documents='chunk' or 'sentences', or raise max_length if the model can "
                "take more"
            )


@dataclass(frozen=True)
class _VectorForm:
    """How a call computes and stores vectors; see the arguments of `encode`.

    Attributes:
        dimension: How many numbers of a vector are kept.

    Raises:
        TmdeError: The precision is unknown.
    """

    batch: BatchLimits
    normalize: bool
    convert_to_tensor: bool
    dimension: int
    precision: str

    def __post_init__(self) -> None:
        check_precision(self.precision)

    def empty_vectors(self, number: int, device: str | torch.device) -> torch.Tensor:
        """Return room for the vectors of some texts."""
        width = stored_width(self.dimension, self.precision)
        dtype = torch.from_numpy(np.empty(0, DTYPES[self.precision])).dtype
        return torch.empty((number, width), dtype=dtype, device=device)

    def stored(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return whole vectors (n, d) float32 as they are stored: cut, scaled and quantized."""
        vectors = vectors[:, : self.dimension]
        if self.normalize:
            vectors = nn.functional.normalize(vectors, dim=-1)
        if self.precision == "float32":
            return vectors
        return torch.from_numpy(quantized(vectors.cpu().numpy(), self.precision))


def _tokenized_groups(
    reader: TextTokenizer | LongDocuments,
    texts: list[str],
    codes: list[str | None],
    groups: list[slice],
) -> Iterator[TokenizedTexts | SplitDocuments]:
    """Return the tokens of each group of texts, which a second thread prepares in time."""
    documents: Iterator[TokenizedTexts | SplitDocuments]
    if isinstance(reader, LongDocuments):
        documents = (reader.split(texts[group], codes[group]) for group in groups)
    else:
        documents = (reader(texts[group]) for group in groups)
    return _prefetched(documents) if len(groups) > 1 else documents


# ---- Pooling and devices


def _with_pooling(
    text_model: TextModel, pooling: str | None, later_modules: Sequence[nn.Module]
) -> list[nn.Module]:
    """Return the modules after the encoder, a pooling first.

    Args:
        text_model: The encoder.
        pooling: The name of the pooling, or several joined by "+". Default: that of the modules, or
            else that of the model.
        later_modules: The modules that are given.

    Raises:
        TmdeError: There is no pooling of that name, or its vectors have another width than the next
            module takes.
    """
    if pooling is None and later_modules:
        return list(later_modules)
    if pooling is None:
        pooling = "cls" if is_ours(text_model.model) else "mean"
    modes = pooling.split("+")
    for mode in modes:
        if mode not in Pooling.POOLING_MODES:
            raise TmdeError(
                f"pooling: found {pooling!r}, expected one of {Pooling.POOLING_MODES}, or "
                "several joined by '+'"
            )
    pooling_module = Pooling(text_model.get_embedding_dimension(), modes)
    _check_width(pooling, pooling_module, later_modules[1:])
    return [pooling_module, *later_modules[1:]]


def _check_width(pooling: str, pooling_module: Pooling, next_modules: Sequence[nn.Module]) -> None:
    """Check that the first module with a fixed input width takes the vectors of the pooling.

    Args:
        pooling: The name of the pooling.
        pooling_module: The pooling.
        next_modules: The modules after it.

    Raises:
        TmdeError: It takes vectors of another width.
    """
    width = pooling_module.get_embedding_dimension()
    for module in next_modules:
        if isinstance(module, Dense):
            expected_width = module.in_features
        elif isinstance(module, LayerNorm):
            expected_width = module.dimension
        else:
            continue
        if width != expected_width:
            raise TmdeError(
                f"pooling: found {pooling!r}, whose vectors have {width} elements, expected "
                f"{expected_width} for the {type(module).__name__} of this model; omit "
                "pooling to use the model's own"
            )
        return


def check_token_outputs(
    hidden: torch.Tensor, attention_mask: torch.Tensor, pooling: str = "mean"
) -> None:
    """Check that a model gave an output for every token, which a pooling needs.

    Args:
        hidden: (rows, length, d).
        attention_mask: (rows, length), 1 at tokens and 0 at padding.
        pooling: The name of the pooling.

    Raises:
        TmdeError: There is another number of outputs than of tokens.
    """
    if hidden.shape[:2] != attention_mask.shape:
        raise TmdeError(
            f"pooling {pooling!r} needs one output per token: found {tuple(hidden.shape)}, "
            f"expected {(*attention_mask.shape, 'd')}; use pooling='cls'"
        )


# ---- Prompts


def _prompts_by_role(
    prompt: str, prompts: Mapping[str, str] | None
) -> tuple[dict[str, str], str | None]:
    """Return all prompts by name, with one for queries and one for documents.

    Args:
        prompt: The prompt for every text; "" for none.
        prompts: Further prompts by name.

    Returns:
        The prompts, and the name of the one for every text; None for none.
    """
    named_prompts = dict(prompts or {})
    default_name = None
    if prompt:
        names = [name for name, text in named_prompts.items() if text == prompt]
        default_name = names[0] if names else "default"
        named_prompts[default_name] = prompt
    named_prompts.setdefault("query", prompt)
    # The names that sentence-transformers looks for, in its order.
    for name in ("passage", "corpus"):
        if name in named_prompts:
            named_prompts.setdefault("document", named_prompts[name])
    named_prompts.setdefault("document", prompt)
    return named_prompts, default_name


# ---- Texts


def _codes_of_texts(language: str | Sequence[str] | None, num_texts: int) -> list[str | None]:
    """Return the language code of each text, from one code for all or one for each."""
    if language is None or isinstance(language, str):
        return [language] * num_texts
    return list(language)


def _listed(texts: Iterable[str]) -> list[str]:
    """Return texts as a list.

    Raises:
        TypeError: They are a table or a mapping.
    """
    _check_no_table(texts)
    return list(texts)


def _check_no_table(texts: object) -> None:
    """Raise TypeError for what iterates over the names of its columns instead of texts."""
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        kind = type(texts).__name__
        raise TypeError(
            f"texts: found a {kind}, expected an iterable of str; pass one column, such as "
            f"{kind.lower()}['text']"
        )


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
