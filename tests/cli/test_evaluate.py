"""`tmde eval`: the whole command on tiny models and files."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from tests.conftest import make_rows, save, tiny_model
from tests.hub_encoders import save_encoder
from tmde.cli.evaluate import app
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.results import read_results, summarize
from tmde.eval.systems import model_fingerprint

SAMPLE = ["--tasks", "sample", "--set", "sample.sizes=[40,20,20]", "--languages", "de,en"]


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory):
    """Two tiny checkpoints of different weights, trained on five languages by their config."""
    folder = tmp_path_factory.mktemp("models")
    return [str(save(folder / f"tiny{seed}", tiny_model(seed), tokenizer)) for seed in (0, 1)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TMDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def call(*arguments, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_two_models_on_two_tasks(models, tmp_path):
    rows = [
        {"translation": {name: row[name] for name in ("de", "fr")}} for row in make_rows(40, seed=3)
    ]
    (tmp_path / "some_dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out, tasks = tmp_path / "out", ("sample", "sentence_retrieval/some_dev")
    options = [
        "--tasks",
        f"sample,sentence_retrieval={tmp_path}/some_dev.jsonl",
        "--max-length",
        20,
        "-o",
        out,
    ]
    options += ["--set", "sample.sizes=[300,100,100]", "--languages", "de,fr"]
    output = call(f"one={models[0]}", models[1], *options)
    for text in (
        "one",
        "TF-IDF",
        "chance",
        "majority",
        "Cross",
        *tasks,
        "longer than 20 tokens",
        "tiny1 - one",
    ):
        assert text in output
    results = read_results(out)
    expected = list(itertools.product(tasks, ("one", "tiny1", "TF-IDF")))
    assert [(result.task, result.system) for result in results] == expected
    assert len(results[0].cells) == 4
    assert len(results[0].folds) == 10
    report = (out / "report.md").read_text(encoding="utf-8")
    differences = report[report.index("### tiny1 - one") : report.index("## Figures")]
    assert differences.count("| sample ") == 3
    assert differences.count("sentence") == 1  # Same, Cross, All; and Cross
    names = (
        "sample-matrix",
        "sample-one-space",
        "sample-tiny1-space",
        "sentence_retrieval-some_dev-matrix",
    )
    assert sorted(path.stem for path in (out / "figures").iterdir()) == list(names)
    # Again into the same folder, with fewer things to write: nothing of the first evaluation stays.
    assert "--overwrite" in call(models[0], *SAMPLE, "-o", out, status=1)
    (out / "figures" / "mine.png").touch()
    call(models[0], *SAMPLE, "-o", out, "--no-figures", "--no-tfidf", "--overwrite")
    assert [path.name for path in (out / "figures").iterdir()] == ["mine.png"]
    record = json.loads((out / "eval.json").read_text(encoding="utf-8"))
    assert list(record["models"]) == ["tiny0"]
    assert "'max_length': 128" in record["models"]["tiny0"]
    assert record["options"]["seed"] == 0
    assert [(result.task, result.system) for result in read_results(out)] == [("sample", "tiny0")]
    assert sorted(path.name for path in out.iterdir()) == [
        "eval.json",
        "figures",
        "outcomes.npz",
        "report.md",
    ]


def test_a_baseline_by_first_output_and_mean(models, tmp_path):
    folder, out = save_encoder(tmp_path / "bert", "bert"), tmp_path / "out"
    call(
        models[0],
        "--baseline",
        folder,
        *SAMPLE,
        "-o",
        out,
        "--no-tfidf",
        "--no-figures",
        "--no-folds",
    )
    results = read_results(out)
    assert [result.system for result in results] == ["tiny0", "bert (first output)", "bert (mean)"]
    expected = [
        model_fingerprint(DocumentEmbedder.from_pretrained(folder, pooling=way))
        for way in ("cls", "mean")
    ]
    assert [result.system_fingerprint for result in results[1:]] == expected


def test_maps_of_mirrored_documents_and_their_originals(models, tmp_path, monkeypatch):
    for part, name, row in itertools.product(
        ("train/DE1000", "test/de", "test/de-en"), ("C", "M"), range(10)
    ):
        path = tmp_path / "rcv" / part / name / str(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{part} {name} {row}")
    drawn = []
    monkeypatch.setattr(
        "tmde.cli.run_evaluation.draw_embedding_space", lambda *given: drawn.append(given)
    )
    options = [
        "--languages",
        "de",
        "--tasks",
        f"rcv={tmp_path / 'rcv'}",
        "--no-tfidf",
        "-o",
        tmp_path / "out",
    ]
    call(models[0], *options)
    ((path, vectors, labels, languages, ids, *_),) = drawn
    assert path.name == "rcv-tiny0-space.png"
    assert vectors.shape[0] == 40
    assert labels[9:11] == ["CCAT", "MCAT"]
    assert languages == ["de"] * 20 + ["en"] * 20
    assert ids[:20] == ids[20:]
    assert len(set(ids)) == 20
    (result,) = read_results(tmp_path / "out")
    assert result.data["rows"] == {"de": {"train": 18, "dev": 2, "test": 20, "mirrored": 20}}


def test_a_task_that_cannot_be_measured_does_not_stop_the_others(models, tmp_path):
    lines = [
        {"sentence1": "a", "sentence2": "b", "score": score, "lang": "de-en"}
        for score in (1.0, 2.0)
    ]
    (tmp_path / "two.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tasks = [
        "--tasks",
        f"sts={tmp_path / 'two.jsonl'},sample",
        *SAMPLE[2:],
        "--no-tfidf",
        "--no-figures",
    ]
    output = call(models[0], *tasks, "-o", tmp_path / "out", status=1)
    (error,) = [line for line in output.splitlines() if line.startswith("Error")]
    assert "sts, tiny0: de-en: found 2 pairs" in error
    assert [result.task for result in read_results(tmp_path / "out")] == ["sample"]


@pytest.mark.slow
def test_stored_results_are_compared_without_models(models, tmp_path):
    out = tmp_path / "out"
    call(*models, *SAMPLE, "-o", out, "--no-figures", "--no-folds")
    output = call("compare", f"{out}#tiny0", f"{out}#tiny1", "--each-cell")
    rows = [line for line in output.splitlines() if "sample " in line]
    assert "tiny1 - tiny0" in output
    assert [row.split()[1] for row in rows[:3]] == [
        "Same",
        "Cross",
        "All",
    ]
    cross = [
        summarize(result.cells)["Cross"]
        for result in read_results(out)
        if result.system != "TF-IDF"
    ]
    assert f"{100 * (cross[1] - cross[0]):+.1f}" in rows[1]
    assert "de -> en" in output
    assert "choose one as" in call("compare", out, out, status=1)
    assert "not 'tiny9'" in call("compare", f"{out}#tiny9", out, status=1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--tasks", "mldoc"], "MLDoc is licensed"),
        (["--tasks", "sample", "--set", "sizes=3"], "expected TASK.OPTION=VALUE"),
        (["--tasks", "sample", "--languages", "de,xx"], "xx"),
        (
            ["--tasks", "sample", "--train-languages", "zz"],
            "Found no language 'zz', expected one of de, en",
        ),
        (["-o", "tests", "--overwrite"], "-o tests: found files, expected an empty folder"),
    ],
)
def test_bad_input_is_one_line(models, arguments, match):
    output = call(models[0], *arguments, status=1)
    assert match in " ".join(output.split())
    assert "Traceback" not in output


def test_a_defect_shows_its_traceback(models, monkeypatch, capsys):
    def broken(*arguments):
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr("tmde.cli.run_evaluation.evaluate", broken)
    output = call(models[0], *SAMPLE, "--no-figures", status=1)
    assert "Traceback" in output
    assert "in broken" in output


def test_curves_of_a_run(tmp_path):
    lines = [json.dumps({"step": step, "loss": 5 - step}) for step in (1, 2)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    call("curves", f"mine={tmp_path}", "-o", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
