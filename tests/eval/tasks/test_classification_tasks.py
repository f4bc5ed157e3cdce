"""MLDoc, XNLI, SIB-200, documents, the sample: contents, ids and parallelism, from folders that mimic each source."""

import logging

import datasets
import numpy as np
import pytest

from modeling_tmde.eval.tasks import TASKS, data_fingerprint

MLDOC, XNLI, SIB, TOPICS, DOCUMENTS = (
    TASKS[name]() for name in ("mldoc", "xnli", "sib200", "topic_documents", "document_retrieval")
)


# MLDoc


def write_mldoc(folder, language="de", names=("train.1000", "dev", "test"), pattern="mldoc.{language}.{name}"):
    for index, name in enumerate(names):
        path = folder / pattern.format(language=language, name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"CCAT\t{name} {language} café\u2028x\nMCAT\tb \t{index}\n".encode())
    return str(folder)


@pytest.mark.parametrize(
    ("pattern", "names", "languages"),
    [
        ("mldoc.{language}.{name}", ("train.1000", "dev", "test"), ("de", "en")),
        ("mldoc.{name}.{language}", ("train1000", "dev", "test"), ("de", "en")),
        ("{language}/{language}.{name}", ("train.1000", "dev", "test"), ("german", "english")),
    ],
)
def test_mldoc_files(pattern, names, languages, tmp_path, caplog):
    for language in languages:
        write_mldoc(tmp_path, language, names, pattern)
    (tmp_path / "README.md").write_text("nothing")
    with caplog.at_level(logging.WARNING):
        data = MLDOC.load(str(tmp_path))
    assert "mldoc: de train has 2 documents, not the benchmark's 1000" in caplog.text
    assert data.languages == ["de", "en"] and list(data.splits["de"]) == ["train", "dev", "test"]
    dev = data.splits["de"]["dev"]
    assert list(dev.ids) == ["de:dev:0", "de:dev:1"]
    assert list(dev.texts) == [f"dev {languages[0]} café\u2028x", "b \t1"]  # only the first tab parts label and text
    assert list(dev.labels) == ["CCAT", "MCAT"] and dev.second_texts is None
    ids = [i for splits in data.splits.values() for split in splits.values() for i in split.ids]
    assert len(set(ids)) == 12
    assert data.provenance.source == str(tmp_path) and "NIST" in data.provenance.licence


def test_mldoc_bytes_of_the_script_under_python_3(tmp_path):
    folder = write_mldoc(tmp_path)
    doc = 'Genève, l\'"été"\\'
    lines = [f"{label}\t{text.encode()}" for label, text in (("ECAT", doc), ("GCAT", "it's b'c'"))]
    (tmp_path / "mldoc.de.dev").write_text("\n".join(lines) + "\n")
    assert list(MLDOC.load(folder).splits["de"]["dev"].texts) == [doc, "it's b'c'"]


CLEANING = [  # as printed by the three commands of sed in LASER's mldoc.sh
    ("Ford Motor Co . rose, Co .Co ., Cisco .", "Ford Motor Co. rose, Co.Co ., Cisco ."),
    ("Apple Inc . rose. Inc .", "Apple Inc. rose. Inc ."),
    ("End. (c) Reuters Limited 1996.", "End. "),
    ("(C) Reuters Limited 1990.(c) Reuters Limited 1999. x", " x"),
    ("c Reuters Limited 1996. (c) Reuters Limited 2001.", "c Reuters Limited 1996. (c) Reuters Limited 2001."),
    ("(c) Reuters Limited 1996", "(c) Reuters Limited 1996"),
]


def test_mldoc_is_cleaned_as_laser_does(tmp_path, dataset_folder):
    rows = [{"label": "CCAT", "text": before} for before, _ in CLEANING]
    for name in ("train.1000", "dev", "test"):
        lines = "".join(f"{row['label']}\t{row['text']}\n" for row in rows)
        (tmp_path / f"mldoc.de.{name}").write_text(lines)
    for source in (tmp_path, dataset_folder({"de": {"train": rows, "dev": rows, "test": rows}})):
        assert list(MLDOC.load(source).splits["de"]["test"].texts) == [after for _, after in CLEANING]
        raw = MLDOC.load(source, clean=False)
        assert list(raw.splits["de"]["test"].texts) == [before for before, _ in CLEANING]
    (tmp_path / "mldoc.de.dev").write_text("CCAT\tb'caf\\xc3\\xa9 Co .'\n")
    assert MLDOC.load(tmp_path, ["de"]).splits["de"]["dev"].texts == ["café Co."]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("classes", [False, True])
