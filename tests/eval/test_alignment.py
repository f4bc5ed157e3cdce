"""Alignment of documents: the files of WMT16 and WMT19, and the recall of planted systems by hand."""

import base64
import gzip

import numpy as np
import pytest

from tests.conftest import tiny_model
from tests.eval.fake_system import FakeSystem
from tmde.documents.alignment import align_documents
from tmde.documents.lawdr import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.runner import EvaluationOptions, evaluate, plan_tasks
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem
from tmde.eval.tasks import TASKS, TaskError

# By site: path, language and text, which begins with its topic. Topic 0 has pages on both sites.
PAGES = {
    "a.org": [
        ("en/0", "en", "0 one"),
        ("en/1", "en", "1 two"),
        ("fr/0", "fr", "0 un"),
        ("x", "fr", "1 deux"),
    ],
    "b.org": [
        ("p", "en", "0 three"),
        ("r", "en", " "),
        ("q", "fr", "0 trois"),
        ("s", "fr", "2 rien"),
        ("t", "de", "0"),
    ],
}
PAIRS = [
    ("a.org", "en/0", "fr/0"),
    ("a.org", "en/1", "x"),
    ("b.org", "p", "q"),
    ("b.org", "r", "s"),
]
FRENCH = ("un", "deux", "trois", "rien")


@pytest.fixture
def wmt16(tmp_path):
    for split, pairs in (("train", PAIRS[1:2]), ("test", PAIRS)):
        (tmp_path / f"lett.{split}").mkdir()
        for site, pages in PAGES.items():
            lines = [
                f"{code}\ttext/html\tcharset=utf-8\thttp://{site}/{path}\tPA==\t{base64.b64encode(text.encode()).decode()}"
                for path, code, text in pages
            ]
            (tmp_path / f"lett.{split}/{site}.lett.gz").write_bytes(
                gzip.compress("\n".join(lines).encode())
            )
        lines = [
            f"http://{site}/{first}\thttp://{site}/{second}\n" for site, first, second in pairs
        ]
        (tmp_path / f"{split}.pairs").write_text("".join(lines))
    return tmp_path


def topic(text, swapped=False):
    """A system that knows the topic, or of French takes 0 for 1 and 1 for 0."""
    number, word = text.split()
    return np.eye(3)[(1, 0, 2)[int(number)] if swapped and word in FRENCH else int(number)]


def measure(source, vector, task="wmt16", languages=None, **options):
    (planned,) = plan_tasks([f"{task}={source}"], options={task: options})
    system = FakeSystem(vector) if callable(vector) else vector
    loaded = planned.load(languages, known=["it", "fr", "en", "de"])
    (result,) = evaluate([loaded], [system], EvaluationOptions(samples=10, scoring="ratio"))
    return result


def test_recall_of_pages_within_sites(wmt16):
    """The page without text cannot be found. By URL, en/0 and fr/0 are paired, which leaves en/1 for x."""
    result = measure(wmt16, topic)
    (cell,) = result.cells
    assert (cell.pair, cell.metric, cell.value, cell.outcomes.tolist()) == (
        ("en", "fr"),
        "recall",
        0.75,
        [1, 1, 1, 0],
    )
    assert cell.ids[0] == "a.org:http://a.org/en/0|http://a.org/fr/0" and cell.extra == {
        "size": 4,
        "documents": 7,
    }
    assert result.data["rows"] == {"en": 3, "fr": 4} and result.settings["scoring"] == "ratio"
    assert measure(wmt16, lambda text: topic(text, swapped=True)).cells[0].outcomes.tolist() == [
        0,
        0,
        1,
        0,
    ]
    by_url = measure(wmt16, lambda text: topic(text, swapped=True), by_url=True)
    assert by_url.cells[0].value == 0.75 and by_url.settings["by_url"]
    assert measure(wmt16, topic, split="train").cells[0].extra["size"] == 1
    (wmt16 / "test.pairs").write_text("http://a.org/x\thttp://b.org/q\n")
    with pytest.raises(
        TaskError, match=r"test\.pairs, row 1: found .*expected two URLs of one \.lett file"
    ):
        TASKS["wmt16"]().load(wmt16)
    (wmt16 / "lett.test/c.org.lett").write_text("en\ttext/html\tutf-8\thttp://c.org\tPA==\t!\n")
    with pytest.raises(TaskError, match=r"c\.org\.lett, row 1: found .*Base64"):
        TASKS["wmt16"]().load(wmt16)


@pytest.fixture
def wmt19(tmp_path):
    """Commentaries 0 to 9 in two pairs of languages, of three sentences each, and one without its second side."""
    for a, b in (("de", "en"), ("en", "fr")):
        lines = []
        for number in range(10):
            lines += [
                f"{number} {a} eins zwei {row}\t{number} {b} three four {row}" for row in range(3)
            ] + ["\t"]
        lines[1] = f"0 {a} alone\t"
        text = "\n".join([*lines, "\t", "only one side\t", "", "last\tlast"])
        (tmp_path / f"news-commentary-v14.{a}-{b}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_recall_of_commentaries(wmt19):
    data = TASKS["wmt19"]().load(wmt19)
    assert list(data.collections) == ["de-en", "en-fr"] and data.rows() == {
        "de": 11,
        "en": 22,
        "fr": 11,
    }
    german, english = data.collections["de-en"].documents
    assert (
        german["0"] == "0 de eins zwei 0\n0 de alone\n0 de eins zwei 2"
        and english["0"].count("\n") == 1
    )
    result = measure(
        wmt19, lambda text: np.eye(11)[10 if text == "last" else int(text[0])], "wmt19"
    )
    assert {cell.pair: cell.value for cell in result.cells} == {
        ("de", "en"): 1.0,
        ("en", "fr"): 1.0,
    }
    assert [
        cell.pair for cell in measure(wmt19, CharacterTfidf(), "wmt19", ["en", "fr"]).cells
    ] == [("en", "fr")]
    with pytest.raises(
        TaskError, match=r"found \['de', 'fr'\], expected both languages of one file: de-en, en-fr"
    ):
        TASKS["wmt19"]().load(wmt19, ["de", "fr"])


def test_documents_by_lawdr(wmt19, tokenizer):
    embedder = DocumentEmbedder(tiny_model(), tokenizer)
    (cell,) = measure(
        wmt19, EmbeddingSystem("tiny", embedder), "wmt19", ["de", "en"], lawdr_rank=2
    ).cells
    first, second = TASKS["wmt19"]().load(wmt19, ["de", "en"]).collections["de-en"].documents
    sides = (
        Lawdr(embedder, rank=2).fit_transform(x.values(), code)
        for x, code in ((first, "de"), (second, "en"))
    )
    found = {pair.first for pair in align_documents(*sides) if pair.first == pair.second}
    assert cell.outcomes.tolist() == [float(row in found) for row in range(11)]
