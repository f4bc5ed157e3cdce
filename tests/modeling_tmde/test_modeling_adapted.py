"""T-MDE on encoders of the Hub: their outputs pooled and no more, its decoder, and checkpoints that stand alone."""

import copy
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    PreTrainedModel,
    XLMRobertaConfig,
)

from modeling_tmde import AdaptedConfig, AdaptedForConditionalGeneration, AdaptedModel, DocumentEmbedder
from modeling_tmde.embedding import position_limit
from tests.conftest import make_rows
from tests.hub_encoders import SIZES, adapt_encoder, save_encoder

KINDS = ("bert", "distilbert", "xlm-roberta", "modernbert", "t5")
POOLINGS = ("cls", "mean")
TEXTS = ["haus", "house dog tree river town", *[row["fr"] for row in make_rows(6, seed=3)]]
LANGUAGES = ["de", "en", "fr"]


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
    return AdaptedConfig(encoder_config=encoder, **{"languages": LANGUAGES, "pivot_languages": ["en"]} | changes)


class Fixed(PreTrainedModel):
    """An encoder whose outputs are given."""

    config_class = BertConfig

    def __init__(self, states: torch.Tensor):
        super().__init__(BertConfig(**SIZES))
        self.states = states

    def forward(self, **kwargs):
        return SimpleNamespace(last_hidden_state=self.states, get=lambda name: None)


# ---- What it computes


def test_pooling_by_hand():
    model = AdaptedModel(small()).eval()
    states = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [100.0, torch.nan]], [[0.0, 4.0], [torch.inf, 7.0], [4.0, 8.0]]])
    model.encoder = Fixed(states)
    ids, mask = torch.ones(2, 3, dtype=torch.long), torch.tensor([[1, 1, 0], [1, 0, 1]])
    model.config.pooling = "mean"
    outputs = model(ids, mask)
    assert outputs.pooler_output.tolist() == [[2.0, 4.0], [2.0, 6.0]]
    assert outputs.last_hidden_state.tolist() == [[[2.0, 4.0]], [[2.0, 6.0]]]
    model.config.pooling = "cls"
    outputs = model(ids, mask)
    assert outputs.pooler_output.tolist() == [[1.0, 2.0], [0.0, 4.0]]
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)
    assert torch.equal(outputs.last_hidden_state[:, 1], states[:, 1])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_begins_as_the_bare_encoder(kind, pooling, folders):
    tokenizer = AutoTokenizer.from_pretrained(folders[kind])
    bare = AutoModel.from_pretrained(folders[kind])
    expected = DocumentEmbedder(bare, tokenizer, pooling=pooling).encode(TEXTS)
    embedder = DocumentEmbedder(adapted(folders[kind], pooling=pooling), tokenizer)
    assert embedder.pooling == "cls"  # position 0 is the embedding in every variant
    found = embedder.encode(TEXTS)
    assert found.shape == (len(TEXTS), 32) and abs(found).max() > 0.01
    assert abs(found - expected).max() < 1e-5 * max(1, abs(expected).max())
    other = adapted(folders[kind], pooling=POOLINGS[pooling == "cls"])
    assert abs(DocumentEmbedder(other, tokenizer).encode(TEXTS) - expected).max() > 1e-3


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_does_not_depend_on_padding_or_batch(kind, pooling, folders):
    model, tokenizer = adapted(folders[kind], pooling=pooling), AutoTokenizer.from_pretrained(folders[kind])
    with torch.no_grad():
        alone = torch.cat([model.model(**tokenizer(text, return_tensors="pt")).pooler_output for text in TEXTS])
        for order in (range(len(TEXTS)), [5, 0, 1, 7], [2]):
            texts = [TEXTS[place] for place in order]
            for padding in ({"padding": True}, {"padding": "max_length", "max_length": 60}):
                outputs = model.model(**tokenizer(texts, return_tensors="pt", **padding))
                assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)
                torch.testing.assert_close(outputs.pooler_output, alone[list(order)], atol=1e-5, rtol=0)


# ---- The decoder


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_loss_of_labels_is_that_of_every_token_by_hand(kind, folders):
    model, tokenizer = adapted(folders[kind]), AutoTokenizer.from_pretrained(folders[kind])
    inputs, labels = (tokenizer(texts, return_tensors="pt", padding=True) for texts in (TEXTS[:2], TEXTS[2:4]))
    loss = model(**inputs, labels=labels["input_ids"], target_language=["en", "fr"]).loss
    begin, parts = model.config.bos_token_id, []
    for row, language in enumerate(["en", "fr"]):
        ids = labels["input_ids"][row][labels["attention_mask"][row] == 1].tolist()
        ids = ids if kind != "t5" else [begin, *ids]
        assert ids[0] == begin and ids[-1] == model.config.eos_token_id
        source = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        for place in range(1, len(ids)):
            read = torch.tensor([ids[:place]])
            logits = model(**source, decoder_input_ids=read, target_language=language).logits[0, -1]
            parts.append(-logits.double().log_softmax(-1)[ids[place]])
    torch.testing.assert_close(loss.double(), torch.stack(parts).mean(), atol=1e-5, rtol=0)


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
    model = AdaptedForConditionalGeneration(AdaptedConfig(encoder_config=narrow))
    assert model.config.share_embeddings is False and model.decoder.embed_tokens.weight is not model.lm_head.weight
    assert AdaptedForConditionalGeneration(small()).config.share_embeddings is True
    apart = AdaptedForConditionalGeneration(small(share_embeddings=False))
    assert len({id(table.weight) for table in (apart.decoder.embed_tokens, apart.lm_head)}) == 2


# ---- Settings


def test_longest_input(folders):
    assert {kind: position_limit(adapted(folders[kind]).model) for kind in KINDS} == dict.fromkeys(KINDS, 62) | {
        "t5": 2048
    }
    tokenizer = AutoTokenizer.from_pretrained(folders["xlm-roberta"])
    model = adapted(folders["xlm-roberta"], max_position_embeddings=30)
    assert DocumentEmbedder(model, tokenizer).max_length == 30
    tokenizer.model_max_length = 10**30
    embedder = DocumentEmbedder(adapted(folders["xlm-roberta"]), tokenizer, max_length=100)
    assert embedder.max_length == 62 and embedder.encode("haus " * 100).shape == (32,)
    with pytest.raises(ValueError, match="max_position_embeddings=63 is more than the 62 tokens .*'xlm-roberta'"):
        adapted(folders["xlm-roberta"], max_position_embeddings=63)


def test_an_encoder_decoder_whose_encoder_does_not_stand_alone():
    with pytest.raises(ValueError, match="no encoder by itself for models of type 'bart'"):
        AdaptedModel(AdaptedConfig(encoder_config=BartConfig(d_model=32, vocab_size=40)))


def test_a_config_keeps_every_setting_of_its_encoder(tmp_path):
    """Also those that are the default of another encoder."""
    encoder = BertConfig(**SIZES | {"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1})
    AdaptedConfig(encoder_config=encoder, pooling="mean").save_pretrained(tmp_path)
    loaded = AdaptedConfig.from_pretrained(tmp_path)
    assert type(loaded.encoder_config) is BertConfig
    assert loaded.encoder_config.to_dict() == encoder.to_dict()
    assert (loaded.d_model, loaded.hidden_size, loaded.vocab_size, loaded.pooling) == (32, 32, 250002, "mean")
    assert type(AdaptedConfig().encoder_config) is XLMRobertaConfig
