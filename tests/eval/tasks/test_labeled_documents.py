"""Labeled documents of one's own: their splits, labels and languages, and what is said of them."""

import json
import logging
from collections import Counter

import datasets
import pandas as pd
import pytest

from tests.eval.fake_system import FakeSystem
from tmde.eval.planning import PlannedTask
from tmde.eval.results import pairs_of
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.tasks import TaskError
from tmde.eval.tasks.labeled_documents import LabeledDocuments, describe_documents


@pytest.fixture
def write(tmp_path):
    """`write(rows, name)`: a JSONL file, or a CSV file with the keys of the first row."""

    def build(rows, name="news.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return build


def documents(languages=("de", "en"), labels=("a", "b"), count=10, shared_ids=True, **fields):
    """`count` documents of each label in each language, which are translations or not."""
    rows = []
    for language in languages:
        for label in labels:
            for number in range(count):
                row = {"text": f"{language} {label} {number}", "label": label}
                row |= {"language": language, "id": f"{label}{number}"}
                if not shared_ids:
                    row["id"] = f"{language}-{label}{number}"
                rows.append(row | fields)
    return rows


def load(path, languages=None, **options):
    return LabeledDocuments().load(path, languages, **options)


def split_of_ids(data):
    """The split of each id, and a check that it is one."""
    splits = {}
    for by_name in data.splits.values():
        for name, split in by_name.items():
            for item_id in split.ids:
                assert splits.setdefault(item_id, name) == name
    return splits


# ---- Splits


def test_drawn_splits_are_stratified(write):
    """Of 10 documents a label and language, 6 train, 2 tune and 2 test."""
    data = load(write(documents(shared_ids=False)))
    for language in ("de", "en"):
        for name, size in (("train", 6), ("dev", 2), ("test", 2)):
            assert Counter(data.splits[language][name].labels) == {"a": size, "b": size}


def test_translations_stay_in_one_split(write):
    data = load(write(documents()))
    assert Counter(split_of_ids(data).values()) == {"train": 12, "dev": 4, "test": 4}
    assert set(data.splits["de"]["test"].ids) == set(data.splits["en"]["test"].ids)


def test_splits_depend_on_the_seed_alone(write):
    path = write(documents())
    first = split_of_ids(load(path))
    assert split_of_ids(load(path, ["de"])) == first
    assert split_of_ids(load(path, seed=1)) != first


@pytest.mark.parametrize(
    ("count", "expected"),
    [(2, {"train": 1, "test": 1}), (3, {"train": 1, "dev": 1, "test": 1})],
)
def test_few_documents_train_first_and_then_test(count, expected, write):
    rows = documents(["en"], ["a", "b"]) + documents(["en"], ["rare"], count)
    data = load(write(rows))
    counts = {}
    for name, split in data.splits["en"].items():
        counts[name] = Counter(split.labels)["rare"]
    assert {name: number for name, number in counts.items() if number} == expected


def test_splits_of_the_file(write):
    rows = documents(["en"], split="train")
    for row in rows:
        number = row["text"].split()[-1]
        row["split"] = {"0": "test", "1": "Validation"}.get(number, "train")
    data = load(write(rows))
    assert list(data.splits["en"]["test"].ids) == ["a0", "b0"]
    assert list(data.splits["en"]["dev"].ids) == ["a1", "b1"]
    assert "drawn" not in data.provenance.citation


def test_dev_is_held_out_of_train_where_there_is_none(write):
    rows = documents(["de", "en"], split="train")
    for row in rows:
        if row["id"] in ("a0", "b0"):
            row["split"] = "test"
    data = load(write(rows))
    sizes = {name: len(split) for name, split in data.splits["de"].items()}
    assert sizes == {"train": 14, "dev": 4, "test": 2}  # 9 of each label: a fifth is 2
    assert data.splits["de"]["dev"].ids == data.splits["en"]["dev"].ids
    assert "dev drawn by tmde (20% of train in de, by label" in data.provenance.citation


def test_files_of_a_folder_are_splits_by_their_names(write, tmp_path):
    (tmp_path / "folder").mkdir()
    rows = documents(["en"], count=4)
    write(rows[1:3] + rows[5:7], "folder/train.jsonl")
    write(rows[::4], "folder/test.jsonl")
    data = load(str(tmp_path / "folder"))
    assert list(data.splits["en"]["test"].ids) == ["a0", "b0"]
    assert len(data.splits["en"]["train"]) + len(data.splits["en"]["dev"]) == 4


@pytest.mark.parametrize("name", ["metadata.json", "._train.csv", "README.md"])
def test_files_beside_the_documents_of_a_folder(name, write, tmp_path):
    (tmp_path / "folder").mkdir()
    write(documents(["en"], count=4), "folder/all.jsonl")
    (tmp_path / "folder" / name).write_bytes(b'{"Version": 1}')
    data = load(str(tmp_path / "folder"))
    assert sum(len(split) for split in data.splits["en"].values()) == 8


def test_json_is_data_where_nothing_else_is(write, tmp_path):
    (tmp_path / "folder").mkdir()
    write(documents(["en"], count=4), "folder/all.jsonl")
    (tmp_path / "folder" / "all.jsonl").rename(tmp_path / "folder" / "all.json")
    (tmp_path / "folder" / "codebook.pdf").write_bytes(b"%PDF")
    data = load(str(tmp_path / "folder"))
    assert sum(len(split) for split in data.splits["en"].values()) == 8


def test_files_of_a_pattern(write, tmp_path):
    for number in range(2):
        rows = documents(["en"], count=2)
        for row in rows:
            row["id"] = f"{number}-{row.get('id')}"
        write(rows, f"part-{number}.jsonl")
    data = load(str(tmp_path / "part-*"))
    assert sum(len(split) for split in data.splits["en"].values()) == 8


def test_ids_that_begin_again_in_each_file(write, tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("train", "test"):
        rows = []
        for number in range(4):
            text = f"{name} {number}"
            rows.append({"id": number, "text": text, "label": "ab"[number % 2]})
        write(rows, f"folder/{name}.jsonl")
    data = load(str(tmp_path / "folder"))
    assert list(data.splits["all"]["test"].ids) == ["test-0", "test-1", "test-2", "test-3"]


def test_one_document_in_two_files(write, tmp_path):
    (tmp_path / "folder").mkdir()
    rows = documents(["en"], count=4)
    write(rows, "folder/train.jsonl")
    write(rows[2:3], "folder/test.jsonl")
    with pytest.raises(TaskError, match=r"train\.jsonl, row 3, .* row 1 of \S+/test\.jsonl in"):
        load(str(tmp_path / "folder"))


def test_a_dataset_has_splits_of_its_own(dataset_folder):
    splits = {}
    for name in ("train", "validation", "test"):
        splits[name] = [{"text": f"{name} {label}", "label": label} for label in ("a", "b")]
    data = load(dataset_folder({"default": splits}))
    assert list(data.splits["all"]) == ["train", "dev", "test"]
    assert list(data.splits["all"]["dev"].texts) == ["validation a", "validation b"]


# ---- Fields


def test_columns_of_other_names(tmp_path):
    path = tmp_path / "news.csv"
    lines = ["Body;Topic;Head;TEXT"]
    lines += [f"text {n};{'ab'[n % 2]};title {n};x" for n in range(8)]
    path.write_text("\n".join(lines))
    data = load(str(path), columns={"text": "Body", "label": "Topic", "title": "Head"})
    texts = [text for split in data.splits["all"].values() for text in split.texts]
    assert sorted(texts) == [f"title {n}\n\ntext {n}" for n in range(8)]


def test_a_document_without_title_is_its_text(write):
    rows = documents(["en"], title=None)
    rows[0]["title"] = "t"
    data = load(write(rows))
    texts = [text for split in data.splits["en"].values() for text in split.texts]
    assert "t\n\nen a 0" in texts
    assert "en a 1" in texts


@pytest.mark.parametrize(
    ("value", "code"), [("DE", "de"), ("de-AT", "de"), ("zh-Hant", "zh"), ("pt_BR", "pt")]
)
def test_languages_lose_their_region(value, code, write):
    assert load(write(documents([value]))).languages == [code]


@pytest.mark.parametrize("language", ["zh", "zh-Hant"])
def test_a_locale_is_the_language_of_the_model(language, write):
    task = LabeledDocuments()
    task.languages = ("de", language)
    assert task.load(write(documents(["zh-Hant"]))).languages == [language]


@pytest.mark.parametrize("name", ["news.ndjson", "news.json", "news.tsv"])
def test_files_of_other_suffixes_and_quotes(name, tmp_path):
    frame = pd.DataFrame(documents()).assign(title='a\n"b"\tc')
    if name == "news.tsv":
        frame.to_csv(tmp_path / name, sep="\t", index=False)
    else:
        frame.to_json(tmp_path / name, orient="records", lines=True)
    data = load(str(tmp_path / name))
    texts = data.splits["de"]["train"].texts
    assert all(text.startswith('a\n"b"\tc\n\n') for text in texts)


def test_numbers_of_labels(tmp_path):
    """Numbers are names; those of a dataset's ClassLabel stand for the names that it has."""
    rows = {"text": [f"t{n}" for n in range(8)], "label": [0, 1] * 4}
    path = str(tmp_path / "news.parquet")
    datasets.Dataset.from_dict(rows).to_parquet(path)
    assert set(load(path).splits["all"]["train"].labels) == {"0", "1"}
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])}
    )
    path = str(tmp_path / "named.parquet")
    datasets.Dataset.from_dict(rows, features=features).to_parquet(path)
    assert set(load(path).splits["all"]["train"].labels) == {"x", "y"}


