"""The encoder-decoders keep transformers' contract: labels, collators, trainers, generation."""

from statistics import fmean

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import (
    CompileConfig,
    DataCollatorForSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    StaticCache,
    Trainer,
    TrainingArguments,
)
from transformers.modeling_outputs import BaseModelOutput

from modeling_tmde import TranslationCollator
from modeling_tmde.common import TmdeError
from tests.conftest import nightly_except, tiny_model
from tests.modeling_tmde.families import (
    ROWS,
    SEQ2SEQ,
    filled,
    needs_language,
    of_families,
    padded,
    trained_step,
)

LABELS = [
    [12, 13, 44, 2, -100],
    [14, 2, -100, -100, -100],
    [15, 16, 17, 18, 2],
    [19, 2, -100, -100, -100],
]
TEXTS = ["haus hund", "katze", "baum fluss stadt"]
TARGETS = ["house dog", "cat", "tree river town"]


def loss_by_hand(
    model, rows: list[list[int]], labels: list[list[int]], smoothing: float = 0.0, **options
) -> float:
    """Return the mean loss of all targets, each by a forward pass of its own.

    Args:
        model: An encoder-decoder.
        rows: The ids of each source text.
        labels: The targets of each text; negative ones are padding.
        smoothing: The share of the loss that is the mean over the vocabulary.
        options: Further inputs of the source, (batch, ...).
    """
    losses = []
    start = model.config.decoder_start_token_id
    for place, (row, target) in enumerate(zip(rows, labels, strict=True)):
        tokens = [token for token in target if token >= 0]
        source = {"input_ids": torch.tensor([row])}
        for name, value in options.items():
            source[name] = value[place : place + 1]
        for length, token in enumerate(tokens):
            read = torch.tensor([[start, *tokens[:length]]])
            outputs = model(**source, decoder_input_ids=read, target_language="en")
            token_losses = -outputs.logits[0, -1].double().log_softmax(-1)  # (vocab_size,)
            loss = (1 - smoothing) * token_losses[token] + smoothing * token_losses.mean()
            losses.append(loss.item())
    return fmean(losses)


def labeled(family):
    """Return a model, a batch for it, its labels (4, 5), and the options of a simple loss.

    The loss of `dual` has two parts; its bottleneck band alone has one.
    """
    model = filled(family)
    inputs = padded(model=model) | {"target_language": "en"}
    options = {"bottleneck_only": True} if family == "dual" else {}
    return model, inputs | options, torch.tensor(LABELS)


