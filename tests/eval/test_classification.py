"""Classification: what each protocol shows the classifier, and when; cells by hand."""

from collections.abc import Collection
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.eval.classification import evaluate_classification, plan_protocol
from tmde.eval.heads import HEADS, FfnHead
from tmde.eval.results import pairs_of, summarize, values_of
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError


class GuessHead:
    """Guesses the first class, with an odd seed the last; keeps what it is given."""

    name = "guess"

    def __init__(self, deterministic: bool = False) -> None:
        self.deterministic = deterministic
        self.fits: list[dict] = []
        self.seeds: list[int] = []

    def fit(self, features, labels, devs, seed):
        self.fits.append({"features": features, "devs": devs})
        self.seeds.append(seed)
        classes = sorted(set(labels))
        label = classes[-1] if seed % 2 else classes[0]
        classifier = SimpleNamespace(predict=lambda rows: np.array([label] * len(rows)))
        return dict.fromkeys(devs, classifier)

    def fit_all(self, trainings):
        for training in trainings:
            yield self.fit(*training)


def corpus(**labels: dict[str, str]) -> ClassificationData:
    """One item a letter of the labels, with the text and id "de/test/0" ..."""
    splits = {}
    for language, parts in labels.items():
        splits[language] = {}
        for name, letters in parts.items():
            ids = numbered(f"{language}/{name}/", range(len(letters)))
            splits[language][name] = Split(ids, ids, list(letters))
    return ClassificationData(splits, Provenance("planted", "none"))


def planted(data: ClassificationData, wrong: Collection[str] = ()) -> FakeSystem:
    """One number a text: its class (a below 0, b above), or the other side for the `wrong` ones."""
    labels = {}
    for splits in data.splits.values():
        for split in splits.values():
            labels.update(zip(split.texts, split.labels, strict=True))

    def vector(text: str) -> list[float]:
        is_above = (labels[text] == "b") != (text in wrong)
        return [1.0 if is_above else -1.0]

    return FakeSystem(vector)


TWO_LABELS = {
    "en": {"train": "aaabb", "dev": "abab", "test": "ab"},
    "de": {"train": "bbbba", "dev": "ba", "test": "abbb"},
}
TWO = corpus(**TWO_LABELS)
# German test, row 1 (b) lies on the side of a; the English dev set has one of four on the wrong
# side.
TWO_SYSTEM = planted(TWO, ("de/test/1", "en/dev/0"))


@pytest.fixture
def cells():
    return evaluate_classification(TWO, TWO_SYSTEM, "logistic_regression")


@pytest.fixture
def english_german(cells):
    """The cell of a classifier that is trained on English and tested on German."""
    return cells[1]


def test_values_of_all_cells_by_hand(cells):
    assert pairs_of(cells) == [("en", "en"), ("en", "de"), ("de", "en"), ("de", "de")]
    assert values_of(cells) == [1, 0.75, 1, 0.75]
    assert summarize(cells) == {"Same": 0.875, "Cross": 0.875, "All": 0.875}


def test_values_of_evaluation_1_by_hand():
    cells = evaluate_classification(TWO, TWO_SYSTEM, train_languages=["en"])
    assert pairs_of(cells) == [("en", "en"), ("en", "de")]
    assert values_of(cells) == [1, 0.75]
    assert summarize(cells) == {"Same": 1, "Cross": 0.75, "All": 0.875}


def test_a_cell_by_hand(english_german):
    assert english_german.metric == "accuracy"
    assert english_german.chance == 0.5
    assert english_german.std is None
    assert english_german.ids == ["de/test/0", "de/test/1", "de/test/2", "de/test/3"]
    assert english_german.outcomes.tolist() == [1, 0, 1, 1]