def test_mldoc_dataset(streaming, classes, dataset_folder):
    label = datasets.ClassLabel(names=["GCAT", "CCAT", "MCAT", "ECAT"]) if classes else datasets.Value("string")
    features = datasets.Features({"label": label, "text": datasets.Value("string")})
    rows = [{"label": "CCAT", "text": "a"}, {"label": "ECAT", "text": "b\tc"}, {"label": "GCAT", "text": ""}]
    splits = {"train": rows, "validation": rows[:1], "test": rows[1:], "train_10k": rows}
    data = MLDOC.load(dataset_folder({"german": splits, "en": splits}, features), streaming=streaming)
    assert data.languages == ["de", "en"]
    assert list(data.splits["de"]["train"].labels) == ["CCAT", "ECAT", "GCAT"]
    assert list(data.splits["en"]["test"].texts) == ["b\tc", ""]
    assert list(data.splits["de"]["dev"].ids) == ["de:dev:0"] and len(data.splits["en"]["train_10k"]) == 3


# XNLI


def xnli_rows(language, count):
    return [
        {"premise": f"{language} p{i}", "hypothesis": f"{language} h{i}", "label": (i * i) % 3} for i in range(count)
    ]


XNLI_FEATURES = datasets.Features(
    {
        "premise": datasets.Value("string"),
        "hypothesis": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["entailment", "neutral", "contradiction"]),
    }
)


def xnli_configs(languages=("de", "en"), train=40):
    return {
        code: {"train": xnli_rows(code, train), "validation": xnli_rows(code, 4), "test": xnli_rows(code, 7)}
        for code in languages
    }


@pytest.mark.parametrize("streaming", [False, True])
def test_xnli(streaming, dataset_folder):
    folder = dataset_folder(xnli_configs(("de", "en", "all_languages")), XNLI_FEATURES)
    data = XNLI.load(folder, streaming=streaming)
    assert data.languages == ["de", "en"]
    dev = data.splits["de"]["dev"]
    assert list(dev.texts) == ["de p0", "de p1", "de p2", "de p3"]
    assert list(dev.second_texts) == ["de h0", "de h1", "de h2", "de h3"]
    assert list(dev.labels) == ["entailment", "neutral", "neutral", "entailment"]
    assert list(dev.ids) == list(data.splits["en"]["dev"].ids) == ["dev:0", "dev:1", "dev:2", "dev:3"]
    assert [len(data.splits["en"][name]) for name in ("train", "dev", "test")] == [40, 4, 7]
    assert list(data.splits["de"]) == ["dev", "test"]


@pytest.mark.parametrize("seed", [0, 7])
def test_xnli_max_train_is_the_head_of_a_shuffle(seed, dataset_folder):
    folder = dataset_folder(xnli_configs(train=2500), XNLI_FEATURES)
    whole, stream = (
        XNLI.load(folder, streaming=s, max_train=300, seed=seed, train_languages=["de", "en"]) for s in (False, True)
    )
    assert data_fingerprint(whole) == data_fingerprint(stream)
    order = np.argsort(np.random.default_rng(seed).random(2500))[:300]  # independently: all keys at once
    for language in ("de", "en"):
        train = whole.splits[language]["train"]
        assert list(train.ids) == [f"train:{row}" for row in order]
        assert list(train.texts) == [f"{language} p{row}" for row in order]
    assert len(whole.splits["de"]["test"]) == 7


# SIB-200

CATEGORIES = ("sports", "travel", "health")


def sib_configs(codes):
    """Return rows as on the Hub; the languages hold the same sentences in different orders."""
    configs = {}
    for shift, code in enumerate(codes):
        rows = [{"index_id": i, "category": CATEGORIES[i % 3], "text": f"{code} {i}"} for i in range(9)]
        parts = {"train": rows[:5], "validation": rows[5:7], "test": rows[7:]}
        configs[code] = {name: part[shift % len(part) :] + part[: shift % len(part)] for name, part in parts.items()}
    return configs


def sib_table(codes):
    names = {"train": "train", "validation": "dev", "test": "test"}
    return datasets.Dataset.from_list(
        [
            {"language": code, "split": names[name], "label": row["category"]} | row
            for code, splits in sib_configs(codes).items()
            for name, rows in splits.items()
            for row in rows
        ]
    ).remove_columns("category")


