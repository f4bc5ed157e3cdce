"""The map of `tmde demo` as a plotly figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from modeling_tmde.cli.demo_collection import Collection

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from modeling_tmde.cli.demo_page import Found

# Like those of eval.figures, but seen on white and on black: they are told apart by colour-blind people too.
COLOURS = ("#1f83c4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c7ae6", "#8a8f98")
SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARK = "#e11d48"  # of the query and its hits
_HOVER = (160, 56)  # characters of a text, and of a line of it


def map_figure(
    collection: Collection, group: str | None = None, found: Found | None = None, texts: Sequence[str] | None = None
) -> go.Figure:
    """The documents of a collection as points, with what was found.

    Args:
        collection: With its map.
        group: Whose values are told apart by colour; None: none.
        found: Query and hits to mark. Hits that are not on the map have no mark.
        texts: Of `hover_texts`, if they are known already.
    """
    import plotly.graph_objects as go

    places, texts = collection.map.places, hover_texts(collection) if texts is None else texts
    values = collection.groups[group] if group in collection.groups else ["documents"] * len(texts)
    figure = go.Figure(layout=_layout())
    for number, value in enumerate(sorted(set(values))):
        rows = [row for row, each in enumerate(values) if each == value]
        marker = {
            "color": COLOURS[number % len(COLOURS)], "symbol": SYMBOLS[number // len(COLOURS) % len(SYMBOLS)],
            "size": 6 if len(texts) <= 1500 else 5, "opacity": 0.75, "line": {"width": 0},
        }  # fmt: skip
        figure.add_scatter(
            x=places[rows, 0], y=places[rows, 1], mode="markers", name=_escaped(value), marker=marker,
            hovertext=[texts[row] for row in rows], hoverinfo="text",
        )  # fmt: skip
    if found is not None:
        _mark(figure, collection, found, texts)
    return figure


def _mark(figure: go.Figure, collection: Collection, found: Found, texts: Sequence[str]) -> None:
    row_of = {hit.id: row for row, hit in enumerate(collection.drawn)}
    marked = [(rank, row_of[hit.id]) for rank, hit in enumerate(found.hits, 1) if hit.id in row_of]
    if marked:
        places = collection.map.places[[row for _, row in marked]]
        figure.add_scatter(
            x=places[:, 0], y=places[:, 1], mode="markers", name="hits", hoverinfo="text",
            hovertext=[f"<b>{rank}</b> · {texts[row]}" for rank, row in marked],
            marker={"symbol": "circle-open", "size": 14, "color": _MARK, "line": {"width": 1.8}},
        )  # fmt: skip
    figure.add_scatter(
        x=[found.place[0]], y=[found.place[1]], mode="markers", name="query", hoverinfo="text",
        hovertext=[f"<b>Query</b><br>{_wrapped(found.query)}"],
        marker={"symbol": "star", "size": 16, "color": _MARK, "line": {"width": 1.5, "color": "white"}},
    )  # fmt: skip


def _layout() -> dict[str, Any]:
    axis = {"visible": False, "showgrid": False, "zeroline": False}
    return {  # as large as the page's CSS says
        "margin": {"l": 0, "r": 0, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",  # those of the page, light or dark
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": axis,
        "yaxis": axis | {"scaleanchor": "x"},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "#1f2937", "font": {"color": "white", "size": 12}},
        "showlegend": True,
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.01, "x": 0, "itemsizing": "constant"},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "uirevision": "map",  # zoom stays when colours or hits change
        "modebar": {
            "remove": ["select2d", "lasso2d", "toImage"],
            "bgcolor": "rgba(0,0,0,0)",
            "color": "#7d8797",
            "activecolor": COLOURS[0],
        },
    }


def hover_texts(collection: Collection) -> list[str]:
    """Of each drawn document its title, its beginning and its groups; escaped, as plotly reads some tags."""
    texts = []
    for row, hit in enumerate(collection.drawn):
        title = hit.metadata.get("title")
        head = f"<b>{_wrapped(str(title))}</b><br>" if title else ""
        told = [*(values[row] for values in collection.groups.values()), hit.id]
        texts.append(f"{head}{_wrapped(hit.text)}<br><i>{_escaped(' · '.join(told))}</i>")
    return texts


def _wrapped(text: str) -> str:
    from modeling_tmde.documents.index_embedding import shortened

    return "<br>".join(_escaped(line) for line in textwrap.wrap(shortened(text, _HOVER[0]), _HOVER[1]))


def _escaped(text: str) -> str:
    return escape(text, quote=False)  # plotly does not know the names of quotes
