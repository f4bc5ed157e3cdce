"""Dev documents, the dev mix, several tasks, early stopping, and the picture of a run's curves."""

import json
import types
from pathlib import Path

import datasets
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.tasks import TASKS, TaskError
from modeling_tmde.training import callbacks
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.callbacks import CurvePicture, epoch_table
from modeling_tmde.training.dev_documents import document_pool, documents_of, hold_out
from modeling_tmde.training.evaluation import check_selection, dev_means, load_eval_tasks
from modeling_tmde.training.objectives import DistanceConstraint
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import _summarise, load_data, train_recipe
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training.test_cross_selection import sample_task
from tests.training.test_train import TINY, log_lines, numbered_rows, write_corpus

PLAIN = ("de", "en", "es")


def row(number: int, *languages: str) -> dict[str, str | None]:
    return {language: f"{language}{number}" if language in languages else None for language in PLAIN}


def with_ids(rows: list[dict], ids: list[str | None]) -> datasets.Dataset:
    return make_dataset(rows).add_column("doc_id", ids, feature=datasets.Value("string"))


def make_trainer(folder: Path, tokenizer, dev, task=None, **arguments) -> TmdeTrainer:
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "disable_tqdm": True,
        "max_steps": 20,
        "warmup_steps": 1,
        "eval_steps": 1,
        "save_steps": 1,
        "logging_steps": 1,
        "micro_batch_tokens": 400,
        "eval_loss_rows": 4,
        "eval_pairs": ["de-en"],
    }
    return TmdeTrainer(
        ParallelModel(tiny_model(seed=1), {"distance": DistanceConstraint(negatives=3)}),
        TmdeTrainingArguments(**(defaults | arguments)),
        make_dataset(make_rows(60, seed=2)),
        tokenizer,
        eval_dataset=dev,
        eval_task=task,
    )


# ---- Documents


def test_documents_are_consecutive_rows_of_one_id_and_runs_of_rows_without():
    rows = [row(number, *PLAIN) for number in range(11)]
    ids = ["a", "a", "b", "a", None, None, None, None, None, "c", "c"]
    found = [[int(text["de"][2:]) for text in document] for document in documents_of(with_ids(rows, ids), 3)]
    assert found == [[0, 1], [2], [3], [4, 5, 6], [7, 8], [9, 10]]
    unnamed = [[int(text["de"][2:]) for text in document] for document in documents_of(make_dataset(rows), 4)]
    assert unnamed == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_both_sides_of_a_document_are_its_first_rows_that_have_both_languages():
    ragged = [row(0, "de"), row(1, "de", "en"), row(2, *PLAIN), row(3, "en", "es"), *(row(n, *PLAIN) for n in (4, 5))]
    short = [row(number, *PLAIN) for number in (6, 7, 8)]
    pool = document_pool([ragged, short, ragged[1:]], "de", "en", max_rows=4, size=10)
    assert (pool.sources, pool.targets) == (["de1 de2 de4 de5"], ["en1 en2 en4 en5"])  # the third repeats the first
    assert document_pool([ragged], "en", "es", 5, 10).targets == ["es2 es3 es4 es5"]
    assert document_pool([ragged], "de", "es", 5, 10).sources == []  # three rows only
    six = [[row(8 * number + place, *PLAIN) for place in range(8)] for number in range(6)]
    cut = document_pool(six, "de", "en", max_rows=5, size=2)
    assert cut.sources == ["de0 de1 de2 de3 de4", "de8 de9 de10 de11 de12"]


