"""STS from the Hub's layout and from files."""

import json

import pytest

from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

STS = TASKS["sts"]()
ROWS = [
    {"sentence1": first, "sentence2": second, "score": score, "lang": lang}
    for lang, first, second, score in [
        ("en-de", '"a', "NA", 4.5),
        ("en-de", "c", "d", 0.0),
        ("es-es", "e", "f", 5.0),
    ]
]


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(
            "\n".join(["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)])
            + "\n"
        )
    return str(path)


@pytest.mark.parametrize("streaming", [False, True])
def test_every_source_is_the_same(streaming, tmp_path, dataset_folder):
    (tmp_path / "named").mkdir()
    configs = {"default": {"test": ROWS}}
    for lang in ("en-de", "es-es"):
        rows = [
            {k: v for k, v in row.items() if k != "lang"} for row in ROWS if row["lang"] == lang
        ]
        write(tmp_path / "named" / f"{lang}.tsv", rows)
        configs[lang] = {"test": rows}
    sources = [write(tmp_path / f"pairs.{kind}", ROWS) for kind in ("jsonl", "tsv")]
    loaded = [
        STS.load(x, streaming=streaming)
        for x in (*sources, tmp_path / "named", dataset_folder(configs))
    ]
    assert {data_fingerprint(data) for data in loaded} == {data_fingerprint(loaded[0])}
    assert list(loaded[0].pairs) == [("en", "de"), ("es", "es")]
    pairs = loaded[0].pairs["en", "de"]
    assert (pairs.ids, pairs.first, pairs.second) == (
        ["en-de:0", "en-de:1"],
        ['"a', "c"],
        ["NA", "d"],
    )
    assert pairs.scores == [4.5, 0.0]
    assert list(STS.load(sources[0], languages=["de", "en"], streaming=streaming).pairs) == [
        ("en", "de")
    ]
    with pytest.raises(TaskError, match="found no pair of de, es, expected one of en-de"):
        STS.load(
            write(tmp_path / "more.jsonl", [*ROWS[:2], ROWS[2] | {"lang": "es-en"}]),
            languages=["de", "es"],
        )