def test_documents_without_language_can_be_given_one(write):
    rows = documents(["en"])
    for row in rows:
        del row["language"]
    path = write(rows)
    assert load(path).languages == ["all"]
    assert load(path, ["en"]).languages == ["en"]


# ---- Languages and labels


def planned(path, **options):
    return PlannedTask("news", LabeledDocuments(), path, options)


def test_languages_that_the_models_do_not_know_are_left_out(write, caplog):
    loaded = planned(write(documents(["de", "nl"]))).load(known=["de", "en"])
    assert loaded.data.languages == ["de"]
    assert "not trained on are left out: nl 20. --languages includes them" in caplog.text


def test_a_label_that_a_train_language_lacks_is_left_out(write, caplog):
    rows = documents(["de", "en"], shared_ids=False)
    rows += documents(["de"], ["only"], shared_ids=False)
    data = load(write(rows))
    assert set(data.splits["de"]["test"].labels) == {"a", "b"}
    assert "the label 'only' is left out in all languages, because it has no" in caplog.text
    assert "in en" in caplog.text


def test_a_label_counts_in_the_languages_that_train(write):
    """With labels in German alone, English need not have each of them."""
    rows = documents(["de"], ["a", "b", "only"]) + documents(["en"])
    loaded = planned(write(rows)).load(train_languages=["de"])
    assert set(loaded.data.splits["de"]["test"].labels) == {"a", "b", "only"}
    assert loaded.task.train_languages == ("de",)