def documents(number: int, rows_each: int = 5, seed: int = 0) -> datasets.Dataset:
    """Rows in de, en and es; of every second document one row lacks Spanish, and every fifth document is too short."""
    rows = make_rows(number * rows_each, seed=seed, languages=PLAIN)
    ids = [f"doc {index // rows_each}" for index in range(len(rows))]
    for index in range(1, len(rows), 2 * rows_each):
        rows[index]["es"] = None
    kept = [index for index in range(len(rows)) if (index // rows_each) % 5 or index % rows_each < 3]
    return with_ids([rows[index] for index in kept], [ids[index] for index in kept])


def precision_by_hand(model, tokenizer, dev: datasets.Dataset, source: str, target: str) -> tuple[float, int]:
    """P@1 of documents of up to 4 rows, both directions, one text at a time in float64; and how many they are."""
    by_id: dict[str, list] = {}
    for text, name in zip(dev["translation"], dev["doc_id"], strict=True):
        if text[source] and text[target]:
            by_id.setdefault(name, []).append((text[source], text[target]))
    embedder = DocumentEmbedder(model, tokenizer)
    sides: tuple[list, list] = ([], [])
    for pairs in by_id.values():
        if len(pairs) >= 4:
            for side, texts in zip(sides, zip(*pairs[:4], strict=True), strict=True):
                vector = embedder.encode(" ".join(texts)).astype(np.float64)
                side.append(vector / np.sqrt((vector**2).sum()))
    hits, size = 0, len(sides[0])
    for queries, candidates in (sides, sides[::-1]):
        for place, query in enumerate(queries):
            hits += max(range(size), key=lambda index: float(query @ candidates[index])) == place  # noqa: B023
    return hits / (2 * size), size


def test_documents_of_every_set_and_pair_equal_a_plain_loop_and_no_text_is_encoded_twice(
    tokenizer, tmp_path, monkeypatch
):
    dev = {"one": documents(40), "two": documents(28, seed=1), "few": documents(24, seed=2)}
    trainer = make_trainer(tmp_path, tokenizer, dev, eval_pairs=None, eval_document_rows=4)
    encoded, encode = [], DocumentEmbedder.encode

    def recording(embedder, texts, **options):
        encoded.append(texts)
        return encode(embedder, texts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(DocumentEmbedder, "encode", recording)
        metrics = trainer.evaluate()
    assert len(encoded) == 3 and all(len(set(texts)) == len(texts) for texts in encoded)
    found = {key: value for key, value in metrics.items() if "_doc_p1_" in key}
    expected = {}
    for name, rows in dev.items():
        for pair in ("de-en", "de-es", "en-es"):
            value, size = precision_by_hand(trainer.model.model.model, tokenizer, rows, *pair.split("-"))
            if name == "few":
                assert size < 20
            else:
                assert size >= 20
                expected[f"eval_{name}_doc_p1_{pair}"] = value
    assert found == pytest.approx(expected, abs=2e-6)
    assert metrics["eval_document_retrieval"] == pytest.approx(sum(expected.values()) / 6, abs=2e-6)
    sentences = [value for key, value in metrics.items() if "_p1_" in key and "_doc_" not in key]
    assert len(sentences) == 9 and metrics["eval_retrieval"] == pytest.approx(sum(sentences) / 9, abs=2e-6)
    assert 0 < metrics["eval_retrieval"] < metrics["eval_document_retrieval"] < 1
    mix = (metrics["eval_retrieval"] + metrics["eval_document_retrieval"]) / 2
    assert metrics["eval_mix"] == pytest.approx(mix, abs=2e-6)


def test_the_pool_limits_documents_too_and_truncation_is_told_once(tokenizer, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr("modeling_tmde.training.evaluation.logger.warning_once", warnings.append)
    dev = make_dataset(make_rows(200, seed=3))
    trainer = make_trainer(tmp_path, tokenizer, dev, eval_pool=21, eval_document_rows=4, embed_max_length=12)
    asked = []
    monkeypatch.setattr(
        "modeling_tmde.training.evaluation.precision_at_1", lambda *sides: asked.append(sides[0].shape) or 0.5
    )
    trainer.evaluate()
    assert asked == [(21, 32), (21, 32)]
    (warning,) = warnings
    sentences = {text[language] for text in dev["translation"][:40] for language in ("de", "en")}
    assert int(warning.split()[0]) >= 42  # every document
    assert 42 + 42 <= int(warning.split()[2]) <= 42 + len(sentences) and "embed_max_length=12" in warning


# ---- Held out


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    unnamed=st.integers(0, 6),
    number=st.integers(1, 30),
    seed=st.integers(0, 5),
    mixed=st.booleans(),
)
@example(lengths=[4, 4, 4], unnamed=2, number=8, seed=1, mixed=True)
def test_whole_documents_are_held_out(lengths, unnamed, number, seed, mixed):
    ids = [f"d{place}" for place, length in enumerate(lengths) for _ in range(length)] + [None] * unnamed
    order = np.random.default_rng(seed).permutation(len(ids)) if mixed else np.arange(len(ids))
    rows = with_ids([row(int(place), *PLAIN) for place in order], [ids[place] for place in order])
    if min([*lengths, *[1] * bool(unnamed)]) > number or number >= len(ids):
        return  # the fallback below, or a test set of everything
    rest, held = hold_out(rows, number, seed)
    again = hold_out(rows, number, seed)[1]
    assert rest.column_names == held.column_names == ["translation", "doc_id"]
    texts = [{text["de"] for text in part["translation"]} for part in (rest, held)]
    assert not texts[0] & texts[1] and len(texts[0] | texts[1]) == len(ids)
    assert 0 < len(held) <= number and held["translation"][:] == again["translation"][:]
    left = [ids[int(text["de"][2:])] for text in rest["translation"]]
    assert rest["doc_id"][:] == left  # which joins rows and pairs neighbours in training
    assert not set(held["doc_id"]) & set(left) - {None}
    assert len(held) > number - min(left.count(name) if name else 1 for name in left)  # nothing more would fit
    named = [name for name in held["doc_id"] if name]
    changes = sum(first != second for first, second in zip(named, named[1:], strict=False))
    assert changes == max(len(set(named)) - 1, 0)


def test_documents_are_drawn_with_equal_chances_however_long():
    ids = ["long"] * 10 + [f"short {number}" for number in range(10)]
    rows = with_ids([row(number, *PLAIN) for number in range(20)], ids)
    held = [len(set(hold_out(rows, 10, seed)[1]["doc_id"])) == 1 for seed in range(300)]
    assert 0.04 < sum(held) / 300 < 0.16  # 1/11: the long one must come first


def test_without_documents_that_fit_single_rows_are_held_out(monkeypatch):
    warnings = []
    monkeypatch.setattr("modeling_tmde.training.dev_documents.logger.warning", warnings.append)
    rows = [row(number, *PLAIN) for number in range(40)]
    plain = hold_out(make_dataset(rows), 7, seed=3)
    null = hold_out(with_ids(rows, [None] * 40), 7, seed=3)
    assert not warnings
    long = hold_out(with_ids(rows, ["a"] * 20 + ["b"] * 20), 7, seed=3)
    assert len(warnings) == 1 and "every document has more than 7 rows" in warnings[0]
    expected = make_dataset(rows).train_test_split(test_size=7, seed=3)
    for rest, held in (plain, null, long):
        assert rest["translation"][:] == expected["train"]["translation"][:]
        assert held["translation"][:] == expected["test"]["translation"][:]
    for rest, _ in (null, long):
        assert rest.column_names == ["translation", "doc_id"]
    assert plain[0].column_names == ["translation"]


def test_a_run_holds_out_whole_documents_and_dev_files_keep_theirs(tmp_path):
    rows = [{"doc_id": f"d{number // 6}", "translation": text} for number, text in enumerate(numbered_rows(120))]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(item) + "\n" for item in rows))
    train, dev, _ = load_data(load_recipe("quickstart", [f"data.train={corpus}", *TINY]))
    assert train.column_names == ["translation", "doc_id"] and len(dev["dev"]) == 12 and len(train) == 108
    assert not set(train["doc_id"]) & set(dev["dev"]["doc_id"])
    assert all(dev["dev"]["doc_id"].count(name) == 6 for name in set(dev["dev"]["doc_id"]))
    recipe = load_recipe("quickstart", [f"data.train={corpus}", *TINY, f"data.dev={corpus}"])
    train, dev, _ = load_data(recipe)
    names = [item["doc_id"] for item in rows]
    assert train["doc_id"][:] == dev["corpus"]["doc_id"][:] == names
    assert load_data(load_recipe("quickstart", [f"data.train={corpus}", *TINY, "dev_rows=0"]))[1] == {}
    streamed = load_data(load_recipe("quickstart", [f"data.train={corpus}", *TINY, "data.streaming=true"]))[1]
    assert streamed["dev"]["translation"][:] == [item["translation"] for item in rows[:12]]


# ---- The mix, and several tasks


def test_every_group_counts_once_in_the_mix():
    retrieval = [{"p1_de-en": 0.2, "doc_p1_de-en": 0.9, "p1_de-es": 0.4}, {"p1_de-en": 0.6}]
    task = {"same": 0.8, "cross": 0.5, "all": 0.1, "test_same": 0.0, "test_cross": 0.0}
    assert dev_means(retrieval, task) == pytest.approx(
        {"same": 0.8, "cross": 0.5, "retrieval": 0.4, "document_retrieval": 0.9, "mix": (0.8 + 0.5 + 0.4 + 0.9) / 4}
    )
    assert dev_means(retrieval[1:], {}) == pytest.approx({"retrieval": 0.6, "mix": 0.6})
    assert dev_means([], task)["mix"] == pytest.approx(0.65)
    assert dev_means([], {}) == {}


def test_scores_of_several_tasks_are_means_and_are_there_by_name(tokenizer, tmp_path, monkeypatch):
    planted = {
        "sib200": {"same": 0.9, "cross": 0.5, "all": 0.6, "test_same": 0.8, "test_cross": 0.4},
        "topic_documents": {"same": 0.7, "cross": 0.1, "all": 0.2, "test_same": 0.6, "test_cross": 0.2},
    }
    tasks = {"sib200": sample_task(("de", "en")), "topic_documents": sample_task(("de", "en", "es"))}

    def measure(model, tokenizer, data, args, autocast):
        return planted["sib200" if len(data.languages) == 2 else "topic_documents"]

    monkeypatch.setattr("modeling_tmde.training.trainer.measure_task", measure)
    metrics = make_trainer(tmp_path, tokenizer, None, tasks).evaluate()
    expected = {"same": 0.8, "cross": 0.3, "all": 0.4, "test_same": 0.7, "test_cross": 0.3, "mix": 0.55}
    expected |= {f"{task}_{name}": value for task, scores in planted.items() for name, value in scores.items()}
    found = {
        key.removeprefix("eval_"): value for key, value in metrics.items() if key not in ("epoch", "eval_minutes")
    }
    assert found == pytest.approx(expected)
    alone = make_trainer(tmp_path, tokenizer, None, tasks["sib200"]).evaluate()
    assert set(alone) == {"epoch", *(f"eval_{name}" for name in (*planted["sib200"], "mix", "minutes"))}
    with pytest.raises(ValueError, match="sib200_test_cross would choose by the test split"):
        make_trainer(tmp_path, tokenizer, None, tasks, metric_for_best_model="sib200_test_cross")


def test_a_recipe_may_name_several_tasks(tmp_path, monkeypatch, capsys):
    load = TASKS["sample"].load
    for name in ("sample", "sib200"):
        monkeypatch.setitem(TASKS, name, type(name, (TASKS["sample"],), {}))
        monkeypatch.setattr(TASKS[name], "load", lambda task, source=None: load(task, None, sizes=(40, 24, 32)))
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(80))
    recipe = load_recipe("quickstart", [f"data.train={corpus}", *TINY, "eval_task=[sample, sib200=x]", "max_steps=2"])
    trainer = train_recipe(recipe, tmp_path / "run")
    tasks = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["eval_task"]
    assert list(tasks) == ["sample", "sib200"] and tasks["sib200"]["rows"]["de"]["test"] == 32
    best = json.loads((tmp_path / "run" / "results.json").read_text())["best"]
    assert best["eval_sib200_cross"] == best["eval_sample_cross"] == best["eval_cross"]
    _summarise(trainer, tmp_path / "run")
    assert "(%), mean of sample and sib200: Same" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(TaskError, match="eval_task: found the task 'sample' twice, expected each once"):
        load_eval_tasks(["sample", "sample=y"], PLAIN)
    assert load_eval_tasks(None, PLAIN) == {} == load_eval_tasks([], PLAIN)


