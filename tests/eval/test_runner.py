"""From task names to results: finding data, languages, options, the cache of results."""

import json

import numpy as np
import pytest
import torch

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval import runner
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.runner import EvaluationOptions, evaluate, evaluate_task, plan_tasks
from modeling_tmde.eval.systems import CharacterTfidf, EmbeddingSystem, VectorCache, model_fingerprint
from modeling_tmde.eval.tasks import (
    ClassificationData,
    Provenance,
    RetrievalData,
    SimilarityData,
    SimilarityPairs,
    Split,
    TaskError,
    text_fingerprint,
)
from tests.conftest import tiny_model

ROWS = [
    {"translation": {"de": f"Satz {number}", "en": f"sentence {number}", "xx": f"zz {number}"}} for number in range(6)
]
PLACE = Provenance("someone", "CC0", source="here")


class Hashed:
    """A system whose vectors depend on nothing but the text; it keeps what it was asked for."""

    def __init__(self, name: str = "hashed", salt: str = ""):
        self.name, self.fingerprint, self.dense = name, text_fingerprint(["hashed", salt]), True
        self.salt, self.asked = salt, []
        self.begin()

    def begin(self):
        self.texts = self.truncated = 0
        self.seconds = 0.0

    def describe(self):
        return {"salt": self.salt}

    def represent(self, texts, fit_on=(), language=None):
        self.asked.append(list(texts))
        self.texts += len(texts)
        seeds = [int(text_fingerprint([self.salt, text]), 16) for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds]).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    for name in ("one_dev", "two_dev"):
        rows = "\n".join(json.dumps(row) for row in ROWS)
        (tmp_path / f"{name}.jsonl").write_text(rows, encoding="utf-8")
    return tmp_path


def sample(languages=("de", "en"), **options):
    (planned,) = plan_tasks(["sample"], options={"sample": {"sizes": [40, 20, 20], **options}})
    return planned.load(languages)


def test_names_sources_and_labels(folder):
    planned = plan_tasks(["sample", f"sentence_retrieval={folder}/one_dev.jsonl", "xnli", "sts=some/dataset"])
    assert [(plan.name, plan.source) for plan in planned] == [
        ("sample", "sample"),
        ("sentence_retrieval/one_dev", f"{folder}/one_dev.jsonl"),
        ("xnli", "facebook/xnli"),
        ("sts", "some/dataset"),
    ]


def test_all_takes_what_is_there_and_the_sample(folder):
    assert [plan.name for plan in plan_tasks(["all"], folder)] == ["sample"]
    datasets = pytest.importorskip("datasets")
    for name in ("one_dev", "two_dev"):
        datasets.Dataset.from_list(ROWS).to_parquet(folder / f"{name}.parquet")
    planned = plan_tasks(["all"], folder)
    assert [plan.name for plan in planned] == ["sample", "sentence_retrieval/one_dev", "sentence_retrieval/two_dev"]
    assert plan_tasks(["sentence_retrieval"], folder)[0].source == str(folder / "one_dev.parquet")


@pytest.mark.parametrize(
    ("specs", "options", "match"),
    [
        (["sib20"], {}, "'sib20', expected one of .*sib200.* Did you mean 'sib200'"),
        (["sample"], {"samples": {}}, "'samples'.*Did you mean 'sample'"),
    ],
)
def test_unknown_tasks(specs, options, match):
    with pytest.raises(TaskError, match=match):
        plan_tasks(specs, options=options)


def test_sources_of_one_task_keep_their_names(folder):
    (folder / "one_dev.b.jsonl").write_text((folder / "one_dev.jsonl").read_text())
    planned = plan_tasks([f"sentence_retrieval={folder}/one_dev{end}.jsonl" for end in ("", ".b")])
    assert [plan.name for plan in planned] == ["sentence_retrieval/one_dev", "sentence_retrieval/one_dev.b.jsonl"]
    assert [plan.name for plan in plan_tasks(["sib200=x/a.csv", "sib200=b.csv"])] == ["sib200", "sib200/b.csv"]
    with pytest.raises(TaskError, match="'y/a.csv' and 'z/a.csv', which would both be called 'sib200/a.csv'"):
        plan_tasks(["sib200=x/a.csv", "sib200=y/a.csv", "sib200=z/a.csv"])


def test_languages_that_the_models_know():
    (planned,) = plan_tasks(["sample"], options={"sample": {"sizes": [8, 8, 8]}})
    assert planned.load(["es", "it"], known=["fr"]).data.languages == ["es", "it"]  # requested is requested
    assert planned.load(known=["fr", "de", "pt"]).data.languages == ["fr", "de"]
    (planned,) = plan_tasks(["sample"], options={"sample": {"sizes": [8, 8, 8]}})
    with pytest.raises(TaskError, match="none of the default languages pt"):
        planned.load(known=["pt"])


