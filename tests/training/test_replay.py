"""The data of a run that adds languages: which rows, how many of each kind, and what is refused."""

from collections import Counter

import pytest

from tests.conftest import make_dataset
from tests.training.added_language_helpers import NEW, OLD, greek_rows, write_rows
from tests.training.batches import parallel_batches
from tmde.training.recipe import load_recipe, with_sections
from tmde.training.run_data import load_data
from tmde.training.starts.replay import mix_rows

ROWS = greek_rows(40, seed=1, languages=("en", NEW)) + greek_rows(20, seed=2)


def recipe_with(new, replay=None, share=0.5, name="bag", **data):
    train = {"new": new, "new_languages": [NEW], "replay": replay, "replay_share": share}
    languages = {"languages": [*OLD, NEW], "pivot_languages": ["en"]}
    section = {"train": train, **languages, "dev_rows": 0, **data}
    return with_sections(load_recipe(name), data=section)


def pairs_of(row: dict, languages=(*OLD, NEW)) -> frozenset[tuple[str, str]]:
    """Return the (language, text) pairs of the texts that a row has in some languages."""
    return frozenset((language, row[language]) for language in languages if row.get(language))


def texts_of(rows) -> list[frozenset[tuple[str, str]]]:
    """Return of each row the languages and texts that it has."""
    return list(map(pairs_of, rows["translation"]))


def all_texts_of(rows) -> set[tuple[str, str]]:
    """Return the languages and texts of all rows."""
    return set().union(*texts_of(rows))


def new_and_old(rows) -> tuple[list[frozenset], list[frozenset]]:
    """Return the texts of rows with and without the new language."""
    new_rows = []
    old_rows = []
    for row in texts_of(rows):
        if NEW in dict(row):
            new_rows.append(row)
        else:
            old_rows.append(row)
    return new_rows, old_rows


OLD_ROWS = greek_rows(50, 3, OLD)


@pytest.fixture
def sources(tmp_path):
    new_path = write_rows(tmp_path / "new.parquet", ROWS)
    old_path = write_rows(tmp_path / "old.parquet", OLD_ROWS)
    return new_path, old_path


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_batches_have_the_stated_share_of_old_rows(share, sources, tokenizer):
    """The share is that of the batches, whichever languages are drawn of a row."""
    train, _, report = load_data(recipe_with(*sources, share=share))
    batches = parallel_batches(
        train, tokenizer, [*OLD, NEW], ["en"], pivots_only=False, buffer_rows=10_000, seed=9
    )
    counts = Counter()
    for batch in batches:
        counts["new" if NEW in batch.languages else "old"] += batch.sizes.rows
    assert counts["old"] / counts.total() == pytest.approx(share, abs=1 / counts.total())
    assert report.rows == 110


def test_every_pair_with_the_new_language_is_there_and_no_other(sources):
    train, _, _ = load_data(recipe_with(*sources))
    new_rows, old_rows = new_and_old(train)
    expected = set()
    for row in ROWS:
        for language in OLD:
            if row[language]:
                expected.add(pairs_of(row, (language, NEW)))
    assert set(new_rows) == expected
    assert set(old_rows) == set(map(pairs_of, OLD_ROWS))
    assert len(new_rows) == 40 + 3 * 20
    assert len(old_rows) == 2 * 50


def test_with_objectives_that_translate_pairs_have_a_pivot(sources):
    train, _, _ = load_data(recipe_with(*sources, name="quickstart"))
    language_sets = {frozenset(dict(row)) for row in texts_of(train)}
    assert language_sets == {frozenset(("en", NEW)), frozenset(OLD)}


def test_without_replay_the_old_pairs_of_the_new_rows_count_as_old(sources):
    train, _, _ = load_data(recipe_with(sources[0]))
    _, old_rows = new_and_old(train)
    assert set(old_rows) == {pairs_of(row, OLD) for row in greek_rows(20, seed=2)}
    assert len(old_rows) == len(train) / 2