def test_languages_with_tests_alone(write):
    """One trains in English and tests in both languages."""
    rows = documents(["en"], split="train") + documents(["en", "de"], split="test")
    for number, row in enumerate(rows):
        row["id"] = str(number)
        row["text"] += f" {number}"
    loaded = planned(write(rows)).load()
    system = FakeSystem(lambda text: [float(" a " in text), float(" b " in text)])
    (result,) = evaluate([loaded], [system], EvaluationOptions())
    assert pairs_of(result.cells) == [("en", "en"), ("en", "de")]
    assert [cell.value for cell in result.cells] == [1.0, 1.0]


def test_few_training_documents_are_told(write, caplog):
    load(write(documents(["de", "en"])))
    assert "fewer than 10 training documents of: a 6 (de, en); b 6 (de, en). Read" in caplog.text


def test_repeated_texts_are_told(write, caplog):
    rows = documents(["en"], ["a", "b"], 40)
    for row in rows:
        row["text"] = row["label"]
    load(write(rows))
    assert "16 test document(s) repeat a training document" in caplog.text


def test_nothing_is_said_of_good_documents(write, caplog):
    with caplog.at_level(logging.INFO, logger="tmde"):
        load(write(documents(count=20)))
    assert caplog.text == ""


def test_the_description(write):
    rows = documents(["de", "en"]) + documents(["en"], ["c"])
    description = describe_documents(load(write(rows), ["en"]))
    assert description == (
        "30 documents (en 30); 3 labels (a 10, b 10, c 10); train 18, dev 6, test 6; "
        "splits drawn by tmde (60% train, 20% dev, 20% test, by label and language, seed 0)"
    )


