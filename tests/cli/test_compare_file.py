"""The file of a comparison: the trainings and recipes that it becomes, and what is refused."""

import pytest

from modeling_tmde.cli.compare_file import comparison_names, load_comparison
from modeling_tmde.cli.compare_values import ComparisonFileError
from tests.cli.compare_helpers import HEADS, change, content, load, staged


def test_a_file_becomes_trainings_with_settled_recipes(tmp_path):
    comparison = load(tmp_path)
    assert [each.job for each in comparison.trainings] == [
        "start base",
        "train bag-42",
        "train warm-1",
        "train warm-2",
    ]
    start, bag, warm, second = (each.recipe.sections for each in comparison.trainings)
    for sections in (start, bag, warm, second):
        assert sections["data"]["train"] == "sample" and sections["data"]["dev"] == {"sample": "sample"}
        assert sections["training"]["max_steps"] == 3
    assert [sections["training"]["seed"] for sections in (start, bag, warm, second)] == [42, 42, 1, 2]
    assert (bag["model"]["d_model"], warm["model"]["encoder_ffn_dim"]) == (16, 16)
    assert "decoder_layers" not in bag["model"] and warm["model"]["decoder_layers"] == 1  # the block of tmde alone
    # The start takes the place of the bag that `small` would have trained first.
    assert warm["warm_start"]["checkpoint"] == str(tmp_path / "out" / "start" / "base")


def test_own_overrides_go_before_those_of_the_architecture_and_these_before_all(tmp_path):
    values = content()
    values["shared"]["all"]["learning_rate"] = 0.1
    values["shared"]["tmde"]["learning_rate"] = 0.2
    values["systems"]["bag"]["overrides"]["train"] = "elsewhere"
    values["systems"]["other"] = {"recipe": "quickstart", "overrides": {"learning_rate": 0.3, **HEADS}}
    trainings = {each.name: each.recipe.sections for each in load(tmp_path, values).trainings}
    rates = {name: sections["training"]["learning_rate"] for name, sections in trainings.items()}
    assert rates == {"base": 0.1, "bag-42": 0.1, "warm-1": 0.2, "warm-2": 0.2, "other-42": 0.3}
    assert trainings["bag-42"]["data"]["train"] == "sample"  # --train goes before everything


def test_numbers_are_read_as_recipes_read_them(tmp_path):
    (tmp_path / "file.yaml").write_text(
        "systems: {a: {recipe: bag, overrides: {learning_rate: 3e-4}}}\ntasks: [sample]"
    )
    comparison = load_comparison(str(tmp_path / "file.yaml"), tmp_path, ["sample"])
    assert comparison.trainings[0].recipe.sections["training"]["learning_rate"] == 0.0003
    assert comparison.reference == "a" and comparison.contrasts == []


def test_a_start_goes_to_the_first_stage_of_a_recipe_whose_stage_is_no_bag(tmp_path):
    comparison = load(tmp_path, staged(tmp_path))
    warm_start = comparison.trainings[-1].recipe.warm_start
    assert warm_start.checkpoint is None
    assert warm_start.overrides["warm_start.checkpoint"] == str(tmp_path / "out" / "start" / "base")
    # 5 of the start, 2 of the stage and 5 of its own, beside 10 of `warm` and 5 of the bag, which has no start
    (note,) = comparison.budget_notes()
    assert "12 of staged" in note and "10 of warm" in note and "5 of " in note


def test_budgets_that_are_equal_or_missing(tmp_path):
    values = content()
    values["systems"]["bag"]["overrides"]["max_cpu_minutes"] = 10
    assert load(tmp_path, values).budget_notes() == []
    values["start"]["base"]["overrides"]["max_cpu_minutes"] = None
    (note,) = load(tmp_path, values).budget_notes()
    assert note.startswith("Without a limit") and note.endswith(": warm")


