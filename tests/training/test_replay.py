"""The data of a run that adds languages: which rows, how many of each kind, and what is refused."""

from collections import Counter

import pytest
from transformers import PreTrainedTokenizerFast

from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.building import load_data
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.replay import load_replayed, mix_rows
from tests.conftest import make_dataset
from tests.training.added_language_helpers import NEW, OLD, greek_rows, write_rows


def recipe_with(new, replay=None, share=0.5, name="bag", **data):
    recipe = load_recipe(name)
    train = {"new": new, "new_languages": [NEW], "replay": replay, "replay_share": share}
    languages = {"languages": [*OLD, NEW], "pivot_languages": ["en"]}
    recipe.sections["data"] = {"train": train, **languages, "dev_rows": 0, **data}
    return recipe


def texts_of(rows) -> list[tuple[tuple[str, str], ...]]:
    """Of each row the languages and texts that it has."""
    return [tuple((code, text) for code, text in sorted(row.items()) if text) for row in rows["translation"][:]]


@pytest.fixture
def sources(tmp_path):
    new = greek_rows(40, seed=1, languages=("en", NEW)) + greek_rows(20, seed=2)
    return write_rows(tmp_path / "new.parquet", new), write_rows(tmp_path / "old.parquet", greek_rows(50, 3, OLD))


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_batches_have_the_stated_share_of_old_rows(share, sources, tokenizer: PreTrainedTokenizerFast):
    """Counted in the batches that are trained, whichever languages are drawn of a row."""
    train, _, report = load_data(recipe_with(*sources, share=share))
    batches = ParallelBatches(train, tokenizer, [*OLD, NEW], ["en"], pivots_only=False, buffer_rows=10_000, seed=9)
    counts = Counter()
    for batch in batches:
        counts["new" if NEW in batch.languages else "old"] += batch.sizes.rows
    assert counts["old"] / counts.total() == pytest.approx(share, abs=1 / counts.total())
    assert report.rows == 110


def test_every_pair_with_the_new_language_is_there_and_no_other(sources):
    train, _, _ = load_replayed(recipe_with(*sources))
    found = texts_of(train)
    new, old = ([row for row in found if (NEW in dict(row)) == kind] for kind in (True, False))
    expected = set()
    for row in greek_rows(40, seed=1, languages=("en", NEW)) + greek_rows(20, seed=2):
        expected |= {((code, row[code]), (NEW, row[NEW])) for code in OLD if row[code]}
    assert {tuple(sorted(row)) for row in new} == {tuple(sorted(row)) for row in expected}
    assert set(old) == {tuple((code, row[code]) for code in OLD) for row in greek_rows(50, 3, OLD)}
    assert len(new) == len(old) == 100  # 40 and 3 times 20, and twice 50


def test_of_many_rows_each_gives_its_pairs_in_turn(sources, monkeypatch):
    monkeypatch.setattr("modeling_tmde.training.replay.MOST_PAIRS", 60)
    train, _, _ = load_replayed(recipe_with(*sources, share=0.0))
    partners = Counter(next(code for code in dict(row) if code != NEW) for row in texts_of(train))
    assert len(train) == 60 and partners["en"] >= 40 + 6 and min(partners["de"], partners["es"]) >= 6


def test_with_objectives_that_translate_pairs_have_a_pivot(sources):
    train, _, _ = load_replayed(recipe_with(*sources, name="quickstart"))
    assert {frozenset(dict(row)) for row in texts_of(train)} == {frozenset(("en", NEW)), frozenset(OLD)}


def test_without_replay_the_old_pairs_of_the_new_rows_count_as_old(sources):
    train, _, _ = load_replayed(recipe_with(sources[0]))
    old = [row for row in texts_of(train) if NEW not in dict(row)]
    assert set(old) == {tuple((code, row[code]) for code in OLD) for row in greek_rows(20, seed=2)}
    assert len(old) == len(train) / 2


