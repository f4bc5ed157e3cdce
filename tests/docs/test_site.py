"""The documentation site: it builds without a warning, offline, with a section for everything."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer

import tmde
from tmde.cli.main import app
from tmde.training.recipe import packaged_names

ROOT = Path(__file__).parents[2]
PACKAGES = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers.python", "mkdocs_jupyter")
# Tags and attributes that make a browser load something by itself.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
SITE_URL = re.search(r"^site_url: (\S+)", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)[1]
SITE_PATH = urlsplit(SITE_URL).path
UNLOADED_LINKS = {"canonical", "next", "prev", "edit"}


def is_missing(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # The package around the module is missing.
        return True


MISSING = [module for module in PACKAGES if is_missing(module)]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(MISSING), reason=f"the extra `docs` is not installed: {MISSING}"),
]


class PageReader(HTMLParser):
    """Collects the anchors, the links and the loaded resources of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors = set()
        self.links = []
        self.resources = []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in UNLOADED_LINKS:
            return
        for name, value in attributes:
            if (tag, name) in LOADED and value:
                self.resources.append(value)


def read_page(path: Path) -> PageReader:
    reader = PageReader()
    reader.feed(path.read_text("utf-8"))
    return reader


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, PageReader]:
    return {path: read_page(path) for path in site.rglob("*.html")}


def test_links_and_anchors_lead_somewhere(pages):
    assert len(pages) > 25
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # Its links begin at the root of the host: see the next test.
        for link in [*page.links, *page.resources]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = Path(os.path.normpath(path.parent / unquote(parts.path)))
            anchor = unquote(parts.fragment)
            is_broken = not target.exists()
            if anchor and target in pages:
                is_broken = anchor not in pages[target].anchors
            if is_broken:
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_the_page_of_missing_addresses_works_under_the_path_of_the_site(site, pages):
    page = pages[site / "404.html"]
    broken = []
    for link in [*page.links, *page.resources]:
        parts = urlsplit(link)
        if parts.netloc or not parts.path:
            continue
        target = site / unquote(parts.path.removeprefix(SITE_PATH))
        if not parts.path.startswith(SITE_PATH) or not target.exists():
            broken.append(link)
    assert broken == []


def test_the_sitemap_lists_every_page(site, pages):
    text = (site / "sitemap.xml").read_text("utf-8")
    listed = {url.rpartition(SITE_PATH)[2] for url in re.findall(r"<loc>(.+?)</loc>", text)}
    names = {path.relative_to(site).as_posix() for path in pages}
    assert names - listed == {"404.html"}


def test_pages_load_nothing_from_another_host(site, pages):
    remote = []
    for path, page in pages.items():
        for resource in page.resources:
            if urlsplit(resource).netloc:
                remote.append(f"{path.name}: {resource}")
        text = path.read_text("utf-8")
        remote += re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\s\"')]+", text)
        remote += re.findall(r"\.src\s*=\s*[\"'](?:https?:)?//[^\s\"']+", text)
    for path in site.rglob("*.css"):
        text = path.read_text("utf-8")
        remote += re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\s\"')]+", text)
    assert remote == []


def test_comments_that_steer_tests_are_not_shown(pages):
    shown = []
    for path in pages:
        text = path.read_text("utf-8")
        if re.search(r"(?:<|&lt;)!-- (?:files|skip|append|hub|command|made):", text):
            shown.append(path.name)
    assert shown == []


def test_every_recipe_has_a_section(site):
    anchors = read_page(site / "reference" / "recipes.html").anchors
    assert set(packaged_names()) <= anchors


def test_every_command_and_option_has_its_place(site):
    path = site / "reference" / "commands.html"
    anchors = read_page(path).anchors
    text = path.read_text("utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        assert f"tmde-{name}" in anchors
        children = getattr(command, "commands", {})
        assert {f"tmde-{name}-{child}" for child in children} <= anchors
        for leaf in [*children.values()] or [command]:
            for parameter in leaf.params:
                if parameter.param_type_name == "option" and not parameter.hidden:
                    assert f"<code>{parameter.opts[0]}</code>" in text, f"{name} {parameter.name}"


def test_every_public_name_of_tmde_has_a_section(site):
    anchors = set()
    for path in (site / "reference" / "api").glob("*.html"):
        anchors |= read_page(path).anchors
    names = {anchor.rpartition(".")[2] for anchor in anchors}
    assert set(tmde.__all__) - names == {"__version__"}


def test_pages_outside_docs_link_to_pages_and_to_the_repository(site):
    text = (site / "project" / "contributing.html").read_text("utf-8")
    assert 'href="../architecture.html"' in text
    assert "docs/architecture.md" not in re.sub(r"<code>.*?</code>|>[^<]*<", "", text)
