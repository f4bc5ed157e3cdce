"""Classification: what each protocol shows the classifier, and when; cells by hand, and planted cases."""

from collections.abc import Collection
from types import SimpleNamespace

import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tmde.eval.classification import evaluate_classification, plan_protocol
from tmde.eval.heads import HEADS, FfnHead
from tmde.eval.results import summarize
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError


class GuessHead:
    """Guesses the first class, with an odd seed the last; keeps what it is given."""

    name, deterministic = "guess", False

    def __init__(self) -> None:
        self.fits: list[dict] = []

    def fit(self, features, labels, devs, seed):
        self.fits.append({"features": features, "devs": devs, "seed": seed})
        label = sorted(set(labels))[-(seed % 2)]
        return dict.fromkeys(
            devs, SimpleNamespace(predict=lambda rows: np.array([label] * len(rows)))
        )


def corpus(**labels: dict[str, str]) -> ClassificationData:
    """One item a letter of the labels, with the text and id "de/test/0" ..."""
    splits = {language: {} for language in labels}
    for language, parts in labels.items():
        for name, letters in parts.items():
            ids = [f"{language}/{name}/{row}" for row in range(len(letters))]
            splits[language][name] = Split(ids, ids, list(letters))
    return ClassificationData(splits, Provenance("planted", "none"))


def planted(data: ClassificationData, wrong: Collection[str] = ()) -> FakeSystem:
    """One number a text: its class (a below 0, b above), or the other side for the `wrong` ones."""
    parts = [part for parts in data.splits.values() for part in parts.values()]
    labels = {
        text: label for part in parts for text, label in zip(part.texts, part.labels, strict=True)
    }
    return FakeSystem(lambda text: [1.0 if (labels[text] == "b") != (text in wrong) else -1.0])


TWO = {
    "en": {"train": "aaabb", "dev": "abab", "test": "ab"},
    "de": {"train": "bbbba", "dev": "ba", "test": "abbb"},
}


def test_cells_by_hand():
    data = corpus(**TWO)
    # German test, row 1 (b) lies on the side of a; the English dev set has one of four on the wrong side
    system = planted(data, ("de/test/1", "en/dev/0"))
    cells = evaluate_classification(data, system, "logistic_regression")
    assert [(cell.source, cell.target) for cell in cells] == [
        ("en", "en"),
        ("en", "de"),
        ("de", "en"),
        ("de", "de"),
    ]
    cell = cells[1]
    assert (cell.metric, cell.value, cell.chance, cell.std) == ("accuracy", 0.75, 0.5, None)
    assert cell.outcomes.tolist() == [1, 0, 1, 1]
    assert cell.ids == [f"de/test/{row}" for row in range(4)]
    # a: 1 of 2 guesses right, 1 of 1 found, F1 2/3; b: 2 of 2 right, 2 of 3 found, F1 4/5
    assert cell.extra["macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert (
        cell.extra["majority"] == 0.25
    )  # English trains on three a's of five, German tests on one of four
    assert cells[3].extra["majority"] == 0.75
    assert (cell.extra["size"], cell.extra["dev"], cells[3].extra["dev"]) == (4, 0.75, 1.0)
    assert [cell.value for cell in cells] == [1, 0.75, 1, 0.75]
    assert summarize(cells) == {"Same": 0.875, "Cross": 0.875, "All": 0.875}
    evaluation_1 = evaluate_classification(data, system, train_languages=["en"])
    assert [(cell.source, cell.target, cell.value) for cell in evaluation_1] == [
        ("en", "en", 1),
        ("en", "de", 0.75),
    ]
    assert summarize(evaluation_1) == {"Same": 1, "Cross": 0.75, "All": 0.875}


def test_seeds_by_hand():
    data, head = corpus(**TWO), GuessHead()
    cell = evaluate_classification(
        data, planted(data), head, train_languages=["en"], seeds=(4, 1, 2)
    )[1]
    assert [fit["seed"] for fit in head.fits] == [4, 1, 2]
    # seeds 4 and 2 guess a (right for one of "abbb"), seed 1 guesses b (right for three)
    assert cell.value == pytest.approx((1 / 4 + 3 / 4 + 1 / 4) / 3)
    assert cell.std == pytest.approx(np.sqrt(((1 / 6) ** 2 + (1 / 3) ** 2 + (1 / 6) ** 2) / 2))
    np.testing.assert_allclose(cell.outcomes, [2 / 3, 1 / 3, 1 / 3, 1 / 3])
    # macro F1 of guessing a: (2 * 1/4 / (1/4 + 1) + 0) / 2, of guessing b: (0 + 2 * 3/4 / (3/4 + 1)) / 2
    assert cell.extra["macro_f1"] == pytest.approx((2 * 0.2 + 3 / 7) / 3)
    assert cell.extra["dev"] == 0.5
    head.fits.clear()
    head.deterministic = True
    cell = evaluate_classification(
        data, planted(data), head, train_languages=["en"], seeds=(4, 1, 2)
    )[1]
    assert [fit["seed"] for fit in head.fits] == [4]
    assert cell.std is None


