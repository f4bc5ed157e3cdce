"""A person's edits of a card are kept."""

import shutil

import pytest
from huggingface_hub import ModelCard, metadata_load, metadata_save

from modeling_tmde.hub_cards import write_model_card
from modeling_tmde.hub_cards.readme import is_untouched


@pytest.fixture
def run(runs, tmp_path):
    return shutil.copytree(runs["bag"], tmp_path / "bag")


def test_an_untouched_card_is_written_anew(run):
    before = (run / "README.md").read_text()
    assert is_untouched(before)
    assert write_model_card(run, license="mit", description="New words.")
    after = (run / "README.md").read_text()
    assert "New words." in after and metadata_load(run / "README.md")["license"] == "mit" and is_untouched(after)
    # Line ends of another editor, and white space at the end, are no edit.
    (run / "README.md").write_bytes(after.replace("\n", "\r\n").encode() + b"\r\n")
    assert write_model_card(run, description="Newer words.")
    assert "Newer words." in (run / "README.md").read_text()


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("## Limits and risks", "## Limits and risks\n\nNot for children."),
        lambda text: text + "\nMore words below the mark.\n",
        lambda text: text.partition("<!-- tmde:card")[0],
    ],
    ids=["in the text", "below", "without the mark"],
)
def test_an_edited_text_stays_and_metadata_are_brought_up_to_date(run, edit):
    path = run / "README.md"
    edited = edit(path.read_text())
    path.write_text(edited)
    assert not write_model_card(run, license="mit", description="Lost words.")
    assert path.read_text().split("\n---\n", 1)[1] == edited.split("\n---\n", 1)[1]
    assert metadata_load(path)["license"] == "mit"
    # And again: the metadata that were written are no reason to lose the text.
    assert not write_model_card(run, license="apache-2.0")
    assert "Lost words" not in path.read_text() and metadata_load(path)["license"] == "apache-2.0"


def test_metadata_that_a_person_added_stay(run):
    path = run / "README.md"
    data = metadata_load(path)
    data |= {"license": "cc-by-4.0", "tags": ["mine", "tmde"], "widget": [{"text": "Guten Tag"}], "language": ["xx"]}
    metadata_save(path, data)
    assert write_model_card(run)  # the text is as it was made
    assert "The model is under `cc-by-4.0`" in path.read_text() and "not stated**" not in path.read_text()
    found = metadata_load(path)
    assert found["license"] == "cc-by-4.0" and found["widget"] == [{"text": "Guten Tag"}]
    assert found["tags"][:2] == ["mine", "tmde"] and set(found["tags"]) > {"mine", "multilingual"}
    assert found["language"] == ["de", "en", "fr"]  # what is known of the model wins
    assert ModelCard.load(path).data.to_dict()["model-index"]


@pytest.mark.parametrize("text", ["# All mine\n", "---\nlicense: mit\ncustom: 1\n---\n# All mine\n"])
def test_a_card_of_somebody_else_gets_metadata_alone(run, text):
    path = run / "README.md"
    path.write_text(text)
    assert not write_model_card(run)
    assert path.read_text().endswith("---\n# All mine\n")
    found = metadata_load(path)
    assert found["library_name"] == "transformers" and found["model-index"][0]["name"] == "bag"
    if "license" in text:
        assert found["license"] == "mit" and found["custom"] == 1


def test_broken_front_matter_is_named_and_left(run):
    path = run / "README.md"
    path.write_text("---\nlicense: [mit\n---\n# Mine\n")
    with pytest.raises(ValueError, match=r"README.md: its front matter .* is not a YAML mapping"):
        write_model_card(run)
    assert path.read_text() == "---\nlicense: [mit\n---\n# Mine\n" and not list(run.glob(".README*"))
