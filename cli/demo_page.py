"""The page of `tmde demo`: a search box, hits in all languages, and a map. Everything from documents is escaped."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported: nothing is sent anywhere

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader

from modeling_tmde.cli.demo import NOTHING, Collection, as_text
from modeling_tmde.documents.collection_map import NEIGHBOURS
from modeling_tmde.documents.index import Hit, shortened

NO_LANGUAGE = ""  # of documents without one, among the languages to choose from
# Seen on white and on black, and told apart by color-blind people.
COLORS = ("#1f83c4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c7ae6", "#8a8f98")
SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARK = "#e11d48"  # of the query and its hits
_AXIS = {"visible": False, "showgrid": False, "zeroline": False}
_LAYOUT = {
    "margin": {"l": 0, "r": 0, "t": 8, "b": 8}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
    "xaxis": _AXIS, "yaxis": _AXIS | {"scaleanchor": "x"}, "hovermode": "closest", "showlegend": True,
    "hoverlabel": {"align": "left", "bgcolor": "#1f2937", "font": {"color": "white", "size": 12}},
    "legend": {"orientation": "h", "yanchor": "top", "y": -0.01, "x": 0, "itemsizing": "constant"},
    "font": {"family": "system-ui, sans-serif", "size": 13}, "uirevision": "map",  # keeps the zoom
    "modebar": {"remove": ["select2d", "lasso2d", "toImage"], "bgcolor": "rgba(0,0,0,0)", "color": "#7d8797"},
}  # fmt: skip
_ENVIRONMENT = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
_ENVIRONMENT.filters["as_text"] = as_text
HTML = _ENVIRONMENT.get_template("demo.html").module  # its macros are the parts of the page


@dataclass(frozen=True)
class Found:
    """One search. place: (2,) of the query on the map; hits: best first; cut: whether the query was truncated."""

    query: str
    place: np.ndarray
    hits: list[Hit]
    cut: bool


def search(
    collection: Collection, query: str | None, k: int = 10, languages: Sequence[str] | None = None, language=None
) -> Found:
    """Searches the documents of some languages (None: all). Raises ValueError with a sentence for the page."""
    if query is None or not query.strip():
        raise ValueError("The query is empty: type a text, in any language.")
    filter = None
    if collection.languages and languages is not None and len(languages) < len(collection.languages):
        if not languages:
            raise ValueError("No language of the hits is chosen: choose at least one.")
        filter = {"language": [code or None for code in languages]}
    index = collection.index
    hits = index.search(query, k, filter, snippet_width=300, language=language)
    place = collection.map.place_of(index.query_vectors[0])
    return Found(query, place, hits, bool(index.query_report.truncated))


def demo_page(collection: Collection) -> gr.Blocks:
    """The page of a collection, to be served by `launch_page`."""
    groups, texts, lock = list(collection.groups), _hover_texts(collection), threading.Lock()
    choices = [(code or NOTHING, code or NO_LANGUAGE) for code in collection.languages]
    every = [value for _, value in choices]
    embedder = collection.index.embedder
    known = list(embedder.model.config.languages) if embedder.needs_language else []

    def run(query, count, languages, language, group):
        try:
            with lock:  # an index is not to be shared by threads
                found = search(collection, query, int(count), languages, language)
        except (ValueError, RuntimeError) as error:
            return HTML.message(str(error), error=True), gr.skip(), gr.skip()
        return hits_view(found, collection), map_figure(collection, group, found, texts), found

    with gr.Blocks(title="tmde demo", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HTML.header(collection), apply_default_css=False)
        last = gr.State(None)  # what was found, for the map in other colors
        with gr.Row(elem_id="layout"):
            with gr.Column(elem_id="query-part", min_width=0):
                query = gr.Textbox(label="Query, in any language", max_lines=6, autofocus=True, elem_id="query")
                button = gr.Button("Search", variant="primary", elem_id="search")
                with gr.Column(elem_id="examples", visible=bool(collection.examples)):
                    gr.HTML(HTML.caption("Examples, searched in the other languages"))
                    examples = [gr.Button(f"{code}: {text}", size="sm") for code, text in collection.examples]
                with gr.Row():
                    languages = gr.CheckboxGroup(
                        choices, value=every, label="Languages of the hits", visible=len(choices) > 1, scale=2,
                        elem_id="languages",
                    )  # fmt: skip
                    count = gr.Slider(1, 50, value=10, step=1, label="Hits", min_width=140, elem_id="count")
                    language = gr.Dropdown(
                        known, value=next(iter(known), None), label="Language of the query", visible=bool(known)
                    )
            with gr.Column(elem_id="hits-part", min_width=0):
                waiting = "Type a query or choose an example: the nearest documents appear here."
                hits = gr.HTML(HTML.message(waiting), elem_id="hits")
            with gr.Column(elem_id="map-part", min_width=0):
                # Capitals: gradio takes some lower-case words ("label") for keys of its translations.
                color = gr.Radio(
                    [(name.capitalize(), name) for name in groups], value=next(iter(groups), None),
                    label="Color of the map", elem_id="color", visible=len(groups) > 1,
                )  # fmt: skip
                plot = gr.Plot(show_label=False, container=False, elem_id="map")
                gr.HTML(HTML.note(collection, NEIGHBOURS), apply_default_css=False)
        searching = {"fn": run, "inputs": [query, count, languages, language, color], "outputs": [hits, plot, last]}
        searching |= {"show_progress_on": hits, "api_visibility": "private"}
        query.submit(**searching)
        button.click(**searching)
        for example, (code, text) in zip(examples, collection.examples, strict=True):
            others = [value for value in every if value != code] or [code]
            chosen = (text, others, code if code in known else gr.skip())
            outputs = [query, languages, language]
            example.click(lambda c=chosen: c, None, outputs, api_visibility="private").then(**searching)
        drawing = {"fn": lambda group, found: map_figure(collection, group, found, texts), "inputs": [color, last]}
        drawing |= {"outputs": plot, "show_progress": "hidden", "api_visibility": "private"}
        color.change(**drawing)
        page.load(**drawing)
    return page


def launch_page(page: gr.Blocks, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serves the page from a thread of its own until `page.close()`; returns its address."""
    # System fonts: others would come from the network.
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", **fonts)
    theme.set(body_text_color_subdued="*neutral_600", block_label_text_color="*neutral_600")  # WCAG AA on white
    for name in ("NO_PROXY", "no_proxy"):  # gradio asks its own page whether it is there, which no proxy can answer
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost", "127.0.0.1", host]))
    css = Path(__file__).with_name("demo.css").read_text(encoding="utf-8")
    _, address, _ = page.launch(
        server_name=host, server_port=port, theme=theme, css=css, quiet=True, share=False, inbrowser=False,
        prevent_thread_lock=True, ssr_mode=False, footer_links=[], enable_monitoring=False, mcp_server=False,
    )  # fmt: skip
    return address


