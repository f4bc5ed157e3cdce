"""SentEval's transfer tasks: its files, ten folds, and the regression of relatedness."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from tests.eval.fake_system import FakeSystem
from tmde.eval.classification import evaluate_classification
from tmde.eval.runner import plan_tasks
from tmde.eval.similarity import STRENGTHS, evaluate_similarity, predict_scores
from tmde.eval.systems import CharacterTfidf
from tmde.eval.tasks import GROUPS, TASKS, TaskError

LINES = {  # of row n in each file
    "{MR/rt-polarity,CR/custrev,MPQA/mpqa}.pos": lambda n: f"a good fine great film {n}",
    "{MR/rt-polarity,CR/custrev,MPQA/mpqa}.neg": lambda n: f"a bad poor awful film {n}",
    "SUBJ/subj.{subjective,objective}": lambda n: f"a sentence {n}",
    "SST/binary/sentiment-{train,dev,test}": lambda n: f"a film {n}\t{n % 2}",
    "SST/fine/sentiment-{train,dev,test}": lambda n: f"{n % 5} a film {n}",
    "STS/STSBenchmark/sts-{train,dev,test}.csv": lambda n: (
        f"news\tMSR\t2012\t{n}\t{n % 6}.0\tone {n}\ttwo {n % 6}"
    ),
    "TREC/{train_5500,TREC_10}.label": lambda n: (
        f"{('NUM:x How many', 'LOC:y Where')[n % 2]} {n} ?"
    ),
    "MRPC/msr_paraphrase_{train,test}.txt": lambda n: f"{n % 2}\t{n}\t{n}\tone {n}\ttwo {n}",
    "SICK/SICK_{train,trial,test_annotated}.txt": lambda n: (
        f"{n}\tone {n}\ttwo {n}\t{1 + n % 5}\t{'NY'[n % 2]}"
    ),
}


@pytest.fixture
def downstream(tmp_path):
    """A folder as SentEval's script leaves it, with twenty rows in each file."""
    for pattern, line in LINES.items():
        before, _, names = pattern.partition("{")
        names, _, after = names.partition("}")
        for path in (tmp_path / f"{before}{name}{after}" for name in names.split(",")):
            path.parent.mkdir(parents=True, exist_ok=True)
            header = ["a header"] if path.parent.name in ("MRPC", "SICK") else []
            path.write_text("\n".join([*header, *map(line, range(20))]) + "\n")
    (tmp_path / "CR/custrev.pos").write_bytes(
        "\n".join(f"café {n}" for n in range(20)).encode("latin-1")
    )
    return tmp_path


def test_published_files(downstream):
    plans = plan_tasks([f"senteval={downstream}"])
    assert [plan.name for plan in plans] == GROUPS["senteval"] and len(plans) == 11
    data = {plan.name.removeprefix("senteval_"): plan.load().data for plan in plans}
    one = {
        name: next(iter(found.splits["en"].values()))
        for name, found in data.items()
        if hasattr(found, "splits")
    }
    rows = {
        name: (split.labels[-1], split.texts[-1], *(split.second_texts or [])[-1:])
        for name, split in one.items()
    }
    film, pair = ("neg", "a bad poor awful film 19"), ("one 19", "two 19")
    assert rows == {
        **{
            "mr": film,
            "cr": film,
            "mpqa": film,
            "subj": ("subjective", "a sentence 19"),
            "sst2": ("1", "a film 19"),
        },
        **{
            "sst5": ("4", "a film 19"),
            "trec": ("LOC", "Where 19 ?"),
            "mrpc": ("1", *pair),
            "sick_e": ("Y", *pair),
        },
    }
    assert one["cr"].texts[3] == "café 3" and len(one["mr"]) == 40
    sizes = {
        name: [len(split) for split in found.splits["en"].values()]
        for name, found in data.items()
        if name in one
    }
    assert sizes["trec"] == sizes["mrpc"] == [18, 20, 2] and sizes["sst5"] == [20, 20, 20]
    assert (
        list(data["sick_r"].supervised) == ["train", "dev"]
        and data["sick_r"].pairs["en", "en"].scores[3] == 4.0
    )
    stsb = data["stsb"].supervised["train"]
    assert (stsb.first[8], stsb.second[8], stsb.scores[8]) == ("one 8", "two 2", 2.0)
    (cell,) = evaluate_similarity(data["stsb"], CharacterTfidf())
    assert cell.pair == ("en", "en") and cell.value > 0.5  # the second text tells the score


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        (
            "sick_r",
            "SICK/SICK_trial.txt",
            "header\n1\ta\tb\tthree\tNEUTRAL\n",
            "2.*'three'.*a finite number",
        ),
        ("trec", "TREC/TREC_10.label", "NUM How many ?\n", "1.*NUM How many"),
        ("mr", "MR/rt-polarity.neg", None, "no file.*get_transfer_data"),
    ],
)
def test_bad_files(name, file, line, message, downstream):
    (downstream / file).unlink()
    if line:
        (downstream / file).write_text(line)
    with pytest.raises(TaskError, match=f"{file}.*{message}"):
        TASKS[f"senteval_{name}"]().load(downstream)


def test_every_item_is_tested_once_by_a_head_that_did_not_see_it(downstream):
    data = TASKS["senteval_mr"]().load(downstream)
    (cell,) = evaluate_classification(data, CharacterTfidf())
    assert (cell.value, cell.extra["size"], cell.pair) == (1.0, 40.0, ("en", "en"))
    assert sorted(cell.ids) == sorted(data.splits["en"]["all"].ids)
    split, rng = data.splits["en"]["all"], np.random.default_rng(1)
    vectors = dict(
        zip(split.texts, rng.normal(size=(40, 60)), strict=True)
    )  # more columns than rows: heads overfit
    (cell,) = evaluate_classification(data, FakeSystem(vectors.get))
    assert cell.value < 0.8


def test_relatedness_is_the_mean_of_a_distribution():
    """Against a minimizer of the cross-entropy with the distributions of the scores, in float64."""
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(n, 3)), rng.normal(size=(n, 3))) for n in (40, 15, 20)]
    features = [np.hstack([abs(first - second), first * second]) for first, second in pairs]
    slope = rng.normal(size=6)
    scores = [
        np.clip(2.5 + found @ slope / 2 + rng.normal(size=len(found)) / 5, 1, 4)
        for found in features
    ]
    mean, deviation = features[0].mean(axis=0), features[0].std(axis=0)
    train, dev, test = ((found - mean) / deviation for found in features)
    targets = np.stack(
        [np.maximum(0, 1 - abs(scores[0] - whole)) for whole in (1, 2, 3, 4)], axis=1
    )
    np.testing.assert_allclose(targets.sum(axis=1), 1)

    def fitted(strength):
        def loss(flat):
            weights = flat.reshape(7, 4)
            logits = train @ weights[:6] + weights[6]
            return (
                -(targets * scipy.special.log_softmax(logits, axis=1)).sum() * strength
                + (weights[:6] ** 2).sum() / 2
            )

        weights = scipy.optimize.minimize(
            loss, np.zeros(28), method="BFGS", options={"gtol": 1e-6}
        ).x.reshape(7, 4)
        return [
            scipy.special.softmax(rows @ weights[:6] + weights[6], axis=1) @ (1, 2, 3, 4)
            for rows in (dev, test)
        ]

    found = [fitted(strength) for strength in STRENGTHS]
    best = max(range(len(found)), key=lambda n: np.corrcoef(found[n][0], scores[1])[0, 1])
    np.testing.assert_allclose(
        predict_scores(pairs, scores[0], scores[1]), found[best][1], atol=5e-3
    )
