"""What the licenses of a model's origins allow for its own license."""

import logging

import pytest

from tests.hub_cards.recorded_runs import RECIPE, change, write
from tmde.hub_cards import describe_origins, model_card, provenance
from tmde.hub_cards.licenses import (
    check_license,
    describe_licenses,
    inherited_license,
    license_chain,
)
from tmde.training.recipe import load_recipe
from tmde.training.recipe.sections import CardSection
from tmde.training.run import read_inputs, resolve
from tmde.training.run_record import tell_licenses


def models_under(*licenses: str | None):
    """The chain of models with these licenses."""
    return license_chain([{"name": "start", "license": license} for license in licenses], [])


# ---- The table


@pytest.mark.parametrize(
    ("origin", "license", "is_allowed"),
    [
        ("cc-by-sa-4.0", "cc-by-sa-4.0", True),
        ("cc-by-sa-4.0", "CC-BY-SA-4.0", True),
        ("cc-by-sa-4.0", "apache-2.0", False),
        ("cc-by-sa-4.0", "cc-by-4.0", False),
        ("cc-by-sa-4.0", "cc-by-nc-sa-4.0", False),
        ("cc-by-sa-3.0", "cc-by-sa-4.0", True),
        ("cc-by-sa-4.0", "cc-by-sa-3.0", False),
        ("gpl-3.0", "mit", False),
        ("gpl-2.0", "gpl-3.0", False),  # SPDX reads it as GPL-2.0-only.
        ("gpl-2.0", "GPL-2.0-only", True),
        ("GPL-2.0-or-later", "gpl-3.0", True),
        ("GPL-3.0-only", "mit", False),
        ("CC-BY-SA-3.0-DE", "apache-2.0", False),
        ("CC-BY-SA-3.0-DE", "cc-by-sa-4.0", True),
        ("MIT OR GPL-3.0-only", "apache-2.0", True),
        ("MIT AND CC-BY-SA-4.0", "apache-2.0", False),
        ("MIT AND CC-BY-SA-4.0", "cc-by-sa-4.0", True),
        ("CC-BY-NC-4.0 AND CC-BY-SA-4.0", "cc-by-sa-4.0", False),
        ("CC-BY-NC-4.0 AND CC-BY-SA-4.0", "cc-by-nc-4.0", False),
        ("CC-BY-NC-4.0 AND CC-BY-NC-SA-4.0", "cc-by-nc-sa-4.0", True),
        ("CC-BY-NC-4.0 AND GPL-3.0-only", "gpl-3.0", False),
        ("(CC-BY-NC-4.0 AND GPL-3.0-only) OR MIT", "mit", True),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", "mit", True),
        ("cc-by-sa-4.0", "MIT AND CC-BY-SA-4.0", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "mit", False),
        ("gpl", "gpl-3.0", True),
        ("agpl-3.0", "gpl-3.0", False),
        ("cc-by-nc-4.0", "cc-by-nc-4.0", True),
        ("cc-by-nc-4.0", "cc-by-nc-sa-4.0", True),
        ("cc-by-nc-4.0", "cc-by-4.0", False),
        ("cc-by-nc-sa-4.0", "cc-by-nc-4.0", False),
        ("cc-by-nd-4.0", "cc-by-nd-4.0", False),
        ("cc-by-nc-nd-4.0", "cc-by-nc-nd-4.0", False),
        ("mit", "gpl-3.0", True),
        ("apache-2.0", "cc-by-nc-4.0", True),
        ("cc-by-4.0", "mit", True),
        ("cc0-1.0", "mit", True),
        ("llama3", "mit", True),
        (None, "mit", True),
    ],
)
def test_what_a_license_allows(origin, license, is_allowed):
    chain = models_under(origin)
    if is_allowed:
        check_license(license, chain)
    else:
        with pytest.raises(
            ValueError, match=f"license: found {license}, but the model was initialized"
        ):
            check_license(license, chain)


@pytest.mark.parametrize(
    ("licenses", "inherited"),
    [
        (["mit", "cc-by-sa-4.0"], "cc-by-sa-4.0"),
        (["CC-BY-NC-4.0"], "cc-by-nc-4.0"),
        (["GPL-3.0-only"], "gpl-3.0"),
        (["Apache-2.0 AND CC-BY-SA-4.0"], "cc-by-sa-4.0"),
        (["CC-BY-NC-4.0 AND CC-BY-NC-SA-4.0"], "cc-by-nc-sa-4.0"),
        (["cc-by-sa-3.0", "cc-by-sa-4.0"], "cc-by-sa-4.0"),
        (["mit", None, "other"], None),
        (["cc-by-nd-4.0"], None),
        ([], None),
    ],
)
def test_the_license_that_a_model_inherits(licenses, inherited):
    assert inherited_license(models_under(*licenses)) == inherited


