"""The page of `tmde demo`: a search box, hits in all languages, and a map of the collection."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from modeling_tmde.cli.demo_collection import NOTHING, Collection
from modeling_tmde.data.documents import EmbedError

# gradio, plotly, numpy and torch are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import gradio as gr
    import numpy as np

    from modeling_tmde.documents.index_documents import Hit

NO_LANGUAGE = ""  # of documents without one, among the languages to choose from: no code is empty
_MOST_HITS = 50


@dataclass(frozen=True)
class Found:
    """One search. place: (2,) of the query on the map; hits: best first; cut: whether the query was truncated."""

    query: str
    place: np.ndarray
    hits: list[Hit]
    cut: bool


class Searcher:
    """Searches a collection for a page that many may use at once: an index is not to be shared by threads."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._lock = threading.Lock()

    def search(
        self, query: str | None, k: int = 10, languages: Sequence[str] | None = None, language: str | None = None
    ) -> Found:
        """
        Args:
            query: A text in any language.
            k: Hits at most.
            languages: Of the hits, `NO_LANGUAGE` among them for documents without one; None or all of them: any.
            language: Of the query, for a model with an encoder for each one.

        Raises:
            EmbedError: An empty query, no language, or what the index says.
        """
        from modeling_tmde.documents.index_metadata import DocumentIndexError

        if query is None or not query.strip():
            raise EmbedError("The query is empty: type a text, in any language.")
        index, filter = self.collection.index, None
        if self.collection.languages and languages is not None:
            if not languages:
                raise EmbedError("No language of the hits is chosen: choose at least one.")
            if set(languages) != {value for _, value in _choices(self.collection)}:
                filter = {"language": [*languages, *([None] if NO_LANGUAGE in languages else [])]}
        with self._lock:
            try:
                hits = index.search(query, k, filter, snippet_width=300, language=language)
                cut = bool(index.query_report.truncated)
                (vector,) = index.query_vectors
            except (DocumentIndexError, ValueError, RuntimeError) as error:
                raise EmbedError(f"The search failed: {error}") from None
        return Found(query, self.collection.map.place_of(vector), hits, cut)


def check_packages() -> None:
    """
    Raises:
        ImportError: gradio or plotly is missing.
    """
    # Read when gradio is imported: nothing is to be sent anywhere.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio  # noqa: F401
        import plotly  # noqa: F401
    except ImportError as error:
        raise ImportError(f"The page needs gradio and plotly ({error}): pip install 'tmde[demo]'") from error


