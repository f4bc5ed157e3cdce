"""Documents by LAWDR as tasks ask for them: means of sentences by hand, and `Lawdr` beside it."""

import numpy as np
import pandas as pd
import pytest
import torch

from modeling_tmde import BagConfig, BagModel
from tests.tiny_embedders import make_tokenizer
from tmde.documents.lawdr import Lawdr
from tmde.documents.ranks import target_ranks
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentence_density import SentenceDensity
from tmde.eval.lawdr_system import LawdrSystem, with_lawdr
from tmde.eval.planning import plan_tasks
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem
from tmde.eval.tasks import TaskError
from tmde.eval.tasks.base import LawdrSettings

COUNT = 12  # documents of a language


def make_documents(language: str) -> list[str]:
    """Documents of two to five lines, which are sentences, and one that all of them have."""
    documents = []
    for number in range(COUNT):
        lines = [
            f"{language} {number} line {line} of {number * line}" for line in range(number % 4)
        ]
        documents.append("\n".join([*lines, f"{language} says {number}", "See the next page"]))
    return documents


TEXTS = {"de": make_documents("de"), "en": make_documents("en")}


@pytest.fixture(scope="module")
def system() -> EmbeddingSystem:
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    model = BagModel(BagConfig(vocab_size=len(tokenizer), d_model=16)).eval()
    return EmbeddingSystem("bag", DocumentEmbedder(model, tokenizer, max_length=64))


def test_unweighted_documents_are_means_of_their_sentences(system):
    represented = LawdrSystem(system, LawdrSettings(0, weighted=False), TEXTS)
    expected = []
    for text in TEXTS["en"]:
        expected.append(system.embedder.encode(text.splitlines()).mean(axis=0))
    vectors = represented.represent(TEXTS["en"], language="en")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert represented.rank == 0


def test_vectors_are_in_the_order_of_the_texts(system):
    represented = LawdrSystem(
        system, LawdrSettings(1), {"de": [TEXTS["de"][0], None, *TEXTS["de"]]}
    )
    all_vectors = represented.represent(TEXTS["de"], language="de")
    some_texts = [TEXTS["de"][row] for row in (5, 0, 5)]
    some_vectors = represented.represent(some_texts, language="de")
    np.testing.assert_array_equal(some_vectors, all_vectors[[5, 0, 5]])


@pytest.fixture
def pages(tmp_path):
    """A file of documents, whose translations are in another order."""
    rows = []
    for language, order in (("de", range(COUNT)), ("en", reversed(range(COUNT)))):
        for number in order:
            text = TEXTS[language][number]
            rows.append({"doc_id": str(number), "language": language, "text": text})
    pd.DataFrame(rows).to_parquet(tmp_path / "pages.parquet")
    return tmp_path / "pages.parquet"


def load(pages, **options):
    (planned,) = plan_tasks(
        [f"document_retrieval={pages}"], options={"document_retrieval": options}
    )
    return planned.load(["de", "en"])


@pytest.mark.parametrize("weighted", [True, False])
def test_retrieval_by_lawdr(system, pages, weighted):
    task = load(pages, lawdr_rank=2, lawdr_weighted=weighted)
    (result,) = evaluate([task], [system], EvaluationOptions(samples=10))
    assert result.settings["lawdr_rank"] == 2
    assert result.settings["lawdr_weighted"] == weighted
    lawdr = Lawdr(system.embedder, 2, SentenceDensity() if weighted else None)
    german = lawdr.fit_transform(TEXTS["de"], "de")
    english = lawdr.fit_transform(TEXTS["en"], "en")
    (to_english,) = [cell for cell in result.cells if cell.pair == ("de", "en")]
    for scoring, value in (
        ("cosine", to_english.value),
        ("ratio", to_english.extra["precision_at_1_margin"]),
    ):
        ranks = target_ranks(german, english, np.arange(COUNT), scoring)
        assert value == np.mean(ranks == 1)
    assert to_english.extra["debiased_rank"] == 2


def test_the_rank_that_hides_the_language_is_reported(system, pages, monkeypatch):
    monkeypatch.setattr("tmde.documents.language_debiaser.choose_rank", lambda samples: 4)
    (result,) = evaluate([load(pages, lawdr_rank="auto")], [system], EvaluationOptions(samples=10))
    assert result.settings["lawdr_rank"] == "auto"
    assert result.cells[0].extra["debiased_rank"] == 4


def test_a_system_without_an_embedder_stays_as_it_is(pages):
    tfidf = CharacterTfidf()
    assert with_lawdr(tfidf, LawdrSettings(2), TEXTS) is tfidf
    (result,) = evaluate([load(pages, lawdr_rank=2)], [tfidf], EvaluationOptions(samples=10))
    assert "lawdr_rank" not in result.settings
    assert "debiased_rank" not in result.cells[0].extra


def test_results_of_other_settings_are_not_mixed_up(pages):
    """The cache knows a result by the fingerprint of its data."""
    options = [
        {},
        {"lawdr_rank": 1},
        {"lawdr_rank": "auto"},
        {"lawdr_rank": 1, "lawdr_weighted": False},
    ]
    fingerprints = {load(pages, **task_options).fingerprint for task_options in options}
    assert len(fingerprints) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lawdr_rank": "atuo"},
            "field 'lawdr_rank': found 'atuo', expected a whole number",
        ),
        ({"lawdr_rank": -1}, "field 'lawdr_rank': found -1, expected a whole number from 0"),
        ({"lawdr_rank": True}, "field 'lawdr_rank': found True, expected a whole number from 0"),
        (
            {"lawdr_rank": 1, "lawdr_weighted": "no"},
            "field 'lawdr_weighted': found 'no', expected true or false",
        ),
        (
            {"lawdr_weighted": False},
            "'lawdr_rank': found None, expected a rank.*document_retrieval.lawdr_rank=auto",
        ),
    ],
)
def test_bad_settings(pages, options, message):
    with pytest.raises(TaskError, match=message):
        load(pages, **options)
