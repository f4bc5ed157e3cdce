"""DocumentEmbedder: the same vector in any batch, in order, nothing truncated in silence."""

import logging
import pickle
from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
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
    TmdeError,
)
from modeling_tmde.inspection import NO_LIMIT
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

BERT = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
T5 = {"vocab_size": 400, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}


def make_bert() -> BertModel:
    return BertModel(BertConfig(**BERT, max_position_embeddings=40, intermediate_size=32))


def assert_same_vectors(vectors, expected):
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def embedder(tokenizer):
    return DocumentEmbedder(make_xlmr(), tokenizer)


# ---- Batches


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=12),
    batch_tokens=st.integers(1, 300),
    random=st.randoms(use_true_random=False),
)
def test_a_vector_does_not_depend_on_the_batch(embedder, texts, batch_tokens, random):
    alone = np.stack([embedder.encode(text) for text in texts])
    order = list(range(len(texts)))
    random.shuffle(order)

    together = embedder.encode(texts, batch_tokens=batch_tokens)
    shuffled = embedder.encode([texts[i] for i in order])

    assert np.isfinite(alone).all()
    assert_same_vectors(together, alone)
    assert_same_vectors(shuffled, alone[order])


def test_more_texts_than_are_tokenized_at_once(embedder):
    texts = [f"{number} " * (number % 3) for number in range(4096 + 50)]

    vectors, report = embedder.encode_with_report(texts)

    assert report.texts == 4146
    assert np.isfinite(vectors).all()
    chosen = [0, 1, 4095, 4096, 4145]
    alone = np.stack([embedder.encode(texts[number]) for number in chosen])
    assert_same_vectors(vectors[chosen], alone)


# ---- Forms of input and output


def test_no_texts_give_no_vectors(embedder):
    assert embedder.encode([]).shape == (0, 32)
    assert embedder.encode([], convert_to_tensor=True).shape == (0, 32)


def test_one_string_gives_one_vector(embedder):
    assert embedder.encode("one").shape == (32,)


def test_texts_may_be_an_array(embedder):
    assert embedder.encode(np.array(["one", "two"])).shape == (2, embedder.dimension)


def test_normalized_vectors_have_length_one(embedder):
    plain = embedder.encode(TEXTS)
    unit = embedder.encode(TEXTS, normalize=True)
    np.testing.assert_allclose(
        unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6
    )


def test_a_tensor_holds_the_same_numbers_and_takes_gradients(embedder):
    tensor = embedder.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert not tensor.is_inference()
    np.testing.assert_array_equal(tensor.numpy(), embedder.encode(TEXTS))


def test_a_report_comes_with_the_vectors_of_encode(embedder):
    vectors, report = embedder.encode_with_report(TEXTS)
    np.testing.assert_array_equal(vectors, embedder.encode(TEXTS))
    assert report.texts == len(TEXTS)


def test_a_stream_gives_vectors_and_reports_chunk_by_chunk(embedder):
    texts = [*TEXTS, "a", "b"]
    expected, whole_report = embedder.encode_with_report(texts)

    outputs = list(embedder.encode_iter_with_reports(iter(texts), chunk_size=3))

    assert_same_vectors(np.concatenate([output.vectors for output in outputs]), expected)
    total = sum((output.report for output in outputs), EncodeReport())
    assert replace(total, seconds=0) == replace(whole_report, seconds=0)


def test_a_column_of_a_dataset(tmp_path):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    rows = datasets.Dataset.from_dict({"body": ["eins zwei", "", "drei"] * 4})
    options = {
        "batched": True,
        "batch_size": 5,
        "fn_kwargs": {"column": "body", "language": "de"},
    }

    first = rows.map(embedder.embed_batch, **options)
    second = rows.map(embedder.embed_batch, **options)

    expected = embedder.encode(rows["body"][:], language="de")
    np.testing.assert_allclose(first["embedding"][:], expected, rtol=0, atol=1e-6)
    assert first._fingerprint == second._fingerprint  # The second comes from the cache.


# ---- Mistakes of a user


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["fine", b"bytes"], TypeError, "text 1: found bytes, expected str"),
        (
            ["fine", "ab\ud800"],
            ValueError,
            r"text 1: found a lone surrogate.*'\\ud800' in position 2",
        ),
    ],
)
def test_bad_texts_are_named(embedder, texts, error, message):
    with pytest.raises(error, match=message):
        embedder.encode(texts)


