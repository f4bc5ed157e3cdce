"""STS from the Hub's layout and from files."""

import gzip
import json

import datasets
import pytest

from modeling_tmde.eval.tasks import TASKS, TaskError, data_fingerprint

STS = TASKS["sts"]()
PAIRS = {("en", "de"): [("a", "b", 4.5), ("c", "d", 0.0)], ("es", "es"): [("e", "f", 5.0)]}


def rows_of(pairs=PAIRS, **columns):
    return [
        {"sentence1": first, "sentence2": second, "score": score} | columns | {"lang": "-".join(pair)}
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


@pytest.mark.parametrize("streaming", [False, True])
def test_every_source_is_the_same(streaming, tmp_path, dataset_folder):
    named = tmp_path / "named"
    named.mkdir()
    for pair, rows in PAIRS.items():
        bare = [{k: v for k, v in row.items() if k != "lang"} for row in rows_of({pair: rows})]
        write(named, "tsv", bare, "-".join(pair))
    sources = [write(tmp_path, kind, rows_of()) for kind in ("parquet", "jsonl", "tsv", "tsv.gz")] + [str(named)]
    configs = {"-".join(pair): {"test": rows_of({pair: rows})} for pair, rows in PAIRS.items()}
    sources.append(dataset_folder(configs | {"default": {"test": rows_of()}}))
    loaded = [STS.load(source, streaming=streaming) for source in sources]
    assert {data_fingerprint(data) for data in loaded} == {data_fingerprint(loaded[0])}
    assert list(loaded[0].pairs) == [("en", "de"), ("es", "es")]
    pairs = loaded[0].pairs["en", "de"]
    assert (pairs.ids, pairs.first, pairs.second) == (["en-de:0", "en-de:1"], ["a", "c"], ["b", "d"])
    assert pairs.scores == [4.5, 0.0]
    assert list(STS.load(sources[0], languages=["de", "en"], streaming=streaming).pairs) == [("en", "de")]


def test_a_quote_is_just_a_character(tmp_path):
    rows = [{"sentence1": '"a', "sentence2": "NA", "score": "1e0", "lang": "en-de"}]
    pairs = STS.load(write(tmp_path, "tsv", rows)).pairs["en", "de"]
    assert (pairs.first, pairs.second, pairs.scores) == (['"a'], ["NA"], [1.0])


def test_both_languages_of_a_pair_must_be_requested(tmp_path):
    path = write(tmp_path, "jsonl", rows_of({("en", "de"): [("a", "b", 1)], ("es", "en"): [("a", "b", 1)]}))
    with pytest.raises(TaskError, match="found no pair of de, es, expected one of en-de, es-en"):
        STS.load(path, languages=["de", "es"])
