"""Texts with an alignment by hand, in the format of vecalign and Bleualign."""

import pytest

from tmde.eval.tasks import TASKS, TaskError

TASK = TASKS["sentence_alignment"]()


@pytest.fixture
def folder(tmp_path):
    """Two texts in German and French, and a file that belongs to neither."""
    (tmp_path / "dev.de").write_text("eins\n zwei \ndrei\n", encoding="utf-8")
    (tmp_path / "dev.fr").write_text("un\ndeux\n", encoding="utf-8")
    (tmp_path / "dev.defr").write_text("[0]:[0]\n[1, 2]:[]\n\n[]:[1]\n", encoding="utf-8")
    (tmp_path / "b.de").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "b.en").write_text("c\n", encoding="utf-8")
    (tmp_path / "b.en-de").write_text("[0]:[0,1]:0.3\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("Notes\n", encoding="utf-8")
    return tmp_path


def test_texts_of_a_folder(folder):
    data = TASK.load(folder)
    assert list(data.texts) == ["b.en-de", "dev.de-fr"]
    text = data.texts["dev.de-fr"]
    assert text.languages == ("de", "fr")
    assert text.first == ["eins", "zwei", "drei"]
    assert text.second == ["un", "deux"]
    assert text.beads == [((0,), (0,))]
    assert data.texts["b.en-de"].beads == [((0,), (0, 1))]
    assert data.languages == ["en", "de", "fr"]
    assert data.rows() == {"en": 1, "de": 5, "fr": 2}


def test_only_texts_in_the_languages_that_were_asked_for(folder):
    assert list(TASK.load(folder, ["de", "fr"]).texts) == ["dev.de-fr"]
    with pytest.raises(TaskError, match="languages"):
        TASK.load(folder, ["de", "it"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0-0", r"dev.defr, row 1: found '0-0', expected two lists such as \[0\]:\[0, 1\]"),
        ("[3]:[0]", "row 1: found 3, expected a number below 3, the number of lines of the text"),
        ("[0]:[2]", "row 1: found 2, expected a number below 2"),
        ("[0]:[0]\n[0]:[1]", "row 2: found 0, expected each sentence once"),
        ("[0]:[0]\n[1]:[0]", "row 2: found 0, expected each sentence once"),
        ("[0, 0]:[0]", "row 1: found 0, expected each sentence once"),
        ("[0 1]:[0]", r"row 1: found '\[0 1\]:\[0\]', expected two lists"),
    ],
)
def test_bad_alignments(folder, line, message):
    (folder / "dev.defr").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        TASK.load(folder)


def test_numbers_are_sorted(folder):
    (folder / "dev.defr").write_text("[2, 1]:[1,0]\n", encoding="utf-8")
    assert TASK.load(folder).texts["dev.de-fr"].beads == [((1, 2), (0, 1))]


def test_two_alignments_of_one_text(folder):
    (folder / "dev.de-fr").write_text("[0]:[0]\n", encoding="utf-8")
    with pytest.raises(TaskError, match="dev.de-fr: found a second one, expected one"):
        TASK.load(folder)


def test_no_text_in_two_of_the_languages(folder):
    with pytest.raises(TaskError, match="found only b.en-de, dev.de-fr, expected a text in two of"):
        TASK.load(folder, ["de"])


def test_a_folder_without_an_alignment(tmp_path):
    (tmp_path / "dev.de").write_text("eins\n", encoding="utf-8")
    with pytest.raises(TaskError, match="found no alignment, expected NAME.defr"):
        TASK.load(tmp_path)
    with pytest.raises(TaskError, match="Pass a folder with NAME.de"):
        TASK.load()


def test_the_alignment_decides_the_fingerprint(folder):
    from tmde.eval.tasks import data_fingerprint

    before = data_fingerprint(TASK.load(folder))
    (folder / "dev.defr").write_text("[1]:[0]\n", encoding="utf-8")
    assert data_fingerprint(TASK.load(folder)) != before
