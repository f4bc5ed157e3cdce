"""MTEB through the adapter: a real task of MTEB on local data, scored without MTEB, too."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader

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


def encode(encoder, texts: list[str], subset: str = "default", **options) -> np.ndarray:
    """Encode as MTEB does, whose data loader has the columns of the dataset."""
    loader = DataLoader(Dataset.from_dict({"text": texts}), batch_size=5)
    codes_of_subset = {"deu": ["deu-Latn"], "de-en": ["deu-Latn", "eng-Latn"]}
    task = SimpleNamespace(
        name="Topics", type="Classification", hf_subsets_to_langscripts=codes_of_subset
    )
    return encoder.encode(loader, task_metadata=task, hf_split="test", hf_subset=subset, **options)


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}])
def test_vectors_are_the_embedders_in_order(encoder_class, embedder, options):
    texts = [*sample_documents(12, languages=["de"])["text"][:], "Kurz.", ""]

    vectors = encode(encoder_class(embedder), texts, **options)

    assert vectors.shape == (14, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, embedder.encode(texts), atol=1e-5)


def test_queries_and_documents_have_their_prompts(mteb, encoder_class, tokenizer):
    prompts = {"query": "frage ", "document": "seite "}
    embedder = DocumentEmbedder(tiny_model(), tokenizer, prompts=prompts)
    encoder = encoder_class(embedder)
    for role in ("query", "document"):
        vectors = encode(encoder, ["hund"], prompt_type=mteb.types.PromptType[role])
        np.testing.assert_allclose(vectors, embedder.encode(["hund"], prompt=prompts[role]))


def test_texts_are_embedded_in_the_language_of_the_subset(encoder_class):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())

    vectors = encode(encoder_class(embedder), ["open", "a"], "deu")

    expected = embedder.encode(["open", "a"], language="de")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_a_subset_of_two_languages_is_refused(encoder_class):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())

    message = r"subset de-en: found the languages \['de', 'en'\], expected one: AlignedModel"
    with pytest.raises(ValueError, match=message):
        encode(encoder_class(embedder), ["open"], "de-en")


# ---- Name and revision


@pytest.fixture
def encoder(encoder_class, tokenizer, tmp_path):
    folder = save(tmp_path / "newest", tiny_model(), tokenizer)
    return encoder_class.from_pretrained(folder, device="cpu", max_length=64)


def test_metadata_are_valid(encoder):
    from mteb.models import EncoderProtocol, ModelMeta

    assert isinstance(encoder, EncoderProtocol)
    meta = ModelMeta.model_validate(encoder.mteb_model_meta.model_dump())
    assert (meta.name, meta.embed_dim, meta.max_tokens) == ("local/newest", 32, 64)


def test_the_default_revision_is_the_fingerprint(encoder, encoder_class, tokenizer):
    other = encoder_class(DocumentEmbedder(tiny_model(seed=1), tokenizer, max_length=64))

    assert encoder.mteb_model_meta.revision == model_fingerprint(encoder.model)
    assert encoder.mteb_model_meta.revision != other.mteb_model_meta.revision