def test_the_smaller_side_is_repeated_evenly():
    new, old = (
        make_dataset([{"a": f"n{i}", "b": "x"} for i in range(7)]),
        make_dataset([{"a": f"o{i}", "b": "x"} for i in range(30)]),
    )
    mixed = [row["a"] for row in mix_rows(new, old, 0.75, seed=1)["translation"][:]]
    counts = Counter(mixed)
    assert {counts[f"o{i}"] for i in range(30)} == {1}
    assert len(mixed) == 40 and sorted(counts[f"n{i}"] for i in range(7)) == [1, 1, 1, 1, 2, 2, 2]
    more = Counter(row["a"] for row in mix_rows(new, old, 0.9, seed=1)["translation"][:])
    assert sum(more[f"n{i}"] for i in range(7)) == 7 and sum(more[f"o{i}"] for i in range(30)) == 63
    assert len(mix_rows(new, old, 0.0, seed=1)) == 7


def test_rows_are_held_out_before_any_is_repeated(sources):
    train, dev, _ = load_replayed(recipe_with(*sources, share=0.25, dev_rows=8))
    held = texts_of(dev["dev"])
    new = [row for row in held if NEW in dict(row)]
    assert (len(new), len(held) - len(new)) == (6, 2)
    greek = {dict(row)[NEW] for row in new}
    assert greek.isdisjoint(dict(row).get(NEW) for row in texts_of(train))
    assert set(held).isdisjoint(texts_of(train))


@pytest.mark.parametrize("overlapping", [False, True])
def test_no_text_is_trained_that_is_held_out(overlapping, tmp_path):
    """Rows of many languages are new ones and, without Greek, old ones too."""
    rows = greek_rows(200, seed=1)
    new, replay = write_rows(tmp_path / "new.parquet", rows), None
    if overlapping:
        new = write_rows(tmp_path / "pairs.parquet", [{**row, "de": None, "es": None} for row in rows[:120]])
        replay = write_rows(tmp_path / "old.parquet", [{**row, NEW: None} for row in rows])
    train, dev, _ = load_replayed(recipe_with(new, replay, share=0.3, dev_rows=20))
    held = {text for row in texts_of(dev["dev"]) for text in row}
    trained = {text for row in texts_of(train) for text in row}
    assert held.isdisjoint(trained)
    numbers = [sum((NEW in dict(row)) == kind for row in texts_of(dev["dev"])) for kind in (True, False)]
    assert numbers == [12 if overlapping else 14, 6]
    everything = {(code, row[code]) for row in rows[: 120 if overlapping else 200] for code in ("en", NEW)}
    english = {text for code, text in held if code == "en"}
    expected = {pair for row in rows for pair in row.items() if pair in everything and row["en"] not in english}
    assert {pair for pair in trained if pair in everything} == expected  # and no other row is left out


def test_held_out_texts_that_all_rows_have_leave_nothing_to_train(tmp_path):
    rows = [{"de": None, "en": "the same", "es": None, NEW: f"{number}"} for number in range(30)]
    recipe = recipe_with(write_rows(tmp_path / "new.parquet", rows), dev_rows=10)
    with pytest.raises(ValueError, match="dev_rows=10: found 30 rows with a new language"):
        load_replayed(recipe)


def test_dev_sets_need_not_have_all_languages(sources):
    dev = {"old": sources[1], "new": sources[0]}
    _, found, _ = load_replayed(recipe_with(*sources, dev=dev))
    assert {name: len(rows) for name, rows in found.items()} == {"old": 50, "new": 60}


@pytest.mark.parametrize(
    ("languages", "name", "message"),
    [
        (
            OLD,
            "bag",
            "el: found it in rows with nothing, expected rows that pair it with a language of the checkpoint",
        ),
        (("de", NEW), "quickstart", "el: found it in rows with de, none of them a pivot, .* one of en"),
    ],
)
def test_new_languages_that_nothing_ties_to_the_old_are_refused(languages, name, message, tmp_path):
    path = write_rows(tmp_path / "rows.parquet", greek_rows(20, 1, languages))
    with pytest.raises(ValueError, match=message):
        load_replayed(recipe_with(path, name=name))


def test_settings_that_do_not_fit(sources):
    with pytest.raises(RecipeError, match="replay_share: found 1.0, expected at least 0 and below 1"):
        recipe_with(*sources, share=1.0).check()
    with pytest.raises(RecipeError, match="streaming: found true"):
        recipe_with(*sources, streaming=True).check()
    with pytest.raises(RecipeError, match="newest"):
        load_recipe("bag").set("data.train", {"new": "a", "new_languages": ["el"], "newest": 3})
