"""Probing: the published files, and what is generated from text."""

import json
import random
from collections import Counter

import pytest

from tmde.eval.classification import evaluate_classification
from tmde.eval.runner import plan_tasks
from tmde.eval.systems import CharacterTfidf
from tmde.eval.tasks import GROUPS, TASKS, TaskError

NAMES = ("sentlen", "wc", "bshift", "somo")


@pytest.fixture
def corpus(tmp_path):
    """600 sentences in two languages over a small grammar, so that bigrams recur."""
    rng, path = random.Random(0), tmp_path / "text.jsonl"
    nouns, verbs = [
        [f"{word}{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(150)]
        for word in ("noun", "verb")
    ]
    with path.open("w") as file:
        for number in range(600):
            parts = [("the", rng.choice(nouns), rng.choice(verbs), "and") for _ in range(7)]
            words = [word for part in parts for word in part][: rng.randint(3, 26)]
            text = f"Well {' '.join(words)} {number}."
            file.write(json.dumps({"en": text, "fr": text.replace("the", "le")}) + "\n")
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_generated_items_have_their_property(name, corpus, monkeypatch):
    originals = {code: {json.loads(line)[code] for line in open(corpus)} for code in ("en", "fr")}
    monkeypatch.setattr("tmde.eval.tasks.probing.COMMON_WORDS", 3)
    data = TASKS[f"probing_{name}"]().load(corpus)
    assert data.languages == ["en", "fr"]
    again, replacements = TASKS[f"probing_{name}"]().load(corpus), {}
    if name == "sentlen":  # a row and its translation are in one split
        held_out = {text.replace("the", "le") for text in data.splits["en"]["test"].texts}
        assert held_out & {*data.splits["fr"]["test"].texts} and not held_out & {
            *data.splits["fr"]["train"].texts
        }
    for language, splits in data.splits.items():
        assert list(splits) == ["train", "dev", "test"] and len(splits["train"]) >= 30
        for split_name, split in splits.items():
            assert split.texts == again.splits[language][split_name].texts  # one seed, one task
            if name != "wc":
                assert len(set(Counter(split.labels).values())) == 1
            for label, text in zip(split.labels, split.texts, strict=True):
                words = text.split()
                if name == "sentlen":
                    low = 5 + 4 * int(label)
                    assert low <= len(words) <= low + 3 and text in originals[language]
                elif name == "wc":
                    assert words.count(label) == 1 and text in originals[language]
                elif label == "original":
                    assert text in originals[language]
                elif name == "bshift":
                    swaps = [
                        [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
                        for i in range(1, len(words) - 2)
                    ]
                    assert sum(" ".join(swap) in originals[language] for swap in swaps) == 1
                else:
                    number = words[-1]  # tells the original
                    (before,) = (
                        text.split() for text in originals[language] if text.endswith(f" {number}")
                    )
                    ((old, new),) = [
                        pair for pair in zip(before, words, strict=True) if pair[0] != pair[1]
                    ]
                    assert old[:4] == new[:4]  # a noun for a noun
                    assert replacements.setdefault((language, new), split_name) == split_name


def test_words_are_asked_for_in_their_own_language_only(corpus):
    data = TASKS["probing_wc"]().load(corpus)
    with pytest.raises(TaskError, match="protocol leave-one-out for labels of one language"):
        evaluate_classification(data, CharacterTfidf(), protocol="leave-one-out")
    cells = evaluate_classification(data, CharacterTfidf(), "logistic_regression")
    assert [cell.pair for cell in cells] == [("en", "en"), ("fr", "fr")]
    assert min(cell.value for cell in cells) > 0.9  # TF-IDF sees words


def test_published_files(tmp_path):
    for name in GROUPS["probing"]:
        lines = [
            f"{split}\t{label}\ta sentence {label} ."
            for split in ("tr", "va", "te")
            for label in "AB"
        ]
        (tmp_path / TASKS[name].file).write_text("\n".join(lines) + "\n")
    plans = plan_tasks([f"probing={tmp_path}"])
    assert [plan.name for plan in plans] == GROUPS["probing"] and len(plans) == 10
    for plan in plans:
        data = plan.load().data
        assert data.languages == ["en"] and data.provenance.split == "test"
        for split in data.splits["en"].values():
            assert list(split.labels) == ["A", "B"] and list(split.texts) == [
                "a sentence A .",
                "a sentence B .",
            ]


def test_bad_sources(tmp_path, corpus):
    path = tmp_path / "bigram_shift.txt"
    path.write_text("tr\tI\ta sentence\ntrain\tO\tanother\n")
    with pytest.raises(TaskError, match=r"bigram_shift.txt.*2.*tr, va or te"):
        TASKS["probing_bshift"]().load(path)
    with pytest.raises(
        TaskError, match="found too little text in en, expected sentences of every label"
    ):
        path.write_text("te\tI\ta sentence\n")
        TASKS["probing_bshift"]().load(path)
    with pytest.raises(TaskError, match="parser's"):
        TASKS["probing_tense"]().load(corpus)
    with pytest.raises(TaskError, match="SentEval's probing files"):
        TASKS["probing_tense"]().load()