# ---- The protocol


def test_within_and_across_languages(write):
    """A system that sees labels in German texts alone is right there, and guesses in English."""
    system = FakeSystem(lambda text: [text.startswith("de a"), text.startswith("de b"), 1.0])
    loaded = planned(write(documents(count=20))).load()
    options = EvaluationOptions(folds=False)
    (result,) = evaluate([loaded], [system], options)
    accuracies = {cell.pair: cell.value for cell in result.cells}
    assert accuracies["de", "de"] == 1.0
    assert accuracies["de", "en"] == accuracies["en", "en"] == accuracies["en", "de"] == 0.5
    assert result.cells[0].chance == 0.5
    # Translations are one item of the bootstrap.
    assert list(result.cells[0].ids) == list(result.cells[1].ids)


def test_one_language_is_tested_within(write):
    rows = documents(["en"])
    for row in rows:
        del row["language"]
    loaded = planned(write(rows)).load(known=["de", "en"])
    system = FakeSystem(lambda text: [" a " in text, 1.0])
    (result,) = evaluate([loaded], [system], EvaluationOptions())
    assert pairs_of(result.cells) == [("all", "all")]


# ---- Bad documents


def changed(position, **fields):
    rows = documents(count=4, split="train")
    rows[position] |= fields
    return rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed(2, text=" "), r"news\.jsonl, row 3, field 'text': found ' ', expected a text"),
        (changed(2, text=5), r"row 3, field 'text': found 5, expected a text"),
        (changed(2, title=5), r"row 3, field 'title': found 5, expected a text"),
        (changed(2, label=None), r"row 3, field 'label': found None, expected the name of a class"),
        (changed(2, language="german"), r"row 3, field 'language': found 'german', .* such as de"),
        (changed(2, language=None), r"row 3, field 'language': found None"),
        (changed(2, split="eval"), r"row 3, field 'split': found 'eval', expected train, dev"),
        (changed(2, split=""), r"row 3, field 'split': found none, .* other rows have a split"),
        (changed(2, id=None), r"row 3, field 'id': found None, expected an id"),
        (
            changed(2, id="a1"),
            r"row 3, field 'id': found 'a1', expected an id other than that of row 2",
        ),
        (changed(8, label="b"), r"row 9, field 'label': found 'b', expected 'a' as in row 1"),
        (changed(8, split="test"), r"row 9, field 'split': found 'test', expected 'train' as in"),
        (documents(split="train"), r"field 'split': found no test documents in de, en"),
        (documents(split="test"), r"field 'split': found no training documents in de, en"),
        (documents(labels=["a"]), r"field 'label': found the label 'a' alone, expected at least"),
        (
            documents(["de"], ["a"]) + documents(["en"], ["b"]),
            r"found no label with training documents in each of de, en \(of 2 labels\)",
        ),
        (documents(count=2), "found too few documents of each label in de, en, expected at least"),
        ([], "found no rows"),
    ],
)
def test_bad_rows(rows, message, write):
    with pytest.raises(TaskError, match=message):
        load(write(rows))


