"""The page of `tmde demo`: a search box, hits in all languages, and a map.

Everything that comes from documents is escaped.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read when gradio is imported: nothing is sent anywhere.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader
from markupsafe import escape

from tmde.cli.demo_collection import NOTHING, Collection, Example, as_text
from tmde.cli.demo_search import Searcher, SearchResult, is_short
from tmde.documents.collection_map import NEIGHBORS
from tmde.documents.index import MODES, Mode
from tmde.documents.snippets import shortened
from tmde.embedding.packaged_models import packaged_name

# Seen on white and on black, and told apart by color-blind people.
COLORS = ("#1f83c4", "#d98a00", "#009e73", "#cc79a7", "#c2410c", "#3fa3dd", "#8c7ae6", "#8a8f98")
SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARK_COLOR = "#e11d48"
# The looks of the hits and of the query on the map.
_RING = {"symbol": "circle-open", "size": 20, "color": _MARK_COLOR, "line": {"width": 2.2}}
_STAR = {
    "symbol": "star",
    "size": 18,
    "color": _MARK_COLOR,
    "line": {"width": 1.5, "color": "white"},
}
# In pixels: the map, and the numbers of its rings.
_MAP_PIXELS = 500
_CHARACTER_WIDTH = 9
_LABEL_HEIGHT = 18
_LAYOUT = {
    "margin": {"l": 0, "r": 0, "t": 8, "b": 8},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "xaxis": {"visible": False},
    "yaxis": {"visible": False, "scaleanchor": "x"},
    "hovermode": "closest",
    "showlegend": True,
    "legend": {
        "orientation": "h",
        "yanchor": "top",
        "y": -0.01,
        "x": 0,
        "itemsizing": "constant",
    },
    "font": {"family": "system-ui, sans-serif", "size": 14},
    "uirevision": "map",  # The zoom stays when the map is drawn again.
}
# Text of the theme that is too pale to read: WCAG asks for a contrast of 4.5.
_READABLE = {
    "body_text_color_subdued": "*neutral_600",
    "body_text_color_subdued_dark": "*neutral_300",
    "block_label_text_color": "*neutral_600",
    "block_label_text_color_dark": "*neutral_200",
    "block_title_text_color": "*neutral_700",
    "block_title_text_color_dark": "*neutral_200",
    "button_primary_background_fill": "*primary_600",
    "button_primary_background_fill_hover": "*primary_700",
    "input_placeholder_color": "*neutral_500",
    "input_placeholder_color_dark": "*neutral_400",
}
_INVITATION = "Search for something: the nearest documents will appear here."
_ENVIRONMENT = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
_ENVIRONMENT.filters |= {"as_text": as_text, "shortened": shortened, "is_short": is_short}
# The macros of the template are the parts of the page.
HTML: Any = _ENVIRONMENT.get_template("demo.html").module


# ---- The map


def map_figure(
    collection: Collection, group: str | None = None, result: SearchResult | None = None
) -> go.Figure:
    """Draw the documents as points.

    Args:
        collection: The documents and their places.
        group: The field by which points are colored; None for one color.
        result: A search, whose query and hits are marked.
    """
    places = collection.map.places  # (documents, 2)
    hover_texts = _hover_texts(collection)
    labels = ["documents"] * len(hover_texts)
    if group is not None and group in collection.groups:
        labels = collection.groups[group]
    values = np.array(labels)  # (documents,)
    row_of_id = {hit.id: row for row, hit in enumerate(collection.drawn)}
    figure = go.Figure(layout=_LAYOUT)
    for number, value in enumerate(sorted(set(values))):
        rows = np.flatnonzero(values == value)
        marker = {
            "size": 6,
            "opacity": 0.85,
            "color": COLORS[number % len(COLORS)],
            # Neighbors in the legend differ in both. No color comes twice with the same symbol.
            "symbol": SYMBOLS[(number + number // len(COLORS)) % len(SYMBOLS)],
        }
        # Legends read HTML too.
        _draw(figure, str(escape(value)), places[rows], hover_texts[rows], marker)
        if result is not None:
            found_rows = [row_of_id.get(id, -1) for id in result.ids]
            # A search lights what it finds, so the other points stand back.
            figure.data[-1].update(
                selectedpoints=np.flatnonzero(np.isin(rows, found_rows)),
                selected={"marker": {"opacity": 1, "size": 9}},
                unselected={"marker": {"opacity": 0.4}},
            )
    if result is not None:
        _draw_result(figure, collection, result, row_of_id, hover_texts)
    return figure


def _draw_result(
    figure: go.Figure,
    collection: Collection,
    result: SearchResult,
    row_of_id: Mapping[str, int],
    hover_texts: np.ndarray,
) -> None:
    """Draw the hits of a search as numbered rings, and its query as a star.

    Translations stand close together, so a document has one ring. Rings that are close share one
    label with all their numbers.
    """
    rows = []
    numbers = []
    for number, hit in enumerate(result.hits, 1):
        if hit.id in row_of_id:
            rows.append(row_of_id[hit.id])
            numbers.append(number)
    scale = _pixels_per_unit(collection.map.places)
    points = scale * collection.map.places[rows]  # (rings, 2)
    labels = ring_labels(points, numbers)
    positions = [_label_position(point, scale * result.place) for point in points]
    _draw(figure, "hits", collection.map.places[rows], hover_texts[rows], _RING)
    figure.data[-1].update(
        mode="markers+text", text=labels, textposition=positions, textfont={"size": 14}
    )
    query_text = str(HTML.hover_query(result.query))
    _draw(figure, "query", result.place[None], [query_text], _STAR)


def _pixels_per_unit(places: np.ndarray) -> float:
    """Return about how large a unit of places, (documents, 2), is before a user zooms."""
    extent = float(np.ptp(places, axis=0).max())
    return _MAP_PIXELS / extent if extent else 0.0


def _label_position(point: np.ndarray, star: np.ndarray) -> str:
    """Return where the label of a ring is: above it, or below it if the star would cover it.

    Args:
        point: The place of the ring, in pixels, (2,).
        star: The place of the query, (2,).
    """
    label = point + np.array([0, _LABEL_HEIGHT])
    is_covered = bool((np.abs(label - star) < _LABEL_HEIGHT).all())
    return "bottom center" if is_covered else "top center"


def ring_labels(points: np.ndarray, numbers: Sequence[int]) -> list[str]:
    """Return the labels of rings, of which none covers another.

    Labels that would overlap become one, of several numbers, which stands at the first of their
    rings; the others have none.

    Args:
        points: The places of n rings, in pixels, (n, 2).
        numbers: Their numbers, rising.
    """
    # The rings of each label, that of its place first.
    labels = [[ring] for ring in range(len(numbers))]
    joined = _overlapping_labels(points, numbers, labels)
    while joined is not None:
        first, second = joined
        labels[first] += labels.pop(second)
        joined = _overlapping_labels(points, numbers, labels)
    texts = [""] * len(numbers)
    for rings in labels:
        texts[rings[0]] = _label_text(numbers, rings)
    return texts


def _label_text(numbers: Sequence[int], rings: Sequence[int]) -> str:
    return ", ".join(str(numbers[ring]) for ring in sorted(rings))


def _overlapping_labels(
    points: np.ndarray, numbers: Sequence[int], labels: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Return the first two labels that overlap; None if no two do."""
    for first, second in itertools.combinations(range(len(labels)), 2):
        texts = [_label_text(numbers, labels[label]) for label in (first, second)]
        width = _CHARACTER_WIDTH * (len(texts[0]) + len(texts[1])) / 2
        offset = np.abs(points[labels[first][0]] - points[labels[second][0]])  # (2,)
        if offset[0] < width + _CHARACTER_WIDTH and offset[1] < _LABEL_HEIGHT:
            return first, second
    return None


