"""`tmde align`: documents, URLs and known pairs in; pairs and parallel rows out."""

import json
import random

import pytest
import torch

from modeling_tmde import NtdvConfig, NtdvModel
from tests.cli import conftest
from tests.cli.conftest import (
    id_pairs,
    ok,
    option_words,
    read_rows,
    read_tsv,
    turned,
    write_rows,
)
from tests.conftest import LANGUAGES, WORDS, save
from tmde.data import load_parallel
from tmde.documents.alignment import align_documents
from tmde.documents.lawdr import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder

LANGUAGE_OPTIONS = ["--language-a", "de", "--language-b", "en"]


def make_documents(count=8):
    """Return documents of random words, and their translations, with other orders of words."""
    rng = random.Random(0)
    german = []
    english = []
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(3, 6)):
            words = rng.choices(WORDS["de"], k=rng.randint(4, 7))
            lines.append(" ".join(words))
        german.append("\n".join(lines))
        english.append("\n".join(map(turned, lines)))
    return german, english


GERMAN, ENGLISH = make_documents()
ORDER = [3, 1, 7, 0, 2, 6, 4, 5]  # The second file holds the documents in this order.
ENGLISH_IN_ORDER = [ENGLISH[number] for number in ORDER]
RIGHT_PAIRS = [(f"a{number}", f"b{number}") for number in range(len(GERMAN))]


def run(*arguments):
    return conftest.run("align", *arguments)


@pytest.fixture
def inputs(tmp_path):
    """Two files, the second in another order and with an empty document; and the right pairs."""
    first = []
    for number, text in enumerate(GERMAN):
        first.append({"id": f"a{number}", "text": text, "url": f"e.org/de/{number}"})
    second = []
    for number, text in zip(ORDER, ENGLISH_IN_ORDER, strict=True):
        second.append({"id": f"b{number}", "text": text, "url": f"f.org/en/{number}"})
    second.insert(2, {"id": "empty", "text": " \n ", "url": "e.org/en/0"})
    write_rows(tmp_path / "a.jsonl", first)
    write_rows(tmp_path / "b.jsonl", second)
    (tmp_path / "right.tsv").write_text("\n".join(map("\t".join, RIGHT_PAIRS)))
    return tmp_path


@pytest.fixture
def aligned(bag, inputs):
    """The output of a run that writes pairs and rows, and both files."""
    out = inputs / "pairs.tsv"
    rows = inputs / "rows.jsonl"
    options = ["-o", out, "--rows", rows, *LANGUAGE_OPTIONS, "--reference", inputs / "right.tsv"]
    result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    return result, out, rows


def test_pairs_are_written_best_first(aligned):
    _, out, _ = aligned
    pairs = read_tsv(out)
    assert list(pairs) == ["score", "distinctness", "id_a", "id_b"]
    assert sorted(id_pairs(pairs)) == RIGHT_PAIRS
    assert pairs["score"].astype(float).is_monotonic_decreasing


def test_sentences_of_pairs_are_aligned(aligned):
    _, out, rows = aligned
    expected = set()
    for line in "\n".join(GERMAN).split("\n"):
        if line != turned(line):
            expected.add((line, turned(line)))
    written = read_rows(rows)
    aligned_lines = set()
    for row in written:
        aligned_lines.add((row["translation"]["de"], row["translation"]["en"]))
    assert aligned_lines == expected
    assert written[0]["doc_id"] == "|".join(id_pairs(read_tsv(out))[0])
    assert written[0]["score"] > 0.99


def test_the_rows_are_a_corpus(aligned):
    _, _, rows = aligned
    translations = [row["translation"] for row in read_rows(rows)]
    assert load_parallel(str(rows), document_ids=True)["translation"] == translations


def test_the_rows_are_a_memory(bag, inputs):
    options = ["-m", bag, *LANGUAGE_OPTIONS]
    for name in ("rows.jsonl", "rows.tmx"):
        ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "--rows", inputs / name, *options)
    rows = read_rows(inputs / "rows.jsonl")
    translations = [row["translation"] for row in rows]
    assert load_parallel(str(inputs / "rows.tmx"))["translation"] == translations
    text = (inputs / "rows.tmx").read_text()
    assert 'srclang="de"' in text
    assert f'<prop type="x-doc-id">{rows[0]["doc_id"]}</prop>' in text


def test_the_report(aligned):
    result, _, rows = aligned
    assert result.stdout == ""
    for text in (
        "(1 empty or repeated: left out; 0 split; 0 truncated)",
        "8 of 8 correct pairs among 8: precision 1.0000, recall 1.0000, F1 1.0000",
        f"{len(read_rows(rows)):,} rows (",
        f"-> {rows}",
    ):
        assert text in result.stderr


