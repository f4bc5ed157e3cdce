"""SentEval's transfer tasks: its files, ten folds, and the regression of relatedness."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.eval.classification import evaluate_classification
from tmde.eval.planning import plan_tasks
from tmde.eval.similarity import STRENGTHS, evaluate_similarity, predict_scores
from tmde.eval.systems import CharacterTfidf
from tmde.eval.tasks import GROUPS, TASKS, TaskError

ROWS = 20  # in each file


def write(folder: Path, names: Sequence[str], line: Callable[[int], str], header: str = "") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = list(map(line, range(ROWS)))
        if header:
            lines.insert(0, header)
        path.write_text("\n".join(lines) + "\n")


def trec_line(number: int) -> str:
    if number % 2 == 0:
        return f"NUM:x How many {number} ?"
    return f"LOC:y Where {number} ?"


@pytest.fixture
def downstream(tmp_path) -> Path:
    """A folder as SentEval's script leaves it."""
    for stem in ("MR/rt-polarity", "CR/custrev", "MPQA/mpqa"):
        write(tmp_path, [f"{stem}.pos"], lambda n: f"a good fine great film {n}")
        write(tmp_path, [f"{stem}.neg"], lambda n: f"a bad poor awful film {n}")
    write(tmp_path, ["SUBJ/subj.subjective", "SUBJ/subj.objective"], lambda n: f"a sentence {n}")
    for split in ("train", "dev", "test"):
        write(tmp_path, [f"SST/binary/sentiment-{split}"], lambda n: f"a film {n}\t{n % 2}")
        write(tmp_path, [f"SST/fine/sentiment-{split}"], lambda n: f"{n % 5} a film {n}")
        write(
            tmp_path,
            [f"STS/STSBenchmark/sts-{split}.csv"],
            lambda n: f"news\tMSR\t2012\t{n}\t{n % 6}.0\tone {n}\ttwo {n % 6}",
        )
    write(tmp_path, ["TREC/train_5500.label", "TREC/TREC_10.label"], trec_line)
    write(
        tmp_path,
        ["MRPC/msr_paraphrase_train.txt", "MRPC/msr_paraphrase_test.txt"],
        lambda n: f"{n % 2}\t{n}\t{n}\tone {n}\ttwo {n}",
        header="a header",
    )
    write(
        tmp_path,
        ["SICK/SICK_train.txt", "SICK/SICK_trial.txt", "SICK/SICK_test_annotated.txt"],
        lambda n: f"{n}\tone {n}\ttwo {n}\t{1 + n % 5}\t{'NY'[n % 2]}",
        header="a header",
    )
    return tmp_path


def test_the_group_plans_all_eleven_tasks(downstream):
    plans = plan_tasks([f"senteval={downstream}"])
    assert [plan.name for plan in plans] == GROUPS["senteval"]
    assert len(plans) == 11


@pytest.mark.parametrize(
    ("name", "label", "text"),
    [
        ("mr", "neg", "a bad poor awful film 19"),
        ("cr", "neg", "a bad poor awful film 19"),
        ("mpqa", "neg", "a bad poor awful film 19"),
        ("subj", "subjective", "a sentence 19"),
        ("sst2", "1", "a film 19"),
        ("sst5", "4", "a film 19"),
        ("trec", "LOC", "Where 19 ?"),
    ],
)
def test_the_last_row_of_single_texts(name, label, text, downstream):
    splits = TASKS[f"senteval_{name}"]().load(downstream).splits["en"]
    first_split = next(iter(splits.values()))
    assert first_split.labels[-1] == label
    assert first_split.texts[-1] == text
    assert first_split.second_texts is None


@pytest.mark.parametrize(("name", "label"), [("mrpc", "1"), ("sick_e", "Y")])
def test_the_last_row_of_pairs(name, label, downstream):
    train = TASKS[f"senteval_{name}"]().load(downstream).splits["en"]["train"]
    assert train.labels[-1] == label
    assert train.texts[-1] == "one 19"
    assert train.second_texts[-1] == "two 19"


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mr", {"all": 40}),
        ("trec", {"train": 18, "test": 20, "dev": 2}),
        ("mrpc", {"train": 18, "test": 20, "dev": 2}),
        ("sst5", {"train": 20, "dev": 20, "test": 20}),
    ],
)
def test_every_tenth_train_row_is_for_tuning_where_there_is_no_dev_set(name, sizes, downstream):
    data = TASKS[f"senteval_{name}"]().load(downstream)
    assert data.rows() == {"en": sizes}


def test_old_files_are_in_latin_1(downstream):
    lines = numbered("café ", range(ROWS))
    (downstream / "CR/custrev.pos").write_bytes("\n".join(lines).encode("latin-1"))
    data = TASKS["senteval_cr"]().load(downstream)
    assert data.splits["en"]["all"].texts[3] == "café 3"


def test_relatedness_has_pairs_for_a_regression(downstream):
    data = TASKS["senteval_sick_r"]().load(downstream)
    assert list(data.supervised) == ["train", "dev"]
    assert data.pairs["en", "en"].scores[3] == 4.0


