"""MTEB through the adapter: a real task of MTEB on local data, against scores computed without MTEB."""

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
from tmde.eval.systems import model_fingerprint


@pytest.fixture(scope="module")
def mteb(tmp_path_factory):
    """MTEB makes its cache folder when it is imported, in the user's home unless `MTEB_CACHE` names another."""
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


def documents(language: str, split: str, size: int) -> Dataset:
    return sample_documents(size, split, languages=[language]).select_columns(["text", "label"])


def test_classification_equals_a_classifier_on_the_embedders_vectors(
    mteb, encoder_class, embedder, tmp_path
):
    train, test = documents("en", "train", 60), documents("fr", "test", 80)
    task = mteb.get_task(
        "Banking77Classification"
    )  # with other data; every English document is used, once
    task.dataset, task.data_loaded = DatasetDict(train=train, test=test), True
    task.samples_per_label, task.n_experiments, task.evaluator_model = (
        60,
        1,
        LogisticRegression(max_iter=1000),
    )
    encoder = encoder_class(embedder)
    cache = mteb.ResultCache(tmp_path)
    found = mteb.evaluate(encoder, task, cache=cache, co2_tracker=False, show_progress_bar=False)
    classifier = LogisticRegression(max_iter=1000).fit(
        embedder.encode(train["text"][:]), train["label"][:]
    )
    expected = np.mean(
        classifier.predict(embedder.encode(test["text"][:])) == np.array(test["label"][:])
    )
    assert found.task_results[0].scores["test"][0]["accuracy"] == pytest.approx(expected, abs=1e-12)
    assert 0.1 < expected < 0.9  # neither nothing nor everything, which any vectors could give
    (kept,) = tmp_path.rglob("Banking77Classification.json")
    assert kept.parent.name == encoder.mteb_model_meta.revision


def encode(encoder, batches: list[dict], subset: str = "default", **options) -> np.ndarray:
    subsets = {"deu": ["deu-Latn"], "de-en": ["deu-Latn", "eng-Latn"]}
    task = SimpleNamespace(name="Topics", hf_subsets_to_langscripts=subsets)
    return encoder.encode(batches, task_metadata=task, hf_split="test", hf_subset=subset, **options)


def test_vectors_are_the_embedders_in_order(encoder_class, embedder):
    texts = sample_documents(12, languages=["de"])["text"][:] + ["Kurz.", ""]
    batches = [{"text": texts[:5], "id": list(range(5))}, {"text": texts[5:]}]
    encoder = encoder_class(embedder)
    for options in ({"prompt_type": "query"}, {"batch_size": 2, "more": 1}):
        found = encode(encoder, batches, **options)
        assert found.shape == (14, 32) and found.dtype == np.float32
        np.testing.assert_allclose(found, embedder.encode(texts), atol=1e-5)
    assert encode(encoder, []).shape == (0, 32)
    with pytest.raises(
        ValueError, match=r"Task Topics, split test: batch 1 has \['image'\], expected 'text'"
    ):
        encode(encoder, [{"text": ["a"]}, {"image": [0]}])


def test_metadata_are_valid_and_the_default_revision_follows_the_weights(
    encoder_class, tokenizer, tmp_path
):
    from mteb.models import EncoderProtocol, ModelMeta

    folder = save(tmp_path / "newest", tiny_model(), tokenizer)
    card = "---\nlicense: mit\ndatasets: [Helsinki-NLP/europarl]\nbase_model: [a/b]\n---\n# x"
    (folder / "README.md").write_text(card)
    encoder = encoder_class.from_pretrained(folder, device="cpu", max_length=64)
    meta, model = encoder.mteb_model_meta, encoder.embedder.model
    assert isinstance(encoder, EncoderProtocol)
    ModelMeta.model_validate(meta.model_dump())
    assert (meta.name, meta.revision) == ("local/newest", model_fingerprint(encoder.embedder))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert (meta.embed_dim, meta.max_tokens, meta.n_parameters) == (32, 64, parameters)
    assert meta.memory_usage_mb == pytest.approx(parameters * 4 / 1024 / 1024)
    model.config.languages = ["de", "el", "xx"]
    meta = encoder_class(encoder.embedder).mteb_model_meta
    assert (meta.license, meta.training_datasets, meta.adapted_from) == (
        "mit",
        {"Helsinki-NLP/europarl"},
        "a/b",
    )
    tables = model.get_input_embeddings().weight.numel()
    assert (
        meta.languages == ["deu-Latn", "ell-Grek"]
        and tables <= meta.n_embedding_parameters < parameters
    )
    again = meta.load_model(device="cpu")  # from where it was, with its settings
    assert again.embedder.max_length == 64 and again.mteb_model_meta.revision == meta.revision
    (folder / "README.md").write_text("---\nlicense: [\n---\n")  # damaged
    assert encoder_class(encoder.embedder).mteb_model_meta.license is None
    other = encoder_class(DocumentEmbedder(tiny_model(seed=1), tokenizer, max_length=64))
    assert other.mteb_model_meta.revision != meta.revision


def test_texts_are_embedded_in_the_language_of_the_subset(encoder_class):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    encoder = encoder_class(embedder)
    found = encode(encoder, [{"text": ["open", "a"]}], "deu")
    np.testing.assert_allclose(found, embedder.encode(["open", "a"], language="de"), atol=1e-6)
    message = r"subset de-en: found the languages \['de', 'en'\], expected one: AlignedModel"
    with pytest.raises(ValueError, match=message):
        encode(encoder, [{"text": ["open"]}], "de-en")