def test_what_cannot_choose_is_refused(tokenizer, tmp_path):
    dev = make_dataset(make_rows(79, seed=3))  # 19 documents of 4 rows, and one of 3
    for metric in ("document_retrieval", "eval_document_retrieval"):
        with pytest.raises(ValueError, match=f"metric_for_best_model={metric} is measured on dev documents: found no"):
            make_trainer(tmp_path, tokenizer, dev, metric_for_best_model=metric, eval_document_rows=4)
    enough = make_dataset(make_rows(80, seed=3))
    make_trainer(tmp_path, tokenizer, enough, metric_for_best_model="document_retrieval", eval_document_rows=4)
    with pytest.raises(ValueError, match="dev: found a set called 'news_doc', expected a name without _doc at its"):
        make_trainer(tmp_path, tokenizer, {"news_doc": dev})
    for metric in ("retrieval", "document_retrieval"):
        with pytest.raises(ValueError, match=f"{metric} is measured on dev rows, of which there are none"):
            check_selection(metric, dev_rows=False, eval_task=True)
    check_selection("mix", dev_rows=False, eval_task=True)
    check_selection("mix", dev_rows=True, eval_task=False)
    for option in ({"eval_document_rows": 3}, {"early_stopping_patience": 0}):
        with pytest.raises(ValueError, match="is too small, expected at least"):
            TmdeTrainingArguments(output_dir="none", use_cpu=True, **option)