def loss_outside(logits, labels):
    """Return the loss as a caller computes it, who trusts that `logits[:, t]` are of label t."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@of_families(SEQ2SEQ)
def test_logits_belong_to_the_labels_of_their_place(family):
    model, inputs, labels = labeled(family)
    outputs = model(**inputs, labels=labels)
    torch.testing.assert_close(outputs.loss, loss_outside(outputs.logits, labels))
    assert torch.equal(labels, torch.tensor(LABELS))  # They stay as they are.


@of_families([family for family in SEQ2SEQ if family != "dual"])
def test_the_loss_is_that_of_each_target_alone(family):
    model, inputs, labels = labeled(family)
    source = {}
    if needs_language(model):
        source["language_ids"] = inputs["language_ids"]
    expected = loss_by_hand(model, ROWS, LABELS, **source)
    assert model(**inputs, labels=labels).loss.item() == pytest.approx(expected, rel=1e-4)


@of_families(SEQ2SEQ)
def test_the_loss_is_divided_by_the_items_of_all_batches(family):
    model, inputs, labels = labeled(family)
    loss = model(**inputs, labels=labels).loss
    scaled = model(**inputs, labels=labels, num_items_in_batch=10).loss
    torch.testing.assert_close(scaled, loss * 13 / 10)  # 13 labels are no padding.


@of_families(SEQ2SEQ)
def test_the_loss_does_not_depend_on_how_labels_are_written(family):
    model, inputs, labels = labeled(family)
    loss = model(**inputs, labels=labels).loss
    padded_with_pad = labels.masked_fill(labels == -100, 1)
    with_start = nn.functional.pad(labels, (1, 0), value=0)  # as a tokenizer writes them
    torch.testing.assert_close(model(**inputs, labels=padded_with_pad).loss, loss)
    torch.testing.assert_close(model(**inputs, labels=with_start).loss, loss)


@pytest.fixture
def tokenized(tokenizer):
    """Pairs of texts as a plain `tokenizer(text, text_target=...)` makes them, and a model."""
    model = tiny_model()
    english = model.config.languages.index("en")
    features = []
    rows = []
    labels = []
    for text, target in zip(TEXTS, TARGETS, strict=True):
        feature = dict(tokenizer(text, text_target=target))
        features.append(feature | {"target_language": english})
        rows.append(tokenizer(text)["input_ids"])
        labels.append(tokenizer(target)["input_ids"][1:])
    return model, features, rows, labels


def test_the_collator_moves_the_start_from_labels_to_inputs(tokenized, tokenizer):
    model, features, _, labels = tokenized
    batch = TranslationCollator(tokenizer, model=model)(features)
    assert batch["decoder_input_ids"][:, 0].tolist() == [0, 0, 0]
    assert batch["labels"][0, 0] == labels[0][0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_trainer_of_transformers_trains_on_the_right_tokens(
    smoothing, tokenized, tokenizer, tmp_path
):
    model, features, rows, labels = tokenized
    collator = TranslationCollator(tokenizer, model=model)
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path),
        label_smoothing_factor=smoothing,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
    )
    trainer = Seq2SeqTrainer(model, arguments, data_collator=collator, train_dataset=features)
    loss = trainer.compute_loss(model, collator(features))
    assert loss.item() == pytest.approx(loss_by_hand(model, rows, labels, smoothing), rel=1e-4)


def test_a_model_trains_on_what_a_tokenizer_returns(tokenized, tokenizer):
    model, _, rows, labels = tokenized
    batch = tokenizer(TEXTS, text_target=TARGETS, return_tensors="pt", padding=True)
    loss = model(**batch, target_language="en").loss
    assert loss.item() == pytest.approx(loss_by_hand(model, rows, labels), rel=1e-4)


def test_labels_stay_and_every_row_decides_about_its_start():
    """Rows with and without `<s>`, padded on either side with either id, in one batch."""
    model = filled("first")
    rows = [
        [0, 12, 13, 2, -100],
        [12, 13, 2, -100, -100],
        [12, 13, 0, 2, 1],
        [-100, 0, 12, 13, 2],
        [1, 1, 12, 13, 2],
    ]
    expected = [
        [1, 0, 12, 13, 2],
        [0, 12, 13, 2, 1],
        [0, 12, 13, 0, 2],
        [1, 1, 0, 12, 13],
        [1, 1, 0, 12, 13],
    ]
    labels = torch.tensor(rows)
    assert model.prepare_decoder_input_ids_from_labels(labels).tolist() == expected
    assert labels.tolist() == rows


# Where the targets of each row begin if every second row is written with `<s>`.
STARTS = [1, 0, 1, 0]


def mixed_labels() -> torch.Tensor:
    """Return labels (4, 6), of which every second row begins with `<s>`."""
    plain = torch.tensor(LABELS)
    mixed = nn.functional.pad(plain, (0, 1), value=-100)
    mixed[::2] = nn.functional.pad(plain[::2], (1, 0), value=0)
    return mixed


@of_families(SEQ2SEQ)
def test_rows_with_and_without_start_have_the_logits_of_their_labels(family):
    model = filled(family)
    inputs = padded(model=model) | {"target_language": "en"}
    plain = torch.tensor(LABELS)
    expected = model(**inputs, labels=plain)

    outputs = model(**inputs, labels=mixed_labels())

    torch.testing.assert_close(outputs.loss, expected.loss)
    assert not outputs.logits[::2, 0].any()
    target_logits = torch.empty_like(expected.logits)
    for row, start in enumerate(STARTS):
        target_logits[row] = outputs.logits[row, start : start + 5]
    is_target = plain != -100
    torch.testing.assert_close(target_logits[is_target], expected.logits[is_target])


@of_families(SEQ2SEQ)
def test_inputs_made_from_labels_give_the_logits_of_the_labels(family):
    """Label smoothing takes this way: the Trainer removes the labels before the model is called."""
    model = filled(family)
    inputs = padded(model=model) | {"target_language": "en"}
    labels = mixed_labels()
    expected = model(**inputs, labels=labels).logits
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels)
    logits = model(**inputs, decoder_input_ids=decoder_input_ids).logits
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("is_made", [True, False])
@of_families(SEQ2SEQ)
def test_a_mask_moves_with_the_target(family, is_made):
    """As for labels alone, whether the target is made of them or given as a collator makes it."""
    model = filled(family)
    inputs = padded(model=model) | {"target_language": "en"}
    labels = mixed_labels()
    expected = model(**inputs, labels=labels)
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels)
    masks = {"of the labels": labels.ne(-100), "of the inputs": decoder_input_ids.ne(1)}
    if not is_made:
        inputs["decoder_input_ids"] = decoder_input_ids
    for name, mask in masks.items():
        outputs = model(**inputs, labels=labels, decoder_attention_mask=mask.long())
        torch.testing.assert_close(outputs.loss, expected.loss, msg=name)
        is_target = model.mask_labels(labels) != -100
        torch.testing.assert_close(outputs.logits[is_target], expected.logits[is_target], msg=name)


def test_the_mask_of_a_past_stays_before_that_of_the_target():
    """As prefix tuning asks for: the keys and values of a prefix, and a mask for all of them."""
    model = filled("first")
    inputs = padded(model=model) | {"target_language": "en"}
    prefix = torch.full((4, 2), 11)
    prefix_mask = torch.tensor([[1, 1], [0, 1], [1, 0], [1, 1]])

    def loss_of(labels: torch.Tensor) -> torch.Tensor:
        past = model(**inputs, decoder_input_ids=prefix, use_cache=True).past_key_values
        mask = torch.cat([prefix_mask, labels.ne(-100).long()], dim=1)
        options = {"labels": labels, "decoder_attention_mask": mask, "past_key_values": past}
        return model(**inputs, **options).loss

    torch.testing.assert_close(loss_of(mixed_labels()), loss_of(torch.tensor(LABELS)))


def test_a_mask_that_does_not_fit_a_moved_target_is_named():
    model = filled("first")
    inputs = padded(model=model) | {"target_language": "en", "labels": mixed_labels()}
    message = r"decoder_attention_mask \(4, 5\) must be .*\(4, 6\) without a past"
    with pytest.raises(ValueError, match=message):
        model(**inputs, decoder_attention_mask=torch.ones(4, 5))


@of_families(SEQ2SEQ)
def test_labels_are_the_ninth_argument(family):
    model = filled(family)
    inputs = padded(model=model)
    labels = torch.tensor(LABELS)
    source = (inputs.pop("input_ids"), inputs.pop("attention_mask"))
    options = inputs | {"target_language": "en"}  # with languages of the source, if needed
    expected = model(*source, labels=labels, **options).loss
    assert torch.equal(model(*source, *[None] * 6, labels, **options).loss, expected)


# ---- Gradient accumulation with transformers' own Trainer


def translation_features(model) -> list[dict]:
    """Return eight rows of token ids as a tokenizer writes them, of different lengths."""
    targets = [[12, 13, 44], [14], [15, 16, 17, 18], [19], [20, 21], [22] * 6, [23], [24, 25]]
    features = []
    for row, target in enumerate(targets):
        feature = {
            "input_ids": ROWS[row % 4],
            "attention_mask": [1] * len(ROWS[row % 4]),
            "labels": [0, *target, 2],
            "target_language": 1,
        }
        if needs_language(model):
            feature["language_ids"] = row % 2
        features.append(feature)
    return features


def gradient_by_hand(model, features: list[dict]) -> torch.Tensor:
    """Return the gradient of the mean over all targets, from one forward pass a text and band."""
    total = 0.0
    num_targets = 0
    for feature in features:
        source = {"input_ids": torch.tensor([feature["input_ids"]]), "target_language": "en"}
        if "language_ids" in feature:
            source["language_ids"] = torch.tensor([feature["language_ids"]])
        read = torch.tensor([feature["labels"][:-1]])
        targets = torch.tensor(feature["labels"][1:])
        num_targets += len(targets)
        for options, weight in weighted_bands(model):
            outputs = model(**source, decoder_input_ids=read, use_cache=False, **options)
            scores = outputs.logits[0].log_softmax(-1)  # (targets, vocab_size)
            total = total - weight * scores[torch.arange(len(targets)), targets].sum()
    gradients = torch.autograd.grad(
        total / num_targets, list(model.parameters()), allow_unused=True, materialize_grads=True
    )
    return nn.utils.parameters_to_vector(gradients)


def weighted_bands(model) -> list[tuple[dict, float]]:
    """Return the options of each band of the decoder and its weight in the loss."""
    if getattr(model.config, "bottleneck", None) != "dual":
        return [({}, 1.0)]
    weight = model.config.bottleneck_loss_weight
    return [({"bottleneck_only": False}, 1 - weight), ({"bottleneck_only": True}, weight)]


@pytest.mark.parametrize("batch_size", nightly_except([2], [8, 4, 2]))
@of_families(SEQ2SEQ)
def test_accumulated_batches_have_the_gradient_of_the_mean_target(
    family, batch_size, tokenizer, tmp_path
):
    model = filled(family)
    features = translation_features(model)
    expected = gradient_by_hand(model, features)
    collator = TranslationCollator(tokenizer, model)
    gradient = trained_step(model, features, collator, tmp_path, batch_size)
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("batch_size", [8, 4])
@pytest.mark.parametrize("gives_model", [True, False])
def test_a_start_among_the_labels_does_not_shorten_the_gradient(
    gives_model, batch_size, tokenizer, tmp_path
):
    """DataCollatorForSeq2Seq keeps `<s>`, which the Trainer counts: five tokens and `<s>` a row."""
    model = filled("first")
    features = translation_features(model)
    for row, feature in enumerate(features):
        feature["labels"] = [0, 12 + row, 13, 14, 15, 2]
    expected = gradient_by_hand(model, features)
    collator = DataCollatorForSeq2Seq(tokenizer, model if gives_model else None)
    gradient = trained_step(model, features, collator, tmp_path, batch_size)
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-3)


def test_label_smoothing_has_no_gradient_where_a_start_is_written(tokenizer, tmp_path):
    """With DataCollatorForSeq2Seq the direction is right, and the length that of the count."""
    gradients = []
    for collator_class in (TranslationCollator, DataCollatorForSeq2Seq):
        model = filled("first")
        features = translation_features(model)
        collator = collator_class(tokenizer, model)
        gradients.append(
            trained_step(model, features, collator, tmp_path, 4, label_smoothing_factor=0.1)
        )
    num_counted = sum(len(feature["labels"]) for feature in features)
    share = (num_counted - len(features)) / num_counted
    torch.testing.assert_close(gradients[1], share * gradients[0], atol=1e-5, rtol=1e-3)


def test_the_collator_leaves_features_as_they_are(tokenizer):
    features = [
        {"input_ids": [0, 9, 2], "labels": [0, 12, 2]},
        {"input_ids": [0, 2], "labels": [13]},
    ]
    batch = TranslationCollator(tokenizer, filled("first"))(features)
    assert batch["labels"].tolist() == [[12, 2], [13, -100]]
    assert batch["decoder_input_ids"].tolist() == [[0, 12], [0, 13]]
    assert features[0]["labels"] == [0, 12, 2]
    with pytest.raises(ValueError, match="model: found None"):
        TranslationCollator(tokenizer)(features)


@of_families(SEQ2SEQ)
def test_parts_have_the_names_of_transformers(family):
    model = filled(family)
    assert model.get_encoder() is model.model
    assert model.get_decoder() is model.decoder
    assert model.get_encoder("image") is model
    assert model.get_encoder(modality="audio") is model


@of_families(SEQ2SEQ)
def test_embeddings_have_the_names_of_transformers(family):
    model = filled(family)
    assert model.get_input_embeddings() is model.model.get_input_embeddings()
    assert model.get_output_embeddings() is model.lm_head
    assert model.model.get_output_embeddings() is None


@of_families(["first", "pyramid", "laser", "ntdv", "adapted-cls"])
def test_vectors_in_place_of_ids(family):
    model = filled(family)
    inputs = padded(side="left", model=model) | {"target_language": "en"}
    ids = torch.tensor([[0, 12, 13], [0, 14, 15], [0, 16, 17], [0, 18, 19]])
    expected = model(**inputs, decoder_input_ids=ids).logits
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    logits = model(**inputs, decoder_inputs_embeds=model.decoder.embed_tokens(ids)).logits
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "checkpointing"),
    [
        *[(family, False) for family in ("first", "pyramid", "full", "laser", "adapted-cls")],
        *[(family, True) for family in ("first", "pyramid", "full", "adapted-cls")],
    ],
)
def test_hidden_states_keep_their_gradient(family, checkpointing):
    model = filled(family).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    outputs = model(
        **padded(), labels=torch.tensor(LABELS), target_language="en", output_hidden_states=True
    )
    states = [*outputs.encoder_hidden_states, *(outputs.decoder_hidden_states or [])]
    assert len(states) > 2
    for state in states:
        gradients = torch.autograd.grad(
            state.square().sum(), list(model.parameters()), retain_graph=True, allow_unused=True
        )
        assert any(gradient is not None and gradient.any() for gradient in gradients)


# ---- Generation


GENERATION = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
TARGET_CODES = ["de", "en", "en", "de"]


@torch.no_grad()
def written_by_hand(model, inputs) -> torch.Tensor:
    """Return `<s>` and six tokens a text, (4, 7), each the most probable one."""
    written = torch.zeros(4, 1, dtype=torch.long)
    for _ in range(6):
        outputs = model(**inputs, decoder_input_ids=written, target_language=TARGET_CODES)
        written = torch.cat([written, outputs.logits[:, -1:].argmax(-1)], dim=1)
    return written


@pytest.mark.parametrize("use_cache", [True, False])
@of_families(SEQ2SEQ)
def test_generation_is_a_loop_of_argmax(family, use_cache):
    model = filled(family)
    inputs = padded(side="left", model=model)
    expected = written_by_hand(model, inputs)
    written = model.generate(
        **inputs, target_language=TARGET_CODES, use_cache=use_cache, **GENERATION
    )
    assert torch.equal(written, expected)


@of_families(SEQ2SEQ)
def test_generation_from_outputs_of_the_encoder(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    expected = written_by_hand(model, inputs)
    source = {
        "encoder_outputs": model.get_encoder()(**inputs),
        "attention_mask": inputs["attention_mask"],
    }
    written = model.generate(**source, target_language=TARGET_CODES, **GENERATION)
    assert torch.equal(written, expected)


DECODE_FROM_STATES = [family for family in SEQ2SEQ if not family.startswith("ntdv")]


@of_families(DECODE_FROM_STATES)
def test_a_mask_of_tokens_does_not_hide_an_embedding(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    target = {
        "encoder_outputs": model.get_encoder()(**inputs).pooler_output,
        "decoder_input_ids": torch.tensor([[0, 12, 13]] * 4),
        "target_language": TARGET_CODES,
    }
    masked = model(**target, attention_mask=inputs["attention_mask"]).logits
    assert torch.equal(masked, model(**target).logits)


def forms_of_outputs(states):
    """Return what an encoder may return; position 0 is the embedding in every family."""
    return ((states,), BaseModelOutput(last_hidden_state=states))


@of_families(DECODE_FROM_STATES)
def test_encoder_outputs_of_every_form_are_read_by_forward(family):
    model = filled(family)
    inputs = padded(model=model)
    target = {"target_language": "en", "decoder_input_ids": torch.tensor([[0, 12, 13]] * 4)}
    expected = model(**inputs, **target).logits
    states = model.get_encoder()(**inputs).last_hidden_state
    for form in forms_of_outputs(states):
        source = {"encoder_outputs": form, "attention_mask": inputs["attention_mask"]}
        torch.testing.assert_close(model(**source, **target).logits, expected)


@pytest.mark.parametrize("num_beams", [1, 3])
@of_families(DECODE_FROM_STATES)
def test_encoder_outputs_of_every_form_are_decoded(family, num_beams):
    model = filled(family)
    inputs = padded(model=model)
    options = GENERATION | {"num_beams": num_beams, "target_language": "en"}
    expected = model.generate(**inputs, **options)
    states = model.get_encoder()(**inputs).last_hidden_state
    for form in forms_of_outputs(states):
        source = {"encoder_outputs": form, "attention_mask": inputs["attention_mask"]}
        assert torch.equal(model.generate(**source, **options), expected)


@of_families([family for family in SEQ2SEQ if family.startswith("ntdv")])
def test_ntdv_asks_for_the_whole_output_of_its_encoder(family):
    model = filled(family)
    inputs = padded(model=model)
    target = {"target_language": "en", "decoder_input_ids": torch.tensor([[0, 12, 13]] * 4)}
    states = model.get_encoder()(**inputs).last_hidden_state
    for form in forms_of_outputs(states):
        for call in (model, model.generate):
            with pytest.raises(ValueError, match="decodes from the encoder's outputs"):
                call(encoder_outputs=form, attention_mask=inputs["attention_mask"], **target)


@of_families(["first", "full", "dual", "adapted-cls"])
def test_a_static_cache_compiles_and_gives_the_same_tokens(family):
    model = filled(family)
    options = GENERATION | {"target_language": "en"}
    expected = model.generate(**padded(), **options)
    compiled = CompileConfig(backend="eager", fullgraph=True)
    compiled._compile_all_devices = True  # By default, `generate` compiles on accelerators only.
    written = model.generate(
        **padded(), cache_implementation="static", compile_config=compiled, **options
    )
    assert torch.equal(written, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@of_families(["first", "full", "adapted-cls"])
def test_a_compiled_decoder_steps_through_a_static_cache(family, backend):
    model = filled(family)
    encoded = model.get_encoder()(**padded())
    ids = torch.tensor([[0, 12, 13, 14, 15]] * 4)
    source = {
        "embedding": encoded.pooler_output,
        "language_ids": torch.tensor([0, 1, 1, 0]),
        "encoder_hidden_states": encoded.last_hidden_state,
        "encoder_attention_mask": padded()["attention_mask"],
    }
    decoder = torch.compile(model.decoder, fullgraph=True, backend=backend)
    cache = EncoderDecoderCache(StaticCache(config=model.config, max_cache_len=8), DynamicCache())
    states = []
    with torch.no_grad():
        expected = model.decoder(ids, **source).last_hidden_state
        states.append(model.decoder(ids[:, :2], past_key_values=cache, **source).last_hidden_state)
        for place in range(2, 5):
            token = ids[:, place : place + 1]
            states.append(decoder(token, past_key_values=cache, **source).last_hidden_state)
    torch.testing.assert_close(torch.cat(states, dim=1), expected, atol=1e-5, rtol=1e-5)


def test_a_static_cache_longer_than_the_positions_is_refused():
    model = tiny_model()  # 128 positions
    options = GENERATION | {"max_new_tokens": 130, "target_language": "en"}
    with pytest.raises(ValueError, match=r"129 tokens .* max_position_embeddings=128"):
        model.generate(**padded(), cache_implementation="static", **options)


@of_families(["first", "full", "adapted-cls"])
def test_assisted_generation_returns_attentions(family):
    model = filled(family)
    model.set_attn_implementation("eager")
    inputs = {name: value[:1] for name, value in padded().items()}
    options = GENERATION | {"target_language": "en"}
    expected = model.generate(**inputs, **options)
    assisted = model.generate(
        **inputs,
        **options,
        assistant_model=model,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    assert torch.equal(assisted.sequences, expected)
    assert assisted.decoder_attentions


@of_families(["first", "pyramid", "dual", "laser", "adapted-mean"])
def test_an_embedding_alone_is_decoded(family):
    model = filled(family)
    options = {"target_language": "de", "max_new_tokens": 6, "do_sample": False}
    bands = {"bottleneck_only": True} if family == "dual" else {}
    expected = model.generate(**padded(), **options, **bands)
    embedding = model.get_encoder()(**padded()).pooler_output
    assert torch.equal(model.generate(encoder_outputs=embedding, **options), expected)


@of_families(DECODE_FROM_STATES)
def test_forward_decodes_an_embedding_as_generate_does(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    embedding = model.get_encoder()(**inputs).pooler_output
    source = {
        "encoder_outputs": embedding,
        "attention_mask": inputs["attention_mask"],
        "target_language": TARGET_CODES,
    }
    written = model.generate(
        **source, **GENERATION, output_logits=True, return_dict_in_generate=True
    )
    logits = model(**source, decoder_input_ids=written.sequences[:, :-1]).logits
    torch.testing.assert_close(logits, torch.stack(written.logits, dim=1))


@of_families(["first", "pyramid", "dual", "laser", "adapted-mean"])
def test_an_embedding_of_another_type_is_decoded(family):
    """As a vector of numpy is, which often has float64."""
    model = filled(family)
    embedding = model.get_encoder()(**padded()).pooler_output.detach()
    options = {"target_language": "en"}
    if family == "dual":
        options["bottleneck_only"] = True
    expected = model(encoder_outputs=embedding, labels=torch.tensor(LABELS), **options).loss
    embedding = embedding.double().requires_grad_()
    for encoder_outputs in (embedding, (embedding[:, None],)):
        outputs = model(encoder_outputs=encoder_outputs, labels=torch.tensor(LABELS), **options)
        torch.testing.assert_close(outputs.loss, expected)
    outputs.loss.backward()
    assert embedding.grad.abs().sum() > 0

    translated = model.generate(encoder_outputs=embedding.detach(), max_new_tokens=3, **options)
    assert len(translated) == 4


@pytest.mark.parametrize(
    ("target_language", "message"),
    [
        (None, r"target_language is missing.*one of the pivot languages \['de', 'en'\]"),
        ("nl", r"'nl' is unknown .*'de', 'en'"),
        (["en"], "1 languages for 4 texts"),
    ],
)
def test_a_target_language_that_does_not_fit_is_named(target_language, message):
    model = filled("first")
    with pytest.raises(ValueError, match=message):
        model(**padded(), labels=torch.tensor(LABELS), target_language=target_language)


def test_a_target_language_that_is_no_pivot_is_refused():
    model = filled("first")
    model.config.pivot_languages = ["en"]
    message = r"'de' is not a pivot language; this model translates into \['en'\]"
    with pytest.raises(ValueError, match=message):
        model.generate(**padded(), target_language="de")
    with pytest.raises(ValueError, match=message):
        model(**padded(), labels=torch.tensor(LABELS), target_language=["en", "de", "en", "en"])
    # Whoever gives ids, or reads logits alone, may ask for any language.
    model.generate(**padded(), target_language=torch.tensor([0]), max_new_tokens=2)
    model(**padded(), decoder_input_ids=torch.tensor([[0]] * 4), target_language="de")


@of_families(SEQ2SEQ)
def test_the_only_pivot_is_the_default_target(family):
    model, inputs, labels = labeled(family)
    expected = model(**inputs, labels=labels).loss
    written = model.generate(**inputs, max_new_tokens=4)
    model.config.pivot_languages = ["en"]
    del inputs["target_language"]
    assert torch.equal(model(**inputs, labels=labels).loss, expected)
    assert torch.equal(model.generate(**inputs, max_new_tokens=4), written)


@of_families(["first", "dual", "laser", "adapted-mean"])
def test_vectors_of_an_embedder_are_decoded(family):
    """`encode` returns numpy arrays or tensors: one text (d_model,), many (texts, d_model)."""
    model = filled(family)
    vectors = model.model(**padded()).pooler_output.detach()
    options = {"target_language": "en", "max_new_tokens": 4}
    expected = model.generate(encoder_outputs=vectors, **options)
    assert torch.equal(model.generate(encoder_outputs=vectors.numpy(), **options), expected)
    # What sentence-transformers returns with convert_to_numpy=False, and a reversed array.
    assert torch.equal(model.generate(encoder_outputs=list(vectors), **options), expected)
    assert torch.equal(model.generate(encoder_outputs=list(vectors.numpy()), **options), expected)
    backwards = vectors.flip(0).numpy()[::-1]
    assert torch.equal(model.generate(encoder_outputs=backwards, **options), expected)
    for vector in (vectors[2], vectors[2].numpy()):
        written = model.generate(encoder_outputs=vector, **options)
        alone = model.generate(encoder_outputs=vectors[2:3], **options)
        assert torch.equal(written, alone)
    labels = torch.tensor(LABELS)
    from_array = model(encoder_outputs=vectors.numpy(), labels=labels, target_language="en")
    from_tensor = model(encoder_outputs=vectors, labels=labels, target_language="en")
    assert torch.equal(from_array.loss, from_tensor.loss)


@pytest.mark.parametrize(
    "vectors", [torch.zeros(2, 8), np.zeros((2, 16), dtype=np.int8), torch.zeros(1, 2, 16)]
)
def test_vectors_of_another_kind_are_named(vectors):
    with pytest.raises(ValueError, match=r"encoder_outputs: found .* expected floats \(16,\) or"):
        filled("first").generate(encoder_outputs=vectors, target_language="en")


@pytest.mark.parametrize("vectors", [[], torch.zeros(0, 16), np.zeros((0, 16), dtype=np.float32)])
def test_an_empty_batch_is_named(vectors):
    model = filled("first")
    start = torch.zeros(1, 1, dtype=torch.long)
    for call in (model, model.generate):
        with pytest.raises(TmdeError, match="encoder_outputs: found no embedding"):
            call(encoder_outputs=vectors, target_language="en", decoder_input_ids=start)
    with pytest.raises(TmdeError, match="Give input_ids to translate"):
        model.generate(torch.zeros(0, 4, dtype=torch.long), target_language="en")


def test_vectors_of_different_lengths_are_named():
    vectors = [torch.zeros(16), torch.zeros(8)]
    with pytest.raises(TmdeError, match=r"shapes \[\(8,\), \(16,\)\], expected vectors of one"):
        filled("first").generate(encoder_outputs=vectors, target_language="en")


@pytest.mark.parametrize("ids", [1, [1, 1, 1, 1], np.array([1]), torch.tensor(1)])
def test_ids_of_target_languages_are_those_of_codes(ids):
    model = filled("first")
    code = model.config.languages[1]
    model.config.pivot_languages = model.config.languages
    written = model.generate(**padded(), target_language=ids, max_new_tokens=4)
    expected = model.generate(**padded(), target_language=code, max_new_tokens=4)
    assert torch.equal(written, expected)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (99, "found the id 99, expected 0 to"),
        (torch.tensor([0, 0, -1, 0]), "found the id -1, expected 0 to"),
        ([0, 1], r"found ids \(2,\) of torch.int64, expected integers \(1,\) or \(4,\)"),
        (torch.tensor([0.0]), r"found ids \(1,\) of torch.float32"),
    ],
)
def test_ids_of_target_languages_that_do_not_fit_are_named(ids, message):
    model = filled("first")
    for call in (model, model.generate):
        with pytest.raises(TmdeError, match=f"target_language: {message}"):
            call(**padded(), target_language=ids, decoder_input_ids=torch.tensor([[0]] * 4))


# ---- The trainers of transformers

ROWS_TO_LEARN = [
    {"input_ids": ROWS[0], "labels": [12, 13, 44, 2], "target_language": "en"},
    {"input_ids": ROWS[1], "labels": [14, 2], "target_language": "de"},
    {"input_ids": ROWS[2], "labels": [0, 15, 16, 17, 2], "target_language": "en"},
]


def training_rows(model, columns: tuple[str, ...]) -> Dataset:
    rows = []
    for index, row in enumerate(ROWS_TO_LEARN):
        kept = {name: row[name] for name in columns}
        if needs_language(model):
            kept["language_ids"] = index % 2
        rows.append(kept)
    return Dataset.from_list(rows)


def trainer_options(folder) -> dict:
    return {
        "output_dir": str(folder),
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }


@of_families(SEQ2SEQ)
def test_the_trainer_of_transformers_trains_and_writes(family, tokenizer, tmp_path):
    model = filled(family)
    rows = training_rows(model, ("input_ids", "labels", "target_language"))
    trainer = Seq2SeqTrainer(
        model,
        Seq2SeqTrainingArguments(
            **trainer_options(tmp_path), predict_with_generate=True, generation_max_length=5
        ),
        data_collator=TranslationCollator(tokenizer, model=model),
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=lambda prediction: {"written": len(prediction.predictions)},
    )
    trainer.train()
    assert trainer.evaluate()["eval_written"] == len(ROWS_TO_LEARN)
    inputs = padded([row["input_ids"] for row in ROWS_TO_LEARN], model=model)
    written = model.eval().generate(**inputs, target_language=["en", "de", "en"], max_length=5)
    predictions = torch.from_numpy(trainer.predict(rows).predictions)
    assert torch.equal(predictions[:, : written.shape[1]], written)


def test_a_target_column_of_several_pivots_is_asked_for(tokenizer, tmp_path):
    model = filled("first")
    rows = training_rows(model, ("input_ids", "labels"))
    trainer = Trainer(
        model,
        TrainingArguments(**trainer_options(tmp_path)),
        data_collator=TranslationCollator(tokenizer, model=model),
        train_dataset=rows,
    )
    with pytest.raises(ValueError, match="A trainer reads it from a column target_language"):
        trainer.train()


def test_a_target_column_that_is_no_pivot_is_named(tokenizer):
    model = filled("first")
    model.config.pivot_languages = ["en"]
    collator = TranslationCollator(tokenizer, model=model)
    with pytest.raises(ValueError, match=r"target_language: found 'de', expected .* \['en'\]"):
        collator(ROWS_TO_LEARN[1:2])


def test_what_generation_needs_is_named():
    with pytest.raises(ValueError, match="Give input_ids to translate, or encoder_outputs"):
        filled("first").generate(target_language="en")


def test_what_forward_needs_is_named():
    with pytest.raises(ValueError, match="Pass decoder_input_ids, or labels"):
        filled("first")(**padded(), target_language="en")
