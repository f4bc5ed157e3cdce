"""The data of a run that adds languages: which rows, how many of each kind, and what is refused."""

from collections import Counter

import pytest

from tests.conftest import make_dataset
from tests.training.added_language_helpers import NEW, OLD, greek_rows, write_rows
from tmde.training.batches import ParallelBatches
from tmde.training.recipe import load_recipe, with_sections
from tmde.training.run_data import load_data
from tmde.training.starts.replay import mix_rows

ROWS = greek_rows(40, seed=1, languages=("en", NEW)) + greek_rows(20, seed=2)


def recipe_with(new, replay=None, share=0.5, name="bag", **data):
    train = {"new": new, "new_languages": [NEW], "replay": replay, "replay_share": share}
    languages = {"languages": [*OLD, NEW], "pivot_languages": ["en"]}
    section = {"train": train, **languages, "dev_rows": 0, **data}
    return with_sections(load_recipe(name), data=section)


def texts_of(rows) -> list[tuple[tuple[str, str], ...]]:
    """Of each row the languages and texts that it has."""
    return [
        tuple((code, text) for code, text in sorted(row.items()) if text)
        for row in rows["translation"][:]
    ]


@pytest.fixture
def sources(tmp_path):
    return write_rows(tmp_path / "new.parquet", ROWS), write_rows(
        tmp_path / "old.parquet", greek_rows(50, 3, OLD)
    )


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_batches_have_the_stated_share_of_old_rows(share, sources, tokenizer):
    """Counted in the batches that are trained, whichever languages are drawn of a row."""
    train, _, report = load_data(recipe_with(*sources, share=share))
    batches = ParallelBatches(
        train, tokenizer, [*OLD, NEW], ["en"], pivots_only=False, buffer_rows=10_000, seed=9
    )
    counts = Counter()
    for batch in batches:
        counts["new" if NEW in batch.languages else "old"] += batch.sizes.rows
    assert counts["old"] / counts.total() == pytest.approx(share, abs=1 / counts.total())
    assert report.rows == 110


def test_every_pair_with_the_new_language_is_there_and_no_other(sources):
    train, _, _ = load_data(recipe_with(*sources))
    new, old = (
        [row for row in texts_of(train) if (NEW in dict(row)) == kind] for kind in (True, False)
    )
    assert set(new) == {
        tuple(sorted([(code, row[code]), (NEW, row[NEW])]))
        for row in ROWS
        for code in OLD
        if row[code]
    }
    assert set(old) == {tuple((code, row[code]) for code in OLD) for row in greek_rows(50, 3, OLD)}
    assert len(new) == len(old) == 100  # 40 and 3 times 20, and twice 50


def test_with_objectives_that_translate_pairs_have_a_pivot(sources):
    train, _, _ = load_data(recipe_with(*sources, name="quickstart"))
    assert {frozenset(dict(row)) for row in texts_of(train)} == {
        frozenset(("en", NEW)),
        frozenset(OLD),
    }


def test_without_replay_the_old_pairs_of_the_new_rows_count_as_old(sources):
    train, _, _ = load_data(recipe_with(sources[0]))
    old = [row for row in texts_of(train) if NEW not in dict(row)]
    assert set(old) == {tuple((code, row[code]) for code in OLD) for row in greek_rows(20, seed=2)}
    assert len(old) == len(train) / 2


def test_the_smaller_side_is_repeated_evenly():
    new, old = (
        make_dataset([{"a": f"{side}{i}", "b": "x"} for i in range(n)])
        for side, n in (("n", 7), ("o", 30))
    )
    for share, expected in ((0.75, (10, 30)), (0.9, (7, 63)), (0.0, (7, 0))):
        counts = Counter(row["a"] for row in mix_rows(new, old, share)["translation"][:])
        sides = [[count for name, count in counts.items() if name[0] == side] for side in "no"]
        assert tuple(map(sum, sides)) == expected
        assert all(max(side) - min(side) <= 1 for side in sides if side)


@pytest.mark.parametrize("overlapping", [False, True])
def test_no_text_is_trained_that_is_held_out(overlapping, tmp_path):
    """Rows of many languages are new ones and, without Greek, old ones too."""
    rows = greek_rows(200, seed=1)
    new = write_rows(tmp_path / "new.parquet", rows)
    replay = None
    if overlapping:
        new = write_rows(
            tmp_path / "pairs.parquet", [{**row, "de": None, "es": None} for row in rows[:120]]
        )
        replay = write_rows(tmp_path / "old.parquet", [{**row, NEW: None} for row in rows])
    train, dev, _ = load_data(recipe_with(new, replay, share=0.3, dev_rows=20))
    held = {text for row in texts_of(dev["dev"]) for text in row}
    trained = {text for row in texts_of(train) for text in row}
    assert held.isdisjoint(trained)
    numbers = [
        sum((NEW in dict(row)) == kind for row in texts_of(dev["dev"])) for kind in (True, False)
    ]
    assert numbers == [12 if overlapping else 14, 6]
    everything = {
        (code, row[code]) for row in rows[: 120 if overlapping else 200] for code in ("en", NEW)
    }
    english = {text for code, text in held if code == "en"}
    expected = {
        pair
        for row in rows
        for pair in row.items()
        if pair in everything and row["en"] not in english
    }
    assert {
        pair for pair in trained if pair in everything
    } == expected  # and no other row is left out


def test_dev_sets_need_not_have_all_languages(sources):
    _, found, _ = load_data(recipe_with(*sources, dev={"old": sources[1], "new": sources[0]}))
    assert {name: len(rows) for name, rows in found.items()} == {"old": 50, "new": 60}


@pytest.mark.parametrize(
    ("languages", "name", "message"),
    [
        (
            OLD,
            "bag",
            "el: found it in rows with nothing, expected rows that pair it with de or en or es",
        ),
        (
            ("de", NEW),
            "quickstart",
            "el: found it in rows with de, expected .* pair it with en; or make it a pivot",
        ),
    ],
)
def test_new_languages_that_nothing_ties_to_the_old_are_refused(languages, name, message, tmp_path):
    path = write_rows(tmp_path / "rows.parquet", greek_rows(20, 1, languages))
    with pytest.raises(ValueError, match=message):
        load_data(recipe_with(path, name=name))
    same = [{"de": None, "en": "the same", "es": None, NEW: f"{number}"} for number in range(30)]
    with pytest.raises(ValueError, match="dev_rows=10: found 30 rows with a new language"):
        load_data(recipe_with(write_rows(tmp_path / "same.parquet", same), dev_rows=10))