def test_the_mix_chooses_unless_something_else_is_asked_for_and_the_table_tells():
    entries = [(1, 0.2, 0.9, 0.55), (2, 0.5, 0.4, 0.45)]
    history = [
        {
            "step": step,
            "epoch": 0.5,
            "eval_minutes": 1.0,
            "eval_retrieval": one,
            "eval_document_retrieval": two,
            "eval_mix": mix,
        }
        for step, one, two, mix in entries
    ]
    table = epoch_table(history, TmdeTrainingArguments(output_dir="none", use_cpu=True)).splitlines()
    assert table[0] == "| epoch | step | dev retrieval | dev documents | dev mix |"
    assert table[2] == "| **0.50** | **1** | **20.00** | **90.00** | **55.00** |"
    assert table[3] == "| 0.50 | 2 | 50.00 | 40.00 | 45.00 |" and table[-1].endswith("by dev mix.")


# ---- Stopping


def plant(monkeypatch, values: list[float]) -> list[float]:
    """Dev retrieval in the order of the evaluations; what is left of it."""
    left = list(values)
    monkeypatch.setattr("modeling_tmde.training.trainer.dev_retrieval", lambda *args: {"p1_de-en": left.pop(0)})
    return left


VALUES = [0.3, 0.6, 0.5, 0.6, 0.7, 0.4, 0.7, 0.1, 0.9]  # an equal is no better; the third in a row is at step 8


