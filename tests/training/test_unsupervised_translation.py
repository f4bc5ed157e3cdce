"""Translation from texts of one language each: how it begins, and that it learns a cipher."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from modeling_tmde import TmdeEncoderForMaskedLM, TmdeForConditionalGeneration
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from tests.conftest import jittered, make_rows, save, tiny_model
from tests.training.batches import parallel_batches
from tests.training.logs import read_log
from tests.training.trainers import checkpoint_recipe
from tmde.data.sample import sample_sentences
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.evaluation import check_metric
from tmde.training.objectives import CausalLanguageModel, MaskedLanguageModel
from tmde.training.parallel_model import ParallelModel
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe
from tmde.training.run_data import load_data
from tmde.training.starts.checkpoint import check_fit
from tmde.training.starts.weights import warm_start


def language_model(**changes) -> TmdeEncoderForMaskedLM:
    """Return a language model with the sizes of `tiny_model`."""
    sizes = {
        "vocab_size": 400,
        "d_model": 32,
        "encoder_layers": 3,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "max_position_embeddings": 128,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "prediction_head": "none",
    }
    torch.manual_seed(5)
    return jittered(TmdeEncoderForMaskedLM(TmdeEncoderConfig(**(sizes | changes)))).eval()


# ---- Encoder and decoder begin with a language model


def test_the_encoder_is_the_language_model(tokenizer, tmp_path):
    source = language_model()
    model = tiny_model(bottleneck="full", decoder_layers=3)
    warm_start(model, tokenizer, save(tmp_path, source, tokenizer))
    inputs = tokenizer(["haus hund", "katze"], return_tensors="pt", padding=True)
    states = model.model(**inputs).last_hidden_state
    expected = source.model(**inputs).token_states
    is_token = inputs["attention_mask"].bool()
    torch.testing.assert_close(states[is_token], expected[is_token])


@pytest.mark.parametrize("shared", [False, True])
def test_the_decoder_is_the_language_model_where_it_sees_no_encoder(shared, tokenizer, tmp_path):
    """A causal language model reads as a decoder does, and predicts the same tokens."""
    source = language_model(causal=True)
    model = tiny_model(bottleneck="full", decoder_layers=3, share_embeddings=shared)
    report = warm_start(model, tokenizer, save(tmp_path, source, tokenizer))
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.encoder_attn.out_proj.weight.zero_()
            layer.encoder_attn.out_proj.bias.zero_()
    ids = tokenizer("haus hund katze", return_tensors="pt")["input_ids"]
    logits = model(ids, decoder_input_ids=ids, target_language="de").logits
    torch.testing.assert_close(logits, source(ids).logits)
    new_parts = {"encoder_attn", "encoder_attn_layer_norm", "embed_languages"}
    for name in report["tensors_kept"]:
        assert new_parts & set(name.split(".")), name
    # Keys have no bias: 7 tensors of each attention, 2 of its norm.
    assert len(report["tensors_kept"]) == 3 * (7 + 2) + 1


def test_a_smaller_decoder_takes_the_first_layers(tokenizer, tmp_path):
    source = language_model()
    model = tiny_model(decoder_layers=1)
    warm_start(model, tokenizer, save(tmp_path, source, tokenizer))
    layer = model.decoder.layers[0]
    assert torch.equal(layer.fc1.weight, source.model.layers[0].fc1.weight)
    assert not torch.equal(layer.fc1.weight, source.model.layers[1].fc1.weight)
    assert torch.equal(model.decoder.layer_norm.bias, source.model.layer_norm.bias)
    assert torch.equal(model.lm_head.weight, source.model.embed_tokens.weight)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.encoder_layers=2", "encoder_layers=1: found encoder_layers=2; set model.encoder_l"),
        ("model.encoder_attention_heads=4", "=2: found encoder_attention_heads=4"),
        ("model.decoder_attention_heads=4", "=2: found decoder_attention_heads=4"),
        ("model.encoder_ffn_dim=48", "=24: found encoder_ffn_dim=48"),
        ("model.decoder_ffn_dim=48", "=24: found decoder_ffn_dim=48; set model.decoder_ffn_dim=24"),
        ("model.activation_function=relu", "=gelu: found activation_function=relu"),
    ],
)
def test_a_language_model_of_another_shape_is_refused(setting, message):
    recipe = load_recipe("unsupervised_translation", [*TINY, *TINY_DECODER, setting])
    source = TmdeEncoderConfig(**TINY_SIZES, activation_function="gelu")
    with pytest.raises(ValueError, match=message):
        check_fit(recipe, source)


def test_a_language_model_with_learned_positions_is_refused():
    recipe = load_recipe("unsupervised_translation", [*TINY, *TINY_DECODER])
    source = TmdeEncoderConfig(position_embeddings="learned")
    with pytest.raises(ValueError, match="position_embeddings=learned, but T-MDE"):
        check_fit(recipe, source)


# ---- A run


def write_single_texts(path: Path, num_rows: int) -> Path:
    """Write rows that have German or English, in turn."""
    with path.open("w") as file:
        for number, row in enumerate(make_rows(num_rows)):
            language = ("de", "en")[number % 2]
            file.write(json.dumps({"translation": {language: row[language]}}) + "\n")
    return path


TINY_SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
}
TINY = [f"model.{name}={value}" for name, value in TINY_SIZES.items()]
TINY_DECODER = [
    "model.decoder_layers=1",
    "model.decoder_attention_heads=2",
    "model.decoder_ffn_dim=24",
]


def test_the_recipe_trains_on_rows_of_one_language(tmp_path):
    train_file = write_single_texts(tmp_path / "train.jsonl", num_rows=200)
    training = [f"data.train={train_file}", "data.languages=[de,en]", "data.dev_rows=20"]
    training += ["micro_batch_tokens=200", "max_steps=4", "eval_steps=2", "bf16=false"]
    training += ["batch_tokens=null", "dataloader_num_workers=0", "logging_steps=1"]
    first = tmp_path / "first"
    vocabulary = ["tokenizer.vocab_size=300", "data.pivot_languages=[en]"]
    train_recipe(
        checkpoint_recipe("unsupervised_translation", *training, *vocabulary, *TINY), first
    )
    folder = tmp_path / "run"
    start = f"warm_start.checkpoint={first}"
    train_recipe(
        load_recipe("unsupervised_translation", [*training, *TINY, *TINY_DECODER, start]), folder
    )

    report = json.loads((folder / "run.json").read_text())["warm_start"]
    assert report["model_type"] == "tmde_encoder"
    assert report["tokens_left"] == 0
    assert "decoder.layers.0.fc1.weight" not in report["tensors_kept"]
    assert json.loads((folder / "config.json").read_text())["mask_token_id"] == 4
    evaluations = [entry for entry in read_log(folder) if "eval_denoising_nll" in entry]
    assert evaluations
    for entry in evaluations:
        assert entry["eval_denoising_nll"] == entry["eval_dev_denoising_nll"]
    first_log = read_log(first)
    assert any("eval_masked_lm_loss" in entry for entry in first_log)
    log = read_log(folder)
    # The rows that are read have no translation.
    assert all("eval_retrieval" not in entry for entry in log)
    losses = [entry for entry in log if "loss" in entry]
    assert len(losses) == 4
    for entry in losses:
        parts = entry["denoising_nll"] + entry["back_translation_nll"]
        assert entry["loss"] == pytest.approx(parts, rel=1e-4)
    assert load_file(folder / "model.safetensors").keys() >= {"model.layers.0.fc1.weight"}


def write_language(path: Path, language: str, num_rows: int) -> str:
    """Write numbered texts of one language."""
    with path.open("w") as file:
        for number in range(num_rows):
            row = {"translation": {language: f"haus {number}"}}
            file.write(json.dumps(row) + "\n")
    return str(path)


@pytest.mark.parametrize("stage", ["first", "second"])
def test_both_stages_read_as_many_rows_of_each_language(stage, tmp_path, spaced_tokenizer):
    """German has a tenth of the rows; of two files each row is there, and German is repeated."""
    files = [
        write_language(tmp_path / "de.jsonl", "de", 200),
        write_language(tmp_path / "en.jsonl", "en", 1800),
    ]
    settings = [f"data.train={files}", "data.dev_rows=100", "data.languages=[de,en]"]
    settings.append("data.pivot_languages=[de,en]")
    if stage == "first":
        recipe = checkpoint_recipe("unsupervised_translation", *settings)
    else:
        recipe = load_recipe("unsupervised_translation", settings)
    train, dev, _ = load_data(recipe)
    batches = parallel_batches(
        train, spaced_tokenizer, ["de", "en"], ["de", "en"], targets=["self"], fewest_languages=1
    )
    texts = Counter()
    for batch in batches:
        assert len(batch.languages) == 1
        texts[batch.languages[0]] += batch.input_ids.shape[1]
    # English is exhausted after about 3,600 draws, of which four standard deviations are 120.
    assert texts.total() > 3000
    assert abs(texts["de"] - texts["en"]) < 400
    held = Counter(
        language for row in dev["dev"]["translation"] for language in row if row[language]
    )
    assert min(held.values()) > 15  # German rows of the mixture are held out once, with copies.


def test_a_step_of_the_language_model_is_64_streams_of_256_tokens():
    training = checkpoint_recipe("unsupervised_translation").training
    assert training.batch_tokens / training.train_max_length == 64
    # The rows have one language, so a micro-batch has as many streams as rows.
    assert training.batch_tokens == 2 * training.micro_batch_tokens


@pytest.mark.parametrize("metric", ["denoising_nll", "back_translation_nll", "translation_nll"])
def test_losses_of_translation_choose_the_lowest(metric, tmp_path):
    args = TmdeTrainingArguments(str(tmp_path), use_cpu=True, metric_for_best_model=metric)
    check_metric(args, ["dev"], [], ["de", "en"])
    assert args.greater_is_better is False


@pytest.mark.parametrize("objective", [MaskedLanguageModel(), CausalLanguageModel()])
def test_language_models_read_rows_of_one_language(objective):
    causal = isinstance(objective, CausalLanguageModel)
    parallel = ParallelModel(language_model(causal=causal), {"lm": objective})
    assert not parallel.needs_several_languages


# ---- A cipher


LETTERS = "abcdefghijklmnopqrstuvwxyz"
KEY = str.maketrans(LETTERS, "qwertyuiopasdfghjklzxcvbnm")
PLAIN, CIPHER = "en", "eo"
LONGEST = 14  # words of a sentence
TESTED = 60  # sentences


def encipher(text: str) -> str:
    """Replace the letters of the words in lower case: names, numbers and marks stay."""
    return re.sub(r"\b[a-z]+\b", lambda match: match[0].translate(KEY), text)


def sentences_of_markets(split: str, num_rows: int) -> list[str]:
    sentences = []
    for row in sample_sentences(num_rows, split=split):
        text = row["translation"]["en"]
        if row["topic"] == "markets" and len(text.split()) <= LONGEST:
            sentences.append(text)
    return sentences


def enciphered_accuracy(hypotheses: list[str], sources: list[str], targets: list[str]) -> float:
    """Return the share of the words to translate that stand in their place.

    Words that are the same in both languages do not count.
    """
    right = 0
    total = 0
    for hypothesis, source, target in zip(hypotheses, sources, targets, strict=True):
        words = hypothesis.split()
        word_pairs = zip(source.split(), target.split(), strict=True)
        for place, (source_word, target_word) in enumerate(word_pairs):
            if source_word == target_word:
                continue
            total += 1
            if words[place : place + 1] == [target_word]:
                right += 1
    return right / total


def accuracies(
    model: PreTrainedModel, tokenizer, sentences: list[str]
) -> dict[str, tuple[float, float]]:
    """Return the accuracy by target language, and that of the translations of other sentences."""
    texts = {PLAIN: sentences, CIPHER: [encipher(text) for text in sentences]}
    measured = {}
    for source, target in ((PLAIN, CIPHER), (CIPHER, PLAIN)):
        inputs = tokenizer(texts[source], return_tensors="pt", padding=True)
        written = model.generate(**inputs, target_language=target, max_new_tokens=40)
        translations = tokenizer.batch_decode(written, skip_special_tokens=True)
        rotated = translations[1:] + translations[:1]
        measured[target] = (
            enciphered_accuracy(translations, texts[source], texts[target]),
            enciphered_accuracy(rotated, texts[source], texts[target]),
        )
    return measured


def test_accuracy_by_hand():
    source = encipher("Shares of Altessia fell by 3%.")
    assert source == "Shares gy Altessia ytss wn 3%."
    target = "Shares of Altessia fell by 3%."
    # To translate: of, fell, by.
    assert enciphered_accuracy([source], [source], [target]) == 0
    assert enciphered_accuracy(["Shares of Quintora fell to 5%."], [source], [target]) == 2 / 3
    assert enciphered_accuracy(["Shares of"], [source], [target]) == 1 / 3


CIPHER_SIZES = [
    "model.d_model=64",
    "model.encoder_layers=2",
    "model.encoder_attention_heads=4",
    "model.encoder_ffn_dim=128",
    "model.dropout=0",
    "model.attention_dropout=0",
]
CIPHER_DECODER = [
    "model.decoder_layers=2",
    "model.decoder_attention_heads=4",
    "model.decoder_ffn_dim=128",
]
CIPHER_TRAINING = [
    "data.dev_rows=50",
    f"data.languages=[{PLAIN},{CIPHER}]",
    f"data.pivot_languages=[{PLAIN},{CIPHER}]",
    "lr_scheduler_type=constant_with_warmup",
    "warmup_steps=50",
    "cooldown=0.3",
    "micro_batch_tokens=1000",
    "eval_steps=400",
    "dataloader_num_workers=0",
    "bf16=false",
]


@pytest.mark.nightly
def test_a_cipher_is_learned_without_a_pair(tmp_path):
    """Half of the sentences are enciphered; no sentence is read both ways.

    What makes it learnable in minutes: names and numbers that both languages have, a small
    vocabulary of whole words, and a language model that knows its texts well. Names alone do not
    count as translated words.
    """
    sentences = sentences_of_markets("train", 20000)
    with (tmp_path / "train.jsonl").open("w") as file:
        for number, text in enumerate(sentences):
            row = {PLAIN: text} if number % 2 else {CIPHER: encipher(text)}
            file.write(json.dumps({"translation": row}) + "\n")
    name = "unsupervised_translation"
    settings = [f"data.train={tmp_path / 'train.jsonl'}", *CIPHER_TRAINING, *CIPHER_SIZES]
    language_model = ["tokenizer.vocab_size=1600", "learning_rate=0.002", "max_steps=800"]
    first = tmp_path / "first"
    train_recipe(checkpoint_recipe(name, *settings, *language_model, "batch_tokens=null"), first)
    settings += [*CIPHER_DECODER, "learning_rate=0.001", "max_steps=150"]
    run = tmp_path / "run"
    train_recipe(load_recipe(name, [*settings, f"warm_start.checkpoint={first}"]), run)

    tested = sentences_of_markets("dev", 1000)[:TESTED]
    assert not set(tested) & set(sentences)
    tokenizer = AutoTokenizer.from_pretrained(run)
    model = AutoModelForSeq2SeqLM.from_pretrained(run).eval()
    torch.manual_seed(0)
    untrained = TmdeForConditionalGeneration(model.config).eval()
    warm_start(untrained, tokenizer, first)
    before = accuracies(untrained, tokenizer, tested)
    after = accuracies(model, tokenizer, tested)
    for language in (PLAIN, CIPHER):
        accuracy, of_other_sentences = after[language]
        assert accuracy > 0.25, after
        assert accuracy > 2 * of_other_sentences, after
        assert before[language][0] < 0.05, before