def test_a_tokenizer_for_all(tmp_path):
    comparison = load(tmp_path, content(tokenizer="base"))
    start, bag, warm, _ = comparison.trainings
    assert bag.recipe.sections["tokenizer"]["path"] == str(tmp_path / "out" / "start" / "base")
    assert (start.needs, bag.needs, warm.needs) == ([], ["base"], ["base"])
    with pytest.raises(ComparisonFileError, match="tokenizer: the start 'bas' is unknown; did you mean base"):
        load(tmp_path, content(tokenizer="bas"))


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("sistems", {}, "key 'sistems' is unknown; did you mean systems"),
        ("systems", None, "systems: found none"),
        ("systems", ["bag"], r"systems: found \['bag'\], expected a mapping"),
        ("systems/bag/seed", 3, "systems.bag: key 'seed' is unknown; did you mean seeds"),
        ("systems/bag/recipe", "bagg", "systems.bag: There is no recipe 'bagg'"),
        ("systems/bag", {"start": "base"}, "systems.bag: found no 'recipe'"),
        ("systems/bag/overrides/lerning_rate", 1, "systems.bag: Recipe key 'lerning_rate' is unknown; did you mean"),
        ("systems/bag/overrides/eval_head", "fast", "systems.bag: .*eval_head='fast' is unknown"),
        ("systems/bag/overrides/model.d_model", "wide", "systems.bag: .*d_model"),
        ("systems/bag/overrides/seed", 3, "found seed, expected 'seed' or 'seeds' beside 'recipe'"),
        ("systems/bag/overrides/languages", ["en", "es"], "data.languages of base is .* of bag-42"),
        ("systems/warm/start", "bas", "systems.warm.start: the start 'bas' is unknown; did you mean base"),
        ("systems/warm/seeds", [1, 1], r"systems.warm.seeds: found \[1, 1\], expected different whole numbers"),
        ("systems/warm/seeds", 1, "systems.warm.seeds: found 1"),
        ("systems/warm/seeds", [True], "systems.warm.seeds: found"),
        ("systems/warm/overrides/warm_start.checkpoint", "x", "found start and warm_start.checkpoint"),
        ("systems/a b", {"recipe": "bag"}, "the name 'a b' becomes a folder's"),
        ("systems/../x", {"recipe": "bag"}, "becomes a folder's"),
        ("start/base/seeds", [1], "start.base: key 'seeds' is unknown"),
        ("shared/lasr", {}, "shared: block 'lasr' is unknown"),
        ("shared/all", 3, "shared.all: found 3"),
        ("shared/all/objectives.infonce.temprature", 1, "temprature"),
        ("reference", "tmde", "reference: the system 'tmde' is unknown"),
        ("contrasts", [["warm"]], "contrasts: found .* expected pairs"),
        ("contrasts", [["warm", "worm"]], "contrasts: the system 'worm' is unknown; did you mean warm"),
        ("contrasts", [["warm", "warm"]], "expected two different systems"),
        ("tasks", "sample", "tasks: found 'sample', expected a list"),
        ("tasks", ["simple"], "tasks: Found task 'simple'.*Did you mean 'sample'"),
        ("tasks", ["sample", "sentence_retrieval"], "found no data of .*give --eval-data"),
        ("task_options", {"sizes": 3}, "expected TASK.OPTION=VALUE"),
        ("titles", {"sample": 3}, "titles.sample: found 3, expected text"),
        ("titles", {"sample": "x", "sts": "x"}, "titles: found 'x' twice"),
        ("max_length", 2, "max_length: found 2, expected a whole number of at least 3"),
        ("max_length", "128", "max_length: found '128'"),
        ("folds", 1, "folds: found 1, expected true or false"),
    ],
)
def test_errors_name_file_and_key(tmp_path, path, value, match):
    values = change(path, value) if path != "systems/../x" else content(systems={"../x": value})
    with pytest.raises(ComparisonFileError, match=match) as error:
        load(tmp_path, values)
    assert "file.yaml" in str(error.value)


def test_all_systems_that_do_not_fit_are_named_at_once(tmp_path):
    values = change("systems/bag/recipe", "bagg")
    values["systems"]["warm"]["recipe"] = "smal"
    with pytest.raises(ComparisonFileError) as error:
        load(tmp_path, values)
    assert "systems.bag" in str(error.value) and "systems.warm" in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ComparisonFileError, match="no comparison 'nothing'.*papers"):
        load_comparison("nothing", tmp_path)
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(ComparisonFileError, match="a.yaml is not YAML"):
        load_comparison(str(tmp_path / "a.yaml"), tmp_path)
    (tmp_path / "a.yaml").write_text("systems: {a: {recipe: bag}, b: {recipe: bag}, a: {recipe: small}}")
    with pytest.raises(ComparisonFileError, match="found the key 'a' twice"):
        load_comparison(str(tmp_path / "a.yaml"), tmp_path)
    with pytest.raises(ComparisonFileError, match="found no training data; give --train"):
        load(tmp_path, train=None)


def test_the_built_in_comparisons(tmp_path):
    (tmp_path / "some_dev.parquet").touch()
    (tmp_path / "topic_documents.parquet").touch()
    assert "papers" in comparison_names()
    comparison = load_comparison("papers", tmp_path, ["sample"], {"sample": "sample"}, tmp_path)
    wanted = "bag tmde ctmde tmde_f ctmde_p dbtmde laser_1 laser_6 claser_6 nv cnv similarity_seq2seq light mlm tlm"
    assert {*wanted.split(), "xnli_bilstm", "xnli_cbow"} <= set(comparison.systems)
    assert ("tmde", "laser_6") in comparison.contrasts
    assert not any("Without a limit" in note for note in comparison.budget_notes())
    architectures = {each.recipe.architecture for each in comparison.trainings}
    assert architectures == {"bag", "tmde", "laser", "ntdv", "encoder", "aligned"}
