"""The hooks of the documentation site: what mkdocs does not do by itself.

| module | what it adds |
|---|---|
| `docstring_examples` | docstrings in the form that mkdocstrings knows |
| `api_layout` | the packages as a wheel installs them, where mkdocstrings finds them |
| `command_page` | the reference of the commands, made from the command itself |
| `arguments_page` | the reference of the training arguments, made from the trainer's own table |
| `recipe_page` | the reference of the recipes, made from the YAML files |
| `repository` | pages from files outside `docs/`, and links to such files |
| `navigation` | `FOLDER/*` in the navigation |
"""

import re
import tempfile
from pathlib import Path

import api_layout
import arguments_page
import command_page
import navigation
import recipe_page
import repository
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# The plugin of the notebooks always loads MathJax. `mkdocs.yml` gives it this address, which does
# not exist: no notebook has formulas, and the site loads nothing from other hosts.
MATHJAX = '<script src="javascripts/none.js"> </script>'
# What the site shows in the place of these comments.
MADE_PARTS = {
    "<!-- made: recipes -->": recipe_page.recipes_markdown,
    "<!-- made: arguments -->": arguments_page.arguments_markdown,
    "<!-- made: commands -->": command_page.commands_markdown,
}


class Layout:
    """The temporary folder of the packages as a wheel installs them, during one run of mkdocs."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def make(self) -> Path:
        """Return the folder, which is made if there is none."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tmde-site-")
        return Path(self._folder.name)

    def delete(self) -> None:
        """Delete the folder, if there is one."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


layout = Layout()


@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the layout of a wheel, before it reads its paths."""
    folder = layout.make()  # `mkdocs serve` calls this before every build.
    api_layout.link_packages(ROOT, folder)
    handlers = config.plugins["mkdocstrings"].config.handlers
    handlers["python"]["paths"] = [str(folder)]
    return config


@event_priority(100)  # The plugin of the notebooks must see theirs.
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no file in `docs/`."""
    for name, path in repository.extra_pages(ROOT).items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name in repository.notebooks(ROOT):
        # Their plugin reads notebooks from files only, and `examples/` has the name of the section.
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    config.nav = navigation.expand(config.nav, files)
    return files


@event_priority(100)
def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert what is made, rewrite links to files that are no pages, and drop comments."""
    if page.parent is None:
        # A page without a section would be alone in the sidebar. Front matter would show on GitHub.
        page.meta["hide"] = ["navigation"]
    for marker, make in MADE_PARTS.items():
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    markdown = repository.rewrite_links(markdown, page.file, files, ROOT, config.repo_url)
    return repository.outside_fences(markdown, _drop_comments)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of notebooks, whose Markdown the other hook does not see."""
    if page.file.src_uri.endswith(".ipynb"):
        html = html.replace(MATHJAX, "")
        return repository.rewrite_html_links(html, page.file, files, ROOT, config.repo_url)
    return html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Keep the link to the repository from asking its host for the number of stars."""
    return output.replace(' data-md-component="source"', "")


def on_shutdown() -> None:
    """Delete the temporary layout."""
    layout.delete()


def _drop_comments(text: str) -> str:
    return re.sub(r"^[ \t]*<!--.*?-->[ \t]*\n?", "", text, flags=re.MULTILINE | re.DOTALL)
