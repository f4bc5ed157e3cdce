"""MLDoc, XNLI, SIB-200, documents, the sample: contents, ids and parallelism, from folders that mimic each source."""

import itertools
import logging

import datasets
import numpy as np
import pytest
from scipy import stats

from tests.eval.fake_system import FakeSystem
from tmde.eval.report import markdown_report
from tmde.eval.runner import EvaluationOptions, evaluate, plan_tasks
from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

MLDOC, XNLI, SIB, TOPICS, DOCUMENTS = (
    TASKS[name]() for name in ("mldoc", "xnli", "sib200", "topic_documents", "document_retrieval")
)
HUB_NAMES = {"train": "train", "dev": "validation", "test": "test"}


def write_mldoc(
    folder,
    lines,
    language="de",
    names=("train.1000", "dev", "test"),
    pattern="mldoc.{language}.{name}",
):
    for name in names:
        path = folder / pattern.format(language=language, name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{label}\t{text}\n" for label, text in lines).encode())
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
        lines = [
            ("CCAT", f"{language} café\u2028x"),
            ("MCAT", "b \t1"),
            ("ECAT", 'l\'"été"\\'.encode()),
        ]
        write_mldoc(tmp_path, lines, language, names, pattern)
    with caplog.at_level(logging.WARNING):
        data = MLDOC.load(str(tmp_path))
    assert "mldoc: de train has 3 documents, not the benchmark's 1000" in caplog.text
    assert data.languages == ["de", "en"] and list(data.splits["de"]) == ["train", "dev", "test"]
    dev = data.splits["de"]["dev"]
    assert list(dev.ids) == ["de:dev:0", "de:dev:1", "de:dev:2"]
    # only the first tab parts label and text; what the script wrote as bytes under Python 3 is decoded
    assert list(dev.texts) == [f"{languages[0]} café\u2028x", "b \t1", 'l\'"été"\\']
    assert list(dev.labels) == ["CCAT", "MCAT", "ECAT"] and dev.second_texts is None
    assert data.provenance.source == str(tmp_path) and "NIST" in data.provenance.licence


CLEANING = [  # as printed by the three commands of sed in LASER's mldoc.sh
    ("Ford Motor Co . rose, Co .Co ., Cisco .", "Ford Motor Co. rose, Co.Co ., Cisco ."),
    ("Apple Inc . rose. Inc .", "Apple Inc. rose. Inc ."),
    ("End. (c) Reuters Limited 1996.", "End. "),
    ("(C) Reuters Limited 1990.(c) Reuters Limited 1999. x", " x"),
    (
        "c Reuters Limited 1996. (c) Reuters Limited 2001.",
        "c Reuters Limited 1996. (c) Reuters Limited 2001.",
    ),
    ("(c) Reuters Limited 1996", "(c) Reuters Limited 1996"),
]


def test_mldoc_is_cleaned_as_laser_does(tmp_path, dataset_folder):
    before, after = map(list, zip(*CLEANING, strict=True))
    rows = [{"label": "CCAT", "text": text} for text in before]
    files = write_mldoc(tmp_path, [("CCAT", text) for text in before])
    for source in (files, dataset_folder({"de": {"train": rows, "dev": rows, "test": rows}})):
        assert list(MLDOC.load(source).splits["de"]["test"].texts) == after
        assert list(MLDOC.load(source, clean=False).splits["de"]["test"].texts) == before


@pytest.mark.parametrize("streaming", [False, True])
def test_mldoc_dataset(streaming, dataset_folder):
    label = datasets.ClassLabel(names=["GCAT", "CCAT", "MCAT", "ECAT"])
    features = datasets.Features({"label": label, "text": datasets.Value("string")})
    rows = [
        {"label": "CCAT", "text": "a"},
        {"label": "ECAT", "text": "b\tc"},
        {"label": "GCAT", "text": ""},
    ]
    splits = {"train": rows, "validation": rows[:1], "test": rows[1:], "train_10k": rows}
    data = MLDOC.load(
        dataset_folder({"german": splits, "en": splits}, features), streaming=streaming
    )
    assert data.languages == ["de", "en"]
    assert list(data.splits["de"]["train"].labels) == ["CCAT", "ECAT", "GCAT"]
    assert list(data.splits["en"]["test"].texts) == ["b\tc", ""]
    assert (
        list(data.splits["de"]["dev"].ids) == ["de:dev:0"]
        and len(data.splits["en"]["train_10k"]) == 3
    )


def xnli_folder(dataset_folder, languages, train):
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    features = datasets.Features(
        dict.fromkeys(("premise", "hypothesis"), datasets.Value("string")) | {"label": label}
    )
    rows = {
        code: [
            {"premise": f"{code} p{i}", "hypothesis": f"{code} h{i}", "label": i * i % 3}
            for i in range(train)
        ]
        for code in languages
    }
    sizes = {"train": train, "validation": 4, "test": 7}
    splits = {code: {name: rows[code][:size] for name, size in sizes.items()} for code in languages}
    return dataset_folder(splits, features)


def test_xnli_max_train_is_the_head_of_a_shuffle(dataset_folder):
    folder = xnli_folder(dataset_folder, ("de", "en", "all_languages"), 2500)
    options = {"max_train": 300, "seed": 7}
    whole, stream = (
        XNLI.load(folder, streaming=s, train_languages=["de", "en"], **options)
        for s in (False, True)
    )
    assert data_fingerprint(whole) == data_fingerprint(stream)
    order = np.argsort(np.random.default_rng(7).random(2500))[:300]
    for language in ("de", "en"):
        train = whole.splits[language]["train"]
        assert list(train.ids) == [f"train:{row}" for row in order]
        assert list(train.texts) == [f"{language} p{row}" for row in order]
        assert list(train.second_texts[:2]) == [f"{language} h{row}" for row in order[:2]]
    english = XNLI.load(folder).splits
    assert list(english) == ["de", "en"] and list(english["de"]) == ["dev", "test"]
    assert english["de"]["dev"].labels == ["entailment", "neutral", "neutral", "entailment"]
    assert [len(english["en"][name]) for name in ("train", "dev", "test")] == [2500, 4, 7]


def test_rcv_with_its_six_folds(tmp_path):
    """The class is the first number of a vector, except in English, where that of half the test documents is wrong."""
    for part, size in (
        ("train/EN1000", 20),
        ("train/DE1000", 20),
        ("test/en", 50),
        ("test/de", 50),
    ):
        for name, row in itertools.product("CEGM", range(size)):
            path = tmp_path / part / (f"{name}CAT" if "de" in part else name) / f"{row}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            wrong = part == "test/en" and row % 2
            path.write_text(f"{'MGEC'['CEGM'.index(name)] if wrong else name}\n{part} {row}\n")
    (planned,) = plan_tasks([f"rcv={tmp_path}"])
    loaded = planned.load(known=["fr", "en", "de"])
    assert loaded.data.rows() == {
        code: {"train": 72, "dev": 8, "test": 200} for code in ("de", "en")
    }
    dev = loaded.data.splits["de"]["dev"]
    assert (
        dev.ids[:2] == ["de:train:CCAT/0.txt", "de:train:CCAT/18.txt"]
        and dev.texts[0] == "C\ntrain/DE1000 0"
    )
    (result,) = evaluate(
        [loaded], [FakeSystem(lambda text: np.eye(4)["CEGM".index(text[0])])], EvaluationOptions()
    )
    assert {cell.pair: cell.value for cell in result.cells if cell.source == "de"} == {
        ("de", "de"): 1,
        ("de", "en"): 0.5,
    }
    folds = result.settings["folds"]["accuracies"]
    assert (folds["de -> en"][0], folds["en -> de"][0]) == (0.5, 1.0)  # the published split
    # 80 right ones of train, 160 of the four other fifths of test, of which 80 are right on average
    assert len(folds["de -> en"]) == 6 and all(
        abs(value - 160 / 240) < 0.05 for value in folds["de -> en"][1:]
    )
    assert result.folds == pytest.approx(np.mean(list(folds.values()), axis=0))
    assert "test 200 instead of 5000" in markdown_report([result])
    result.data["rows"] = {code: {"train": 900, "dev": 100, "test": 5000} for code in ("de", "en")}
    report = markdown_report([result])
    p = stats.ttest_1samp(folds["de -> en"], 0.801).pvalue
    rows = [[text.strip() for text in line.split("|")] for line in report.splitlines()]
    assert "table 3.2" in report and [row[4] for row in rows if row[1:3] == ["fake", "BRAVE"]] == [
        f"{p:.2g}"
    ]
    (tmp_path / "test/de/X").mkdir()
    (tmp_path / "test/de/X/1").touch()
    with pytest.raises(
        TaskError, match="test/de/X, field 'class': found 'X', expected one of CCAT"
    ):
        TASKS["rcv"]().load(tmp_path)


@pytest.fixture
def published(tmp_path):
    """The files of XNLI-1.0 and XNLI-MT-1.0: 12 train, 3 dev and 6 test pairs in three languages."""
    names = ("entailment", "neutral", "contradiction")
    (tmp_path / "multinli").mkdir()
    for code in ("en", "fr", "sw"):
        train = [
            f"{code} p{i}\t{code} h{i}\t{(*names[:2], 'contradictory')[i % 3]}" for i in range(12)
        ]
        (tmp_path / f"multinli/multinli.train.{code}.tsv").write_text(
            "\n".join(["premise\thypo\tlabel", *train])
        )
    for name, size in (("dev", 3), ("test", 6)):
        for suffix, kind in (("", "by people"), (".en", "by machine")):
            rows = [
                f"{code}\t{names[i % 3]}\t{code} p{i} {kind}\t{code} h{i}\t{i}"
                for code in ("sw", "fr", "en")
                for i in range(size)
            ]
            header = "language\tgold_label\tsentence1\tsentence2\tpairID"
            (tmp_path / f"xnli.{name}{suffix}.tsv").write_text("\n".join([header, *rows]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("task", "kind", "pairs"),
    [
        ("xnli", "by people", [("en", "fr"), ("en", "sw"), ("en", "en")]),
        ("xnli_translate_train", "by people", [("fr", "fr"), ("sw", "sw"), ("en", "en")]),
        ("xnli_translate_test", "by machine", [("en", "fr"), ("en", "sw"), ("en", "en")]),
    ],
)
def test_xnli_and_its_baselines_from_the_published_files(task, kind, pairs, published):
    (planned,) = plan_tasks([f"{task}={published}"])
    loaded = planned.load(["fr", "sw", "en"])
    french, english = (loaded.data.splits[code]["test"] for code in ("fr", "en"))
    assert french.texts[1] == f"fr p1 {kind}" and english.texts[1] == "en p1 by people"
    assert french.ids == english.ids and french.labels[:3] == [
        "entailment",
        "neutral",
        "contradiction",
    ]
    train = loaded.data.splits["en"]["train"]
    assert train.labels[:3] == french.labels[:3] and (train.texts[11], train.second_texts[11]) == (
        "en p11",
        "en h11",
    )
    system = FakeSystem(lambda text: np.eye(12)[int(text.split()[1][1:])])
    (result,) = evaluate([loaded], [system], EvaluationOptions(head="svm", samples=2))
    assert [cell.pair for cell in result.cells] == pairs and {
        cell.value for cell in result.cells
    } == {1.0}
    machine = {language for texts, language in system.languages if "by machine" in texts[0]}
    assert machine == ({"en"} if kind == "by machine" else set())


@pytest.mark.parametrize("streaming", [False, True])
def test_sib200_is_the_same_from_the_hub_and_from_a_file(streaming, dataset_folder, tmp_path):
    configs, table = {}, []
    for shift, code in enumerate(("deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "ast_Latn")):
        rows = [{"index_id": i, "category": "xyz"[i % 3], "text": f"{code} {i}"} for i in range(9)]
        configs[code] = {}
        for split, part in {"train": rows[:5], "dev": rows[5:7], "test": rows[7:]}.items():
            part = (
                part[shift % len(part) :] + part[: shift % len(part)]
            )  # the same sentences in other orders
            configs[code][HUB_NAMES[split]] = part
            table += [
                row | {"language": code, "split": split, "label": row["category"]} for row in part
            ]
    datasets.Dataset.from_list(table).to_parquet(tmp_path / "sib200.parquet")
    sources = (dataset_folder(configs), str(tmp_path / "sib200.parquet"), str(tmp_path))
    loaded = [SIB.load(source, streaming=streaming) for source in sources]
    assert len({data_fingerprint(data) for data in loaded}) == 1
    assert loaded[0].languages == ["de", "en"]
    english = loaded[0].splits["en"]["train"]
    assert list(english.ids) == ["1", "2", "3", "4", "0"] and list(english.labels) == list("yzxyx")
    assert list(english.texts) == [
        "eng_Latn 1",
        "eng_Latn 2",
        "eng_Latn 3",
        "eng_Latn 4",
        "eng_Latn 0",
    ]
    chosen = SIB.load(
        sources[0], languages=["zh", "zho_Hant", "ast_Latn", "deu_Latn"], streaming=streaming
    )
    assert chosen.languages == ["zh", "zho_Hant", "ast_Latn", "de"]
    assert chosen.splits["zh"]["dev"].texts[0].startswith("zho_Hans")


@pytest.mark.parametrize("streaming", [False, True])
def test_documents(streaming, tmp_path, dataset_folder):
    rows = [
        {"doc_id": f"docs/{split}{i}.md", "language": language, "title": f"{language} title {i}"}
        | {"text": f"{split} one {i}\n\ntwo", "label": "ab"[i % 2], "split": split}
        for language in ("de", "en")
        for split, size in (("train", 3), ("dev", 2), ("test", 4))
        for i in range(size)
    ]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "topic_documents.parquet")
    splits = {HUB_NAMES[row["split"]]: [] for row in rows}
    for row in rows:
        splits[HUB_NAMES[row["split"]]].append({k: v for k, v in row.items() if k != "split"})
    sources = (tmp_path / "topic_documents.parquet", tmp_path, dataset_folder({"default": splits}))
    loaded = [TOPICS.load(source, streaming=streaming) for source in sources]
    assert len({data_fingerprint(data) for data in loaded}) == 1
    assert ["Microsoft" in data.provenance.citation for data in loaded] == [True, True, False]
    dev = loaded[0].splits["en"]["dev"]
    assert list(dev.texts) == ["en title 0\n\ndev one 0\n\ntwo", "en title 1\n\ndev one 1\n\ntwo"]
    assert list(dev.ids) == ["docs/dev0.md", "docs/dev1.md"] and list(dev.labels) == ["a", "b"]
    found = DOCUMENTS.load(sources[2], languages=["en", "de"], streaming=streaming)
    assert list(found.ids) == [f"docs/test{i}.md" for i in range(4)]
    assert (
        found.languages == ["en", "de"]
        and found.texts["de"][3] == "de title 3\n\ntest one 3\n\ntwo"
    )
    assert len(DOCUMENTS.load(sources[2], split="train", streaming=streaming).ids) == 3