def test_data_in_languages():
    split = Split(["a"], ["text"], ["x"])
    classes = ClassificationData({code: {"test": split} for code in ("de", "en", "ja")}, PLACE)
    assert classes.restrict(["ja", "de"]).languages == ["de", "ja"]
    rows = RetrievalData(["a"], {"de": ["x"], "en": ["y"], "ja": ["z"]}, PLACE)
    assert list(rows.restrict(["de", "en"]).texts) == ["de", "en"]
    assert rows.restrict(["de"]) is None  # one language has nothing to search in
    pairs = SimilarityPairs(["a"], ["x"], ["y"], [1.0])
    similar = SimilarityData({("de", "en"): pairs, ("en", "ja"): pairs}, PLACE)
    assert list(similar.restrict(["de", "en"]).pairs) == [("de", "en")]


def test_a_classification_result_tells_everything():
    task = sample()
    result = evaluate_task(task, Hashed(), EvaluationOptions(samples=50))
    assert [(cell.source, cell.target) for cell in result.cells] == [
        (source, target) for source in ("de", "en") for target in ("de", "en")
    ]
    assert all(cell.interval[0] <= cell.value <= cell.interval[1] for cell in result.cells)
    assert result.folds == [] and "16 items a fold" in result.settings["folds"]["left_out"]
    assert result.settings["head"]["head"] == "logistic_regression"
    assert result.data["rows"]["de"] == {"train": 40, "dev": 20, "test": 20}
    assert result.data["fingerprint"] == task.fingerprint
    assert result.truncated[0] == 0 and result.truncated[1] > 0
    assert (result.protocol, result.system, result.task) == ("zero-shot", "hashed", "sample")


def test_evaluation_one_trains_on_english_alone():
    options = EvaluationOptions(train_languages=("en",), test_languages=("de",), samples=10)
    system = Hashed()
    task = sample()
    result = evaluate_task(task, system, options)
    assert [(cell.source, cell.target) for cell in result.cells] == [("en", "de")]
    assert result.folds == []
    german = task.data.splits["de"]
    assert german["train"].texts not in system.asked and german["dev"].texts not in system.asked


def test_networks_are_not_trained_on_ngrams():
    result = evaluate_task(sample(), CharacterTfidf(), EvaluationOptions(head="ffn", samples=10))
    assert result.settings["head"]["head"] == "logistic_regression"


def test_queries_of_a_task_are_part_of_its_data(folder):
    (planned,) = plan_tasks([f"xsr={folder}/one_dev.jsonl"], options={"xsr": {"queries": 2, "candidates": 6}})
    few = planned.load(["de", "en"])
    (planned,) = plan_tasks([f"xsr={folder}/one_dev.jsonl"], options={"xsr": {"queries": 3, "candidates": 6}})
    more = planned.load(["de", "en"])
    assert few.fingerprint != more.fingerprint
    sizes = [
        evaluate_task(task, Hashed(), EvaluationOptions(samples=5)).cells[0].extra["size"] for task in (few, more)
    ]
    assert sizes == [2, 3]


def test_results_are_cached_by_everything_that_decides_them(tmp_path, monkeypatch):
    measured = []
    real = runner._measure
    monkeypatch.setattr(
        runner,
        "_measure",
        lambda task, system, *rest: measured.append(system.name) or real(task, system, *rest),
    )

    def run(system, task, options):
        (result,) = evaluate([task], [system], options, tmp_path)
        return result

    task, options = sample(), EvaluationOptions(samples=20)
    first = run(Hashed("first"), task, options)
    again = run(Hashed("renamed"), task, options)
    assert measured == ["first"]
    assert again.system == "renamed"
    assert [cell.value for cell in again.cells] == [cell.value for cell in first.cells]
    np.testing.assert_array_equal(again.cells[1].outcomes, first.cells[1].outcomes)
    run(Hashed("other", salt="x"), task, options)
    run(Hashed("seed"), task, EvaluationOptions(samples=20, seed=1))
    run(Hashed("data"), sample(seed=1), options)
    monkeypatch.setattr(runner, "_code_fingerprint", lambda: "new code")
    run(Hashed("code"), task, options)
    assert measured == ["first", "other", "seed", "data", "code"]


def embedding_system(tokenizer, cache=None) -> EmbeddingSystem:
    return EmbeddingSystem("tiny", DocumentEmbedder(tiny_model(), tokenizer), cache, show_progress_bar=False)


@pytest.mark.parametrize("cached", [True, False])
def test_weights_that_changed_between_two_tasks_are_measured_anew(cached, tokenizer, tmp_path):
    folder, task, options = (tmp_path if cached else None), sample(), EvaluationOptions(samples=10, folds=False)

    def measure(system) -> TaskResult:
        (result,) = evaluate([task], [system], options, folder)
        return result

    system = embedding_system(tokenizer, VectorCache(folder) if cached else None)
    before = measure(system)
    with torch.no_grad():
        for parameter in system.embedder.model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
    after = measure(system)
    fresh = EmbeddingSystem("tiny", system.embedder, show_progress_bar=False)
    expected = evaluate_task(task, fresh, options)
    assert [cell.value for cell in after.cells] == [cell.value for cell in expected.cells]
    assert [cell.value for cell in after.cells] != [cell.value for cell in before.cells]
    assert after.system_fingerprint == expected.system_fingerprint == model_fingerprint(system.embedder)
    assert before.system_fingerprint != after.system_fingerprint