def _hover_texts(collection: Collection) -> np.ndarray:
    """Return what a page shows over each point, (documents,) strings."""
    texts = []
    for row, hit in enumerate(collection.drawn):
        values = [values_of_field[row] for values_of_field in collection.groups.values()]
        texts.append(str(HTML.hover(hit, values)))
    return np.array(texts, dtype=object)


def _draw(
    figure: go.Figure,
    name: str,
    points: np.ndarray,
    hover_texts: Sequence[str] | np.ndarray,
    marker: dict[str, Any],
) -> None:
    """Draw points, (points, 2), under a name of the legend."""
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        name=name,
        marker=marker,
        hovertext=hover_texts,
        mode="markers",
        hoverinfo="text",
    )


# ---- The page


@dataclass(frozen=True)
class QueryPart:
    """The left part of the page, where the user says what to search for.

    Attributes:
        query: The text.
        button: Starts the search.
        examples: A button for each example of the collection.
        mode: What the search goes by.
        languages: The languages of the hits.
        count: The number of hits.
        language: The language of the query, for a model that needs it.
    """

    query: gr.Textbox
    button: gr.Button
    examples: list[gr.Button]
    mode: gr.Radio
    languages: gr.CheckboxGroup
    count: gr.Slider
    language: gr.Dropdown


