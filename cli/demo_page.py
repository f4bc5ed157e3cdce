"""The page of `tmde demo`: a search box, hits in all languages, and a map. Everything from documents is escaped."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = (
    "False"  # read when gradio is imported: nothing is sent anywhere
)

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader
from markupsafe import escape

from modeling_tmde import TmdeError
from tmde.cli.demo import NOTHING, Collection, as_text
from tmde.documents.collection_map import NEIGHBOURS
from tmde.documents.index import Hit, shortened

# Seen on white and on black, and told apart by color-blind people.
COLORS = ("#1f83c4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c7ae6", "#8a8f98")
SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARK = "#e11d48"  # of the query and its hits
_AXIS = {"visible": False}
_LAYOUT = {
    "margin": {"l": 0, "r": 0, "t": 8, "b": 8}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
    "xaxis": _AXIS, "yaxis": _AXIS | {"scaleanchor": "x"}, "hovermode": "closest", "showlegend": True,
    "legend": {"orientation": "h", "yanchor": "top", "y": -0.01, "x": 0, "itemsizing": "constant"},
    "font": {"family": "system-ui, sans-serif", "size": 13}, "uirevision": "map",  # keeps the zoom
}  # fmt: skip
_ENVIRONMENT = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
_ENVIRONMENT.filters |= {"as_text": as_text, "shortened": shortened}
HTML = _ENVIRONMENT.get_template("demo.html").module  # its macros are the parts of the page


@dataclass(frozen=True)
class Found:
    """One search. place: (2,) of the query on the map; hits: best first; cut: whether the query was truncated."""

    query: str
    place: np.ndarray
    hits: list[Hit]
    cut: bool


def search(
    collection: Collection,
    query: str,
    k: int,
    languages: Sequence[str],
    language: str | None = None,
) -> Found:
    """Searches the documents of some languages. Raises ValueError with a sentence for the page."""
    if not query.strip():
        raise TmdeError("The query is empty: type a text, in any language.")
    if collection.languages and not languages:
        raise TmdeError("No language of the hits is chosen: check at least one.")
    filter = {"language": [code or None for code in languages]} if languages else None
    index = collection.index
    result = index.search_queries([query], k, filter, snippet_width=300, language=language)
    return Found(
        query,
        collection.map.place_of(result.query_vectors[0]),
        result.hits[0],
        bool(result.report.truncated),
    )


def demo_page(collection: Collection) -> gr.Blocks:
    """The page of a collection, to be served by `launch_page`."""
    groups, every, lock = list(collection.groups), collection.languages, threading.Lock()
    embedder = collection.index.embedder
    known = list(embedder.model.config.languages) if embedder.needs_language else []
    model = Path(str(embedder.model.name_or_path)).name

    def run(query, count, languages, language, group):
        try:
            with lock:  # an index is not to be shared by threads
                found = search(collection, query, int(count), languages, language)
        except (ValueError, RuntimeError) as error:
            return HTML.message(str(error), error=True), gr.skip(), gr.skip()
        return HTML.hits(found, collection), map_figure(collection, group, found), found

    with gr.Blocks(title="tmde demo", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HTML.header(collection, model), apply_default_css=False)
        last = gr.State(None)  # what was found, for the map in other colors
        with gr.Row(elem_id="layout"):
            with gr.Column(elem_id="query-part", min_width=0):
                query = gr.Textbox(
                    label="Query, in any language", max_lines=6, autofocus=True, elem_id="query"
                )
                button = gr.Button("Search", variant="primary", elem_id="search")
                with gr.Column(elem_id="examples", visible=bool(collection.examples)):
                    gr.HTML(HTML.caption("Examples, searched in the other languages"))
                    examples = [
                        gr.Button(f"{code}: {text}", size="sm")
                        for code, text in collection.examples
                    ]
                with gr.Row():
                    choices = [(code or NOTHING, code) for code in every]
                    languages = gr.CheckboxGroup(
                        choices,
                        value=every,
                        label="Languages of the hits",
                        visible=len(every) > 1,
                        scale=2,
                    )
                    count = gr.Slider(1, 50, value=10, step=1, label="Hits", min_width=140)
                    language = gr.Dropdown(
                        known or [None], label="Language of the query", visible=bool(known)
                    )
            with gr.Column(elem_id="hits-part", min_width=0):
                hits = gr.HTML(
                    HTML.message("Type a query: the nearest documents appear here."), elem_id="hits"
                )
            with gr.Column(elem_id="map-part", min_width=0):
                # Capitals: gradio takes some lower-case words ("label") for keys of its translations.
                colors = [(name.capitalize(), name) for name in groups]
                shown = (groups or [None])[0]
                color = gr.Radio(
                    colors, value=shown, label="Color of the map", visible=len(groups) > 1
                )
                plot = gr.Plot(show_label=False, container=False, elem_id="map")
                gr.HTML(HTML.note(collection, NEIGHBOURS), apply_default_css=False)
        searching = {
            "fn": run,
            "inputs": [query, count, languages, language, color],
            "outputs": [hits, plot, last],
        }
        searching |= {"show_progress_on": hits, "api_visibility": "private"}
        gr.on([query.submit, button.click], **searching)
        for example, (code, text) in zip(examples, collection.examples, strict=True):
            chosen = (
                text,
                [value for value in every if value != code],
                code if code in known else gr.skip(),
            )
            outputs = [query, languages, language]
            example.click(lambda c=chosen: c, None, outputs, api_visibility="private").then(
                **searching
            )
        drawing = {
            "fn": lambda group, found: map_figure(collection, group, found),
            "inputs": [color, last],
        }
        drawing |= {"outputs": plot, "show_progress": "hidden", "api_visibility": "private"}
        gr.on([color.change, page.load], **drawing)
    return page


def launch_page(page: gr.Blocks, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serves the page from a thread of its own until `page.close()`; returns its address."""
    # System fonts: others would come from the network.
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", **fonts)
    for name in (
        "NO_PROXY",
        "no_proxy",
    ):  # gradio asks its own page whether it is there, which no proxy can answer
        os.environ[name] = ",".join(
            filter(None, [os.environ.get(name), "localhost", "127.0.0.1", host])
        )
    options = {"quiet": True, "prevent_thread_lock": True, "ssr_mode": False, "footer_links": []}
    css = Path(__file__).with_name("demo.css")
    return page.launch(
        server_name=host, server_port=port, theme=theme, css_paths=css, share=False, **options
    )[1]


