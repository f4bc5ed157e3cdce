"""T-MDE on encoders of the Hub: their outputs pooled and no more, and T-MDE's decoder."""

import copy

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    CamembertConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from modeling_tmde import (
    AdaptedConfig,
    AdaptedForConditionalGeneration,
    AdaptedModel,
)
from modeling_tmde.inspection import position_limit
from tests.conftest import make_rows
from tests.hub_encoders import SIZES, adapt_encoder, save_encoder
from tests.modeling_tmde.families import padded
from tmde import DocumentEmbedder
from tmde.training.starts.hub_encoders import prompt_settings

KINDS = ("bert", "distilbert", "xlm-roberta", "modernbert", "t5")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
EVERY_POOLING = pytest.mark.parametrize("pooling", ["cls", "mean"])
EVERY_SIDE = pytest.mark.parametrize("side", ["left", "right"])
TEXTS = ["haus", "house dog tree river town", *[row["fr"] for row in make_rows(6, seed=3)]]
LANGUAGES = {"languages": ["de", "en", "fr"], "pivot_languages": ["en"]}
ROWS = [[0, 7, 8, 9, 2], [0, 12, 2]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: str(save_encoder(root / kind, kind)) for kind in KINDS}


def adapted(folder: str, **settings) -> AdaptedForConditionalGeneration:
    torch.manual_seed(1)
    options = LANGUAGES | {"dropout": 0.0} | settings
    return adapt_encoder(folder, **options).eval()


def small(**changes) -> AdaptedConfig:
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = BertConfig(**SIZES, **no_dropout, vocab_size=40, max_position_embeddings=20)
    return AdaptedConfig(encoder_config=encoder, **LANGUAGES | changes)


# ---- The encoder


def embedder_of(folder, tokenizer, pooling, prompt):
    settings = prompt_settings(prompt, tokenizer)
    return DocumentEmbedder(adapted(folder, pooling=pooling, **settings), tokenizer)


def a_prompt(kind):
    # The tokenizer of ModernBERT keeps spaces.
    return "hund." if kind == "modernbert" else "hund. "


@pytest.mark.parametrize("prompted", [False, True])
@EVERY_POOLING
@EVERY_KIND
def test_it_begins_as_the_bare_encoder(kind, pooling, prompted, folders):
    tokenizer = AutoTokenizer.from_pretrained(folders[kind])
    bare = AutoModel.from_pretrained(folders[kind])
    prompt = a_prompt(kind) if prompted else ""
    expected = DocumentEmbedder(bare, tokenizer, pooling=pooling, prompt=prompt).encode(TEXTS)

    embedder = embedder_of(folders[kind], tokenizer, pooling, prompt)
    vectors = embedder.encode(TEXTS)

    assert embedder.pooling == "cls"  # Position 0 is the embedding in every variant.
    assert vectors.shape == (len(TEXTS), 32)
    assert abs(vectors).max() > 0.01
    assert abs(vectors - expected).max() < 1e-5 * max(1, abs(expected).max())


@EVERY_KIND
def test_pooling_and_prompt_change_the_vectors(kind, folders):
    tokenizer = AutoTokenizer.from_pretrained(folders[kind])
    vectors = embedder_of(folders[kind], tokenizer, "cls", "").encode(TEXTS)
    mean_vectors = embedder_of(folders[kind], tokenizer, "mean", "").encode(TEXTS)
    prompted_vectors = embedder_of(folders[kind], tokenizer, "cls", "haus haus ").encode(TEXTS)
    assert abs(mean_vectors - vectors).max() > 1e-3
    assert abs(prompted_vectors - vectors).max() > 1e-3


@EVERY_POOLING
def test_pooled_only_gives_the_embedding_alone(pooling):
    model = AdaptedModel(small(pooling=pooling, prompt_ids=[5, 6])).eval()
    expected = model(**padded(ROWS, "left"))
    outputs = model(**padded(ROWS, "left"), pooled_only=True)
    torch.testing.assert_close(outputs.pooler_output, expected.pooler_output)
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])


def gradients_of(model, pooled_only):
    model.zero_grad()
    outputs = model(**padded(ROWS, "left"), pooled_only=pooled_only)
    outputs.pooler_output.pow(3).sum().backward()
    named = model.named_parameters()
    return {name: weight.grad.clone() for name, weight in named if weight.grad is not None}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_the_last_layer_is_computed_for_the_embedding_alone(kind, implementation, folders):
    model = adapted(folders[kind], pooling="cls").model
    model.set_attn_implementation(implementation)
    expected = gradients_of(model, pooled_only=False)
    num_places = []

    def count(module, inputs, output):
        num_places.append(inputs[0].shape[1])

    for layer in model.encoder.encoder.layer:
        layer.intermediate.register_forward_hook(count)
    gradients = gradients_of(model, pooled_only=True)

    assert num_places[-1] == 1
    assert num_places[:-1] == [len(ROWS[0])] * (len(num_places) - 1)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