@dataclass(frozen=True)
class MapPart:
    """The right part of the page: the map and the choice of its colors."""

    color: gr.Radio
    plot: gr.Plot


def demo_page(collection: Collection) -> gr.Blocks:
    """Build the page of a collection, to be served by `launch_page`."""
    with gr.Blocks(title="tmde demo", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HTML.header(collection, _model_name(collection)), apply_default_css=False)
        # The last search is kept to draw it again in other colors.
        last_result = gr.State(None)
        with gr.Row(elem_id="layout"):
            query_part = _build_query_part(collection)
            hits = _build_hits_part()
            map_part = _build_map_part(collection)
        _connect_search(collection, query_part, hits, map_part, last_result)
        gr.on(
            [map_part.color.change, page.load],
            fn=lambda group, result: map_figure(collection, group, result),
            inputs=[map_part.color, last_result],
            outputs=map_part.plot,
            show_progress="hidden",
            api_visibility="private",
        )
        gr.HTML(HTML.footer(collection), apply_default_css=False)
    return page


def _model_name(collection: Collection) -> str:
    """Return what the page calls the model."""
    path = str(collection.index.embedder.model.name_or_path)
    name = packaged_name(path)
    if name is not None:
        return f"the packaged model {name}"
    return Path(path).name


def _query_languages(collection: Collection) -> list[str]:
    """Return the languages of a query; none for a model that reads all languages alike."""
    embedder = collection.index.embedder
    if not embedder.needs_language:
        return []
    return list(embedder.model.config.languages)


def _build_query_part(collection: Collection) -> QueryPart:
    query_languages = _query_languages(collection)
    # Without languages of the query, the choice is hidden and its value is None.
    language_choices: list[Any] = query_languages if query_languages else [None]
    with gr.Column(elem_id="query-part", min_width=0):
        with gr.Row(elem_id="ask"):
            query = gr.Textbox(
                label="Query, in any language",
                max_lines=6,
                autofocus=True,
                elem_id="query",
                placeholder="Ask a question or paste a text",
                min_width=0,
                scale=1,
            )
            button = gr.Button("Search", variant="primary", elem_id="search", min_width=0, scale=0)
        with gr.Column(elem_id="examples", visible=bool(collection.examples)):
            gr.HTML(HTML.examples_caption(collection))
            examples = [_build_example(example) for example in collection.examples]
        with gr.Row(elem_id="options"):
            mode = gr.Radio(
                [(name.capitalize(), name) for name in MODES],
                value=MODES[0],
                label="Search by",
                elem_id="mode",
                min_width=0,
            )
            count = gr.Slider(
                1,
                50,
                # Few of the 60 passages of the sample fit a question.
                value=5 if collection.is_sample else 10,
                step=1,
                label="Hits",
                elem_id="count",
                min_width=0,
            )
            languages = gr.CheckboxGroup(
                [(code or NOTHING, code) for code in collection.languages],
                value=collection.languages,
                label="Languages of the hits",
                visible=len(collection.languages) > 1,
                elem_id="languages",
                min_width=0,
            )
            language = gr.Dropdown(
                language_choices,
                label="Query language",
                visible=bool(query_languages),
            )
    return QueryPart(query, button, examples, mode, languages, count, language)


