"""A text has the same embedding with padding before it as with padding behind it, in every family."""

import pytest
import torch
from transformers import AutoTokenizer

from modeling_tmde import AdaptedModel, BagConfig, BagModel, TmdeConfig, TmdeForConditionalGeneration
from modeling_tmde.configuration_aligned import AlignedConfig
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_encoder import TmdeEncoderModel
from modeling_tmde.modeling_laser import LaserModel
from modeling_tmde.modeling_ntdv import NtdvModel
from modeling_tmde.packing import TextStarts
from tests.hub_encoders import adapt_encoder, save_encoder

COMMON = {"vocab_size": 60, "languages": ["de", "en"], "pivot_languages": ["en"]}
TRANSFORMER = {
    "d_model": 16,
    "encoder_layers": 3,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "max_position_embeddings": 32,
}
DECODER = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "dropout": 0.0}
ROWS = [[0, 9, 14, 33, 7, 2], [0, 21, 2], [0, 8, 8, 40, 2], [0, 5, 17, 26, 11, 50, 30, 2]]
BOTTLENECKS = [("first", False), ("pyramid", False), ("full", False), ("dual", False), ("first", True)]
ADAPTED = [(kind, pooling) for kind in ("bert", "xlm-roberta", "modernbert", "t5") for pooling in ("cls", "mean")]


def tmde(bottleneck: str, bag_residual: bool) -> TmdeForConditionalGeneration:
    config = TmdeConfig(
        bottleneck=bottleneck, pyramid_queries=8, bag_residual=bag_residual, sublinear_counts=bag_residual,
        **TRANSFORMER, **DECODER, **COMMON,
    )  # fmt: skip
    model = TmdeForConditionalGeneration(config).eval()
    if bag_residual:
        torch.nn.init.normal_(model.model.token_weights)
    return model


def aligned(kind: str) -> AlignedModel:
    sizes = {"bilstm": {"embedding_dim": 8, "d_model": 16}, "bag": {"d_model": 16}}[kind]
    return AlignedModel(AlignedConfig(encoder=kind, encoder_config=sizes, source_language="en", **COMMON))


def ntdv() -> NtdvModel:
    return NtdvModel(NtdvConfig(embedding_dim=8, d_model=8, attention_heads=2, **COMMON))


FAMILIES = {
    **{f"tmde-{name}-{bag}": lambda name=name, bag=bag: tmde(name, bag).model for name, bag in BOTTLENECKS},
    "encoder-first": lambda: TmdeEncoderModel(TmdeEncoderConfig(pooling="first", **TRANSFORMER, **COMMON)),
    "encoder-mean": lambda: TmdeEncoderModel(TmdeEncoderConfig(pooling="mean", **TRANSFORMER, **COMMON)),
    "laser": lambda: LaserModel(LaserConfig(d_model=16, embedding_dim=8, encoder_layers=2, **COMMON)),
    "bag": lambda: BagModel(BagConfig(d_model=16, **COMMON)),
    "ntdv": ntdv,
    "aligned-bilstm": lambda: aligned("bilstm"),
    "aligned-bag": lambda: aligned("bag"),
}


def padded(rows: list[list[int]], side: str, pad: int = 1) -> dict[str, torch.Tensor]:
    length = max(map(len, rows))
    fill = [length - len(row) for row in rows]
    left = [number if side == "left" else 0 for number in fill]
    ids = [[pad] * a + row + [pad] * (n - a) for a, n, row in zip(left, fill, rows, strict=True)]
    mask = [[0] * a + [1] * len(row) + [0] * (n - a) for a, n, row in zip(left, fill, rows, strict=True)]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def check(model: torch.nn.Module, rows: list[list[int]], pad: int = 1, **options) -> None:
    """Also in the company of a text that needs no padding, or has it on the other side."""
    left, right = padded(rows, "left", pad), padded(rows, "right", pad)
    mixed = {name: torch.cat([left[name][:2], right[name][2:]]) for name in left}
    with torch.no_grad():
        expected = model(**right, **options)
        for inputs in (left, mixed):
            found = model(**inputs, **options)
            torch.testing.assert_close(found.pooler_output, expected.pooler_output, atol=1e-5, rtol=0)
            torch.testing.assert_close(found.last_hidden_state[:, 0], expected.pooler_output, atol=1e-5, rtol=0)
            if found.last_hidden_state.shape[1] > 1:  # every token is where it was given
                real, ordered = (given["attention_mask"].bool() for given in (inputs, right))
                states, others = found.last_hidden_state[real], expected.last_hidden_state[ordered]
                torch.testing.assert_close(states, others, atol=1e-5, rtol=0)
    assert (expected.pooler_output - expected.pooler_output[0]).abs().amax(dim=1)[1:].min() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padding_changes_no_embedding(family):
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    needs_language = isinstance(model, (NtdvModel, AlignedModel))
    check(model, ROWS, **({"language_ids": torch.tensor([1, 0, 1, 0])} if needs_language else {}))
    if family.startswith("tmde"):
        check(model, ROWS, pooled_only=True)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: str(save_encoder(root / kind, kind)) for kind in dict(ADAPTED)}


