"""TF-IDF of translations: translations one by one, the words that count, planted documents."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from modeling_tmde import NtdvForConditionalGeneration, TmdeError
from tests.conftest import WORDS, make_rows, save, tiny_model
from tests.tiny_embedders import ntdv
from tmde.embedding.sentences import split_sentences
from tmde.eval import CharacterTfidf, TranslatedTfidf, evaluate_classification
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError

GERMAN = ["Haus Hund. Katze Baum! Fluss", "Brot.", "", "Haus Hund. Brot."]
ENGLISH = ["House dog cat. Night", "Bread and water"]


def translated_alone(model, tokenizer, text, code):
    """Translate a text sentence by sentence, each in a batch of its own."""
    parts = []
    for sentence in split_sentences(text, code):
        ids = tokenizer(sentence, return_tensors="pt").input_ids
        source = {}
        if model.base_model.needs_language_ids:
            source["language_ids"] = torch.tensor([model.config.languages.index(code)])
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            target_language="en",
            max_new_tokens=2 * ids.shape[1] + 10,
            do_sample=False,
            **source,
        )
        parts.append(tokenizer.decode(written[0], skip_special_tokens=True))
    return " ".join(parts)


@pytest.fixture
def models(tokenizer):
    """Models with random weights, with one encoder for all languages and with one for each."""
    torch.manual_seed(0)
    return {"tmde": tiny_model(3), "ntdv": NtdvForConditionalGeneration(ntdv()).eval()}


@pytest.mark.parametrize("kind", ["tmde", "ntdv"])
def test_rows_are_those_of_translations_one_by_one(kind, models, tokenizer, monkeypatch):
    monkeypatch.setattr("tmde.eval.translated_tfidf.BATCH_SENTENCES", 3)
    model = models[kind]
    texts = GERMAN * 2
    fit_on = [*ENGLISH, *GERMAN]
    fit_languages = ["en"] * len(ENGLISH) + ["de"] * len(GERMAN)
    translated = [translated_alone(model, tokenizer, text, "de") for text in GERMAN]
    assert len(set(translated)) == 4

    system = TranslatedTfidf("ours", model, tokenizer)
    rows = system.represent(texts, fit_on, "de", fit_language=fit_languages).toarray()

    expected = tfidf_by_hand(translated * 2, [*ENGLISH, *translated])
    # The columns are in the order of the alphabet in both.
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert system.texts == len(GERMAN) + len(ENGLISH), "every text is translated once"


def words_of(text):
    """Words of two letters or more, in lowercase, as scikit-learn's default."""
    words = []
    word = ""
    for character in text.lower() + " ":
        if character.isalnum() or character == "_":
            word += character
            continue
        if len(word) >= 2:
            words.append(word)
        word = ""
    return words


def tfidf_by_hand(texts, fit_on):
    """TF-IDF in float64, with smoothed document frequencies and rows of length 1."""
    document_frequencies = Counter()
    for text in fit_on:
        document_frequencies.update(set(words_of(text)))
    vocabulary = sorted(document_frequencies)
    rows = []
    for text in texts:
        counts = Counter(words_of(text))
        row = []
        for word in vocabulary:
            inverse = math.log((1 + len(fit_on)) / (1 + document_frequencies[word])) + 1
            row.append(counts[word] * inverse)
        length = math.sqrt(sum(value * value for value in row))
        rows.append([value / length if length else 0.0 for value in row])
    return np.array(rows)


def test_only_the_most_frequent_words_count(models, tokenizer, monkeypatch):
    monkeypatch.setattr(TranslatedTfidf, "WORDS", 2)
    system = TranslatedTfidf("ours", models["tmde"], tokenizer)
    fit_on = ["dog dog cat", "cat dog tree", "bread"]
    rows = system.represent(["dog tree", "cat bread", "tree"], fit_on, "en", fit_language="en")
    # Cat and dog are left, in the order of the alphabet.
    np.testing.assert_allclose(rows.toarray(), [[0, 1], [1, 0], [0, 0]])


