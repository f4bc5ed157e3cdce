"""`tmde eval`: the whole command on tiny models and files."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from modeling_tmde import TmdeError
from tests.conftest import make_rows, save, tiny_model
from tests.hub_encoders import save_encoder
from tmde.cli.evaluate import app
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval import tasks as eval_tasks
from tmde.eval.model_fingerprint import model_fingerprint
from tmde.eval.results import read_results, summarize
from tmde.eval.retrieval import precision_at_1
from tmde.eval.runner import evaluate
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

SAMPLE = ["--tasks", "sample", "--set", "sample.sizes=[40,20,20]", "--languages", "de,en"]
TASKS = ("sample", "sentence_retrieval/some_dev")


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory):
    """Two tiny checkpoints of different weights, trained on five languages by their config."""
    folder = tmp_path_factory.mktemp("models")
    return [str(save(folder / f"tiny{seed}", tiny_model(seed), tokenizer)) for seed in (0, 1)]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """A cache of this module, and a wide terminal without colors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMDE_CACHE", str(tmp_path_factory.getbasetemp() / "eval-cache"))
        patch.setenv("COLUMNS", "200")
        patch.setenv("NO_COLOR", "1")
        yield


def call(*arguments, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


def measured_pairs(folder):
    """The task and the system of each result in a folder, in order."""
    return [(result.task, result.system) for result in read_results(folder)]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- Interrupted


def stored_results(cache: Path) -> dict[str, int]:
    """The modification time of each stored result by its task."""
    times = {}
    for path in cache.glob("results/*/eval.json"):
        (result,) = read_results(path.parent)
        times[result.task] = path.stat().st_mtime_ns
    return times


def test_an_interrupted_evaluation_keeps_finished_results(models, tmp_path):
    dev = tmp_path / "dev.jsonl"
    dev.write_text("\n".join(json.dumps(row) for row in make_rows(6)), encoding="utf-8")
    cache = tmp_path / "cache"
    # The second task trains networks for some seconds.
    tasks = ["--tasks", f"sentence_retrieval={dev},sample", "--head", "ffn", *SAMPLE[2:]]
    options = [*tasks, "--no-tfidf", "--no-folds", "--no-figures", "--cache-dir", str(cache)]
    command = [sys.executable, "-m", "tmde", "eval", f"tiny={models[0]}", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not list(cache.glob("results/*/eval.json")):
        time.sleep(0.02)
    time.sleep(0.5)  # The result is counted after its file is there.
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert f"Interrupted. 1 of 2 results are stored in {cache}." in errors
    assert "Traceback" not in errors
    (first_time,) = stored_results(cache).values()

    call("run", f"tiny={models[0]}", *options)

    times = stored_results(cache)
    assert sorted(times) == ["sample", "sentence_retrieval/dev"]
    assert times["sentence_retrieval/dev"] == first_time


# ---- Two models on two tasks


@pytest.fixture(scope="module")
def evaluated(models, tmp_path_factory):
    """The folder of an evaluation, and what it printed."""
    folder = tmp_path_factory.mktemp("evaluated")
    rows = []
    for row in make_rows(40, seed=3):
        translation = {"de": row["de"], "fr": row["fr"]}
        rows.append(json.dumps({"translation": translation}))
    (folder / "some_dev.jsonl").write_text("\n".join(rows))
    out = folder / "out"
    options = [
        *("--tasks", f"sample,sentence_retrieval={folder}/some_dev.jsonl"),
        *("--set", "sample.sizes=[300,100,100]"),
        *("--languages", "de,fr"),
        *("--max-length", 20),
        *("-o", out),
    ]
    return out, call(f"one={models[0]}", models[1], *options)


def test_the_printed_tables(evaluated):
    _, output = evaluated
    for text in ("one", "tiny1", "TF-IDF", "chance", "majority", "Cross", *TASKS):
        assert text in output
    assert "longer than 20 tokens" in output
    assert "tiny1 - one" in output


def test_the_results(evaluated):
    out, _ = evaluated
    results = read_results(out)
    expected = list(itertools.product(TASKS, ("one", "tiny1", "TF-IDF")))
    assert measured_pairs(out) == expected
    assert len(results[0].cells) == 4
    assert len(results[0].folds) == 10


def test_the_differences_in_the_report(evaluated):
    out, _ = evaluated
    report = (out / "report.md").read_text(encoding="utf-8")
    differences = report[report.index("### tiny1 - one") : report.index("## Figures")]
    assert differences.count("| sample ") == 3  # Same, Cross and All
    assert differences.count("sentence") == 1  # Cross


def test_the_figures(evaluated):
    out, _ = evaluated
    assert names_in(out / "figures") == [
        "sample-matrix.png",
        "sample-one-space.png",
        "sample-tiny1-space.png",
        "sentence_retrieval-some_dev-matrix.png",
    ]


def test_an_earlier_evaluation_is_replaced_when_asked(evaluated, models, tmp_path):
    out = shutil.copytree(evaluated[0], tmp_path / "out")
    assert "--overwrite" in call(models[0], *SAMPLE, "-o", out, status=1)
    (out / "figures" / "mine.png").touch()
    call(models[0], *SAMPLE, "-o", out, "--no-figures", "--no-tfidf", "--overwrite")
    assert names_in(out) == ["eval.json", "figures", "outcomes.npz", "report.md"]
    assert names_in(out / "figures") == ["mine.png"]
    assert measured_pairs(out) == [("sample", "tiny0")]


def test_the_record_of_an_evaluation(models, tmp_path):
    out = tmp_path / "out"
    call(models[0], *SAMPLE, "-o", out, "--no-figures", "--no-tfidf", "--no-folds")
    record = json.loads((out / "eval.json").read_text(encoding="utf-8"))
    assert list(record["models"]) == ["tiny0"]
    assert "'max_length': 128" in record["models"]["tiny0"]
    assert record["options"]["seed"] == 0


# ---- Other systems and tasks


def test_a_baseline_by_first_output_and_mean(models, tmp_path):
    folder = save_encoder(tmp_path / "bert", "bert")
    out = tmp_path / "out"
    options = ["-o", out, "--no-tfidf", "--no-figures", "--no-folds"]
    call(models[0], "--baseline", folder, *SAMPLE, *options)
    tiny, first_output, mean = read_results(out)
    assert tiny.system == "tiny0"
    assert first_output.system == "bert (first output)"
    assert mean.system == "bert (mean)"
    for result, pooling in ((first_output, "cls"), (mean, "mean")):
        embedder = DocumentEmbedder.from_pretrained(folder, pooling=pooling)
        assert result.system_fingerprint == model_fingerprint(embedder)


def test_maps_of_mirrored_documents_and_their_originals(models, tmp_path, monkeypatch):
    parts = ("train/DE1000", "test/de", "test/de-en")
    for part, name, row in itertools.product(parts, ("C", "M"), range(10)):
        path = tmp_path / "rcv" / part / name / str(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{part} {name} {row}")
    drawings = []
    monkeypatch.setattr(
        "tmde.eval.result_figures.draw_embedding_space",
        lambda *arguments: drawings.append(arguments),
    )
    out = tmp_path / "out"
    tasks = ["--languages", "de", "--tasks", f"rcv={tmp_path / 'rcv'}"]
    call(models[0], *tasks, "--no-tfidf", "-o", out)
    ((path, vectors, labels, languages, ids, *_),) = drawings
    assert path.name == "rcv-tiny0-space.png"
    assert vectors.shape[0] == 40
    assert labels[9:11] == ["CCAT", "MCAT"]
    assert languages == ["de"] * 20 + ["en"] * 20
    assert ids[:20] == ids[20:]
    assert len(set(ids)) == 20
    (result,) = read_results(out)
    assert result.data["rows"] == {"de": {"train": 18, "dev": 2, "test": 20, "mirrored": 20}}


def test_principal_components_of_each_system(models, tmp_path, monkeypatch):
    """More pairs of languages than a figure has place for are left out, and the title says so."""
    rows = []
    for number in range(24):
        row = {code: f"{code} {number} {number * number}" for code in ("de", "en", "fr")}
        rows.append(json.dumps({"translation": row}))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    out = tmp_path / "out"
    task = f"vector_geometry={tmp_path / 'rows.jsonl'}"
    options = ["--tasks", task, "--languages", "de,en,fr", "-o", out]
    call(models[0], *options)
    names = ["vector_geometry-TF-IDF-components.png", "vector_geometry-tiny0-components.png"]
    for name in names:
        assert (out / "figures" / name).stat().st_size > 10_000
        assert f"![{name}](figures/{name})" in (out / "report.md").read_text()

    drawings = []
    monkeypatch.setattr(
        "tmde.eval.result_figures.draw_principal_components",
        lambda *arguments: drawings.append(arguments),
    )
    monkeypatch.setattr("tmde.eval.result_figures.MAX_PAIRS", 2)
    call(
        models[0],
        "--tasks",
        task,
        "--languages",
        "de,en,fr",
        "--no-tfidf",
        "-o",
        out,
        "--overwrite",
    )
    assert not (out / "figures" / names[0]).exists()
    ((path, pairs, title),) = drawings
    assert path.name == names[1]
    assert title == "vector_geometry: tiny0 (2 of 3 pairs of languages)"
    assert [pair.languages for pair in pairs] == [("de", "en"), ("de", "fr")]
    (result,) = read_results(out)
    for pair, cell in zip(pairs, result.cells, strict=False):
        assert pair.rank == cell.extra["debiased_rank"]
        assert pair.accuracies == (cell.value, cell.extra["language_accuracy_debiased"])
        # Every other row of 24 is tested.
        assert [len(vectors) for vectors in (*pair.raw, *pair.debiased)] == [12] * 4
        precision = precision_at_1(*pair.debiased)
        assert precision == pytest.approx(cell.extra["precision_at_1_debiased"])


def test_captions_and_images(models, tmp_path):
    """Captions and images are no languages: there is a table, and no matrix to draw."""
    folder = tmp_path / "coco"
    folder.mkdir()
    lines = ["image_id,split,caption"]
    splits = ["train"] * 30 + ["val"] * 5 + ["test"] * 5
    for image, (split, row) in enumerate(zip(splits, make_rows(40, seed=3), strict=True)):
        lines += [f"{image},{split},{row['en']}", f"{image},{split},{row['en']} {image}"]
    (folder / "captions.csv").write_text("\n".join(lines))
    np.save(folder / "image_features.npy", np.eye(40, dtype=np.float32))
    (folder / "image_ids.txt").write_text("\n".join(map(str, range(40))))
    out = tmp_path / "out"
    output = call(models[0], "--tasks", f"coco_captions={folder}", "-o", out, "--seeds", 1)
    assert "captions → images" in output
    assert measured_pairs(out) == [("coco_captions", "tiny0"), ("coco_captions", "TF-IDF")]
    assert names_in(out / "figures") == []


def test_a_task_that_cannot_be_measured_does_not_stop_the_others(models, tmp_path):
    lines = []
    for score in (1.0, 2.0):
        pair = {"sentence1": "a", "sentence2": "b", "score": score, "lang": "de-en"}
        lines.append(json.dumps(pair))
    (tmp_path / "two.jsonl").write_text("\n".join(lines))
    tasks = ["--tasks", f"sts={tmp_path / 'two.jsonl'},sample", *SAMPLE[2:]]
    options = ["--no-tfidf", "--no-figures", "-o", tmp_path / "out"]
    output = call(models[0], *tasks, *options, status=1)
    assert output.count("\nError: ") == 1
    assert "sts, tiny0: de-en: found 2 pairs" in output.partition("\nError: ")[2]
    assert measured_pairs(tmp_path / "out") == [("sample", "tiny0")]


@pytest.mark.parametrize("defect", [ValueError, KeyError])
def test_a_defect_keeps_its_traceback_and_the_other_results(models, tmp_path, monkeypatch, defect):
    def broken(tasks, systems, *arguments):
        if systems[0].name == "TF-IDF":
            raise defect("a mistake of ours")
        return evaluate(tasks, systems, *arguments)

    monkeypatch.setattr("tmde.cli.run_evaluation.evaluate", broken)
    arguments = [models[0], *SAMPLE, "--no-figures", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert type(result.exception) is defect
    assert "in broken" in result.output
    assert measured_pairs(tmp_path / "out") == [("sample", "tiny0")]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--tasks", "mldoc"], "MLDoc is licensed"),
        (["--tasks", "sample", "--set", "sizes=3"], "expected TASK.OPTION=VALUE"),
        (["--tasks", "sample", "--languages", "de,sv"], "sv"),
        (
            ["--tasks", "sample", "--train-languages", "sv"],
            "Found no language 'sv', expected one of de, en",
        ),
        (["-o", "tests", "--overwrite"], "-o tests: found files, expected an empty folder"),
    ],
)
def test_bad_input_is_one_line(models, arguments, match):
    output = call(models[0], *arguments, status=1)
    assert match in " ".join(output.split())
    assert "Traceback" not in output


# ---- Labeled documents of one's own


@pytest.fixture
def news(tmp_path):
    """A CSV file of 80 documents of two topics in German and English, with headers of its own."""
    lines = ["Topic,Body,lang,Nr"]
    for number, row in enumerate(make_rows(40, seed=5)):
        for language in ("de", "en"):
            lines.append(f"{'ab'[number % 2]},{row[language]},{language},{number}")
    path = tmp_path / "news.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_labeled_documents(models, news, tmp_path):
    columns = ["--columns", "text=Body,label=Topic", "--columns", "language=lang,id=Nr"]
    options = ["-o", tmp_path / "out", "--no-figures", "--no-folds"]
    output = call(f"one={models[0]}", "--labeled", news, *columns, *options)
    assert "news: 80 documents (de 40, en 40); 2 labels (a 40, b 40); train 48" in output
    assert "splits drawn by tmde" in output
    assert measured_pairs(tmp_path / "out") == [("news", "one"), ("news", "TF-IDF")]
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "Split: test. Rows: train 24, dev 8, test 8 in each of de, en" in report


def test_translations_are_a_system_of_classification(models, news, tmp_path):
    columns = ["--columns", "text=Body,label=Topic,language=lang,id=Nr"]
    options = ["-o", tmp_path / "out", "--no-figures", "--no-folds", "--no-tfidf"]
    call(models[0], "--labeled", news, *columns, *options, "--translated-tfidf", f"nmt={models[1]}")
    assert measured_pairs(tmp_path / "out") == [("news", "tiny0"), ("news", "nmt + TF-IDF")]
    into_spanish = ["--translated-tfidf", models[1], "--translate-into", "es", "--overwrite"]
    call(models[0], "--labeled", news, *columns, *options, *into_spanish)
    translated = read_results(tmp_path / "out")[1]
    assert translated.settings["system"]["translation"] == "into es, by sentences, greedy"
    assert not translated.dense
    missing = call(models[0], "--translated-tfidf", "no/such/model", status=1)
    assert "no/such/model: " in " ".join(missing.split())


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A model that has learned to translate lists of ten words between German and English."""
    folder = tmp_path_factory.mktemp("translator")
    for name, count in (("train", 3000), ("dev", 40)):
        rows = make_rows(count, seed=count, languages=("de", "en"))
        lines = [json.dumps({"translation": row}, ensure_ascii=False) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    overrides = [
        f"data.train={folder / 'train.jsonl'}",
        f"data.dev={folder / 'dev.jsonl'}",
        "data.languages=[de, en]",
        "data.pivot_languages=[de, en]",
        "tokenizer.vocab_size=400",
        "model.bottleneck=full",
        "model.d_model=64",
        "model.encoder_ffn_dim=128",
        "model.decoder_ffn_dim=128",
        "objectives.distance=null",
        "max_steps=300",
        "eval_steps=300",
        "eval_pairs=null",
    ]
    train_recipe(load_recipe("quickstart", overrides), folder / "run")
    return folder / "run"


@pytest.mark.nightly
@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en")])
def test_a_trained_translator_knows_topics_across_languages(source, target, translator, tmp_path):
    """Documents with a dog are told from others in a language without labels.

    German and English words for the animals share hardly a letter, so that n-grams cannot do it.
    """
    lines = ["label,text,language,id"]
    for number, row in enumerate(make_rows(300, seed=9, languages=("de", "en"))):
        label = "dog" if "dog" in row["en"] else "none"
        for language, text in row.items():
            lines.append(f"{label},{text},{language},{number}")
    path = tmp_path / "animals.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    options = ["--languages", target, "--train-languages", source, "--translate-into", source]
    files = ["-o", tmp_path / "out", "--no-figures"]
    call(f"one={translator}", "--labeled", path, *options, "--translated-tfidf", translator, *files)
    accuracies = {}
    for result in read_results(tmp_path / "out"):
        (cell,) = result.cells
        assert cell.pair == (source, target)
        accuracies[result.system] = cell.value
    assert list(accuracies) == ["one", "run + TF-IDF", "TF-IDF"]
    assert accuracies["run + TF-IDF"] > 0.95
    assert accuracies["TF-IDF"] < 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--translate-into", "es"], "--translate-into: found 'es' without a translation model"),
        (
            ["--translated-tfidf", "{model}", "--translate-into", "it"],
            "found the language 'it' to translate into, expected one of the model's pivot",
        ),
    ],
)
def test_languages_that_nothing_translates_into_are_refused(options, message, models, news):
    options = [option.format(model=models[1]) for option in options]
    columns = ["--columns", "text=Body,label=Topic,language=lang"]
    output = call(models[0], "--labeled", news, *columns, *options, status=1)
    assert message in " ".join(output.split())


def test_the_model_of_tmde_is_measured_if_none_is_named(models, news, monkeypatch):
    names = []

    def fake_open(name, loading):
        names.append(name)
        raise TmdeError("stop")

    monkeypatch.setattr("tmde.cli.run_evaluation.open_embedder", fake_open)
    call("--labeled", news, "--columns", "text=Body,label=Topic,language=lang", status=1)
    assert names == ["default"]


def test_columns_that_are_missing_are_told_before_a_model_is_loaded(news):
    output = call("no/such/model", "--labeled", news, status=1)
    message = " ".join(output.split())
    assert "--columns text=Body,label=Topic,language=lang" in message


# ---- Tasks


def test_tasks_in_a_pipe_are_lines_of_four_columns():
    lines = call("tasks").splitlines()
    columns = [line.split("\t") for line in lines]
    assert {len(fields) for fields in columns} == {4}
    assert [fields[0] for fields in columns] == [
        "task",
        *sorted(eval_tasks.TASKS),
        *eval_tasks.GROUPS,
    ]


@pytest.mark.parametrize("width", [30, 120])
def test_tasks_are_not_cut_in_a_terminal(width, monkeypatch):
    monkeypatch.setattr("tmde.cli.task_list.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    output = call("tasks")
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= width
    text = re.sub(r"[^a-z0-9_]", "", output)
    assert "xnli_translate_train" in text


# ---- Stored results and runs


@pytest.fixture(scope="module")
def stored(models, tmp_path_factory):
    """A folder with the results of both models."""
    out = tmp_path_factory.mktemp("stored") / "out"
    call(*models, *SAMPLE, "-o", out, "--no-figures", "--no-folds")
    return out


def test_stored_results_are_compared_without_models(stored):
    output = call("compare", f"{stored}#tiny0", f"{stored}#tiny1", "--each-cell")
    first, second, _ = read_results(stored)  # The last one is TF-IDF.
    difference = summarize(second.cells)["Cross"] - summarize(first.cells)["Cross"]
    assert "tiny1 - tiny0" in output
    groups = re.findall(r"^ *sample +(\w+)", output, re.MULTILINE)
    assert groups[:3] == ["Same", "Cross", "All"]
    assert re.search(rf"sample +Cross .*{re.escape(f'{100 * difference:+.1f}')}", output)
    assert "de -> en" in output


def test_a_system_is_named_where_a_folder_holds_several(stored):
    assert "several systems (tiny0, tiny1, TF-IDF); choose one, such as" in call(
        "compare", stored, stored, status=1
    )
    assert "found no system 'tiny9', expected one of" in call(
        "compare", f"{stored}#tiny9", stored, status=1
    )


def test_curves_of_a_run(tmp_path):
    lines = [json.dumps({"step": step, "loss": 5 - step}) for step in (1, 2)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    call("curves", f"mine={tmp_path}", "-o", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
