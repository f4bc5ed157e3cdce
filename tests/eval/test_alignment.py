"""Alignment of documents: the files of WMT16 and WMT19, and the recall of planted systems."""

import base64
import gzip

import numpy as np
import pytest

from tests.conftest import tiny_model
from tests.eval.fake_system import FakeSystem
from tmde.documents.alignment import align_documents
from tmde.documents.lawdr import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentence_density import SentenceDensity
from tmde.eval.planning import plan_tasks
from tmde.eval.results import pairs_of, values_of
from tmde.eval.runner import EvaluationOptions, evaluate
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


def lett_line(site: str, path: str, language: str, text: str) -> str:
    encoded = base64.b64encode(text.encode()).decode()
    return f"{language}\ttext/html\tcharset=utf-8\thttp://{site}/{path}\tPA==\t{encoded}"


@pytest.fixture
def wmt16(tmp_path):
    for split, pairs in (("train", PAIRS[1:2]), ("test", PAIRS)):
        folder = tmp_path / f"lett.{split}"
        folder.mkdir()
        for site, pages in PAGES.items():
            lines = [lett_line(site, *page) for page in pages]
            (folder / f"{site}.lett.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        with (tmp_path / f"{split}.pairs").open("w") as file:
            for site, first, second in pairs:
                file.write(f"http://{site}/{first}\thttp://{site}/{second}\n")
    return tmp_path


def topic(text: str) -> np.ndarray:
    """The vector of a system that knows the topic."""
    return np.eye(3)[int(text.split()[0])]


def swapped_topic(text: str) -> np.ndarray:
    """The vector of a system that takes 0 for 1 and 1 for 0 in French."""
    number, word = text.split()
    if word in FRENCH:
        return np.eye(3)[(1, 0, 2)[int(number)]]
    return topic(text)


def measure(source, system, task="wmt16", languages=None, **options):
    """The result of a system, or of a function that gives the vector of a text."""
    (planned,) = plan_tasks([f"{task}={source}"], options={task: options})
    if callable(system):
        system = FakeSystem(system)
    loaded = planned.load(languages, known=["it", "fr", "en", "de"])
    (result,) = evaluate([loaded], [system], EvaluationOptions(samples=10, scoring="ratio"))
    return result


def test_recall_of_pages_within_sites(wmt16):
    """The page without text cannot be found."""
    (cell,) = measure(wmt16, topic).cells
    assert cell.pair == ("en", "fr")
    assert cell.metric == "recall"
    assert cell.value == 0.75
    assert cell.outcomes.tolist() == [1, 1, 1, 0]
    assert cell.ids[0] == "a.org:http://a.org/en/0|http://a.org/fr/0"
    assert cell.extra == {"size": 4, "documents": 7}


def test_the_result_states_rows_and_scoring(wmt16):
    result = measure(wmt16, topic)
    assert result.data["rows"] == {"en": 3, "fr": 4}
    assert result.settings["scoring"] == "ratio"


def test_a_system_that_confuses_topics_finds_the_other_pages(wmt16):
    (cell,) = measure(wmt16, swapped_topic).cells
    assert cell.outcomes.tolist() == [0, 0, 1, 0]


def test_pages_are_paired_by_url_first(wmt16):
    """By URL, en/0 and fr/0 are paired, which leaves en/1 for x."""
    result = measure(wmt16, swapped_topic, by_url=True)
    assert result.cells[0].value == 0.75
    assert result.settings["by_url"]


def test_the_train_split_has_pairs_of_its_own(wmt16):
    assert measure(wmt16, topic, split="train").cells[0].extra["size"] == 1


def test_a_pair_of_two_sites_is_an_error(wmt16):
    (wmt16 / "test.pairs").write_text("http://a.org/x\thttp://b.org/q\n")
    message = r"test\.pairs, row 1: found .*expected two URLs of one \.lett file"
    with pytest.raises(TaskError, match=message):
        TASKS["wmt16"]().load(wmt16)


def test_a_text_that_is_not_base64_is_an_error(wmt16):
    (wmt16 / "lett.test/c.org.lett").write_text("en\ttext/html\tutf-8\thttp://c.org\tPA==\t!\n")
    with pytest.raises(TaskError, match=r"c\.org\.lett, row 1: found .*Base64"):
        TASKS["wmt16"]().load(wmt16)


def commentary(number: int, first: str, second: str) -> list[str]:
    """The lines of a document of three sentences."""
    lines = []
    for row in range(3):
        lines.append(f"{number} {first} eins zwei {row}\t{number} {second} three four {row}")
    return lines


@pytest.fixture
def wmt19(tmp_path):
    """Commentaries 0 to 9 in two pairs of languages, and one without its second side."""
    for first, second in (("de", "en"), ("en", "fr")):
        lines = []
        for number in range(10):
            lines += [*commentary(number, first, second), "\t"]
        lines[1] = f"0 {first} alone\t"
        lines += ["\t", "only one side\t", "", "last\tlast"]
        path = tmp_path / f"news-commentary-v14.{first}-{second}.tsv.gz"
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return tmp_path


def test_commentaries_without_a_second_side_are_left_out(wmt19):
    data = TASKS["wmt19"]().load(wmt19)
    assert list(data.collections) == ["de-en", "en-fr"]
    assert data.rows() == {"de": 11, "en": 22, "fr": 11}


def test_a_sentence_without_translation_is_in_its_own_document_alone(wmt19):
    german, english = TASKS["wmt19"]().load(wmt19).collections["de-en"].documents
    assert german["0"] == "0 de eins zwei 0\n0 de alone\n0 de eins zwei 2"
    assert english["0"] == "0 en three four 0\n0 en three four 2"


def test_recall_of_commentaries(wmt19):
    def number(text):
        return np.eye(11)[10 if text == "last" else int(text[0])]

    cells = measure(wmt19, number, "wmt19").cells
    assert pairs_of(cells) == [("de", "en"), ("en", "fr")]
    assert values_of(cells) == [1.0, 1.0]


def test_only_pairs_of_the_requested_languages_are_measured(wmt19):
    cells = measure(wmt19, CharacterTfidf(), "wmt19", ["en", "fr"]).cells
    assert pairs_of(cells) == [("en", "fr")]


def test_languages_that_no_file_pairs_are_an_error(wmt19):
    message = r"found \['de', 'fr'\], expected both languages of one file: de-en, en-fr"
    with pytest.raises(TaskError, match=message):
        TASKS["wmt19"]().load(wmt19, ["de", "fr"])


@pytest.mark.parametrize("weighted", [True, False])
def test_documents_by_lawdr(wmt19, tokenizer, weighted):
    embedder = DocumentEmbedder(tiny_model(), tokenizer)
    system = EmbeddingSystem("tiny", embedder)
    german, english = TASKS["wmt19"]().load(wmt19, ["de", "en"]).collections["de-en"].documents

    result = measure(wmt19, system, "wmt19", ["de", "en"], lawdr_rank=2, lawdr_weighted=weighted)
    assert result.settings["lawdr_rank"] == 2
    assert result.settings["lawdr_weighted"] == weighted
    (cell,) = result.cells
    assert cell.extra["debiased_rank"] == 2

    # Each language alone gives the same vectors.
    lawdr = Lawdr(embedder, 2, SentenceDensity() if weighted else None)
    german_vectors = lawdr.fit_transform(german.values(), "de")
    english_vectors = lawdr.fit_transform(english.values(), "en")
    aligned = align_documents(german_vectors, english_vectors)
    expected = np.zeros(11)
    for pair in aligned:
        if pair.first == pair.second:
            expected[pair.first] = 1
    np.testing.assert_array_equal(cell.outcomes, expected)
