"""MLDoc, XNLI, SIB-200, RCV and documents, from folders that mimic each source."""

import datasets
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.eval.planning import plan_tasks
from tmde.eval.results import pairs_of
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.tasks import TASKS, TaskError, data_fingerprint
from tmde.papers.published import published_markdown

MLDOC = TASKS["mldoc"]()
XNLI = TASKS["xnli"]()
SIB = TASKS["sib200"]()
TOPICS = TASKS["topic_documents"]()
DOCUMENTS = TASKS["document_retrieval"]()
HUB_NAMES = {"train": "train", "dev": "validation", "test": "test"}

both = pytest.mark.parametrize("streaming", [False, True])


# ---- MLDoc


def write_mldoc(
    folder,
    lines,
    language="de",
    names=("train.1000", "dev", "test"),
    pattern="mldoc.{language}.{name}",
):
    content = ""
    for label, text in lines:
        content += f"{label}\t{text}\n"
    for name in names:
        path = folder / pattern.format(language=language, name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return str(folder)


@pytest.mark.parametrize(
    ("pattern", "names", "languages"),
    [
        ("mldoc.{language}.{name}", ("train.1000", "dev", "test"), ("de", "en")),
        ("mldoc.{name}.{language}", ("train1000", "dev", "test"), ("de", "en")),
        ("{language}/{language}.{name}", ("train.1000", "dev", "test"), ("german", "english")),
    ],
)
def test_mldoc_files_are_found_by_their_names(pattern, names, languages, tmp_path):
    for language in languages:
        write_mldoc(tmp_path, [("CCAT", f"text in {language}")], language, names, pattern)
    data = MLDOC.load(str(tmp_path))
    assert data.languages == ["de", "en"]
    assert list(data.splits["de"]) == ["train", "dev", "test"]
    assert list(data.splits["en"]["dev"].texts) == [f"text in {languages[1]}"]


def test_rows_of_mldoc_files(tmp_path):
    """Only the first tab parts label and text; bytes literals of Python 3 are decoded."""
    literal = 'l\'"été"\\'.encode()
    lines = [("CCAT", "café\u2028x"), ("MCAT", "b \t1"), ("ECAT", literal)]
    write_mldoc(tmp_path, lines)
    dev = MLDOC.load(str(tmp_path)).splits["de"]["dev"]
    assert list(dev.ids) == ["de:dev:0", "de:dev:1", "de:dev:2"]
    assert list(dev.texts) == ["café\u2028x", "b \t1", 'l\'"été"\\']
    assert list(dev.labels) == ["CCAT", "MCAT", "ECAT"]
    assert dev.second_texts is None


def test_mldoc_of_another_size_is_warned_of(tmp_path, caplog):
    write_mldoc(tmp_path, [("CCAT", "a"), ("MCAT", "b"), ("ECAT", "c")])
    MLDOC.load(str(tmp_path))
    assert "mldoc: de train has 3 documents, not the benchmark's 1000" in caplog.text


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
RAW_TEXTS, CLEAN_TEXTS = map(list, zip(*CLEANING, strict=True))


@pytest.fixture(params=["files", "dataset"])
def raw_mldoc(request, tmp_path, dataset_folder):
    """Texts as the script leaves them, in its files and in a dataset."""
    if request.param == "files":
        return write_mldoc(tmp_path, [("CCAT", text) for text in RAW_TEXTS])
    rows = [{"label": "CCAT", "text": text} for text in RAW_TEXTS]
    return dataset_folder({"de": {"train": rows, "dev": rows, "test": rows}})


def test_mldoc_is_cleaned_as_laser_does(raw_mldoc):
    assert list(MLDOC.load(raw_mldoc).splits["de"]["test"].texts) == CLEAN_TEXTS


def test_mldoc_can_be_left_as_it_is(raw_mldoc):
    assert list(MLDOC.load(raw_mldoc, clean=False).splits["de"]["test"].texts) == RAW_TEXTS


@both
def test_mldoc_dataset(streaming, dataset_folder):
    label = datasets.ClassLabel(names=["GCAT", "CCAT", "MCAT", "ECAT"])
    features = datasets.Features({"label": label, "text": datasets.Value("string")})
    rows = [
        {"label": "CCAT", "text": "a"},
        {"label": "ECAT", "text": "b\tc"},
        {"label": "GCAT", "text": ""},
    ]
    splits = {"train": rows, "validation": rows[:1], "test": rows[1:], "train_10k": rows}
    folder = dataset_folder({"german": splits, "en": splits}, features)

    data = MLDOC.load(folder, streaming=streaming)

    assert data.languages == ["de", "en"]
    assert list(data.splits["de"]["train"].labels) == ["CCAT", "ECAT", "GCAT"]
    assert list(data.splits["en"]["test"].texts) == ["b\tc", ""]
    assert list(data.splits["de"]["dev"].ids) == ["de:dev:0"]
    assert len(data.splits["en"]["train_10k"]) == 3


# ---- XNLI

XNLI_TRAIN_ROWS = 2500


def xnli_rows(language: str, count: int) -> list[dict]:
    rows = []
    for i in range(count):
        row = {"premise": f"{language} p{i}", "hypothesis": f"{language} h{i}", "label": i * i % 3}
        rows.append(row)
    return rows


@pytest.fixture
def xnli(dataset_folder):
    label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    text = datasets.Value("string")
    features = datasets.Features({"premise": text, "hypothesis": text, "label": label})
    configs = {}
    for language in ("de", "en", "all_languages"):
        rows = xnli_rows(language, XNLI_TRAIN_ROWS)
        configs[language] = {"train": rows, "validation": rows[:4], "test": rows[:7]}
    return dataset_folder(configs, features)


@both
def test_xnli_max_train_is_the_head_of_a_shuffle(streaming, xnli):
    options = {"max_train": 300, "seed": 7, "train_languages": ["de", "en"]}
    data = XNLI.load(xnli, streaming=streaming, **options)
    order = np.argsort(np.random.default_rng(7).random(XNLI_TRAIN_ROWS))[:300]
    for language in ("de", "en"):
        train = data.splits[language]["train"]
        assert list(train.ids) == numbered("train:", order)
        assert list(train.texts) == numbered(f"{language} p", order)
        assert list(train.second_texts[:2]) == numbered(f"{language} h", order[:2])


def test_xnli_trains_in_english_by_default(xnli):
    splits = XNLI.load(xnli).splits
    assert list(splits) == ["de", "en"]
    assert list(splits["de"]) == ["dev", "test"]
    assert splits["de"]["dev"].labels == ["entailment", "neutral", "neutral", "entailment"]
    assert len(splits["en"]["train"]) == 2500
    assert len(splits["en"]["dev"]) == 4
    assert len(splits["en"]["test"]) == 7


LABELS = ("entailment", "neutral", "contradiction")
TRAIN_LABELS = ("entailment", "neutral", "contradictory")  # as MultiNLI's files call them


def write_xnli_test(path, size: int, kind: str) -> None:
    lines = ["language\tgold_label\tsentence1\tsentence2\tpairID"]
    for language in ("sw", "fr", "en"):
        for i in range(size):
            texts = f"{language} p{i} {kind}\t{language} h{i}"
            lines.append(f"{language}\t{LABELS[i % 3]}\t{texts}\t{i}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def published(tmp_path):
    """Files of XNLI-1.0 and XNLI-MT-1.0: 12 train, 3 dev and 6 test pairs in three languages."""
    (tmp_path / "multinli").mkdir()
    for language in ("en", "fr", "sw"):
        lines = ["premise\thypo\tlabel"]
        for i in range(12):
            lines.append(f"{language} p{i}\t{language} h{i}\t{TRAIN_LABELS[i % 3]}")
        path = tmp_path / f"multinli/multinli.train.{language}.tsv"
        path.write_text("\n".join(lines))
    for name, size in (("dev", 3), ("test", 6)):
        write_xnli_test(tmp_path / f"xnli.{name}.tsv", size, "by people")
        write_xnli_test(tmp_path / f"xnli.{name}.en.tsv", size, "by machine")
    return tmp_path


def load_planned(spec, languages):
    (planned,) = plan_tasks([spec])
    return planned.load(languages)


XNLI_TASKS = [
    ("xnli", "by people"),
    ("xnli_translate_train", "by people"),
    ("xnli_translate_test", "by machine"),
]


@pytest.mark.parametrize(("task", "kind"), XNLI_TASKS)
def test_rows_of_the_published_xnli_files(task, kind, published):
    splits = load_planned(f"{task}={published}", ["fr", "sw", "en"]).data.splits
    french = splits["fr"]["test"]
    english = splits["en"]["test"]
    train = splits["en"]["train"]
    assert french.texts[1] == f"fr p1 {kind}"
    assert english.texts[1] == "en p1 by people"
    assert french.ids == english.ids
    assert french.labels[:3] == list(LABELS)
    assert train.labels[:3] == list(LABELS)
    assert train.texts[11] == "en p11"
    assert train.second_texts[11] == "en h11"


@pytest.mark.parametrize(
    ("task", "pairs"),
    [
        ("xnli", [("en", "fr"), ("en", "sw"), ("en", "en")]),
        ("xnli_translate_train", [("fr", "fr"), ("sw", "sw"), ("en", "en")]),
        ("xnli_translate_test", [("en", "fr"), ("en", "sw"), ("en", "en")]),
    ],
)
def test_languages_in_which_xnli_and_its_baselines_are_trained_and_tested(task, pairs, published):
    loaded = load_planned(f"{task}={published}", ["fr", "sw", "en"])
    system = FakeSystem(lambda text: np.eye(12)[int(text.split()[1][1:])])
    (result,) = evaluate([loaded], [system], EvaluationOptions(head="svm", samples=2))
    assert pairs_of(result.cells) == pairs
    for cell in result.cells:
        assert cell.value == 1.0


def test_translated_test_sets_are_represented_as_english(published):
    loaded = load_planned(f"xnli_translate_test={published}", ["fr", "sw", "en"])
    system = FakeSystem(lambda text: np.eye(12)[int(text.split()[1][1:])])
    list(evaluate([loaded], [system], EvaluationOptions(head="svm", samples=2)))
    translated_lists = 0
    for texts, language in system.languages:
        if "by machine" in texts[0]:
            translated_lists += 1
            assert language == "en"
    assert translated_lists > 0


# ---- RCV


def write_rcv_documents(folder, class_names, size, wrong_rows=()):
    """Documents whose first line is their class; of the wrong rows, another class."""
    for number, class_name in enumerate(class_names):
        class_folder = folder / class_name
        class_folder.mkdir(parents=True)
        for row in range(size):
            shown = "MGEC"[number] if row in wrong_rows else "CEGM"[number]
            place = "/".join(folder.parts[-2:])
            (class_folder / f"{row}.txt").write_text(f"{shown}\n{place} {row}\n")


@pytest.fixture
def rcv(tmp_path):
    """Every second English test document looks like one of another class."""
    long_names = ("CCAT", "ECAT", "GCAT", "MCAT")
    write_rcv_documents(tmp_path / "train/EN1000", "CEGM", 20)
    write_rcv_documents(tmp_path / "train/DE1000", "CEGM", 20)
    write_rcv_documents(tmp_path / "test/en", "CEGM", 50, wrong_rows=range(1, 50, 2))
    write_rcv_documents(tmp_path / "test/de", long_names, 50)
    return tmp_path


def first_letter(text: str) -> np.ndarray:
    return np.eye(4)["CEGM".index(text[0])]


def measure_rcv(rcv):
    (planned,) = plan_tasks([f"rcv={rcv}"])
    loaded = planned.load(known=["fr", "en", "de"])
    (result,) = evaluate([loaded], [FakeSystem(first_letter)], EvaluationOptions())
    return result


def test_every_tenth_train_document_of_rcv_is_for_tuning(rcv):
    data = TASKS["rcv"]().load(rcv)
    sizes = {"train": 72, "dev": 8, "test": 200}
    assert data.rows() == {"de": sizes, "en": sizes}
    dev = data.splits["de"]["dev"]
    assert dev.ids[:2] == ["de:train:CCAT/0.txt", "de:train:CCAT/18.txt"]
    assert dev.texts[0] == "C\ntrain/DE1000 0"


def test_accuracies_on_rcv(rcv):
    values = {cell.pair: cell.value for cell in measure_rcv(rcv).cells}
    assert values["de", "de"] == 1
    assert values["de", "en"] == 0.5


def test_rcv_has_six_folds(rcv):
    result = measure_rcv(rcv)
    accuracies = result.settings["folds"]["accuracies"]
    published_split = (accuracies["de -> en"][0], accuracies["en -> de"][0])
    assert published_split == (0.5, 1.0)
    other_folds = accuracies["de -> en"][1:]
    assert len(other_folds) == 5
    # 80 right ones of train, 160 of the four other fifths of test, of which 80 are right on average
    np.testing.assert_allclose(other_folds, 160 / 240, atol=0.05)
    assert result.folds == pytest.approx(np.mean(list(accuracies.values()), axis=0))


def test_rcv_of_another_size_is_not_compared_with_published_results(rcv):
    assert "test 200 instead of 5000" in published_markdown([measure_rcv(rcv)])


def test_rcv_is_compared_with_the_thesis_by_a_t_test_on_the_folds(rcv):
    result = measure_rcv(rcv)
    sizes = {"train": 900, "dev": 100, "test": 5000}
    result.data["rows"] = {"de": sizes, "en": sizes}
    report = published_markdown([result])
    assert "table 3.2" in report
    rows = []
    for line in report.splitlines():
        row = list(map(str.strip, line.split("|")))
        if row[1:3] == ["fake", "BRAVE"]:
            rows.append(row)
    assert len(rows) == 1
    accuracies = result.settings["folds"]["accuracies"]["de -> en"]
    assert rows[0][4] == f"{stats.ttest_1samp(accuracies, 0.801).pvalue:.2g}"


def test_mirrored_documents_of_rcv_are_in_the_other_language(rcv):
    write_rcv_documents(rcv / "test/de-en", ["CCAT"], 3)
    splits = TASKS["rcv"]().load(rcv).splits
    mirrored = splits["de"]["mirrored"]
    assert mirrored.language == "en"
    assert mirrored.ids == splits["de"]["test"].ids[:1] + mirrored.ids[1:]
    assert "mirrored" not in splits["en"]


def test_a_folder_of_no_class_of_rcv_is_an_error(rcv):
    (rcv / "test/de/X").mkdir()
    (rcv / "test/de/X/1").touch()
    message = "test/de/X, field 'class': found 'X', expected one of CCAT"
    with pytest.raises(TaskError, match=message):
        TASKS["rcv"]().load(rcv)


# ---- SIB-200

SIB_CODES = ("deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "ast_Latn")


def rotated(rows: list[dict], shift: int) -> list[dict]:
    shift = shift % len(rows)
    return rows[shift:] + rows[:shift]


@pytest.fixture
def sib200(tmp_path, dataset_folder):
    """Nine sentences, in another order in each language: a dataset, and a folder with a file."""
    configs = {}
    table = []
    for shift, code in enumerate(SIB_CODES):
        rows = []
        for i in range(9):
            rows.append({"index_id": i, "category": "xyz"[i % 3], "text": f"{code} {i}"})
        configs[code] = {}
        for split, part in (("train", rows[:5]), ("dev", rows[5:7]), ("test", rows[7:])):
            part = rotated(part, shift)
            configs[code][HUB_NAMES[split]] = part
            for row in part:
                columns_of_file = {"language": code, "split": split, "label": row["category"]}
                table.append(row | columns_of_file)
    datasets.Dataset.from_list(table).to_parquet(tmp_path / "sib200.parquet")
    return dataset_folder(configs), tmp_path


@both
def test_sib200_is_the_same_from_the_hub_and_from_a_file(streaming, sib200):
    dataset, folder = sib200
    expected = data_fingerprint(SIB.load(dataset, streaming=streaming))
    for source in (str(folder / "sib200.parquet"), str(folder)):
        assert data_fingerprint(SIB.load(source, streaming=streaming)) == expected


@both
def test_rows_of_sib200(streaming, sib200):
    data = SIB.load(sib200[0], streaming=streaming)
    assert data.languages == ["de", "en"]
    english = data.splits["en"]["train"]
    assert list(english.ids) == ["1", "2", "3", "4", "0"]
    assert list(english.labels) == list("yzxyx")
    assert list(english.texts) == numbered("eng_Latn ", (1, 2, 3, 4, 0))


@both
def test_languages_of_sib200_go_by_their_usual_codes(streaming, sib200):
    codes = ["zh", "zho_Hant", "ast_Latn", "deu_Latn"]
    data = SIB.load(sib200[0], languages=codes, streaming=streaming)
    assert data.languages == ["zh", "zho_Hant", "ast_Latn", "de"]
    assert data.splits["zh"]["dev"].texts[0].startswith("zho_Hans")


# ---- Documents


def document_rows() -> list[dict[str, str]]:
    rows = []
    for language in ("de", "en"):
        for split, size in (("train", 3), ("dev", 2), ("test", 4)):
            for i in range(size):
                row = {"doc_id": f"docs/{split}{i}.md", "language": language}
                row |= {"title": f"{language} title {i}", "text": f"{split} one {i}\n\ntwo"}
                rows.append(row | {"label": "ab"[i % 2], "split": split})
    return rows


@pytest.fixture
def document_sources(tmp_path, dataset_folder):
    """A file of the benchmark's name, its folder, and a dataset with the same rows."""
    rows = document_rows()
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "topic_documents.parquet")
    splits = {name: [] for name in HUB_NAMES.values()}
    for row in rows:
        split = HUB_NAMES[row.pop("split")]
        splits[split].append(row)
    dataset = dataset_folder({"default": splits})
    return tmp_path / "topic_documents.parquet", tmp_path, dataset


@both
def test_documents_are_the_same_from_every_source(streaming, document_sources):
    file, folder, dataset = document_sources
    expected = data_fingerprint(TOPICS.load(dataset, streaming=streaming))
    for source in (file, folder):
        assert data_fingerprint(TOPICS.load(source, streaming=streaming)) == expected


def test_only_files_of_the_benchmarks_name_count_as_copies_of_it(document_sources):
    file, folder, dataset = document_sources
    assert "Microsoft" in TOPICS.load(file).provenance.citation
    assert "Microsoft" in TOPICS.load(folder).provenance.citation
    assert "Microsoft" not in TOPICS.load(dataset).provenance.citation


@both
def test_a_document_is_its_title_and_its_text(streaming, document_sources):
    dev = TOPICS.load(document_sources[0], streaming=streaming).splits["en"]["dev"]
    assert list(dev.texts) == ["en title 0\n\ndev one 0\n\ntwo", "en title 1\n\ndev one 1\n\ntwo"]
    assert list(dev.ids) == ["docs/dev0.md", "docs/dev1.md"]
    assert list(dev.labels) == ["a", "b"]


@both
def test_documents_to_find_the_translations_of(streaming, document_sources):
    data = DOCUMENTS.load(document_sources[2], languages=["en", "de"], streaming=streaming)
    assert list(data.ids) == ["docs/test0.md", "docs/test1.md", "docs/test2.md", "docs/test3.md"]
    assert data.languages == ["en", "de"]
    assert data.texts["de"][3] == "de title 3\n\ntest one 3\n\ntwo"


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_documents_without_titles_labels_and_splits(suffix, tmp_path):
    rows = [
        {"doc_id": "a", "language": "de", "text": "eins"},
        {"doc_id": "b", "language": "de", "text": "zwei"},
        {"doc_id": "b", "language": "en", "text": "two"},
    ]
    path = tmp_path / f"pages.{suffix}"
    frame = pd.DataFrame(rows)
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    data = DOCUMENTS.load(path)
    assert list(data.ids) == ["a", "b"]
    assert dict(data.texts) == {"de": ["eins", "zwei"], "en": [None, "two"]}
    assert data.provenance.split is None
    assert data.provenance.license == "as given by the source"


def test_a_document_twice_is_refused(tmp_path):
    row = {"doc_id": "a", "language": "de", "text": "eins"}
    pd.DataFrame([row, row]).to_parquet(tmp_path / "pages.parquet")
    message = r"pages\.parquet, row 2, field 'doc_id': found 'a', expected an id that no other"
    with pytest.raises(TaskError, match=message):
        DOCUMENTS.load(tmp_path / "pages.parquet")


@pytest.mark.parametrize("missing", [None, ""])
def test_a_document_without_an_id_is_refused(missing, tmp_path):
    rows = [
        {"doc_id": "a", "language": "de", "text": "eins"},
        {"doc_id": missing, "language": "en", "text": "two"},
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "pages.parquet")
    with pytest.raises(TaskError, match=r"pages\.parquet, row 2, field 'doc_id': .*expected an id"):
        DOCUMENTS.load(tmp_path / "pages.parquet")


def test_a_split_without_documents_is_refused(document_sources):
    with pytest.raises(TaskError, match=r"field 'split': found no documents of split 'tests'"):
        DOCUMENTS.load(document_sources[0], split="tests")


def test_documents_of_another_split(document_sources):
    assert len(DOCUMENTS.load(document_sources[2], split="train").ids) == 3