def demo_page(collection: Collection) -> gr.Blocks:
    """The page of a collection, to be served by `launch_page`.

    Raises:
        ImportError: gradio or plotly is missing.
    """
    check_packages()
    import gradio as gr

    from modeling_tmde.cli.demo_views import header_view, map_note, waiting_view

    groups = list(collection.groups)
    with gr.Blocks(title="tmde demo", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(header_view(collection), apply_default_css=False)
        last = gr.State(None)  # what was found, for the map in other colours
        with gr.Row(elem_id="layout"):
            with gr.Column(elem_id="query-part", min_width=0):
                inputs = _query_part(collection)
            with gr.Column(elem_id="hits-part", min_width=0):
                hits = gr.HTML(waiting_view(bool(collection.examples)), elem_id="hits", apply_default_css=False)
            with gr.Column(elem_id="map-part", min_width=0):
                # gradio takes some words for keys of its translations, "label" among them: none that has a capital.
                colour = gr.Radio(
                    [(name.capitalize(), name) for name in groups], value=groups[0] if groups else None,
                    label="Colour of the map", elem_id="colour", visible=len(groups) > 1,
                )  # fmt: skip
                plot = gr.Plot(show_label=False, container=False, elem_id="map")
                gr.HTML(map_note(collection), apply_default_css=False)
        _connect(page, Searcher(collection), inputs, colour, last, hits, plot)
    return page


@dataclass(frozen=True)
class _Inputs:
    """What a visitor types and chooses; language: of the query; examples: buttons, one for each example."""

    query: gr.Textbox
    button: gr.Button
    languages: gr.CheckboxGroup
    count: gr.Slider
    language: gr.Dropdown
    examples: list[gr.Button]

    def values(self) -> list[Any]:
        return [self.query, self.count, self.languages, self.language]


def _query_part(collection: Collection) -> _Inputs:
    import gradio as gr

    choices = _choices(collection)
    embedder = collection.index.embedder
    known = list(embedder.model.config.languages) if embedder.needs_language else []
    query = gr.Textbox(
        label="Query, in any language", placeholder="A sentence or a whole document", max_lines=6, autofocus=True,
        elem_id="query",
    )  # fmt: skip
    button = gr.Button("Search", variant="primary", elem_id="search")
    examples = []
    if collection.examples:
        with gr.Column(elem_id="examples"):
            other = ", searched in the other languages" if len(choices) > 1 else ""
            gr.HTML(f'<p class="tmde-caption">Examples{other}</p>', apply_default_css=False)
            examples = [gr.Button(f"{code}: {text}", size="sm") for code, text in collection.examples]
    with gr.Row():
        languages = gr.CheckboxGroup(
            choices, value=[value for _, value in choices], label="Languages of the hits", visible=len(choices) > 1,
            scale=2, min_width=200, elem_id="languages",
        )  # fmt: skip
        count = gr.Slider(1, _MOST_HITS, value=10, step=1, label="Hits", min_width=140, elem_id="count")
        language = gr.Dropdown(
            known, value=known[0] if known else None, label="Language of the query", visible=bool(known), min_width=140
        )
    return _Inputs(query, button, languages, count, language, examples)


def _choices(collection: Collection) -> list[tuple[str, str]]:
    """What the page calls each language, and its value."""
    return [(NOTHING, NO_LANGUAGE) if code is None else (code, code) for code in collection.languages]


def _connect(
    page: gr.Blocks,
    searcher: Searcher,
    inputs: _Inputs,
    colour: gr.Radio,
    last: gr.State,
    hits: gr.HTML,
    plot: gr.Plot,
) -> None:
    import gradio as gr

    from modeling_tmde.cli.demo_figure import hover_texts, map_figure
    from modeling_tmde.cli.demo_views import failure_view, hits_view

    collection = searcher.collection
    texts = hover_texts(collection)

    def search(query, count, languages, language, group):
        try:
            found = searcher.search(query, int(count), languages, language)
        except EmbedError as error:
            return failure_view(str(error)), gr.skip(), gr.skip()
        return hits_view(found, collection), map_figure(collection, group, found, texts), found

    def draw(group, found):
        return map_figure(collection, group, found, texts)

    def choose(number):
        code, text = collection.examples[number]
        others = [value for _, value in _choices(collection) if value != code] or [code]
        known = inputs.language.choices and code in [value for _, value in inputs.language.choices]
        return text, others, code if known else gr.skip()

    options = {"show_progress_on": hits, "api_visibility": "private"}
    searching = {"fn": search, "inputs": [*inputs.values(), colour], "outputs": [hits, plot, last], **options}
    inputs.query.submit(**searching)
    inputs.button.click(**searching)
    for number, button in enumerate(inputs.examples):
        chosen = [inputs.query, inputs.languages, inputs.language]
        button.click(partial(choose, number), None, chosen, api_visibility="private").then(**searching)
    drawing = {"fn": draw, "inputs": [colour, last], "outputs": plot, "show_progress": "hidden"}
    colour.change(**drawing, api_visibility="private")
    page.load(**drawing, api_visibility="private")


def launch_page(page: gr.Blocks, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serves the page from a thread of its own, until `page.close()`; returns its address.

    Args:
        page: Of `demo_page`.
        host: Address to listen on.
        port: None for the first free one from 7860.

    Raises:
        EmbedError: It cannot be served there.
    """
    import gradio as gr

    from modeling_tmde.cli.demo_views import CSS

    # Fonts of the system: others would come from the network.
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", **fonts)
    theme.set(body_text_color_subdued="*neutral_600", block_label_text_color="*neutral_600")  # WCAG AA on white
    # gradio asks its own page whether it is there, which no proxy can answer.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost", "127.0.0.1", host]))
    try:
        _, address, _ = page.launch(
            server_name=host, server_port=port, theme=theme, css=CSS, quiet=True, share=False, inbrowser=False,
            prevent_thread_lock=True, ssr_mode=False, footer_links=[], enable_monitoring=False, mcp_server=False,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        raise EmbedError(f"--port: the page cannot be served at {host} ({error})") from None
    return address
