"""The LSTM family: equal to plain float64 loops, whatever the padding; generation, files, and the published sizes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from modeling_tmde import modeling_laser
from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.modeling_laser import LaserForConditionalGeneration, LaserModel
from tests.conftest import make_rows

TEXTS = [row[language] for row in make_rows(3, seed=5) for language in ("de", "fr")]
PAPER_001 = {"encoder_layers": 2, "unidirectional_layers": 1, "pooling": "mean", "language_signal": "start_token"}
VARIANTS = {"laser_1": {"encoder_layers": 1}, "laser_3": {"encoder_layers": 3}, "paper_001": PAPER_001}
ROWS = [[0, 7, 7, 300, 2], [0, 2], [0, 9, 2], [0, *range(20, 29), 2]]


def tiny(name: str = "laser_3", seed: int = 0, **changes) -> LaserForConditionalGeneration:
    """A model none of whose weights are as they start, biases too."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": 400, "d_model": 16, "embedding_dim": 12, "decoder_hidden_size": 20}
    options = sizes | {"language_embedding_dim": 4, "dropout": 0.0} | VARIANTS[name] | changes
    model = LaserForConditionalGeneration(LaserConfig(**options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def padded(rows: list[list[int]], side: str = "right", extra: int = 0) -> dict[str, torch.Tensor]:
    """A batch padded on one side, or with the padding anywhere (what masks of dropped tokens look like)."""
    width = max(map(len, rows)) + extra
    generator = torch.Generator().manual_seed(len(rows) + width)
    ids, mask = torch.randint(3, 400, (len(rows), width), generator=generator), torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        places = {"right": torch.arange(len(row)), "left": torch.arange(width - len(row), width)}
        places["anywhere"] = torch.randperm(width, generator=generator)[: len(row)].sort().values
        ids[i, places[side]], mask[i, places[side]] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask.long()}


@pytest.fixture(params=[-1, 1], ids=["packed", "mirrored"])
def way(request, monkeypatch) -> None:
    """Both ways to leave out padding: packed sequences, or mirrored texts, however much there is."""
    monkeypatch.setattr(modeling_laser, "MOST_PADDING", request.param)


# ---- Plain loops


def numpy_lstm(layer: nn.LSTM, inputs: np.ndarray, suffix: str = "", hidden=None, cell=None) -> np.ndarray:
    """One text (length, width) -> (length, hidden_size), a step at a time in float64 (gates i, f, g, o)."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    w_ih, w_hh, b_ih, b_hh = (getattr(layer, name + suffix).detach().double().numpy() for name in names)
    hidden = np.zeros(layer.hidden_size) if hidden is None else hidden
    cell = np.zeros(layer.hidden_size) if cell is None else cell
    outputs = []
    for vector in inputs:
        i, f, g, o = np.split(w_ih @ vector + b_ih + w_hh @ hidden + b_hh, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        hidden = o * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs)


def numpy_states(model: LaserModel, row: list[int]) -> list[np.ndarray]:
    """Token vectors and the states of every layer, (length, width)."""
    states = [model.embed_tokens.weight.detach().double().numpy()[row]]
    for layer in model.layers:
        forth = numpy_lstm(layer, states[-1])
        if layer.bidirectional:
            back = numpy_lstm(layer, states[-1][::-1], "_reverse")[::-1]
            forth = np.concatenate([forth, back], axis=1)
        states.append(forth)
    return states


def numpy_embedding(model: LaserModel, row: list[int]) -> np.ndarray:
    last = numpy_states(model, row)[-1]
    return last.max(axis=0) if model.config.pooling == "max" else last.sum(axis=0) / len(row)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("side", ["right", "left", "anywhere"])
def test_encoder_equals_a_plain_loop(name, side, way):
    model = tiny(name).model
    batch = padded(ROWS, side, extra=2)
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
    expected = np.stack([numpy_embedding(model, row) for row in ROWS])
    np.testing.assert_allclose(outputs.pooler_output.numpy(), expected, atol=2e-6)
    assert outputs.last_hidden_state.shape == (4, 1, 16)
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)
    assert len(outputs.hidden_states) == model.config.encoder_layers + 1
    for index, states in enumerate(outputs.hidden_states):
        assert states.shape == (4, 13, 12 if index == 0 else 16)
        for text, row in enumerate(ROWS):
            real = batch["attention_mask"][text].bool()
            np.testing.assert_allclose(states[text, real].numpy(), numpy_states(model, row)[index], atol=2e-6)
            assert not states[text, ~real].any()


@pytest.mark.parametrize("name", ["laser_1", "paper_001"])
def test_decoder_equals_a_plain_loop(name):
    model = tiny(name)
    decoder = model.decoder
    embedding, languages = torch.randn(4, 16), torch.tensor([1, 2, 4, 1])
    ids, mask = padded(ROWS).values()
    places = mask.flatten().nonzero().squeeze(1)
    with torch.no_grad():
        states = decoder(ids, embedding, languages).last_hidden_state
        some = decoder(ids, embedding, languages, token_indices=places).last_hidden_state
    assert states.shape == (4, 11, 20)
    torch.testing.assert_close(some, states.flatten(0, 1)[places], atol=0, rtol=0)
    weights = {key: value.double().numpy() for key, value in decoder.state_dict().items()}
    for text, row in enumerate(ROWS):
        p, language = embedding[text].double().numpy(), weights["embed_languages.weight"][languages[text]]
        tokens = weights["embed_tokens.weight"][row]
        constant = [p, language]
        if name == "paper_001":
            tokens[0], constant = language, [p]
        inputs = np.stack([np.concatenate([token, *constant]) for token in tokens])
        hidden, cell = (
            weights[f"initial_{part}.weight"] @ p + weights[f"initial_{part}.bias"] for part in ("hidden", "cell")
        )
        expected = numpy_lstm(decoder.lstm, inputs, "", hidden, cell)
        np.testing.assert_allclose(states[text, : len(row)].numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_both_ways_have_the_same_gradients(name, monkeypatch):
    gradients = []
    for most in (-1, 1):
        monkeypatch.setattr(modeling_laser, "MOST_PADDING", most)
        model = tiny(name).model
        (model(**padded(ROWS, "left")).pooler_output * torch.linspace(-1, 1, 64).view(4, 16)).sum().backward()
        gradients.append({key: parameter.grad for key, parameter in model.named_parameters()})
    for key, value in gradients[0].items():
        assert value.any(), key
        torch.testing.assert_close(gradients[1][key], value, atol=1e-5, rtol=1e-4)


# ---- Padding and company


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(3, 399), max_size=9).map(lambda ids: [0, *ids, 2]), min_size=1, max_size=5),
    name=st.sampled_from(sorted(VARIANTS)),
    side=st.sampled_from(["right", "left", "anywhere"]),
    extra=st.integers(0, 9),
)
def test_does_not_depend_on_padding_or_company(rows, name, side, extra):
    model = tiny(name).model
    with torch.no_grad():
        alone = torch.cat([model(input_ids=torch.tensor([row])).pooler_output for row in rows])
        together = model(**padded(rows, side, extra)).pooler_output
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_vectors_in_place_of_ids():
    model = tiny().model
    batch = padded(ROWS, "left")
    vectors = model(inputs_embeds=model.embed_tokens(batch["input_ids"]), attention_mask=batch["attention_mask"])
    torch.testing.assert_close(vectors.pooler_output, model(**batch).pooler_output, atol=1e-6, rtol=0)


def test_a_layer_with_hooks_is_called(way):
    """As accelerate's offloading and quantisation need it."""
    model, seen = tiny().model, []
    expected = model(**padded(ROWS)).pooler_output
    model.layers[1].register_forward_hook(lambda *args: seen.append(1))
    torch.testing.assert_close(model(**padded(ROWS)).pooler_output, expected, atol=1e-6, rtol=0)
    assert seen == [1]


def test_what_is_pooled_is_not_dropped():
    model = tiny("laser_1", dropout=0.5).model.train()
    outputs = model(**padded([[0, 5, 6, 2], [0, 7, 8, 2]]), output_hidden_states=True)
    assert torch.equal(outputs.pooler_output, outputs.hidden_states[-1].max(dim=1).values)
    again = model(**padded([[0, 5, 6, 2], [0, 7, 8, 2]])).pooler_output
    assert (again - outputs.pooler_output).abs().max() > 1e-3  # token vectors are


# ---- Sizes, settings, errors


@pytest.mark.parametrize(("layers", "millions"), [(1, 192), (6, 223)])
def test_parameters_at_paper_size(layers, millions):
    with torch.device("meta"):
        model = LaserForConditionalGeneration(LaserConfig(encoder_layers=layers))
    assert model.num_parameters() == pytest.approx(millions * 1e6, rel=0.01)
    # Table 4.1 prints 209 M and 241 M: with the decoder's last output as an input, four gates of 2048 x 2048 more.
    assert model.num_parameters() + 4 * 2048**2 == pytest.approx((millions + 17) * 1e6, rel=0.01)


def test_sizes_of_paper_001():
    with torch.device("meta"):
        config = LaserConfig(vocab_size=85000, decoder_hidden_size=1024, **PAPER_001)
        model = LaserForConditionalGeneration(config)
    first, second = model.model.layers
    assert first.bidirectional and first.hidden_size == 512 and first.input_size == 512
    assert not second.bidirectional and second.hidden_size == 1024 and second.input_size == 1024
    assert config.hidden_size == 1024 and model.decoder.lstm.input_size == 512 + 1024
    assert tuple(model.decoder.embed_languages.weight.shape) == (5, 512)


def test_initial_weights():
    torch.manual_seed(0)
    config = LaserConfig(vocab_size=1000, d_model=128, embedding_dim=96, encoder_layers=2, decoder_hidden_size=160)
    model = LaserForConditionalGeneration(config)
    assert model.model.embed_tokens.weight[2:].std().item() == pytest.approx(96**-0.5, rel=0.02)
    assert not model.model.embed_tokens.weight[1].any()
    assert model.lm_head.weight.std().item() == pytest.approx(160**-0.5, rel=0.02)
    layer = model.model.layers[0]
    assert layer.weight_ih_l0_reverse.abs().max().item() == pytest.approx((6 / (96 + 64)) ** 0.5, rel=0.01)
    assert (layer.bias_ih_l0[64:128] == 1).all() and layer.bias_ih_l0.sum() == 64 and not layer.bias_hh_l0.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 15}, "d_model=15 must be even"),
        ({"encoder_layers": 0}, "encoder_layers=0 must be at least 1"),
        ({"encoder_layers": 2, "unidirectional_layers": 3}, "unidirectional_layers=3 .* encoder_layers=2"),
        ({"pooling": "first"}, "pooling='first' is unknown; choose one of max, mean"),
        ({"language_signal": "none"}, "language_signal='none' is unknown; choose one of feature, start_token"),
        ({"share_embeddings": True}, "embedding_dim=512 and decoder_hidden_size=2048"),
        ({"languages": ["de", "en"], "pivot_languages": ["es"]}, "pivot_languages"),
    ],
)
def test_settings_that_do_not_fit_are_named(changes, message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        LaserConfig(**changes)


def test_bad_input_is_named():
    model = tiny()
    ids = torch.tensor([[0, 5, 2], [0, 6, 2]])
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model.model()
    with pytest.raises(ValueError, match=r"attention_mask \(2, 2\) .* \(2, 3\)"):
        model.model(input_ids=ids, attention_mask=torch.ones(2, 2))
    with pytest.raises(ValueError, match="Text 1 of the batch has no token"):
        model.model(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1], [0, 0, 0]]))
    with pytest.raises(ValueError, match="Give decoder_input_ids, or labels"):
        model(input_ids=ids, target_language="en")
    with pytest.raises(ValueError, match="target_language 'xx' is unknown"):
        model(input_ids=ids, labels=ids, target_language="xx")


