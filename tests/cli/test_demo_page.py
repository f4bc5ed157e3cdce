"""The page of `tmde demo` in a browser, with a model that has learned to translate the sample."""

import json
import re
import shutil
import signal
import subprocess
import sys
from urllib.parse import urlparse

import pytest

from tests.cli.conftest import ok
from tmde.data.sample import sample_documents

pytest.importorskip("lancedb")
pytest.importorskip("gradio")
pytest.importorskip("plotly")
sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WAIT = 60_000  # milliseconds: machines that run tests are slow

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
    rows = [row | {"id": f"{row['doc_id']}-{row['language']}"} for row in sample_documents(40)]
    path = tmp_path_factory.mktemp("docs") / "docs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path, rows


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
        found = re.search(r"The page is at (http://127\.0\.0\.1:\d+/)", line)
        assert found, line + process.communicate()[1]
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=120)[1]
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr, stderr


@pytest.fixture
def page(address):
    """The open page; afterwards, it has asked no other computer, and nothing has gone wrong."""
    asked, problems = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.set_default_timeout(WAIT)
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        page.locator("#map .scatterlayer .point").first.wait_for(state="attached")
        yield page
    hosts = {
        urlparse(url).hostname for url in asked if urlparse(url).scheme not in ("data", "blob")
    }
    assert hosts == {"127.0.0.1"}, asked
    assert problems == []


def hits(page):
    """Language and id of each hit."""
    cells = page.locator("#hits tbody tr").evaluate_all(
        "rows => rows.map(row => [row.querySelector('.tmde-tag').textContent, "
        "row.querySelector('summary').textContent])"
    )
    return [
        (language, re.fullmatch(r"Whole document \((.*)\)", summary, re.S)[1])
        for language, summary in cells
    ]


def test_a_query_finds_documents_of_other_languages(page, documents):
    german = next(row for row in documents[1] if row["language"] == "de")
    page.get_by_role("checkbox", name="de", exact=True).uncheck()
    page.locator("#query textarea").fill(german["text"])
    page.keyboard.press("Enter")
    page.locator("#hits tbody tr").nth(9).wait_for()
    found = hits(page)
    assert len(found) == 10
    assert "de" not in {language for language, _ in found}
    # Its four translations come first: the model was trained on other text of the sample.
    assert {id for _, id in found[:4]} == {
        f"{german['doc_id']}-{code}" for code in ("en", "es", "fr", "it")
    }
    cosines = [float(cell) for cell in page.locator("#hits td:nth-child(2)").all_text_contents()]
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
    # The other document is unfolded by the keyboard.
    page.locator("#hits summary").first.focus()
    page.keyboard.press("Enter")
    translation = next(row for row in documents[1] if row["id"] == found[0][1])
    assert page.locator("#hits details[open] p").text_content() == translation["text"]
    page.get_by_role("radio", name="Label").check()
    page.wait_for_function(
        "[...document.querySelectorAll('#map .legendtext')].some(e => e.textContent == 'markets')"
    )
    for code in ("en", "es", "fr", "it"):
        page.get_by_role("checkbox", name=code, exact=True).uncheck()
    page.locator("#search").click()
    page.get_by_role("alert").filter(has_text="check at least one").wait_for()
    assert page.evaluate("document.fonts.size") == 0  # those of the system only
