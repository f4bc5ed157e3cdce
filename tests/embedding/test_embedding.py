"""DocumentEmbedder: the same vector in any batch, order restored, nothing truncated in silence; every family."""

import logging
import pickle

import datasets
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ByT5Tokenizer,
    T5Config,
    T5Model,
)

from modeling_tmde import (
    AlignedModel,
    BagConfig,
    BagModel,
    LaserForConditionalGeneration,
    LaserModel,
    NtdvForConditionalGeneration,
    NtdvModel,
    TmdeEncoderForMaskedLM,
    TmdeEncoderModel,
)
from modeling_tmde.inspection import NO_LIMIT
from tests import hub_encoders
from tests.conftest import save
from tests.tiny_embedders import (
    COMMON,
    TEXTS,
    aligned,
    encoder,
    laser,
    make_tables,
    make_tokenizer,
    make_xlmr,
    ntdv,
)
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeReport
from tmde.embedding.progress import progress_bar

SMALL = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
T5 = {"vocab_size": 400, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
CODES = ["de", "en", "fr", "en", "de", "fr"]


def make_bert() -> BertModel:
    return BertModel(BertConfig(**SMALL, max_position_embeddings=40, intermediate_size=32))


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def embedder(tokenizer):
    return DocumentEmbedder(make_xlmr(), tokenizer)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=12),
    batch_tokens=st.integers(1, 300),
    seed=st.randoms(use_true_random=False),
)
def test_vector_does_not_depend_on_the_batch(embedder, texts, batch_tokens, seed):
    alone = np.stack([embedder.encode(text) for text in texts])
    np.testing.assert_allclose(
        embedder.encode(texts, batch_tokens=batch_tokens), alone, rtol=0, atol=1e-5
    )
    order = list(range(len(texts)))
    seed.shuffle(order)
    np.testing.assert_allclose(
        embedder.encode([texts[i] for i in order]), alone[order], rtol=0, atol=1e-5
    )
    assert np.isfinite(alone).all()


def test_shapes_normalize_and_tensor(embedder):
    assert embedder.encode([]).shape == embedder.encode([], convert_to_tensor=True).shape == (0, 32)
    assert embedder.encode("one").shape == (32,)
    assert embedder.encode(np.array(["one", "two"])).shape == (2, embedder.dimension)
    plain, unit = embedder.encode(TEXTS), embedder.encode(TEXTS, normalize=True)
    np.testing.assert_allclose(
        unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6
    )
    tensor = embedder.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor) and not tensor.is_inference()
    np.testing.assert_array_equal(tensor.numpy(), plain)


def test_bad_texts_and_settings_are_named(embedder):
    with pytest.raises(TypeError, match="text 1: found bytes, expected str"):
        embedder.encode(["fine", b"bytes"])
    with pytest.raises(TypeError, match="text 3: found NoneType"):
        list(embedder.encode_iter(["fine", "fine", "fine", None], chunk_size=2))
    with pytest.raises(TypeError, match="one str"):
        list(embedder.encode_iter("a"))
    with pytest.raises(
        ValueError, match=r"text 1: found a lone surrogate.*'\\ud800' in position 2"
    ):
        embedder.encode(["fine", "ab\ud800"])
    with pytest.raises(ValueError, match="'max', expected one of"):
        DocumentEmbedder(embedder.model, embedder.tokenizer, pooling="max")
    with pytest.raises(ValueError, match="found 2, expected more than the 2 special"):
        DocumentEmbedder(embedder.model, embedder.tokenizer, max_length=2)


