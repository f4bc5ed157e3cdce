"""Claims of `tmde compare`: what the file says, what is read of runs, and `claims.json`."""

import copy
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from tests.cli.conftest import run
from tests.papers.test_compare import CONTENT
from tmde.data import load_parallel
from tmde.eval.results import Cell, TaskResult, read_results, write_results
from tmde.papers.claims import (
    learning_curve,
    training_cpu_minutes,
    words_per_second,
    write_claims,
)
from tmde.papers.trainings import load_comparison, trainings_of_claims
from tmde.papers.verdicts import INCONCLUSIVE, NOT_RUN, NOT_TESTED, REPLICATES

SENTENCES = {"title": "P@1", "tasks": ["found"], "group": "Cross"}
SAID = {"paper": "Li, 2021", "place": "table 1", "sentence": "A is better.", "verbatim": False}
CLAIM = {**SAID, "better": "warm", "worse": "bag", "equal": "rows", "measures": [SENTENCES]}
SYSTEMS = {
    "bag": {**CONTENT["systems"]["bag"], "seeds": [1, 2, 3]},
    "warm": {**CONTENT["systems"]["warm"], "seeds": [1, 2, 3]},
}
WITHIN_ONE_SYSTEM = {
    "better": "warm",
    "worse": "warm",
    "equal": "the model",
    "columns": ["same", "other"],
}
FILE = {
    **CONTENT,
    "systems": SYSTEMS,
    "evaluations": {"long": {"tasks": ["sample"], "max_length": 99, "systems": ["warm"]}},
    "task_options": {},
    "claims": {"above": CLAIM, "unknown": {**SAID, "why_not": "No data."}},
}


def with_claim(**changes) -> dict:
    content = copy.deepcopy(FILE)
    content["claims"]["above"].update(changes)
    return content


def load(folder: Path, content: dict = FILE):
    (folder / "file.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_comparison(
        str(folder / "file.yaml"), folder / "out", {"data.train": "sample"}, None
    )


# ---- The file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"better": "wram"}, r"claims\.above: system 'wram' is unknown; did you mean warm"),
        ({"why_not": "No data."}, r"claims\.above: expected either why_not, or all of better"),
        ({"measures": []}, r"claims\.above: expected either why_not, or all of better"),
        ({"measure": SENTENCES}, "above: key 'measure' is unknown; did you mean measures"),
        ({"measures": [{"title": "x"}]}, r"measure 'x': found tasks=\[\] and cost=None"),
        (
            {"measures": [{**SENTENCES, "grop": "Same"}]},
            r"above\.measures\.0: key 'grop' is unknown; did you mean group",
        ),
        ({"worse_measures": []}, "worse_measures: found 0, expected one for each of the 1"),
        (
            {"measures": [{**SENTENCES, "evaluation": "long"}]},
            r"claims\.above: evaluation of bag 'long' is unknown; known: eval",
        ),
        ({"equal": "row"}, r"claims\.above\.equal: found 'row'"),
        ({"worse": "warm"}, r"claims\.above: columns: found None, expected two titles where"),
        ({"columns": ["a", "b"]}, r"columns: found \['a', 'b'\], expected two titles where"),
    ],
)
def test_mistakes_are_one_sentence(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, with_claim(**changes))


def test_an_evaluation_is_needed_of_the_system_that_it_measures(tmp_path):
    """`bag` takes no part in `long`, and need not."""
    content = with_claim(measures=[{**SENTENCES, "evaluation": "long"}], worse_measures=[SENTENCES])
    file, trainings = load(tmp_path, content)
    evaluations = {}
    for training in trainings_of_claims(file, trainings, ["above"]):
        evaluations[training.system] = list(training.evaluations)
    assert evaluations["warm"] == ["eval", "long"]
    assert evaluations["bag"] == ["eval"]


def test_a_claim_needs_two_seeds(tmp_path):
    content = copy.deepcopy(FILE)
    content["systems"]["bag"]["seeds"] = [1]
    message = r"claims\.above: found the seeds \[1\] of bag, expected at least 2"
    with pytest.raises(ValueError, match=message):
        load(tmp_path, content)


def test_tfidf_can_be_left_out_and_long_documents_be_split(tmp_path):
    file, _ = load(tmp_path, {**FILE, "tfidf": False, "long_documents": "words"})
    options = file.options_of_evaluations(tmp_path, None)
    assert options["eval"][options["eval"].index("--long-documents") + 1] == "words"
    assert "--long-documents" not in options["long"]
    assert "--no-tfidf" in options["eval"]
    assert "--no-tfidf" not in options["long"]


