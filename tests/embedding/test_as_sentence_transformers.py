"""DocumentEmbedder beside SentenceTransformer: the same arguments, values, shapes and types."""

import copy
import itertools
import json
import warnings

import datasets
import numpy as np
import pytest
import torch
from tokenizers import normalizers

from modeling_tmde import TmdeError
from tests import hub_encoders
from tests.conftest import save, tiny_model
from tests.tiny_embedders import TEXTS, make_bag, make_tokenizer, make_xlmr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.quantization import quantized

sentence_transformers = pytest.importorskip("sentence_transformers")
st_models = pytest.importorskip("sentence_transformers.models")
st_quantization = pytest.importorskip("sentence_transformers.util.quantization")

PROMPTS = {"query": "haus: ", "document": "baum: ", "passage": "hund: "}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that sentence-transformers has saved, with prompts."""
    parent = tmp_path_factory.mktemp("peer")
    encoder = hub_encoders.save_encoder(parent / "encoder", "xlm-roberta")
    modules = [st_models.Transformer(str(encoder)), st_models.Pooling(32, pooling_mode="cls")]
    peer = sentence_transformers.SentenceTransformer(
        modules=modules, device="cpu", prompts=PROMPTS, similarity_fn_name="dot"
    )
    peer.save_pretrained(str(parent / "model"))
    return parent / "model"


@pytest.fixture(scope="module")
def peer(folder):
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def embedder(folder):
    return DocumentEmbedder.from_pretrained(folder, device="cpu")


def assert_same(result, expected):
    """Assert that two results are of one type, shape and dtype, and nearly equal."""
    assert type(result) is type(expected)
    if isinstance(expected, list):
        assert len(result) == len(expected)
        for item, expected_item in zip(result, expected, strict=True):
            assert_same(item, expected_item)
        return
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=0, atol=1e-5)


# ---- Arguments


# What decides the type of a result, and what decides its numbers.
TYPES = list(itertools.product([True, False], repeat=2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 2, "show_progress_bar": False},
        {"normalize_embeddings": True, "device": "cpu"},
        {"truncate_dim": 8},
        {"truncate_dim": 8, "normalize_embeddings": True},
        {"prompt": "katze "},
        {"prompt_name": "passage"},
        {"precision": "binary"},
        {"precision": "ubinary", "truncate_dim": 12},
    ],
    ids=str,
)
def test_encode(options, embedder, peer):
    for texts, (convert_to_numpy, convert_to_tensor) in itertools.product([TEXTS, TEXTS[0]], TYPES):
        types = {"convert_to_numpy": convert_to_numpy, "convert_to_tensor": convert_to_tensor}
        assert_same(
            embedder.encode(texts, **options, **types), peer.encode(texts, **options, **types)
        )


@pytest.mark.parametrize("options", [{}, {"prompt": ""}, {"prompt_name": "passage"}], ids=str)
@pytest.mark.parametrize("method", ["encode", "encode_query", "encode_document"])
def test_queries_and_documents(method, options, embedder, peer):
    vectors = getattr(embedder, method)(TEXTS, **options)
    assert_same(vectors, getattr(peer, method)(TEXTS, **options))


def test_prompts_are_told_apart(embedder):
    plain = embedder.encode(TEXTS)
    assert abs(embedder.encode_query(TEXTS) - plain).max() > 1e-2
    assert abs(embedder.encode_document(TEXTS) - plain).max() > 1e-2


# What users of SentenceTransformer set on a model after it is made.
def set_default_prompt(model):
    model.prompts = {"query": "haus: ", "document": "baum: "}
    model.default_prompt_name = "query"


def change_text_of_prompt(model):
    model.default_prompt_name = "passage"
    model.prompts["passage"] = "katze: "


def set_default_prompt_without_text(model):
    model.default_prompt_name = "missing"


def set_tokenizer(model):
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("e", "a")
    if isinstance(model, DocumentEmbedder):
        model.tokenizer = tokenizer
    else:
        model[0].processor = tokenizer  # Its `tokenizer` can't be set.


def set_include_prompt(model):
    model.default_prompt_name = "query"
    model.set_pooling_include_prompt(False)


@pytest.mark.parametrize(
    "change",
    [
        set_default_prompt,
        change_text_of_prompt,
        set_default_prompt_without_text,
        set_tokenizer,
        set_include_prompt,
    ],
)
def test_attributes_that_are_set_later_are_followed(change, folder, tmp_path):
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    unchanged = embedder.encode(TEXTS)
    change(peer)
    change(embedder)

    for method in ("encode", "encode_query", "encode_document"):
        assert_same(getattr(embedder, method)(TEXTS), getattr(peer, method)(TEXTS))
    named = {"prompt_name": "query"}
    assert_same(embedder.encode(TEXTS, **named), peer.encode(TEXTS, **named))
    assert_same(np.concatenate(list(embedder.encode_iter(TEXTS, 2))), peer.encode(TEXTS))
    if change is not set_default_prompt_without_text:
        assert abs(embedder.encode(TEXTS) - unchanged).max() > 1e-3
        embedder.save_pretrained(tmp_path)
        opened = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
        assert_same(opened.encode(TEXTS), peer.encode(TEXTS))


def test_long_documents_follow_attributes_that_are_set_later(folder):
    settings = {"long_documents": "chunk", "window": 16}
    text = "haus hund katze baum " * 20
    changed = DocumentEmbedder.from_pretrained(folder, device="cpu", **settings)
    built = DocumentEmbedder.from_pretrained(folder, device="cpu", prompt="baum: ", **settings)
    set_default_prompt(changed)
    changed.prompts["query"] = "baum: "
    np.testing.assert_array_equal(changed.encode([text]), built.encode([text]))


def test_a_model_without_prompts_for_queries_gives_none(tmp_path, embedder):
    """As in sentence-transformers: a default prompt is not for queries and documents."""
    embedder.save_pretrained(tmp_path)
    settings = {"prompts": {"default": "haus: "}, "default_prompt_name": "default"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    peer = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    opened = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    for method in ("encode", "encode_query", "encode_document"):
        assert_same(getattr(opened, method)(TEXTS), getattr(peer, method)(TEXTS))


@pytest.mark.parametrize("prompts", [{}, {"only": "baum: "}, {"query": "haus: "}], ids=str)
@pytest.mark.parametrize("method", ["encode_query", "encode_document"])
def test_prompts_of_roles_that_are_taken_away(method, prompts, folder):
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    peer.prompts = dict(prompts)
    embedder.prompts = dict(prompts)
    assert_same(getattr(embedder, method)(TEXTS), getattr(peer, method)(TEXTS))


def test_arguments_that_functions_of_the_peer_pass_change_nothing(embedder, peer):
    options = {"precision": None, "pool": None, "chunk_size": None}
    options["output_value"] = "sentence_embedding"
    assert_same(embedder.encode(TEXTS, **options), peer.encode(TEXTS, **options))


def test_evaluator_and_hard_negatives_of_the_peer(embedder, peer):
    from sentence_transformers.sentence_transformer import evaluation

    evaluator = evaluation.EmbeddingSimilarityEvaluator(TEXTS, TEXTS[::-1], range(len(TEXTS)))
    assert evaluator(embedder) == pytest.approx(evaluator(peer), abs=1e-5)
    texts = {"query": TEXTS[:3], "answer": TEXTS[-3:]}
    mined = []
    for model in (embedder, peer):
        rows = sentence_transformers.util.mine_hard_negatives(
            datasets.Dataset.from_dict(texts), model, num_negatives=1, verbose=False
        )
        mined.append(rows.to_list())
    assert mined[0] == mined[1]


def test_settings_that_loading_takes(folder):
    options = {"truncate_dim": 8, "similarity_fn_name": "euclidean"}
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu", **options)
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu", **options)
    vectors = embedder.encode(TEXTS)
    assert_same(vectors, peer.encode(TEXTS))
    assert_same(embedder.similarity(vectors, vectors), peer.similarity(vectors, vectors))


def test_a_module_that_is_added_later(folder):
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    dense = st_models.Dense(32, 12)
    peer.append(dense)
    embedder.append(dense)
    assert embedder.dimension == 12
    assert_same(embedder.encode(TEXTS), peer.encode(TEXTS))


def test_a_prompt_of_the_class_is_for_queries_too():
    embedder = DocumentEmbedder(make_xlmr(), make_tokenizer(), prompt="haus: ")
    np.testing.assert_array_equal(embedder.encode_query(TEXTS), embedder.encode(TEXTS))


@pytest.mark.parametrize(
    "options",
    [
        {"prompts": {"query": "haus: ", "passage": "hund: "}},
        {"prompts": {"corpus": "hund: "}},
        {"prompt": "haus: "},
        {"prompt": "haus: ", "prompts": {"passage": "hund: "}},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["encode", "encode_query", "encode_document"])
def test_prompts_of_queries_and_documents_are_saved(method, options, tmp_path):
    embedder = DocumentEmbedder(make_xlmr(), make_tokenizer(), **options)
    embedder.save_pretrained(tmp_path)
    peer = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    opened = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")

    expected = getattr(embedder, method)(TEXTS)

    assert_same(getattr(opened, method)(TEXTS), expected)
    assert_same(getattr(peer, method)(TEXTS), expected)


@pytest.mark.parametrize("name", ["texts", "sentences", "inputs"])
def test_names_of_the_texts(name, embedder):
    np.testing.assert_array_equal(embedder.encode(**{name: TEXTS}), embedder.encode(TEXTS))
    query_vectors = embedder.encode_query(**{name: TEXTS})
    np.testing.assert_array_equal(query_vectors, embedder.encode_query(TEXTS))


@pytest.mark.parametrize("method", ["encode", "encode_query", "encode_document"])
def test_an_unknown_argument_is_a_type_error(method, embedder):
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        getattr(embedder, method)(TEXTS, batchsize=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_name": "no"}, "prompt_name: found 'no', expected one of .*'passage', 'query'"),
        ({"truncate_dim": 33}, "truncate_dim: found 33, expected 1 to 32"),
        ({"truncate_dim": 0}, "truncate_dim: found 0, expected 1 to 32"),
        ({"precision": "int4"}, "precision: found 'int4', expected one of"),
        ({"batch_size": 0}, "batch_size: found 0, expected at least 1"),
        ({"device": ["cpu", "cpu"]}, "device: found .*expected one device"),
        ({"pool": {}}, "pool: found {}, .*tmde embed --help"),
        ({"chunk_size": 100}, "chunk_size: found 100, .*tmde embed --help"),
        ({"output_value": "token_embeddings"}, "found 'token_embeddings', .*preprocess"),
        ({"prompt": "haus " * 100}, "expected more than .* prompt tokens"),
    ],
)
def test_arguments_that_make_no_sense(options, message, embedder):
    with pytest.raises(TmdeError, match=message):
        embedder.encode(TEXTS, **options)


def test_processes_are_refused_before_they_start(embedder):
    with pytest.raises(TmdeError, match="start_multi_process_pool: .*tmde embed --help"):
        embedder.start_multi_process_pool(["cpu", "cpu"])


def test_outputs_of_tokens_as_the_error_says(embedder, peer):
    outputs = embedder(embedder.preprocess(TEXTS))["token_embeddings"]
    expected = peer.encode(TEXTS, output_value="token_embeddings")
    for output, expected_output in zip(outputs.detach(), expected, strict=True):
        assert_same(output[: len(expected_output)], expected_output)


def test_prompts_of_calls_reach_the_pieces_of_long_documents(folder):
    settings = {"long_documents": "chunk", "window": 16}
    text = "haus hund katze baum " * 20
    called = DocumentEmbedder.from_pretrained(folder, device="cpu", **settings)
    built = DocumentEmbedder.from_pretrained(folder, device="cpu", prompt="hund: ", **settings)
    vectors, report = called.encode_with_report([text], prompt_name="passage")
    assert report.pieces > 2
    np.testing.assert_array_equal(vectors, built.encode([text]))


@pytest.mark.parametrize("make", [make_bag, make_xlmr])
def test_batches_of_so_many_texts(make, monkeypatch):
    embedder = DocumentEmbedder(make(), make_tokenizer())
    texts = TEXTS * 3
    expected = embedder.encode(texts)
    sizes = []
    model_class = type(embedder.model)
    method = "embed_ragged" if make is make_bag else "forward"
    original = getattr(model_class, method)

    def counting(model, *args, **kwargs):
        if method == "forward":
            sizes.append(len(kwargs["input_ids"]))
        else:
            sizes.append(len(args[1]))
        return original(model, *args, **kwargs)

    monkeypatch.setattr(model_class, method, counting)
    vectors = embedder.encode(texts, batch_size=4)
    assert sizes == [4, 4, 4, 3]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


# ---- Precision


@pytest.mark.parametrize("precision", ["float32", "binary", "ubinary"])
@pytest.mark.parametrize("width", [16, 13])
def test_packed_signs(precision, width):
    vectors = np.random.default_rng(0).standard_normal((120, width)).astype(np.float32)
    vectors[:, 3] = 0.0
    expected = st_quantization.quantize_embeddings(vectors, precision)
    assert_same(quantized(vectors, precision), expected)
    none = st_quantization.quantize_embeddings(vectors[:0], precision)
    assert_same(quantized(vectors[:0], precision), none)


# ---- Similarity


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize(
    "kind", [np.asarray, torch.as_tensor, list], ids=lambda kind: kind.__name__
)
def test_similarity(name, kind, peer):
    ours = DocumentEmbedder(make_xlmr(), make_tokenizer())
    ours.similarity_fn_name = name
    theirs = sentence_transformers.SentenceTransformer(
        modules=list(peer), similarity_fn_name=name, device="cpu"
    )
    rng = np.random.default_rng(0)
    first = rng.standard_normal((4, 6)).astype(np.float32)
    second = rng.standard_normal((3, 6)).astype(np.float32)
    assert_same(
        ours.similarity(kind(first), kind(second)), theirs.similarity(kind(first), kind(second))
    )
    assert_same(ours.similarity(first[0], second), theirs.similarity(first[0], second))
    pairs = ours.similarity_pairwise(kind(first[:3]), kind(second))
    assert_same(pairs, theirs.similarity_pairwise(kind(first[:3]), kind(second)))


def test_similarities_that_make_no_sense(embedder):
    with pytest.raises(ValueError, match="similarity_fn_name in .*got 'maxsim'"):
        embedder.similarity_fn_name = "maxsim"
    with pytest.raises(TmdeError, match="found vectors of width 5, expected 6"):
        embedder.similarity(np.ones((2, 6)), np.ones((2, 5)))
    with pytest.raises(TmdeError, match="found 3 vectors, expected 2"):
        embedder.similarity_pairwise(np.ones((2, 6)), np.ones((3, 6)))


# ---- Properties


def test_dimension_and_limit(embedder, peer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert embedder.get_sentence_embedding_dimension() == peer.get_embedding_dimension()
    assert embedder.get_embedding_dimension() == 32
    assert embedder.max_seq_length == peer.max_seq_length
    assert embedder.device == peer.device
    assert {name: prompt for name, prompt in embedder.prompts.items() if prompt} == PROMPTS


def test_max_seq_length_can_be_set(folder, peer):
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    text = "haus hund katze baum " * 10
    before = embedder.max_seq_length
    embedder.max_seq_length = 9
    vectors, report = embedder.encode_with_report([text])
    assert (report.tokens, report.truncated, embedder.max_length) == (9, 1, 9)
    with pytest.raises(TmdeError, match=f"found 99,999, expected at most {before}"):
        embedder.max_seq_length = 99_999
    embedder.max_seq_length = None
    assert embedder.max_seq_length == before


def test_a_bag_has_no_limit():
    assert DocumentEmbedder(make_bag(), make_tokenizer()).max_seq_length is None


def test_repr_says_what_it_is(tokenizer):
    embedder = DocumentEmbedder(tiny_model(), tokenizer)
    text = repr(embedder)
    for part in (
        "TmdeModel",
        "dimension=32",
        "max_seq_length=128",
        "languages=['de', 'en', 'es', 'fr', 'it']",
        "long_documents='truncate'",
    ):
        assert part in text


def test_repr_of_a_bag_names_only_what_its_vectors_depend_on():
    text = repr(DocumentEmbedder(make_bag(), make_tokenizer()))
    assert "BagModel" in text
    assert "pooling" not in text
    assert "long_documents" not in text


# ---- Saving


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", ["xlmr", "tmde"])
def test_a_saved_embedder_opens_with_the_same_vectors(kind, pooling, tmp_path, tokenizer):
    model = make_xlmr() if kind == "xlmr" else tiny_model()
    embedder = DocumentEmbedder(
        model, tokenizer, pooling, prompt="haus: ", prompts={"query": "hund: "}, max_length=20
    )
    embedder.similarity_fn_name = "dot"
    texts = [*TEXTS, "haus hund katze baum " * 10]
    # What an earlier save left behind is replaced.
    DocumentEmbedder(model, tokenizer, "mean", prompt="no ").save_pretrained(tmp_path / "saved")
    embedder.save_pretrained(tmp_path / "saved")

    opened = DocumentEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    peer = sentence_transformers.SentenceTransformer(
        str(tmp_path / "saved"), device="cpu", trust_remote_code=True
    )

    assert (opened.max_length, opened.pooling, opened.prompt) == (20, pooling, "haus: ")
    assert opened.similarity_fn_name == "dot"
    for method in ("encode", "encode_query"):
        expected = getattr(embedder, method)(texts)
        np.testing.assert_allclose(getattr(opened, method)(texts), expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(getattr(peer, method)(texts), expected, rtol=0, atol=1e-5)
    assert tokenizer.model_max_length == 128


def test_the_card_goes_with_the_model(tmp_path, tokenizer):
    save(tmp_path / "first", tiny_model(), tokenizer)
    (tmp_path / "first" / "README.md").write_text("---\nlicense: cc-by-sa-4.0\n---\n")
    DocumentEmbedder.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    assert "cc-by-sa-4.0" in (tmp_path / "second" / "README.md").read_text()


def test_a_file_is_no_folder(tmp_path, embedder):
    (tmp_path / "file").touch()
    with pytest.raises(TmdeError, match="path: found the file"):
        embedder.save_pretrained(tmp_path / "file")


# ---- Dataset.map


def test_map_takes_the_embedder(embedder):
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    expected = embedder.encode(TEXTS)
    batched = rows.map(embedder, batched=True, batch_size=2)
    single = rows.map(embedder)
    np.testing.assert_allclose(batched["embedding"][:], expected, atol=1e-6)
    np.testing.assert_allclose(single["embedding"][:], expected, atol=1e-6)
    assert rows.map(embedder, batched=True, batch_size=2)._fingerprint == batched._fingerprint


def test_what_is_no_batch_is_refused(embedder):
    with pytest.raises(TypeError, match=r"found list, .*encode\(\)"):
        embedder(TEXTS)
    with pytest.raises(TmdeError, match="column: found 'text', expected one of \\['body'\\]"):
        embedder({"body": TEXTS})


def test_a_prompt_name_may_go_by_position(embedder):
    vectors = embedder.encode(TEXTS, "query")
    np.testing.assert_array_equal(vectors, embedder.encode(TEXTS, prompt_name="query"))