def map_figure(
    collection: Collection, group: str | None = None, found: Found | None = None
) -> go.Figure:
    """The drawn documents as points, colored by a group, with the query and its hits."""
    places, rows = (
        collection.map.places,
        zip(collection.drawn, *collection.groups.values(), strict=True),
    )
    texts = np.array([str(HTML.hover(hit, values)) for hit, *values in rows], dtype=object)
    values = np.array(collection.groups.get(group) or ["documents"] * len(texts))
    figure = go.Figure(layout=_LAYOUT)

    def draw(name: str, points: np.ndarray, hover: Sequence[str], **marker) -> None:
        x, y = points.T
        figure.add_scatter(
            x=x, y=y, name=name, marker=marker, hovertext=hover, mode="markers", hoverinfo="text"
        )

    for number, value in enumerate(sorted(set(values))):
        look = {
            "color": COLORS[number % len(COLORS)],
            "symbol": SYMBOLS[number // len(COLORS) % len(SYMBOLS)],
        }
        chosen = values == value
        draw(str(escape(value)), places[chosen], texts[chosen], size=5, opacity=0.75, **look)
    if found is not None:
        rows = {hit.id: row for row, hit in enumerate(collection.drawn)}
        marked = [rows[hit.id] for hit in found.hits if hit.id in rows]
        ring = {"symbol": "circle-open", "size": 14, "color": _MARK, "line": {"width": 1.8}}
        star = {
            "symbol": "star",
            "size": 16,
            "color": _MARK,
            "line": {"width": 1.5, "color": "white"},
        }
        draw("hits", places[marked], texts[marked], **ring)
        draw("query", found.place[None], [str(HTML.hover_query(found.query))], **star)
    return figure
