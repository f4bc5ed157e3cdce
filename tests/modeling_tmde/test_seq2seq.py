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

from tests.conftest import tiny_model
from tests.modeling_tmde.families import ROWS, SEQ2SEQ, filled, needs_language, padded

LABELS = [[12, 13, 44, 2, -100], [14, 2, -100, -100, -100], [15, 16, 17, 18, 2], [19, 2, -100, -100, -100]]
TEXTS = ["haus hund", "katze", "baum fluss stadt"]
TARGETS = ["house dog", "cat", "tree river town"]


def loss_by_hand(model, rows: list[list[int]], labels: list[list[int]], smoothing: float = 0.0, **options) -> float:
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
        assert outputs.loss.item() == pytest.approx(loss_by_hand(model, ROWS, LABELS, **given), rel=1e-4)
    scaled = model(**inputs, labels=labels, target_language="en", num_items_in_batch=10, **options).loss
    torch.testing.assert_close(scaled, outside * 13 / 10)
    padded_with_pad = labels.masked_fill(labels == -100, 1)
    torch.testing.assert_close(model(**inputs, labels=padded_with_pad, target_language="en", **options).loss, outside)
    begun = nn.functional.pad(labels, (1, 0), value=0)  # with <s>, as a tokenizer writes them
    torch.testing.assert_close(model(**inputs, labels=begun, target_language="en", **options).loss, outside)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_tokenizer_collator_and_trainer_of_transformers_train_on_the_right_tokens(smoothing, tokenizer, tmp_path):
    """A plain `tokenizer(text, text_target=...)` through DataCollatorForSeq2Seq and Seq2SeqTrainer."""
    model = tiny_model()
    english = model.config.languages.index("en")
    features = [
        dict(tokenizer(text, text_target=target)) | {"target_language": english}
        for text, target in zip(TEXTS, TARGETS, strict=True)
    ]
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    batch = collator([dict(feature) for feature in features])
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    labels = [tokenizer(target)["input_ids"][1:] for target in TARGETS]
    assert batch["decoder_input_ids"][:, 0].tolist() == [0, 0, 0] and batch["labels"][0, 0] == labels[0][0]
    options = Seq2SeqTrainingArguments(
        str(tmp_path), label_smoothing_factor=smoothing, report_to="none", use_cpu=True, save_strategy="no"
    )
    trainer = Seq2SeqTrainer(model, options, data_collator=collator, train_dataset=features)
    loss = trainer.compute_loss(model, collator([dict(feature) for feature in features]))
    assert loss.item() == pytest.approx(loss_by_hand(model, rows, labels, smoothing), rel=1e-4)
    plain = tokenizer(TEXTS, text_target=TARGETS, return_tensors="pt", padding=True)
    expected = loss_by_hand(model, rows, labels)
    assert model(**plain, target_language="en").loss.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_parts_have_the_names_of_transformers(family):
    model = filled(family)
    assert model.get_encoder() is model.model and model.get_decoder() is model.decoder
    assert model.get_encoder("image") is model and model.get_encoder(modality="audio") is model
    assert model.get_input_embeddings() is model.model.get_input_embeddings()
    assert model.get_output_embeddings() is model.lm_head and model.model.get_output_embeddings() is None


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
        outputs = model(**padded(), labels=torch.tensor(LABELS), target_language="en", output_hidden_states=True)
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
        assert torch.equal(model.generate(**inputs, target_language=codes, use_cache=use_cache, **options), written)
    encoded = model.get_encoder()(**inputs)
    mask = {"attention_mask": inputs["attention_mask"]}
    assert torch.equal(model.generate(encoder_outputs=encoded, target_language=codes, **mask, **options), written)
    if not family.startswith("ntdv"):
        states = (encoded.last_hidden_state,)
        found = model(encoder_outputs=states, decoder_input_ids=written, target_language=codes, **mask).logits
        assert torch.equal(found[:, :-1].argmax(-1), written[:, 1:])
        alone = {"encoder_outputs": encoded.pooler_output, "decoder_input_ids": written, "target_language": codes}
        assert torch.equal(model(**alone, **mask).logits, model(**alone).logits)


@pytest.mark.parametrize("family", ["first", "full", "dual", "adapted-cls"])
def test_a_static_cache_compiles_and_gives_the_same_tokens(family):
    model = filled(family)
    options = {"target_language": "en", "max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
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
    options = {"target_language": "en", "max_new_tokens": 130, "do_sample": False, "eos_token_id": None}
    with pytest.raises(ValueError, match=r"129 tokens .* max_position_embeddings=128"):
        model.generate(**padded(), cache_implementation="static", **options)


@pytest.mark.parametrize("family", ["first", "full", "adapted-cls"])
def test_assisted_generation_returns_attentions(family):
    model = filled(family)
    model.set_attn_implementation("eager")
    inputs = {name: value[:1] for name, value in padded().items()}
    options = {"target_language": "en", "max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    more = {"assistant_model": model, "output_attentions": True, "return_dict_in_generate": True}
    found = model.generate(**inputs, **options, **more)
    assert torch.equal(found.sequences, model.generate(**inputs, **options)) and found.decoder_attentions


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
    with pytest.raises(ValueError, match=r"NtdvForConditionalGeneration decodes from the outputs .*\(4, 8\)"):
        ntdv.generate(encoder_outputs=torch.zeros(4, 8), target_language="en")
