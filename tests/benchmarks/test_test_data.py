"""Figures on test data: seeds, stored vectors, and the row of each system."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from modeling_tmde import TmdeError
from tests.benchmarks.fakes import FakeSystem
from tests.benchmarks.test_alignment_benchmarks import load_script
from tmde.eval import EvaluationOptions

script = load_script("test_data")

LANGUAGES = ("de", "en")
# The models that a test has made, by name.
MODELS = {}


def text(language: str, kind: str, number: int) -> str:
    return f"{language} {kind} {number}"


def sentence_pairs() -> list[dict]:
    rows = []
    for number in range(4):
        first, second = (text(language, "sentence", number) for language in LANGUAGES)
        rows.append({"pair": "de-en", "sentence1": first, "sentence2": second})
    return rows


def scored_pairs() -> list[dict]:
    rows = []
    for number in range(12):
        for first, second in (("de", "en"), ("en", "en")):
            row = {
                "lang": f"{first}-{second}",
                "sentence1": text(first, "sentence", number % 4),
                "sentence2": text(second, "sentence", number // 4),
                "score": number,
            }
            rows.append(row)
    return rows


def documents() -> list[dict]:
    rows = []
    for number in range(4):
        for language in LANGUAGES:
            document = text(language, "document", number)
            rows.append({"doc_id": str(number), "language": language, "text": document})
    return rows


def questions() -> list[dict]:
    """Four questions, two about each paragraph."""
    rows = []
    for number in range(4):
        for language in LANGUAGES:
            row = {
                "language": language,
                "paragraph_id": str(number // 2),
                "paragraph": text(language, "paragraph", number // 2),
                "question_id": str(number),
                "question": text(language, "question", number),
            }
            rows.append(row)
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a few rows in each of the four formats."""
    folder = tmp_path_factory.mktemp("test")
    pd.DataFrame(sentence_pairs()).to_parquet(folder / "tatoeba.parquet")
    pd.DataFrame(scored_pairs()).to_parquet(folder / "sts.parquet")
    pd.DataFrame(documents()).to_parquet(folder / "tldr_documents.parquet")
    pd.DataFrame(questions()).to_parquet(folder / "xquad.parquet")
    return folder


@pytest.fixture(scope="module")
def run():
    app = typer.Typer()
    app.command()(script.main)

    def run_script(*arguments) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run_script


def vector_of(text: str) -> np.ndarray:
    """A translation has the same vector; a question has that of its paragraph."""
    _, kind, number = text.split()
    if kind == "question":
        kind = "paragraph"
        number = int(number) // 2
    key = f"{kind} {number}"
    return np.random.default_rng(list(key.encode())).normal(size=8)


@pytest.fixture(scope="module")
def vectors(data, run, tmp_path_factory):
    """A file with the vectors of all texts of the tasks, in 16 bits."""
    folder = tmp_path_factory.mktemp("vectors")
    texts_file = folder / "texts.parquet"
    run("--data", data, "--write-texts", texts_file)
    texts = pd.read_parquet(texts_file)["text"].tolist()
    assert len(texts) == len(set(texts)) == 2 * (4 + 4 + 4 + 2)
    rows = [vector_of(text).astype(np.float16) for text in texts]
    file = folder / "vectors.parquet"
    pd.DataFrame({"text": texts, "vector": rows}).to_parquet(file)
    return file


class FakeModel(FakeSystem):
    """A model that is right but for its last questions; the name of its folder says how many."""

    def __init__(self, name, folder, cache, prompt, dtype, document_prompt=None):
        super().__init__(name, prompt, document_prompt)
        self.right_questions = int(folder.name)
        MODELS[name] = self

    def represent(self, texts, fit_on=(), language=None, role=None, fit_language=None):
        vectors = []
        for text in texts:
            _, kind, number = text.split()
            vector = vector_of(text)
            is_wrong = kind == "question" and int(number) >= self.right_questions
            vectors.append(-vector if is_wrong else vector)
        return np.array(vectors, dtype=np.float32)


def replace_slow_parts(monkeypatch):
    """Models are fakes, nothing waits for a measurement of speed, and intervals are rough."""
    peers = script.load_systems.__globals__
    monkeypatch.setitem(peers, "Model", FakeModel)
    monkeypatch.setitem(peers, "local_or_hub", str)
    monkeypatch.setitem(peers, "EvaluationOptions", partial(EvaluationOptions, samples=20))

    def measure_speed(systems, texts):
        return {system.name: {"median": 100.0} for system in systems}

    monkeypatch.setattr(script, "measure_speed", measure_speed)
    monkeypatch.setattr(script, "describe_size", lambda system: {"MB": 5.0})


@pytest.fixture(scope="module")
def output_and_rows(data, run, vectors, tmp_path_factory):
    """What the script prints, and the rows of its file by the name of the system."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as monkeypatch:
        replace_slow_parts(monkeypatch)
        output = run(
            *("one=4", "several=4", "several=3", "several=2", "--data", data),
            *("--vectors", f"stored={vectors}", "--prompt", "several=query: "),
            *("--document-prompt", "several=passage: ", "--training", "one=5 minutes"),
            *("--cache", folder / "cache", "--json", folder / "results.json"),
        )
    content = json.loads((folder / "results.json").read_text())
    return output, {row["system"]: row for row in content["results"]}


def test_rows_of_all_systems(output_and_rows):
    output, rows = output_and_rows
    assert list(rows) == ["TF-IDF", "one", "several", "stored"]

    one = rows["one"]
    assert one["seeds"] == 1
    assert (one["training"], one["texts_per_second"]) == ("5 minutes", 100)
    assert set(one["measures"]) == set(script.MEASURES)
    assert one["measures"]["questions_same"] == [100, 100, 100]
    assert one["mrr"] == {"questions_same": 100, "questions_across": 100}
    assert "seed_measures" not in one

    several = rows["several"]
    assert several["seeds"] == 3
    # Of four questions, the models find 4, 3 and 2: 100, 75 and 50%.
    assert several["measures"]["questions_across"] == [75, 50, 100]
    values = [measure[0] for measure in several["seed_measures"]["questions_across"]]
    assert values == [100, 75, 50]
    assert several["mrr"]["questions_same"] == pytest.approx((100 + 87.5 + 75) / 3)
    assert "75.0 ± 25.0" in output

    stored = rows["stored"]
    assert stored["measures"]["sentences"] == [100, 100, 100]
    assert stored["measures"]["questions_across"] == [100, 100, 100]
    assert "texts_per_second" not in stored


def test_prompts_of_a_system_are_those_of_all_its_seeds(output_and_rows):
    for name in ("several", "several, seed 2", "several, seed 3"):
        assert MODELS[name].prompts == ("query: ", "passage: ")
    assert MODELS["one"].prompts == (None, None)


def test_a_text_without_a_vector_is_named(vectors):
    system = script.StoredVectors("stored", vectors)
    message = r"vectors\.parquet: found no vectors for 1 of 2 texts, such as 'de new 1'"
    with pytest.raises(TmdeError, match=message):
        system.represent(["de sentence 1", "de new 1"])


@pytest.mark.parametrize("option", ["--prompt", "--document-prompt", "--dtype", "--training"])
def test_an_option_of_a_system_that_is_not_measured_is_refused(option, tmp_path):
    app = typer.Typer()
    app.command()(script.main)
    arguments = ["default=default", "--data", str(tmp_path), option, "defualt=x"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "found defualt, expected" in " ".join(result.output.split())
    arguments = ["default", "--data", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "NAME=VALUE" in result.output
