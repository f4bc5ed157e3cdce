"""MTEB through the adapter: a real task of MTEB on local data, scored without MTEB, too."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sklearn.linear_model import LogisticRegression

from tests.conftest import save, tiny_model
from tests.tiny_embedders import make_tables, make_tokenizer
from tmde.data.sample import sample_documents
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.model_fingerprint import model_fingerprint


@pytest.fixture(scope="module")
def mteb(tmp_path_factory):
    """MTEB. When imported it makes its cache folder, in the user's home unless told otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield pytest.importorskip("mteb", reason="the extra `mteb` is not installed")


@pytest.fixture(scope="module")
def encoder_class(mteb):
    return importlib.import_module("tmde.eval.mteb_adapter").MtebEncoder


@pytest.fixture
def embedder(tokenizer) -> DocumentEmbedder:
    return DocumentEmbedder(tiny_model(), tokenizer)


# ---- A task


def documents(language: str, split: str, size: int) -> Dataset:
    return sample_documents(size, split, languages=[language]).select_columns(["text", "label"])


def make_classification_task(mteb, train: Dataset, test: Dataset):
    """A task of MTEB on other data, in which every document is used once."""
    task = mteb.get_task("Banking77Classification")
    task.dataset = DatasetDict(train=train, test=test)
    task.data_loaded = True
    task.samples_per_label = 60
    task.n_experiments = 1
    task.evaluator_model = LogisticRegression(max_iter=1000)
    return task


def accuracy_without_mteb(embedder: DocumentEmbedder, train: Dataset, test: Dataset) -> float:
    classifier = LogisticRegression(max_iter=1000)
    classifier.fit(embedder.encode(train["text"][:]), train["label"][:])
    predictions = classifier.predict(embedder.encode(test["text"][:]))
    return np.mean(predictions == np.array(test["label"][:]))


def test_classification_equals_a_classifier_on_the_embedders_vectors(
    mteb, encoder_class, embedder, tmp_path
):
    train = documents("en", "train", 60)
    test = documents("fr", "test", 80)
    task = make_classification_task(mteb, train, test)
    encoder = encoder_class(embedder)
    cache = mteb.ResultCache(tmp_path)

    result = mteb.evaluate(encoder, task, cache=cache, co2_tracker=False, show_progress_bar=False)

    accuracy = result.task_results[0].scores["test"][0]["accuracy"]
    expected = accuracy_without_mteb(embedder, train, test)
    assert accuracy == pytest.approx(expected, abs=1e-12)
    # Neither nothing nor everything is right, which any vectors could give.
    assert 0.1 < expected < 0.9
    (cached_result,) = tmp_path.rglob("Banking77Classification.json")
    assert cached_result.parent.name == encoder.mteb_model_meta.revision


# ---- Encoding


def encode(encoder, batches: list[dict], subset: str = "default", **options) -> np.ndarray:
    codes_of_subset = {"deu": ["deu-Latn"], "de-en": ["deu-Latn", "eng-Latn"]}
    task = SimpleNamespace(name="Topics", hf_subsets_to_langscripts=codes_of_subset)
    return encoder.encode(batches, task_metadata=task, hf_split="test", hf_subset=subset, **options)


@pytest.mark.parametrize("options", [{"prompt_type": "query"}, {"batch_size": 2, "more": 1}])
def test_vectors_are_the_embedders_in_order(encoder_class, embedder, options):
    texts = [*sample_documents(12, languages=["de"])["text"][:], "Kurz.", ""]
    batches = [{"text": texts[:5], "id": list(range(5))}, {"text": texts[5:]}]

    vectors = encode(encoder_class(embedder), batches, **options)

    assert vectors.shape == (14, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, embedder.encode(texts), atol=1e-5)


def test_no_batches_give_no_vectors(encoder_class, embedder):
    assert encode(encoder_class(embedder), []).shape == (0, 32)


def test_batches_without_text_are_refused(encoder_class, embedder):
    message = r"Task Topics, split test: batch 1 has \['image'\], expected 'text'"
    with pytest.raises(ValueError, match=message):
        encode(encoder_class(embedder), [{"text": ["a"]}, {"image": [0]}])


def test_texts_are_embedded_in_the_language_of_the_subset(encoder_class):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())

    vectors = encode(encoder_class(embedder), [{"text": ["open", "a"]}], "deu")

    expected = embedder.encode(["open", "a"], language="de")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_a_subset_of_two_languages_is_refused(encoder_class):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())

    message = r"subset de-en: found the languages \['de', 'en'\], expected one: AlignedModel"
    with pytest.raises(ValueError, match=message):
        encode(encoder_class(embedder), [{"text": ["open"]}], "de-en")


# ---- Metadata

CARD = "---\nlicense: mit\ndatasets: [Helsinki-NLP/europarl]\nbase_model: [a/b]\n---\n# x"


@pytest.fixture
def folder(tokenizer, tmp_path):
    """A saved model with a card."""
    folder = save(tmp_path / "newest", tiny_model(), tokenizer)
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture
def encoder(encoder_class, folder):
    return encoder_class.from_pretrained(folder, device="cpu", max_length=64)


def test_metadata_are_valid(encoder):
    from mteb.models import EncoderProtocol, ModelMeta

    assert isinstance(encoder, EncoderProtocol)
    ModelMeta.model_validate(encoder.mteb_model_meta.model_dump())


def test_metadata_name_the_folder_and_the_sizes(encoder):
    meta = encoder.mteb_model_meta
    model = encoder.embedder.model
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    num_input_embeddings = model.get_input_embeddings().weight.numel()

    assert meta.name == "local/newest"
    assert meta.embed_dim == 32
    assert meta.max_tokens == 64
    assert meta.n_parameters == num_parameters
    assert num_input_embeddings <= meta.n_embedding_parameters < num_parameters
    assert meta.memory_usage_mb == pytest.approx(num_parameters * 4 / 1024 / 1024)


def test_metadata_are_those_of_the_card(encoder):
    meta = encoder.mteb_model_meta

    assert meta.license == "mit"
    assert meta.training_datasets == {"Helsinki-NLP/europarl"}
    assert meta.adapted_from == "a/b"


def test_a_damaged_card_tells_nothing(encoder_class, encoder, folder):
    (folder / "README.md").write_text("---\nlicense: [\n---\n")

    assert encoder_class(encoder.embedder).mteb_model_meta.license is None


def test_languages_are_those_that_mteb_knows(encoder_class, encoder):
    encoder.embedder.model.config.languages = ["de", "el", "xx"]

    meta = encoder_class(encoder.embedder).mteb_model_meta

    assert meta.languages == ["deu-Latn", "ell-Grek"]


def test_the_default_revision_is_the_fingerprint(encoder, encoder_class, tokenizer):
    other = encoder_class(DocumentEmbedder(tiny_model(seed=1), tokenizer, max_length=64))

    assert encoder.mteb_model_meta.revision == model_fingerprint(encoder.embedder)
    assert encoder.mteb_model_meta.revision != other.mteb_model_meta.revision


def test_mteb_loads_the_model_from_where_it_was_with_its_settings(encoder):
    loaded = encoder.mteb_model_meta.load_model(device="cpu")

    assert loaded.embedder.max_length == 64
    assert loaded.mteb_model_meta.revision == encoder.mteb_model_meta.revision