def test_macro_f1_by_hand(english_german):
    """a: 1 of 2 guesses right, 1 of 1 found, 2/3; b: 2 of 2 right, 2 of 3 found, 4/5."""
    assert english_german.extra["macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)


def test_majority_is_that_of_the_train_set(cells):
    """English trains on three a's of five, German on four b's; German tests on one a of four."""
    assert cells[1].extra["majority"] == 0.25
    assert cells[3].extra["majority"] == 0.75


def test_dev_accuracy_and_size_by_hand(cells):
    assert cells[1].extra["dev"] == 0.75
    assert cells[3].extra["dev"] == 1.0
    assert cells[1].extra["size"] == 4


def english_german_of(head: GuessHead):
    _, cell = evaluate_classification(
        TWO, planted(TWO), head, train_languages=["en"], seeds=(4, 1, 2)
    )
    return cell


def test_a_head_is_trained_once_a_seed():
    head = GuessHead()
    english_german_of(head)
    assert head.seeds == [4, 1, 2]


def test_scores_are_means_over_seeds():
    """Seeds 4 and 2 guess a (right for one of "abbb"), seed 1 guesses b (right for three)."""
    cell = english_german_of(GuessHead())
    assert cell.value == pytest.approx((1 / 4 + 3 / 4 + 1 / 4) / 3)
    assert cell.std == pytest.approx(np.sqrt(((1 / 6) ** 2 + (1 / 3) ** 2 + (1 / 6) ** 2) / 2))
    np.testing.assert_allclose(cell.outcomes, [2 / 3, 1 / 3, 1 / 3, 1 / 3])
    # Guessing a: (2 * 1/4 / (1/4 + 1) + 0) / 2; guessing b: (0 + 2 * 3/4 / (3/4 + 1)) / 2
    assert cell.extra["macro_f1"] == pytest.approx((2 * 0.2 + 3 / 7) / 3)
    assert cell.extra["dev"] == 0.5


def test_a_deterministic_head_is_trained_for_the_first_seed_alone():
    head = GuessHead(deterministic=True)
    cell = english_german_of(head)
    assert head.seeds == [4]
    assert cell.std is None


class ReadsAhead(GuessHead):
    """A head that reads all trainings before it returns its first classifier."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(deterministic=True)
        self.events = events

    def fit_all(self, trainings):
        for training in list(trainings):
            self.events.append("classifier")
            yield self.fit(*training)


def test_a_line_precedes_the_classifiers_of_each_plan():
    events: list[str] = []
    system = planted(TWO)
    evaluate_classification(TWO, system, ReadsAhead(events), progress=events.append)
    english = f"{system.name}: training guess on en"
    german = f"{system.name}: training guess on de"
    assert events == [english, "classifier", german, "classifier"]


@dataclass
class Shown:
    """What a protocol shows: splits by their name, such as "en/train".

    cells: Source and target languages. train, dev: What each training of the head is given.
    fitted: What the system may be fitted on, each list of splits once.
    """

    cells: list[tuple[str, str]]
    train: list[list[str]]
    dev: list[dict[str, list[str]]]
    fitted: list[list[str]]


def split_name(text: str) -> str:
    return text.rsplit("/", 1)[0]


def shown_by(protocol: str, **options) -> Shown:
    """Run a protocol on vectors that tell the split of their text."""
    parts = {"train": "ab", "dev": "ab", "test": "ab"}
    data = corpus(de=parts, en=parts, fr=parts)
    names = []
    for language in data.languages:
        names += [f"{language}/{name}" for name in parts]

    def names_of(features: np.ndarray) -> list[str]:
        numbers = features[:, 0].astype(int).tolist()
        return [names[number] for number in dict.fromkeys(numbers)]

    head = GuessHead()
    system = FakeSystem(lambda text: [names.index(split_name(text))])
    cells = evaluate_classification(data, system, head, protocol, seeds=(0,), **options)
    shown = Shown(pairs_of(cells), [], [], [])
    for fit in head.fits:
        shown.train.append(names_of(fit["features"]))
        dev_names = {}
        for key, (features, _) in fit["devs"].items():
            dev_names[key] = names_of(features)
        shown.dev.append(dev_names)
    for _, fit_on in system.calls:
        fitted = list(dict.fromkeys(map(split_name, fit_on)))
        if fitted not in shown.fitted:
            shown.fitted.append(fitted)
    return shown


def test_zero_shot_trains_and_tunes_on_the_source():
    shown = shown_by("zero-shot", train_languages=["en"])
    assert shown.cells == [("en", "de"), ("en", "en"), ("en", "fr")]
    assert shown.train == [["en/train"]]
    assert shown.dev == [{"en": ["en/dev"]}]
    assert shown.fitted == [["en/train"]]


def test_targeted_tunes_on_the_target():
    shown = shown_by("targeted", train_languages=["en"], test_languages=["de", "fr"])
    assert shown.cells == [("en", "de"), ("en", "fr")]
    assert shown.train == [["en/train"]]
    assert shown.dev == [{"de": ["de/dev"], "fr": ["fr/dev"]}]
    assert shown.fitted == [["en/train"]]


def test_leave_one_out_trains_on_all_languages_but_the_target():
    shown = shown_by("leave-one-out", test_languages=["de", "en"])
    assert shown.cells == [("all-but-de", "de"), ("all-but-en", "en")]
    assert shown.train == [["en/train", "fr/train"], ["de/train", "fr/train"]]
    assert shown.dev == [{"en": ["en/dev"]}, {"de": ["de/dev"]}]
    assert shown.fitted == [["en/train", "fr/train"], ["de/train", "fr/train"]]


def test_leave_one_out_of_one_language_is_an_error():
    with pytest.raises(ValueError, match="found only 'de'"):
        plan_protocol("leave-one-out", ["de"], ["de"])


def test_an_unknown_protocol_is_an_error():
    message = "'few-shot', expected one of zero-shot, targeted, leave-one-out"
    with pytest.raises(ValueError, match=message):
        plan_protocol("few-shot", ["de"], ["de"])


ENGLISH_LABELS = {"train": "abab", "dev": "ab", "test": "abb"}
REAL_HEADS = [HEADS["logistic_regression"], HEADS["svm"], FfnHead(epochs=9)]


@pytest.mark.parametrize("head", REAL_HEADS, ids=lambda head: head.name)
def test_test_labels_of_the_target_change_no_prediction(head):
    """There is nothing else of German than its test set; with flipped labels, right is wrong."""
    data = corpus(en=ENGLISH_LABELS, de={"test": "abab"})
    flipped = corpus(en=ENGLISH_LABELS, de={"test": "baba"})
    system = planted(data, ("de/test/1",))
    (cell,) = evaluate_classification(data, system, head, "zero-shot", ["en"], ["de"])
    (flipped_cell,) = evaluate_classification(flipped, system, head, "zero-shot", ["en"], ["de"])
    np.testing.assert_allclose(cell.outcomes + flipped_cell.outcomes, 1)


def test_targeted_needs_a_dev_set_of_the_target():
    data = corpus(en=ENGLISH_LABELS, de={"test": "abab"})
    with pytest.raises(TaskError, match="'de' has no split 'dev'"):
        evaluate_classification(data, planted(data), GuessHead(), "targeted", ["en"], ["de"])


def test_pairs_become_pair_features():
    split = Split(["0", "1"], ["p", "q"], ["a", "b"], ["r", "s"])
    splits = {"en": {"train": split, "dev": split, "test": split}}
    data = ClassificationData(splits, Provenance("", ""))
    # Of unit length these are p (0.6, 0.8), q (1, 0), r (0, 1), s (-0.8, 0.6).
    system = FakeSystem({"p": [3, 4], "q": [3, 0], "r": [0, 2], "s": [-4, 3]}.get)
    head = GuessHead()

    evaluate_classification(data, system, head, seeds=(0,))

    expected = [[0.6, 0.8, 0, 1, 0.6, 0.2, 0, 0.8], [1, 0, -0.8, 0.6, 1.8, 0.6, -0.8, 0]]
    dev_features, _ = head.fits[0]["devs"]["en"]
    np.testing.assert_allclose(head.fits[0]["features"], expected, atol=1e-6)
    np.testing.assert_allclose(dev_features, expected, atol=1e-6)
    for _, fit_on in system.calls:
        assert fit_on == ["p", "q", "r", "s"]


BAD_DATA = [
    (
        {"train": "bbbba", "test": "abbb"},
        r"'de' has no split 'dev', expected train, dev and test; found train, test",
    ),
    (
        {"train": "aaa", "dev": "ba", "test": "abbb"},
        r"de/train: found only the class 'a', expected at least two",
    ),
    (
        {"train": "bbbba", "dev": "ac", "test": "abbb"},
        r"de/dev: found the label 'c' \(item 'de/dev/1'\).* train set of de, .*'a', 'b'",
    ),
]


@pytest.mark.parametrize(("german", "message"), BAD_DATA)
def test_bad_data_is_found_before_anything_is_trained(german, message):
    head = GuessHead()
    with pytest.raises(TaskError, match=message):
        evaluate_classification(corpus(en=TWO_LABELS["en"], de=german), planted(TWO), head)
    assert not head.fits


def test_a_missing_test_language_is_found_before_anything_is_trained():
    head = GuessHead()
    with pytest.raises(TaskError, match=r"no language 'fr', expected one of en, de"):
        evaluate_classification(TWO, planted(TWO), head, test_languages=["en", "fr"])
    assert not head.fits