def test_bad_texts_of_a_stream_are_counted_from_its_start(embedder):
    with pytest.raises(TypeError, match="text 3: found NoneType"):
        list(embedder.encode_iter(["fine", "fine", "fine", None], chunk_size=2))


@pytest.mark.parametrize("kind", [pd.DataFrame, dict])
def test_tables_are_refused_and_columns_are_not(kind, embedder):
    """A table iterates over the names of its columns."""
    table = kind({"text": ["ab", "cd"], "label": ["x", "y"]})
    message = rf"found a {kind.__name__}, expected an iterable of str; .*\['text'\]"
    with pytest.raises(TypeError, match=message):
        embedder.encode(table)
    with pytest.raises(TypeError, match=message):
        list(embedder.encode_iter(table))
    assert len(embedder.encode(table["text"])) == 2


@pytest.mark.parametrize("size", [0, -1])
def test_chunks_of_no_texts_are_refused(size, embedder):
    with pytest.raises(ValueError, match=f"chunk_size: found {size}, expected at least 1"):
        list(embedder.encode_iter(["ab"], chunk_size=size))


def test_a_stream_of_one_string_is_refused(embedder):
    with pytest.raises(TypeError, match="one str"):
        list(embedder.encode_iter("a"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "no"}, "'no', expected one of"),
        ({"max_length": 2}, "found 2, expected more than 2, the number of special"),
    ],
)
def test_bad_settings_are_named(embedder, options, message):
    with pytest.raises(ValueError, match=message):
        DocumentEmbedder(embedder.model, embedder.tokenizer, **options)


def test_a_name_belongs_to_from_pretrained(embedder):
    with pytest.raises(TmdeError, match=r"'runs/x'.*DocumentEmbedder.from_pretrained\('runs/x'\)"):
        DocumentEmbedder("runs/x")
    with pytest.raises(TmdeError, match="tokenizer: found none.*from_pretrained"):
        DocumentEmbedder(embedder.model)


# ---- Truncation

LONG_TEXTS = ["x", "y" * 6, "z" * 7, "x y z w " * 700]


@pytest.fixture
def short_embedder(tokenizer):
    return DocumentEmbedder(make_xlmr(), tokenizer, max_length=8)


def test_truncation_is_reported(short_embedder, tokenizer):
    lengths = [len(tokenizer(text)["input_ids"]) for text in LONG_TEXTS]

    _, report = short_embedder.encode_with_report(LONG_TEXTS)

    assert report == EncodeReport(
        texts=4,
        tokens=sum(min(length, 8) for length in lengths),
        truncated=2,
        longest=max(lengths),
        seconds=report.seconds,
        pieces=4,
    )


def only_warning(caplog) -> str:
    """The message of the one warning that was logged."""
    (record,) = caplog.records
    return record.message


def test_truncation_is_warned_of_once(short_embedder, caplog):
    expected = "2 of 4 texts were longer than 8 tokens and were truncated (longest"
    with caplog.at_level(logging.WARNING):
        short_embedder.encode(LONG_TEXTS)
    assert only_warning(caplog).startswith(expected)


def test_truncation_in_a_stream_is_warned_of_once_at_its_end(short_embedder, caplog):
    with caplog.at_level(logging.WARNING):
        first, second = short_embedder.encode_iter(iter(LONG_TEXTS), chunk_size=3)
    assert len(first) == 3
    assert len(second) == 1
    assert only_warning(caplog).startswith("2 of 4 texts")


def test_truncation_is_warned_of_if_a_reader_stops_early(short_embedder, caplog):
    stream = short_embedder.encode_iter(iter(LONG_TEXTS * 2), chunk_size=4)
    with caplog.at_level(logging.WARNING):
        next(stream)
        stream.close()
    assert only_warning(caplog).startswith("2 of 4 texts")


def test_the_beginning_of_a_text_is_kept_with_its_special_tokens(short_embedder, tokenizer):
    ids = tokenizer(LONG_TEXTS[3], truncation=True, max_length=8)["input_ids"]
    with torch.no_grad():
        hidden = short_embedder.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    assert_same_vectors(short_embedder.encode(LONG_TEXTS[3]), hidden.mean(0).numpy())


