"""From task names to results: finding data, languages, options, the cache of results."""

import itertools

import numpy as np
import pytest
import torch

from tests.conftest import tiny_model
from tests.eval.fake_system import FakeSystem
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval import runner
from tmde.eval.model_fingerprint import model_fingerprint
from tmde.eval.planning import PlannedTask, plan_tasks
from tmde.eval.results import TaskResult, pairs_of, values_of
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem
from tmde.eval.tasks import TaskError, text_fingerprint


def hashed(name: str = "hashed", salt: str = "") -> FakeSystem:
    """A system whose vectors depend on nothing but the text."""

    def vector(text: str) -> np.ndarray:
        seed = int(text_fingerprint([salt, text]), 16)
        return np.random.default_rng(seed).normal(size=8)

    return FakeSystem(vector, name, f"0{salt}")


def plan_sample(**options) -> PlannedTask:
    (planned,) = plan_tasks(["sample"], options={"sample": options})
    return planned


def sample(languages=("de", "en"), **options):
    return plan_sample(sizes=[40, 20, 20], **options).load(languages)


def measure(task, system, folder=None, **options) -> TaskResult:
    options = EvaluationOptions(**{"samples": 10, **options})
    (result,) = evaluate([task], [system], options, folder)
    return result


# ---- Plans


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
    names_and_sources = [(plan.name, plan.source) for plan in plan_tasks(specs)]
    assert names_and_sources == expected


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
        (["sample"], {"xnli": {}}, "xnli, which does not run"),
        (["sib200=x/a", "sib200=y/a", "sib200=z/a"], {}, "two sources called 'sib200/a'"),
    ],
    ids=["task", "task of options", "unused options", "names"],
)
def test_bad_tasks(specs, options, match):
    with pytest.raises(TaskError, match=match):
        plan_tasks(specs, options=options)


def test_an_option_that_the_task_lacks():
    with pytest.raises(TaskError, match="sample: found option 'size', expected one of .*'sizes'"):
        plan_sample(size=3).load()


def test_languages_that_are_asked_for_need_not_be_known_to_the_models():
    loaded = plan_sample(sizes=[8, 8, 8]).load(["es", "it"], known=["fr"])

    assert loaded.data.languages == ["es", "it"]


def test_by_default_only_languages_that_the_models_know_are_loaded():
    loaded = plan_sample(sizes=[8, 8, 8]).load(known=["fr", "de", "pt"])

    assert loaded.data.languages == ["fr", "de"]


def test_a_plan_is_loaded_for_one_choice_of_languages_after_another():
    planned = plan_sample(sizes=[8, 8, 8])
    languages = planned.task.languages

    assert planned.load(known=["fr", "de"]).data.languages == ["fr", "de"]
    assert planned.task.languages == languages


def test_models_that_know_no_language_of_the_task():
    with pytest.raises(TaskError, match="none of the default languages pt"):
        plan_sample(sizes=[8, 8, 8]).load(known=["pt"])


# ---- Results


def test_classification_result():
    result = measure(sample(), hashed(), samples=50)

    assert pairs_of(result.cells) == list(itertools.product(("de", "en"), repeat=2))
    for cell in result.cells:
        low, high = cell.interval
        assert low <= cell.value <= high


def test_folds_are_left_out_where_there_are_too_few_items():
    result = measure(sample(), hashed())

    assert result.folds == []
    assert "16 items per fold" in result.settings["folds"]["left_out"]


def test_results_say_whether_the_system_has_dense_vectors():
    assert measure(sample(), hashed()).dense
    assert not measure(sample(), CharacterTfidf()).dense


def test_networks_are_not_trained_on_ngrams():
    result = measure(sample(), CharacterTfidf(), head="ffn")

    assert result.settings["head"]["head"] == "logistic_regression"


def test_evaluation_one_trains_on_english_only():
    task = sample()

    result = measure(task, hashed(), train_languages=("en",), test_languages=("de",))

    assert pairs_of(result.cells) == [("en", "de")]
    assert result.folds == []


def test_texts_that_a_protocol_does_not_need_are_not_embedded():
    system = hashed()
    task = sample()
    german = task.data.splits["de"]

    measure(task, system, train_languages=("en",), test_languages=("de",))

    embedded = [texts for texts, _ in system.calls]
    assert german["test"].texts in embedded
    assert german["train"].texts not in embedded
    assert german["dev"].texts not in embedded


# ---- The cache of results


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """The names of the systems that were measured and not read from the cache."""
    names = []
    real_measure = runner._measure

    def counting_measure(task, system, *arguments):
        names.append(system.name)
        return real_measure(task, system, *arguments)

    monkeypatch.setattr(runner, "_measure", counting_measure)
    return names


def test_a_renamed_system_is_read_from_the_cache(tmp_path, measured):
    task = sample()

    first = measure(task, hashed("first"), tmp_path)
    again = measure(task, hashed("renamed"), tmp_path)

    assert measured == ["first"]
    assert again.system == "renamed"
    np.testing.assert_array_equal(again.cells[1].outcomes, first.cells[1].outcomes)


def test_cached_results_depend_on_system_data_options_and_code(tmp_path, measured, monkeypatch):
    task = sample()
    measure(task, hashed("first"), tmp_path)

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
    randomize(embedder.model)
    after = measure(task, system, tmp_path)

    uncached = measure(task, EmbeddingSystem("tiny", embedder, show_progress_bar=False))
    assert values_of(after.cells) == values_of(uncached.cells)
    assert values_of(after.cells) != values_of(before.cells)
    assert after.system_fingerprint == model_fingerprint(embedder)
    assert after.system_fingerprint != before.system_fingerprint


def randomize(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        generator = torch.Generator().manual_seed(parameter.numel())
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