def hits_view(found: Found, collection: Collection) -> str:
    """A table of the hits, best first, as HTML."""
    if not found.hits:
        return HTML.message("No document of the chosen languages was found.")
    return HTML.hits(found, collection)


def map_figure(
    collection: Collection, group: str | None = None, found: Found | None = None, texts: list[str] | None = None
) -> go.Figure:
    """The drawn documents as points, colored by a group, with the query and its hits."""
    places, texts = collection.map.places, texts or _hover_texts(collection)
    values = collection.groups.get(group) or ["documents"] * len(texts)
    figure = go.Figure(layout=_LAYOUT)

    def draw(name: str, points: np.ndarray, hover: list[str], **marker) -> None:
        x, y = points.T
        figure.add_scatter(x=x, y=y, name=name, marker=marker, hovertext=hover, mode="markers", hoverinfo="text")

    for number, value in enumerate(sorted(set(values))):
        rows = [row for row, each in enumerate(values) if each == value]
        color, symbol = COLORS[number % len(COLORS)], SYMBOLS[number // len(COLORS) % len(SYMBOLS)]
        hover = [texts[row] for row in rows]
        draw(_escaped(value), places[rows], hover, color=color, symbol=symbol, size=5, opacity=0.75)
    if found is None:
        return figure
    rows = {hit.id: row for row, hit in enumerate(collection.drawn)}
    marked = {rank: rows[hit.id] for rank, hit in enumerate(found.hits, 1) if hit.id in rows}
    if marked:
        hover = [f"<b>{rank}</b> · {texts[row]}" for rank, row in marked.items()]
        ring = {"symbol": "circle-open", "size": 14, "color": _MARK, "line": {"width": 1.8}}
        draw("hits", places[list(marked.values())], hover, **ring)
    star = {"symbol": "star", "size": 16, "color": _MARK, "line": {"width": 1.5, "color": "white"}}
    draw("query", found.place[None], [f"<b>Query</b><br>{_wrapped(found.query)}"], **star)
    return figure


def _hover_texts(collection: Collection) -> list[str]:
    """Title, beginning and groups of each drawn document; escaped, as plotly reads some tags."""
    texts = []
    for row, hit in enumerate(collection.drawn):
        title = as_text(hit.metadata.get("title"))
        head = f"<b>{_wrapped(title)}</b><br>" if title else ""
        values = [*(values[row] for values in collection.groups.values()), hit.id]
        texts.append(f"{head}{_wrapped(hit.text)}<br><i>{_escaped(' · '.join(values))}</i>")
    return texts


def _wrapped(text: str) -> str:
    return "<br>".join(_escaped(line) for line in textwrap.wrap(shortened(text, 160), 56))


def _escaped(text: str) -> str:
    return escape(text, quote=False)  # plotly does not know the names of quotes
