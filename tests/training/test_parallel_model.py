"""`ParallelModel` against a reference that encodes each text alone and decodes each direction alone."""

import itertools
import math

import pytest
import torch
from torch import nn

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.configuration_tmde import BOTTLENECKS
from modeling_tmde.training.batching import ParallelBatch, ParallelBatches
from modeling_tmde.training.objectives import (
    DistanceConstraint,
    EmbeddingObjective,
    InfoNCE,
    ObjectiveOutput,
    TranslationObjective,
)
from modeling_tmde.training.parallel_model import ParallelModel, translation_directions
from tests.conftest import make_dataset, make_rows, tiny_model

SMOOTHING, MARGIN, HINGE_WEIGHT = 0.1, 0.5, 2.0


def objectives() -> dict:
    return {
        "translation": TranslationObjective(label_smoothing=SMOOTHING),
        "distance": DistanceConstraint(margin=MARGIN, hinge_weight=HINGE_WEIGHT),
    }


def one_batch(tokenizer, languages: tuple[str, ...], pivots: tuple[str, ...], num_rows: int = 6) -> ParallelBatch:
    rows = make_dataset(make_rows(num_rows, seed=3, languages=languages))
    batches = list(
        ParallelBatches(rows, tokenizer, languages, pivots, micro_batch_tokens=100_000, languages_per_row=None)
    )
    assert len(batches) == 1
    assert len(set(batches[0].attention_mask.sum(-1).flatten().tolist())) > 2  # different lengths, so padding
    return batches[0]


def texts_of(batch: ParallelBatch) -> list[list[torch.Tensor]]:
    """Token ids by language and row, (length,) each, without padding."""
    masks = batch.attention_mask.bool()
    return [
        [ids[mask] for ids, mask in zip(*language, strict=True)]
        for language in zip(batch.input_ids, masks, strict=True)
    ]


def reference_translation(model, batch: ParallelBatch, bottleneck_only: bool = False) -> tuple[torch.Tensor, ...]:
    """Sums of label-smoothed and of plain cross-entropy, one text and one direction at a time."""
    texts = texts_of(batch)
    smoothed = plain = torch.zeros(())
    for source, target in itertools.permutations(range(len(batch.languages)), 2):
        if batch.languages[target] not in model.config.pivot_languages:
            continue
        for source_ids, target_ids in zip(texts[source], texts[target], strict=True):
            logits = model(
                input_ids=source_ids[None],
                decoder_input_ids=target_ids[None, :-1],
                target_language=batch.languages[target],
                bottleneck_only=bottleneck_only,
                use_cache=False,
            ).logits[0]
            smoothed = smoothed + nn.functional.cross_entropy(
                logits, target_ids[1:], reduction="sum", label_smoothing=SMOOTHING
            )
            plain = plain + nn.functional.cross_entropy(logits, target_ids[1:], reduction="sum")
    return smoothed, plain


def reference_distance(model, batch: ParallelBatch) -> torch.Tensor:
    """Sum of eq. 4.18-4.20 over all ordered pairs of languages and all rows, every other row a negative."""
    vectors = [[model.model(ids[None]).pooler_output[0] for ids in language] for language in texts_of(batch)]

    def distance(x, y):
        return ((x - y) ** 2).sum().sqrt()

    total = torch.zeros(())
    rows = range(len(vectors[0]))
    for a, b in itertools.permutations(range(len(vectors)), 2):
        mean = sum(distance(vectors[a][i], vectors[b][j]) for i in rows for j in rows) / len(rows) ** 2
        for i in rows:
            positive = distance(vectors[a][i], vectors[b][i]) / mean
            deltas = [
                (MARGIN - (distance(vectors[a][i], vectors[b][j]) / mean - positive)).clamp_min(0)
                for j in rows
                if j != i
            ]
            total = total + positive + HINGE_WEIGHT / len(deltas) * sum(deltas)
    return total


