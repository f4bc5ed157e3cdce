"""Online back-translation: the decoder writes a text from the model's own translation of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError
from modeling_tmde.inspection import position_limit
from tmde.training.objectives.encoded_batch import EncodedBatch, encode_texts, sees_states
from tmde.training.objectives.reconstruction import Reconstruction

# The most tokens of a translation, as in the code of XLM.
LENGTH_RATIO = 1.3
EXTRA_TOKENS = 5


class BackTranslation(Reconstruction):
    """The cross-entropy of a text given its translation by the model in training.

    The model translates each text x of language a greedily into another language b, without
    dropout. It then reads the translation u(x), and the loss is `-log p(x | u(x), a)`. No gradient
    flows through the translation. With more than two languages, b is drawn for each language in a
    batch.

    Args:
        weight: The factor of this loss in the total.
        label_smoothing: The share of the target distributed evenly over the vocabulary.

    Source: Lample et al. 2018b (arXiv 1804.07755, section 3); Conneau 2019, section 4.3.5.

    Inputs: as for [`TranslationObjective`].

    Raises:
        TmdeError: The model has only one language.

    Example:
        ```python
        from transformers import AutoConfig

        from tmde import BackTranslation

        objective = BackTranslation(label_smoothing=0.1)
        objective.check_config(AutoConfig.from_pretrained("runs/tmde"))
        ```
    """

    def check_config(self, config: PreTrainedConfig) -> None:
        """Check that there is another language to translate into.

        Raises:
            TmdeError: The model has only one language.
        """
        if len(config.languages) < 2:
            raise TmdeError(
                f"objectives.back_translation: found languages={list(config.languages)}, "
                "expected at least two: list them in data.languages, or remove the objective "
                "(objectives.back_translation=null)"
            )

    @torch.no_grad()
    def source_texts(self, encoded: EncodedBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the current model's translations of the batch's texts."""
        model: Any = encoded.model  # transformers does not type `eval`, nor `generate` of a base.
        config = model.config
        batch = encoded.batch
        language_ids = other_languages(config.languages, batch.languages)
        longest = int(LENGTH_RATIO * batch.input_ids.shape[-1]) + EXTRA_TOKENS
        was_training = model.training
        model.eval()  # Without dropout.
        encoder_output = encode_texts(
            model, batch.input_ids, batch.attention_mask, sees_states(model)
        )
        translations = model.generate(
            encoder_outputs=encoder_output,
            attention_mask=batch.attention_mask.flatten(0, 1),
            target_language=language_ids.repeat_interleave(encoded.num_rows),
            max_new_tokens=min(longest, position_limit(model) - 2),  # `<s>` and `</s>` are added.
            suppress_tokens=[config.bos_token_id, config.pad_token_id],
            do_sample=False,
            num_beams=1,
        )  # (languages * rows, any length), beginning with `<s>`
        model.train(was_training)
        input_ids, attention_mask = end_texts(
            translations, config.eos_token_id, config.pad_token_id
        )
        by_language = (len(batch.languages), encoded.num_rows, -1)
        return input_ids.view(by_language), attention_mask.view(by_language)


def other_languages(languages: Sequence[str], read: Sequence[str]) -> torch.Tensor:
    """Return the id of another language for each of those read, drawn at random, (read,).

    Args:
        languages: The languages of the model, two or more.
        read: The languages of a batch.
    """
    read_ids = torch.tensor([languages.index(language) for language in read])
    steps = torch.randint(1, len(languages), read_ids.shape)
    return (read_ids + steps) % len(languages)


def end_texts(
    input_ids: torch.Tensor, eos_token_id: int, pad_token_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts that end with `</s>`, and their mask, both (texts, length + 1).

    Args:
        input_ids: Generated texts (texts, length): `</s>` and anything behind it, or no `</s>` if
            the text was not at its end.
        eos_token_id: The id of `</s>`.
        pad_token_id: The id that fills the end of a text.
    """
    ended = nn.functional.pad(input_ids, (0, 1), value=eos_token_id)
    ends = (ended == eos_token_id).int().argmax(dim=1, keepdim=True)  # (texts, 1)
    places = torch.arange(ended.shape[1], device=ended.device)
    mask = places <= ends  # (texts, length + 1)
    return ended.masked_fill(~mask, pad_token_id), mask.long()