@pytest.mark.parametrize(
    ("settings", "options"),
    [({"pooling": "mean"}, {}), ({"pooling": "cls"}, {"output_hidden_states": True})],
)
def test_states_that_are_needed_are_computed_at_all_places(settings, options):
    model = AdaptedModel(small(**settings)).eval()
    num_places = []
    last_layer = model.encoder.encoder.layer[-1]
    last_layer.register_forward_hook(lambda *call: num_places.append(call[2].shape[1]))
    model(**padded(ROWS), pooled_only=True, **options)
    assert num_places == [len(ROWS[0])]


@pytest.mark.parametrize("config_class", [RobertaConfig, CamembertConfig])
def test_encoders_with_the_layers_of_bert(config_class):
    encoder = config_class(**SIZES, vocab_size=40, max_position_embeddings=20)
    model = AdaptedModel(AdaptedConfig(encoder_config=encoder, pooling="cls", **LANGUAGES)).eval()
    num_places = []
    last_layer = model.encoder.encoder.layer[-1]
    last_layer.register_forward_hook(lambda *call: num_places.append(call[2].shape[1]))
    expected = model(**padded(ROWS)).pooler_output
    torch.testing.assert_close(model(**padded(ROWS), pooled_only=True).pooler_output, expected)
    assert num_places == [len(ROWS[0]), 1]


def test_gradient_checkpointing_keeps_the_embedding():
    model = AdaptedModel(small(pooling="cls")).train()
    expected = gradients_of(model, pooled_only=True)
    model.gradient_checkpointing_enable()
    for name, gradient in gradients_of(model, pooled_only=True).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


# ---- Prompts


@pytest.fixture(params=["bert", "t5"])
def prompted(request, folders):
    """A function that makes a model with a prompt; its tokenizer, and the prompt's length."""
    tokenizer = AutoTokenizer.from_pretrained(folders[request.param])
    settings = prompt_settings("hund katze: ", tokenizer)

    def make(**options):
        return adapted(folders[request.param], **settings, **options)

    return make, tokenizer, len(settings["prompt_ids"])


def tokenized(tokenizer, side="right"):
    tokenizer.padding_side = side
    return dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))


def test_a_prompt_counts_in_the_longest_input(prompted):
    make, tokenizer, prompt_length = prompted
    model = make().model
    expected = 2048 if model.config.encoder_config.model_type == "t5" else 62 - prompt_length
    assert position_limit(model) == expected


@EVERY_POOLING
def test_a_prompt_is_in_no_other_output(prompted, pooling):
    make, tokenizer, _ = prompted
    model = make(pooling=pooling).model
    inputs = tokenized(tokenizer, "left")

    outputs = model(**inputs, output_hidden_states=True)

    shape = (*inputs["input_ids"].shape, 32)
    assert {state.shape for state in outputs.hidden_states} == {shape}
    expected = shape if pooling == "cls" else (len(TEXTS), 1, 32)
    assert outputs.last_hidden_state.shape == expected


@EVERY_POOLING
def test_a_prompt_stands_behind_padding_on_the_left(prompted, pooling):
    make, tokenizer, _ = prompted
    model = make(pooling=pooling).model
    left = model(**tokenized(tokenizer, "left")).pooler_output
    right = model(**tokenized(tokenizer, "right")).pooler_output
    torch.testing.assert_close(left, right)


@EVERY_POOLING
def test_vectors_in_place_of_ids_are_prompted(prompted, pooling):
    make, tokenizer, _ = prompted
    model = make(pooling=pooling).model
    inputs = tokenized(tokenizer)
    expected = model(**inputs).pooler_output
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    torch.testing.assert_close(model(**inputs).pooler_output, expected)


@EVERY_POOLING
def test_the_texts_of_the_decoder_have_no_prompt(prompted, pooling):
    make, tokenizer, _ = prompted
    whole = make(pooling=pooling)
    source = tokenizer(TEXTS[:1], return_tensors="pt")
    target = {"labels": source["input_ids"], "target_language": "en"}
    loss = whole(**source, **target).loss
    embedding = whole.model(source["input_ids"]).pooler_output
    assert loss.item() == pytest.approx(whole(encoder_outputs=embedding, **target).loss.item())


# ---- Hidden states and positions


@EVERY_SIDE
@pytest.mark.parametrize("prompt_ids", [None, [5, 6]])
def test_hidden_states_of_some_layers(prompt_ids, side):
    model = AdaptedModel(small(prompt_ids=prompt_ids)).eval()
    inputs = padded(ROWS, side)
    every_state = model(**inputs, output_hidden_states=True).hidden_states
    some_states = model(**inputs, output_hidden_states=[0, 2]).hidden_states
    assert [state is not None for state in some_states] == [True, False, True]
    assert torch.equal(some_states[0], every_state[0])
    assert torch.equal(some_states[2], every_state[2])


