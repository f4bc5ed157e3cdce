"""`ParallelModel` against models called directly, one text and one direction at a time."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training import references
from tests.training.models import bag, laser, ntdv, tiny
from tests.training.test_token_objectives import batch as padded_texts
from tmde.training.batches import ParallelBatch, ParallelBatches
from tmde.training.objectives import (
    DistanceConstraint,
    InfoNCE,
    MaskedLanguageModel,
    TranslationLanguageModel,
    TranslationObjective,
    UnifiedGenerativeTask,
)
from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput
from tmde.training.parallel_model import ParallelModel

SMOOTHING = 0.1


def encoder():
    model = tiny("encoder")
    with torch.no_grad():
        for parameter in model.head.parameters():  # so that the head makes a difference
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


DECODING = {
    "first": tiny_model,
    "pyramid": lambda: tiny_model(bottleneck="pyramid"),
    "full": lambda: tiny_model(bottleneck="full"),
    "dual": lambda: tiny_model(bottleneck="dual", bottleneck_loss_weight=0.3),
    "laser": laser,
    "ntdv": ntdv,
    "nmt": lambda: ntdv(shared_layers=False),
}


def one_batch(tokenizer, languages: tuple[str, ...], num_rows: int = 6) -> ParallelBatch:
    rows = make_dataset(make_rows(num_rows, seed=3, languages=languages))
    (batch,) = ParallelBatches(
        rows, tokenizer, languages, languages, micro_batch_tokens=100_000, languages_per_row=None
    )
    assert len(np.unique(batch.lengths)) > 2  # so there is padding
    return batch


def texts_of(batch: ParallelBatch, mask: torch.Tensor | None = None) -> list[list[torch.Tensor]]:
    """Token ids by language and row, (length,) each, without padding."""
    masks = (batch.attention_mask if mask is None else mask).bool()
    return [
        [ids[m] for ids, m in zip(*pair, strict=True)]
        for pair in zip(batch.input_ids, masks, strict=True)
    ]


def encode(model, ids: torch.Tensor, language: str, mask: torch.Tensor | None = None):
    whole = getattr(model, "model", model)
    options = {} if mask is None else {"attention_mask": mask[None]}
    if getattr(whole, "needs_language_ids", False):
        options["language_ids"] = torch.tensor([model.config.languages.index(language)])
    return whole(ids[None], **options)


def translation_reference(
    model, batch: ParallelBatch, seen: torch.Tensor, **options
) -> torch.Tensor:
    """Label-smoothed cross-entropy, one text and one direction at a time; `seen` is what the
    encoder reads.
    """
    texts = texts_of(batch)
    total = torch.zeros(())
    for source, target in itertools.permutations(range(len(batch.languages)), 2):
        if batch.languages[target] not in model.config.pivot_languages:
            continue
        for row, ids in enumerate(texts[target]):
            logits = model(
                attention_mask=seen[source, row][None],
                encoder_outputs=encode(
                    model, batch.input_ids[source, row], batch.languages[source], seen[source, row]
                ),
                decoder_input_ids=ids[None, :-1],
                target_language=batch.languages[target],
                use_cache=False,
                **options,
            ).logits[0]
            total = total + nn.functional.cross_entropy(
                logits, ids[1:], reduction="sum", label_smoothing=SMOOTHING
            )
    return total


def objectives() -> dict:
    return {
        "translation": TranslationObjective(label_smoothing=SMOOTHING),
        "distance": DistanceConstraint(hinge_weight=2.0),
    }


# ---- Losses and gradients


@pytest.mark.parametrize("languages", [("es", "de"), ("es", "de", "en")], ids="-".join)
@pytest.mark.parametrize("kind", DECODING)
def test_losses_and_gradients_equal_the_plain_reference(kind, languages, tokenizer):
    model = DECODING[kind]()
    batch = one_batch(tokenizer, languages)
    outputs = ParallelModel(model, objectives())(batch)
    expected = translation_reference(model, batch, batch.attention_mask)
    if kind == "dual":
        alone = translation_reference(model, batch, batch.attention_mask, bottleneck_only=True)
        expected = torch.lerp(expected, alone, 0.3)
    vectors = torch.stack(
        [
            torch.cat([encode(model, ids, language).pooler_output for ids in texts])
            for language, texts in zip(languages, texts_of(batch), strict=True)
        ]
    )
    distance = references.distance(vectors.double(), DistanceConstraint(hinge_weight=2.0))
    torch.testing.assert_close(outputs["translation"]["total"], expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(outputs["distance"]["total"].double(), distance, rtol=1e-4, atol=0)
    parameters = dict(model.named_parameters())
    found, wanted = (
        torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for loss in (
            outputs["translation"]["total"] + outputs["distance"]["total"],
            expected + distance,
        )
    )
    for name, gradient, reference in zip(parameters, found, wanted, strict=True):
        assert (gradient is None) == (reference is None), name
        if gradient is not None:
            torch.testing.assert_close(gradient, reference, rtol=1e-3, atol=2e-4, msg=name)


# ---- What is encoded and decoded


def calls_of(module: nn.Module) -> list[dict]:
    """The arguments of every later call by name."""
    calls: list[dict] = []

    def record(_, args, kwargs):
        calls.append(dict(zip(("input_ids", "attention_mask"), args, strict=False)) | kwargs)

    module.register_forward_pre_hook(record, with_kwargs=True)
    return calls


def test_every_language_is_encoded_once_for_all_objectives(tokenizer):
    model = tiny_model()
    batch = one_batch(tokenizer, ("de", "en", "es"))
    encoder_calls = calls_of(model.model)
    decoder_calls = calls_of(model.decoder)
    ParallelModel(model, objectives())(batch)
    assert [len(call["input_ids"]) for call in encoder_calls] == [3 * 6]
    assert [len(call["input_ids"]) for call in decoder_calls] == [
        4 * 6
    ]  # es-en, de-en, de-es, en-es
    assert torch.equal(encoder_calls[0]["input_ids"], batch.input_ids.flatten(0, 1))


def test_only_sources_are_encoded_if_no_objective_needs_more(tokenizer):
    model = ntdv(pivot_languages=["de"])
    batch = one_batch(tokenizer, ("es", "de", "en"))
    calls = calls_of(model.model)
    parallel = ParallelModel(
        model, {"translation": TranslationObjective(label_smoothing=SMOOTHING)}
    )
    total = parallel(batch)["translation"]["total"]
    assert torch.equal(
        calls[0]["input_ids"], batch.input_ids[[0, 2]].flatten(0, 1)
    )  # es and en, not de
    assert calls[0]["language_ids"].tolist() == [2] * 6 + [1] * 6
    torch.testing.assert_close(
        total, translation_reference(model, batch, batch.attention_mask), rtol=1e-5, atol=0
    )


class Spread(EmbeddingObjective):
    """Squared norm of the difference of the first two languages."""

    def count(self, sizes):
        return sizes.rows

    def forward(self, embeddings):
        loss = (embeddings[0] - embeddings[1]).pow(2).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach()})


@pytest.mark.parametrize("shared", [True, False])
def test_the_decoder_is_frozen_and_unused_if_no_objective_needs_it(shared, tokenizer):
    model = tiny_model(share_embeddings=shared)
    batch = one_batch(tokenizer, ("de", "en"))
    calls = calls_of(model.decoder)
    ParallelModel(model, {"spread": Spread()})(batch)["spread"]["total"].backward()
    assert calls == []
    for name, parameter in model.named_parameters():
        assert (
            (parameter.grad is None)
            == name.startswith(("decoder.", "lm_head."))
            != parameter.requires_grad
        ), name


def test_nothing_is_fetched_from_the_device(tokenizer, monkeypatch):
    batch = one_batch(tokenizer, ("de", "en", "es"))
    parallel = ParallelModel(
        tiny_model(), {"t": TranslationObjective(row_share=0.5), "i": InfoNCE()}
    ).train()
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: pytest.fail("a tensor was fetched"))
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: pytest.fail("a number was fetched"))
    parallel(batch)


# ---- What each kind of objective takes


@pytest.mark.parametrize("kind", [MaskedLanguageModel, TranslationLanguageModel])
def test_losses_on_hidden_tokens_equal_one_text_at_a_time(kind, tokenizer):
    model = encoder()
    batch = one_batch(tokenizer, ("de", "en", "es"))
    objective = kind()
    torch.manual_seed(3)
    found = ParallelModel(model, {"mlm": objective})(batch)["mlm"]["total"]
    torch.manual_seed(3)
    masked = objective.mask(batch.input_ids, batch.attention_mask, model.config)
    shown = masked.input_ids.flatten(0, -2)  # (texts, length)
    attended = batch.attention_mask if masked.attention_mask is None else masked.attention_mask
    expected = torch.zeros(())
    for place, target in zip(masked.places.tolist(), masked.targets, strict=True):
        text, position = divmod(place, shown.shape[1])
        there = attended.flatten(0, -2)[text].bool()
        options = (
            {}
            if masked.position_ids is None
            else {"position_ids": masked.position_ids[text, there][None]}
        )
        states = model.model(shown[text, there][None], **options).token_states[0]
        logits = model.head(states[there[:position].sum()]) @ model.lm_head.weight.T
        expected = expected + nn.functional.cross_entropy(logits, target)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("make", "given", "options", "message"),
    [
        (bag, {}, {}, "At least one objective"),
        (
            bag,
            {"t": TranslationObjective()},
            {},
            "'t' needs a decoder, which BagModel does not have: .*t=null",
        ),
        (
            laser,
            {"mlm": MaskedLanguageModel()},
            {},
            "'mlm' needs a head, which Laser.*architecture=encoder",
        ),
        (
            encoder,
            {"a": MaskedLanguageModel(), "b": UnifiedGenerativeTask()},
            {},
            "'a' and 'b' both mask",
        ),
        (
            encoder,
            {"a": TranslationLanguageModel()},
            {"token_dropout": 0.2},
            "token_dropout=0.2 would drop tokens",
        ),
        (bag, {"i": InfoNCE()}, {"token_dropout": 1.5}, r"token_dropout=1.5 must lie in \[0, 1\]"),
    ],
)
def test_objectives_that_do_not_fit_are_refused(make, given, options, message):
    with pytest.raises(ValueError, match=message):
        ParallelModel(make(), given, **options)


# ---- Token dropout and a share of the rows


@pytest.mark.parametrize(("shortest", "rate"), [(1, 0.3), (1, 0.9), (0, 0.5), (4, 1.0)])
def test_tokens_are_dropped_at_the_rate_and_one_stays(shortest, rate):
    generator = torch.Generator().manual_seed(1)
    ids, mask = padded_texts(
        torch.randint(shortest + 2, 15, (2, 500), generator=generator).tolist(), vocabulary=400
    )
    parallel = ParallelModel(bag(), {"spread": Spread()}, rate).train()
    torch.manual_seed(3)
    seen = parallel._drop_tokens(ids, mask).bool()
    own = mask.bool() & (ids > 2)
    assert torch.equal(seen & ~own, mask.bool() & ~own)  # special tokens stay, padding stays hidden
    numbers = own.sum(-1)
    kept = (seen & own).sum(-1)
    assert (kept[numbers > 0] >= 1).all()
    filled = numbers[numbers > 0]
    expected = (filled * rate - rate**filled).sum().item()
    assert (
        abs((numbers - kept).sum().item() - expected)
        <= 4 * (filled * rate * (1 - rate)).sum().sqrt().item()
    )
    parallel.token_dropout_share = 0.25
    changed = (parallel._drop_tokens(ids, mask) != mask).any(-1)
    assert changed.any(0).sum() < 0.35 * 500
    state = torch.get_rng_state()
    assert parallel.eval()._drop_tokens(ids, mask) is mask
    assert torch.equal(torch.get_rng_state(), state)


def test_several_ends_of_text_are_never_dropped():
    ids, mask = padded_texts([[9, 9]], vocabulary=400)
    ids[0, 0, 3] = 7
    model = bag(eos_token_id=[2, 7])
    parallel = ParallelModel(model, {"spread": Spread()}, token_dropout=1.0).train()
    seen = parallel._drop_tokens(ids, mask).bool()
    is_special = torch.isin(ids, torch.tensor([0, 2, 7])) & mask.bool()
    assert seen[is_special].all()
    assert (seen & ~is_special).sum() == 2  # one token of each text


@pytest.mark.parametrize("kind", ["first", "full"])
def test_the_decoder_writes_the_whole_text_of_what_is_left(kind, tokenizer):
    model = DECODING[kind]()
    batch = one_batch(tokenizer, ("de", "en", "es"))
    parallel = ParallelModel(model, objectives(), token_dropout=0.5).train()
    calls = calls_of(model.model)
    total = parallel(batch)["translation"]["total"]
    seen = calls[0]["attention_mask"].view_as(batch.attention_mask)
    assert 0.2 < (seen.sum() / batch.attention_mask.sum()).item() < 0.9
    torch.testing.assert_close(total, translation_reference(model, batch, seen), rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", ["first", "dual"])
def test_some_rows_are_translated_for_all(kind, tokenizer):
    batch = one_batch(tokenizer, ("de", "en", "es"))
    given = {
        "translation": TranslationObjective(label_smoothing=SMOOTHING, row_share=0.4),
        "spread": Spread(),
    }
    parallel = ParallelModel(DECODING[kind](), given).train()
    torch.manual_seed(5)
    rows = torch.randperm(6)[:2]
    torch.manual_seed(5)
    found = parallel(batch)
    parallel.eval()
    some = {"input_ids": batch.input_ids[:, rows], "attention_mask": batch.attention_mask[:, rows]}
    part = parallel(replace(batch, **some, lengths=batch.lengths[:, rows.numpy()]))["translation"]
    lengths = batch.attention_mask.sum(-1) - 1
    factor = lengths[1:].sum() / lengths[1:][:, rows].sum()  # two directions into each of en and es
    for name, value in part.items():
        torch.testing.assert_close(found["translation"][name], factor * value, rtol=1e-5, atol=0)
    assert torch.equal(found["spread"]["total"], parallel(batch)["spread"]["total"])  # of all rows