CODES = ("deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "ast_Latn")


@pytest.mark.parametrize("streaming", [False, True])
def test_sib200_is_the_same_from_the_hub_and_from_a_file(streaming, dataset_folder, tmp_path):
    path = tmp_path / "sib200.parquet"
    sib_table(CODES).to_parquet(path)
    sources = (dataset_folder(sib_configs(CODES)), str(path), str(tmp_path))
    loaded = [SIB.load(source, streaming=streaming) for source in sources]
    assert len({data_fingerprint(data) for data in loaded}) == 1
    data = loaded[0]
    assert data.languages == ["de", "en"]
    english = data.splits["en"]["train"]
    assert list(english.ids) == ["1", "2", "3", "4", "0"]
    assert list(english.texts) == ["eng_Latn 1", "eng_Latn 2", "eng_Latn 3", "eng_Latn 4", "eng_Latn 0"]
    assert list(english.labels) == ["travel", "health", "sports", "travel", "sports"]
    assert set(data.splits["de"]["train"].ids) == set(english.ids)
    chosen = SIB.load(sources[0], languages=["zh", "zho_Hant", "ast_Latn", "deu_Latn"], streaming=streaming)
    assert chosen.languages == ["zh", "zho_Hant", "ast_Latn", "de"]
    assert chosen.splits["zh"]["dev"].texts[0].startswith("zho_Hans")


def test_sib200_of_the_shared_data(shared_file):
    data = SIB.load(shared_file("eval/sib200.parquet"))
    assert data.languages == ["de", "en", "es", "fr", "it"]
    for splits in data.splits.values():
        assert [len(splits[name]) for name in ("train", "dev", "test")] == [701, 99, 204]
        for name, split in splits.items():
            gold = dict(zip(data.splits["en"][name].ids, data.splits["en"][name].labels, strict=True))
            assert dict(zip(split.ids, split.labels, strict=True)) == gold
    assert len(set(data.splits["de"]["train"].labels)) == 7


# Documents


def document_rows(languages=("de", "en"), sizes=(("train", 3), ("dev", 2), ("test", 4))):
    return [
        {"doc_id": f"docs/{'ab'[i % 2]}/{split}{i}.md", "language": language, "title": f"{language} title {i}"}
        | {"text": f"{split} one {i}\n\ntwo", "label": "ab"[i % 2], "split": split}
        for language in languages
        for split, size in sizes
        for i in range(size)
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_documents(streaming, tmp_path, dataset_folder):
    rows = document_rows()
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "topic_documents.parquet")
    datasets.Dataset.from_list([{"other": 1}]).to_parquet(tmp_path / "sib200.parquet")
    in_splits = {
        {"dev": "validation"}.get(name, name): [
            {k: v for k, v in row.items() if k != "split"} for row in rows if row["split"] == name
        ]
        for name in ("train", "dev", "test")
    }
    hub = dataset_folder({"default": in_splits})  # splits of the Hub instead of the column
    sources = (tmp_path / "topic_documents.parquet", tmp_path, hub)
    loaded = [TOPICS.load(source, streaming=streaming) for source in sources]
    assert len({data_fingerprint(data) for data in loaded}) == 1
    assert ["Microsoft" in data.provenance.citation for data in loaded] == [True, True, False]
    dev = loaded[0].splits["en"]["dev"]
    assert list(dev.texts) == ["en title 0\n\ndev one 0\n\ntwo", "en title 1\n\ndev one 1\n\ntwo"]
    assert list(dev.ids) == ["docs/a/dev0.md", "docs/b/dev1.md"] and list(dev.labels) == ["a", "b"]
    assert list(loaded[0].splits["de"]) == ["train", "dev", "test"]
    found = DOCUMENTS.load(hub, languages=["en", "de"], streaming=streaming)
    assert list(found.ids) == [f"docs/{'ab'[i % 2]}/test{i}.md" for i in range(4)]
    assert found.languages == ["en", "de"] and found.texts["de"][3] == "de title 3\n\ntest one 3\n\ntwo"
    assert len(DOCUMENTS.load(hub, split="train", streaming=streaming).ids) == 3


def test_documents_of_the_shared_data(shared_file):
    path = shared_file("eval/topic_documents.parquet")
    data = TOPICS.load(path)
    assert data.languages == ["de", "en", "es", "fr", "it"]
    for splits in data.splits.values():
        assert [len(splits[name]) for name in ("train", "dev", "test")] == [400, 200, 800]
    found = DOCUMENTS.load(path)
    assert len(found.ids) == 800 and all(None not in texts for texts in found.texts.values())


# Sample


def test_sample():
    data = TASKS["sample"]().load(languages=["fr", "de"], sizes=[8, 3, 5])
    assert data.languages == ["fr", "de"] and data.provenance.split == "test"
    for splits in data.splits.values():
        assert {name: len(split) for name, split in splits.items()} == {"train": 8, "dev": 3, "test": 5}
    assert list(data.splits["fr"]["test"].ids) == list(data.splits["de"]["test"].ids)
    assert list(data.splits["fr"]["test"].labels) == list(data.splits["de"]["test"].labels)