# ---- Training


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_reach_every_parameter(name, autocast, way):
    model = tiny(name, dropout=0.1).train()
    batch = padded(ROWS)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = model(**batch, labels=labels, target_language=["en", "es", "de", "fr"]).loss
    assert loss.dtype == torch.float32
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), key


def test_autocast_is_near(way):
    model = tiny()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = model.model(**padded(ROWS, "left")).pooler_output
    torch.testing.assert_close(vectors.float(), model.model(**padded(ROWS)).pooler_output, atol=0.05, rtol=0)


def test_half_precision():
    batch = padded(ROWS, "left")
    expected = tiny().model(**batch).pooler_output
    vectors = tiny().bfloat16().model(**batch).pooler_output
    assert vectors.dtype == torch.bfloat16
    torch.testing.assert_close(vectors.float(), expected, atol=0.05, rtol=0)


def test_loss_of_labels():
    model = tiny()
    batch = padded(ROWS)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    with torch.no_grad():
        output = model(**batch, labels=labels, target_language="es")
        expected = []
        for row in ROWS:
            one = model(input_ids=torch.tensor([row]), decoder_input_ids=torch.tensor([row]), target_language="es")
            scores = one.logits[0].double().log_softmax(dim=-1)
            expected += [-scores[place, token].item() for place, token in enumerate(row[1:])]
        summed = model(**batch, labels=labels, target_language="es", num_items_in_batch=10).loss
    assert output.loss.item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)
    assert summed.item() == pytest.approx(sum(expected) / 10, rel=1e-5)


