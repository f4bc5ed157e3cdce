"""MTEB through the adapter: real tasks of MTEB on local data, against scores computed without MTEB."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sklearn.linear_model import LogisticRegression

from modeling_tmde.data.sample import sample_documents
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.systems import model_fingerprint
from tests.conftest import tiny_model
from tests.tiny_embedders import make_tables, make_tokenizer

ADAPTER = "modeling_tmde.eval.mteb_adapter"
TRAIN, TEST, ROWS = 60, 80, 90


@pytest.fixture(scope="module")
def mteb(tmp_path_factory):
    """MTEB makes its cache folder when it is imported, in the user's home unless it is told another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield pytest.importorskip("mteb", reason="the extra `mteb` is not installed")


@pytest.fixture(scope="module")
def encoder_class(mteb):
    return importlib.import_module(ADAPTER).MtebEncoder


@pytest.fixture
def embedder(tokenizer) -> DocumentEmbedder:
    return DocumentEmbedder(tiny_model(), tokenizer)


def metadata(mteb, **own):
    """What a task says of itself; only type, name, score and languages matter here."""
    return mteb.TaskMetadata(
        description="The built-in sample.",
        reference=None,
        dataset={"path": "local/sample", "revision": "1"},
        category=own.pop("category"),
        eval_splits=["test"],
        date=("2024-01-01", "2024-01-02"),
        domains=[],
        task_subtypes=[],
        license="apache-2.0",
        annotations_creators="derived",
        dialect=[],
        modalities=["text"],
        sample_creation="created",
        bibtex_citation="",
        **own,
    )


def documents(language: str, split: str, size: int) -> Dataset:
    return sample_documents(size, split, languages=[language]).select_columns(["text", "label"])


@pytest.fixture
def topics(mteb):
    """Trained on English, tested on French; every English document is used, once."""
    from mteb.abstasks import AbsTaskClassification

    class Topics(AbsTaskClassification):
        metadata = metadata(
            mteb,
            type="Classification",
            name="SampleTopics",
            main_score="accuracy",
            eval_langs=["fra-Latn"],
            category="t2c",
        )
        evaluator_model = LogisticRegression(max_iter=1000)
        samples_per_label = TRAIN
        n_experiments = 1

        def load_data(self, num_proc: int | None = None, **kwargs) -> None:
            self.dataset = DatasetDict(train=documents("en", "train", TRAIN), test=documents("fr", "test", TEST))
            self.data_loaded = True

    return Topics()


def scores_of(result) -> dict[str, float]:
    (task,) = result.task_results
    (scores,) = task.scores["test"]
    return scores


def test_classification_equals_a_classifier_on_the_embedders_vectors(mteb, encoder_class, embedder, topics, tmp_path):
    encoder = encoder_class(embedder)
    cache = mteb.ResultCache(tmp_path)
    found = scores_of(mteb.evaluate(encoder, topics, cache=cache, co2_tracker=False, show_progress_bar=False))
    train, test = documents("en", "train", TRAIN), documents("fr", "test", TEST)
    classifier = LogisticRegression(max_iter=1000).fit(embedder.encode(train["text"][:]), train["label"][:])
    predictions = classifier.predict(embedder.encode(test["text"][:]))
    expected = sum(prediction == label for prediction, label in zip(predictions, test["label"], strict=True)) / TEST
    assert found["accuracy"] == pytest.approx(expected, abs=1e-12)
    assert 0.1 < expected < 0.9  # neither nothing nor everything, which any vectors could give
    (kept,) = tmp_path.rglob("SampleTopics.json")
    assert kept.parent.name == encoder.mteb_model_meta.revision


def encode(encoder, batches: list[dict], **options) -> np.ndarray:
    task = SimpleNamespace(name="Topics")
    return encoder.encode(batches, task_metadata=task, hf_split="test", hf_subset="default", **options)