def test_the_systems_of_a_claim_may_have_other_seeds(tmp_path):
    """They are compared by Welch's test, which makes no pairs of seeds."""
    content = copy.deepcopy(FILE)
    content["systems"]["bag"]["seeds"] = [1, 2, 4]
    renamed = {**CLEAR, "bag-4": CLEAR["bag-3"]}
    _, claims = claims_of(tmp_path, content, renamed)
    assert claims["above"]["verdict"] == REPLICATES
    assert claims["above"]["corrected_p"] == pytest.approx(0.0080497, abs=1e-6)


def test_a_file_takes_what_it_lacks_from_its_base(tmp_path):
    load(tmp_path)
    seeds = {system: {**entry, "seeds": [7, 8, 9]} for system, entry in SYSTEMS.items()}
    (tmp_path / "more.yaml").write_text(
        yaml.safe_dump({"base": str(tmp_path / "file.yaml"), "systems": seeds}), encoding="utf-8"
    )
    file, _ = load_comparison(
        str(tmp_path / "more.yaml"), tmp_path / "out", {"data.train": "sample"}, None
    )
    assert file.seeds_of("bag") == [7, 8, 9]
    assert list(file.claims) == ["above", "unknown"]
    assert file.description == CONTENT["description"]


def test_sources_of_tasks_are_looked_for_in_the_data(tmp_path):
    (tmp_path / "pairs.csv").touch()
    file, _ = load(tmp_path)
    settings = file.model_copy(update={"tasks": ["tatoeba=pairs.csv", "sts=mteb/sts", "sample"]})
    located = [f"tatoeba={tmp_path / 'pairs.csv'}", "sts=mteb/sts", "sample"]
    assert settings.located_tasks(tmp_path) == located
    assert settings.located_tasks(None) == settings.tasks


def test_an_evaluation_has_its_own_options_and_folders(tmp_path):
    file, trainings = load(tmp_path)
    options = file.options_of_evaluations(tmp_path, None)
    assert options["long"][options["long"].index("--max-length") + 1] == "99"
    assert "--max-length" not in options["eval"]
    warm = next(training for training in trainings if training.system == "warm")
    bag = next(training for training in trainings if training.system == "bag")
    assert list(warm.evaluations) == ["eval", "long"]
    assert list(bag.evaluations) == ["eval"]
    assert warm.evaluation_folder("long") == tmp_path / "out" / "evaluations" / "long" / "warm-1"
    assert warm.evaluation_folder("eval") == tmp_path / "out" / "eval" / "warm-1"


def test_only_the_systems_of_a_claim_are_run(tmp_path):
    content = copy.deepcopy(FILE)
    content["systems"]["other"] = {"recipe": "bag"}
    file, trainings = load(tmp_path, content)
    chosen = trainings_of_claims(file, trainings, ["above"])
    assert [training.name for training in chosen] == [
        "base",
        *[f"bag-{seed}" for seed in (1, 2, 3)],
        *[f"warm-{seed}" for seed in (1, 2, 3)],
    ]
    assert all(list(training.evaluations) == ["eval"] for training in chosen[1:])
    with pytest.raises(ValueError, match="--only: claim 'abov' is unknown; did you mean above"):
        trainings_of_claims(file, trainings, ["abov"])
    with pytest.raises(ValueError, match="--only unknown: the claim is not tested: No data"):
        trainings_of_claims(file, trainings, ["unknown"])


# ---- What is read of runs

# In 3 of the 4 CPU minutes, 3,600 words of one side and 1,800 of the other were read: 30 a second.
RECORD = {
    "steps": 20,
    "best_step": 10,
    "cpu_minutes": 4.0,
    "evaluation_cpu_minutes": 1.0,
    "seen": {"rows": 500, "source_words": 3600, "target_words": 1800},
}


def test_speed_by_hand():
    assert training_cpu_minutes(RECORD) == pytest.approx(3.0)
    assert words_per_second(RECORD) == pytest.approx(30.0)