# ---- Generation


@pytest.mark.parametrize("name", ["laser_3", "paper_001"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_generation_is_a_loop_of_argmax(name, use_cache):
    model, read = tiny(name), []
    batch = padded(ROWS, "left")
    embedding = model.model(**batch).pooler_output
    rows = torch.zeros(4, 1, dtype=torch.long)
    languages = torch.tensor([1, 2, 1, 3])
    with torch.no_grad():
        for _ in range(8):
            states = model.decoder(rows, embedding, languages).last_hidden_state
            rows = torch.cat([rows, model.lm_head(states[:, -1]).argmax(dim=-1, keepdim=True)], dim=1)
    model.decoder.lstm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].shape[1]))
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "use_cache": use_cache}
    codes = ["en", "es", "en", "fr"]
    assert torch.equal(model.generate(**batch, target_language=codes, **options), rows)
    assert read == ([1] * 8 if use_cache else list(range(1, 9)))  # what is remembered is not read again
    assert torch.equal(model.generate(encoder_outputs=embedding, target_language=codes, **options), rows)
    assert len(rows.unique(dim=0)) > 1


def test_beam_search_finds_what_a_full_search_does():
    """With as many beams as entries no start is lost: the best of all pairs of tokens."""
    model = tiny("laser_1", vocab_size=12)
    batch = {"input_ids": torch.tensor([[0, 5, 6, 2], [0, 7, 7, 9]])}
    options = {"max_new_tokens": 2, "do_sample": False, "eos_token_id": None, "length_penalty": 0.0}
    found = model.generate(**batch, target_language="en", num_beams=12, **options)
    assert torch.equal(found, model.generate(**batch, target_language="en", num_beams=12, use_cache=False, **options))
    pairs = torch.cartesian_prod(torch.tensor([0]), torch.arange(12), torch.arange(12))
    for text in range(2):
        inputs = {"input_ids": batch["input_ids"][[text] * 144], "decoder_input_ids": pairs}
        scores = model(**inputs, target_language="en").logits.log_softmax(dim=-1)
        total = scores[:, 0].gather(1, pairs[:, 1:2]) + scores[:, 1].gather(1, pairs[:, 2:])
        assert torch.equal(found[text], pairs[total.argmax()])