def test_truncation_is_counted_and_warned_of_once(tokenizer, caplog):
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, max_length=8)
    texts = ["x", "y" * 6, "z" * 7, "x y z w " * 700]
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    with caplog.at_level(logging.WARNING):
        vectors, report = embedder.encode_with_report(texts)
    expected = f"{sum(n > 8 for n in lengths)} of 4 texts were longer than 8 tokens and were truncated (longest"
    assert [record.message.startswith(expected) for record in caplog.records] == [True]
    assert report == EncodeReport(
        4, sum(min(n, 8) for n in lengths), 2, max(lengths), report.seconds, pieces=4
    )
    # what is kept is the beginning, special tokens included
    ids = tokenizer(texts[3], truncation=True, max_length=8)["input_ids"]
    with torch.no_grad():
        hidden = embedder.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    np.testing.assert_allclose(vectors[3], hidden.mean(0).numpy(), atol=1e-5)
    assert [len(chunk) for chunk in embedder.encode_iter(iter(texts), chunk_size=3)] == [3, 1]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("long_documents", ["truncate", "chunk"])
def test_the_settings_of_the_tokenizer_neither_matter_nor_change(long_documents):
    tokenizer = make_tokenizer()
    options = {"max_length": 12, "long_documents": long_documents, "prompt": "query: "}
    texts = [*TEXTS, "x y z w " * 50]
    expected = DocumentEmbedder(make_xlmr(), tokenizer, **options).encode(texts)
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(3, direction="left")
    backend.enable_padding(length=30)
    backend.encode_special_tokens = False
    before = (backend.truncation, backend.padding, backend.to_str())
    embedder = DocumentEmbedder(make_xlmr(), tokenizer, **options)
    fingerprint = datasets.fingerprint.Hasher.hash(embedder.embed_batch)
    np.testing.assert_array_equal(embedder.encode(texts), expected)
    assert (backend.truncation, backend.padding, backend.to_str()) == before
    assert not backend.encode_special_tokens and embedder.tokenizer is tokenizer
    assert datasets.fingerprint.Hasher.hash(embedder.embed_batch) == fingerprint
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(embedder)).encode(texts), expected)


def test_a_column_of_a_dataset(tmp_path):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    rows = datasets.Dataset.from_dict({"body": ["eins zwei", "", "drei"] * 4})
    options = {"column": "body", "language": "de"}
    made = [
        rows.map(embedder.embed_batch, batched=True, batch_size=5, fn_kwargs=options)
        for _ in range(2)
    ]
    expected = embedder.encode(rows["body"][:], language="de")
    np.testing.assert_allclose(made[0]["embedding"][:], expected, rtol=0, atol=1e-6)
    assert made[0]._fingerprint == made[1]._fingerprint  # the second comes from the cache


def test_more_texts_than_are_tokenized_at_once(embedder):
    texts = [f"{i} " * (i % 3) for i in range(4096 + 50)]
    vectors, report = embedder.encode_with_report(texts)
    assert report.texts == 4146 and np.isfinite(vectors).all()
    picked = [0, 1, 4095, 4096, 4145]
    alone = np.stack([embedder.encode(texts[i]) for i in picked])
    np.testing.assert_allclose(vectors[picked], alone, rtol=0, atol=1e-5)


def test_tokenizer_without_special_tokens():
    embedder = DocumentEmbedder(make_xlmr(), make_tokenizer(special=False, pad=False))
    vectors = embedder.encode(["", "abc", ""])
    assert np.isfinite(vectors).all() and np.abs(vectors[0]).max() > 0
    np.testing.assert_allclose(embedder.encode(""), vectors[0], atol=1e-5)


def test_a_slow_tokenizer(tmp_path):
    """One of Python code alone, whose ids are bytes; in other modes: test_long_documents."""
    tokenizer = ByT5Tokenizer()
    embedder = DocumentEmbedder.from_pretrained(
        save(tmp_path, make_xlmr(), tokenizer), device="cpu", max_length=12
    )
    vectors, report = embedder.encode_with_report(TEXTS)
    assert report.truncated == 3 and type(embedder.tokenizer) is ByT5Tokenizer
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = tokenizer(text, truncation=True, max_length=12)["input_ids"]
        hidden = embedder.model(torch.tensor([ids])).last_hidden_state[0]
        np.testing.assert_allclose(vector, hidden.mean(0).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (make_xlmr, 64),  # 66 positions from padding_idx + 1 on
        (lambda: BertForSequenceClassification(make_bert().config), 40),
        (lambda: T5Model(T5Config(**T5)), 750),
    ],
)
def test_encoders_of_the_hub(make, limit, tokenizer):
    torch.manual_seed(0)
    embedder = DocumentEmbedder(make().eval(), tokenizer)
    assert embedder.max_length == limit and embedder.pooling == "mean"
    vectors = embedder.encode(["x y z w " * 300, "short", ""])
    assert vectors.shape == (3, embedder.dimension) and np.isfinite(vectors).all()
    np.testing.assert_allclose(embedder.encode("short"), vectors[1], rtol=0, atol=1e-5)


