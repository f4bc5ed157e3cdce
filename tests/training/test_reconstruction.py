"""Denoising and back-translation: the noise, what is read, the losses and their gradients."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modeling_tmde import TmdeForConditionalGeneration
from tests.conftest import jittered, make_dataset, make_rows, tiny_model
from tests.training.batches import parallel_batches
from tests.training.models import encoder, laser, ntdv
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.batches import ParallelBatch
from tmde.training.distributed import prepare_fsdp
from tmde.training.objectives import (
    BackTranslation,
    Denoising,
    TranslationObjective,
    WeightRegularization,
)
from tmde.training.objectives.back_translation import end_texts, other_languages
from tmde.training.objectives.noise import blank_tokens, drop_tokens, shuffle_locally
from tmde.training.objectives.reconstruction import Reconstruction
from tmde.training.parallel_model import ParallelModel

BOS, PAD, EOS, MASK = 0, 1, 2, 4
FIRST_WORD = 10
NUM_TEXTS = 4000


def texts_of_length(length: int, num_texts: int = 1, padding: int = 2):
    """Return equal texts of different tokens 10, 11, ..., their mask, and which are content."""
    words = list(range(FIRST_WORD, FIRST_WORD + length))
    ids = torch.tensor([[BOS, *words, EOS, *[PAD] * padding]]).repeat(num_texts, 1)
    mask = (ids != PAD).long()
    return ids, mask, ids >= FIRST_WORD


def one_batch(tokenizer, languages: tuple[str, ...] = ("de", "en"), num_rows: int = 5):
    rows = make_dataset(make_rows(num_rows, seed=3, languages=languages))
    (batch,) = parallel_batches(
        rows,
        tokenizer,
        languages,
        languages,
        micro_batch_tokens=100_000,
        languages_per_row=None,
        fewest_languages=1,
    )
    assert len(set(batch.lengths.flatten().tolist())) > 2  # There is padding.
    return batch


def translator(bottleneck: str = "full", **changes) -> TmdeForConditionalGeneration:
    """Return a model whose translations depend on text and language, and end soon."""
    model = jittered(tiny_model(bottleneck=bottleneck, mask_token_id=MASK, **changes), size=0.3)
    with torch.no_grad():
        model.lm_head.weight[EOS] += 0.2
    return model


def nll_of(model, source: list[int], target: list[int], language: str) -> torch.Tensor:
    """Return -log p(target | source), of one text alone, by the model's own `forward`."""
    output = model(
        torch.tensor([source]),
        attention_mask=torch.ones(1, len(source), dtype=torch.long),
        labels=torch.tensor([target[1:]]),
        target_language=torch.tensor([model.config.languages.index(language)]),
    )
    labels = torch.tensor(target[1:])
    return nn.functional.cross_entropy(output.logits[0], labels, reduction="sum")


def real_tokens(ids: torch.Tensor, mask: torch.Tensor) -> list[int]:
    return ids[mask.bool()].tolist()


# ---- Local shuffling


def test_shuffled_places_are_those_of_the_sorted_sums():
    ids, _, is_content = texts_of_length(6, num_texts=3)
    torch.manual_seed(5)
    shuffled = shuffle_locally(ids, is_content, distance=2)
    torch.manual_seed(5)
    moves = 3 * torch.rand(ids.shape)
    for row in range(3):
        places = sorted(range(1, 7), key=lambda place: place + moves[row, place].item())
        expected = [BOS, *[FIRST_WORD + place - 1 for place in places], EOS, PAD, PAD]
        assert shuffled[row].tolist() == expected
    assert not torch.equal(shuffled, ids)