def test_translations_make_topics_known_across_languages(models, tokenizer, monkeypatch):
    """Labels are English, test documents German; the translation is a dictionary."""
    english_word = dict(zip(WORDS["de"], WORDS["en"], strict=True))

    def translate(system, sentences, code):
        assert code == "de"
        return [" ".join(english_word[word] for word in text.split()) for text in sentences]

    monkeypatch.setattr(TranslatedTfidf, "_generate", translate)
    splits = {}
    for language in ("de", "en"):
        splits[language] = {}
        for seed, name in enumerate(("train", "dev", "test")):
            rows = make_rows(40, seed, ("de", "en"))
            labels = ["dog" if "dog" in row["en"] else "none" for row in rows]
            ids = [f"{name}-{number}" for number in range(len(rows))]
            splits[language][name] = Split(ids, [row[language] for row in rows], labels)
    data = ClassificationData(splits, Provenance("planted", "none"))
    accuracy = {}
    systems = {
        "translated": TranslatedTfidf("ours", models["tmde"], tokenizer),
        "characters": CharacterTfidf(),
    }
    for name, system in systems.items():
        for cell in evaluate_classification(data, system, seeds=[0]):
            accuracy[name, cell.source, cell.target] = cell.value
    for source, target in (("en", "en"), ("en", "de"), ("de", "de"), ("de", "en")):
        assert accuracy["translated", source, target] > 0.9, (source, target)
    assert accuracy["characters", "en", "de"] < 0.8
    # Labels of all languages but the target.
    (cell,) = evaluate_classification(
        data, systems["translated"], "logistic_regression", "leave-one-out", ["en", "de"], ["de"]
    )
    assert cell.value > 0.9


def test_truncated_sentences_are_counted_and_warned_of(models, tokenizer, caplog):
    system = TranslatedTfidf("ours", models["tmde"], tokenizer)
    system.represent(["haus " * 200, "haus"], ["house"], "de", fit_language="en")
    assert system.truncated == 1
    assert "ours: 1 sentences of more than 128 tokens are truncated" in caplog.text


def test_the_fingerprint_depends_on_the_weights(tokenizer):
    first, again, other = (TranslatedTfidf("x", tiny_model(seed), tokenizer) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("pivots", "language", "chosen"),
    [
        (("es", "en"), None, "en"),
        (("de", "es"), None, "de"),
        (("de", "es"), "es", "es"),
    ],
)
def test_the_language_is_english_the_first_pivot_or_the_one_that_is_named(
    pivots, language, chosen, tokenizer, tmp_path
):
    save(tmp_path, tiny_model(pivot_languages=pivots), tokenizer)
    system = TranslatedTfidf.from_pretrained("ours", tmp_path, language=language)
    assert system.describe()["translation"].startswith(f"into {chosen},")
    # Texts in that language are not translated.
    system.represent(["casa"], ["casa"], chosen, fit_language=chosen)
    assert system._translations == {("casa", chosen): "casa"}


# ---- Mistakes


def test_a_language_that_is_no_pivot_is_named(models, tokenizer):
    with pytest.raises(TmdeError, match="found the language 'de' to translate into, expected one"):
        TranslatedTfidf("ours", models["ntdv"], tokenizer, language="de")


def test_texts_of_an_unknown_language_are_named(models, tokenizer):
    system = TranslatedTfidf("ours", models["tmde"], tokenizer)
    with pytest.raises(TmdeError, match="ours: found texts in 'ru', expected the languages of the"):
        system.represent(["дом"], ["house"], "ru", fit_language="en")


def test_tasks_that_do_not_say_the_language_are_refused(models, tokenizer):
    system = TranslatedTfidf("ours", models["tmde"], tokenizer)
    with pytest.raises(TaskError, match="ours works only for classification"):
        system.represent(["haus"], ["haus", "house"], "de")


def test_texts_without_words_are_named(models, tokenizer):
    system = TranslatedTfidf("ours", models["tmde"], tokenizer)
    with pytest.raises(TmdeError, match="ours: found no word in the translations of 1 texts"):
        system.represent(["house"], ["?"], "en", fit_language="en")


def test_a_model_without_a_decoder_is_refused(tokenizer, tmp_path):
    save(tmp_path, tiny_model().model, tokenizer)
    with pytest.raises(TmdeError, match="found no weights of a decoder"):
        TranslatedTfidf.from_pretrained("ours", tmp_path)


def test_a_translation_model_of_others_is_refused(tokenizer, tmp_path):
    config = MarianConfig(
        vocab_size=400,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        pad_token_id=1,
        decoder_start_token_id=1,
    )
    save(tmp_path, MarianMTModel(config), tokenizer)
    with pytest.raises(
        TmdeError, match="found a marian, expected a translation model trained with tmde"
    ):
        TranslatedTfidf.from_pretrained("ours", tmp_path)
