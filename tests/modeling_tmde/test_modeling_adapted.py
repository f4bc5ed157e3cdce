"""T-MDE on encoders of the Hub: their outputs pooled and no more, its decoder, and checkpoints that stand alone."""

import copy

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    XLMRobertaConfig,
)

from modeling_tmde import AdaptedConfig, AdaptedForConditionalGeneration, AdaptedModel
from modeling_tmde.inspection import position_limit
from tests.conftest import make_rows
from tests.hub_encoders import SIZES, adapt_encoder, save_encoder
from tests.modeling_tmde.families import padded
from tmde import DocumentEmbedder
from tmde.training.starts.hub_encoders import prompt_settings

KINDS = ("bert", "distilbert", "xlm-roberta", "modernbert", "t5")
POOLINGS = ("cls", "mean")
TEXTS = ["haus", "house dog tree river town", *[row["fr"] for row in make_rows(6, seed=3)]]
LANGUAGES = ["de", "en", "fr"]
ROWS = [[0, 7, 8, 9, 2], [0, 12, 2]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: str(save_encoder(root / kind, kind)) for kind in KINDS}


def adapted(folder: str, **settings) -> AdaptedForConditionalGeneration:
    torch.manual_seed(1)
    options = {"languages": LANGUAGES, "pivot_languages": ["en"], "dropout": 0.0} | settings
    return adapt_encoder(folder, **options).eval()


def small(kind: type = BertConfig, **changes) -> AdaptedConfig:
    encoder = kind(**SIZES | {"vocab_size": 40, "max_position_embeddings": 20})
    return AdaptedConfig(
        encoder_config=encoder, **{"languages": LANGUAGES, "pivot_languages": ["en"]} | changes
    )


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_begins_as_the_bare_encoder(kind, pooling, prompted, folders):
    tokenizer = AutoTokenizer.from_pretrained(folders[kind])
    bare = AutoModel.from_pretrained(folders[kind])
    prompt = (
        ("hund." if kind == "modernbert" else "hund. ") if prompted else ""
    )  # its tokenizer keeps spaces
    expected = DocumentEmbedder(bare, tokenizer, pooling=pooling, prompt=prompt).encode(TEXTS)
    settings = {"pooling": pooling, **prompt_settings(prompt, tokenizer)}
    embedder = DocumentEmbedder(adapted(folders[kind], **settings), tokenizer)
    assert embedder.pooling == "cls"  # position 0 is the embedding in every variant
    found = embedder.encode(TEXTS)
    assert found.shape == (len(TEXTS), 32) and abs(found).max() > 0.01
    assert abs(found - expected).max() < 1e-5 * max(1, abs(expected).max())
    for change in (
        {"pooling": POOLINGS[pooling == "cls"]},
        prompt_settings("haus haus " * (not prompted), tokenizer),
    ):
        other = adapted(folders[kind], **settings | change)
        assert abs(DocumentEmbedder(other, tokenizer).encode(TEXTS) - expected).max() > 1e-3


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_prompt_counts_in_the_length_and_is_in_no_other_output(kind, pooling, folders):
    tokenizer = AutoTokenizer.from_pretrained(folders[kind])
    settings = prompt_settings("hund katze: ", tokenizer)
    whole, number = adapted(folders[kind], pooling=pooling, **settings), len(settings["prompt_ids"])
    model = whole.model
    assert position_limit(model) == {"bert": 62 - number, "t5": 2048}[kind]
    outputs = {}
    for side in ("right", "left"):
        tokenizer.padding_side = side
        inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
        outputs[side] = model(**inputs, output_hidden_states=True)
    torch.testing.assert_close(outputs["left"].pooler_output, outputs["right"].pooler_output)
    shape = (*inputs["input_ids"].shape, 32)
    assert {state.shape for state in outputs["left"].hidden_states} == {shape}
    assert outputs["left"].last_hidden_state.shape == (
        shape if pooling == "cls" else (len(TEXTS), 1, 32)
    )
    labels = tokenizer(TEXTS[:1], return_tensors="pt")[
        "input_ids"
    ]  # the decoder's texts have no prompt
    loss = whole(
        **tokenizer(TEXTS[:1], return_tensors="pt"), labels=labels, target_language="en"
    ).loss
    again = whole(
        encoder_outputs=model(labels).pooler_output, labels=labels, target_language="en"
    ).loss
    assert loss.item() == pytest.approx(again.item())
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    torch.testing.assert_close(model(**inputs).pooler_output, outputs["left"].pooler_output)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("prompt", [(), (5, 6)])
def test_hidden_states_of_some_layers(prompt, side):
    model = AdaptedModel(small(prompt_ids=list(prompt) or None)).eval()
    inputs = padded(ROWS, side)
    every = model(**inputs, output_hidden_states=True).hidden_states
    some = model(**inputs, output_hidden_states=[0, 2]).hidden_states
    assert [state is not None for state in some] == [index in (0, 2) for index in range(len(every))]
    for index in (0, 2):
        assert torch.equal(some[index], every[index])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("masked", [True, False])
