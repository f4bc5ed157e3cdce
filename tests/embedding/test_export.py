"""A model in other forms gives its vectors: an ONNX graph, a static embedding, sentence-transformers."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from modeling_tmde import (
    AdaptedConfig,
    AdaptedModel,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserModel,
    NtdvForConditionalGeneration,
    TmdeEncoderForMaskedLM,
)
from modeling_tmde.inspection import NO_LIMIT
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from tests.conftest import LANGUAGES, WORDS, jittered, make_rows, save, tiny_model
from tests.hub_encoders import make_tokenizer as make_unigram_tokenizer
from tests.tiny_embedders import aligned, encoder, laser, make_bag, make_xlmr, ntdv
from tmde import DocumentEmbedder
from tmde.embedding import export_onnx as export_module
from tmde.embedding.export_onnx import export_onnx
from tmde.embedding.export_static import export_static_embedding
from tmde.embedding.export_vocabulary import export_vocabulary

TEXTS = [row[language] for row in make_rows(6, seed=3) for language in LANGUAGES]
TEXTS += [
    "<s> </s> a<pad>b <unk>",
    "Großer HUND, 12,345.67!",
    "long text " * 60,
    " ",
    "漢字 Привет 🙂 e\u0301",
]


def run_graph(path, embedder, texts):
    """Vectors of a graph, in one padded batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    options = {
        "padding": True,
        "truncation": True,
        "max_length": embedder.max_length,
        "return_tensors": "pt",
    }
    inputs = embedder.tokenizer(texts, split_special_tokens=True, **options)
    names = {given.name for given in session.get_inputs()}
    assert names == {"input_ids", "attention_mask"}
    (hidden,) = session.run(["last_hidden_state"], {name: inputs[name].numpy() for name in names})
    if embedder.pooling == "cls":
        return hidden[:, 0]
    mask = inputs["attention_mask"].numpy()[:, :, None]
    return (hidden * mask).sum(1) / mask.sum(1)


PARTS = {"prompt_ids": [7, 9], "bag_residual": 2, "sublinear_counts": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "quantization"),
    [
        (lambda: tiny_model(bag_residual=True, sublinear_counts=True), None),
        (make_xlmr, None),
        (
            lambda: AdaptedModel(
                AdaptedConfig(encoder_config=make_xlmr().config, prompt_ids=[7, 9], bag_residual=2)
            ),
            None,
        ),
        (lambda: tiny_model(), "int8"),
    ],
    ids=["bag residual", "xlm-r", "adapted", "int8"],
)
def test_the_graph_gives_the_vectors_of_the_model(
    make, quantization, tokenizer, tmp_path, monkeypatch
):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    embedder = DocumentEmbedder(make().eval(), tokenizer)
    path, difference, _ = export_onnx(embedder.model, tokenizer, tmp_path, quantization)
    assert path == tmp_path / "onnx" / ("model.onnx" if quantization is None else "model_int8.onnx")
    assert (tmp_path / "config.json").exists() and not list((tmp_path / "onnx").glob(".*"))
    expected, vectors = embedder.encode(TEXTS), run_graph(path, embedder, TEXTS)
    if quantization is None:
        assert difference < 1e-4
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    else:
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        assert ((vectors * expected).sum(1) / norms).min() > 0.9
    if make is make_xlmr:  # a graph that gives other vectors is not written
        monkeypatch.setattr(export_module, "TOLERANCE", -1)
        with pytest.raises(
            ValueError, match="the graph of XLMRobertaModel differs from the model by .* of its"
        ):
            export_onnx(embedder.model, tokenizer, tmp_path / "other")
        assert not list((tmp_path / "other").rglob("*.onnx"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_bag, "BagModel cannot be an ONNX graph: it adds up rows"),
        (lambda: LaserModel(laser()), "LaserModel cannot be an ONNX graph: its LSTM layers"),
        (lambda: AlignedModel(aligned("bag")), "it has an encoder for each language"),
    ],
)
def test_models_that_are_no_graph(make, message, tokenizer, tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match=message):
        export_onnx(make(), tokenizer, tmp_path)
    assert not list(tmp_path.iterdir())