@pytest.mark.parametrize("limit", [{}, {"max_steps": -1, "num_train_epochs": 50, "max_minutes": 60}])
def test_a_run_stops_after_evaluations_that_bettered_nothing(limit, tokenizer, tmp_path, monkeypatch):
    left = plant(monkeypatch, VALUES)
    options = {"lr_scheduler_type": "constant", "early_stopping_patience": 3} | limit
    trainer = make_trainer(tmp_path, tokenizer, make_dataset(make_rows(8, seed=3)), **options)
    trainer.train()
    assert trainer.state.global_step == 8 and trainer.state.best_global_step == 5 and left == VALUES[8:]
    assert trainer.state.best_metric == 0.7  # of the mix, which here is retrieval alone


def test_the_count_goes_on_after_a_resume_and_a_stopped_run_stays_stopped(tokenizer, tmp_path, monkeypatch):
    dev = make_dataset(make_rows(8, seed=3))
    plant(monkeypatch, VALUES)
    options = {"early_stopping_patience": 3, "save_total_limit": None}
    make_trainer(tmp_path, tokenizer, dev, **options).train()
    plant(monkeypatch, VALUES[7:])  # checkpoint 7 has seen two evaluations that bettered nothing
    resumed = make_trainer(tmp_path, tokenizer, dev, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert resumed.state.global_step == 8 and resumed.state.best_global_step == 5
    plant(monkeypatch, [0.1])
    stopped = make_trainer(tmp_path, tokenizer, dev, **options)
    stopped.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert stopped.state.global_step == 8 and stopped.state.best_global_step == 5
    left = plant(monkeypatch, [0.9, 0.1, 0.1, 0.1, 0.1, 0.1])
    patient = make_trainer(tmp_path, tokenizer, dev, **(options | {"early_stopping_patience": 4}))
    patient.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert patient.state.best_global_step == 9 and patient.state.global_step == 13 and len(left) == 1


def test_patience_without_evaluations_is_refused(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(80))
    options = ["dev_rows=0", "early_stopping_patience=2"]
    with pytest.raises(ValueError, match="early_stopping_patience=2 counts evaluations, of which there are none"):
        train_recipe(load_recipe("quickstart", [f"data.train={corpus}", *TINY, *options]), tmp_path / "run")


# ---- The picture


@pytest.mark.usefixtures("pictures")
def test_a_run_leaves_the_picture_of_its_curves(tokenizer, tmp_path):
    from matplotlib import image

    trainer = make_trainer(tmp_path / "run", tokenizer, documents(26), max_steps=2, eval_document_rows=4)
    trainer.train()
    height, width, _ = image.imread(tmp_path / "run" / "curves.png").shape
    panels = 5  # loss, retrieval, documents, distance, words per second
    assert (width, height) == (int((6.2 * 2 + 0.4) * 130), int((2.3 * panels + 0.9) * 130))
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith(".tmp.png")]
    assert any("eval_dev_doc_p1_de-en" in line for line in log_lines(tmp_path / "run"))