def test_similarity_benchmark(downstream):
    train = TASKS["senteval_stsb"]().load(downstream).supervised["train"]
    assert train.first[8] == "one 8"
    assert train.second[8] == "two 2"
    assert train.scores[8] == 2.0


def test_a_regression_on_n_grams_predicts_what_the_second_text_tells(downstream):
    data = TASKS["senteval_stsb"]().load(downstream)
    (cell,) = evaluate_similarity(data, CharacterTfidf())
    assert cell.pair == ("en", "en")
    assert cell.value > 0.5


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        (
            "sick_r",
            "SICK/SICK_trial.txt",
            "header\n1\ta\tb\tthree\tNEUTRAL\n",
            "2.*'three'.*a finite number",
        ),
        ("trec", "TREC/TREC_10.label", "NUM How many ?\n", "1.*NUM How many"),
    ],
)
def test_a_bad_line_is_named_with_file_and_row(name, file, content, message, downstream):
    (downstream / file).write_text(content)
    with pytest.raises(TaskError, match=f"{file}.*{message}"):
        TASKS[f"senteval_{name}"]().load(downstream)


def test_a_missing_file_is_named_with_the_script_that_fetches_it(downstream):
    (downstream / "MR/rt-polarity.neg").unlink()
    with pytest.raises(TaskError, match="MR/rt-polarity.neg.*no file.*get_transfer_data"):
        TASKS["senteval_mr"]().load(downstream)


def test_ten_folds_test_every_item_once(downstream):
    data = TASKS["senteval_mr"]().load(downstream)
    (cell,) = evaluate_classification(data, CharacterTfidf())
    assert cell.pair == ("en", "en")
    assert cell.value == 1.0
    assert cell.extra["size"] == 40.0
    assert sorted(cell.ids) == sorted(data.splits["en"]["all"].ids)


def test_ten_folds_test_with_a_head_that_did_not_see_the_item(downstream):
    """Vectors have more columns than rows, so that heads know what they have seen by heart."""
    data = TASKS["senteval_mr"]().load(downstream)
    texts = data.splits["en"]["all"].texts
    noise = np.random.default_rng(1).normal(size=(len(texts), 60))
    vectors = dict(zip(texts, noise, strict=True))
    (cell,) = evaluate_classification(data, FakeSystem(vectors.get))
    assert cell.value < 0.8


def regression_by_hand(
    strength: float, parts: Sequence[np.ndarray], targets: np.ndarray
) -> list[np.ndarray]:
    """Minimize the cross-entropy with distributions over the scores 1 to 4, in float64.

    Returns the expected scores of the dev and of the test pairs.
    """
    train, dev, test = parts

    def loss(parameters: np.ndarray) -> float:
        weights = parameters.reshape(7, 4)
        logits = train @ weights[:6] + weights[6]
        cross_entropy = -(targets * scipy.special.log_softmax(logits, axis=1)).sum()
        penalty = (weights[:6] ** 2).sum() / 2
        return strength * cross_entropy + penalty

    options = {"gtol": 1e-6}
    minimum = scipy.optimize.minimize(loss, np.zeros(28), method="BFGS", options=options)
    weights = minimum.x.reshape(7, 4)
    expected = []
    for rows in (dev, test):
        probabilities = scipy.special.softmax(rows @ weights[:6] + weights[6], axis=1)
        expected.append(probabilities @ (1, 2, 3, 4))
    return expected


def test_relatedness_is_the_mean_of_a_distribution():
    rng = np.random.default_rng(0)
    pairs = []
    features = []
    for count in (40, 15, 20):
        first = rng.normal(size=(count, 3))
        second = rng.normal(size=(count, 3))
        pairs.append((first, second))
        features.append(np.hstack([abs(first - second), first * second]))  # (count, 6)
    slope = rng.normal(size=6)
    scores = []
    for part in features:
        noise = rng.normal(size=len(part)) / 5
        scores.append(np.clip(2.5 + part @ slope / 2 + noise, 1, 4))
    train_scores, dev_scores, _ = scores

    predicted = predict_scores(pairs, train_scores, dev_scores)

    mean = features[0].mean(axis=0)
    deviation = features[0].std(axis=0)
    scaled = [(part - mean) / deviation for part in features]
    # A score of 3.6 is 3 with probability 0.4 and 4 with 0.6.
    distances = abs(train_scores[:, None] - np.array([1, 2, 3, 4]))
    targets = np.maximum(0, 1 - distances)  # (n, 4)
    test_predictions = []
    correlations = []
    for strength in STRENGTHS:
        dev_prediction, test_prediction = regression_by_hand(strength, scaled, targets)
        correlations.append(np.corrcoef(dev_prediction, dev_scores)[0, 1])
        test_predictions.append(test_prediction)
    expected = test_predictions[int(np.argmax(correlations))]
    np.testing.assert_allclose(predicted, expected, atol=5e-3)