def test_from_pretrained_and_in_training(tokenizer, embedder, tmp_path):
    loaded = DocumentEmbedder.from_pretrained(save(tmp_path, make_xlmr(), tokenizer), device="cpu")
    assert not loaded.model.training and loaded.device.type == "cpu" and loaded.max_length == 64
    np.testing.assert_allclose(loaded.encode(TEXTS), embedder.encode(TEXTS), atol=1e-6)
    half = DocumentEmbedder.from_pretrained(str(tmp_path), dtype="bfloat16", device="cpu")
    np.testing.assert_allclose(half.encode(TEXTS), embedder.encode(TEXTS), atol=0.15)
    loaded.model.train().embeddings.eval()
    loaded.encode(TEXTS)  # leaves training mode as it was
    assert (
        loaded.model.training
        and loaded.model.encoder.training
        and not loaded.model.embeddings.training
    )


def test_what_is_no_model(tmp_path):
    """transformers 5 makes up an empty tokenizer for XLM-R: every text would get the same few <unk>s."""
    make_xlmr().save_pretrained(tmp_path)
    with pytest.raises((ValueError, OSError), match="files"):
        DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    for path, message in (
        ("no/such/folder", "no folder no/such/folder"),
        ("/", "folder / has no config.json"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            DocumentEmbedder.from_pretrained(path)


def test_progress_is_one_line_every_30_seconds_in_a_log(embedder, capsys):
    embedder.encode(TEXTS, show_progress_bar=True)
    assert not capsys.readouterr().err  # done before
    with progress_bar(total=10, desc="Embedding") as bar:
        bar._time = lambda: 12 * bar.n
        bar.start_t = bar.last_print_t = 0
        for _ in range(10):
            bar.set_description("Embedding")
            bar.update(1)
    lines = list(filter(None, capsys.readouterr().err.splitlines()))
    assert 3 <= len(lines) <= 5 and lines[0].startswith("Embedding: ") and "10/10" in lines[-1]


FAMILIES = [
    (LaserForConditionalGeneration, laser, LaserModel, NO_LIMIT, False),
    (NtdvForConditionalGeneration, ntdv, NtdvModel, NO_LIMIT, True),
    (TmdeEncoderForMaskedLM, lambda: encoder("mean"), TmdeEncoderModel, 40, False),
    (TmdeEncoderModel, lambda: encoder("first"), TmdeEncoderModel, 40, False),
    (AlignedModel, lambda: aligned("bilstm"), AlignedModel, NO_LIMIT, True),
    (AlignedModel, lambda: aligned("bag"), AlignedModel, NO_LIMIT, True),
    (BagModel, lambda: BagConfig(vocab_size=400, d_model=16), BagModel, NO_LIMIT, False),
]


@pytest.mark.parametrize(("given", "config", "body", "limit", "needs_language"), FAMILIES)
def test_every_family_embeds_each_text_by_its_language(given, config, body, limit, needs_language):
    torch.manual_seed(0)
    embedder = DocumentEmbedder(given(config()).eval(), make_tokenizer())
    assert type(embedder.model) is body and embedder.pooling == "cls"
    assert (embedder.max_length, embedder.dimension, embedder.needs_language) == (
        limit,
        16,
        needs_language,
    )
    texts = ["a", "open open x", "", "sesión; gracias", "Sitzung " * 20, "The sitting is open."]
    vectors = embedder.encode(texts, language=CODES)
    for text, code, vector in zip(texts, CODES, vectors, strict=True):
        ids = torch.tensor([embedder.tokenizer(text)["input_ids"][:limit]])
        if ids.shape[1] == limit:
            ids[0, -1] = (
                embedder.tokenizer.eos_token_id
            )  # a text that is cut keeps its last special token
        language = (
            {"language_ids": torch.tensor([COMMON["languages"].index(code)])}
            if needs_language
            else {}
        )
        with torch.no_grad():
            alone = embedder.model(
                input_ids=ids, attention_mask=torch.ones_like(ids), **language
            ).pooler_output[0]
        np.testing.assert_allclose(vector, alone.numpy(), rtol=0, atol=1e-5)
    for batch_tokens in (1, 50):
        again = embedder.encode(texts, language=CODES, batch_tokens=batch_tokens)
        np.testing.assert_allclose(again, vectors, rtol=0, atol=1e-5)
    stream = np.concatenate(
        list(embedder.encode_iter(iter(texts), 4, language=iter(CODES), batch_tokens=50))
    )
    np.testing.assert_allclose(stream, vectors, rtol=0, atol=1e-5)


def test_wrong_languages_are_named(tokenizer):
    embedder = DocumentEmbedder(make_tables(), tokenizer)
    with pytest.raises(
        ValueError, match="text 0: found None, .*AlignedModel has an encoder for each language"
    ):
        embedder.encode(["a"])
    with pytest.raises(
        ValueError, match=r"language of text 1: found 'xx', expected one of \['de', 'en', 'fr'\]"
    ):
        embedder.encode(["a", "b"], language=["de", "xx"])
    with pytest.raises(ValueError, match="language: found 1 codes for 2 texts"):
        embedder.encode(["a", "b"], language=["de"])
    few = embedder.encode_iter(["a", "b", "c"], 2, language=iter(["de", "en"]))
    assert next(few).shape == (2, 16)
    with pytest.raises(ValueError, match="language: found 0 codes for 1 texts"):
        next(few)


def test_prompts_as_in_sentence_transformers(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.models")
    transformer = modules.Transformer(
        str(hub_encoders.save_encoder(tmp_path / "encoder", "xlm-roberta"))
    )
    prompts = {"prompts": {"query": "haus: "}, "default_prompt_name": "query"}
    peer = sentence_transformers.SentenceTransformer(
        modules=[transformer, modules.Pooling(32)], device="cpu", **prompts
    )
    peer.save(str(tmp_path / "peer"))
    texts = ["house dog", "", "haus hund katze baum " * 40]
    found = {}
    for prompt, options in [(None, {}), ("cat. ", {"prompt": "cat. "}), ("", {"prompt": ""})]:
        embedder = DocumentEmbedder.from_pretrained(tmp_path / "peer", device="cpu", prompt=prompt)
        assert embedder.prompt == ("haus: " if prompt is None else prompt)
        found[prompt] = embedder.encode(texts)
        np.testing.assert_allclose(found[prompt], peer.encode(texts, **options), rtol=0, atol=1e-5)
    assert abs(found[None] - found[""]).max() > 1e-2
    assert DocumentEmbedder.from_pretrained(tmp_path / "encoder").prompt == ""
    with pytest.raises(ValueError, match="max_length: found 5, expected more than"):
        DocumentEmbedder.from_pretrained(
            tmp_path / "peer", max_length=5, prompt="haus hund katze baum"
        )
    path = tmp_path / "peer" / "config_sentence_transformers.json"
    path.write_text(
        path.read_text().replace('"default_prompt_name": "query"', '"default_prompt_name": "other"')
    )
    with pytest.raises(
        ValueError, match=r"default_prompt_name is 'other', expected one of \[.*'query'"
    ):
        DocumentEmbedder.from_pretrained(tmp_path / "peer")
