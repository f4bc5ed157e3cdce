"""Checkpoints opened by sentence-transformers: the vectors of DocumentEmbedder, with and without this package."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from modeling_tmde import (
    AlignedModel,
    BagConfig,
    BagModel,
    DocumentEmbedder,
    LaserForConditionalGeneration,
    NtdvForConditionalGeneration,
    TmdeEncoderForMaskedLM,
    TmdeEncoderModel,
)
from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.long_documents import NO_LIMIT
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from tests.conftest import LANGUAGES, make_rows, tiny_model
from tests.modeling_tmde.test_embedding_families import aligned, encoder, laser, ntdv

pytest.importorskip("sentence_transformers")
from sentence_transformers import SentenceTransformer  # noqa: E402

SCRIPTS = [
    "",
    " ",
    "\n",
    "  mit Leerzeichen ",
    "漢字と仮名",
    "العربية",
    "हिन्दी",
    "ไทย",
    "🙂👩‍👩‍👧",
    "e\u0301 é",
    "<s> </s> <pad>",
    "\0",
]
BERT = {
    "model_type": "bert",
    "vocab_size": 400,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
MODELS = {
    "first": lambda: tiny_model(),
    "pyramid": lambda: tiny_model(bottleneck="pyramid"),
    "full": lambda: tiny_model(bottleneck="full"),
    "dual": lambda: tiny_model(bottleneck="dual"),
    "bag residual": lambda: tiny_model(bag_residual=True, sublinear_counts=True),
    "bag": lambda: BagModel(BagConfig(vocab_size=400, d_model=24)),
    "laser": lambda: LaserForConditionalGeneration(laser()),
    "masked": lambda: TmdeEncoderForMaskedLM(encoder("mean")),
    "light": lambda: TmdeEncoderModel(encoder("first")),
    "adapted": lambda: AdaptedForConditionalGeneration(AdaptedConfig(encoder_config=BERT, pooling="mean")),
    "ntdv": lambda: NtdvForConditionalGeneration(ntdv()),
    "aligned bilstm": lambda: AlignedModel(aligned("bilstm")),
    "aligned bag": lambda: AlignedModel(aligned("bag")),
}
TOLD = ("ntdv", "aligned bilstm", "aligned bag")  # which must be told the language of a text


def jittered(model):
    """No parameter has its initial value, so that one left out of a file is noticed."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer):
    root = tmp_path_factory.mktemp("saved")
    for name, make in MODELS.items():
        torch.manual_seed(0)
        jittered(make()).save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


def opened(folder) -> SentenceTransformer:
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def told(name: str) -> dict[str, str]:
    return {"language": "fr"} if name in TOLD else {}


def texts_of_every_length(limit: int) -> list[str]:
    return SCRIPTS + [
        " ".join(["haus", "cane"] * 80)[: 5 * words]
        for words in (*range(20), *range(20, limit - 8, 5), *range(limit - 8, limit + 8))
    ]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_vectors_for_texts_of_every_length(name, folders):
    model, embedder = opened(folders / name), DocumentEmbedder.from_pretrained(folders / name, device="cpu")
    assert model.max_seq_length == model.get_max_seq_length() == embedder.max_length
    assert embedder.max_length == {"masked": 40, "light": 40, "adapted": 64}.get(
        name, 128 if name in list(MODELS)[:5] else NO_LIMIT
    )
    assert model.get_embedding_dimension() == embedder.dimension
    texts = texts_of_every_length(min(embedder.max_length, 150))
    np.random.default_rng(0).shuffle(texts)
    expected = embedder.encode(texts, **told(name))
    assert (embedder.last_report.truncated > 0) == (embedder.max_length < NO_LIMIT)
    assert embedder.last_report.longest > min(embedder.max_length, 150)
    for batch_size in (1, 64):
        vectors = model.encode(texts, batch_size=batch_size, **told(name))
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    # By a model that is called by hand, one text at a time.
    encoder = AutoModel.from_pretrained(folders / name)
    for text, vector in list(zip(texts, vectors, strict=True))[:20]:
        inputs = embedder.tokenizer(text, return_tensors="pt", truncation=True, max_length=embedder.max_length)
        with torch.no_grad():
            alone = encoder(**inputs, **told(name)).pooler_output[0]
        np.testing.assert_allclose(vector, alone.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["first", "bag", "laser"])
