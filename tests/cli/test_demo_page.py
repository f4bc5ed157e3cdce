"""The page of `tmde demo` in a browser: the passages and the model that come with the package."""

import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import urlparse

import pytest

from tmde.cli.demo_collection import QUESTIONS

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
CODES = ["de", "en", "es", "fr", "it"]
WIDE = {"width": 1300, "height": 900}
PHONE = {"width": 390, "height": 844}

# Returns the texts whose contrast is below 4.5 (WCAG 2.2, success criterion 1.4.3), each with its
# colors. Bold text of the map's numbers has an outline in the color of the page.
PALE_TEXTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parse = color => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, bottom) =>
    [0, 1, 2].map(i => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
  const luminance = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(value => value / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement)
      layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const contrast = (color, below) => {
    const values = [luminance(over(color, below)), luminance(below)].sort((a, b) => b - a);
    return (values[0] + 0.05) / (values[1] + 0.05);
  };
  const pale = [];
  let count = 0;
  const check = (element, text, color) => {
    const below = background(element);
    const value = contrast(parse(color), below);
    count += 1;
    if (value < 4.5) pale.push([text.trim().slice(0, 40), color, String(below), value.toFixed(2)]);
  };
  for (const element of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(element);
    if (!element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const own = [...element.childNodes].filter(node => node.nodeType == 3).map(node => node.data);
    const isSvg = element instanceof SVGElement;
    if (own.join("").trim()) check(element, own.join(""), isSvg ? style.fill : style.color);
    if (element.placeholder && !element.value)
      check(element, element.placeholder, getComputedStyle(element, "::placeholder").color);
    if (element.value && element.matches("textarea, input[type=text], input[type=number]"))
      check(element, element.value, style.color);
  }
  return [count, pale];
}"""


@pytest.fixture(scope="module")
def address():
    """The address of the page, served by a process that Ctrl-C ends, as a user ends it."""
    command = [sys.executable, "-m", "tmde", "demo", "--no-browser"]
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


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


# The marks keep a machine without a browser from starting anything.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Google Chrome"),
]


@pytest.fixture
def open_page(address, browser):
    """Open the page; afterwards, it has asked no other computer, and nothing has gone wrong."""
    asked = []
    problems = []

    def note_error(message):
        if message.type == "error":
            problems.append(message.text)

    @contextmanager
    def opened(viewport=WIDE, color_scheme="light"):
        page = browser.new_page(viewport=viewport, color_scheme=color_scheme, locale="en-US")
        page.set_default_timeout(WAIT)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", note_error)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        page.locator("#map .scatterlayer .point").first.wait_for(state="attached")
        yield page
        page.close()

    yield opened
    hosts = set()
    for url in map(urlparse, asked):
        if url.scheme not in ("data", "blob"):
            hosts.add(url.hostname)
    assert hosts == {"127.0.0.1"}, asked
    assert problems == []


def ask(page, query):
    """Search for a query with the keyboard, and wait for the hits."""
    page.locator("#query textarea").fill(query)
    page.locator("#query textarea").press("Enter")
    wait_for_map(page, query)


def wait_for_map(page, query):
    """Wait until the map shows the query, which it does after the hits."""
    page.wait_for_function(
        "query => [...document.querySelectorAll('#map .js-plotly-plot')].some(plot => plot.data"
        ".some(trace => trace.name == 'query' && String(trace.hovertext).includes(query)))",
        arg=query,
    )
    page.locator("#hits .tmde-hit").first.wait_for()


def hit_ids(page):
    return page.locator("#hits .tmde-hit").evaluate_all("hits => hits.map(hit => hit.dataset.id)")


def legend(page):
    return page.locator("#map .legendtext").all_text_contents()


def test_an_example_shows_a_passage_in_its_language_and_unfolds_the_others(open_page):
    with open_page() as page:
        page.get_by_role("button", name=QUESTIONS[2][1]).click()  # "¿Qué río lleva más agua?"
        wait_for_map(page, "agua")
        assert len(hit_ids(page)) == 5
        best = page.locator("#hits .tmde-hit").first
        assert "El río Amazonas" in best.locator(".tmde-text").text_content()
        # The keyboard unfolds the translations.
        best.locator(".tmde-versions summary").focus()
        page.keyboard.press("Enter")
        best.locator(".tmde-versions[open]").wait_for()
        tags = best.locator(".tmde-versions li .tmde-tag").all_text_contents()
        assert sorted(tags) == ["de", "en", "fr", "it"]
        assert legend(page) == [*CODES, "hits", "query"]
        assert page.locator("#map .scatterlayer .trace").nth(5).locator(".point").count() == 5
        page.get_by_role("radio", name="Topic").check()
        page.locator("#map .legendtext").filter(has_text="travel").wait_for()
        assert page.evaluate("document.fonts.size") == 0  # The page loads no fonts.


def test_hits_keep_to_the_languages_that_are_checked(open_page):
    with open_page() as page:
        for code in ("de", "en", "es"):
            page.get_by_role("checkbox", name=code, exact=True).uncheck()
        ask(page, "Which wild animals can one see in Kenya?")
        assert hit_ids(page)[0].startswith("sib200-450-")
        assert set(page.locator("#hits [lang]").evaluate_all("es => es.map(e => e.lang)")) == {
            "fr",
            "it",
        }
        for code in ("fr", "it"):
            page.get_by_role("checkbox", name=code, exact=True).uncheck()
        page.locator("#search").click()
        page.get_by_role("alert").filter(has_text="check at least one").wait_for()


def test_the_switch_between_meaning_and_words_searches_again(open_page):
    with open_page() as page:
        # No passage has this word; "automobile" and "roadways" are near to it in meaning.
        ask(page, "Karosserie")
        assert len(hit_ids(page)) == 5
        page.get_by_role("radio", name="Words").check()
        page.get_by_role("status").filter(has_text="has a word of the query").wait_for()
        ask_again = page.locator("#query textarea")
        ask_again.fill("Triceratops")
        ask_again.press("Enter")
        wait_for_map(page, "Triceratops")
        assert [id.rsplit("-", 1)[0] for id in hit_ids(page)] == ["sib200-368"]
        page.get_by_role("radio", name="Both").check()
        page.locator("#hits .tmde-hit").nth(4).wait_for()
        assert hit_ids(page)[0].startswith("sib200-368-")


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_every_text_is_dark_enough_to_read(open_page, viewport, color_scheme):
    with open_page(viewport, color_scheme) as page:
        count, pale = page.evaluate(PALE_TEXTS)
        assert pale == []
        assert count > 20
        ask(page, QUESTIONS[3][1])
        page.locator("#hits summary").first.click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(500)  # The colors of gradio's buttons change slowly.
        count, pale = page.evaluate(PALE_TEXTS)
        assert pale == []
        assert count > 40


def test_on_a_phone_the_map_stands_below_the_hits(open_page):
    with open_page(PHONE) as page:
        ask(page, QUESTIONS[0][1])
        last_hit = page.locator("#hits .tmde-hit").last.bounding_box()
        plot = page.locator("#map").bounding_box()
        assert plot["y"] >= last_hit["y"] + last_hit["height"]
        # Nothing is wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        for name in ("#mode", "#languages", "#count", "#search"):
            box = page.locator(name).bounding_box()
            assert box["x"] + box["width"] <= PHONE["width"], name


def test_the_keyboard_reaches_a_search_and_its_hits(open_page):
    with open_page() as page:
        page.locator("#query textarea").focus()
        page.keyboard.type("Qui a battu les All Blacks ?")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # The button beside the query.
        wait_for_map(page, "All Blacks")
        names = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            names.add(page.evaluate("document.activeElement.tagName"))
        assert {"BUTTON", "INPUT", "SUMMARY"} <= names
