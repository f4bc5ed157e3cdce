"""Sources, origins and recipes of runs, without secrets and paths of the machine."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hub_cards.recorded_runs import change, write
from tmde.hub_cards import describe_origins, describe_sources, model_card, public_recipe

# ---- Recipes


def test_a_published_recipe_has_no_paths(run):
    recipe = public_recipe(run)

    assert recipe["data"]["train"] == ["words.jsonl", "Helsinki-NLP/europarl"]
    assert recipe["teacher"] == "x"


def test_a_published_recipe_has_no_tokens(run):
    assert public_recipe(run)["training"] == {"max_steps": 2, "output_dir": "here"}
    assert "secret" not in str(public_recipe(run))


def test_paths_by_language_and_of_tasks_are_published_by_name(run):
    data = {"train": {"de": r"C:\me\a.de", "en": "~/b.en"}, "eval_task": "topics=/x/y"}
    write(run / "recipe.yaml", {"data": data})

    assert public_recipe(run)["data"] == {
        "train": {"de": "a.de", "en": "b.en"},
        "eval_task": "topics=y",
    }


# ---- Sources


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        ("sample", "sample", "sample"),
        ("rows", "rows", "files"),
        ("user/rows", "user/rows", "hub"),
        ({"de": "a/x.de", "en": "a/x.en"}, "x.de, x.en", "files"),
    ],
)
def test_names_and_kinds_of_sources(tmp_path, monkeypatch, source, name, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()

    (description,) = describe_sources(source)

    assert description["name"] == name
    assert description["kind"] == kind


def test_the_license_of_a_folder_is_that_of_its_card(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: cc0-1.0\n---\n")

    (description,) = describe_sources(str(tmp_path))

    assert description["license"] == "cc0-1.0"


# ---- Origins


@pytest.fixture
def origins(run):
    """The origins of a run that starts from `run`, which started from a model of the Hub."""
    first = {"name": "first", "hub": True, "license": None, "sources": None}
    change(run / "run.json", begun_with=[first])
    recipe = {
        "warm_start": {"checkpoint": str(run)},
        "objectives": {"distillation": {"teacher": "a/b"}},
    }
    return describe_origins(recipe)


def test_origins_are_followed_to_the_first_model(origins):
    assert [model["name"] for model in origins["begun_with"]] == ["mine", "first"]


def test_the_teacher_is_a_model_of_the_hub(origins):
    (teacher,) = origins["teachers"]
    assert teacher["hub"]


def test_every_teacher_of_a_list_is_described(tmp_path):
    """The metadata of a file say what its vectors are of; a path of the machine is not told."""
    table = pa.table({"text": ["a"], "vector": [[1.0]]})
    pq.write_table(table, tmp_path / "plain.parquet")
    named = table.replace_schema_metadata({"model": "some/encoder", "license": "cc-by-4.0"})
    pq.write_table(named, tmp_path / "named.parquet")
    names = ["a/b", str(tmp_path / "named.parquet"), str(tmp_path / "plain.parquet")]
    teachers = describe_origins({"objectives": {"distillation": {"teacher": names}}})["teachers"]
    assert [teacher["name"] for teacher in teachers] == ["a/b", "some/encoder", "plain.parquet"]
    assert [teacher["license"] for teacher in teachers] == [None, "cc-by-4.0", None]
    assert [teacher["hub"] for teacher in teachers] == [True, False, False]
    assert str(tmp_path) not in str(teachers)


def test_the_card_names_several_teachers(run):
    teachers = [
        {"name": "a/b", "hub": True, "license": "mit", "sources": None},
        {
            "name": "use",
            "hub": False,
            "license": "apache-2.0",
            "sources": None,
        },
    ]
    change(run / "run.json", teachers=teachers)
    change(run / "results.json", minutes=12.0, teacher_minutes=4.0)
    card = model_card(run).text
    assert "| Teachers | [a/b](https://huggingface.co/a/b), `use` |" in card
    assert "`use` (license: apache-2.0), whose training text is not recorded." in card
    assert "The licenses of its teachers may limit it too." in card
    assert "12.0 minutes (4.0 minutes of them reading by the teachers) on" in card


@pytest.mark.parametrize(
    "text",
    [
        "Started from: `mine`, trained on `words.jsonl` (license: not stated)",
        "itself started from [first](https://huggingface.co/first)",
        "Teacher: [a/b](https://huggingface.co/a/b), whose card names its training text.",
    ],
)
def test_the_card_names_the_origins(run, origins, text):
    change(run / "run.json", **origins)

    assert text in str(model_card(run))
