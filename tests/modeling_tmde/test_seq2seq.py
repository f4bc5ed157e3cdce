"""The encoder-decoders keep transformers' contract: labels, collators, trainers, generation, hidden states."""

import pytest
import torch
from torch import nn
from transformers import (
    CompileConfig,
    DataCollatorForSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    StaticCache,
)
from transformers.modeling_outputs import BaseModelOutput

from modeling_tmde import TranslationCollator
from tests.conftest import tiny_model
from tests.modeling_tmde.families import (
    ROWS,
    SEQ2SEQ,
    filled,
    needs_language,
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
    """Each token of each text alone: what follows `<s>` and the tokens before it, by its own forward pass."""
    losses = []
    for place, (row, target) in enumerate(zip(rows, labels, strict=True)):
        tokens = [token for token in target if token >= 0]
        source = {"input_ids": torch.tensor([row])}
        source |= {name: value[place : place + 1] for name, value in options.items()}
        for length, token in enumerate(tokens):
            read = torch.tensor([[model.config.decoder_start_token_id, *tokens[:length]]])
            logits = model(**source, decoder_input_ids=read, target_language="en").logits[0, -1]
            scores = -logits.double().log_softmax(-1)
            losses.append(((1 - smoothing) * scores[token] + smoothing * scores.mean()).item())
    return sum(losses) / len(losses)


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_logits_belong_to_the_labels_of_their_place(family):
    """`logits[:, t]` belongs to `labels[:, t]`; a loss outside the model is that of the model, and both by hand."""
    model = filled(family)
    inputs, labels = padded(model=model), torch.tensor(LABELS)
    options = {"bottleneck_only": True} if family == "dual" else {}
    outputs = model(**inputs, labels=labels, target_language="en", **options)
    outside = nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(outputs.loss, outside)
    assert torch.equal(labels, torch.tensor(LABELS))
    if family != "dual":
        given = {"language_ids": inputs["language_ids"]} if needs_language(model) else {}
        assert outputs.loss.item() == pytest.approx(
            loss_by_hand(model, ROWS, LABELS, **given), rel=1e-4
        )
    scaled = model(
        **inputs, labels=labels, target_language="en", num_items_in_batch=10, **options
    ).loss
    torch.testing.assert_close(scaled, outside * 13 / 10)
    padded_with_pad = labels.masked_fill(labels == -100, 1)
    torch.testing.assert_close(
        model(**inputs, labels=padded_with_pad, target_language="en", **options).loss, outside
    )
    begun = nn.functional.pad(labels, (1, 0), value=0)  # with <s>, as a tokenizer writes them
    torch.testing.assert_close(
        model(**inputs, labels=begun, target_language="en", **options).loss, outside
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_tokenizer_collator_and_trainer_of_transformers_train_on_the_right_tokens(
    smoothing, tokenizer, tmp_path
):
    """A plain `tokenizer(text, text_target=...)` through TranslationCollator and Seq2SeqTrainer."""
    model = tiny_model()
    english = model.config.languages.index("en")
    features = [
        dict(tokenizer(text, text_target=target)) | {"target_language": english}
        for text, target in zip(TEXTS, TARGETS, strict=True)
    ]
    collator = TranslationCollator(tokenizer, model=model)
    batch = collator([dict(feature) for feature in features])
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    labels = [tokenizer(target)["input_ids"][1:] for target in TARGETS]
    assert batch["decoder_input_ids"][:, 0].tolist() == [0, 0, 0]
    assert batch["labels"][0, 0] == labels[0][0]
    options = Seq2SeqTrainingArguments(
        str(tmp_path),
        label_smoothing_factor=smoothing,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
    )
    trainer = Seq2SeqTrainer(model, options, data_collator=collator, train_dataset=features)
    loss = trainer.compute_loss(model, collator([dict(feature) for feature in features]))
    assert loss.item() == pytest.approx(loss_by_hand(model, rows, labels, smoothing), rel=1e-4)
    plain = tokenizer(TEXTS, text_target=TARGETS, return_tensors="pt", padding=True)
    expected = loss_by_hand(model, rows, labels)
    assert model(**plain, target_language="en").loss.item() == pytest.approx(expected, rel=1e-4)


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


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_rows_with_and_without_start_have_the_logits_of_their_labels(family):
    model = filled(family)
    inputs = padded(model=model) | {"target_language": "en"}
    plain = torch.tensor(LABELS)
    expected = model(**inputs, labels=plain)
    mixed = nn.functional.pad(plain, (0, 1), value=-100)
    mixed[::2] = nn.functional.pad(plain[::2], (1, 0), value=0)
    outputs = model(**inputs, labels=mixed)
    torch.testing.assert_close(outputs.loss, expected.loss)
    is_target = plain != -100
    assert not outputs.logits[::2, 0].any()
    found = torch.stack([outputs.logits[row, (row + 1) % 2 :][:5] for row in range(4)])
    torch.testing.assert_close(found[is_target], expected.logits[is_target])
    read = model.prepare_decoder_input_ids_from_labels(mixed)
    outside = model(**inputs, decoder_input_ids=read).logits  # as for label smoothing
    torch.testing.assert_close(outside, outputs.logits)


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_labels_are_the_ninth_argument(family):
    model = filled(family)
    inputs, labels = padded(model=model), torch.tensor(LABELS)
    options = {"target_language": "en"}
    if needs_language(model):
        options["language_ids"] = inputs["language_ids"]
    expected = model(**inputs, labels=labels, target_language="en").loss
    source = (inputs["input_ids"], inputs["attention_mask"])
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
    """Return the gradient of the mean over all targets, from one forward pass a text."""
    bands = {None: 1.0}
    if getattr(model.config, "bottleneck", None) == "dual":
        bands = {False: 1 - model.config.bottleneck_loss_weight}
        bands[True] = model.config.bottleneck_loss_weight
    total, num_targets = 0.0, 0
    for feature in features:
        source = {"input_ids": torch.tensor([feature["input_ids"]]), "target_language": "en"}
        if "language_ids" in feature:
            source["language_ids"] = torch.tensor([feature["language_ids"]])
        read = torch.tensor([feature["labels"][:-1]])
        targets = torch.tensor(feature["labels"][1:])
        num_targets += len(targets)
        for band, weight in bands.items():
            option = {} if band is None else {"bottleneck_only": band}
            scores = model(**source, decoder_input_ids=read, use_cache=False, **option).logits[0]
            chosen = scores.log_softmax(-1)[torch.arange(len(targets)), targets]
            total = total - weight * chosen.sum()
    gradients = torch.autograd.grad(
        total / num_targets, list(model.parameters()), allow_unused=True, materialize_grads=True
    )
    return nn.utils.parameters_to_vector(gradients)


@pytest.mark.parametrize("batch_size", [8, 4, 2])
@pytest.mark.parametrize("family", SEQ2SEQ)
def test_accumulated_batches_have_the_gradient_of_the_mean_target(
    family, batch_size, tokenizer, tmp_path
):
    model = filled(family)
    features = translation_features(model)
    expected = gradient_by_hand(model, features)
    collator = TranslationCollator(tokenizer, model)
    found = trained_step(model, features, collator, tmp_path, batch_size)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("gives_model", [True, False])
def test_labels_with_a_start_are_no_smaller_a_loss(gives_model, tokenizer, tmp_path):
    """DataCollatorForSeq2Seq keeps `<s>`, which the Trainer counts: five tokens and `<s>` a row."""
    features = translation_features(filled("first"))
    for row, feature in enumerate(features):
        feature["labels"] = [0, 12 + row, 13, 14, 15, 2]
    expected = gradient_by_hand(filled("first"), features)
    for batch_size in (8, 4):
        model = filled("first")
        collator = DataCollatorForSeq2Seq(tokenizer, model if gives_model else None)
        found = trained_step(model, features, collator, tmp_path, batch_size)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)
    batch = DataCollatorForSeq2Seq(tokenizer)(translation_features(filled("first")))
    model = filled("first")
    counted = (batch["labels"] != -100).sum()
    torch.testing.assert_close(model(**batch, num_items_in_batch=counted).loss, model(**batch).loss)


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
    num_targets = sum(len(feature["labels"]) - 1 for feature in features)
    share = num_targets / (num_targets + len(features))
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


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_parts_have_the_names_of_transformers(family):
    model = filled(family)
    assert model.get_encoder() is model.model and model.get_decoder() is model.decoder
    assert model.get_encoder("image") is model and model.get_encoder(modality="audio") is model
    assert model.get_input_embeddings() is model.model.get_input_embeddings()
    assert (
        model.get_output_embeddings() is model.lm_head
        and model.model.get_output_embeddings() is None
    )


@pytest.mark.parametrize("family", ["first", "pyramid", "laser", "ntdv", "adapted-cls"])
def test_vectors_in_place_of_ids(family):
    model = filled(family)
    inputs = padded(side="left", model=model) | {"target_language": "en"}
    ids = torch.tensor([[0, 12, 13], [0, 14, 15], [0, 16, 17], [0, 18, 19]])
    expected = model(**inputs, decoder_input_ids=ids).logits
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    found = model(**inputs, decoder_inputs_embeds=model.decoder.embed_tokens(ids)).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["first", "pyramid", "full", "laser", "adapted-cls"])
def test_hidden_states_keep_their_gradient(family):
    for checkpointing in (False, True):
        model = filled(family).train()
        if checkpointing and family != "laser":
            model.gradient_checkpointing_enable()
        outputs = model(
            **padded(), labels=torch.tensor(LABELS), target_language="en", output_hidden_states=True
        )
        states = list(outputs.encoder_hidden_states)
        states += outputs.decoder_hidden_states or []
        assert len(states) > 2
        for state in states:
            gradients = torch.autograd.grad(
                state.square().sum(), list(model.parameters()), retain_graph=True, allow_unused=True
            )
            assert any(gradient is not None and gradient.any() for gradient in gradients)