def test_static_embedding(tokenizer, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = make_bag()
    assert export_static_embedding(model, tokenizer, tmp_path / "static") < 1e-4
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert [type(module).__name__ for module in static] == ["StaticEmbedding", "Normalize"]
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)
    for bad, message in (
        (tiny_model().model, "found TmdeModel, expected a BagModel"),
        (make_bag(normalize=False), "found normalize=False"),
        (make_bag(sublinear_counts=True), "sublinear_counts=True"),
    ):
        with pytest.raises(ValueError, match=message):
            export_static_embedding(bad, tokenizer, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# The model, its longest input, and whether it needs the language of a text.
SAVED = {
    "pyramid": (lambda: tiny_model(bottleneck="pyramid", max_position_embeddings=100), 100, False),
    "bag": (lambda: make_bag(), NO_LIMIT, False),
    "masked": (lambda: TmdeEncoderForMaskedLM(encoder("mean")), 40, False),
    "ntdv": (lambda: NtdvForConditionalGeneration(ntdv()), NO_LIMIT, True),
}


@pytest.mark.parametrize("name", SAVED)
def test_sentence_transformers_gives_the_same_vectors(name, tokenizer, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    make, limit, needs_language = SAVED[name]
    torch.manual_seed(0)
    save(tmp_path, jittered(make()), tokenizer)
    opened = sentence_transformers.SentenceTransformer(
        str(tmp_path), trust_remote_code=True, device="cpu"
    )
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert opened.max_seq_length == embedder.max_length == limit
    language = {"language": "fr"} if needs_language else {}
    texts = [*TEXTS, "", " ".join(["haus", "cane"] * 80)]
    expected, report = embedder.encode_with_report(texts, **language)
    assert (report.truncated > 0) == (limit < NO_LIMIT)
    for batch_size in (1, 64):
        vectors = opened.encode(texts, batch_size=batch_size, **language)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert (
        opened.similarity_fn_name == "cosine"
        and opened.get_embedding_dimension() == embedder.dimension
    )
    if needs_language:
        with pytest.raises(ValueError, match="has a part for each language"):
            opened.encode(texts)


def test_saving_again_keeps_prompts_and_the_limit_of_the_tokenizer(tokenizer, tmp_path):
    """50 tokens of 128 positions: the first 50 of the text, as 750 in thesis 4.5.2."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    save(tmp_path, tiny_model(), tokenizer)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {
        "model_max_length": 50
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prompts": {"query": "hund "}}))
    tiny_model(d_model=16).save_pretrained(tmp_path)
    opened = sentence_transformers.SentenceTransformer(
        str(tmp_path), trust_remote_code=True, device="cpu"
    )
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert opened.max_seq_length == embedder.max_length == 50
    expected, report = embedder.encode_with_report(["hund haus", "hund " + "katze haus " * 90])
    vectors = opened.encode(["haus", "katze haus " * 90], prompt_name="query")
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert report.truncated == 1


EDITS = {
    "1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 30},
    "modules.json": [
        {"idx": 2, "name": "2", "path": "", "type": "sentence_transformers.models.Normalize"}
    ],
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_of_sentence_transformers_is_kept(name, tmp_path, caplog):
    tiny_model().save_pretrained(tmp_path)
    written = json.loads((tmp_path / name).read_text())
    edited = written + EDITS[name] if isinstance(written, list) else written | EDITS[name]
    (tmp_path / name).write_text(json.dumps(edited))
    tiny_model().save_pretrained(tmp_path)
    assert json.loads((tmp_path / name).read_text()) == edited
    warned = name == "1_Pooling/config.json"  # the others agree with the model
    assert (f"{tmp_path / name} was edited and is kept" in caplog.text) == warned


def read_companions(folder):
    return {name: json.loads((folder / name).read_text()) for name in EDITS}


def test_no_file_of_an_earlier_save_is_left(tmp_path, caplog):
    """Models of other widths, limits, languages and poolings, and files as earlier versions wrote them."""
    models = [
        tiny_model(d_model=16),
        NtdvForConditionalGeneration(ntdv()),
        make_bag(),
        tiny_model(),
    ]
    for number, model in enumerate(models):
        model.save_pretrained(tmp_path / str(number))
        expected = read_companions(tmp_path / str(number))
        model.save_pretrained(tmp_path / "shared")
        assert read_companions(tmp_path / "shared") == expected
    earlier = {"max_seq_length": NO_LIMIT, "do_lower_case": False}
    (tmp_path / "shared" / "sentence_bert_config.json").write_text(json.dumps(earlier))
    (tmp_path / "shared" / "modules.json").write_text("[{")  # of a save that was killed
    write_sentence_transformers_files(make_xlmr(), tmp_path / "shared", "mean")
    assert read_companions(tmp_path / "shared")["1_Pooling/config.json"]["pooling_mode_mean_tokens"]
    make_xlmr().save_pretrained(tmp_path / "shared")
    tiny_model().save_pretrained(tmp_path / "shared")
    assert read_companions(tmp_path / "shared") == expected and "edited" not in caplog.text


def as_wide_as_its_vocabulary(kind, size):
    """A model in which other parameters have as many rows as the table of tokens."""
    if kind == "bag":
        return BagModel(BagConfig(vocab_size=size, d_model=size))
    heads = {"num_hidden_layers": 1, "num_attention_heads": 1}
    sizes = {"hidden_size": size, "intermediate_size": size, "max_position_embeddings": size}
    model = XLMRobertaModel(XLMRobertaConfig(vocab_size=size, pad_token_id=1, **heads, **sizes))
    if kind == "xlm-roberta":
        return model
    return AdaptedModel(AdaptedConfig(encoder_config=model.config, bag_residual=2))


@pytest.mark.parametrize("kind", ["xlm-roberta", "adapted", "bag"])
def test_only_rows_of_tokens_are_cut(kind, tmp_path):
    tokenizer = make_unigram_tokenizer(
        "unigram", [row[code] for row in make_rows(100) for code in LANGUAGES]
    )
    torch.manual_seed(0)
    embedder = DocumentEmbedder(as_wide_as_its_vocabulary(kind, len(tokenizer)).eval(), tokenizer)
    texts = [" ".join(WORDS["de"][:4])] * 3
    size, _ = export_vocabulary(embedder, texts, tmp_path, min_count=2)
    cut = DocumentEmbedder.from_pretrained(tmp_path, embedder.pooling, device="cpu")
    assert len(cut.tokenizer) == size < len(tokenizer)
    np.testing.assert_allclose(cut.encode(texts), embedder.encode(texts), rtol=0, atol=1e-5)
    before, after = embedder.model.state_dict(), cut.model.state_dict()
    smaller = {name for name in before if before[name].shape != after[name].shape}
    of_tokens = re.compile("embed_tokens|word_embeddings|bag_tokens|token_weights")
    assert smaller == set(filter(of_tokens.search, before))
