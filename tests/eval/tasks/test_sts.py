"""STS from the Hub's layout and from files, and every error."""

import gzip
import json

import datasets
import pytest

from modeling_tmde.eval.tasks import TASKS, TaskError, data_fingerprint

STS = TASKS["sts"]()
PAIRS = {("en", "de"): [("a", "b", 4.5), ("c", "d", 0.0)], ("es", "es"): [("e", "f", 5.0)]}


def rows_of(pairs=PAIRS):
    return [
        {"sentence1": first, "sentence2": second, "score": score, "lang": "-".join(pair)}
        for pair, rows in pairs.items()
        for first, second, score in rows
    ]


def write(folder, kind, rows, name="pairs"):
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        data = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(data) if kind == "tsv.gz" else data)
    return str(path)


def hub(dataset_folder, features=None):
    configs = {"-".join(pair): {"test": rows_of({pair: rows})} for pair, rows in PAIRS.items()}
    return dataset_folder(configs | {"default": {"test": rows_of()}}, features)


@pytest.mark.parametrize("streaming", [False, True])
def test_every_source_is_the_same(streaming, tmp_path, dataset_folder):
    lang1_lang2 = [
        {**{k: v for k, v in row.items() if k != "lang"}, "lang1": row["lang"][:2], "lang2": row["lang"][3:]}
        for row in rows_of()
    ]
    named = tmp_path / "named"
    named.mkdir()
    for pair, rows in PAIRS.items():
        bare = [{k: v for k, v in row.items() if k != "lang"} for row in rows_of({pair: rows})]
        write(named, "tsv", bare, "-".join(pair))
    sources = [write(tmp_path, kind, rows_of()) for kind in ("parquet", "jsonl", "tsv", "tsv.gz")]
    sources += [write(tmp_path, "tsv", lang1_lang2, "two"), str(named), hub(dataset_folder)]
    loaded = [STS.load(source, streaming=streaming) for source in sources]
    assert {data_fingerprint(data) for data in loaded} == {data_fingerprint(loaded[0])}
    data = loaded[0]
    assert list(data.pairs) == [("en", "de"), ("es", "es")]
    pairs = data.pairs["en", "de"]
    assert (pairs.ids, pairs.first, pairs.second) == (["en-de:0", "en-de:1"], ["a", "c"], ["b", "d"])
    assert pairs.scores == [4.5, 0.0]
    assert list(STS.load(sources[0], languages=["de", "en"], streaming=streaming).pairs) == [("en", "de")]


def test_a_quote_is_just_a_character(tmp_path):
    rows = [{"sentence1": '"a', "sentence2": "NA", "score": "1e0", "lang": "en-de"}]
    pairs = STS.load(write(tmp_path, "tsv", rows)).pairs["en", "de"]
    assert (pairs.first, pairs.second, pairs.scores) == (['"a'], ["NA"], [1.0])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "high", True])
def test_scores_must_be_finite(value, tmp_path):
    rows = rows_of()
    rows[1]["score"] = value
    with pytest.raises(TaskError, match=r"pairs\.jsonl, row 2, field 'score': found .*a finite number"):
        STS.load(write(tmp_path, "jsonl", rows))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence1\tsentence2\tscore\na\tb\t1\n", "'lang': found neither a column lang nor lang1 and lang2"),
        ("sentence1\tsentence2\tscore\tlang\na\tb\t1\tde\n", r"row 2, field 'lang': found 'de', expected two lang"),
        ("sentence1\tsentence2\tscore\tlang\na\t\t1\ten-de\n", r"row 2, field 'sentence2': found '', expected a text"),
        ("sentence1\tsentence2\tscore\tlang\na\t1\ten-de\n", r"row 2: found 3 field\(s\), expected 4"),
        ("sentence1\tscore\tlang\na\t1\ten-de\n", "field 'sentence2': found the columns sentence1, score, lang"),
        ("sentence1\tsentence2\tscore\tlang\n", "found no rows, expected some"),
        ("", "found no rows, expected some"),
        ("score\tscore\n1\t1\n", r"row 1, field 'header': found \['score', 'score'\], expected different names"),
    ],
)
def test_bad_tsv(content, message, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(content)
    with pytest.raises(TaskError, match=r"pairs\.tsv.*" + message):
        STS.load(path)


def test_damaged_files(tmp_path):
    for name in ("pairs.parquet", "pairs.tsv.gz"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        for streaming in (False, True):
            with pytest.raises(TaskError, match=rf"{name}.*(Fetch|Copy)"):
                STS.load(tmp_path / name, streaming=streaming)


def test_languages(tmp_path, no_network):
    path = write(tmp_path, "jsonl", rows_of())
    with pytest.raises(TaskError, match=r"found 'it', expected languages of the data: de, en, es\."):
        STS.load(path, languages=["en", "it"])
    path = write(tmp_path, "jsonl", rows_of({("en", "de"): [("a", "b", 1)], ("es", "en"): [("a", "b", 1)]}))
    with pytest.raises(TaskError, match="found no pair of de, es, expected one of en-de, es-en"):
        STS.load(path, languages=["de", "es"])
    with pytest.raises(TaskError, match=r"mteb/sts17-crosslingual-sts, .*Couldn't reach"):
        STS.load()
