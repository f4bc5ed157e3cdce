"""The page of `tmde demo` in a browser, with a model that has learned to translate the sample."""

import re
import shutil
import signal
import subprocess
import sys
from urllib.parse import urlparse

import pytest

from tests.cli.conftest import ok, write_rows
from tmde.data.sample import sample_documents

pytest.importorskip("lancedb")
pytest.importorskip("gradio")
pytest.importorskip("plotly")
sync_api = pytest.importorskip("playwright.sync_api")


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


CHROMIUM = find_chromium()
WAIT = 60_000  # milliseconds; machines that run tests are slow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Google Chrome"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A bag that finds the translations of the sample: seconds of training."""
    out = tmp_path_factory.mktemp("run") / "bag"
    keys = [
        "data.train=sample",
        "data.max_rows=1500",
        "tokenizer.vocab_size=1500",
        "model.d_model=48",
    ]
    keys += ["training.max_steps=60", "training.learning_rate=0.02"]
    ok("train", "bag", "-o", out, *keys)
    return out


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A file of documents, and its rows by their ids."""
    row_of_id = {}
    for row in sample_documents(40):
        id = f"{row['doc_id']}-{row['language']}"
        row_of_id[id] = row | {"id": id}
    path = tmp_path_factory.mktemp("docs") / "docs.jsonl"
    return write_rows(path, row_of_id.values()), row_of_id


@pytest.fixture(scope="module")
def address(trained, documents):
    """The address of the page, served by a process that Ctrl-C ends, as a user ends it."""
    command = [
        sys.executable,
        "-m",
        "tmde",
        "demo",
        str(trained),
        str(documents[0]),
        "--no-browser",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        match = re.search(r"The page is at (http://127\.0\.0\.1:\d+/)", line)
        assert match, line + process.communicate()[1]
        yield match[1]
    finally:
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=120)[1]
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr, stderr


@pytest.fixture
def page(address):
    """The open page; afterwards, it has asked no other computer, and nothing has gone wrong."""
    asked = []
    problems = []

    def note_error(message):
        if message.type == "error":
            problems.append(message.text)

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.set_default_timeout(WAIT)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", note_error)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        page.locator("#map .scatterlayer .point").first.wait_for(state="attached")
        yield page
    hosts = set()
    for address in map(urlparse, asked):
        if address.scheme not in ("data", "blob"):
            hosts.add(address.hostname)
    assert hosts == {"127.0.0.1"}, asked
    assert problems == []


def hits(page):
    """The language and the id of each hit."""
    cells = page.locator("#hits tbody tr").evaluate_all(
        "rows => rows.map(row => [row.querySelector('.tmde-tag').textContent, "
        "row.querySelector('summary').textContent])"
    )
    hits = []
    for language, summary in cells:
        id = re.fullmatch(r"Whole document \((.*)\)", summary, re.S)[1]
        hits.append((language, id))
    return hits


def test_a_query_finds_documents_of_other_languages(page, documents):
    _, row_of_id = documents
    german = next(row for row in row_of_id.values() if row["language"] == "de")
    page.get_by_role("checkbox", name="de", exact=True).uncheck()
    page.locator("#query textarea").fill(german["text"])
    page.keyboard.press("Enter")
    page.locator("#hits tbody tr").nth(9).wait_for()
    languages, ids = zip(*hits(page), strict=True)
    assert len(ids) == 10
    assert "de" not in languages
    # Its four translations come first: the model was trained on other text of the sample.
    assert sorted(ids[:4]) == [f"{german['doc_id']}-{code}" for code in ("en", "es", "fr", "it")]
    cosines = list(map(float, page.locator("#hits td:nth-child(2)").all_text_contents()))
    assert cosines == sorted(cosines, reverse=True)
    assert cosines[0] > 0.5
    page.wait_for_function("document.querySelectorAll('#map .legendtext').length == 7")
    assert page.locator("#map .legendtext").all_text_contents() == [
        "de",
        "en",
        "es",
        "fr",
        "it",
        "hits",
        "query",
    ]
    assert page.locator("#map .scatterlayer .trace").nth(5).locator(".point").count() == 10
    # The keyboard unfolds the first hit.
    page.locator("#hits summary").first.focus()
    page.keyboard.press("Enter")
    best_text = row_of_id[ids[0]]["text"]
    assert page.locator("#hits details[open] p").text_content() == best_text
    page.get_by_role("radio", name="Label").check()
    page.wait_for_function(
        "[...document.querySelectorAll('#map .legendtext')].some(e => e.textContent == 'markets')"
    )
    for code in ("en", "es", "fr", "it"):
        page.get_by_role("checkbox", name=code, exact=True).uncheck()
    page.locator("#search").click()
    page.get_by_role("alert").filter(has_text="check at least one").wait_for()
    assert page.evaluate("document.fonts.size") == 0  # The page loads no fonts.