@pytest.mark.parametrize("languages", [("de", "en"), ("de", "en", "es")], ids="-".join)
@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_forward_and_gradients_equal_the_plain_reference(bottleneck, languages, tokenizer):
    model = tiny_model(bottleneck=bottleneck, bottleneck_loss_weight=0.3)
    batch = one_batch(tokenizer, languages, ("en", "es"))
    parallel = ParallelModel(model, objectives())
    outputs = parallel(**batch.model_inputs())
    expected, nll = reference_translation(model, batch)
    if bottleneck == "dual":
        alone, alone_nll = reference_translation(model, batch, bottleneck_only=True)
        expected = 0.3 * alone + 0.7 * expected
        torch.testing.assert_close(outputs["translation"]["bottleneck_nll"], alone_nll, rtol=1e-5, atol=0)
    distance = reference_distance(model, batch)
    torch.testing.assert_close(outputs["translation"]["total"], expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(outputs["translation"]["nll"], nll, rtol=1e-5, atol=0)
    torch.testing.assert_close(outputs["distance"]["total"], distance, rtol=1e-5, atol=0)
    # Divided by the counts of the batch, this is what is trained.
    sizes = batch.sizes
    pairs = len(list(itertools.permutations(languages, 2))) * 6
    directions = [pair for pair in itertools.permutations(languages, 2) if pair[1] in ("en", "es")]
    tokens = sum(len(ids) - 1 for _, target in directions for ids in texts_of(batch)[languages.index(target)])
    assert parallel.objectives["translation"].count(sizes) == tokens
    assert parallel.objectives["distance"].count(sizes) == pairs

    def gradients(loss):
        model.zero_grad()
        loss.backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    found = gradients(outputs["translation"]["total"] / tokens + outputs["distance"]["total"] / pairs)
    wanted = gradients(expected / tokens + distance / pairs)
    for name, gradient in wanted.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-4, atol=2e-6, msg=lambda text, name=name: name + text
        )


def test_uniform_predictions_cost_the_logarithm_of_the_vocabulary(tokenizer):
    model = tiny_model()
    nn.init.zeros_(model.lm_head.weight)
    batch = one_batch(tokenizer, ("de", "en"), ("en",))
    output = ParallelModel(model, {"translation": TranslationObjective()})(**batch.model_inputs())
    tokens = sum(len(ids) - 1 for ids in texts_of(batch)[1])  # de -> en alone, though es is a pivot of the model
    assert output["translation"]["total"].item() == pytest.approx(tokens * math.log(400), rel=1e-5)


# ---- What is encoded and decoded


def count_texts(module: nn.Module) -> list[int]:
    """Rows of every later call of an encoder or decoder."""
    calls: list[int] = []

    def record(_, args, kwargs):
        ids = args[0] if args else kwargs["input_ids"]
        calls.append(ids.shape[0])

    module.register_forward_pre_hook(record, with_kwargs=True)
    return calls


def test_every_language_is_encoded_once_for_all_objectives(tokenizer):
    model = tiny_model()
    batch = one_batch(tokenizer, ("de", "en", "es"), ("en", "es"))
    encoder_calls, decoder_calls = count_texts(model.model), count_texts(model.decoder)
    seen = []
    model.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    ParallelModel(model, objectives())(**batch.model_inputs())
    assert encoder_calls == [3 * 6]
    assert decoder_calls == [4 * 6]  # de-en, es-en, de-es, en-es
    assert torch.equal(seen[0], batch.input_ids.flatten(0, 1))


def test_without_an_objective_on_embeddings_only_sources_are_encoded(tokenizer):
    model = tiny_model()
    batch = one_batch(tokenizer, ("de", "en", "fr"), ("en",))
    model.config.pivot_languages = ["en"]
    expected = reference_translation(model, batch)[0]
    seen = []
    model.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    parallel = ParallelModel(model, {"translation": TranslationObjective(label_smoothing=SMOOTHING)})
    total = parallel(**batch.model_inputs())["translation"]["total"]
    assert len(seen) == 1
    assert torch.equal(seen[0], batch.input_ids[[0, 2]].flatten(0, 1))  # de and fr, not en
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=0)
    seen.clear()
    ParallelModel(model, objectives())(**batch.model_inputs())
    assert len(seen) == 1 and seen[0].shape[0] == 3 * 6


class Spread(EmbeddingObjective):
    """Squared norm of the difference of the first two languages."""

    def count(self, sizes):
        return sizes.rows

    def forward(self, embeddings):
        loss = (embeddings[0] - embeddings[1]).pow(2).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach()})


def test_decoder_is_frozen_and_unused_if_no_objective_needs_it(tokenizer):
    model = tiny_model()
    batch = one_batch(tokenizer, ("de", "en"), ("en", "es"))
    decoder_calls = count_texts(model.decoder)
    outputs = ParallelModel(model, {"spread": Spread()})(**batch.model_inputs())
    expected = sum(
        (model.model(a[None]).pooler_output - model.model(b[None]).pooler_output).pow(2).sum()
        for a, b in zip(*texts_of(batch), strict=True)
    )
    torch.testing.assert_close(outputs["spread"]["total"], expected, rtol=1e-5, atol=0)
    outputs["spread"]["total"].backward()
    assert decoder_calls == []
    for name, parameter in model.named_parameters():
        frozen = name.startswith(("decoder.", "lm_head."))
        assert parameter.requires_grad != frozen, name
        assert (parameter.grad is None) == frozen, name


