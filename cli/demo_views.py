"""What the page of `tmde demo` says, as HTML. All that comes from documents, queries and errors is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from modeling_tmde.cli.demo_collection import Collection, language_of

if TYPE_CHECKING:
    from modeling_tmde.cli.demo_page import Found
    from modeling_tmde.documents.index_documents import Hit

_WHOLE_TEXT = 3000  # characters of a document that can be unfolded

CSS = """
.gradio-container { max-width: 1500px !important; margin: 0 auto !important; }
#layout { display: grid; gap: var(--layout-gap); align-items: start;
  grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); grid-template-rows: auto 1fr;
  grid-template-areas: "query map" "hits map"; }
#query-part { grid-area: query; }
#hits-part { grid-area: hits; }
#map-part { grid-area: map; position: sticky; top: 1rem; }
.tmde-header h1 { font-size: 1.5rem; font-weight: 650; margin: 0; letter-spacing: -0.01em; }
.tmde-header p, .tmde-note, .tmde-caption { color: var(--body-text-color-subdued); margin: 0.25rem 0 0; }
.tmde-note, .tmde-caption { font-size: 0.85rem; line-height: 1.45; }
.tmde-message { padding: 0.9rem 1rem; margin: 0; border: 1px solid var(--border-color-primary); border-radius: 8px; }
.tmde-message.tmde-error { border-color: #dc2626; border-left-width: 4px; }
#examples { gap: 0.3rem; }
#examples button { display: block; text-align: left; font-weight: 400; line-height: 1.35; padding: 0.4rem 0.7rem;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; border: 1px solid var(--border-color-primary);
  border-radius: 8px; background: transparent; }
#examples button:hover { border-color: var(--color-accent); }
.tmde-hits { width: 100%; border-collapse: collapse; font-size: 0.92rem; line-height: 1.45; }
.tmde-hits caption { text-align: left; padding: 0 0 0.4rem; color: var(--body-text-color-subdued); }
.tmde-hits th { text-align: left; font-weight: 600; font-size: 0.8rem; color: var(--body-text-color-subdued);
  padding: 0.3rem 0.9rem 0.3rem 0; border-bottom: 1px solid var(--border-color-primary); white-space: nowrap; }
.tmde-hits td { vertical-align: top; padding: 0.6rem 0.9rem 0.6rem 0; overflow-wrap: anywhere;
  border-bottom: 1px solid var(--border-color-primary); }
.tmde-hits td:last-child, .tmde-hits th:last-child { padding-right: 0; width: 100%; }
.tmde-hits .tmde-number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tmde-hits p { margin: 0; }
.tmde-title { font-weight: 600; }
.tmde-tag { display: inline-block; padding: 0 0.45rem; border-radius: 999px; font-size: 0.8rem; white-space: nowrap;
  border: 1px solid var(--border-color-primary); background: var(--background-fill-secondary); }
