"""The pictures of the concept pages are those that the script draws, and what pages name exists."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
SCRIPT = FIGURES / "draw_concepts.py"
ARCHITECTURE = ROOT / "docs" / "architecture.md"


def load_script():
    spec = importlib.util.spec_from_file_location("draw_concepts", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PICTURES = load_script().PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_what_the_script_draws(name):
    stored = (FIGURES / f"{name}.svg").read_bytes()
    assert stored == PICTURES[name]().svg().encode(), f"run python {SCRIPT.relative_to(ROOT)}"


def test_every_picture_is_drawn_and_shown():
    assert {path.stem for path in FIGURES.glob("concept_*.svg")} == set(PICTURES)
    pages = [ARCHITECTURE, *(ROOT / "docs" / "concepts").glob("*.md")]
    shown = set()
    for page in pages:
        shown.update(re.findall(r"figures/(concept_\w+)\.svg\)", page.read_text("utf-8")))
    assert shown == set(PICTURES)


def test_glossary_terms_are_unique_and_sorted_within_their_topics():
    text = (ROOT / "docs" / "concepts" / "glossary.md").read_text("utf-8")
    topics = text.split("\n## ")[1:]
    terms = []
    for topic in topics:
        topic_terms = re.findall(r"^### (.+)$", topic, re.MULTILINE)
        assert topic_terms == sorted(topic_terms, key=str.casefold)
        terms += topic_terms
    assert len(terms) == len(set(terms))


def claimed_intervals():
    """Return the interval of each claim's deciding measure, as the page of the paper prints it."""
    text = (ROOT / "docs" / "results" / "claims-li-2021.md").read_text("utf-8")
    rows = re.findall(r'^\| <span id="([\w-]+)">.+\((\S+ to \S+)\) +\| [a-z]', text, re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize(
    "page",
    ["concepts/t-mde", "concepts/distance-constraint", "concepts/pivot-languages", "thesis"],
)
def test_what_our_runs_measured_stands_beside_the_thesis(page):
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text("utf-8").split())
    intervals = claimed_intervals()
    claims = set(re.findall(r"claims-li-2021\.md#([\w-]+)", text)) & set(intervals)
    assert claims
    for claim in claims:
        assert intervals[claim] in text, f"{claim} has the interval {intervals[claim]}"


# ---- The page on architecture


def test_every_file_in_code_marks_exists():
    """Links are checked with those of all pages; this checks the text of links and other names."""
    text = ARCHITECTURE.read_text("utf-8")
    names = re.findall(r"`([\w./]+(?:/|\.py|\.toml|\.cfg))`", text)
    assert len(names) > 40
    for name in names:
        # The page calls the files that travel with checkpoints by their bare names.
        assert (ROOT / name).exists() or (ROOT / "modeling_tmde" / name).exists(), name


def test_link_texts_name_their_targets():
    for text, target in re.findall(
        r"\[`([^`]+)`\]\(\.\./([^)]+)\)", ARCHITECTURE.read_text("utf-8")
    ):
        assert text.rstrip("/") in target


def test_names_after_a_file_are_defined_in_it():
    text = " ".join(ARCHITECTURE.read_text("utf-8").split())
    names_by_file = re.findall(r"\(\.\./([\w./]+\.py)\): `(\w+)(?:\.(\w+))?`", text)
    assert len(names_by_file) > 10
    for file, name, method in names_by_file:
        code = (ROOT / file).read_text("utf-8")
        for defined in filter(None, (name, method)):
            assert is_defined(defined, code), f"{file}: {defined}"


def is_defined(name: str, code: str) -> bool:
    return re.search(rf"^\s*(?:def|class) {name}\b", code, re.MULTILINE) is not None
