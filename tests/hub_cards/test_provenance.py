"""Sources, origins and recipes of runs, without secrets and paths of the machine."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hub_cards.recorded_runs import change, write
from tmde.hub_cards import describe_origins, describe_sources, model_card, public_recipe

# ---- Recipes


def published(run, section: str, values: dict) -> dict:
    """A section of a recipe as it is published."""
    write(run / "recipe.yaml", {section: values})
    return public_recipe(run)[section]


def test_a_published_recipe_has_no_paths(run):
    sources = public_recipe(run)["data"]["train"]
    assert sources == ["words.jsonl", "x", "Helsinki-NLP/europarl"]


def test_a_published_recipe_has_no_tokens(run):
    assert public_recipe(run)["training"] == {"max_steps": 2}
    assert "secret" not in str(public_recipe(run))


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        (
            "data",
            {"train": {"de": r"C:\me\a.de", "en": "~/b.en"}},
            {"train": {"de": "a.de", "en": "b.en"}},
        ),
        (
            "data",
            {"train": {"new": ["/x/y.tsv"], "new_languages": ["sl"], "replay": "u/rows"}},
            {"train": {"new": ["y.tsv"], "new_languages": ["sl"], "replay": "u/rows"}},
        ),
        ("data", {"dev": "news=/x/lang=de/y.tsv"}, {"dev": "news=y.tsv"}),
        ("data", {"dev": ["/x/lang=de/y.tsv"]}, {"dev": ["y.tsv"]}),
        ("data", {"eval_task": ["topics=/x/y", "sib200"]}, {"eval_task": ["topics=y", "sib200"]}),
        ("tokenizer", {"path": "/x/y"}, {"path": "y"}),
        ("warm_start", {"checkpoint": "./runs/bag/"}, {"checkpoint": "bag"}),
        ("model", {"encoder": "/x/e5"}, {"encoder": "e5"}),
        ("model", {"encoder": "intfloat/e5"}, {"encoder": "intfloat/e5"}),
        (
            "objectives",
            {"distillation": {"teacher": ["/x/v.parquet", "u/m"], "weight": 2.0}},
            {"distillation": {"teacher": ["v.parquet", "u/m"], "weight": 2.0}},
        ),
        ("training", {"fsdp_config": "/x/fsdp.json"}, {"fsdp_config": "fsdp.json"}),
        (
            "card",
            {"data_licenses": {"/home/me/c.tsv": "mit", "u/rows": "cc0-1.0"}},
            {"data_licenses": {"c.tsv": "mit", "u/rows": "cc0-1.0"}},
        ),
    ],
)
def test_sources_are_published_by_name(run, section, values, expected):
    assert published(run, section, values) == expected


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("card", {"license_override": "The owner agreed in writing: MIT and/or Apache-2.0"}),
        ("card", {"description": "See https://example.com/terms, or a/b/c."}),
        ("card", {"data_licenses": {"c.tsv": "private, see https://example.com/terms for it"}}),
        ("model", {"lora": {"target_modules": r".*\.(q|v)_proj"}}),
        ("model", {"prompt": "query/passage: a=b "}),
        ("data", {"columns": {"de": "text/de", "en": r"text\en"}}),
        ("training", {"optim_args": "rank=64, note=a/b/c", "hub_model_id": "u/m"}),
        ("objectives", {"my.losses:Margin": {"unit": "tokens/row/s"}}),
    ],
)
def test_other_text_is_published_as_it_is(run, section, values):
    assert published(run, section, values) == values


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
    assert "The licenses of its teachers may restrict it further." in card
    assert "12.0 minutes (including 4.0 minutes for the teachers) on" in card


@pytest.mark.parametrize(
    "text",
    [
        "Initialized from: `mine`, trained on `words.jsonl` (license: not stated)",
        "itself initialized from [first](https://huggingface.co/first)",
        "Teacher: [a/b](https://huggingface.co/a/b), whose card describes its training text.",
    ],
)
def test_the_card_names_the_origins(run, origins, text):
    change(run / "run.json", **origins)

    assert text in str(model_card(run))


def test_the_base_model_is_the_first_one_of_the_hub(run):
    bag = {"name": "bag", "hub": False, "license": None, "sources": []}
    encoder = {"name": "intfloat/e5", "hub": True, "license": "mit", "sources": None}
    change(run / "run.json", begun_with=[bag, encoder])
    assert model_card(run).data.base_model == "intfloat/e5"
    change(run / "run.json", begun_with=[bag])
    assert model_card(run).data.base_model is None