def test_each_protocol_shows_the_head_what_it_should():
    data = corpus(**{x: {"train": "ab", "dev": "ab", "test": "ab"} for x in ("de", "en", "fr")})
    splits = [
        f"{language}/{name}" for language in data.languages for name in ("train", "dev", "test")
    ]

    def names(rows):
        return [splits[number] for number in dict.fromkeys(rows[:, 0].astype(int).tolist())]

    def seen(protocol, **options):
        head, system = GuessHead(), FakeSystem(lambda text: [splits.index(text.rsplit("/", 1)[0])])
        cells = evaluate_classification(data, system, head, protocol, seeds=(0,), **options)
        shown = [
            (names(fit["features"]), {key: names(dev[0]) for key, dev in fit["devs"].items()})
            for fit in head.fits
        ]
        fitted = [
            tuple(dict.fromkeys(text.rsplit("/", 1)[0] for text in fit_on))
            for _, fit_on in system.calls
        ]
        return [(cell.source, cell.target) for cell in cells], shown, list(dict.fromkeys(fitted))

    cells, shown, fitted = seen("zero-shot", train_languages=["en"])
    assert cells == [("en", "de"), ("en", "en"), ("en", "fr")]
    assert shown == [(["en/train"], {"en": ["en/dev"]})] and fitted == [("en/train",)]
    cells, shown, fitted = seen("targeted", train_languages=["en"], test_languages=["de", "fr"])
    assert cells == [("en", "de"), ("en", "fr")]
    assert shown == [(["en/train"], {"de": ["de/dev"], "fr": ["fr/dev"]})] and fitted == [
        ("en/train",)
    ]
    cells, shown, fitted = seen("leave-one-out", test_languages=["de", "en"])
    assert cells == [("all-but-de", "de"), ("all-but-en", "en")]
    assert shown == [
        (["en/train", "fr/train"], {"en": ["en/dev"]}),
        (["de/train", "fr/train"], {"de": ["de/dev"]}),
    ]
    assert fitted == [("en/train", "fr/train"), ("de/train", "fr/train")]


def test_bad_plans():
    with pytest.raises(ValueError, match="found only 'de'"):
        plan_protocol("leave-one-out", ["de"], ["de"])
    with pytest.raises(
        ValueError, match="'few-shot', expected one of zero-shot, targeted, leave-one-out"
    ):
        plan_protocol("few-shot", ["de"], ["de"])


@pytest.mark.parametrize(
    "head", [HEADS["logistic_regression"], HEADS["svm"], FfnHead(epochs=9)], ids=lambda h: h.name
)
def test_zero_shot_uses_nothing_of_the_target_but_its_test_set(head):
    """There is nothing else of German, and its test labels change no prediction."""
    english = {"train": "abab", "dev": "ab", "test": "abb"}
    data, flipped = (corpus(en=english, de={"test": labels}) for labels in ("abab", "baba"))
    system = planted(data, ("de/test/1",))
    (found,), (other,) = (
        evaluate_classification(x, system, head, "zero-shot", ["en"], ["de"])
        for x in (data, flipped)
    )
    np.testing.assert_allclose(found.outcomes + other.outcomes, 1)
    with pytest.raises(TaskError, match="'de' has no split 'dev'"):
        evaluate_classification(data, system, head, "targeted", ["en"], ["de"])


def test_pairs_become_pair_features():
    part = Split(["0", "1"], ["p", "q"], ["a", "b"], ["r", "s"])
    data = ClassificationData(
        {"en": dict.fromkeys(("train", "dev", "test"), part)}, Provenance("", "")
    )
    # Of unit length these are p (0.6, 0.8), q (1, 0), r (0, 1), s (-0.8, 0.6).
    system, head = (
        FakeSystem({"p": [3, 4], "q": [3, 0], "r": [0, 2], "s": [-4, 3]}.get),
        GuessHead(),
    )
    evaluate_classification(data, system, head, seeds=(0,))
    expected = [[0.6, 0.8, 0, 1, 0.6, 0.2, 0, 0.8], [1, 0, -0.8, 0.6, 1.8, 0.6, -0.8, 0]]
    np.testing.assert_allclose(head.fits[0]["features"], expected, atol=1e-6)
    assert head.fits[0]["devs"]["en"][0].tolist() == head.fits[0]["features"].tolist()
    assert all(fit_on == ["p", "q", "r", "s"] for _, fit_on in system.calls)


@pytest.mark.parametrize(
    ("language", "name", "letters", "options", "message"),
    [
        (
            "de",
            "dev",
            None,
            {},
            r"'de' has no split 'dev', expected train, dev and test; found train, test",
        ),
        (
            "de",
            "test",
            "ab",
            {"test_languages": ["en", "fr"]},
            r"no language 'fr', expected one of en, de",
        ),
        ("de", "train", "aaa", {}, r"de/train: found the class 'a' alone, expected at least two"),
        (
            "de",
            "dev",
            "ac",
            {},
            r"de/dev: found the label 'c' \(item 'de/dev/1'\).* train set of de, .*'a', 'b'",
        ),
    ],
)
def test_bad_data_is_found_before_anything_is_trained(language, name, letters, options, message):
    labels = TWO | {language: TWO[language] | {name: letters}}
    if letters is None:
        del labels[language][name]
    head = GuessHead()
    with pytest.raises(TaskError, match=message):
        evaluate_classification(corpus(**labels), planted(corpus(**TWO)), head, **options)
    assert not head.fits