# ---- On disk


@pytest.mark.parametrize("shared", [False, True])
def test_save_and_load(shared, tmp_path):
    model = tiny(
        "paper_001", share_embeddings=shared, embedding_dim=20, languages=["de", "en"], pivot_languages=["en"]
    )
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"] == {
        "AutoConfig": "configuration_laser.LaserConfig",
        "AutoModel": "modeling_laser.LaserModel",
        "AutoModelForSeq2SeqLM": "modeling_laser.LaserForConditionalGeneration",
    }
    names = set(load_file(tmp_path / "model.safetensors"))
    assert {"model.layers.0.weight_ih_l0_reverse", "model.layers.1.weight_hh_l0", "decoder.lstm.bias_hh_l0"} <= names
    assert ("lm_head.weight" in names) != shared and ("decoder.embed_tokens.weight" in names) != shared
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is LaserForConditionalGeneration and not any(report.values()) and not loaded.training
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == shared
    for key, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key
    encoder, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(encoder) is LaserModel and not report["missing_keys"] and not report["unexpected_keys"]
    batch = padded(ROWS)
    for model_again in (loaded.model, encoder):
        assert torch.equal(model_again(**batch).pooler_output, model.model(**batch).pooler_output)
    loaded_config = AutoConfig.from_pretrained(tmp_path)
    assert loaded_config.languages == ["de", "en"] and loaded_config.pooling == "mean"