def test_all_missing_columns_are_told_at_once(write):
    rows = [{"Body": "x", "Topic": "a", "lang": "de", "nr": 1}]
    message = (
        r"news\.jsonl: found the columns Body, Topic, lang, nr, expected 'text' and 'label' among "
        r"them\. Rename .*--columns text=Body,label=Topic,language=lang$"
    )
    with pytest.raises(TaskError, match=message):
        load(write(rows))


def test_missing_columns_that_the_user_names(write):
    message = r"expected 'Topc' \(label\) and 'Nr' \(id\) among them\. .* label=Topic"
    with pytest.raises(TaskError, match=message):
        load(write([{"text": "x", "Topic": "a"}]), columns={"label": "Topc", "id": "Nr"})


def test_a_column_that_seems_to_be_the_language_is_told(write, caplog):
    rows = documents(["en"], count=20, lang="de")
    for row in rows:
        del row["language"]
    load(write(rows))
    assert "the column 'lang' is not read; if it is the language, name it: --columns" in caplog.text


def test_columns_of_unknown_fields(write):
    with pytest.raises(TaskError, match="found 'topic', expected one of the fields text, label"):
        load(write(documents()), columns={"topic": "label"})


@pytest.mark.parametrize(
    ("languages", "known", "message"),
    [
        (["de", "fr"], None, r"found no document in fr, expected languages of the documents: de"),
        (None, ["es"], r"found documents in de, en alone, .* models: es\. .*--languages de,en"),
    ],
)
def test_languages_that_are_missing(languages, known, message, write):
    with pytest.raises(TaskError, match=message):
        planned(write(documents())).load(languages, known=known)


def test_several_languages_without_a_column(write):
    rows = [{"text": "x", "label": "a"}]
    with pytest.raises(TaskError, match="found no such column, expected the language of each"):
        load(write(rows), ["de", "en"])


def test_a_language_without_tests_proposes_to_train_on_it(write):
    rows = documents(["en"], split="train")
    rows += [row | {"id": f"t{row['id']}"} for row in documents(["de"], split="test")]
    path = write(rows)
    message = "found no test documents in en, .*--languages de --train-languages en"
    with pytest.raises(TaskError, match=message):
        load(path)
    loaded = planned(path).load(["de", "en"], train_languages=["en"])
    system = FakeSystem(lambda text: [" a " in text, 1.0])
    options = EvaluationOptions(train_languages=("en",), test_languages=("de",))
    (result,) = evaluate([loaded], [system], options)
    assert pairs_of(result.cells) == [("en", "de")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data/nothing.csv", r"nothing\.csv: found no such file, expected a file that ends in"),
        ("notes.txt", r"notes\.txt: found a file of unknown format, expected .*\.csv, \.tsv"),
        ("empty", "found a folder without such a file"),
    ],
)
def test_bad_paths(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match=message):
        load(name)


def test_columns_of_other_case(tmp_path, caplog):
    path = tmp_path / "news.csv"
    path.write_text("\n".join(["Text;LABEL"] + [f"text {n};{'ab'[n % 2]}" for n in range(8)]))
    load(str(path), columns={"label": "label"})
    assert "the column 'Text' is read as 'text'" in caplog.text
    path.write_text("Text;TEXT;label\na;b;c\n")
    with pytest.raises(TaskError, match="'Text' and 'TEXT'.*--columns text=Text"):
        load(str(path))