class Drawings:
    """Stands in for the drawing: `seconds` by the clock each, or an error."""

    def __init__(self, monkeypatch, seconds: float = 0.0, error: Exception | None = None):
        self.now, self.paths = 0.0, []

        def draw(path, logs):
            self.now += seconds
            self.paths.append((path, logs))
            if error is not None:
                raise error

        monkeypatch.setattr("modeling_tmde.eval.figures.draw_training_curves", draw)
        monkeypatch.setattr(callbacks, "time", types.SimpleNamespace(perf_counter=lambda: self.now))


ARGUMENTS = types.SimpleNamespace(output_dir="runs/one")


@pytest.mark.usefixtures("pictures")
def test_drawing_takes_a_hundredth_of_a_run_at_most(monkeypatch):
    drawings = Drawings(monkeypatch, seconds=1.5)
    trainer, state = (
        types.SimpleNamespace(clock=types.SimpleNamespace(seconds=0.0)),
        types.SimpleNamespace(is_world_process_zero=True),
    )
    picture = CurvePicture(trainer)
    drawn = []
    for trainer.clock.seconds in (100.0, 199.0, 201.0, 290.0, 299.0, 301.0, 400.0, 600.0):
        before = len(drawings.paths)
        picture.on_evaluate(ARGUMENTS, state, None)
        drawn += [trainer.clock.seconds] * (len(drawings.paths) - before)
    assert drawn == [201.0, 301.0, 600.0]
    picture.on_train_end(ARGUMENTS, state, None)
    assert len(drawings.paths) == 4
    assert drawings.paths[-1] == (Path("runs/one/curves.png"), {"one": Path("runs/one/log.jsonl")})
    picture.on_train_end(ARGUMENTS, types.SimpleNamespace(is_world_process_zero=False), None)
    assert len(drawings.paths) == 4


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("broken", ["drawing", "matplotlib"])
def test_no_picture_is_worth_a_run(broken, tokenizer, tmp_path, monkeypatch, capsys):
    warnings = []
    monkeypatch.setattr(callbacks.logger, "warning", warnings.append)
    if broken == "drawing":
        Drawings(monkeypatch, error=MemoryError("no room"))
    else:
        for module in ("modeling_tmde.training.callbacks", "modeling_tmde.training.train"):
            monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(80))
    folder = tmp_path / "run"
    trainer = train_recipe(load_recipe("quickstart", [f"data.train={corpus}", *TINY, "max_steps=2"]), folder)
    assert (folder / "model.safetensors").is_file() and not (folder / "curves.png").exists()
    _summarise(trainer, folder)
    hint = "pip install 'tmde[figures]'" in capsys.readouterr().out
    if broken == "drawing":
        assert warnings == ["curves.png could not be drawn: MemoryError: no room"] and not hint
    else:
        assert not warnings and hint
