"""Draw the pictures of docs/concepts/ and docs/architecture.md as SVG files.

    python docs/figures/draw_concepts.py            # writes docs/figures/concept_*.svg

The background is transparent. All colors are of medium lightness, so that a picture can be read on
a white page and on a dark one, whatever the system's own setting is. A picture is 560 units wide
and its text 17 or more, which leaves 11 pixels on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
WIDTH = 560
TEXT_SIZE = 17

# White text can be read on these fills, and the fills stand out from white and from #1e2129.
BLUE = "#3b6fd4"
GREEN = "#2a7f62"
ORANGE = "#b85c1e"
PURPLE = "#7c57c2"
GRAY = "#6b7280"
# Text and lines without a fill behind them. Its contrast is about 4:1 on both backgrounds.
INK = "#7d828b"


class Drawing:
    """An SVG picture to which shapes are added, the first at the bottom.

    Args:
        title: What the picture shows, for screen readers.
        height: The height in units; the width is `WIDTH`.
    """

    def __init__(self, title: str, height: float):
        self.title = title
        self.height = height
        self.shapes: list[str] = []
        self.arrow_colors: list[str] = []

    def add(self, name: str, content: str | None = None, **attributes: float | str) -> None:
        """Add an element; `_` in the name of an attribute stands for `-`."""
        parts = [name]
        for key, value in attributes.items():
            parts.append(f'{key.replace("_", "-")}="{_number(value)}"')
        opening = " ".join(parts)
        if content is None:
            self.shapes.append(f"<{opening}/>")
        else:
            self.shapes.append(f"<{opening}>{escape(content, quote=False)}</{name}>")

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        color: str = INK,
        anchor: str = "middle",
        size: float = TEXT_SIZE,
        weight: int = 600,
    ) -> None:
        """Write a line of text whose vertical middle is at `y`."""
        self.add(
            "text",
            content,
            x=x,
            y=y + 0.35 * size,
            fill=color,
            text_anchor=anchor,
            font_size=size,
            font_weight=weight,
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        content: str = "",
        *,
        fill: str = GRAY,
        size: float = TEXT_SIZE,
        opacity: float = 1.0,
    ) -> None:
        """Draw a filled box with a line of white text in its middle."""
        self.add(
            "rect", x=x, y=y, width=width, height=height, rx=6, fill=fill, fill_opacity=opacity
        )
        if content:
            self.text(x + width / 2, y + height / 2, content, color="#ffffff", size=size)

    def frame(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        color: str = INK,
        dash: str = "6 5",
    ) -> None:
        """Draw a dashed frame."""
        self.add(
            "rect",
            x=x,
            y=y,
            width=width,
            height=height,
            rx=10,
            fill="none",
            stroke=color,
            stroke_width=2,
            stroke_dasharray=dash,
        )

    def circle(
        self,
        x: float,
        y: float,
        radius: float,
        *,
        fill: str = "none",
        stroke: str = "none",
        dash: str = "none",
        opacity: float = 1.0,
    ) -> None:
        """Draw a disc, a ring, or both."""
        self.add(
            "circle",
            cx=x,
            cy=y,
            r=radius,
            fill=fill,
            fill_opacity=opacity,
            stroke=stroke,
            stroke_width=2,
            stroke_dasharray=dash,
        )

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        color: str = INK,
        head: bool = False,
        dash: str = "none",
        width: float = 2.5,
    ) -> None:
        """Draw a line, with an arrow head at its end if `head` is set."""
        attributes: dict[str, float | str] = {}
        if head:
            if color not in self.arrow_colors:
                self.arrow_colors.append(color)
            attributes["marker_end"] = f"url(#head-{color[1:]})"
        self.add(
            "line",
            x1=start[0],
            y1=start[1],
            x2=end[0],
            y2=end[1],
            stroke=color,
            stroke_width=width,
            stroke_dasharray=dash,
            **attributes,
        )

    def polygon(self, points: Sequence[tuple[float, float]], *, fill: str) -> None:
        """Draw a filled polygon."""
        corners = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self.add("polygon", points=corners, fill=fill)

    def svg(self) -> str:
        """Return the file."""
        heads = ""
        for color in self.arrow_colors:
            heads += (
                f'<marker id="head-{color[1:]}" viewBox="0 0 10 10" refX="8" refY="5" '
                'markerWidth="5" markerHeight="5" orient="auto-start-reverse">'
                f'<path d="M0 0L10 5L0 10z" fill="{color}"/></marker>\n'
            )
        definitions = f"<defs>\n{heads}</defs>\n" if heads else ""
        height = _number(self.height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="Roboto, Helvetica, Arial, sans-serif">\n'
            f"<title>{escape(self.title, quote=False)}</title>\n"
            f"{definitions}" + "\n".join(self.shapes) + "\n</svg>\n"
        )


def _number(value: float | str) -> str:
    """Write a number with at most two decimals; a string stays as it is."""
    if isinstance(value, str):
        return value
    return f"{round(value, 2):g}"


# ---- The pictures


def draw_overview() -> Drawing:
    """Draw texts of several languages that become points of one space."""
    drawing = Drawing("Texts of several languages become vectors of one space", 370)
    texts = [
        ("Die Brücke ist zu.", BLUE),
        ("The bridge is shut.", BLUE),
        ("Le pont est fermé.", BLUE),
        ("Das Brot ist frisch.", ORANGE),
        ("The bread is fresh.", ORANGE),
    ]
    for row, (text, color) in enumerate(texts):
        top = 38 + 48 * row
        drawing.box(0, top, 214, 38, text, fill=color, size=17)
        drawing.line((216, top + 19), (244, 153), color=INK)
    drawing.text(107, 18, "documents")
    drawing.box(246, 118, 104, 70, fill=GREEN)
    drawing.text(298, 142, "document", color="#ffffff")
    drawing.text(298, 164, "embedder", color="#ffffff")
    drawing.line((352, 153), (378, 153), head=True)
    drawing.text(470, 18, "one vector space")
    drawing.frame(382, 38, 176, 230)
    for x, y in [(430, 96), (452, 84), (446, 112)]:
        drawing.circle(x, y, 8, fill=BLUE)
    for x, y in [(502, 214), (518, 196)]:
        drawing.circle(x, y, 8, fill=ORANGE)
    drawing.line((462, 118), (494, 188), dash="3 5")
    drawing.text(440, 140, "near", size=17)
    drawing.text(466, 172, "far", anchor="end", size=17)
    drawing.text(510, 246, "near", size=17)
    drawing.text(280, 296, "what such vectors are used for")
    for column, use in enumerate(["search", "classify", "align", "deduplicate"]):
        drawing.box(142 * column, 318, 132, 40, use, fill=GRAY)
    return drawing


def draw_bag() -> Drawing:
    """Draw how weighted token vectors become the vector of a text."""
    drawing = Drawing(
        "A bag: token vectors, times their weights, summed and scaled to length 1", 470
    )
    sentences = ["the dog bites the man", "the man bites the dog"]
    for row, sentence in enumerate(sentences):
        left = 30.0
        for token in sentence.split():
            width = 44 + 12 * len(token)
            color = GRAY if token == "the" else BLUE
            drawing.box(left, 2 + 46 * row, width, 36, token, fill=color)
            left += width + 8
    drawing.line((280, 92), (280, 116), head=True)
    drawing.text(46, 138, "token", size=17)
    drawing.text(138, 138, "count", size=17)
    drawing.text(246, 138, "weight", size=17)
    drawing.text(440, 138, "vector", size=17)
    table = [
        ("the", "√2", 0.06, [0.5, -0.4, 0.3, 0.5, -0.2, 0.4, 0.3, -0.5]),
        ("dog", "1", 0.9, [0.9, 0.1, -0.6, 0.2, 0.7, -0.3, 0.1, 0.4]),
        ("bites", "1", 0.95, [-0.2, 0.8, 0.1, -0.7, 0.3, 0.6, -0.4, 0.2]),
        ("man", "1", 0.7, [0.3, -0.5, 0.9, 0.4, -0.1, 0.2, 0.8, -0.6]),
    ]
    total = [0.0] * 8
    for row, (token, count, weight, vector) in enumerate(table):
        top = 156 + 50 * row
        color = GRAY if token == "the" else BLUE
        drawing.box(0, top, 92, 36, token, fill=color)
        drawing.text(138, top + 18, count)
        drawing.text(176, top + 18, "×")
        drawing.box(196, top + 8, 100, 20, fill=INK, opacity=0.25)
        drawing.box(196, top + 8, 100 * weight, 20, fill=ORANGE)
        drawing.text(316, top + 18, "×")
        _draw_vector(drawing, 336, top, vector)
        factor = math.sqrt(2) if count == "√2" else 1.0
        total = [old + factor * weight * new for old, new in zip(total, vector, strict=True)]
    drawing.line((336, 360), (552, 360))
    drawing.text(306, 360, "sum")
    drawing.line((444, 366), (444, 392), head=True)
    length = math.sqrt(sum(value * value for value in total))
    _draw_vector(drawing, 336, 398, [value / length * 1.6 for value in total])
    drawing.text(322, 416, "scaled to length 1", anchor="end")
    drawing.text(280, 456, "Both sentences have this vector.")
    return drawing


def _draw_vector(drawing: Drawing, x: float, y: float, values: Sequence[float]) -> None:
    """Draw a vector as cells: purple above zero, green below, stronger if larger."""
    for column, value in enumerate(values):
        color = PURPLE if value > 0 else GREEN
        opacity = min(1.0, 0.15 + abs(value))
        drawing.add(
            "rect",
            x=x + 27 * column,
            y=y,
            width=25,
            height=36,
            rx=3,
            fill=color,
            fill_opacity=opacity,
        )


def draw_tmde() -> Drawing:
    """Draw the encoder, the one vector that leaves it, and the decoder."""
    drawing = Drawing("T-MDE: the decoder sees one vector of the encoder, and the language", 436)
    drawing.text(138, 14, "encoder")
    drawing.text(494, 14, "decoder")
    drawing.text(167, 64, "not passed on")
    for column, token in enumerate(["<s>", "das", "haus", "ist", "alt"]):
        x = 56 * column
        is_first = column == 0
        color = ORANGE if is_first else GRAY
        drawing.circle(x + 26, 98, 20, fill=color, opacity=1.0 if is_first else 0.45)
        drawing.line((x + 26, 150), (x + 26, 122), head=True)
        drawing.line((x + 26, 352), (x + 26, 308), head=True)
        drawing.box(x, 354, 52, 36, token, fill=color)
    drawing.text(26, 98, "P", color="#ffffff", size=20)
    for layer, content in enumerate(["transformer layer", "…", "transformer layer"]):
        drawing.box(0, 154 + 50 * layer, 276, 42, content, fill=BLUE)
    drawing.text(138, 414, "source, any language")

    path = "M26 76V54Q26 42 38 42H342Q354 42 354 54V140"
    drawing.add("path", d=path, fill="none", stroke=ORANGE, stroke_width=4)
    drawing.polygon([(344, 136), (364, 136), (354, 152)], fill=ORANGE)
    drawing.box(308, 154, 92, 44, "P", fill=ORANGE, size=20)
    drawing.box(308, 204, 92, 44, "es", fill=PURPLE)
    drawing.text(354, 270, "the slot:")
    drawing.text(354, 292, "all it sees")
    drawing.line((402, 201), (426, 201), head=True)
    drawing.box(430, 154, 128, 94, fill=GREEN)
    drawing.text(494, 190, "transformer", color="#ffffff")
    drawing.text(494, 212, "layer", color="#ffffff")
    drawing.line((494, 150), (494, 122), head=True)
    drawing.box(430, 78, 128, 40, "la casa es …", fill=GRAY)
    drawing.line((494, 352), (494, 252), head=True)
    drawing.box(430, 354, 128, 36, "<s> la casa", fill=GRAY)
    drawing.text(494, 414, "target so far")
    return drawing


def draw_variants() -> Drawing:
    """Draw what the decoder sees in the four variants."""
    drawing = Drawing("What the decoder sees in the variants first, pyramid, full and dual", 560)
    panels: list[tuple[str, Callable[[Drawing, float, float], None]]] = [
        ("first: T-MDE", _draw_first),
        ("pyramid: T-MDE_P", _draw_pyramid),
        ("full: T-MDE_F", _draw_full),
        ("dual: dbT-MDE", _draw_dual),
    ]
    for number, (name, draw_panel) in enumerate(panels):
        x = 288 * (number % 2)
        y = 284 * (number // 2)
        drawing.frame(x + 1, y + 1, 270, 270)
        drawing.text(x + 136, y + 24, name)
        drawing.box(x + 66, y + 46, 140, 40, "decoder", fill=GREEN)
        draw_panel(drawing, x, y)
    return drawing


def _draw_states(drawing: Drawing, x: float, y: float, is_seen: bool) -> None:
    """Draw the outputs of the encoder; the first one is P."""
    for column in range(5):
        color = ORANGE if column == 0 else BLUE
        opacity = 1.0 if column == 0 or is_seen else 0.4
        drawing.circle(x + 36 + 50 * column, y + 190, 16, fill=color, opacity=opacity)
    drawing.box(x + 16, y + 222, 240, 36, "encoder", fill=BLUE)


def _draw_first(drawing: Drawing, x: float, y: float) -> None:
    drawing.line((x + 42, y + 172), (x + 112, y + 92), color=ORANGE, head=True, width=4)
    _draw_states(drawing, x, y, is_seen=False)
    drawing.text(x + 36, y + 190, "P", color="#ffffff")


def _draw_pyramid(drawing: Drawing, x: float, y: float) -> None:
    drawing.line((x + 36, y + 190), (x + 96, y + 132), color=ORANGE)
    drawing.line((x + 180, y + 138), (x + 96, y + 132), color=PURPLE)
    drawing.line((x + 96, y + 112), (x + 96, y + 92), color=ORANGE, head=True, width=4)
    drawing.circle(x + 96, y + 132, 16, fill=ORANGE)
    drawing.text(x + 96, y + 132, "P", color="#ffffff")
    drawing.circle(x + 36, y + 190, 16, fill=ORANGE)
    for level, count in enumerate(["32", "16", "8"]):
        width = 136 - 40 * level
        drawing.box(x + 190 - width / 2, y + 186 - 28 * level, width, 26, count, fill=PURPLE)
    drawing.box(x + 16, y + 222, 240, 36, "encoder", fill=BLUE)


def _draw_full(drawing: Drawing, x: float, y: float) -> None:
    for column in range(5):
        start = (x + 36 + 50 * column, y + 172)
        drawing.line(start, (x + 96 + 20 * column, y + 92), color=BLUE, head=True)
    _draw_states(drawing, x, y, is_seen=True)
    drawing.text(x + 36, y + 190, "P", color="#ffffff")


def _draw_dual(drawing: Drawing, x: float, y: float) -> None:
    for column in range(5):
        start = (x + 36 + 50 * column, y + 172)
        drawing.line(start, (x + 106 + 20 * column, y + 92), color=BLUE, head=True)
    drawing.line((x + 30, y + 172), (x + 78, y + 92), color=ORANGE, head=True, width=4)
    _draw_states(drawing, x, y, is_seen=True)
    drawing.text(x + 36, y + 190, "P", color="#ffffff")


def draw_distance() -> Drawing:
    """Draw which negatives the distance constraint pushes away."""
    drawing = Drawing("The distance constraint: which negatives cost something", 470)
    x, y = 200, 184
    near, margin = 70, 108
    drawing.circle(x, y, near + margin, fill=ORANGE, opacity=0.14, stroke=ORANGE, dash="7 5")
    drawing.circle(x, y, near, stroke=BLUE, dash="7 5")
    drawing.line((x, y), (x + near, y), color=BLUE, width=3)
    drawing.line((x + near, y), (x + near + margin, y), color=ORANGE, width=3)
    drawing.text(x + 36, y - 18, "d_p")
    drawing.text(x + near + 52, y - 18, "margin α")
    drawing.circle(x, y, 12, fill=BLUE)
    drawing.text(x - 20, y + 20, "P_a")
    drawing.circle(x + near, y, 12, fill=BLUE)
    drawing.text(x + near + 16, y + 26, "P_b", anchor="start")
    for dx, dy in [(-42, -34), (-66, 88), (40, -118)]:
        drawing.circle(x + dx, y + dy, 11, fill=ORANGE)
        length = math.hypot(dx, dy)
        push = 48
        start = (x + dx * (1 + 15 / length), y + dy * (1 + 15 / length))
        end = (x + dx * (1 + push / length), y + dy * (1 + push / length))
        drawing.line(start, end, color=ORANGE, head=True, width=3)
    for dx, dy in [(220, -140), (214, 122), (-188, -152)]:
        drawing.circle(x + dx, y + dy, 11, fill=GRAY)
    drawing.circle(16, 386, 10, fill=BLUE)
    drawing.text(36, 386, "a sentence and its translation: pulled together", anchor="start")
    drawing.circle(16, 416, 10, fill=ORANGE)
    drawing.text(36, 416, "a negative inside the margin: pushed out", anchor="start")
    drawing.circle(16, 446, 10, fill=GRAY)
    drawing.text(36, 446, "a negative outside: costs nothing", anchor="start")
    return drawing


def draw_same_cross() -> Drawing:
    """Draw the cells of a cross-lingual classification."""
    drawing = Drawing("Languages of the labels and of the test: Same and Cross", 450)
    languages = ["de", "en", "es", "fr", "it"]
    drawing.text(264, 14, "tested in")
    drawing.text(0, 44, "labels in", anchor="start")
    for row, source in enumerate(languages):
        drawing.text(46, 84 + 62 * row, source)
        drawing.text(134 + 84 * row, 44, source)
        for column, target in enumerate(languages):
            is_same = source == target
            drawing.box(
                96 + 84 * column,
                60 + 62 * row,
                76,
                50,
                "Same" if is_same else "Cross",
                fill=BLUE if is_same else ORANGE,
                opacity=1.0 if is_same else 0.95,
            )
    drawing.text(0, 398, "Same: mean of the blue cells, one language", anchor="start")
    drawing.text(0, 428, "Cross: mean of the orange cells, two languages", anchor="start")
    return drawing


def draw_pivots() -> Drawing:
    """Draw the translation directions of five languages with two pivots."""
    drawing = Drawing("Five languages, two pivots: what is trained and what follows", 420)
    places = {"de": (70, 60), "fr": (70, 180), "it": (70, 300), "en": (380, 110), "es": (380, 250)}
    colors = {"en": GREEN, "es": PURPLE}
    for source in ("de", "fr", "it"):
        for target in ("en", "es"):
            start, end = _between(places[source], places[target], 32, 42)
            drawing.line(start, end, color=colors[target], head=True)
    drawing.line((370, 152), (370, 206), color=PURPLE, head=True)
    drawing.line((390, 208), (390, 154), color=GREEN, head=True)
    drawing.line((70, 92), (70, 148), dash="5 5")
    drawing.line((70, 212), (70, 268), dash="5 5")
    for code, (x, y) in places.items():
        is_pivot = code in colors
        drawing.circle(x, y, 38 if is_pivot else 30, fill=colors.get(code, BLUE))
        drawing.text(x, y, code, color="#ffffff", size=20)
    drawing.text(430, 110, "pivot", anchor="start")
    drawing.text(430, 250, "pivot", anchor="start")
    drawing.line((4, 368), (56, 368), head=True)
    drawing.text(70, 368, "trained: each language into each other pivot", anchor="start")
    drawing.line((4, 400), (56, 400), dash="5 5")
    drawing.text(70, 400, "never translated into each other, yet near", anchor="start")
    return drawing


def _between(
    start: tuple[float, float], end: tuple[float, float], start_gap: float, end_gap: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ends of a line between two circles."""
    dx = end[0] - start[0]
    dy = end[1] - start[1]
    length = math.hypot(dx, dy)
    first = (start[0] + dx * start_gap / length, start[1] + dy * start_gap / length)
    last = (end[0] - dx * end_gap / length, end[1] - dy * end_gap / length)
    return first, last


