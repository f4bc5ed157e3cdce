"""`ParallelModel` against a reference that encodes each text alone and decodes each direction alone."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.configuration_tmde import BOTTLENECKS
from modeling_tmde.training.batching import ParallelBatch, ParallelBatches
from modeling_tmde.training.objectives import DistanceConstraint, InfoNCE, TranslationObjective
from modeling_tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput
from modeling_tmde.training.parallel_model import ParallelModel, token_positions, translation_directions
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


# ---- Tokens that the encoder does not see


def random_texts(rows: int, shortest: int, longest: int, languages: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """`<s> tokens </s>`, right-padded: input_ids and attention_mask, (languages, rows, longest + 2)."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(shortest, longest + 1, (languages, rows), generator=generator)
    lengths[:, 0] = longest
    ids = torch.randint(5, 400, (languages, rows, longest + 2), generator=generator)
    places = torch.arange(longest + 2)
    ids[..., 0] = 0
    ids = torch.where(places == lengths[..., None] + 1, 2, ids)
    mask = places < lengths[..., None] + 2
    return ids.masked_fill(~mask, 1), mask.long()


def seen_masks(parallel: ParallelModel) -> list[torch.Tensor]:
    """The attention masks of every later call of the encoder."""
    masks: list[torch.Tensor] = []
    parallel.encoder.register_forward_pre_hook(lambda _, args: masks.extend(args[1:2]))
    return masks


def dropping(share: float, row_share: float, **objectives) -> ParallelModel:
    model = ParallelModel(bag(), objectives or {"spread": Spread()}, share, row_share)
    return model.train()


@pytest.mark.parametrize(("shortest", "rate"), [(1, 0.3), (1, 0.9), (0, 0.5), (4, 1.0)])
def test_so_many_tokens_are_hidden_and_one_stays(shortest, rate):
    ids, mask = random_texts(500, shortest, 12)
    parallel = dropping(rate, 1.0)
    masks = seen_masks(parallel)
    torch.manual_seed(3)
    parallel(ids, mask, ("de", "en"))
    seen, own = masks[0].view_as(mask), mask.bool() & (ids > 2)  # tokens that are no `<s>`, `</s>` or padding
    assert torch.equal(seen[~own], mask[~own])  # special tokens stay, padding does not come back
    numbers, kept = own.sum(-1), (seen.bool() & own).sum(-1)
    assert (kept >= numbers.clamp(max=1)).all()
    # Of n tokens n * rate are hidden, and one less if that were all of them, with the chance rate^n.
    filled = numbers[numbers > 0]
    expected = (filled * rate - rate**filled).sum().item()
    deviation = (filled * rate * (1 - rate)).sum().sqrt().item()
    assert abs((numbers - kept).sum().item() - expected) <= 4 * deviation
    if rate == 1:
        assert (kept == 1).all()


def test_a_share_of_the_rows_is_touched_in_all_languages():
    ids, mask = random_texts(600, 20, 24, languages=3)
    parallel = dropping(0.5, 0.25)
    masks = seen_masks(parallel)
    touched = []
    for seed in range(2):
        torch.manual_seed(seed)
        parallel(ids, mask, ("de", "en", "fr"))
        changed = (masks[seed].view_as(mask) != mask).any(-1)  # (languages, rows)
        assert torch.equal(changed, changed[:1].expand(3, -1))
        assert 150 - 4 * 11 < changed[0].sum() < 150 + 4 * 11  # standard deviation 10.6
        touched.append(changed[0])
    assert not torch.equal(*touched)  # drawn anew