.tmde-more { display: flex; flex-wrap: wrap; gap: 0.4rem; align-items: baseline; margin-top: 0.35rem; }
.tmde-more details { flex: 1 1 12rem; font-size: 0.85rem; min-width: 0; }
.tmde-more summary { cursor: pointer; color: var(--body-text-color-subdued); }
.tmde-more details p { white-space: pre-wrap; padding: 0.4rem 0; }
#map [data-testid="plotly"] { height: 34rem; }
#map .js-plotly-plot text.legendtext { fill: var(--body-text-color) !important; }
#map .modebar-btn--logo { display: none; }
@media (max-width: 800px) {
  #layout { grid-template-columns: minmax(0, 1fr); grid-template-areas: "query" "hits" "map"; }
  #layout:has(.tmde-hits) { grid-template-areas: "query" "map" "hits"; }
  #map-part { position: static; }
  #map [data-testid="plotly"] { height: 26rem; }
  .tmde-hits thead { display: none; }
  .tmde-hits tr { display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--border-color-primary); }
  .tmde-hits td { border: 0; padding: 0.5rem 0.7rem 0 0; }
  .tmde-hits td:last-child { flex: 1 0 100%; padding: 0.25rem 0 0.6rem; }
}
"""


def header_view(collection: Collection) -> str:
    """What is searched, and with which model."""
    codes = [code for code in collection.languages if code is not None]
    languages = f" in {', '.join(codes)}" if codes else ""
    count = len(collection.index)
    return (
        '<header class="tmde-header"><h1>Search across languages</h1>'
        f"<p>{count:,} document{'s' * (count > 1)} of {escape(collection.name)}{escape(languages)}, embedded by "
        f"{escape(collection.model)}. A query finds documents of its meaning, whatever their language.</p></header>"
    )


def waiting_view(examples: bool) -> str:
    """In place of hits, before the first search."""
    also = " or choose an example" if examples else ""
    return f'<p class="tmde-message" role="status">Type a query{also}: the nearest documents appear here.</p>'


def failure_view(message: str) -> str:
    """In place of hits."""
    return f'<p class="tmde-message tmde-error" role="alert">{escape(message)}</p>'


def hits_view(found: Found, collection: Collection) -> str:
    """A table of the hits, best first."""
    if not found.hits:
        return '<p class="tmde-message" role="status">No document of the chosen languages was found.</p>'
    with_language = bool(collection.languages)
    heads = ["#", "Cosine", *(["Language"] if with_language else []), "Document"]
    row_heads = "".join(f'<th scope="col">{head}</th>' for head in heads)
    rows = "".join(_row(rank, hit, collection, with_language) for rank, hit in enumerate(found.hits, 1))
    told = "The nearest document." if len(found.hits) == 1 else f"The {len(found.hits)} nearest documents."
    cut = f" The query was too long: its first {collection.index.embedder.max_length:,} tokens count." * found.cut
    return (
        f'<table class="tmde-hits"><caption role="status">{told}{cut}</caption>'
        f"<thead><tr>{row_heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(rank: int, hit: Hit, collection: Collection, with_language: bool) -> str:
    code = language_of(hit)
    tag = f'<span class="tmde-tag">{escape(code)}</span>' if code else ""
    language = f"<td>{tag}</td>" if with_language else ""
    told = f' lang="{escape(code)}"' if code else ""
    title = hit.metadata.get("title")
    title = f'<p class="tmde-title"{told}>{escape(str(title))}</p>' if title else ""
    labels = "".join(
        f'<span class="tmde-tag">{escape(str(hit.metadata[name]))}</span>'
        for name in collection.groups
        if name != "language" and hit.metadata.get(name) is not None
    )
    text = hit.text if len(hit.text) <= _WHOLE_TEXT else hit.text[:_WHOLE_TEXT] + " …"
    return (
        f'<tr><td class="tmde-number">{rank}</td><td class="tmde-number">{hit.score:.3f}</td>{language}'
        f'<td>{title}<p{told}>{escape(hit.snippet)}</p><div class="tmde-more">{labels}'
        f"<details><summary>Whole document ({escape(hit.id)})</summary><p{told}>{escape(text)}</p></details>"
        "</div></td></tr>"
    )


def map_note(collection: Collection) -> str:
    """How the map is made, and what it does not show."""
    from modeling_tmde.documents.collection_map import NEIGHBOURS

    drawn, count = len(collection.drawn), len(collection.index)
    share = f"{drawn:,} of {count:,} documents, chosen at random" if drawn < count else "all documents"
    method = "t-SNE" if collection.map.method == "tsne" else "their first two principal components"
    neighbours = f"the {min(NEIGHBOURS, drawn)} documents on the map that are nearest to it"
    return (
        f'<p class="tmde-note">The map shows {share}, by {method}: what is near in it is mostly near in the space of '
        "the vectors, but distances between groups mean little; the ranks are those of the cosines. A query stands "
        f"among {neighbours} (at the mean of their places, weighted by their cosines); hits have rings. "
        "Hover over a point to read it, drag to zoom, double-click to zoom out, click on a name to hide its "
        "points.</p>"
    )
