"""Cards that people edit: their text stays, and their metadata are updated."""

import pytest

from tmde.hub_cards import is_edited, write_model_card
from tmde.hub_cards.card_text import BEGIN, END


@pytest.fixture
def card_file(run):
    """The card of a run as it was first written."""
    write_model_card(run, license="mit")
    return run / "README.md"


def edit(card_file) -> None:
    text = card_file.read_text()
    text = text.replace(BEGIN, f"My words.\n\n{BEGIN}") + "My last words.\n"
    card_file.write_text(text.replace("\n- tmde\n", "\n- mine\n"))


def test_generated_text_is_known(card_file):
    assert not is_edited(card_file.read_text())


def test_generated_text_is_replaced_and_the_license_kept(run, card_file):
    write_model_card(run)

    text = card_file.read_text()
    assert not is_edited(text)
    assert "license: mit" in text


def test_text_around_the_generated_text_is_kept(run, card_file):
    edit(card_file)

    write_model_card(run, license="apache-2.0")

    text = card_file.read_text()
    assert is_edited(text)
    before, _, rest = text.partition(BEGIN)
    generated, _, after = rest.partition(END)
    assert before.endswith("\nMy words.\n\n")
    assert after == "\nMy last words.\n"
    assert "| License | apache-2.0 |" in generated


def test_generated_text_is_replaced_once(run, card_file):
    edit(card_file)
    write_model_card(run)
    text = card_file.read_text()
    write_model_card(run)
    assert card_file.read_text() == text
    assert text.count(BEGIN) == text.count(END) == 1


def test_generated_text_without_its_comments_is_kept(run, card_file):
    text = card_file.read_text().replace(BEGIN, "").replace(END, "")
    card_file.write_text(text.replace("## Use it", "My title"))
    write_model_card(run, license="apache-2.0")
    text = card_file.read_text()
    assert "My title" in text
    assert "license: apache-2.0" in text
    assert "| License | mit |" in text


def test_metadata_of_edited_text_are_updated(run, card_file):
    edit(card_file)

    write_model_card(run, license="apache-2.0")

    text = card_file.read_text()
    assert "license: apache-2.0" in text
    assert "- mine" in text
    assert "- tmde" in text


def test_text_without_the_comments_counts_as_edited(run, card_file):
    card_file.write_text("All by hand.")

    write_model_card(run)

    assert card_file.read_text().endswith("All by hand.")


def test_damaged_metadata_are_named(run, card_file):
    card_file.write_text("---\nlicense: [\n---\nx")

    with pytest.raises(ValueError, match="not a YAML mapping"):
        write_model_card(run)