@given(length=st.integers(0, 12), distance=st.integers(0, 5), seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_no_token_moves_further_than_the_distance(length, distance, seed):
    ids, _, is_content = texts_of_length(length, num_texts=20)
    torch.manual_seed(seed)
    shuffled = shuffle_locally(ids, is_content, distance)
    assert torch.equal(shuffled[:, 0], ids[:, 0])
    assert torch.equal(shuffled[:, length + 1 :], ids[:, length + 1 :])
    words = shuffled[:, 1 : length + 1]
    moved_from = words - FIRST_WORD
    places = torch.arange(length)
    assert torch.equal(moved_from.sort(dim=1).values, places.expand(20, -1))
    assert ((moved_from - places).abs() <= distance).all()


# ---- Dropping and blanking


def test_dropped_tokens_leave_no_gap():
    ids, mask, is_content = texts_of_length(4)
    torch.manual_seed(1)
    chances = torch.rand(ids.shape)[0].tolist()
    # The second smallest chance of the four words falls, and the smallest one.
    share = sorted(chances[1:5])[1] + 1e-6
    torch.manual_seed(1)
    dropped, dropped_mask = drop_tokens(ids, mask, is_content, share, PAD)
    words = [FIRST_WORD + place for place in range(4) if chances[1 + place] >= share]
    assert len(words) == 2
    assert dropped.tolist() == [[BOS, *words, EOS, PAD, PAD, PAD, PAD]]
    assert dropped_mask.tolist() == [[1, 1, 1, 1, 0, 0, 0, 0]]


def test_tokens_are_dropped_at_the_rate_in_their_order():
    ids, mask, is_content = texts_of_length(10, num_texts=NUM_TEXTS)
    torch.manual_seed(0)
    dropped, dropped_mask = drop_tokens(ids, mask, is_content, 0.3, PAD)
    for row in range(50):
        tokens = real_tokens(dropped[row], dropped_mask[row])
        assert tokens[0] == BOS and tokens[-1] == EOS
        words = tokens[1:-1]
        assert words == sorted(set(words))
        assert (dropped[row][~dropped_mask[row].bool()] == PAD).all()
    rate = 1 - (dropped >= FIRST_WORD).float().sum().item() / (10 * NUM_TEXTS)
    assert abs(rate - 0.3) < 4 * math.sqrt(0.3 * 0.7 / (10 * NUM_TEXTS))


def test_one_token_of_the_content_always_stays():
    ids, mask, is_content = texts_of_length(3, num_texts=500)
    dropped, _ = drop_tokens(ids, mask, is_content, 0.999, PAD)
    numbers = (dropped >= FIRST_WORD).sum(dim=1)
    assert numbers.min() == 1
    assert (numbers == 1).float().mean() > 0.9


def test_a_text_without_content_stays_empty():
    ids, mask, is_content = texts_of_length(0)
    dropped, dropped_mask = drop_tokens(ids, mask, is_content, 0.5, PAD)
    assert torch.equal(dropped, ids) and torch.equal(dropped_mask, mask)


def test_blanks_stand_in_place_of_tokens_at_the_rate():
    ids, _, is_content = texts_of_length(10, num_texts=NUM_TEXTS)
    torch.manual_seed(0)
    blanked = blank_tokens(ids, is_content, 0.2, MASK)
    is_blank = blanked != ids
    assert (blanked[is_blank] == MASK).all()
    assert not is_blank[~is_content].any()
    rate = is_blank.sum().item() / (10 * NUM_TEXTS)
    assert abs(rate - 0.2) < 4 * math.sqrt(0.2 * 0.8 / (10 * NUM_TEXTS))


def test_blanking_needs_a_mask_token(tokenizer):
    parallel = ParallelModel(tiny_model(), {"denoising": Denoising()})
    batch = one_batch(tokenizer)
    with pytest.raises(ValueError, match="mask_token_id=None, expected the id"):
        parallel(batch)
    assert ParallelModel(tiny_model(), {"denoising": Denoising(blank_share=0)})(batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_share": 1.0}, r"denoising drop_share=1.0 must lie in \[0, 1\)"),
        ({"blank_share": -0.1}, r"denoising blank_share=-0.1 must lie in \[0, 1\)"),
        ({"shuffle_distance": -1}, r"denoising shuffle_distance=-1 must lie in \[0, inf\)"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0 must lie in"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Denoising(**options)


# ---- The loss of denoising


def test_without_noise_it_is_an_autoencoder(tokenizer):
    model = translator()
    batch = one_batch(tokenizer)
    silent = Denoising(shuffle_distance=0, drop_share=0, blank_share=0)
    autoencoder = TranslationObjective(1.0, label_smoothing=0, targets="self")
    loss = ParallelModel(model, {"d": silent})(batch)["d"]["total"]
    expected = ParallelModel(model, {"t": autoencoder})(batch)["t"]["total"]
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("bottleneck", ["first", "full"])
def test_denoising_is_the_loss_of_one_text_after_the_other(bottleneck, tokenizer):
    model = translator(bottleneck)
    batch = one_batch(tokenizer)
    objective = Denoising(drop_share=0.3, blank_share=0.3)
    torch.manual_seed(2)
    loss = ParallelModel(model, {"d": objective})(batch)["d"]["total"]
    torch.manual_seed(2)
    noisy_ids, noisy_mask = objective.add_noise(batch.input_ids, batch.attention_mask, model.config)
    assert (noisy_ids == MASK).any()
    assert noisy_mask.sum() < batch.attention_mask.sum()
    expected = torch.zeros(())
    number = 0
    for language, code in enumerate(batch.languages):
        for row in range(5):
            place = (language, row)
            source = real_tokens(noisy_ids[place], noisy_mask[place])
            target = real_tokens(batch.input_ids[place], batch.attention_mask[place])
            expected = expected + nll_of(model, source, target, code)
            number += len(target) - 1
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    assert objective.count(batch.sizes) == number


# ---- Back-translation


def test_texts_end_with_their_first_end():
    written = torch.tensor([[BOS, 7, EOS, 9, PAD], [BOS, 7, 8, 9, 9], [BOS, EOS, EOS, 3, 3]])
    ids, mask = end_texts(written, EOS, PAD)
    assert ids.tolist() == [
        [BOS, 7, EOS, PAD, PAD, PAD],
        [BOS, 7, 8, 9, 9, EOS],
        [BOS, EOS, PAD, PAD, PAD, PAD],
    ]
    assert mask.sum(dim=1).tolist() == [3, 6, 2]
    assert torch.equal(mask.bool(), ids != PAD)


def test_every_other_language_is_drawn_and_never_the_own():
    torch.manual_seed(0)
    drawn = torch.stack([other_languages(["de", "en", "es"], ["es", "de"]) for _ in range(300)])
    assert set(drawn[:, 0].tolist()) == {0, 1}
    assert set(drawn[:, 1].tolist()) == {1, 2}
    assert other_languages(["de", "en"], ["en", "de"]).tolist() == [0, 1]


def translations_of(model, batch: ParallelBatch) -> dict[tuple[int, int], list[int]]:
    """Return the greedy translation of each text alone into the other of two languages."""
    translations = {}
    width = batch.input_ids.shape[-1]
    for language in range(2):
        for row in range(batch.input_ids.shape[1]):
            text = real_tokens(batch.input_ids[language, row], batch.attention_mask[language, row])
            written = [BOS]
            encoded = model.get_encoder()(torch.tensor([text]))
            while written[-1] != EOS and len(written) <= int(1.3 * width) + 5:
                logits = model(
                    encoder_outputs=encoded,
                    attention_mask=torch.ones(1, len(text), dtype=torch.long),
                    decoder_input_ids=torch.tensor([written]),
                    target_language=batch.languages[1 - language],
                ).logits[0, -1]
                logits[[BOS, PAD]] = -math.inf
                written.append(int(logits.argmax()))
            if written[-1] != EOS:
                written.append(EOS)
            translations[language, row] = written
    return translations


@pytest.mark.parametrize("bottleneck", ["first", "full", "dual"])
def test_the_encoder_reads_greedy_translations_without_dropout(bottleneck, tokenizer):
    languages = {"languages": ("de", "en"), "pivot_languages": ("de", "en")}
    model = translator(bottleneck, dropout=0.3, **languages)
    batch = one_batch(tokenizer)
    expected = translations_of(model, batch)
    # They differ, so that a row or language in the wrong place is noticed.
    assert len({tuple(ids) for ids in expected.values()}) > 5
    parallel = ParallelModel(model, {"b": BackTranslation()}).train()

    encoded = parallel._encode(batch)
    ids, mask = parallel.objectives["b"].source_texts(encoded)

    assert model.training and model.decoder.training
    for (language, row), tokens in expected.items():
        assert real_tokens(ids[language, row], mask[language, row]) == tokens


def test_back_translation_is_the_loss_of_one_text_after_the_other(tokenizer):
    model = translator(languages=("de", "en"), pivot_languages=("de", "en"))
    batch = one_batch(tokenizer)
    objective = BackTranslation()
    loss = ParallelModel(model, {"b": objective})(batch)["b"]["total"]
    expected = torch.zeros(())
    number = 0
    for (language, row), source in translations_of(model, batch).items():
        target = real_tokens(batch.input_ids[language, row], batch.attention_mask[language, row])
        expected = expected + nll_of(model, source, target, batch.languages[language])
        number += len(target) - 1
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    assert objective.count(batch.sizes) == number


class Rereading(Reconstruction):
    """Reads fixed texts."""

    def __init__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor):
        super().__init__()
        self.texts = (input_ids, attention_mask)

    def source_texts(self, encoded):
        return self.texts


def test_no_gradient_flows_into_the_translation(tokenizer, monkeypatch):
    model = translator(languages=("de", "en"), pivot_languages=("de", "en"))
    batch = one_batch(tokenizer)
    has_gradient = []
    encode = model.model.forward

    def watched(*args, **kwargs):
        output = encode(*args, **kwargs)
        has_gradient.append(output.last_hidden_state.requires_grad)
        return output

    monkeypatch.setattr(model.model, "forward", watched)
    parallel = ParallelModel(model, {"b": BackTranslation()})
    parallel(batch)["b"]["total"].backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    # The text is read to be translated, then its translation.
    assert has_gradient == [False, True]

    model.zero_grad()
    texts = parallel.objectives["b"].source_texts(parallel._encode(batch))
    ParallelModel(model, {"r": Rereading(*texts)})(batch)["r"]["total"].backward()
    assert gradients["model.layers.0.fc1.weight"].norm() > 0
    for name, weight in model.named_parameters():
        assert torch.equal(weight.grad, gradients[name]), name


def test_a_text_as_long_as_the_model_reads_is_translated(tokenizer):
    languages = {"languages": ("de", "en"), "pivot_languages": ("de", "en")}
    batch = one_batch(tokenizer)
    width = batch.input_ids.shape[-1]
    model = translator(max_position_embeddings=width, **languages)
    with torch.no_grad():
        model.lm_head.weight[EOS] = -model.lm_head.weight[FIRST_WORD]  # It hardly ever ends.
    parallel = ParallelModel(model, {"b": BackTranslation()})
    ids, _ = parallel.objectives["b"].source_texts(parallel._encode(batch))
    assert ids.shape[-1] == width
    assert parallel(batch)["b"]["total"].isfinite()


def test_one_language_cannot_be_translated(tokenizer):
    model = translator(languages=("de",), pivot_languages=("de",))
    batch = one_batch(tokenizer, languages=("de",))
    with pytest.raises(ValueError, match=r"back_translation: found languages=\['de'\], expected"):
        ParallelModel(model, {"b": BackTranslation()})(batch)


# ---- Which models and rows


def test_sharded_weights_are_refused(tmp_path):
    """Processes write for different numbers of steps, and would wait for each other's weights."""
    plugin = SimpleNamespace(fsdp_version=2, mixed_precision_policy=None)
    accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin))
    args = TmdeTrainingArguments(str(tmp_path), use_cpu=True)
    model = tiny_model(mask_token_id=MASK)
    prepare_fsdp(accelerator, args, ParallelModel(model, {"d": Denoising()}))
    with pytest.raises(ValueError, match="fsdp: found objective back_translation, .*use DDP"):
        prepare_fsdp(accelerator, args, ParallelModel(model, {"b": BackTranslation()}))
    penalized = {"d": Denoising(), "w": WeightRegularization()}
    with pytest.raises(ValueError, match="fsdp: found objective weight_regularization, .*use DDP"):
        prepare_fsdp(accelerator, args, ParallelModel(model, penalized))


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="'b' needs a decoder, which TmdeEncoderForMaskedLM does"):
        ParallelModel(encoder(), {"b": BackTranslation()})
    with pytest.raises(ValueError, match="'d' needs one shared encoder, not Ntdv"):
        ParallelModel(ntdv(), {"d": Denoising()})


@pytest.mark.parametrize("objective", [Denoising(blank_share=0), BackTranslation()])
def test_a_recurrent_model_learns_them_too(objective, tokenizer):
    model = laser()
    batch = one_batch(tokenizer)
    loss = ParallelModel(model, {"o": objective})(batch)["o"]["total"]
    loss.backward()
    assert loss.isfinite()
    assert all(weight.grad is not None for weight in model.parameters())


def test_a_translation_loss_beside_them_is_the_same(tokenizer):
    """A pair of losses shares neither texts nor counts."""
    model = translator()
    batch = one_batch(tokenizer)
    translation = TranslationObjective()
    alone = ParallelModel(model, {"t": translation})
    both = ParallelModel(model, {"d": Denoising(), "b": BackTranslation(), "t": translation})
    assert alone.targets == both.targets == ("pivots",)
    torch.testing.assert_close(both(batch)["t"]["total"], alone(batch)["t"]["total"])
    assert both.needs_several_languages
    assert not ParallelModel(model, {"d": Denoising()}).needs_several_languages
