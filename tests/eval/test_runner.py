"""From task names to results: finding data, languages, options, the cache of results."""

import itertools

import numpy as np
import pytest
import torch

from tests.conftest import tiny_model
from tests.eval.fake_system import FakeSystem
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval import runner
from tmde.eval.results import TaskResult
from tmde.eval.runner import EvaluationOptions, evaluate, plan_tasks
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem, model_fingerprint
from tmde.eval.tasks import TaskError, text_fingerprint


def hashed(name: str = "hashed", salt: str = "") -> FakeSystem:
    """A system whose vectors depend on nothing but the text."""
    return FakeSystem(
        lambda text: np.random.default_rng(int(text_fingerprint([salt, text]), 16)).normal(size=8),
        name,
        f"0{salt}",
    )


def sample(languages=("de", "en"), **options):
    (planned,) = plan_tasks(["sample"], options={"sample": {"sizes": [40, 20, 20], **options}})
    return planned.load(languages)


def measure(task, system, folder=None, **options) -> TaskResult:
    (result,) = evaluate([task], [system], EvaluationOptions(**{"samples": 10, **options}), folder)
    return result


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (
            ["sample", "xnli", "sts=some/dataset"],
            [("sample", "sample"), ("xnli", "facebook/xnli"), ("sts", "some/dataset")],
        ),
        (["sib200=x/a.csv", "sib200=b.csv"], [("sib200", "x/a.csv"), ("sib200/b", "b.csv")]),
        (["sentence_retrieval=x/dev.jsonl"], [("sentence_retrieval/dev", "x/dev.jsonl")]),
    ],
)
def test_names_and_sources(specs, expected):
    assert [(plan.name, plan.source) for plan in plan_tasks(specs)] == expected


def test_all_is_the_sample_and_the_files_of_the_folder(tmp_path):
    for name in ("one_dev", "two_dev"):
        (tmp_path / f"{name}.parquet").touch()
    names = [plan.name for plan in plan_tasks(["all"], tmp_path)]
    assert names == ["sample", "sentence_retrieval/one_dev", "sentence_retrieval/two_dev"]


@pytest.mark.parametrize(
    ("specs", "options", "match"),
    [
        (["sib20"], {}, "'sib20', expected one of .*sib200.*"),
        (["sample"], {"samples": {}}, "'samples', expected one of .*sample"),
        (["sample"], {"xnli": {}}, "xnli, which is not among the tasks to run"),
        (["sib200=x/a", "sib200=y/a", "sib200=z/a"], {}, "two sources called 'sib200/a'"),
    ],
)
def test_bad_tasks(specs, options, match):
    with pytest.raises(TaskError, match=match):
        plan_tasks(specs, options=options)


def test_languages_that_the_models_know():
    (planned,) = plan_tasks(["sample"], options={"sample": {"sizes": [8, 8, 8]}})
    assert planned.load(["es", "it"], known=["fr"]).data.languages == [
        "es",
        "it",
    ]  # an explicit choice
    assert planned.load(known=["fr", "de", "pt"]).data.languages == ["fr", "de"]
    (planned,) = plan_tasks(["sample"], options={"sample": {"sizes": [8, 8, 8]}})
    with pytest.raises(TaskError, match="none of the default languages pt"):
        planned.load(known=["pt"])


def test_classification_result():
    task = sample()
    result = measure(task, hashed(), samples=50)
    assert [cell.pair for cell in result.cells] == list(itertools.product(("de", "en"), repeat=2))
    assert all(cell.interval[0] <= cell.value <= cell.interval[1] for cell in result.cells)
    assert result.folds == [] and "16 items a fold" in result.settings["folds"]["left_out"]
    tfidf = measure(task, CharacterTfidf(), head="ffn")  # networks are not trained on n-grams
    assert tfidf.settings["head"]["head"] == "logistic_regression"


def test_evaluation_one_trains_on_english_only():
    system, task = hashed(), sample()
    result = measure(task, system, train_languages=("en",), test_languages=("de",))
    assert [cell.pair for cell in result.cells] == [("en", "de")] and result.folds == []
    asked, german = [texts for texts, _ in system.calls], task.data.splits["de"]
    assert (
        german["test"].texts in asked
        and german["train"].texts not in asked
        and german["dev"].texts not in asked
    )


def test_cached_results_depend_on_system_data_options_and_code(tmp_path, monkeypatch):
    measured, real = [], runner._measure
    monkeypatch.setattr(
        runner,
        "_measure",
        lambda task, system, *rest: measured.append(system.name) or real(task, system, *rest),
    )
    task = sample()
    first = measure(task, hashed("first"), tmp_path)
    again = measure(task, hashed("renamed"), tmp_path)
    assert measured == ["first"] and again.system == "renamed"
    np.testing.assert_array_equal(again.cells[1].outcomes, first.cells[1].outcomes)
    measure(task, hashed("other", salt="x"), tmp_path)
    measure(task, hashed("seed"), tmp_path, seed=1)
    measure(sample(seed=1), hashed("data"), tmp_path)
    monkeypatch.setattr(runner, "_code_fingerprint", lambda: "new code")
    measure(task, hashed("code"), tmp_path)
    assert measured == ["first", "other", "seed", "data", "code"]


def test_weights_that_changed_between_two_tasks_are_measured_anew(tokenizer, tmp_path):
    task = sample()
    embedder = DocumentEmbedder(tiny_model(), tokenizer)
    system = EmbeddingSystem("tiny", embedder, tmp_path, show_progress_bar=False)
    before = measure(task, system, tmp_path)
    with torch.no_grad():
        for parameter in embedder.model.parameters():
            parameter.copy_(
                torch.randn(
                    parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())
                )
            )
    after = measure(task, system, tmp_path)
    expected = measure(task, EmbeddingSystem("tiny", embedder, show_progress_bar=False))
    assert [cell.value for cell in after.cells] == [cell.value for cell in expected.cells]
    assert [cell.value for cell in after.cells] != [cell.value for cell in before.cells]
    assert after.system_fingerprint == model_fingerprint(embedder) != before.system_fingerprint