def test_what_is_said_when_a_run_begins():
    share_alike, unknown = describe_licenses(models_under("cc-by-sa-4.0", "mit", None))
    assert "start, which is under cc-by-sa-4.0 (share-alike)" in share_alike
    assert "may only be shared under cc-by-sa-4.0" in share_alike
    assert "start, which states no license: ask its owner" in unknown


def test_every_license_of_an_expression_is_said():
    share_alike, unknown = describe_licenses(models_under("MIT AND CC-BY-SA-4.0 AND LicenseRef-x"))
    assert (
        "under CC-BY-SA-4.0 (share-alike): it may only be shared under CC-BY-SA-4.0" in share_alike
    )
    assert "under LicenseRef-x (tmde does not know its terms)" in unknown


def test_what_is_said_of_data_under_a_license_that_is_not_known():
    sources = [
        {"name": "a.tsv", "kind": "files", "license": "openrail"},
        {"name": "b.tsv", "kind": "files", "license": "mit"},
        {"name": "c.tsv", "kind": "files", "license": None},
    ]
    sentences = describe_licenses(license_chain([], sources))
    assert sentences == [
        "License: the model was trained on a.tsv, which is under openrail (tmde does not know "
        "its terms): read its terms before you share the model"
    ]


@pytest.mark.parametrize(
    ("license", "sentence"),
    [
        (
            "cc-by-nc-4.0",
            "vectors of teacher, which is under cc-by-nc-4.0 (non-commercial): check",
        ),
        ("llama3", "which is under llama3 (tmde does not know its terms): check"),
        (None, "vectors of teacher, which states no license: ask its owner"),
    ],
)
def test_the_license_of_a_teacher_is_said_when_a_run_begins(license, sentence, caplog):
    teacher = {"name": "teacher", "hub": True, "license": license, "sources": None}
    with caplog.at_level(logging.WARNING, logger="tmde.training"):
        tell_licenses({"begun_with": [], "teachers": [teacher]})
    assert sentence in caplog.text


def test_a_file_of_vectors_that_states_no_license_is_told(caplog):
    teacher = {"name": "use.parquet", "hub": False, "license": None}
    tell_licenses({"begun_with": [], "teachers": [teacher]})
    assert "vectors of use.parquet, which states no license: ask its owner" in caplog.text


def test_a_permissive_teacher_gets_no_sentence():
    assert describe_licenses([], [{"name": "teacher", "license": "apache-2.0"}]) == []


def test_the_license_of_a_teacher_is_said_at_a_push(run, caplog):
    teacher = {"name": "teacher", "hub": True, "license": "cc-by-nc-4.0", "sources": None}
    change(run / "run.json", teachers=[teacher])
    with caplog.at_level(logging.WARNING, logger="tmde.hub_cards"):
        model_card(run, license="mit", is_shared=True)
    assert "vectors of teacher, which is under cc-by-nc-4.0" in caplog.text


def test_data_count_as_models_do():
    chain = license_chain([], [{"name": "wiki.tsv", "kind": "files", "license": "cc-by-sa-4.0"}])
    assert inherited_license(chain) == "cc-by-sa-4.0"
    assert "was trained on wiki.tsv" in describe_licenses(chain)[0]


# ---- Where the licenses come from


def test_the_default_model_is_share_alike(caplog):
    origins = describe_origins({"warm_start": {"checkpoint": "default"}})
    with caplog.at_level(logging.WARNING, logger="tmde.training"):
        tell_licenses(origins)
    assert "default, which is under cc-by-sa-4.0 (share-alike)" in caplog.text


def test_the_license_of_a_hub_model_is_that_of_its_card(tmp_path, monkeypatch):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    monkeypatch.setattr(provenance, "hf_hub_download", lambda *names: str(card))
    (origin,) = describe_origins({"warm_start": {"checkpoint": "user/model"}})["begun_with"]
    assert (origin["name"], origin["license"]) == ("user/model", "cc-by-nc-4.0")


def test_a_hub_card_that_cannot_be_read_states_no_license(monkeypatch):
    def fail(*names):
        raise ConnectionError("no network")

    monkeypatch.setattr(provenance, "hf_hub_download", fail)
    assert provenance.hub_license("user/model") is None


# ---- Cards and pushes


def test_a_run_that_would_push_with_another_license_is_refused_when_it_begins():
    origins = describe_origins({"warm_start": {"checkpoint": "default"}})
    with pytest.raises(ValueError, match="license: found mit, but the model was initialized from"):
        tell_licenses(origins, card=CardSection(license="mit"), is_pushed=True)