@pytest.mark.parametrize(("rate", "share", "training"), [(0.5, 1.0, False), (0.0, 1.0, True), (0.5, 0.0, True)])
def test_nothing_is_hidden_in_evaluation_or_unasked(rate, share, training):
    ids, mask = random_texts(20, 2, 6)
    parallel = dropping(rate, share).train(training)
    masks = seen_masks(parallel)
    state = torch.get_rng_state()
    loss = parallel(ids, mask, ("de", "en"))["spread"]["total"]
    assert torch.equal(masks[0].view_as(mask), mask)
    assert torch.equal(torch.get_rng_state(), state)  # and no random number is drawn
    assert torch.equal(loss, ParallelModel(bag(), {"spread": Spread()})(ids, mask, ("de", "en"))["spread"]["total"])


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_the_decoder_writes_the_whole_text_of_what_is_left(bottleneck, tokenizer):
    model = tiny_model(bottleneck=bottleneck, bottleneck_loss_weight=0.3)
    batch = one_batch(tokenizer, ("de", "en", "es"), ("en", "es"))
    parallel = ParallelModel(model, objectives() | {"spread": Spread()}, token_dropout=0.5).train()
    masks = seen_masks(parallel)
    outputs = parallel(**batch.model_inputs())
    seen = masks[0].view_as(batch.attention_mask)
    assert 0.2 < (seen.sum() / batch.attention_mask.sum()).item() < 0.9
    expected = alone = torch.zeros(())
    for source, target in itertools.permutations(range(3), 2):
        if batch.languages[target] == "de":
            continue
        for row in range(6):
            real = batch.attention_mask[target, row].bool()
            target_ids = batch.input_ids[target, row][real]
            losses = [
                nn.functional.cross_entropy(
                    model(
                        input_ids=batch.input_ids[source, row : row + 1],
                        attention_mask=seen[source, row : row + 1],
                        decoder_input_ids=target_ids[None, :-1],
                        target_language=batch.languages[target],
                        bottleneck_only=bottleneck_only,
                        use_cache=False,
                    ).logits[0],
                    target_ids[1:],
                    reduction="sum",
                    label_smoothing=SMOOTHING,
                )
                for bottleneck_only in (False, bottleneck == "dual")
            ]
            expected, alone = expected + losses[0], alone + losses[1]
    if bottleneck == "dual":
        expected = 0.3 * alone + 0.7 * expected
    torch.testing.assert_close(outputs["translation"]["total"], expected, rtol=1e-5, atol=0)
    vectors = [model.model(batch.input_ids[place], seen[place]).pooler_output for place in (0, 1)]
    torch.testing.assert_close(outputs["spread"]["total"], (vectors[0] - vectors[1]).pow(2).sum(), rtol=1e-4, atol=0)


def test_a_bag_is_of_the_tokens_that_are_left():
    ids, mask = random_texts(8, 5, 9)
    parallel = dropping(0.5, 1.0, infonce=InfoNCE(temperature=0.3))
    masks = seen_masks(parallel)
    found = parallel(ids, mask, ("de", "fr"))["infonce"]["total"]
    seen = masks[0].view_as(mask).bool()
    assert not torch.equal(seen.long(), mask)
    texts = [[ids[place, row][seen[place, row]] for row in range(8)] for place in (0, 1)]
    vectors = [torch.cat([parallel.model(text[None]).pooler_output for text in language]) for language in texts]
    logits = vectors[0] @ vectors[1].T / 0.3
    expected = sum(
        nn.functional.cross_entropy(table, torch.arange(8), reduction="sum") for table in (logits, logits.T)
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("options", [{"token_dropout": 1.5}, {"token_dropout": -0.1}, {"token_dropout_share": 2.0}])
def test_shares_outside_0_and_1_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value} must lie between 0 and 1"):
        ParallelModel(bag(), {"spread": Spread()}, **options)


# ---- A part of the rows is translated


def translating(row_share: float, bottleneck: str = "first") -> ParallelModel:
    translation = TranslationObjective(label_smoothing=SMOOTHING, row_share=row_share)
    model = tiny_model(bottleneck=bottleneck, bottleneck_loss_weight=0.3)
    return ParallelModel(model, {"translation": translation, "spread": Spread()}).train()


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
@pytest.mark.parametrize(("row_share", "number"), [(0.5, 3), (0.4, 2), (0.01, 1)])
def test_some_rows_stand_for_all(bottleneck, row_share, number, tokenizer):
    batch = one_batch(tokenizer, ("de", "en", "es"), ("en", "es"))
    parallel = translating(row_share, bottleneck)
    decoder_calls, encoder_calls = count_texts(parallel.model.decoder), count_texts(parallel.model.model)
    torch.manual_seed(5)
    rows = torch.randperm(6)[:number]
    torch.manual_seed(5)
    outputs = parallel(**batch.model_inputs())
    assert encoder_calls == [3 * 6]
    assert decoder_calls == [4 * number] * (2 if bottleneck == "dual" else 1)
    whole = translating(1.0, bottleneck)
    part = whole(batch.input_ids[:, rows], batch.attention_mask[:, rows], batch.languages)["translation"]
    lengths = batch.attention_mask.sum(-1) - 1  # (languages, rows): what is predicted
    # two directions into each of en and es; the rows' loss per token, times all tokens
    factor = lengths[1:].sum() / lengths[1:][:, rows].sum()
    for name, value in part.items():
        torch.testing.assert_close(outputs["translation"][name], factor * value, rtol=1e-5, atol=0)
    full = whole(**batch.model_inputs())
    assert torch.equal(outputs["spread"]["total"], full["spread"]["total"])  # of all rows
    # In evaluation all rows are translated.
    assert torch.equal(parallel.eval()(**batch.model_inputs())["translation"]["total"], full["translation"]["total"])