def test_similarity_and_normalisation(name, folders):
    model = opened(folders / name)
    texts = ["haus hund", "house dog", "chat"]
    plain, unit = model.encode(texts), model.encode(texts, normalize_embeddings=True)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, plain / norms, rtol=0, atol=1e-6)
    assert name == "bag" or np.abs(norms - 1).max() > 0.01  # there is no Normalize module
    assert model.similarity_fn_name == "cosine"
    cosines = (plain.astype(np.float64) / norms) @ (plain.astype(np.float64) / norms).T
    np.testing.assert_allclose(model.similarity(plain, plain), cosines, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", TOLD)
def test_languages_are_passed_on_and_asked_for(name, folders):
    model, embedder = opened(folders / name), DocumentEmbedder.from_pretrained(folders / name, device="cpu")
    texts = ["haus hund", "", "katze baum fluss"]
    for code in ("de", "en", "fr"):
        expected = embedder.encode(texts, language=code)
        np.testing.assert_allclose(model.encode(texts, language=code), expected, rtol=0, atol=1e-5)
    assert np.abs(model.encode(texts, language="de") - expected).max() > 1e-3
    owner = type(embedder.model).__name__
    for language, message in (
        (
            None,
            rf"{owner} has a part of its own for each language .* SentenceTransformer.encode\(texts, language='de'",
        ),
        ("it", r"language: found 'it', expected one of \['de', 'en', 'fr'\]"),
        (["de"] * 3, "language: found list, expected one code .* by a call of their own, or use DocumentEmbedder"),
    ):
        with pytest.raises(ValueError, match=message):
            model.encode(texts, **({} if language is None else {"language": language}))
    with pytest.raises(ValueError, match="not use: \\['language'\\]"):
        opened(folders / "first").encode(texts, language="de")


@pytest.mark.parametrize("limit", [750, 40])
def test_the_tokenizers_limit_counts_below_the_models_positions(limit, tokenizer, tmp_path):
    """750 tokens of 2048 positions: the first 750 of the text, as thesis 4.5.2 has it."""
    jittered(tiny_model(max_position_embeddings=2048)).save_pretrained(tmp_path)
    shorter = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", eos_token="</s>"
    )
    shorter.model_max_length = limit
    shorter.save_pretrained(tmp_path)
    model, embedder = opened(tmp_path), DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert model.max_seq_length == embedder.max_length == limit
    words = "haus hund katze baum fluss stadt licht nacht brot wasser".split()
    texts = [" ".join(words[(i * i) % 10] for i in range(length)) for length in (limit // 2, 3 * limit)]
    vectors = model.encode(texts)
    np.testing.assert_allclose(vectors, embedder.encode(texts), rtol=0, atol=1e-5)
    ids = tokenizer(texts[1])["input_ids"]
    assert len(ids) > limit > len(tokenizer(texts[0])["input_ids"])
    ids = torch.tensor([ids[: limit - 1] + ids[-1:]])  # the last special token stays
    with torch.no_grad():
        first = embedder.model(ids, torch.ones_like(ids)).pooler_output[0]
    np.testing.assert_allclose(vectors[1], first.numpy(), rtol=0, atol=1e-5)
    model.max_seq_length = 20
    assert np.abs(model.encode(texts[1]) - vectors[1]).max() > 1e-3


def test_saving_again_keeps_prompts_and_similarity_and_renews_the_rest(folders, tokenizer, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "config_sentence_transformers.json"
    content = json.loads(path.read_text()) | {"prompts": {"query": "hund "}, "similarity_fn_name": "dot"}
    path.write_text(json.dumps(content))
    jittered(tiny_model(d_model=16)).save_pretrained(tmp_path)
    model = opened(tmp_path)
    assert model.similarity_fn_name == "dot" and model.get_embedding_dimension() == 16
    expected = DocumentEmbedder.from_pretrained(tmp_path, device="cpu").encode("hund haus")
    np.testing.assert_allclose(model.encode("haus", prompt_name="query"), expected, rtol=0, atol=1e-5)


def test_other_processes_of_a_job_write_nothing(tmp_path):
    tiny_model().save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other" / "modules.json").exists()


# ---- Without the package

# Opens every folder under argv[1], encodes argv[3], saves it again under argv[2].
WITHOUT_PACKAGE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
import json
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
root, output, texts, told = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
results = {}
for folder in sorted(root.iterdir()):
    options = {"language": "fr"} if folder.name in told else {}
    model = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
    assert type(model[0].auto_model).__module__.startswith("transformers_modules.")
    results[folder.name] = model.encode(texts, **options)
    results[folder.name + "/limit"] = np.array([model.max_seq_length])
    model.save_pretrained(str(output / folder.name), create_model_card=False)
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
save_file(results, output / "results.safetensors")
"""


@pytest.fixture(scope="module")
def without_package(folders, tmp_path_factory):
    output = tmp_path_factory.mktemp("again")
    environment = os.environ | {"HF_MODULES_CACHE": str(output / "modules"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", WITHOUT_PACKAGE, folders, output, json.dumps(SHARED_TEXTS), json.dumps(TOLD)]
    process = subprocess.run(command, cwd=output, env=environment, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[-4000:]
    return output


SHARED_TEXTS = texts_of_every_length(12)[:11] + ["haus hund " * 100]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_without_the_package(name, folders, without_package):
    found = load_file(without_package / "results.safetensors")
    embedder = DocumentEmbedder.from_pretrained(folders / name, device="cpu")
    assert found[f"{name}/limit"].item() == embedder.max_length
    expected = embedder.encode(SHARED_TEXTS, **told(name))
    np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5)
    # What sentence-transformers has saved again has lost nothing but the decoder.
    before, after = ({path.name for path in (root / name).rglob("*.py")} for root in (folders, without_package))
    assert before == after and len(before) > 3
    configs = [json.loads((root / name / "config.json").read_text()) for root in (folders, without_package)]
    assert configs[0]["auto_map"] == configs[1]["auto_map"]
    again = DocumentEmbedder.from_pretrained(without_package / name, device="cpu")
    assert again.max_length == embedder.max_length
    np.testing.assert_allclose(again.encode(SHARED_TEXTS, **told(name)), expected, rtol=0, atol=1e-5)
    model = opened(without_package / name)
    assert model.max_seq_length == embedder.max_length
    np.testing.assert_allclose(model.encode(SHARED_TEXTS, **told(name)), expected, rtol=0, atol=1e-5)


# ---- Fine-tuning


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pyramid", "bag", "laser", "masked", "adapted"])
def test_its_trainer_fine_tunes(name, folders, tmp_path):
    """In-batch negatives on translations: the loss falls, and what is saved opens everywhere."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    rows = make_rows(32, seed=1)
    pairs = Dataset.from_list([{"anchor": row["de"], "positive": row["en"]} for row in rows])
    model = opened(folders / name)
    texts = [row[code] for row in rows[:5] for code in LANGUAGES]
    before = model.encode(texts)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"),
        num_train_epochs=8,
        per_device_train_batch_size=16,
        learning_rate=0.005,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    trainer = SentenceTransformerTrainer(model, arguments, pairs, loss=MultipleNegativesRankingLoss(model))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
    after = model.encode(texts)
    assert np.abs(after - before).max() > 0.01
    folder = tmp_path / "tuned"
    model.save_pretrained(str(folder), create_model_card=False)
    np.testing.assert_allclose(opened(folder).encode(texts), after, rtol=0, atol=1e-5)
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(embedder.encode(texts), after, rtol=0, atol=1e-5)
    if name in ("pyramid", "laser", "adapted"):  # the decoder is not part of it, and is reported missing
        _, report = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
        assert {key.partition(".")[0] for key in report["missing_keys"]} in ({"decoder", "lm_head"}, {"decoder"})