@pytest.fixture
def pushed_run(tmp_path, monkeypatch):
    """A function that reads the inputs of a run which pushes its model at its end."""
    monkeypatch.setattr("tmde.training.run.open_hub_repository", lambda *arguments: None)
    rows = tmp_path / "c.tsv"
    lines = [f"Haus {number}\thouse {number}\n" for number in range(30)]
    rows.write_text("de\ten\n" + "".join(lines))

    def read(*overrides: str) -> None:
        words = [f"data.train={rows}", "data.dev=null", "push_to_hub=true", "hub_model_id=u/m"]
        words += ["data.languages=[de, en]", "data.pivot_languages=[en]", "eval_pairs=null"]
        licenses = ["card.license=apache-2.0", "card.data_licenses={c.tsv: cc-by-nc-4.0}"]
        recipe = load_recipe("quickstart", [*words, *licenses, *overrides])
        read_inputs(resolve(recipe, tmp_path / "run"))

    return read


def test_licenses_of_the_data_in_the_recipe_count_before_the_training(pushed_run):
    with pytest.raises(ValueError, match=r"found apache-2.0, but the model was trained on c.tsv"):
        pushed_run()


def test_the_recipe_may_state_why_another_license_is_right(pushed_run, caplog):
    with caplog.at_level(logging.WARNING, logger="tmde.training"):
        pushed_run("card.license_override=its owner agreed")
    assert "trained on c.tsv, which is under cc-by-nc-4.0" in caplog.text


def test_a_license_that_is_not_known_is_told(run, caplog):
    start = {"name": "start", "hub": False, "license": "llama3", "sources": None}
    change(run / "run.json", begun_with=[start])
    with caplog.at_level(logging.WARNING, logger="tmde.hub_cards"):
        model_card(run, license="mit", is_shared=True)
    sentence = "initialized from start, which is under llama3 (tmde does not know its terms)"
    assert sentence in caplog.text
    assert sentence in model_card(run).text


@pytest.fixture
def share_alike_run(run):
    """A run that started from a model under a share-alike license."""
    start = {"name": "start", "hub": False, "license": "cc-by-sa-4.0", "sources": None}
    change(run / "run.json", begun_with=[start])
    return run


def test_the_license_of_the_start_is_that_of_the_card(share_alike_run):
    card = model_card(share_alike_run)
    assert card.data.license == "cc-by-sa-4.0"
    assert "initialized from start, which is under cc-by-sa-4.0" in card.text


def test_a_license_that_contradicts_the_start_is_refused(share_alike_run):
    expected = "found apache-2.0, but the model was initialized from start"
    with pytest.raises(ValueError, match=expected):
        model_card(share_alike_run, license="apache-2.0", is_shared=True)


def test_a_license_that_contradicts_the_data_is_refused(run):
    licenses = {"words.jsonl": "cc-by-nc-4.0"}
    with pytest.raises(ValueError, match=r"trained on words.jsonl.*a non-commercial license"):
        model_card(run, license="mit", data_licenses=licenses, is_shared=True)


def test_the_license_of_the_start_is_proposed(share_alike_run):
    assert model_card(share_alike_run, is_shared=True).data.license == "cc-by-sa-4.0"


def test_the_reason_of_the_recipe_is_that_of_the_card(share_alike_run):
    card = {"license": "mit", "license_override": "its owner allowed it"}
    write(share_alike_run / "recipe.yaml", {**RECIPE, "card": card})
    card = model_card(share_alike_run, is_shared=True)
    assert card.data.license == "mit"
    assert "owner's reason: its owner allowed it" in card.text


def test_the_reason_of_the_recipe_stands_for_no_other_license(share_alike_run):
    card = {"license": "mit", "license_override": "its owner allowed it"}
    write(share_alike_run / "recipe.yaml", {**RECIPE, "card": card})
    with pytest.raises(ValueError, match="found apache-2.0"):
        model_card(share_alike_run, license="apache-2.0", is_shared=True)


def test_the_card_repeats_the_reason_for_another_license(share_alike_run):
    reason = "its owner allowed it"
    card = model_card(share_alike_run, license="mit", license_override=reason, is_shared=True)
    assert card.data.license == "mit"
    assert card.data.to_dict()["license_override"] == reason
    assert f"Its owner's reason: {reason}" in card.text


@pytest.mark.parametrize("license", ["mit", "cc-by-sa-4.0"])
def test_a_reason_differs_only_from_what_is_asked(run, license):
    start = {"name": "start", "hub": False, "license": license, "sources": None}
    change(run / "run.json", begun_with=[start])
    card = model_card(run, license="cc-by-sa-4.0", license_override="its owner allowed it")
    assert "Its owner's reason: its owner allowed it" in card.text
    assert "contradicts" not in card.text
