"""`tmde align`: documents, URLs and known pairs in; pairs and parallel rows out."""

import json
import random

import pytest
import torch

from modeling_tmde import NtdvConfig, NtdvModel
from tests.cli import conftest
from tests.cli.conftest import ok, read_rows, turned, write_rows
from tests.conftest import LANGUAGES, WORDS, save
from tmde.data import load_parallel
from tmde.documents.alignment import align_documents
from tmde.documents.lawdr import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder

LANGUAGE_OPTIONS = ["--language-a", "de", "--language-b", "en"]


def make_documents(count=8):
    """Return documents of random words, and their translations, with other orders of words."""
    rng = random.Random(0)
    first = [
        [" ".join(rng.choices(WORDS["de"], k=rng.randint(4, 7))) for _ in range(rng.randint(3, 6))]
        for _ in range(count)
    ]
    return ["\n".join(lines) for lines in first], [
        "\n".join(turned(line) for line in lines) for lines in first
    ]


GERMAN, ENGLISH = make_documents()
ORDER = [3, 1, 7, 0, 2, 6, 4, 5]  # of the second file


def run(*arguments):
    return conftest.run("align", *arguments)


@pytest.fixture
def inputs(tmp_path):
    """Two files, the second in another order and with an empty document; and the right pairs."""
    first = [
        {"id": f"a{number}", "text": text, "url": f"e.org/de/{number}"}
        for number, text in enumerate(GERMAN)
    ]
    second = [
        {"id": f"b{number}", "text": ENGLISH[number], "url": f"f.org/en/{number}"}
        for number in ORDER
    ]
    second.insert(2, {"id": "empty", "text": " \n ", "url": "e.org/en/0"})
    for name, rows in (("a", first), ("b", second)):
        write_rows(tmp_path / f"{name}.jsonl", rows)
    (tmp_path / "right.tsv").write_text(
        "".join(f"a{number}\tb{number}\n" for number in range(len(GERMAN)))
    )
    return tmp_path


def lines_of(path):
    header, *lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.fixture
def aligned(bag, inputs):
    """The output of a run that writes pairs and rows, and both files."""
    out, rows = inputs / "pairs.tsv", inputs / "rows.jsonl"
    options = ["-o", out, "--rows", rows, *LANGUAGE_OPTIONS, "--reference", inputs / "right.tsv"]
    result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    return result, out, rows


def test_pairs_are_written_best_first(aligned):
    _, out, _ = aligned
    pairs = lines_of(out)
    assert list(pairs[0]) == ["score", "id_a", "id_b"]
    assert {(pair["id_a"], pair["id_b"]) for pair in pairs} == {
        (f"a{number}", f"b{number}") for number in range(8)
    }
    scores = [float(pair["score"]) for pair in pairs]
    assert scores == sorted(scores, reverse=True)


def test_sentences_of_pairs_are_aligned(aligned):
    _, out, rows = aligned
    expected = set()
    for text in GERMAN:
        expected.update((line, turned(line)) for line in text.split("\n") if line != turned(line))
    written = read_rows(rows)
    assert {(row["translation"]["de"], row["translation"]["en"]) for row in written} == expected
    best_pair = lines_of(out)[0]
    assert written[0]["doc_id"] == f"{best_pair['id_a']}|{best_pair['id_b']}"
    assert written[0]["score"] > 0.99


def test_the_rows_are_a_corpus(aligned):
    _, _, rows = aligned
    translations = [row["translation"] for row in read_rows(rows)]
    assert load_parallel(str(rows), document_ids=True)["translation"] == translations


def test_the_report(aligned):
    result, _, rows = aligned
    assert result.stdout == ""
    for text in (
        "(1 empty or repeated: left out; 0 split; 0 truncated)",
        "8 of 8 right pairs among 8: precision 1.0000, recall 1.0000, F1 1.0000",
        f"{len(read_rows(rows)):,} rows (",
        f"-> {rows}",
    ):
        assert text in result.stderr


