"""Check that objectives fit a model, before it sees a batch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from transformers import PreTrainedModel

from modeling_tmde import TmdeError
from tmde.training.objectives.base import Objective
from tmde.training.objectives.encoded_batch import encoder_of
from tmde.training.objectives.targets import PIVOTS


def check_objectives(
    model: PreTrainedModel, objectives: Mapping[str, Objective], token_dropout: float
) -> None:
    """Check that a model has what its objectives need. Its weights are not read.

    Args:
        model: The model, which may be on the meta device.
        objectives: The losses by name.
        token_dropout: The probability that a token is hidden from the encoder.

    Raises:
        TmdeError: There is no objective, two objectives mask the input of the same encoder call or
            relate different texts, or an objective cannot be computed with this model.
    """
    if not objectives:
        raise TmdeError(
            "At least one objective is needed: add one to the `objectives` of the recipe"
        )
    for name, objective in objectives.items():
        _check_parts(name, objective, model)
        _check_languages(name, objective, model)
        if objective.requirements.head and token_dropout:
            raise TmdeError(
                f"token_dropout={token_dropout} would hide tokens that objective {name!r} "
                "predicts: set token_dropout=0"
            )
        objective.check_config(model.config)
    masking = [name for name in objectives if objectives[name].requirements.masked_input]
    if len(masking) > 1:
        raise TmdeError(
            f"Objectives {masking[0]!r} and {masking[1]!r} both mask the encoder's input: "
            "remove one"
        )
    _check_texts(objectives)


def _check_texts(objectives: Mapping[str, Objective]) -> None:
    """Check that the objectives agree on what the texts of a row are to each other."""
    texts_by_name = {}
    for name, objective in objectives.items():
        required = objective.requirements
        # Other objectives read texts one by one, whatever they are.
        if required.several_languages or required.decoder:
            texts_by_name[name] = required.texts
    for first, second in itertools.combinations(texts_by_name, 2):
        if texts_by_name[first] != texts_by_name[second]:
            raise TmdeError(
                f"Objective {first!r} learns from {_described_texts(texts_by_name[first])} and "
                f"{second!r} from {_described_texts(texts_by_name[second])}: remove one of them"
            )


def _described_texts(texts: Sequence[str] | None) -> str:
    return "translations" if texts is None else " and ".join(texts)


def check_triples(objectives: Mapping[str, Objective]) -> None:
    """Check that all objectives can be computed on triples.

    Raises:
        TmdeError: One needs translations or labels.
    """
    for name, objective in objectives.items():
        if not objective.requirements.accepts_triples:
            raise TmdeError(
                f"Objective {name!r} cannot learn from triples (the columns anchor, positive and "
                f"negative): {_removal_advice(name)}, and train with 'infonce'. The recipe triples "
                "does"
            )


def _check_parts(name: str, objective: Objective, model: PreTrainedModel) -> None:
    """Check that the model has the decoder or the head that an objective requires."""
    if objective.requirements.head:
        _check_has_part(name, model, "head", "encoder")
    if objective.requirements.decoder:
        _check_has_part(name, model, "decoder", "tmde")


def _check_has_part(name: str, model: PreTrainedModel, part: str, architecture: str) -> None:
    """Check that the model has a part; `architecture` is one that has it."""
    if not hasattr(model, part):
        raise TmdeError(
            f"Objective {name!r} needs a {part}, which {type(model).__name__} does not have: "
            f"{_removal_advice(name)}, or train a model that has one (in a recipe: "
            f"model.architecture={architecture})"
        )


def _removal_advice(name: str) -> str:
    """Return how a recipe and the argument `objectives` of the trainer leave an objective out."""
    return f"remove it from `objectives` (in a recipe: objectives.{name}=null)"


def _check_languages(name: str, objective: Objective, model: PreTrainedModel) -> None:
    """Check a model with an encoder and a decoder for each language; all others pass."""
    if not getattr(encoder_of(model), "needs_language_ids", False):
        return
    required = objective.requirements
    if required.one_encoder or required.texts is not None:
        raise TmdeError(
            f"Objective {name!r} needs one shared encoder, not {type(model).__name__}: "
            f"{_removal_advice(name)}, or train another model (in a recipe: "
            "model.architecture=tmde)"
        )
    if required.targets in ((), (PIVOTS,)):
        return
    config = model.config
    if set(config.languages) - set(config.pivot_languages):
        raise TmdeError(
            f"objectives.{name}.targets: every language is decoded, and {type(model).__name__} has "
            f"a decoder for each pivot language alone: found "
            f"pivot_languages={config.pivot_languages}, expected all of {config.languages}"
        )