@EVERY_POOLING
@pytest.mark.parametrize("masked", [True, False])
def test_the_gradient_of_the_embedding_reaches_the_hidden_states(masked, pooling):
    model = AdaptedModel(small(pooling=pooling)).eval()
    inputs = padded(ROWS) if masked else {"input_ids": torch.tensor([[0, 7, 8, 2]])}
    outputs = model(**inputs, output_hidden_states=True)
    gradients = torch.autograd.grad(outputs.pooler_output.square().sum(), outputs.hidden_states)
    assert len(gradients) == 1 + model.encoder.config.num_hidden_layers
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(
    ("prompt_ids", "message"),
    [
        (None, "position_ids: found 20, expected 0 to 19"),
        ([5], r"position_ids: found \(1, 3\), expected none, because this model's prompt"),
    ],
)
def test_positions_without_a_vector_are_named(prompt_ids, message):
    model = AdaptedModel(small(prompt_ids=prompt_ids))
    with pytest.raises(ValueError, match=message):
        model(torch.tensor([[0, 7, 2]]), position_ids=torch.tensor([[0, 1, 20]]))


# ---- The decoder


@pytest.fixture(params=[1.0, 50.0], ids=["small table", "large table"])
def scaled(request, folders):
    """A model that took an encoder whose table is of another size, and the table."""
    model = adapted(folders["xlm-roberta"])
    encoder = copy.deepcopy(model.model.encoder)
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight *= request.param
    model.take_encoder(encoder)
    return model, encoder.embeddings.word_embeddings.weight


def root_mean_square(tensor: torch.Tensor) -> float:
    return tensor.square().mean().sqrt().item()


def test_an_encoder_brings_its_table(scaled):
    model, table = scaled
    assert torch.equal(model.get_input_embeddings().weight, table)
    assert model.decoder.embed_tokens.weight is model.get_input_embeddings().weight
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_a_shared_table_of_any_size_begins_as_one_of_tmde(scaled):
    model, _ = scaled
    decoder = model.decoder
    ids = torch.arange(4, 64)[None]
    entered = decoder.embed_tokens(ids) * decoder.embed_scale
    hidden = decoder(ids, torch.zeros(1, 32), torch.tensor([0])).last_hidden_state
    assert root_mean_square(entered) == pytest.approx(1, abs=0.15)
    assert root_mean_square(model.lm_head(hidden)) == pytest.approx(1, abs=0.35)
    assert model.config.decoder_embedding_scale == decoder.embed_scale


def test_tables_of_different_widths_cannot_be_shared():
    narrow = AlbertConfig(**SIZES, embedding_size=16, vocab_size=40, max_position_embeddings=20)
    config = AdaptedConfig(encoder_config=narrow, share_embeddings=True)
    with pytest.raises(ValueError, match="table has 16 columns and the decoder 32"):
        AdaptedForConditionalGeneration(config)


@pytest.mark.parametrize(("share_embeddings", "is_shared"), [(None, True), (False, False)])
def test_tables_are_shared_where_widths_fit(share_embeddings, is_shared):
    model = AdaptedForConditionalGeneration(small(share_embeddings=share_embeddings))
    assert (model.decoder.embed_tokens.weight is model.lm_head.weight) == is_shared


# ---- Settings


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_input_is_that_of_the_encoder(kind, folders):
    expected = 2048 if kind == "t5" else 62
    assert position_limit(adapted(folders[kind]).model) == expected


def test_a_shorter_longest_input_is_kept(folders):
    tokenizer = AutoTokenizer.from_pretrained(folders["xlm-roberta"])
    model = adapted(folders["xlm-roberta"], max_position_embeddings=30)
    assert DocumentEmbedder(model, tokenizer).max_length == 30


def test_a_longer_longest_input_is_refused(folders):
    with pytest.raises(
        ValueError, match="max_position_embeddings=63 exceeds the 62 positions .*'xlm-roberta'"
    ):
        adapted(folders["xlm-roberta"], max_position_embeddings=63)


def test_an_encoder_decoder_whose_encoder_does_not_stand_alone():
    with pytest.raises(ValueError, match="no separate encoder for models of type 'bart'"):
        AdaptedModel(AdaptedConfig(encoder_config=BartConfig(d_model=32, vocab_size=40)))


def test_a_config_keeps_every_setting_of_its_encoder(tmp_path):
    """Settings that are the default of another encoder are kept, too."""
    encoder = BertConfig(**SIZES, vocab_size=250002, max_position_embeddings=514, type_vocab_size=1)
    AdaptedConfig(encoder_config=encoder, pooling="mean").save_pretrained(tmp_path)

    loaded = AdaptedConfig.from_pretrained(tmp_path)

    assert type(loaded.encoder_config) is BertConfig
    assert loaded.encoder_config.to_dict() == encoder.to_dict()
    assert loaded.d_model == 32
    assert loaded.hidden_size == 32
    assert loaded.vocab_size == 250002
    assert loaded.pooling == "mean"


def test_the_default_encoder_is_xlm_roberta():
    assert type(AdaptedConfig().encoder_config) is XLMRobertaConfig


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ({"model_type": "unheard-of"}, "names model_type='unheard-of', which the installed"),
        ({"model_type": "clip"}, "found a model of type 'clip' without vocab_size"),
    ],
)
def test_an_encoder_that_cannot_be_read_is_named(encoder, message):
    with pytest.raises(ValueError, match=message):
        AdaptedConfig(encoder_config=encoder)
