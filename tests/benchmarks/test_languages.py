"""What is lost in languages that the training text lacks: groups of languages, and seeds."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from tests.benchmarks.fakes import FakeSystem
from tests.benchmarks.test_alignment_benchmarks import load_script
from tmde.eval import EvaluationOptions

script = load_script("languages")

# By code of FLORES-200.
LANGUAGES = {"eng_Latn": "en", "deu_Latn": "de", "hin_Deva": "hi", "tur_Latn": "tr"}
LABELS = ("sea", "sky")


def questions() -> list[dict]:
    """Four questions, two about each paragraph, in English, German and Hindi."""
    rows = []
    for number in range(4):
        for language in ("en", "de", "hi"):
            row = {
                "language": language,
                "paragraph_id": str(number // 2),
                "paragraph": f"{language} paragraph {number // 2}",
                "question_id": str(number),
                "question": f"{language} question {number}",
            }
            rows.append(row)
    return rows


def topics() -> list[dict]:
    """Ten sentences of a split, whose labels alternate."""
    rows = []
    for code, language in LANGUAGES.items():
        for split in ("train", "dev", "test"):
            for number in range(10):
                row = {
                    "language": code,
                    "split": split,
                    "index_id": f"{split} {number}",
                    "label": LABELS[number % 2],
                    "text": f"{language} {split} {number}",
                }
                rows.append(row)
    return rows


class FakeModel(FakeSystem):
    """A model that errs in Hindi; the name of its folder says how often.

    So many questions get the vector of the other paragraph, and so many sentences that of the other
    label.
    """

    def __init__(self, name, folder, cache, prompt, dtype, document_prompt=None):
        super().__init__(name, prompt, document_prompt)
        self.errors = int(folder.name)

    def represent(self, texts, fit_on=(), language=None, role=None, fit_language=None):
        vectors = [self.vector_of(*text.split()) for text in texts]
        return np.array(vectors, dtype=np.float32)

    def vector_of(self, language, kind, number):
        number = int(number)
        if kind == "paragraph":
            side = number
        elif kind == "question":
            side = number // 2
        else:
            side = number % 2
        if language == "hi" and kind in ("question", "test") and number < self.errors:
            side = 1 - side
        return [1.0, 0.0] if side else [0.0, 1.0]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of the file of results by the name of the system."""
    folder = tmp_path_factory.mktemp("languages")
    for name in ("test", "eval"):
        (folder / name).mkdir()
    pd.DataFrame(questions()).to_parquet(folder / "test" / "xquad.parquet")
    pd.DataFrame(topics()).to_parquet(folder / "eval" / "sib200.parquet")
    app = typer.Typer()
    app.command()(script.main)
    with pytest.MonkeyPatch.context() as monkeypatch:
        peers = script.load_systems.__globals__
        monkeypatch.setitem(peers, "Model", FakeModel)
        monkeypatch.setitem(peers, "local_or_hub", str)
        monkeypatch.setattr(script, "EvaluationOptions", partial(EvaluationOptions, samples=20))
        arguments = [
            *("before=0", "after=1", "after=2", "--data", folder, "--trained", "de,en"),
            *("--cache", folder / "cache", "--json", folder / "results.json"),
        ]
        result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    content = json.loads((folder / "results.json").read_text())
    assert content["settings"]["trained"] == ["de", "en"]
    return {row["system"]: row for row in content["results"]}


def test_every_language_has_its_mean_over_seeds(rows):
    assert list(rows) == ["before", "after"]
    assert rows["before"]["questions"]["languages"] == {"en": 100, "de": 100, "hi": 100}
    assert rows["after"]["seeds"] == 2
    # Of four questions, the seeds miss 1 and 2.
    assert rows["after"]["questions"]["languages"] == {"en": 100, "de": 100, "hi": 62.5}
    # Of ten sentences, they miss as many.
    topics = rows["after"]["topics"]["languages"]
    assert topics == pytest.approx({"en": 100, "de": 100, "hi": 85, "tr": 100})


def test_groups_are_means_over_languages_with_the_deviation_over_seeds(rows):
    groups = rows["after"]["topics"]["groups"]
    assert groups["trained"] == {"mean": 100, "deviation": 0}
    # Hindi and Turkish: (90 + 100) / 2 and (80 + 100) / 2.
    assert groups["others"]["mean"] == pytest.approx(92.5)
    assert groups["others"]["deviation"] == pytest.approx(np.std([95, 90], ddof=1))
    assert rows["before"]["topics"]["groups"]["others"] == {"mean": 100, "deviation": None}


def test_questions_count_in_their_own_language_alone():
    def cell(source: str, target: str, value: float) -> SimpleNamespace:
        metric = "question_precision_at_1"
        return SimpleNamespace(metric=metric, source=source, target=target, value=value)

    cells = [cell("de", "de", 0.5), cell("de", "hi", 0.1), cell("hi", "hi", 0.25)]
    result = SimpleNamespace(cells=cells)
    assert script.values_by_language(result) == {"de": 50, "hi": 25}