@pytest.mark.parametrize("scoring", ["cosine", "distance"])
def test_options_reach_the_alignment(bag, inputs, scoring):
    halves = [ENGLISH[number].split("\n") for number in ORDER]
    halves = ["\n".join(lines[: 1 + len(lines) // 2]) for lines in halves]  # no pair is quite equal
    rows = [{"id": f"b{number}", "text": text} for number, text in zip(ORDER, halves, strict=True)]
    (inputs / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    embedder = DocumentEmbedder.from_pretrained(bag, device="cpu")
    neighbours, option = ({}, []) if scoring == "cosine" else ({"k": 2}, ["-k", 2])
    everything = align_documents(
        embedder.encode(GERMAN), embedder.encode(halves), scoring, **neighbours
    )
    threshold = (everything[3].score + everything[4].score) / 2
    options = ["--scoring", scoring, *option, "--threshold", threshold, "-o", inputs / "pairs.tsv"]
    ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    found = [(pair["id_a"], pair["id_b"]) for pair in lines_of(inputs / "pairs.tsv")]
    assert found == [(f"a{pair.first}", f"b{ORDER[pair.second]}") for pair in everything[:4]]


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
    assert {line["matched_by"] for line in lines_of(inputs / "pairs.tsv")} == {"score"}


def test_urls_of_one_website_match_all(bag, inputs):
    move_to_one_website(inputs)
    result = ok("align", *url_options(inputs, bag), "--same-domain")
    assert "8 by URL" in result.stderr
    pair_of_id = {line["id_a"]: line for line in lines_of(inputs / "pairs.tsv")}
    pair = pair_of_id["a3"]
    assert pair["id_b"] == "b3"
    assert pair["url_a"] == "e.org/de/3"
    assert pair["url_b"] == "www.e.org/en/3"


def test_documents_without_url_are_of_no_website(bag, inputs):
    move_to_one_website(inputs, without_url=("b3", "b4"))
    result = ok("align", *url_options(inputs, bag), "--same-domain")
    assert "6 by URL" in result.stderr
    assert len(lines_of(inputs / "pairs.tsv")) == 6


def test_known_pairs(bag, inputs):
    run(inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, "-o", inputs / "pairs.tsv")
    found = {}
    for name in ("pairs.tsv", "right.tsv"):  # with a header, and without one
        rows = inputs / "rows.jsonl"
        options = ["--pairs", inputs / name, "--rows", rows, *LANGUAGE_OPTIONS, "--overwrite"]
        result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
        assert "pairs of documents" not in result.stderr, result.output
        found[name] = sorted(map(json.dumps, read_rows(rows)))
    assert found["pairs.tsv"] == found["right.tsv"] != []


def test_lawdr(bag, inputs):
    out = inputs / "pairs.tsv"
    options = ["-o", out, "--lawdr-rank", 2, *LANGUAGE_OPTIONS]
    result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    assert "16 documents by LAWDR (0 sentences truncated)" in result.stderr, result.output
    lawdr = Lawdr(DocumentEmbedder.from_pretrained(bag, device="cpu"), rank=2)
    vectors = lawdr.fit_transform(
        GERMAN + [ENGLISH[number] for number in ORDER], ["de"] * 8 + ["en"] * 8
    )
    expected = align_documents(vectors[:8], vectors[8:])
    assert [float(line["score"]) for line in lines_of(out)] == pytest.approx(
        [p.score for p in expected], abs=1e-5
    )


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
        "--language-a: found 'german', expected a language code",
    ),
    (["-o", "out.tsv", "--same-domain"], "--same-domain needs --url-field"),
    (
        ["--pairs", "right.tsv", "-o", "out.tsv", "--rows", "r.jsonl", *LANGUAGE_OPTIONS],
        "--pairs needs --rows and",
    ),
    (["-o", "out.tsv", "--url-field", "link"], "no field 'link'"),
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