def test_vectors_are_the_embedders_in_order_whatever_the_prompt_type(encoder_class, embedder):
    texts = sample_documents(12, languages=["de"])["text"][:] + ["Kurz.", ""]
    batches = [{"text": texts[:5], "id": list(range(5))}, {"text": texts[5:]}]
    encoder = encoder_class(embedder)
    for options in ({}, {"prompt_type": "query"}, {"batch_size": 2, "more": 1}):
        found = encode(encoder, batches, **options)
        assert found.shape == (14, 32) and found.dtype == np.float32
        np.testing.assert_allclose(found, embedder.encode(texts), atol=1e-5)
    assert encode(encoder, []).shape == (0, 32)


def test_metadata_are_valid_and_the_default_revision_follows_the_weights(encoder_class, embedder, tokenizer):
    from mteb.models import EncoderProtocol, ModelMeta

    encoder = encoder_class(embedder, name="tmde/tiny")
    meta = encoder.mteb_model_meta
    assert isinstance(encoder, EncoderProtocol)
    ModelMeta.model_validate(meta.model_dump())
    assert (meta.name, meta.revision, meta.embed_dim) == ("tmde/tiny", model_fingerprint(embedder), 32)
    parameters = sum(parameter.numel() for parameter in embedder.model.parameters())
    assert (meta.max_tokens, meta.n_parameters) == (128, parameters)
    assert meta.memory_usage_mb == pytest.approx(parameters * 4 / 1024 / 1024)
    other = encoder_class(DocumentEmbedder(tiny_model(seed=1), tokenizer), name="tmde/tiny")
    assert other.mteb_model_meta.revision != meta.revision
    assert encoder_class(embedder, revision="v2").mteb_model_meta.revision == "v2"


def test_a_folder_is_loaded_and_gives_the_name(encoder_class, embedder, tokenizer, tmp_path):
    folder = tmp_path / "newest"
    tiny_model().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    encoder = encoder_class.from_pretrained(folder, device="cpu", max_length=64)
    assert encoder.mteb_model_meta.name == "local/newest" and encoder.mteb_model_meta.max_tokens == 64
    np.testing.assert_allclose(encode(encoder, [{"text": ["haus hund"]}]), embedder.encode(["haus hund"]), atol=1e-5)
    assert encoder_class.from_pretrained(folder, name="a/b", device="cpu").mteb_model_meta.name == "a/b"
    embedder.model.name_or_path = "organization/model"
    assert encoder_class(embedder).mteb_model_meta.name == "organization/model"


def test_a_batch_without_text(encoder_class, embedder):
    with pytest.raises(ValueError, match=r"Task Topics, split test: batch 1 has \['image'\], expected 'text'"):
        encode(encoder_class(embedder), [{"text": ["a"]}, {"image": [0]}])


def test_the_language_of_the_subset_is_told(encoder_class):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    encoder = encoder_class(embedder)
    subsets = {"deu": ["deu-Latn"], "fr": ["fra-Latn"], "de-en": ["deu-Latn", "eng-Latn"], "swe": ["swe-Latn"]}
    task = SimpleNamespace(name="Topics", hf_subsets_to_langscripts=subsets)

    def vectors(subset):
        return encoder.encode([{"text": ["open", "a"]}], task_metadata=task, hf_split="test", hf_subset=subset)

    np.testing.assert_allclose(vectors("deu"), embedder.encode(["open", "a"], language="de"), atol=1e-6)
    np.testing.assert_allclose(vectors("fr"), embedder.encode(["open", "a"], language="fr"), atol=1e-6)
    with pytest.raises(
        ValueError, match=r"subset de-en: found the languages \['de', 'en'\], expected one: AlignedModel"
    ):
        vectors("de-en")
    with pytest.raises(ValueError, match=r"subset more: found the languages \[\], expected one"):
        vectors("more")
    with pytest.raises(ValueError, match=r"language of text 0: found 'sv', expected one of \['de', 'en', 'fr'\]"):
        vectors("swe")
