"""`tmde calibrate`, and the probabilities that `tmde mine` and `align` write with its file."""

import json
import random
import shutil

import numpy as np
import pytest

from tests.cli.conftest import id_pairs, ok, read_rows, read_tsv, run, write_rows
from tests.conftest import WORDS
from tmde.documents.bead_probabilities import ALIGNED_PROBABILITY
from tmde.documents.calibration import DEFAULT_MIN_PROBABILITY, Calibration, pair_evidence
from tmde.documents.mining import mine_bitext
from tmde.embedding.document_embedder import DocumentEmbedder

GERMAN = ["Die Brücke ist gesperrt.", "Die Zinsen steigen.", "Der Zug kommt um 7 Uhr."]
ENGLISH = ["Interest rates are rising.", "It rains.", "The bridge is closed."]


def noisy_rows(count=400):
    """Rows of random words, and the same words with one that is left out."""
    rng = random.Random(0)
    rows = []
    for _ in range(count):
        words = rng.choices(WORDS["de"], k=6)
        rows.append({"translation": {"de": " ".join(words), "en": " ".join(words[1:])}})
    return rows


@pytest.fixture
def model(bag, tmp_path):
    return shutil.copytree(bag, tmp_path / "model")


@pytest.fixture
def sources(tmp_path):
    """Two files of sentences, of which two pairs are translations."""
    (tmp_path / "de.txt").write_text("\n".join(GERMAN), encoding="utf-8")
    (tmp_path / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    return tmp_path / "de.txt", tmp_path / "en.txt"


def test_calibrate(model, tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", noisy_rows())
    result = ok("calibrate", model, "--pairs", pairs)
    assert "measured on the rest: 0." in result.stderr
    assert f"pairs of de, en -> {model / 'calibration.json'}" in result.stderr
    assert Calibration.from_pretrained(model).languages == ["de", "en"]
    again = run("calibrate", model, "--pairs", pairs)
    assert again.exit_code == 1
    assert "exists; set --overwrite" in again.stderr


def test_too_few_pairs(model, tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", noisy_rows(50))
    result = run("calibrate", model, "--pairs", pairs)
    assert result.exit_code == 1
    assert "Found no two languages with 200 pairs" in result.stderr
    assert not (model / "calibration.json").exists()


def test_a_packaged_model_needs_an_output(tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", noisy_rows(1))
    result = run("calibrate", "default", "--pairs", pairs)
    assert result.exit_code == 1
    assert "default is not a local folder: write its calibration to a file" in result.stderr


# ---- Mining


def test_mine_writes_the_probabilities_of_the_library(sources, tmp_path, caplog):
    out = tmp_path / "pairs.tsv"
    ok("mine", *sources, "-o", out, "--share", 0.3, "--min-probability", 0)
    assert "Found only 3 sentences of a side. Probabilities compare a pair" in caplog.text
    pairs = read_tsv(out)
    embedder = DocumentEmbedder.from_pretrained(device="cpu")
    mined = mine_bitext(embedder.encode(GERMAN), embedder.encode(ENGLISH))
    evidence = pair_evidence(
        [GERMAN[row] for row in mined.first],
        [ENGLISH[row] for row in mined.second],
        mined.cosines,
        mined.neighbor_means,
    )
    expected = Calibration.from_pretrained("default").probabilities(evidence, 0.3)
    assert pairs["probability"].astype(float).tolist() == pytest.approx(expected, abs=1e-6)


def test_mine_leaves_out_improbable_pairs(sources, tmp_path):
    """Two pairs are translations. The third one is what was left."""
    out = tmp_path / "pairs.jsonl"
    options = ["--language-a", "de", "--language-b", "en", "--min-probability", 0.5]
    ok("mine", *sources, "-o", out, *options)
    rows = read_rows(out)
    texts = {row["translation"]["de"] for row in rows}
    assert texts == set(GERMAN[:2])
    assert all(row["probability"] >= 0.5 for row in rows)


@pytest.mark.parametrize(
    ("options", "least_probability"),
    [
        ([], DEFAULT_MIN_PROBABILITY),
        (["--min-probability", 0], 0),
        (["--threshold", -1], 0),
        (["--max-pairs", 100], 0),
    ],
)
def test_the_default_probability_of_mined_pairs(sources, tmp_path, options, least_probability):
    """It applies where nothing else limits the pairs."""
    files = [tmp_path / "all.tsv", tmp_path / "pairs.tsv"]
    ok("mine", *sources, "-o", files[0], "--min-probability", 0, "--share", 0.2)
    result = ok("mine", *sources, "-o", files[1], "--share", 0.2, *options)
    every_pair, pairs = map(read_tsv, files)
    probabilities = every_pair["probability"].astype(float)
    assert (probabilities < DEFAULT_MIN_PROBABILITY).any()
    expected = every_pair[probabilities >= least_probability]
    assert id_pairs(pairs) == id_pairs(expected)
    left_out = len(every_pair) - len(expected)
    pairs_left_out = "1 pair" if left_out == 1 else f"{left_out} pairs"
    message = f"Left out {pairs_left_out} with a probability below {DEFAULT_MIN_PROBABILITY}"
    assert (message in result.stderr) is (not options)


def test_no_pair_is_probable(sources, tmp_path, caplog):
    out = tmp_path / "pairs.tsv"
    ok("mine", *sources, "-o", out, "--min-probability", 1)
    assert "No pair reaches the probability 1; the best has" in caplog.text
    assert len(read_tsv(out)) == 0


def test_a_model_without_a_calibration(sources, bag, tmp_path):
    out = tmp_path / "pairs.tsv"
    ok("mine", *sources, "-o", out, "-m", bag)
    assert "probability" not in read_tsv(out)
    result = run("mine", *sources, "-o", out, "-m", bag, "--overwrite", "--min-probability", 0.9)
    assert result.exit_code == 1
    assert f"{bag}: found no calibration" in result.stderr
    assert f"tmde calibrate {bag} --pairs FILE" in result.stderr


def test_vectors_of_files_need_a_file_of_calibration(sources, tmp_path):
    vectors = []
    for path in sources:
        ok("embed", path, "-o", path.with_suffix(".npy"))
        vectors.append(path.with_suffix(".npy"))
    out = tmp_path / "pairs.tsv"
    arguments = ["mine", *sources, "-o", out, "--vectors-a", vectors[0], "--vectors-b", vectors[1]]
    result = run(*arguments, "--min-probability", 0.1)
    assert result.exit_code == 1
    assert "need a calibration: pass --calibration=FILE" in result.stderr
    Calibration.from_pretrained("default").save(tmp_path / "c.json")
    ok(*arguments, "--min-probability", 0.1, "--calibration", tmp_path / "c.json")
    assert (read_tsv(out)["probability"].astype(float) >= 0.1).all()


@pytest.mark.parametrize("option", [["-k", 3], ["--prompt", "query: "]])
def test_other_vectors_have_no_probabilities(sources, tmp_path, option):
    out = tmp_path / "pairs.tsv"
    ok("mine", *sources, "-o", out, *option)
    assert "probability" not in read_tsv(out)
    result = run("mine", *sources, "-o", out, *option, "--overwrite", "--share", 0.5)
    assert result.exit_code == 1
    assert "found" in result.stderr
    assert "expected" in result.stderr


@pytest.mark.parametrize("option", [["--share", 0], ["--share", 1.5]])
def test_a_share_out_of_range(sources, tmp_path, option):
    result = run("mine", *sources, "-o", tmp_path / "pairs.tsv", *option)
    assert result.exit_code == 1
    assert "share: found" in result.stderr


# ---- Alignment


@pytest.fixture
def documents(tmp_path):
    """A document and its translation, which has a sentence of its own in the middle."""
    german = " ".join(GERMAN)
    english = "The bridge is closed. Cats like to sleep in the sun. The train arrives at 7."
    write_rows(tmp_path / "de.jsonl", [{"id": "1", "text": german}])
    write_rows(tmp_path / "en.jsonl", [{"id": "1", "text": english}])
    return tmp_path / "de.jsonl", tmp_path / "en.jsonl"


def test_align_writes_probabilities(documents, tmp_path, caplog):
    rows = tmp_path / "rows.jsonl"
    languages = ["--language-a", "de", "--language-b", "en"]
    ok("align", *documents, "--rows", rows, *languages, "--min-probability", 0)
    assert "Found only 3 sentences of a side. Probabilities" in caplog.text
    probabilities = {row["translation"]["de"]: row["probability"] for row in read_rows(rows)}
    assert probabilities[GERMAN[0]] > 0.5
    ok("align", *documents, "--rows", rows, *languages, "--overwrite", "--min-probability", 0.5)
    kept = {row["translation"]["de"] for row in read_rows(rows)}
    assert kept == {text for text, value in probabilities.items() if value >= 0.5}
    assert len(kept) < len(probabilities)


@pytest.mark.parametrize(
    ("options", "least_probability"),
    [([], ALIGNED_PROBABILITY), (["--min-probability", 0], 0), (["--min-score", -9], 0)],
)
def test_the_default_probability_of_rows(documents, tmp_path, options, least_probability):
    """It applies where nothing else limits the rows."""
    languages = ["--language-a", "de", "--language-b", "en"]
    files = [tmp_path / "all.jsonl", tmp_path / "rows.jsonl"]
    # With this share, the wrong row is improbable though there are few sentences.
    words = [*languages, "--share", 0.05]
    ok("align", *documents, "--rows", files[0], *words, "--min-probability", 0)
    ok("align", *documents, "--rows", files[1], *words, *options)
    every_row, rows = map(read_rows, files)
    assert any(row["probability"] < ALIGNED_PROBABILITY for row in every_row)
    assert rows == [row for row in every_row if row["probability"] >= least_probability]


def test_align_needs_rows_for_probabilities(documents, tmp_path):
    result = run("align", *documents, "-o", tmp_path / "pairs.tsv", "--share", 0.5)
    assert result.exit_code == 1
    assert "Probabilities need --rows=FILE, because only sentence pairs have them" in result.stderr


def test_the_file_is_readable(model, tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", noisy_rows())
    ok("calibrate", model, "--pairs", pairs, "-o", tmp_path / "c.json", "--seed", 3)
    content = json.loads((tmp_path / "c.json").read_text())
    assert np.isfinite(list(content["weights"].values())).all()