@pytest.mark.parametrize("shared", [False, True])
def test_resized_vocabulary(shared):
    model = tiny(share_embeddings=shared, decoder_hidden_size=12)
    batch = padded([[0, 8, 2]])
    before = model(**batch, decoder_input_ids=batch["input_ids"], target_language="en").logits
    model.resize_token_embeddings(405)
    after = model(**batch, decoder_input_ids=batch["input_ids"], target_language="en").logits
    assert after.shape == (1, 3, 405) and model.config.vocab_size == 405
    torch.testing.assert_close(after[..., :400], before)
    ids = torch.tensor([[0, 404, 2]])
    assert model(input_ids=ids, labels=ids, target_language="en").loss.isfinite()


WITHOUT_PACKAGE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained("saved", trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model)
inputs = AutoTokenizer.from_pretrained("saved")(sys.argv[1].split("|"), return_tensors="pt", padding=True)
written = model.generate(**inputs, target_language="en", max_new_tokens=6, num_beams=2)
vectors = AutoModel.from_pretrained("saved", trust_remote_code=True)(**inputs).pooler_output.detach()
model.save_pretrained("again")
again = AutoModel.from_pretrained("again", trust_remote_code=True)(**inputs).pooler_output.detach()
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
results = {"vectors": vectors, "again": again, "written": written}
save_file({key: value.contiguous() for key, value in results.items()}, "results.safetensors")
"""


def test_remote_code_without_the_package(tokenizer, tmp_path):
    model = tiny()
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    changes = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT_PACKAGE, "|".join(TEXTS)]
    process = subprocess.run(command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    results = load_file(tmp_path / "results.safetensors")
    inputs = AutoTokenizer.from_pretrained(tmp_path / "saved")(TEXTS, return_tensors="pt", padding=True)
    expected = model.model(**inputs).pooler_output
    torch.testing.assert_close(results["vectors"], expected, atol=1e-6, rtol=0)
    assert torch.equal(results["vectors"], results["again"])
    written = model.generate(**inputs, target_language="en", max_new_tokens=6, num_beams=2)
    assert torch.equal(results["written"], written)
