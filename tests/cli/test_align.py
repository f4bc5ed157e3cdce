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


def test_from_documents_to_a_parallel_corpus(bag, inputs):
    out, rows = inputs / "pairs.tsv", inputs / "rows.jsonl"
    options = ["-o", out, "--rows", rows, *LANGUAGE_OPTIONS, "--reference", inputs / "right.tsv"]
    result = ok("align", inputs / "a.jsonl", inputs / "b.jsonl", "-m", bag, *options)
    assert result.stdout == ""
    assert "(1 empty or repeated: left out; 0 split; 0 truncated)" in result.stderr
    assert "8 of 8 right pairs among 8: precision 1.0000, recall 1.0000, F1 1.0000" in result.stderr
    pairs = lines_of(out)
    assert list(pairs[0]) == ["score", "id_a", "id_b"]
    assert {(pair["id_a"], pair["id_b"]) for pair in pairs} == {
        (f"a{number}", f"b{number}") for number in range(8)
    }
    scores = [float(pair["score"]) for pair in pairs]
    assert scores == sorted(scores, reverse=True)

    written = read_rows(rows)
    expected = {
        (line, turned(line)) for text in GERMAN for line in text.split("\n") if line != turned(line)
    }
    assert {(row["translation"]["de"], row["translation"]["en"]) for row in written} == expected
    assert f"{len(written):,} rows (" in result.stderr
    assert f"-> {rows}" in result.stderr
    assert written[0]["doc_id"] == f"{pairs[0]['id_a']}|{pairs[0]['id_b']}"
    assert written[0]["score"] > 0.99
    assert load_parallel(str(rows), document_ids=True)["translation"] == [
        row["translation"] for row in written
    ]


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


def test_urls_and_websites(bag, inputs):
    out = inputs / "pairs.tsv"
    arguments = [
        inputs / "a.jsonl",
        inputs / "b.jsonl",
        "-m",
        bag,
        "-o",
        out,
        "--url-field",
        "url",
        "--overwrite",
    ]
    result = ok("align", *arguments, *LANGUAGE_OPTIONS)
    assert "8 pairs of documents" in result.stderr
    assert "0 by URL" in result.stderr
    assert {line["matched_by"] for line in lines_of(out)} == {"score"}
    # all on one website: the URLs say it all, of documents that are not empty
    content = (inputs / "b.jsonl").read_text().replace("f.org", "www.e.org")
    (inputs / "b.jsonl").write_text(content)
    result = ok("align", *arguments, "--same-domain")
    assert "8 by URL" in result.stderr, result.output
    first = next(line for line in lines_of(out) if line["id_a"] == "a3")
    assert (first["id_b"], first["url_a"], first["url_b"]) == ("b3", "e.org/de/3", "www.e.org/en/3")
    # documents without URL are of no known website
    rows = [json.loads(line) for line in content.splitlines()]
    unknown = [row | {"url": None} if row["id"] in ("b3", "b4") else row for row in rows]
    (inputs / "b.jsonl").write_text("\n".join(map(json.dumps, unknown)))
    result = ok("align", *arguments, "--same-domain")
    assert "6 by URL" in result.stderr, result.output
    assert len(lines_of(out)) == 6, result.output


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
        "--language-b: found 'de', that of --language-a",
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
