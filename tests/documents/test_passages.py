"""Passages of documents: where they begin, what stands above them, and how an index finds them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lancedb")

from tests.documents.test_index import WordCounts
from tmde.documents.index import DocumentIndex
from tmde.documents.passages import MOST_CHARACTERS, heading_at, split_passages

GUIDE = """# The *Guide* { #guide }

Words before the first section.

## Install

With pip.

```
# no heading

pip install it
```

### From source ##

Clone and build.

## Use

Call it.
"""


def passages_of(text):
    return [(text[p.begin : p.end].strip().split("\n")[0], p) for p in split_passages(text)]


def test_sections():
    found = passages_of(GUIDE)
    assert [line for line, _ in found] == [
        "# The *Guide* { #guide }",
        "## Install",
        "### From source ##",
        "## Use",
    ]
    assert [passage.headings for _, passage in found] == [
        (),
        ("The Guide",),
        ("The Guide", "Install"),
        ("The Guide",),
    ]
    assert [passage.heading for _, passage in found] == [
        "The Guide",
        "The Guide › Install",
        "The Guide › Install › From source",
        "The Guide › Use",
    ]
    install = found[1][1]
    assert "# no heading" in GUIDE[install.begin : install.end]
    assert install.embedded_text(GUIDE).startswith("The Guide\n\n## Install\n\nWith pip.")
    assert heading_at(GUIDE, install.begin) == "The Guide › Install"


def test_paragraphs_are_joined_up_to_a_size():
    paragraph = "Some words. " * 20  # 240 characters
    text = "# Title\n\n" + "\n\n".join([paragraph] * 4)
    passages = split_passages(text)
    assert [text[p.begin : p.end].count(paragraph.strip()) for p in passages] == [2, 2]
    assert [passage.headings for passage in passages] == [(), ("Title",)]


@pytest.mark.parametrize("unit", ["A sentence of words. ", "a line of words\n", "一句话。"])
def test_long_paragraphs_are_cut_at_sentences_and_lines(unit):
    text = unit * 200
    for passage in split_passages(text):
        part = text[passage.begin : passage.end]
        assert len(part) <= MOST_CHARACTERS
        assert part.startswith(unit.strip())


def test_headings_alone():
    """They belong to the text below them."""
    (passage,) = split_passages("# A\n\n## B\n\ntext\n")
    assert (passage.headings, passage.heading) == ((), "A › B")
    assert [passage.heading for passage in split_passages("# A\n## B\n\n# C\n")] == ["C"]


@given(st.text(st.sampled_from("# \n`a.}{"), max_size=200))
def test_passages_hold_all_characters(text):
    passages = split_passages(text)
    assert "".join(text[passage.begin : passage.end] for passage in passages) == text
    assert len({passage.begin for passage in passages}) == len(passages)


# ---- In an index


TEXT = "# Animals\n\n## Dogs\n\none dog sleeps\n\n## Cats\n\ntwo cats climb\n"


@pytest.fixture
def index(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    index.upsert(["guide", "short"], [TEXT, "three birds sing"])
    return index


@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
@pytest.mark.parametrize("filter", [None, {"kind": "long"}])
def test_a_document_is_found_by_its_nearest_passage(index, mode, filter):
    """In memory and by a scan of the table."""
    index.upsert(["guide"], [TEXT], [{"kind": "long"}])
    (hit,) = index.search("two cats climb", k=1, mode=mode, filter=filter)
    assert (hit.id, hit.text) == ("guide", TEXT)
    assert hit.passage == "## Cats\n\ntwo cats climb"
    assert hit.heading == "Animals › Cats"
    assert hit.snippet == "two cats climb"
    if mode == "meaning":
        embedder = WordCounts()
        texts = ["two cats climb", "Animals\n\n## Cats\n\ntwo cats climb"]
        query, passage = embedder.encode(texts, normalize=True)
        assert hit.score == pytest.approx(float(query @ passage), abs=1e-5)


def test_a_short_document_is_one_passage(index):
    (hit,) = index.search("three birds", k=1)
    assert (hit.passage, hit.heading) == (hit.text, "")
    expected = WordCounts().encode(["three birds sing"], normalize=True)
    np.testing.assert_allclose(index.vectors(["short"]), expected, atol=1e-6)


def test_each_document_is_one_hit(index):
    assert [hit.id for hit in index.search("two cats and one dog", k=5)] == ["guide", "short"]


def test_changes_and_removals(index):
    embedder = index.embedder
    embedder.encoded.clear()
    changes = index.upsert(["guide", "short"], [TEXT, "three birds sing"], [{"n": 1}, {}])
    assert (changes.updated, changes.unchanged) == (1, 1)
    assert not embedder.encoded
    (hit,) = index.search("two cats climb", k=1)
    assert (hit.heading, hit.metadata) == ("Animals › Cats", {"n": 1})
    text = "# Plants\n\nsome grow\n\n## Trees\n\nan oak grows"
    index.upsert(["guide"], [text], [{"n": 1}])
    opened = DocumentIndex.open(index.folder, WordCounts())
    (hit,) = opened.search("an oak grows", k=1)
    assert hit.heading == "Plants › Trees"
    assert "cats" not in opened.search("two cats climb", k=1)[0].text
    opened.delete("guide")
    assert [hit.id for hit in opened.search("an oak grows")] == ["short"]


def test_whole_documents(tmp_path):
    index = DocumentIndex.create(tmp_path / "whole", WordCounts(), passages=False)
    index.upsert(["guide"], [TEXT])
    assert not DocumentIndex.open(tmp_path / "whole").has_passages
    (hit,) = index.search("two cats climb")
    assert (hit.passage, hit.heading) == (TEXT, "")
    expected = WordCounts().encode([TEXT], normalize=True)
    np.testing.assert_allclose(index.vectors(["guide"]), expected, atol=1e-6)


def test_the_vector_of_a_document_is_the_mean_of_its_passages(index):
    passages = [passage.embedded_text(TEXT) for passage in split_passages(TEXT)]
    mean = WordCounts().encode(passages, normalize=True).mean(axis=0)
    expected = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(index.vectors(["guide"])[0], expected, atol=1e-6)
