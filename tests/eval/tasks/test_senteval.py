"""SentEval's transfer tasks: its files, ten folds, and the regression of relatedness."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from modeling_tmde.eval.classification import evaluate_classification
from modeling_tmde.eval.runner import plan_tasks
from modeling_tmde.eval.similarity import STRENGTHS, evaluate_similarity, predict_scores
from modeling_tmde.eval.systems import CharacterTfidf
from modeling_tmde.eval.tasks import GROUPS, TASKS, ClassificationData, TaskError
from tests.eval.fake_system import FakeSystem

BINARY = {"MR/rt-polarity": ("pos", "neg"), "CR/custrev": ("pos", "neg"), "MPQA/mpqa": ("pos", "neg")}
BINARY["SUBJ/subj"] = ("subjective", "objective")
WORDS = ("good fine great", "bad poor awful")


@pytest.fixture
def downstream(tmp_path):
    """A folder as SentEval's script leaves it, with twenty rows in each file."""
    files = {}
    for stem, labels in BINARY.items():
        for label, words in zip(labels, WORDS, strict=True):
            files[f"{stem}.{label}"] = [f"a {words} film {n}" for n in range(20)]
    for split in ("train", "dev", "test"):
        files[f"SST/binary/sentiment-{split}"] = [f"a {WORDS[n % 2]} film {n}\t{n % 2}" for n in range(20)]
        files[f"SST/fine/sentiment-{split}"] = [f"{n % 5} a film {n % 5} {n}" for n in range(20)]
        lines = [
            f"main-news\tMSRpar\t2012test\t{n}\t{n % 6}.000\tsome text {n}\tsome text {n * (n % 6)}" for n in range(20)
        ]
        files[f"STS/STSBenchmark/sts-{split}.csv"] = lines
    for name in ("train_5500", "TREC_10"):
        files[f"TREC/{name}.label"] = [
            f"{('NUM', 'LOC')[n % 2]}:x {('How many', 'Where')[n % 2]} {n} ?" for n in range(20)
        ]
    for split in ("train", "test"):
        rows = [f"{n % 2}\t{n}\t{n}\tThis is {n} .\tThis is {n} too ." for n in range(20)]
        files[f"MRPC/msr_paraphrase_{split}.txt"] = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]
    for split in ("train", "trial", "test_annotated"):
        rows = [f"{n}\tone {n}\ttwo {n}\t{1 + n % 5}\t{('NEUTRAL', 'ENTAILMENT')[n % 2]}" for n in range(20)]
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        files[f"SICK/SICK_{split}.txt"] = [header, *rows]
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "CR/custrev.pos").write_bytes("\n".join(f"café {n}" for n in range(20)).encode("latin-1"))
    return tmp_path


def test_published_files(downstream):
    plans = plan_tasks([f"senteval={downstream}"])
    assert [plan.name for plan in plans] == GROUPS["senteval"] and len(plans) == 11
    data = {plan.name.removeprefix("senteval_"): plan.load().data for plan in plans}
    one = {name: next(iter(found.splits["en"].values())) for name, found in data.items() if hasattr(found, "splits")}
    rows = {
        name: (split.labels[-1], split.texts[-1], (split.second_texts or [None])[-1]) for name, split in one.items()
    }
    assert rows == {
        "mr": ("neg", "a bad poor awful film 19", None),
        "cr": ("neg", "a bad poor awful film 19", None),
        "subj": ("subjective", "a good fine great film 19", None),
        "mpqa": ("neg", "a bad poor awful film 19", None),
        "sst2": ("1", "a bad poor awful film 19", None),
        "sst5": ("4", "a film 4 19", None),
        "trec": ("LOC", "Where 19 ?", None),
        "mrpc": ("1", "This is 19 .", "This is 19 too ."),
        "sick_e": ("ENTAILMENT", "one 19", "two 19"),
    }
    assert one["cr"].texts[3] == "café 3" and len(one["mr"]) == 40
    sizes = {
        name: [len(split) for split in found.splits["en"].values()] for name, found in data.items() if name in one
    }
    assert sizes["trec"] == sizes["mrpc"] == [18, 20, 2] and sizes["sst5"] == [20, 20, 20]
    scored = data["sick_r"]
    assert list(scored.supervised) == ["train", "dev"] and scored.pairs["en", "en"].scores[3] == 4.0
    stsb = data["stsb"].supervised["train"]
    assert (stsb.first[3], stsb.second[3], stsb.scores[3]) == ("some text 3", "some text 9", 3.0)