def test_on_average_the_part_costs_what_all_rows_do(monkeypatch):
    """Over all draws of two of six rows, of equal length: the mean of losses and of gradients is that of all rows."""
    ids, mask = random_texts(6, 5, 5, languages=3)
    inputs = (ids, mask, ("de", "en", "es"))
    parallel = translating(1 / 3)

    def loss_and_gradients(model: ParallelModel) -> tuple[float, dict[str, torch.Tensor]]:
        model.zero_grad()
        loss = model(*inputs)["translation"]["total"]
        loss.backward()
        return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected, wanted = loss_and_gradients(translating(1.0))
    losses, gradients = [], []
    for draw in itertools.combinations(range(6), 2):
        rest = [row for row in range(6) if row not in draw]
        monkeypatch.setattr(torch, "randperm", lambda number, order=(*draw, *rest): torch.tensor(order))
        loss, gradient = loss_and_gradients(parallel)
        losses.append(loss)
        gradients.append(gradient)
    assert max(losses) - min(losses) > 0.01 * expected  # the draws differ
    assert sum(losses) / 15 == pytest.approx(expected, rel=1e-5)
    for name, gradient in wanted.items():
        mean = sum(each[name] for each in gradients) / 15
        torch.testing.assert_close(mean, gradient, rtol=1e-4, atol=2e-4, msg=lambda text, name=name: name + text)
    assert wanted["model.model.embed_tokens.weight"].abs().max() > 0.1  # the encoder learns of it


# ---- What the encoder leaves out


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_the_last_layer_is_computed_where_it_is_needed_and_changes_nothing(bottleneck, tokenizer, monkeypatch):
    batch = one_batch(tokenizer, ("de", "en", "es"), ("en", "es"))
    results, asked = [], []
    for everything in (False, True):
        parallel = ParallelModel(tiny_model(bottleneck=bottleneck), objectives())
        original = parallel.encoder.forward

        def forward(*args, pooled_only, everything=everything, original=original, **options):
            asked.append(pooled_only)
            return original(*args, pooled_only=pooled_only and not everything, **options)

        monkeypatch.setattr(parallel.encoder, "forward", forward)
        outputs = parallel(**batch.model_inputs())
        sum(output["total"] for output in outputs.values()).backward()
        results.append((outputs, {name: parameter.grad for name, parameter in parallel.model.named_parameters()}))
    assert asked == [bottleneck in ("first", "pyramid")] * 2
    for name in ("translation", "distance"):
        torch.testing.assert_close(results[0][0][name]["total"], results[1][0][name]["total"], rtol=1e-6, atol=0)
    for name, gradient in results[1][1].items():
        torch.testing.assert_close(results[0][1][name], gradient, rtol=1e-4, atol=1e-4, msg=name)


def test_token_positions_by_hand():
    places = token_positions(np.array([3, 1, 0, 2]), 4, torch.device("cpu"))
    assert places.tolist() == [0, 1, 2, 4, 12, 13]
    assert token_positions(np.array([], dtype=np.int64), 4, torch.device("cpu")).tolist() == []


def test_the_lengths_of_a_batch_are_not_asked_of_the_device(tokenizer, monkeypatch):
    batch = one_batch(tokenizer, ("de", "en", "es"), ("en", "es"))
    parallel = translating(0.5)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: pytest.fail("a tensor was fetched"))
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: pytest.fail("a number was fetched"))
    parallel(**batch.model_inputs())
