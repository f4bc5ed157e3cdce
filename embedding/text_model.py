"""An encoder and its tokenizer as the first module of a `SentenceTransformer`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules import InputModule
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import GENERATION_CONFIG_NAME

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT, encoder_body, is_ours, position_limit
from modeling_tmde.sentence_transformers_files import (
    TRANSFORMER_FILE,
    transformer_settings,
    write_json,
)
from tmde.embedding.decoding import with_decoder
from tmde.embedding.text_tokenizer import TextTokenizer, private_copy

_DEFAULT_LENGTH = 750  # The limit in tokens of a model of the Hub that names none.


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


class TextModel(InputModule):
    """Turn texts into one output per token.

    It stands in for the `Transformer` module of sentence-transformers, which loads its model
    itself; this one takes a loaded model. sentence-transformers, such as its trainer, calls
    `preprocess` and `forward`. `DocumentEmbedder.encode` calls `token_outputs`.

    Args:
        model: The model. Only the encoder of an encoder-decoder (T5, Marian, BART) is used, and
            only the body of a model with a head.
        tokenizer: Its tokenizer, fast or slow.
        max_length: The longest input in tokens, special tokens included. Default: all that model
            and tokenizer can take, and 750 for a model of the Hub if neither names a limit. A
            larger number is lowered to what they can take.
    """

    tokenizer: PreTrainedTokenizerBase

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no type for it.
        self.model = encoder_body(model)
        self.tokenizer = tokenizer
        self.max_seq_length = self.length_limit(max_length)
        self._width = self._measured_width()

    @property
    def pad_id(self) -> int:
        """An id for padding, which is masked, so that any id will do."""
        return _padding_id(self.model, self.tokenizer)

    def _measured_width(self) -> int:
        """Return the length of an output, measured by a tiny batch.

        Configurations name it in many ways.
        """
        device = self.model.device
        if device.type == "meta":  # Weights that are offloaded have no place of their own.
            device = torch.device("cpu")
        input_ids = torch.full((2, 3), _empty_text_id(self.tokenizer, self.pad_id), device=device)
        options: dict[str, Any] = {}
        if getattr(self.model, "needs_language_ids", False):
            options["language_ids"] = torch.zeros(2, dtype=torch.long, device=device)
        with evaluating(self.model), torch.inference_mode():
            outputs = self.token_outputs(input_ids, torch.ones_like(input_ids), **options)
        return outputs.shape[-1]

    def get_embedding_dimension(self) -> int:
        """Return the length of an output."""
        return self._width

    def length_limit(self, max_length: int | None = None) -> int:
        """Return a limit in tokens, lowered to what model and tokenizer can take.

        A model of this package without positions (a bag) has no limit, whatever its tokenizer says.

        Args:
            max_length: The limit that is asked for; see the class.
        """
        limit = position_limit(self.model)
        if limit < NO_LIMIT or not is_ours(self.model):
            tokenizer_limit = int(min(self.tokenizer.model_max_length or NO_LIMIT, NO_LIMIT))
            limit = min(limit, tokenizer_limit)
        if max_length is not None:
            return min(max_length, limit)
        if limit >= NO_LIMIT and not is_ours(self.model):
            return _DEFAULT_LENGTH
        return limit

    def text_tokenizer(self, prompt: str, max_length: int | None = None) -> TextTokenizer:
        """Return the tokenizer of texts that begin with a prompt.

        Args:
            prompt: The prompt; "" for none.
            max_length: The longest result in tokens. Default: `max_seq_length`.

        Raises:
            TmdeError: Special tokens and prompt leave no room for text.
        """
        limit = self.max_seq_length if max_length is None else max_length
        num_taken = self.tokenizer.num_special_tokens_to_add(pair=False)
        if prompt:
            prompt_ids = private_copy(self.tokenizer)(prompt, add_special_tokens=False)
            num_taken += len(prompt_ids["input_ids"])
        if limit <= num_taken:
            raise TmdeError(
                f"max_length: found {limit}, expected more than {num_taken}, the number of "
                "special tokens and prompt tokens"
            )
        empty_id = _empty_text_id(self.tokenizer, self.pad_id)
        return TextTokenizer(self.tokenizer, limit, empty_id, prompt)

    def prompt_length(self, prompt: str) -> int:
        """Return the number of tokens that a pooling without the prompt leaves out.

        As in sentence-transformers, these are the tokens of the prompt and the special tokens in
        front of it, but not the last one if it is special.

        Args:
            prompt: The prompt; "" for none.
        """
        if not prompt:
            return 0
        token_ids = self.text_tokenizer("", NO_LIMIT)([prompt]).token_ids
        if int(token_ids[-1]) in self.tokenizer.all_special_ids:
            return len(token_ids) - 1
        return len(token_ids)

    def preprocess(  # type: ignore[override]  # Only texts: others have no tokenizer.
        self, inputs: Sequence[str], prompt: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Return the tokens of texts as one padded batch.

        Args:
            inputs: The texts.
            prompt: Put before every text.
            options: What sentence-transformers passes to other modules, such as `task`.

        Returns:
            `input_ids` and `attention_mask`, both (texts, length), and the `prompt_length`.
        """
        prompt = prompt or ""
        texts = self.text_tokenizer(prompt)(list(inputs))
        input_ids, attention_mask = texts.padded(np.arange(len(texts)), self.pad_id)
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "prompt_length": self.prompt_length(prompt),
        }

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Add the `token_embeddings` (texts, length, d) to a batch of `preprocess`.

        Args:
            features: The batch.
            options: Arguments of the model, such as the `language` of all texts.
        """
        features["token_embeddings"] = self.token_outputs(
            features["input_ids"], features["attention_mask"], **options
        ).float()
        return features

    def token_outputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **options: Any
    ) -> torch.Tensor:
        """Return the model's output for every token, (texts, length, d).

        A model with one output per text, such as a bag, returns (texts, 1, d).

        Args:
            input_ids: (texts, length).
            attention_mask: (texts, length), 1 at tokens and 0 at padding.
            options: Further arguments of the model.
        """
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **options)
        hidden: torch.Tensor = outputs[0]
        return hidden

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Save model and tokenizer, with the longest input and the decoder of the checkpoint.

        Args:
            output_path: The folder.
            args: Not used.
            options: Not used.
        """
        # It is loaded before a file is deleted, because the folder may be that of the checkpoint.
        model = with_decoder(self.model)
        # An earlier save may have left the settings of a decoder.
        Path(output_path, GENERATION_CONFIG_NAME).unlink(missing_ok=True)
        model.save_pretrained(output_path)
        limited = copy.copy(self.tokenizer)
        limited.model_max_length = min(self.max_seq_length, self.tokenizer.model_max_length)
        limited.save_pretrained(output_path)
        write_json(Path(output_path, TRANSFORMER_FILE), transformer_settings(self.model))


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