# ---- Tokenizers


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
    vectors = embedder.encode(texts)

    np.testing.assert_array_equal(vectors, expected)
    assert (backend.truncation, backend.padding, backend.to_str()) == before
    assert not backend.encode_special_tokens
    assert embedder.tokenizer is tokenizer


def test_calls_do_not_change_an_embedder(tokenizer):
    embedder = DocumentEmbedder(make_xlmr(), tokenizer)
    fingerprint = datasets.fingerprint.Hasher.hash(embedder.embed_batch)
    expected = embedder.encode(TEXTS)
    assert datasets.fingerprint.Hasher.hash(embedder.embed_batch) == fingerprint
    copied = pickle.loads(pickle.dumps(embedder))
    np.testing.assert_array_equal(copied.encode(TEXTS), expected)


def test_a_tokenizer_without_special_tokens():
    embedder = DocumentEmbedder(make_xlmr(), make_tokenizer(special=False, pad=False))
    vectors = embedder.encode(["", "abc", ""])
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[0]).max() > 0
    assert_same_vectors(embedder.encode(""), vectors[0])


def test_a_slow_tokenizer(tmp_path):
    """A tokenizer of Python code alone, whose ids are bytes; other modes: test_long_documents."""
    tokenizer = ByT5Tokenizer()
    folder = save(tmp_path, make_xlmr(), tokenizer)
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu", max_length=12)

    vectors, report = embedder.encode_with_report(TEXTS)

    assert type(embedder.tokenizer) is ByT5Tokenizer
    assert report.truncated == 3
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = tokenizer(text, truncation=True, max_length=12)["input_ids"]
        hidden = embedder.model(torch.tensor([ids])).last_hidden_state[0]
        assert_same_vectors(vector, hidden.mean(0).detach().numpy())


# ---- Models of the Hub


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

    vectors = embedder.encode(["x y z w " * 300, "short", ""])

    assert embedder.max_length == limit
    assert embedder.pooling == "mean"
    assert vectors.shape == (3, embedder.dimension)
    assert np.isfinite(vectors).all()
    assert_same_vectors(embedder.encode("short"), vectors[1])


@pytest.fixture
def saved_xlmr(tokenizer, tmp_path):
    return save(tmp_path, make_xlmr(), tokenizer)


def test_from_pretrained_loads_a_folder_ready_to_encode(saved_xlmr, embedder):
    loaded = DocumentEmbedder.from_pretrained(saved_xlmr, device="cpu")
    assert not loaded.model.training
    assert loaded.device.type == "cpu"
    assert loaded.max_length == 64
    np.testing.assert_allclose(loaded.encode(TEXTS), embedder.encode(TEXTS), atol=1e-6)


def test_vectors_of_half_precision_are_float32(saved_xlmr, embedder):
    half = DocumentEmbedder.from_pretrained(str(saved_xlmr), dtype="bfloat16", device="cpu")
    vectors = half.encode(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, embedder.encode(TEXTS), atol=0.15)


def test_every_module_stays_in_its_mode(tokenizer):
    embedder = DocumentEmbedder(make_xlmr(), tokenizer)
    model = embedder.model.train()
    model.embeddings.eval()
    embedder.encode(TEXTS)
    assert model.training
    assert model.encoder.training
    assert not model.embeddings.training


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    """transformers 5 makes up an empty tokenizer: every text would get the same few <unk>s."""
    make_xlmr().save_pretrained(tmp_path)
    with pytest.raises((ValueError, OSError), match="files"):
        DocumentEmbedder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/such/folder", "no/such/folder: no such folder"),
        ("/", "/: no config.json"),
    ],
)
def test_what_is_no_model_is_named(path, message):
    with pytest.raises(FileNotFoundError, match=message):
        DocumentEmbedder.from_pretrained(path)


# ---- Progress


def test_a_short_call_writes_no_line_in_a_log(embedder, capsys):
    embedder.encode(TEXTS, show_progress_bar=True)
    assert not capsys.readouterr().err