def test_the_gradient_of_the_embedding_reaches_the_hidden_states(masked, pooling):
    model = AdaptedModel(small(pooling=pooling)).eval()
    inputs = padded(ROWS) if masked else {"input_ids": torch.tensor([[0, 7, 8, 2]])}
    outputs = model(**inputs, output_hidden_states=True)
    gradients = torch.autograd.grad(outputs.pooler_output.square().sum(), outputs.hidden_states)
    assert len(gradients) == 1 + model.encoder.config.num_hidden_layers
    assert all(gradient.any() for gradient in gradients)


def test_positions_without_a_vector_are_named():
    ids = torch.tensor([[0, 7, 2]])
    position_ids = torch.tensor([[0, 1, 20]])
    with pytest.raises(ValueError, match="position_ids: found 20, expected 0 to 19"):
        AdaptedModel(small())(ids, position_ids=position_ids)
    with pytest.raises(
        ValueError, match=r"position_ids: found \(1, 3\), expected none, because the prompt"
    ):
        AdaptedModel(small(prompt_ids=[5]))(ids, position_ids=position_ids)


# ---- The decoder


@pytest.mark.parametrize("factor", [1.0, 50.0])
def test_a_shared_table_of_any_size_begins_as_one_of_tmde(factor, folders):
    model = adapted(folders["xlm-roberta"])
    encoder = copy.deepcopy(model.model.encoder)
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight *= factor
    model.take_encoder(encoder)
    decoder, table = model.decoder, model.get_input_embeddings().weight
    assert torch.equal(table, encoder.embeddings.word_embeddings.weight)
    assert decoder.embed_tokens.weight is model.lm_head.weight is table
    ids = torch.arange(4, 64)[None]
    entered = decoder.embed_tokens(ids) * decoder.embed_scale
    assert float(entered.square().mean().sqrt()) == pytest.approx(1, abs=0.15)
    hidden = decoder(ids, torch.zeros(1, 32), torch.tensor([0])).last_hidden_state
    assert float(model.lm_head(hidden).square().mean().sqrt()) == pytest.approx(1, abs=0.35)
    assert model.config.decoder_embedding_scale == decoder.embed_scale


def test_tables_are_shared_where_widths_fit():
    narrow = AlbertConfig(**SIZES, embedding_size=16, vocab_size=40, max_position_embeddings=20)
    with pytest.raises(ValueError, match="table has 16 columns and the decoder 32"):
        AdaptedForConditionalGeneration(AdaptedConfig(encoder_config=narrow, share_embeddings=True))
    shared, apart = (
        AdaptedForConditionalGeneration(small(share_embeddings=choice)) for choice in (None, False)
    )
    assert shared.decoder.embed_tokens.weight is shared.lm_head.weight
    assert apart.decoder.embed_tokens.weight is not apart.lm_head.weight


# ---- Settings


def test_longest_input(folders):
    limits = {kind: position_limit(adapted(folders[kind]).model) for kind in KINDS}
    assert limits == dict.fromkeys(KINDS, 62) | {"t5": 2048}
    tokenizer = AutoTokenizer.from_pretrained(folders["xlm-roberta"])
    model = adapted(folders["xlm-roberta"], max_position_embeddings=30)
    assert DocumentEmbedder(model, tokenizer).max_length == 30
    with pytest.raises(
        ValueError, match="max_position_embeddings=63 is more than the 62 tokens .*'xlm-roberta'"
    ):
        adapted(folders["xlm-roberta"], max_position_embeddings=63)


def test_an_encoder_decoder_whose_encoder_does_not_stand_alone():
    with pytest.raises(ValueError, match="no encoder by itself for models of type 'bart'"):
        AdaptedModel(AdaptedConfig(encoder_config=BartConfig(d_model=32, vocab_size=40)))


def test_a_config_keeps_every_setting_of_its_encoder(tmp_path):
    """Also those that are the default of another encoder."""
    encoder = BertConfig(
        **SIZES | {"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1}
    )
    AdaptedConfig(encoder_config=encoder, pooling="mean").save_pretrained(tmp_path)
    loaded = AdaptedConfig.from_pretrained(tmp_path)
    assert type(loaded.encoder_config) is BertConfig
    assert loaded.encoder_config.to_dict() == encoder.to_dict()
    assert (loaded.d_model, loaded.hidden_size, loaded.vocab_size, loaded.pooling) == (
        32,
        32,
        250002,
        "mean",
    )
    assert type(AdaptedConfig().encoder_config) is XLMRobertaConfig