def first_half(text):
    """The first half of the lines of a document, and one line more."""
    lines = text.split("\n")
    return "\n".join(lines[: 1 + len(lines) // 2])


@pytest.mark.parametrize("scoring", ["cosine", "distance"])
def test_options_reach_the_alignment(bag, inputs, scoring):
    # Only halves of the translations, so that no two documents have equal vectors.
    halves = [first_half(text) for text in ENGLISH_IN_ORDER]
    rows = [{"id": f"b{number}", "text": text} for number, text in zip(ORDER, halves, strict=True)]
    write_rows(inputs / "b.jsonl", rows)
    embedder = DocumentEmbedder.from_pretrained(bag, device="cpu")
    neighbors = {} if scoring == "cosine" else {"k": 2}
    all_pairs = align_documents(
        embedder.encode(GERMAN), embedder.encode(halves), scoring, **neighbors
    )
    expected = [(f"a{pair.first}", f"b{ORDER[pair.second]}") for pair in all_pairs[:4]]
    threshold = (all_pairs[3].score + all_pairs[4].score) / 2
    options = ["--scoring", scoring, "--threshold", threshold, "-o", inputs / "pairs.tsv"]
    options += option_words(neighbors)
    ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    assert id_pairs(read_tsv(inputs / "pairs.tsv")) == expected


@pytest.mark.parametrize(
    ("options", "has_other_pair"),
    [
        ([], True),
        (["--min-distinctness", 0.25], False),
        (["--threshold", 0], True),
    ],
)
def test_documents_without_a_translation(bag, inputs, options, has_other_pair):
    """One document of each side has no translation, so both would be left for each other."""
    for name, without in (("a", "a0"), ("b", "b5")):
        rows = [row for row in read_rows(inputs / f"{name}.jsonl") if row["id"] != without]
        write_rows(inputs / f"{name}.jsonl", rows)
    arguments = [inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, "-o", inputs / "pairs.tsv"]
    result = ok("align", *arguments, *options)
    pairs = id_pairs(read_tsv(inputs / "pairs.tsv"))
    assert set(RIGHT_PAIRS[1:5] + RIGHT_PAIRS[6:]) <= set(pairs)
    assert (("a5", "b0") in pairs) is has_other_pair
    message = "Left out 1 pair with a distinctness below 0.25"
    assert (message in result.stderr) is not has_other_pair
    assert ("Pairs with a distinctness below 0.25: 1 of" in result.stderr) is (options == [])


def url_options(inputs, bag):
    files = [inputs / "a.jsonl", inputs / "b.jsonl"]
    return [*files, "-m", bag, "-o", inputs / "pairs.tsv", "--url-field", "url"]


def move_to_one_website(inputs, without_url=()):
    """Let both files be of one website; some documents of the second have no URL."""
    rows = []
    for row in read_rows(inputs / "b.jsonl"):
        url = None
        if row["id"] not in without_url:
            url = row["url"].replace("f.org", "www.e.org")
        rows.append(row | {"url": url})
    write_rows(inputs / "b.jsonl", rows)


def test_urls_of_two_websites_match_nothing(bag, inputs):
    result = ok("align", *url_options(inputs, bag), *LANGUAGE_OPTIONS)
    assert "8 pairs of documents" in result.stderr
    assert "0 by URL" in result.stderr
    assert set(read_tsv(inputs / "pairs.tsv")["matched_by"]) == {"score"}


def test_urls_of_one_website_match_all(bag, inputs):
    move_to_one_website(inputs)
    result = ok("align", *url_options(inputs, bag), "--same-domain")
    assert "8 by URL" in result.stderr
    pair = read_tsv(inputs / "pairs.tsv").set_index("id_a").loc["a3"]
    assert pair["id_b"] == "b3"
    assert pair["url_a"] == "e.org/de/3"
    assert pair["url_b"] == "www.e.org/en/3"


def test_documents_without_url_are_of_no_website(bag, inputs):
    move_to_one_website(inputs, without_url=("b3", "b4"))
    result = ok("align", *url_options(inputs, bag), "--same-domain")
    assert "6 by URL" in result.stderr
    assert len(read_tsv(inputs / "pairs.tsv")) == 6


def test_known_pairs(bag, inputs):
    run(inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, "-o", inputs / "pairs.tsv")
    rows_of_file = {}
    for name in ("pairs.tsv", "right.tsv"):  # The first has a header, the second has none.
        rows = inputs / "rows.jsonl"
        options = ["--pairs", inputs / name, "--rows", rows, *LANGUAGE_OPTIONS, "--overwrite"]
        result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
        assert "pairs of documents" not in result.stderr, result.output
        rows_of_file[name] = sorted(map(json.dumps, read_rows(rows)))
    assert rows_of_file["pairs.tsv"] == rows_of_file["right.tsv"]
    assert rows_of_file["right.tsv"]


def test_lawdr(bag, inputs):
    out = inputs / "pairs.tsv"
    options = ["-o", out, "--lawdr-rank", 2, *LANGUAGE_OPTIONS]
    result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    message = "16 documents by LAWDR, 2 directions removed (0 sentences truncated)"
    assert message in result.stderr, result.output
    lawdr = Lawdr(DocumentEmbedder.from_pretrained(bag, device="cpu"), rank=2)
    vectors = lawdr.fit_transform(GERMAN + ENGLISH_IN_ORDER, ["de"] * 8 + ["en"] * 8)
    expected = [pair.score for pair in align_documents(vectors[:8], vectors[8:])]
    scores = read_tsv(out)["score"].astype(float)
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_rank_of_lawdr_is_found(bag, inputs, monkeypatch):
    """The sentences of both files choose it."""
    samples = {}

    def choose_three(of_languages):
        samples.update(of_languages)
        return 3

    monkeypatch.setattr("tmde.documents.language_debiaser.choose_rank", choose_three)
    out = inputs / "pairs.tsv"
    options = ["-o", out, "--lawdr-rank", "auto", *LANGUAGE_OPTIONS]
    result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    assert "16 documents by LAWDR, 3 directions removed" in result.stderr
    assert {code: len(vectors) for code, vectors in samples.items()} == {
        "de": sum(len(text.splitlines()) for text in GERMAN),
        "en": sum(len(text.splitlines()) for text in ENGLISH),
    }


def test_a_model_that_needs_languages(tokenizer, inputs, tmp_path):
    torch.manual_seed(0)
    model = save(
        tmp_path / "ntdv",
        NtdvModel(NtdvConfig(vocab_size=400, d_model=16, languages=LANGUAGES)),
        tokenizer,
    )
    arguments = [inputs / "a.jsonl", inputs / "b.jsonl", "-m", model, "-o", inputs / "pairs.tsv"]
    result = run(*arguments, "--language-a", "de")
    assert result.exit_code == 1
    assert "--language-b: found None, expected a language of" in result.stderr
    ok("align", *arguments, "--language-a", "de", "--language-b", "en")


BAD = [
    ([], "Nothing to write"),
    (["--rows", "rows.jsonl", "--language-a", "de"], "need the languages of both sides"),
    (
        ["-o", "out.tsv", "--language-a", "de", "--language-b", "de"],
        "--language-b: found 'de', the same as --language-a",
    ),
    (
        ["-o", "out.tsv", "--language-a", "german"],
        "--language-a: found 'german', expected the code of a language",
    ),
    (["-o", "out.tsv", "--same-domain"], "--same-domain needs --url-field"),
    (
        ["--pairs", "right.tsv", "-o", "out.tsv", "--rows", "r.jsonl", *LANGUAGE_OPTIONS],
        "Known pairs need --rows=FILE",
    ),
    (["-o", "out.tsv", "--url-field", "link"], "no column 'link'"),
    (
        ["-o", "out.tsv", "--lawdr-rank", "-1", *LANGUAGE_OPTIONS],
        "--lawdr-rank: found '-1', expected 0, 1, 2 ... or auto",
    ),
    (
        ["-o", "out.tsv", "--lawdr-rank", "auto", *LANGUAGE_OPTIONS],
        f"rank: found 'auto' for {sum(map(len, map(str.splitlines, GERMAN)))} vectors of 'de', "
        "expected at least 100",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options_are_named(bag, inputs, options, message, monkeypatch):
    monkeypatch.chdir(inputs)
    before = set(inputs.iterdir())
    result = run("a.jsonl", "b.jsonl", "-m", bag, *options)
    assert result.exit_code == 1, result.output
    assert "Error: " in result.stderr, result.output
    assert message in result.stderr, result.output
    assert set(inputs.iterdir()) == before


def test_folders_of_texts_are_aligned(bag, tmp_path):
    for side, documents in (("a", GERMAN), ("b", ENGLISH)):
        folder = tmp_path / side
        folder.mkdir()
        for number, text in enumerate(documents):
            (folder / f"{number}.txt").write_text(text)
    out = tmp_path / "pairs.tsv"
    ok("align", tmp_path / "a", tmp_path / "b", "-m", bag, "-o", out)
    pairs = read_tsv(out)
    assert len(pairs) == len(GERMAN)
    assert list(pairs["id_a"]) == list(pairs["id_b"])