def test_decoder_learns_if_any_objective_needs_it(tokenizer):
    model = tiny_model()
    parallel = ParallelModel(model, {"spread": Spread(), "translation": TranslationObjective()})
    outputs = parallel(**one_batch(tokenizer, ("de", "en"), ("en", "es")).model_inputs())
    sum(output["total"] for output in outputs.values()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    assert set(outputs) == {"spread", "translation"}


def test_shared_tables_still_learn_when_the_decoder_is_frozen(tokenizer):
    """Freezing the decoder must not freeze the encoder's own input table."""
    model = tiny_model(share_embeddings=True)
    parallel = ParallelModel(model, {"spread": Spread()})
    parallel(**one_batch(tokenizer, ("de", "en"), ("en", "es")).model_inputs())["spread"]["total"].backward()
    assert model.model.embed_tokens.weight.grad.abs().sum() > 0
    assert not model.decoder.embed_languages.weight.requires_grad


# ---- An encoder alone


def bag() -> BagModel:
    torch.manual_seed(0)
    return BagModel(BagConfig(vocab_size=400, d_model=16, pivot_languages=["en"]))


@pytest.mark.parametrize("languages", [("de", "fr"), ("de", "en", "it")], ids="-".join)
def test_of_an_encoder_alone_every_language_is_encoded(languages, tokenizer):
    """Pivots have no part in it: `de` and `fr` are none."""
    model = bag()
    batch = one_batch(tokenizer, languages, languages)
    parallel = ParallelModel(model, {"infonce": InfoNCE(temperature=0.3), "spread": Spread()})
    assert parallel.encoder is model and parallel.config is model.config
    assert not parallel.has_decoder and not parallel.needs_pivot
    calls = count_texts(model)
    outputs = parallel(**batch.model_inputs())
    assert calls == [len(languages) * 6]
    vectors = torch.stack([torch.cat([model(ids[None]).pooler_output for ids in texts]) for texts in texts_of(batch)])
    loss = torch.zeros(())
    for a, b in itertools.permutations(range(len(languages)), 2):
        logits = vectors[a] @ vectors[b].T / 0.3  # of vectors of length 1
        loss = loss + nn.functional.cross_entropy(logits, torch.arange(6), reduction="sum")
    spread = (vectors[0] - vectors[1]).pow(2).sum()
    torch.testing.assert_close(outputs["infonce"]["total"], loss, rtol=1e-5, atol=0)
    torch.testing.assert_close(outputs["spread"]["total"], spread, rtol=1e-5, atol=1e-6)
    wanted = torch.autograd.grad(loss + spread, list(model.parameters()))
    found = torch.autograd.grad(outputs["infonce"]["total"] + outputs["spread"]["total"], list(model.parameters()))
    assert all(gradient.abs().max() > 0.01 for gradient in wanted)
    for gradient, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


def test_an_encoder_alone_cannot_translate():
    message = "'translation' needs a decoder, and BagModel is an encoder alone: .*objectives.translation=null"
    with pytest.raises(ValueError, match=message):
        ParallelModel(bag(), {"infonce": InfoNCE(), "translation": TranslationObjective()})


def test_the_encoder_of_a_translation_model_is_a_part_of_it():
    model = tiny_model()
    parallel = ParallelModel(model, {"infonce": InfoNCE()})
    assert parallel.encoder is model.model and parallel.has_decoder and not parallel.needs_pivot
    assert ParallelModel(model, objectives()).needs_pivot


def test_directions_go_from_every_language_into_every_other_pivot():
    languages = ("de", "en", "es", "fr")
    found = {(languages[a], languages[b]) for a, b in translation_directions(languages, ["en", "es"])}
    assert found == {("de", "en"), ("es", "en"), ("fr", "en"), ("de", "es"), ("en", "es"), ("fr", "es")}
    assert translation_directions(("de", "fr"), ["en"]) == []


def test_no_objective_is_refused():
    with pytest.raises(ValueError, match="At least one objective"):
        ParallelModel(tiny_model(), {})
