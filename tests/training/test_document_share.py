"""A share of the documents: whole ones, in their order, the smaller share within the larger."""

import datasets
import pytest

from modeling_tmde import TmdeError
from tmde.training.document_share import draw_share

DOCUMENTS = 400


def corpus(ids: list[str | None]) -> datasets.Dataset:
    """A row for each id, with its number as text."""
    texts = [{"de": f"de {number}", "en": f"en {number}"} for number in range(len(ids))]
    features = datasets.Features(
        {
            "translation": {"de": datasets.Value("string"), "en": datasets.Value("string")},
            "doc_id": datasets.Value("string"),
        }
    )
    return datasets.Dataset.from_dict({"translation": texts, "doc_id": ids}, features=features)


def numbers(rows: datasets.Dataset) -> list[int]:
    return [int(row["de"].removeprefix("de ")) for row in rows["translation"][:]]


def test_documents_are_drawn_whole_and_stay_in_order():
    ids = [f"document {number % DOCUMENTS}" for number in range(3 * DOCUMENTS)]
    drawn = numbers(draw_share(corpus(ids), 0.25))
    assert drawn == sorted(drawn)
    rows_of_documents: dict[str, int] = {}
    for number in drawn:
        rows_of_documents[ids[number]] = rows_of_documents.get(ids[number], 0) + 1
    assert set(rows_of_documents.values()) == {3}
    # 100 of 400 are expected, and four standard deviations are 35.
    assert 65 < len(rows_of_documents) < 135


def test_rows_without_a_document_are_drawn_one_by_one():
    ids = ["long"] * 400 + [None] * 400
    drawn = numbers(draw_share(corpus(ids), 0.25))
    assert sum(number < 400 for number in drawn) in (0, 400)
    assert 65 < sum(number >= 400 for number in drawn) < 135
    without_ids = corpus(ids).remove_columns("doc_id")
    assert 130 < len(draw_share(without_ids, 0.25)) < 270


def test_a_smaller_share_is_a_part_of_a_larger_one():
    rows = corpus([f"document {number // 2}" for number in range(DOCUMENTS)])
    shares = [set(numbers(draw_share(rows, share))) for share in (0.1, 0.5, 1.0)]
    assert shares[0] < shares[1] < shares[2]
    assert len(shares[2]) == DOCUMENTS


def test_every_draw_is_the_same():
    rows = corpus([f"document {number // 2}" for number in range(DOCUMENTS)])
    assert numbers(draw_share(rows, 0.5)) == numbers(draw_share(rows, 0.5))


def test_no_document_is_refused():
    message = "train_share=1e-09: no document of 2 rows was drawn.*larger share"
    with pytest.raises(TmdeError, match=message):
        draw_share(corpus(["a", "b"]), 1e-9)
