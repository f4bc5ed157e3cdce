"""`ParallelModel` against models called directly, one text and one direction at a time."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training import references
from tests.training.batches import parallel_batches
from tests.training.models import bag, laser, ntdv, tiny
from tests.training.test_token_objectives import batch as padded_texts
from tmde.data.rows import NLI_TEXTS
from tmde.training.batches import ParallelBatch
from tmde.training.objectives import (
    Denoising,
    DistanceConstraint,
    InfoNCE,
    MaskedLanguageModel,
    NaturalLanguageInference,
    TranslationLanguageModel,
    TranslationObjective,
    UnifiedGenerativeTask,
    WeightRegularization,
)
from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput
from tmde.training.parallel_model import ParallelModel

SMOOTHING = 0.1


def encoder():
    model = tiny("encoder")
    with torch.no_grad():
        for parameter in model.head.parameters():  # Otherwise the head makes no difference.
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
    (batch,) = parallel_batches(
        rows, tokenizer, languages, languages, micro_batch_tokens=100_000, languages_per_row=None
    )
    assert len(np.unique(batch.lengths)) > 2  # There is padding.
    return batch


def texts_of(batch: ParallelBatch, mask: torch.Tensor | None = None) -> list[list[torch.Tensor]]:
    """Return token ids by language and row, (length,) each, without padding."""
    if mask is None:
        mask = batch.attention_mask
    is_token = mask.bool()
    texts = []
    for language in range(len(batch.input_ids)):
        rows = zip(batch.input_ids[language], is_token[language], strict=True)
        texts.append([ids[is_token_of_row] for ids, is_token_of_row in rows])
    return texts


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
    vectors = []
    for language, texts in zip(languages, texts_of(batch), strict=True):
        vectors.append(torch.cat([encode(model, ids, language).pooler_output for ids in texts]))
    vectors = torch.stack(vectors)  # (languages, rows, d_model)
    distance = references.distance(vectors.double(), DistanceConstraint(hinge_weight=2.0))
    torch.testing.assert_close(outputs["translation"]["total"], expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(outputs["distance"]["total"].double(), distance, rtol=1e-4, atol=0)
    total = outputs["translation"]["total"] + outputs["distance"]["total"]
    gradients = gradients_of(total, model)
    expected_gradients = gradients_of(expected + distance, model)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            gradient, expected_gradients[name], rtol=1e-3, atol=2e-4, msg=name
        )


def gradients_of(loss: torch.Tensor, model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients of all parameters that a loss depends on."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    by_name = dict(zip(names, gradients, strict=True))
    return {name: gradient for name, gradient in by_name.items() if gradient is not None}


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
    assert len(encoder_calls) == 1
    assert torch.equal(encoder_calls[0]["input_ids"], batch.input_ids.flatten(0, 1))
    assert len(decoder_calls) == 1
    assert len(decoder_calls[0]["input_ids"]) == 4 * 6  # es-en, de-en, de-es, en-es


def test_only_sources_are_encoded_if_no_objective_needs_more(tokenizer):
    model = ntdv(pivot_languages=["de"])
    batch = one_batch(tokenizer, ("es", "de", "en"))
    calls = calls_of(model.model)
    parallel = ParallelModel(
        model, {"translation": TranslationObjective(label_smoothing=SMOOTHING)}
    )
    total = parallel(batch)["translation"]["total"]
    # Spanish and English are encoded, but not German.
    assert torch.equal(calls[0]["input_ids"], batch.input_ids[[0, 2]].flatten(0, 1))
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
def test_the_decoder_is_unused_if_no_objective_needs_it(shared, tokenizer):
    model = tiny_model(share_embeddings=shared)
    batch = one_batch(tokenizer, ("de", "en"))
    calls = calls_of(model.decoder)
    parallel = ParallelModel(model, {"spread": Spread()})
    parallel(batch)["spread"]["total"].backward()
    assert calls == []
    for name, parameter in model.named_parameters():
        is_of_decoder = name.startswith(("decoder.", "lm_head."))
        has_gradient = parameter.grad is not None
        assert (parameter in parallel.unused_parameters) == is_of_decoder, name
        assert has_gradient != is_of_decoder, name


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
    loss = ParallelModel(model, {"mlm": objective})(batch)["mlm"]["total"]
    torch.manual_seed(3)
    masked = objective.mask(batch.input_ids, batch.attention_mask, model.config)
    shown = masked.input_ids.flatten(0, -2)  # (texts, length)
    attention_mask = masked.attention_mask
    if attention_mask is None:
        attention_mask = batch.attention_mask
    attention_mask = attention_mask.flatten(0, -2).bool()
    expected = torch.zeros(())
    for place, target in zip(masked.places.tolist(), masked.targets, strict=True):
        text, position = divmod(place, shown.shape[1])
        is_token = attention_mask[text]
        options = {}
        if masked.position_ids is not None:
            options["position_ids"] = masked.position_ids[text, is_token][None]
        states = model.model(shown[text, is_token][None], **options).token_states[0]
        state = states[is_token[:position].sum()]
        logits = model.head(state) @ model.lm_head.weight.T
        expected = expected + nn.functional.cross_entropy(logits, target)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("make", "objectives_by_name", "options", "message"),
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
            bag,
            {"nli": NaturalLanguageInference(), "infonce": InfoNCE()},
            {},
            "'nli' learns from premise and hypothesis and 'infonce' from translations",
        ),
        (
            tiny_model,
            {"denoising": Denoising(blank_share=0), "nli": NaturalLanguageInference()},
            {},
            "'denoising' learns from translations and 'nli' from premise and hypothesis",
        ),
        (
            encoder,
            {"a": TranslationLanguageModel()},
            {"token_dropout": 0.2},
            "token_dropout=0.2 would hide tokens",
        ),
        (bag, {"i": InfoNCE()}, {"token_dropout": 1.5}, r"token_dropout=1.5 must lie in \[0, 1\]"),
    ],
)
def test_objectives_that_do_not_fit_are_refused(make, objectives_by_name, options, message):
    with pytest.raises(ValueError, match=message):
        ParallelModel(make(), objectives_by_name, **options)


def test_a_loss_that_reads_texts_one_by_one_stands_beside_any_other():
    beside = {"nli": NaturalLanguageInference(), "mlm": MaskedLanguageModel()}
    assert ParallelModel(encoder(), beside).texts == NLI_TEXTS
    beside = {"penalty": WeightRegularization(), "nli": NaturalLanguageInference()}
    assert ParallelModel(bag(), beside).texts == NLI_TEXTS


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
    is_content = mask.bool() & (ids > 2)
    # Special tokens stay, and padding stays hidden.
    assert torch.equal(seen & ~is_content, mask.bool() & ~is_content)
    lengths = is_content.sum(-1)
    remaining = (seen & is_content).sum(-1)
    has_content = lengths > 0
    assert (remaining[has_content] >= 1).all()
    lengths_with_content = lengths[has_content]
    expected = (lengths_with_content * rate - rate**lengths_with_content).sum().item()
    variance = (lengths_with_content * rate * (1 - rate)).sum().item()
    num_dropped = (lengths - remaining).sum().item()
    assert num_dropped == pytest.approx(expected, abs=4 * variance**0.5)


def test_a_share_of_the_rows_has_its_tokens_dropped():
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 15, (2, 500), generator=generator).tolist()
    ids, mask = padded_texts(lengths, vocabulary=400)
    parallel = ParallelModel(bag(), {"spread": Spread()}, token_dropout=0.3).train()
    torch.manual_seed(3)
    parallel.token_dropout_share = 0.25
    is_changed = (parallel._drop_tokens(ids, mask) != mask).any(-1)
    assert is_changed.any(0).sum() < 0.35 * 500


def test_an_evaluation_drops_no_tokens_and_draws_nothing():
    ids, mask = padded_texts([[9, 9]], vocabulary=400)
    parallel = ParallelModel(bag(), {"spread": Spread()}, token_dropout=0.3)
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
    losses = {
        "translation": TranslationObjective(label_smoothing=SMOOTHING, row_share=0.4),
        "spread": Spread(),
    }
    parallel = ParallelModel(DECODING[kind](), losses).train()
    torch.manual_seed(5)
    rows = torch.randperm(6)[:2]
    torch.manual_seed(5)
    sums = parallel(batch)
    parallel.eval()
    some = {"input_ids": batch.input_ids[:, rows], "attention_mask": batch.attention_mask[:, rows]}
    part = parallel(replace(batch, **some, lengths=batch.lengths[:, rows.numpy()]))["translation"]
    lengths = batch.attention_mask.sum(-1) - 1
    # Two directions lead into each of English and Spanish.
    factor = lengths[1:].sum() / lengths[1:][:, rows].sum()
    for name, value in part.items():
        torch.testing.assert_close(sums["translation"][name], factor * value, rtol=1e-5, atol=0)
    # The other objective reads all rows.
    assert torch.equal(sums["spread"]["total"], parallel(batch)["spread"]["total"])