def adapted(folder: str, pooling: str) -> AdaptedModel:
    torch.manual_seed(1)
    return adapt_encoder(folder, pooling=pooling, languages=["de", "en"], pivot_languages=["en"]).model.eval()


@pytest.mark.parametrize(("kind", "pooling"), ADAPTED)
def test_left_padding_changes_no_embedding_of_an_encoder_of_the_hub(kind, pooling, encoders):
    model = adapted(encoders[kind], pooling)
    pad = AutoTokenizer.from_pretrained(encoders[kind]).pad_token_id
    check(model, [[*row[:-1], 3] for row in ROWS], pad)
    if model.takes_token_types and kind == "bert":
        left, right = (padded(ROWS, side, pad) for side in ("left", "right"))
        # (0, 1, 2, ...) over the tokens, every other of type 1
        types = [(inputs["attention_mask"].cumsum(1) % 2) * inputs["attention_mask"] for inputs in (left, right)]
        found, expected = (
            model(**inputs, token_type_ids=given).pooler_output
            for inputs, given in zip((left, right), types, strict=True)
        )
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        assert (model(**right).pooler_output - expected).abs().max() > 1e-4


@pytest.mark.parametrize("bottleneck", ["full", "dual"])
def test_a_decoder_of_every_output_sees_the_same_tokens(bottleneck):
    torch.manual_seed(0)
    model = tmde(bottleneck, False)
    labels = torch.tensor([[0, 12, 13, 2], [0, 14, 2, 1], [0, 15, 16, 2], [0, 17, 2, 1]])
    left, right = padded(ROWS, "left"), padded(ROWS, "right")
    losses = [model(**inputs, labels=labels, target_language="en").loss for inputs in (left, right)]
    torch.testing.assert_close(*losses, atol=1e-6, rtol=0)
    options = {"target_language": "en", "max_new_tokens": 6, "do_sample": False}
    assert torch.equal(model.generate(**left, **options), model.generate(**right, **options))
    encoded = model.get_encoder()(**left)
    again = model.generate(
        encoder_outputs=encoded, attention_mask=left["attention_mask"], input_ids=left["input_ids"], **options
    )
    assert torch.equal(again, model.generate(**right, **options))


@pytest.mark.parametrize("family", ["tmde", "adapted"])
def test_sentence_transformers_pads_on_either_side(family, encoders, tokenizer, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    if family == "tmde":
        torch.manual_seed(0)
        config = TmdeConfig(**TRANSFORMER, **DECODER, **COMMON | {"vocab_size": 400})
        TmdeForConditionalGeneration(config).save_pretrained(tmp_path)
    else:
        tokenizer = AutoTokenizer.from_pretrained(encoders["bert"])
        adapted(encoders["bert"], "cls").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    opened = sentence_transformers.SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    texts = ["haus", "house dog tree river town", "maison chien"]
    expected = opened.encode(texts)
    opened.tokenizer.padding_side = "left"
    assert opened.tokenizer(texts, padding=True)["attention_mask"][0][0] == 0
    assert abs(opened.encode(texts) - expected).max() < 1e-5


def test_texts_move_and_return():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]])
    ids = torch.arange(20).view(4, 5)
    starts = TextStarts.of(mask)
    assert starts.to_front(mask).tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    moved = starts.to_front(ids)
    assert moved.tolist() == [[2, 3, 4, 0, 1], [5, 6, 7, 8, 9], [11, 12, 13, 14, 10], [15, 16, 17, 18, 19]]
    vectors = starts.to_front(torch.stack([ids, -ids], dim=2))
    assert torch.equal(vectors, torch.stack([moved, -moved], dim=2))
    assert starts.to_front(torch.arange(5)[None])[0].tolist() == [2, 3, 4, 0, 1] and starts.to_front(None) is None
    assert torch.equal(starts.back(moved), ids) and torch.equal(starts.back(vectors)[..., 1], -ids)
    assert starts.back(ids[:, :1]).shape == (4, 1)
    nothing = TextStarts.of(torch.ones(2, 3))
    assert nothing.to_front(ids) is ids and nothing.back(ids) is ids and TextStarts.of(None).begins is None


def test_an_exported_graph_moves_nothing():
    torch.manual_seed(0)
    model = tmde("first", False).model
    inputs = padded(ROWS, "right")
    program = torch.export.export(model, (), dict(inputs))
    assert not any("gather" in str(node.target) or "argmax" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(**inputs).pooler_output, model(**inputs).pooler_output)