def test_learning_curve(tmp_path):
    """Minutes are those of the CPU, a quarter of one a step, and not those of the log's clock.

    Step 15 lies between the lines of steps 10 and 20, with 100 and 220 rows: 160. The rows of the
    last step are logged after its evaluation.
    """
    lines = [
        {"step": 10, "loss": 3.0, "rows": 100, "minutes": 1.0},
        {"step": 15, "eval_retrieval": 0.3, "eval_mix": 0.3, "eval_minutes": 1.5},
        {"step": 20, "loss": 2.0, "rows": 220, "minutes": 3.5},
        {"step": 24, "eval_retrieval": 0.4, "eval_mix": 0.4, "eval_minutes": 3.75},
        {"step": 24, "loss": 2.0, "rows": 260, "minutes": 3.75},
        {"step": 24, "train_loss": 2.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "log.jsonl").write_text(text)
    first, second = learning_curve(tmp_path, 0.25)
    assert first == {"step": 15, "rows": 160, "minutes": 3.75, "retrieval": 0.3}
    assert second == {"step": 24, "rows": 260, "minutes": 6.0, "retrieval": 0.4}


def test_a_run_without_log_has_no_curve(tmp_path):
    assert learning_curve(tmp_path, 0.25) == []


# ---- The results


def result(system: str, share: float, task: str = "found") -> TaskResult:
    """A share of right answers from German to English, and all within German."""
    ids = [str(number) for number in range(1000)]
    cells = []
    for target, value in (("de", 1.0), ("en", share)):
        outcomes = (np.arange(1000) < round(1000 * value)).astype(float)
        extra = {"components_90": 100 * value}
        cells.append(Cell("de", target, "accuracy", value, ids, outcomes, 0.25, extra=extra))
    return TaskResult(
        task,
        system,
        "zero-shot",
        cells,
        data={"fingerprint": "f"},
        seconds={"embedding": 9.0, "embedding on CPU cores": 4.0},
        truncated=(0, 100),
    )


def finish(training, share: float, cpu_minutes: float = 4.0, **changes) -> None:
    """Write what a finished run and its evaluation leave."""
    training.run.mkdir(parents=True)
    (training.run / "results.json").write_text(
        json.dumps({**RECORD, "cpu_minutes": cpu_minutes, **changes}), encoding="utf-8"
    )
    results = [result(training.name, share), result(training.name, share, "vector_geometry")]
    write_results(training.evaluation, results, {})


def claims_of(folder: Path, content: dict, shares: dict[str, float]) -> tuple[dict, dict]:
    """Return `claims.json` and its claims by id, after runs with these shares are finished."""
    file, trainings = load(folder, content)
    (folder / "out").mkdir()
    for training in trainings:
        if training.name in shares:
            finish(training, shares[training.name])
    write_claims(file, trainings)
    written = json.loads((folder / "out" / "claims.json").read_text())
    return written, {claim["id"]: claim for claim in written["claims"]}


# Means 0.61 and 0.57, both with the variance 0.01²: the standard error is 0.01 sqrt(2 / 3), and
# t = 4.898979 with 4 degrees of freedom. With sin = t / sqrt(t² + 4) = 0.925820 and
# cos² = 4 / (t² + 4) = 1 / 7, p = 1 - sin (1 + cos² / 2) = 0.0080497.
CLEAR = {"warm-1": 0.6, "warm-2": 0.61, "warm-3": 0.62, "bag-1": 0.56, "bag-2": 0.57, "bag-3": 0.58}


def test_a_verdict_by_hand(tmp_path):
    written, claims = claims_of(tmp_path, FILE, CLEAR)
    claim = claims["above"]
    assert claim["verdict"] == REPLICATES
    assert claim["corrected_p"] == pytest.approx(0.0080497, abs=1e-6)
    (measure,) = claim["measures"]
    assert measure["unit"] == "share"
    assert measure["better"] == {"1": 0.6, "2": 0.61, "3": 0.62}
    assert measure["difference"]["mean"] == pytest.approx(0.04)
    assert claims["unknown"]["verdict"] == NOT_TESTED
    assert written["runs"] == {"planned": 6, "measured": 6}
    assert written["cpu_hours"] == pytest.approx(6 * 4 / 60)
    assert written["systems"]["warm"]["seeds"]["2"]["words_per_second"] == 30.0


def test_the_vectors_of_a_system_are_described_by_means_over_seeds(tmp_path):
    """Both cells of a seed have 100 components times their value: 100 and 60, 61 or 62."""
    written, _ = claims_of(tmp_path, FILE, CLEAR)
    geometry = written["systems"]["warm"]["geometry"]
    assert geometry["components_90"] == pytest.approx((100 + 61) / 2)
    assert geometry["language_accuracy"] == pytest.approx((1.0 + 0.61) / 2)
    assert "debiased_rank" not in geometry  # These cells lack it.


def test_all_claims_are_corrected_together(tmp_path):
    """With 19 claims to come, 20 times 0.0080497 is above 0.05."""
    content = copy.deepcopy(FILE)
    other = {**CLAIM, "measures": [{**SENTENCES, "tasks": ["not_measured"]}]}
    for number in range(19):
        content["claims"][f"later-{number}"] = other
    _, claims = claims_of(tmp_path, content, CLEAR)
    assert claims["above"]["corrected_p"] == pytest.approx(20 * 0.0080497, abs=1e-4)
    assert claims["above"]["verdict"] == INCONCLUSIVE
    assert claims["later-3"]["verdict"] == NOT_RUN


def test_there_is_no_verdict_before_all_seeds(tmp_path):
    shares = dict(CLEAR)
    del shares["bag-3"]
    written, claims = claims_of(tmp_path, FILE, shares)
    claim = claims["above"]
    assert claim["verdict"] == NOT_RUN
    assert claim["seeds_done"] == [3, 2]
    assert claim["corrected_p"] is None
    assert written["runs"]["measured"] == 5


def test_nothing_is_run_yet(tmp_path):
    written, claims = claims_of(tmp_path, FILE, {})
    assert claims["above"]["verdict"] == NOT_RUN
    assert claims["above"]["measures"][0]["difference"] is None
    assert written["systems"]["bag"] == {"seeds": {}, "curve": [], "geometry": {}}
    assert written["cpu_hours"] == 0


def test_groups_and_further_measures(tmp_path):
    measures = [
        {"title": "same", "tasks": ["found"], "group": "Same"},
        {"title": "all", "tasks": ["found"]},
        {"title": "components", "tasks": ["found"], "value": "components_90"},
        {"title": "missing", "tasks": ["found"], "value": "mrr"},
        {"title": "folds", "tasks": ["found"], "value": "folds"},
        {"title": "embedding", "cost": "texts_per_second"},
    ]
    _, claims = claims_of(tmp_path, with_claim(measures=measures), CLEAR)
    first_seeds = {}
    units = {}
    for measure in claims["above"]["measures"]:
        first_seeds[measure["title"]] = measure["better"].get("1")
        units[measure["title"]] = measure["unit"]
    assert first_seeds == {
        "same": 1.0,
        "all": 0.8,
        "components": 80.0,
        "missing": None,
        "folds": None,
        "embedding": 25.0,
    }
    assert units["components"] == "count"
    assert units["embedding"] == "ratio"


def test_costs_are_compared_as_ratios_and_less_can_be_better(tmp_path):
    """The better system takes 0.50, 0.51 and 0.52 of the time."""
    measures = [{"title": "time", "cost": "cpu_minutes"}]
    file, trainings = load(tmp_path, with_claim(measures=measures, less_is_better=True))
    (tmp_path / "out").mkdir()
    for training in trainings:
        if training.system is not None:
            factor = 0.49 + 0.01 * training.seed if training.system == "warm" else 1.0
            finish(training, 0.5, 1.0 + factor)
    write_claims(file, trainings)
    written = json.loads((tmp_path / "out" / "claims.json").read_text())
    claim = written["claims"][0]
    expected = -(math.log(0.50) + math.log(0.51) + math.log(0.52)) / 3
    assert claim["measures"][0]["difference"]["mean"] == pytest.approx(expected)
    assert claim["verdict"] == REPLICATES


def test_only_the_verdicts_that_are_asked_for_are_shown(tmp_path):
    file, trainings = load(tmp_path)
    (tmp_path / "out").mkdir()
    every_line = write_claims(file, trainings).splitlines()
    claim_id = list(file.claims)[-1]
    assert len(every_line) == len(file.claims) > 1
    assert write_claims(file, trainings, [claim_id]) == every_line[-1]
    assert every_line[-1].startswith(f"{claim_id}: ")
    written = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert len(written["claims"]) == len(file.claims)


def test_peak_memory_is_a_cost(tmp_path):
    """The better system takes 1,001 to 1,003 MiB, and the other one 2,500."""
    measures = [{"title": "memory", "cost": "peak_memory_mib"}]
    file, trainings = load(tmp_path, with_claim(measures=measures, less_is_better=True))
    (tmp_path / "out").mkdir()
    for training in trainings:
        if training.system is not None:
            memory = 1000 + training.seed if training.system == "warm" else 2500
            finish(training, 0.5, peak_memory_mib=memory)
    write_claims(file, trainings)
    claim = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"][0]
    assert claim["measures"][0]["worse"] == {"1": 2500, "2": 2500, "3": 2500}
    assert claim["measures"][0]["unit"] == "ratio"
    assert claim["measures"][0]["difference"]["mean"] == pytest.approx(
        math.log(2500) - (math.log(1001) + math.log(1002) + math.log(1003)) / 3
    )
    assert claim["verdict"] == REPLICATES


def test_runs_that_did_not_record_their_memory_have_no_verdict(tmp_path):
    measures = [{"title": "memory", "cost": "peak_memory_mib"}]
    _, claims = claims_of(tmp_path, with_claim(measures=measures, less_is_better=True), CLEAR)
    assert claims["above"]["verdict"] == NOT_RUN
    assert claims["above"]["seeds_done"] == [0, 0]


def test_two_measures_of_one_system(tmp_path):
    """The means over both cells are 0.80, 0.805 and 0.81, and the other measure 0.60 to 0.62."""
    mean = {"title": "mean", "tasks": ["found"]}
    content = with_claim(**WITHIN_ONE_SYSTEM, measures=[mean], worse_measures=[SENTENCES])
    _, claims = claims_of(tmp_path, content, CLEAR)
    (measure,) = claims["above"]["measures"]
    # Differences of the same models, with 2 degrees of freedom.
    expected = stats.ttest_1samp([0.20, 0.195, 0.19], 0)
    assert measure["difference"]["mean"] == pytest.approx(0.195)
    assert measure["difference"]["p"] == pytest.approx(expected.pvalue)
    assert claims["above"]["seeds"] == [3, 3]
    assert claims["above"]["columns"] == ["same", "other"]


def test_the_best_source_of_each_target(tmp_path):
    """To English, German is better than French; to German, French alone is measured."""
    ids = ["1", "2"]
    cells = []
    for source, target, value in [
        ("de", "en", 0.75),
        ("fr", "en", 0.5),
        ("fr", "de", 0.25),
        ("en", "en", 1.0),
    ]:
        cells.append(Cell(source, target, "accuracy", value, ids, np.zeros(2), 0.25))
    best = {**SENTENCES, "group": "Best source"}
    file, trainings = load(tmp_path, with_claim(measures=[best]))
    (tmp_path / "out").mkdir()
    for training in trainings:
        if training.system is not None:
            finish(training, 0.5)
            measured = dataclasses.replace(result(training.name, 0.5), cells=cells)
            write_results(training.evaluation, [measured], {})
    write_claims(file, trainings)
    claim = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"][0]
    assert claim["measures"][0]["better"]["1"] == pytest.approx((0.75 + 0.25) / 2)


# ---- A claim of the package


def write_pages(path: Path, count: int = 40) -> None:
    """Write documents of five sentences of the sample, in German and English."""
    rows = []
    sample = load_parallel("sample", ["de", "en"])["translation"][: 5 * count]
    for number in range(count):
        for language in ("de", "en"):
            sentences = [row[language] for row in sample[5 * number : 5 * number + 5]]
            text = "\n".join(sentences)
            rows.append({"doc_id": str(number), "language": language, "text": text})
    path.parent.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(path)


def test_weighting_is_measured_against_the_mean(tmp_path):
    """Both evaluations of the claim, by the options of `claims`, of the packaged model."""
    data = tmp_path / "data"
    write_pages(data / "test" / "tldr_documents.parquet")
    (data / "topic_documents.parquet").touch()
    file, trainings = load_comparison("claims", tmp_path / "out", {"data.train": "sample"}, data)
    (training,) = [training for training in trainings if training.name == "mlm-42"]
    options = file.options_of_evaluations(tmp_path / "out", data)
    weighted = {}
    for name in ("weighted sentences", "mean of sentences"):
        assert name in training.evaluations
        folder = training.evaluation_folder(name)
        command = run("eval", "mlm-42=default", "-o", folder, "--no-tfidf", *options[name])
        assert command.exit_code == 0, command.output
        (result,) = read_results(folder)
        weighted[name] = result.settings["lawdr_weighted"]
    assert weighted == {"weighted sentences": True, "mean of sentences": False}
    write_claims(file, trainings)
    written = json.loads((tmp_path / "out" / "claims.json").read_text())
    (claim,) = [claim for claim in written["claims"] if claim["id"] == "weighting-above-mean"]
    assert claim["seeds_done"] == [1, 1]
    for measure in claim["measures"]:
        assert 0 < measure["better"]["42"] <= 1
        assert 0 < measure["worse"]["42"] <= 1