# ---- Generation


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_generation_is_a_loop_of_argmax(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    languages = torch.tensor([0, 1, 1, 0])
    written = torch.zeros(4, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(6):
            logits = model(**inputs, decoder_input_ids=written, target_language=languages).logits
            written = torch.cat([written, logits[:, -1:].argmax(-1)], dim=1)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    codes = ["de", "en", "en", "de"]
    for use_cache in (True, False):
        assert torch.equal(
            model.generate(**inputs, target_language=codes, use_cache=use_cache, **options), written
        )
    encoded = model.get_encoder()(**inputs)
    mask = {"attention_mask": inputs["attention_mask"]}
    assert torch.equal(
        model.generate(encoder_outputs=encoded, target_language=codes, **mask, **options), written
    )
    if not family.startswith("ntdv"):
        states = (encoded.last_hidden_state,)
        found = model(
            encoder_outputs=states, decoder_input_ids=written, target_language=codes, **mask
        ).logits
        assert torch.equal(found[:, :-1].argmax(-1), written[:, 1:])
        alone = {
            "encoder_outputs": encoded.pooler_output,
            "decoder_input_ids": written,
            "target_language": codes,
        }
        assert torch.equal(model(**alone, **mask).logits, model(**alone).logits)


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_encoder_outputs_of_every_form_are_decoded(family):
    """A tuple and a plain BaseModelOutput, whose position 0 is the embedding in every family."""
    model = filled(family)
    inputs = padded(model=model)
    options = {"target_language": "en", "attention_mask": inputs["attention_mask"]}
    generation = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    states = model.get_encoder()(**inputs).last_hidden_state
    read = torch.tensor([[0, 12, 13]] * 4)
    forms = ((states,), BaseModelOutput(last_hidden_state=states))
    if family.startswith("ntdv"):
        for form in forms:
            for call in (model, model.generate):
                with pytest.raises(ValueError, match="decodes from the outputs of its encoder"):
                    call(encoder_outputs=form, decoder_input_ids=read, **options)
        return
    logits = model(**inputs, target_language="en", decoder_input_ids=read).logits
    written = model.generate(**inputs, target_language="en", **generation)
    beams = model.generate(**inputs, target_language="en", num_beams=3, **generation)
    for form in forms:
        found = model(encoder_outputs=form, decoder_input_ids=read, **options).logits
        torch.testing.assert_close(found, logits)
        assert torch.equal(model.generate(encoder_outputs=form, **options, **generation), written)
        found = model.generate(encoder_outputs=form, num_beams=3, **options, **generation)
        assert torch.equal(found, beams)


@pytest.mark.parametrize("family", ["first", "full", "dual", "adapted-cls"])
def test_a_static_cache_compiles_and_gives_the_same_tokens(family):
    model = filled(family)
    options = {
        "target_language": "en",
        "max_new_tokens": 6,
        "do_sample": False,
        "eos_token_id": None,
    }
    expected = model.generate(**padded(), **options)
    options["cache_implementation"] = "static"
    assert torch.equal(model.generate(**padded(), **options), expected)
    compiled = CompileConfig(backend="eager", fullgraph=True)
    compiled._compile_all_devices = True  # by default, `generate` compiles on accelerators only
    assert torch.equal(model.generate(**padded(), compile_config=compiled, **options), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("family", ["first", "full", "adapted-cls"])
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
    options = {
        "target_language": "en",
        "max_new_tokens": 130,
        "do_sample": False,
        "eos_token_id": None,
    }
    with pytest.raises(ValueError, match=r"129 tokens .* max_position_embeddings=128"):
        model.generate(**padded(), cache_implementation="static", **options)


@pytest.mark.parametrize("family", ["first", "full", "adapted-cls"])
def test_assisted_generation_returns_attentions(family):
    model = filled(family)
    model.set_attn_implementation("eager")
    inputs = {name: value[:1] for name, value in padded().items()}
    options = {
        "target_language": "en",
        "max_new_tokens": 4,
        "do_sample": False,
        "eos_token_id": None,
    }
    more = {"assistant_model": model, "output_attentions": True, "return_dict_in_generate": True}
    found = model.generate(**inputs, **options, **more)
    assert (
        torch.equal(found.sequences, model.generate(**inputs, **options))
        and found.decoder_attentions
    )


@pytest.mark.parametrize("family", ["first", "pyramid", "dual", "laser", "adapted-mean"])
def test_an_embedding_alone_is_decoded(family):
    model = filled(family)
    options = {"target_language": "de", "max_new_tokens": 6, "do_sample": False}
    embedding = model.get_encoder()(**padded()).pooler_output
    only = {"bottleneck_only": True} if family == "dual" else {}
    expected = model.generate(**padded(), **options, **only)
    assert torch.equal(model.generate(encoder_outputs=embedding, **options), expected)


def test_what_cannot_be_decoded_is_named():
    model, ntdv = filled("first"), filled("ntdv")
    for target_language, message in (
        (None, "target_language is missing"),
        ("nl", r"'nl' is unknown .*'de', 'en'"),
        (["en"], "1 languages for 4 texts"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**padded(), labels=torch.tensor(LABELS), target_language=target_language)
    with pytest.raises(ValueError, match="Give input_ids to translate, or encoder_outputs"):
        model.generate(target_language="en")
    with pytest.raises(ValueError, match="Give decoder_input_ids, or labels"):
        model(**padded(), target_language="en")
    with pytest.raises(
        ValueError, match=r"NtdvForConditionalGeneration decodes from the outputs .*\(4, 8\)"
    ):
        ntdv.generate(encoder_outputs=torch.zeros(4, 8), target_language="en")