def _build_example(example: Example) -> gr.Button:
    return gr.Button(f"{example.language}: {example.text}", size="sm")


def _build_hits_part() -> gr.HTML:
    with gr.Column(elem_id="hits-part", min_width=0):
        return gr.HTML(HTML.message(_INVITATION), elem_id="hits")


def _build_map_part(collection: Collection) -> MapPart:
    # Capitals: gradio takes some lower-case words ("label") for keys of its translations.
    colors = [(name.capitalize(), name) for name in collection.groups]
    first_group = next(iter(collection.groups), None)
    with gr.Column(elem_id="map-part", min_width=0):
        color = gr.Radio(colors, value=first_group, label="Color map by", visible=len(colors) > 1)
        plot = gr.Plot(show_label=False, container=False, elem_id="map")
        gr.HTML(HTML.note(collection, NEIGHBORS), apply_default_css=False)
    return MapPart(color, plot)


def _connect_search(
    collection: Collection,
    query_part: QueryPart,
    hits: gr.HTML,
    map_part: MapPart,
    last_result: gr.State,
) -> None:
    """Start a search by Enter, by the button and by each example."""
    searching: dict[str, Any] = {
        "fn": _make_search(collection),
        "inputs": [
            query_part.query,
            query_part.count,
            query_part.languages,
            query_part.language,
            query_part.mode,
            map_part.color,
        ],
        "outputs": [hits, map_part.plot, last_result],
        "show_progress_on": hits,
        "api_visibility": "private",
    }
    gr.on([query_part.query.submit, query_part.button.click], **searching)
    # Another way of searching shows at once.
    query_part.mode.input(**searching)
    query_languages = _query_languages(collection)
    for button, example in zip(query_part.examples, collection.examples, strict=True):
        query_language = example.language if example.language in query_languages else gr.skip()
        filled = button.click(
            _make_constant(example.text, example.hit_languages, query_language),
            None,
            [query_part.query, query_part.languages, query_part.language],
            api_visibility="private",
        )
        filled.then(**searching)


def _make_search(collection: Collection) -> Callable:
    """Return the function that gradio calls: it gives the hits, the map, and the search itself."""
    searcher = Searcher(collection)
    lock = threading.Lock()  # Threads must not share an index.

    def run(
        query: str,
        count: float,
        languages: list[str],
        language: str | None,
        mode: Mode,
        group: str | None,
    ) -> tuple:
        if not query.strip():
            # The choice between meaning and words may come before the query.
            return HTML.message(_INVITATION), gr.skip(), gr.skip()
        try:
            with lock:
                result = searcher.search(query, int(count), languages, language, mode)
        except (ValueError, RuntimeError) as error:
            return HTML.message(str(error), error=True), gr.skip(), gr.skip()
        return HTML.hits(result, collection), map_figure(collection, group, result), result

    return run


def _make_constant(*values: object) -> Callable[[], tuple]:
    """Return a function without arguments that returns the values."""
    return lambda: values


# ---- Serving it


def launch_page(page: gr.Blocks, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serve the page from a thread of its own until `page.close()`.

    Returns:
        Its address.
    """
    _bypass_proxy(host)
    # Fonts of the system: others would come from the network.
    theme = gr.themes.Default(
        primary_hue="blue",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    ).set(**_READABLE)
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        theme=theme,
        css_paths=Path(__file__).with_name("demo.css"),
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        ssr_mode=False,
        footer_links=[],
    )
    return address


def _bypass_proxy(host: str) -> None:
    """Let gradio reach its own page: it asks whether it is there, which no proxy can answer."""
    for variable in ("NO_PROXY", "no_proxy"):
        hosts = ["localhost", "127.0.0.1", host]
        if os.environ.get(variable):
            hosts.insert(0, os.environ[variable])
        os.environ[variable] = ",".join(hosts)