def draw_folders() -> Drawing:
    """Draw the folders and who imports whom."""
    drawing = Drawing("The folders of tmde; an arrow means: imports", 748)
    folders = [
        ("tmde/", "the names that users import", GRAY),
        ("cli/", "the command tmde", GREEN),
        ("papers/", "comparisons, claims, tables", GREEN),
        ("training/", "recipes, starts, losses, trainer", GREEN),
        ("eval/", "tasks, protocols, statistics", GREEN),
        ("documents/", "search, alignment, mining", BLUE),
        ("data/", "parallel rows, documents, tokens", BLUE),
        ("embedding/", "DocumentEmbedder, exports", BLUE),
        ("modeling_tmde/", "the models that AutoModel opens", ORANGE),
    ]
    for row, (name, content, color) in enumerate(folders):
        top = 80 * row
        drawing.box(0, top, 360, 54, fill=color)
        drawing.text(180, top + 17, name, color="#ffffff", weight=700)
        drawing.text(180, top + 38, content, color="#ffffff", weight=400)
        if row:
            drawing.line((180, top - 24), (180, top - 3), head=True)
    drawing.box(430, 160, 128, 54, fill=PURPLE)
    drawing.text(494, 177, "hub_cards/", color="#ffffff", weight=700)
    drawing.text(494, 198, "model cards", color="#ffffff", weight=400)
    drawing.line((362, 107), (426, 172), head=True)
    drawing.line((362, 267), (426, 202), head=True)
    drawing.add(
        "path", d="M494 216V575Q494 587 482 587H370", fill="none", stroke=INK, stroke_width=2.5
    )
    drawing.polygon([(372, 581), (372, 593), (362, 587)], fill=INK)
    drawing.text(280, 726, "An arrow means: imports. None points upward.")
    return drawing


PICTURES: dict[str, Callable[[], Drawing]] = {
    "concept_overview": draw_overview,
    "concept_bag": draw_bag,
    "concept_tmde": draw_tmde,
    "concept_variants": draw_variants,
    "concept_distance": draw_distance,
    "concept_same_cross": draw_same_cross,
    "concept_pivots": draw_pivots,
    "concept_folders": draw_folders,
}


def main() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), "utf-8")


if __name__ == "__main__":
    main()