def test_progress_is_one_line_every_30_seconds_in_a_log(capsys):
    with progress_bar(total=10, desc="Embedding") as bar:
        bar._time = lambda: 12 * bar.n
        bar.start_t = 0
        bar.last_print_t = 0
        for _ in range(10):
            bar.set_description("Embedding")
            bar.update(1)
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert 3 <= len(lines) <= 5
    assert lines[0].startswith("Embedding: ")
    assert "10/10" in lines[-1]


# ---- Every family of this package

CODES = ["de", "en", "fr", "en", "de", "fr"]
FAMILY_TEXTS = [
    "a",
    "open open x",
    "",
    "sesión; gracias",
    "Sitzung " * 20,
    "The sitting is open.",
]
# The model, its configuration, the part that embeds, its longest input, whether it needs languages.
FAMILIES = [
    (LaserForConditionalGeneration, laser, LaserModel, NO_LIMIT, False),
    (NtdvForConditionalGeneration, ntdv, NtdvModel, NO_LIMIT, True),
    (TmdeEncoderForMaskedLM, lambda: encoder("mean"), TmdeEncoderModel, 40, False),
    (TmdeEncoderModel, lambda: encoder("first"), TmdeEncoderModel, 40, False),
    (AlignedModel, lambda: aligned("bilstm"), AlignedModel, NO_LIMIT, True),
    (AlignedModel, lambda: aligned("bag"), AlignedModel, NO_LIMIT, True),
    (BagModel, lambda: BagConfig(vocab_size=400, d_model=16), BagModel, NO_LIMIT, False),
]
EVERY_FAMILY = pytest.mark.parametrize(
    ("model_class", "config", "body", "limit", "needs_language"), FAMILIES
)


def make_family(model_class, config) -> DocumentEmbedder:
    torch.manual_seed(0)
    return DocumentEmbedder(model_class(config()).eval(), make_tokenizer())


def vector_alone(embedder, text, code):
    """Return the embedding of one text by a call of the model itself."""
    ids = torch.tensor([embedder.tokenizer(text)["input_ids"][: embedder.max_length]])
    if ids.shape[1] == embedder.max_length:
        # A text that is cut keeps its last special token.
        ids[0, -1] = embedder.tokenizer.eos_token_id
    language = {}
    if embedder.needs_language:
        language["language_ids"] = torch.tensor([COMMON["languages"].index(code)])
    with torch.no_grad():
        outputs = embedder.model(input_ids=ids, attention_mask=torch.ones_like(ids), **language)
    return outputs.pooler_output[0].numpy()


@EVERY_FAMILY
def test_the_settings_of_every_family(model_class, config, body, limit, needs_language):
    embedder = make_family(model_class, config)
    assert type(embedder.model) is body
    assert embedder.pooling == "cls"
    assert embedder.max_length == limit
    assert embedder.dimension == 16
    assert embedder.needs_language == needs_language


@EVERY_FAMILY
def test_every_family_embeds_each_text_by_its_language(
    model_class, config, body, limit, needs_language
):
    embedder = make_family(model_class, config)
    vectors = embedder.encode(FAMILY_TEXTS, language=CODES)
    for text, code, vector in zip(FAMILY_TEXTS, CODES, vectors, strict=True):
        assert_same_vectors(vector, vector_alone(embedder, text, code))


@pytest.mark.parametrize(
    ("texts", "language", "message"),
    [
        (["a"], None, "text 0: found None, .*AlignedModel has one encoder per language"),
        (
            ["a", "b"],
            ["de", "xx"],
            r"language of text 1: found 'xx', expected one of \['de', 'en', 'fr'\]",
        ),
        (["a", "b"], ["de"], "language: found 1 codes for 2 texts"),
    ],
)
def test_wrong_languages_are_named(tokenizer, texts, language, message):
    embedder = DocumentEmbedder(make_tables(), tokenizer)
    with pytest.raises(ValueError, match=message):
        embedder.encode(texts, language=language)


def test_a_stream_with_too_few_languages_is_named(tokenizer):
    embedder = DocumentEmbedder(make_tables(), tokenizer)
    stream = embedder.encode_iter(["a", "b", "c"], 2, language=iter(["de", "en"]))
    assert next(stream).shape == (2, 16)
    with pytest.raises(ValueError, match="language: found 0 codes for 1 texts"):
        next(stream)