@pytest.mark.parametrize(
    ("share", "num_new", "num_old"), [(0.75, 10, 30), (0.9, 7, 63), (0.0, 7, 0)]
)
def test_the_smaller_side_is_repeated_evenly(share, num_new, num_old):
    new = make_dataset([{"a": f"new {number}", "b": "x"} for number in range(7)])
    old = make_dataset([{"a": f"old {number}", "b": "x"} for number in range(30)])

    mixed = mix_rows(new, old, share)

    counts = {"new": Counter(), "old": Counter()}
    for row in mixed["translation"]:
        side, number = row["a"].split()
        counts[side][number] += 1
    assert counts["new"].total() == num_new
    assert counts["old"].total() == num_old
    for side_counts in counts.values():
        if side_counts:
            assert max(side_counts.values()) - min(side_counts.values()) <= 1


def assert_no_text_is_in_both(train, dev) -> None:
    assert all_texts_of(train).isdisjoint(all_texts_of(dev))


def assert_no_other_row_is_left_out(rows, num_new, train, dev) -> None:
    """Check that all English and new texts are trained but those of rows that are held out."""
    eligible = set()
    for row in rows[:num_new]:
        eligible |= pairs_of(row, ("en", NEW))
    held_texts = all_texts_of(dev)
    expected = set()
    for row in rows:
        if ("en", row["en"]) not in held_texts:
            expected |= pairs_of(row) & eligible
    assert all_texts_of(train) & eligible == expected


def test_no_text_is_trained_that_is_held_out(tmp_path):
    """Rows of many languages are new ones and, without Greek, old ones too."""
    rows = greek_rows(200, seed=1)
    new = write_rows(tmp_path / "new.parquet", rows)

    train, dev, _ = load_data(recipe_with(new, share=0.3, dev_rows=20))

    new_rows, old_rows = new_and_old(dev["dev"])
    assert len(new_rows) == 14
    assert len(old_rows) == 6
    assert_no_text_is_in_both(train, dev["dev"])
    assert_no_other_row_is_left_out(rows, 200, train, dev["dev"])


def test_no_text_of_replayed_rows_is_trained_that_is_held_out(tmp_path):
    """The new rows are pairs of English and Greek, and the old rows have the same English texts."""
    rows = greek_rows(200, seed=1)
    pairs = [{**row, "de": None, "es": None} for row in rows[:120]]
    old_rows = [{**row, NEW: None} for row in rows]
    new = write_rows(tmp_path / "pairs.parquet", pairs)
    replay = write_rows(tmp_path / "old.parquet", old_rows)

    train, dev, _ = load_data(recipe_with(new, replay, share=0.3, dev_rows=20))

    new_held, old_held = new_and_old(dev["dev"])
    assert len(new_held) == 12
    assert len(old_held) == 6
    assert_no_text_is_in_both(train, dev["dev"])
    assert_no_other_row_is_left_out(rows, 120, train, dev["dev"])


def test_dev_sets_need_not_have_all_languages(sources):
    _, dev, _ = load_data(recipe_with(*sources, dev={"old": sources[1], "new": sources[0]}))
    assert len(dev["old"]) == 50
    assert len(dev["new"]) == 60


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
            "el: found it in rows with de, expected .* pair it with en; .* make it a pivot",
        ),
    ],
)
def test_new_languages_that_nothing_ties_to_the_old_are_refused(languages, name, message, tmp_path):
    path = write_rows(tmp_path / "rows.parquet", greek_rows(20, 1, languages))
    with pytest.raises(ValueError, match=message):
        load_data(recipe_with(path, name=name))


def test_copies_of_one_row_cannot_be_held_out(tmp_path):
    rows = [{"de": None, "en": "the same", "es": None, NEW: f"{number}"} for number in range(30)]
    path = write_rows(tmp_path / "same.parquet", rows)
    with pytest.raises(ValueError, match="dev_rows=10: found 30 rows with a new language"):
        load_data(recipe_with(path, dev_rows=10))