def test_bad_files(downstream):
    path = downstream / "SICK/SICK_trial.txt"
    path.write_text(path.read_text().replace("\t3\t", "\tthree\t", 1))
    with pytest.raises(TaskError, match="SICK_trial.txt.*4.*'three'.*a finite number"):
        TASKS["senteval_sick_r"]().load(downstream)
    (downstream / "TREC/TREC_10.label").write_text("NUM How many ?\n")
    with pytest.raises(TaskError, match="TREC_10.label.*1.*NUM How many"):
        TASKS["senteval_trec"]().load(downstream)
    (downstream / "MR/rt-polarity.neg").unlink()
    with pytest.raises(TaskError, match="rt-polarity.neg.*no file.*get_transfer_data"):
        TASKS["senteval_mr"]().load(downstream)


def test_every_item_is_tested_once_by_a_head_that_did_not_see_it(downstream):
    data = TASKS["senteval_mr"]().load(downstream)
    (cell,) = evaluate_classification(data, CharacterTfidf())
    assert (cell.value, cell.extra["size"], cell.pair) == (1.0, 40.0, ("en", "en"))
    assert sorted(cell.ids) == sorted(data.splits["en"]["all"].ids)
    split, rng = data.splits["en"]["all"], np.random.default_rng(1)
    vectors = dict(zip(split.texts, rng.normal(size=(40, 60)), strict=True))  # more columns than rows: heads overfit
    (cell,) = evaluate_classification(data, FakeSystem(vectors.get))
    whole = ClassificationData({"en": dict.fromkeys(("train", "dev", "test"), split)}, data.provenance)
    (seen,) = evaluate_classification(whole, FakeSystem(vectors.get))
    assert seen.value == 1.0 and cell.value < 0.8


def test_relatedness_is_the_mean_of_a_distribution():
    """Against a minimizer of the cross-entropy with the distributions of the scores, in float64."""
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(n, 3)), rng.normal(size=(n, 3))) for n in (40, 15, 20)]
    features = [np.hstack([abs(first - second), first * second]) for first, second in pairs]
    slope = rng.normal(size=6)
    scores = [np.clip(2.5 + found @ slope / 2 + rng.normal(size=len(found)) / 5, 1, 4) for found in features]
    mean, deviation = features[0].mean(axis=0), features[0].std(axis=0)
    train, dev, test = ((found - mean) / deviation for found in features)
    targets = np.stack([np.maximum(0, 1 - abs(scores[0] - whole)) for whole in (1, 2, 3, 4)], axis=1)
    np.testing.assert_allclose(targets.sum(axis=1), 1)

    def fitted(strength):
        def loss(flat):
            weights = flat.reshape(7, 4)
            logits = train @ weights[:6] + weights[6]
            return (
                -(targets * scipy.special.log_softmax(logits, axis=1)).sum() * strength + (weights[:6] ** 2).sum() / 2
            )

        weights = scipy.optimize.minimize(loss, np.zeros(28), method="BFGS", options={"gtol": 1e-6}).x.reshape(7, 4)
        return [scipy.special.softmax(rows @ weights[:6] + weights[6], axis=1) @ (1, 2, 3, 4) for rows in (dev, test)]

    found = [fitted(strength) for strength in STRENGTHS]
    best = max(range(len(found)), key=lambda n: np.corrcoef(found[n][0], scores[1])[0, 1])
    np.testing.assert_allclose(predict_scores(pairs, scores[0], scores[1]), found[best][1], atol=5e-3)


def test_tfidf_can_be_related(downstream):
    (cell,) = evaluate_similarity(TASKS["senteval_stsb"]().load(downstream), CharacterTfidf())
    assert cell.pair == ("en", "en") and -1 <= cell.value <= 1 and cell.extra["size"] == 20
