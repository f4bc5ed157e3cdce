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

# Seen on white and on black, and told apart by color-blind people.
COLORS = ("#1f83c4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c7ae6", "#8a8f98")
SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARK = "#e11d48"  # of the query and its hits
_AXIS = {"visible": False, "showgrid": False, "zeroline": False}
_LAYOUT = {
    "margin": {"l": 0, "r": 0, "t": 8, "b": 8}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
    "xaxis": _AXIS, "yaxis": _AXIS | {"scaleanchor": "x"}, "hovermode": "closest", "showlegend": True,
    "legend": {"orientation": "h", "yanchor": "top", "y": -0.01, "x": 0, "itemsizing": "constant"},
    "font": {"family": "system-ui, sans-serif", "size": 13}, "uirevision": "map",  # keeps the zoom
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
    collection: Collection, query: str, k: int = 10, languages: Sequence[str] = (), language: str | None = None
) -> Found:
    """Searches the documents of some languages (none: all). Raises ValueError with a sentence for the page."""
    if not query.strip():
        raise ValueError("The query is empty: type a text, in any language.")
    filter = {"language": [code or None for code in languages]} if languages else None
    index = collection.index
    hits = index.search(query, k, filter, snippet_width=300, language=language)
    return Found(query, collection.map.place_of(index.query_vectors[0]), hits, bool(index.query_report.truncated))


def demo_page(collection: Collection) -> gr.Blocks:
    """The page of a collection, to be served by `launch_page`."""
    groups, lock = list(collection.groups), threading.Lock()
    every = [code or "" for code in collection.languages]
    embedder = collection.index.embedder
    known = list(embedder.model.config.languages) if embedder.needs_language else []

    def run(query, count, languages, language, group):
        try:
            with lock:  # an index is not to be shared by threads
                found = search(collection, query, int(count), languages, language)
        except (ValueError, RuntimeError) as error:
            return HTML.message(str(error), error=True), gr.skip(), gr.skip()
        return HTML.hits(found, collection), map_figure(collection, group, found), found

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
                    choices = [(code or NOTHING, code) for code in every]
                    languages = gr.CheckboxGroup(
                        choices, value=every, label="Languages of the hits", visible=len(every) > 1, scale=2
                    )
                    count = gr.Slider(1, 50, value=10, step=1, label="Hits", min_width=140)
                    language = gr.Dropdown(
                        known, value=next(iter(known), None), label="Language of the query", visible=bool(known)
                    )
            with gr.Column(elem_id="hits-part", min_width=0):
                waiting = "Type a query or choose an example: the nearest documents appear here."
                hits = gr.HTML(HTML.message(waiting), elem_id="hits")
            with gr.Column(elem_id="map-part", min_width=0):
                # Capitals: gradio takes some lower-case words ("label") for keys of its translations.
                colors = [(name.capitalize(), name) for name in groups]
                first = next(iter(groups), None)
                color = gr.Radio(colors, value=first, label="Color of the map", visible=len(groups) > 1)
                plot = gr.Plot(show_label=False, container=False, elem_id="map")
                gr.HTML(HTML.note(collection, NEIGHBOURS), apply_default_css=False)
        searching = {"fn": run, "inputs": [query, count, languages, language, color], "outputs": [hits, plot, last]}
        searching |= {"show_progress_on": hits, "api_visibility": "private"}
        query.submit(**searching)
        button.click(**searching)
        for example, (code, text) in zip(examples, collection.examples, strict=True):
            chosen = (text, [value for value in every if value != code], code if code in known else gr.skip())
            outputs = [query, languages, language]
            example.click(lambda c=chosen: c, None, outputs, api_visibility="private").then(**searching)
        drawing = {"fn": lambda group, found: map_figure(collection, group, found), "inputs": [color, last]}
        drawing |= {"outputs": plot, "show_progress": "hidden", "api_visibility": "private"}
        color.change(**drawing)
        page.load(**drawing)
    return page


def launch_page(page: gr.Blocks, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serves the page from a thread of its own until `page.close()`; returns its address."""
    # System fonts: others would come from the network.
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", **fonts)
    for name in ("NO_PROXY", "no_proxy"):  # gradio asks its own page whether it is there, which no proxy can answer
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost", "127.0.0.1", host]))
    css = Path(__file__).with_name("demo.css").read_text(encoding="utf-8")
    options = {"quiet": True, "share": False, "prevent_thread_lock": True, "ssr_mode": False, "footer_links": []}
    return page.launch(
        server_name=host, server_port=port, theme=theme, css=css, enable_monitoring=False, mcp_server=False, **options
    )[1]


def map_figure(collection: Collection, group: str | None = None, found: Found | None = None) -> go.Figure:
    """The drawn documents as points, colored by a group, with the query and its hits."""
    places, texts = collection.map.places, _hover_texts(collection)
    values = np.array(collection.groups.get(group) or ["documents"] * len(texts))
    figure = go.Figure(layout=_LAYOUT)

    def draw(name: str, points: np.ndarray, hover: Sequence[str], **marker) -> None:
        x, y = points.T
        figure.add_scatter(x=x, y=y, name=name, marker=marker, hovertext=hover, mode="markers", hoverinfo="text")

    for number, value in enumerate(sorted(set(values))):
        look = {"color": COLORS[number % len(COLORS)], "symbol": SYMBOLS[number // len(COLORS) % len(SYMBOLS)]}
        chosen = values == value
        draw(_escaped(value), places[chosen], texts[chosen], size=5, opacity=0.75, **look)
    if found is not None:
        rows = {hit.id: row for row, hit in enumerate(collection.drawn)}
        marked = [rows[hit.id] for hit in found.hits if hit.id in rows]
        ring = {"symbol": "circle-open", "size": 14, "color": _MARK, "line": {"width": 1.8}}
        star = {"symbol": "star", "size": 16, "color": _MARK, "line": {"width": 1.5, "color": "white"}}
        draw("hits", places[marked], texts[marked], **ring)
        draw("query", found.place[None], [f"<b>Query</b><br>{_wrapped(found.query)}"], **star)
    return figure


def _hover_texts(collection: Collection) -> np.ndarray:
    """Title, beginning and groups of each drawn document; escaped, as plotly reads some tags."""
    texts = []
    for row, hit in enumerate(collection.drawn):
        title = as_text(hit.metadata.get("title"))
        head = f"<b>{_wrapped(title)}</b><br>" if title else ""
        values = [*(values[row] for values in collection.groups.values()), hit.id]
        texts.append(f"{head}{_wrapped(hit.text)}<br><i>{_escaped(' · '.join(values))}</i>")
    return np.array(texts, dtype=object)


def _wrapped(text: str) -> str:
    return "<br>".join(_escaped(line) for line in textwrap.wrap(shortened(text, 160), 56))


def _escaped(text: str) -> str:
    return escape(text, quote=False)  # plotly does not know the names of quotes
