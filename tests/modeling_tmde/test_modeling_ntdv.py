"""NTDV: a float64 loop over every gate and head, routing by language, padding, checkpoints, and what learns."""

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
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM

from modeling_tmde import NtdvConfig, NtdvForConditionalGeneration, NtdvModel
from modeling_tmde.training.objectives import NtdvDistance

LANGUAGES = ["de", "en", "es"]
SIZES = {"vocab_size": 40, "embedding_dim": 5, "d_model": 6, "attention_heads": 3}
AUTO_MAP = {
    "AutoConfig": "configuration_ntdv.NtdvConfig",
    "AutoModel": "modeling_ntdv.NtdvModel",
    "AutoModelForSeq2SeqLM": "modeling_ntdv.NtdvForConditionalGeneration",
}


def ntdv(seed: int = 0, **changes) -> NtdvForConditionalGeneration:
    torch.manual_seed(seed)
    options = SIZES | {"languages": LANGUAGES, "pivot_languages": ["en", "es"]} | changes
    return NtdvForConditionalGeneration(NtdvConfig(**options)).eval()


def padded(rows: list[list[int]], left: bool = False, extra: int = 0) -> dict[str, torch.Tensor]:
    width = max(map(len, rows)) + extra
    ids, mask = torch.ones(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask}


TEXTS = [[0, 7, 12, 30, 2], [0, 5, 2], [0, 9, 9, 33, 21, 8, 2], [0, 39, 2]]
TEXT_LANGUAGES = torch.tensor([0, 1, 2, 1])


# ---- An independent loop


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def run_gru(weights: dict[str, np.ndarray], vectors: list[np.ndarray], start: np.ndarray, suffix: str = "") -> list:
    """One step after the other: reset and update gate, candidate, and the mix of old and new."""
    state, states, width = start, [], len(start)
    for vector in vectors:
        given = weights["weight_ih_l0" + suffix] @ vector + weights["bias_ih_l0" + suffix]
        kept = weights["weight_hh_l0" + suffix] @ state + weights["bias_hh_l0" + suffix]
        reset = sigmoid(given[:width] + kept[:width])
        update = sigmoid(given[width : 2 * width] + kept[width : 2 * width])
        candidate = np.tanh(given[2 * width :] + reset * kept[2 * width :])
        state = (1 - update) * candidate + update * state
        states.append(state)
    return states


def reference_encoder(model: NtdvModel, ids: list[int], language: str) -> tuple[np.ndarray, np.ndarray]:
    """The columns p_1 ... p_r (r, d_model) and the memory (length, d_model) of one text, eq. 3.1 and 3.2."""
    config, weights = model.config, weights_of(model.encoders[language])
    vectors = [weights_of(model.embed_tokens)["weight"][token] for token in ids]
    nothing = np.zeros(config.d_model // 2)
    forth = run_gru(weights, vectors, nothing)
    back = run_gru(weights, vectors[::-1], nothing, "_reverse")[::-1]
    states = [np.concatenate(pair) for pair in zip(forth, back, strict=True)]
    if not config.shared_layers:
        return np.mean(states, axis=0)[None], np.stack(states)
    z = run_gru(weights_of(model.shared.gru), states, np.zeros(config.d_model))
    attention, width, columns, heads = weights_of(model.shared.self_attention), config.d_model, [], []
    for head in range(config.attention_heads):
        part = slice(head * width, (head + 1) * width)
        query, key, value = (
            [attention[f"{name}_proj.weight"][part] @ state for state in z] for name in ("q", "k", "v")
        )
        outputs = []
        for asking in query:
            shares = softmax(np.array([asking @ asked / np.sqrt(width) for asked in key]))
            outputs.append(sum(share * one for share, one in zip(shares, value, strict=True)))
        heads.append(np.stack(outputs))  # U_i, (length, d_model)
        columns.append(heads[-1].mean(axis=0))
    memory = np.concatenate(heads, axis=1) @ weights_of(model.shared.projection)["weight"].T
    return np.stack(columns), memory


def reference_decoder(model: NtdvForConditionalGeneration, ids: list[int], memory: np.ndarray, language: str):
    weights = weights_of(model.decoder.decoders[language])
    gru = {name.removeprefix("gru."): value for name, value in weights.items() if name.startswith("gru.")}
    vectors = [weights_of(model.decoder.embed_tokens)["weight"][token] for token in ids]
    start = np.tanh(weights["start.weight"] @ memory.mean(axis=0) + weights["start.bias"])
    outputs = []
    for state in run_gru(gru, vectors, start):
        query = weights["attention.weight"] @ state
        shares = softmax(memory @ query / np.sqrt(len(state)))
        joined = np.concatenate([state, shares @ memory])
        outputs.append(np.tanh(weights["readout.weight"] @ joined + weights["readout.bias"]))
    return np.stack(outputs)


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({}, 6),
        ({"vector": "concat"}, 18),
        ({"shared_layers": False}, 6),
        ({"shared_layers": False, "vector": "concat"}, 6),
    ],
)
def test_encoder_equals_a_plain_loop(options, width):
    model = ntdv(**options).model
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES)
    assert outputs.pooler_output.shape == (4, width) and model.config.hidden_size == width
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])
    for row, ids in enumerate(TEXTS):
        columns, memory = reference_encoder(model, ids, LANGUAGES[TEXT_LANGUAGES[row]])
        embedding = columns.flatten() if width == 18 else columns.sum(axis=0)
        for found, expected in (
            (outputs.pooler_output[row], embedding),
            (outputs.context[row], columns.flatten()),
            (outputs.memory[row, : len(ids)], memory),
        ):
            np.testing.assert_allclose(found.detach().numpy(), expected, atol=2e-6)
        assert not outputs.memory[row, len(ids) :].any()
        assert np.abs(memory).max() > 0.01  # something to compare


@pytest.mark.parametrize("shared", [True, False])
def test_decoder_equals_a_plain_loop(shared):
    model = ntdv(shared_layers=shared)
    source = model.model(**padded(TEXTS, left=True), language_ids=TEXT_LANGUAGES)
    targets, languages = [[0, 8, 30, 4], [0, 5], [0, 11, 11], [0, 6, 7, 8]], torch.tensor([1, 2, 1, 2])
    ids = padded(targets)["input_ids"]
    options = {
        "embedding": source.pooler_output,
        "language_ids": languages,
        "encoder_hidden_states": source.memory,
        "encoder_attention_mask": padded(TEXTS, left=True)["attention_mask"],
    }
    states = model.decoder(ids, **options).last_hidden_state
    assert states.shape == (4, 4, 5)
    for row, target in enumerate(targets):
        _, memory = reference_encoder(model.model, TEXTS[row], LANGUAGES[TEXT_LANGUAGES[row]])
        expected = reference_decoder(model, target, memory, LANGUAGES[languages[row]])
        np.testing.assert_allclose(states[row, : len(target)].detach().numpy(), expected, atol=2e-6)
    places = torch.tensor([0, 1, 4, 9, 15])
    chosen = model.decoder(ids, **options, token_indices=places).last_hidden_state
    assert torch.equal(chosen, states.flatten(0, 1)[places])


# ---- Routing and padding


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(3, 39), max_size=8).map(lambda ids: [0, *ids, 2]), min_size=1, max_size=6),
    data=st.data(),
    extra=st.integers(0, 4),
    left=st.booleans(),
    shared=st.booleans(),
)
def test_does_not_depend_on_padding_batch_or_order(rows, data, extra, left, shared):
    model = ntdv(shared_layers=shared)
    languages = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    order = data.draw(st.permutations(range(len(rows))))
    with torch.no_grad():
        alone = torch.cat(
            [
                model.model(torch.tensor([row]), language_ids=torch.tensor([language])).context
                for row, language in zip(rows, languages, strict=True)
            ]
        )
        together = model.model(**padded(rows, left, extra), language_ids=torch.tensor(languages)).context
        moved = model.model(
            **padded([rows[place] for place in order]), language_ids=torch.tensor([languages[p] for p in order])
        ).context
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    torch.testing.assert_close(moved, alone[list(order)], atol=1e-6, rtol=0)


def test_ids_under_the_mask_are_not_read():
    model = ntdv().model
    inputs = padded(TEXTS, extra=2)
    expected = model(**inputs, language_ids=TEXT_LANGUAGES)
    inputs["input_ids"][inputs["attention_mask"] == 0] = 17
    found = model(**inputs, language_ids=TEXT_LANGUAGES)
    assert torch.equal(found.pooler_output, expected.pooler_output) and torch.equal(found.memory, expected.memory)
    # a hole in a text is as if the token were not there, and the memory stays at its places
    inputs = {"input_ids": torch.tensor([[0, 7, 12, 2]]), "attention_mask": torch.tensor([[1, 0, 1, 1]])}
    holed, short = (
        model(**inputs, language_ids=TEXT_LANGUAGES[:1]),
        model(torch.tensor([[0, 12, 2]]), None, TEXT_LANGUAGES[:1]),
    )
    torch.testing.assert_close(holed.pooler_output, short.pooler_output, atol=1e-6, rtol=0)
    torch.testing.assert_close(holed.memory[:, [0, 2, 3]], short.memory, atol=1e-6, rtol=0)
    assert not holed.memory[:, 1].any()


def test_every_language_has_its_own_encoder_and_decoder():
    model = ntdv()
    ids = torch.tensor([[0, 7, 12, 2]])
    vectors = [model.model(ids, language_ids=torch.tensor([language])).pooler_output for language in range(3)]
    assert all((vectors[a] - vectors[b]).abs().max() > 1e-3 for a, b in ((0, 1), (0, 2), (1, 2)))
    logits = [
        model(ids, language_ids=torch.tensor([0]), decoder_input_ids=ids, target_language=code).logits
        for code in ("en", "es")
    ]
    assert (logits[0] - logits[1]).abs().max() > 1e-3
    assert list(model.decoder.decoders) == ["en", "es"] and list(model.model.encoders) == LANGUAGES
    same = model.model(ids.expand(3, -1), language_ids=torch.tensor([1])).pooler_output  # one for all
    torch.testing.assert_close(same, vectors[1].expand(3, -1), atol=1e-6, rtol=0)


def test_wrong_inputs_are_named():
    model = ntdv()
    ids, one = torch.tensor([[0, 7, 2]]), torch.tensor([0])
    with pytest.raises(ValueError, match=r"NtdvModel .* needs language_ids \(batch,\).*'de', 'en', 'es'"):
        model.model(ids)
    with pytest.raises(ValueError, match=r"language_ids \(2,\) must be \(1,\)"):
        model.model(ids, language_ids=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="NtdvModel got language id 3 .none of languages"):
        model.model(ids, language_ids=torch.tensor([3]))
    with pytest.raises(ValueError, match="Text 1 of the batch has no token"):
        model.model(ids.expand(2, -1), torch.tensor([[1, 1, 1], [0, 0, 0]]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"inputs \(1, 3\) and attention_mask \(1, 2\)"):
        model.model(ids, torch.ones(1, 2), one)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model.model(language_ids=one)
    with pytest.raises(ValueError, match=r"NtdvDecoder got language id 0 \('de' .* has parts for \['en', 'es'\]"):
        model(ids, language_ids=one, decoder_input_ids=ids, target_language="de")
    with pytest.raises(ValueError, match="encoder_hidden_states is missing"):
        model.decoder(ids, language_ids=torch.tensor([1]))


# ---- Sizes and settings


def test_paper_size():
    with torch.device("meta"):
        model = NtdvForConditionalGeneration(NtdvConfig())
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in model.model.named_children()}
    gru = 3 * (1024 * 1024 * 2 + 2 * 1024)
    assert sizes["shared"] == gru + 3 * 1024 * 4096 + 4096 * 1024  # GRU, self-attention, projection
    assert sizes["encoders"] == 2 * 2 * 3 * (512 * 500 + 512 * 512 + 2 * 512)
    assert sizes["embed_tokens"] == model.lm_head.weight.numel() == 85000 * 500
    assert NtdvConfig().hidden_size == 1024 and NtdvConfig(vector="concat").hidden_size == 4096  # table 3.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 7}, "d_model=7 must be even"),
        ({"attention_heads": 0}, "attention_heads=0 must be at least 1"),
        ({"vector": "mean"}, "vector='mean' is unknown; choose one of sum, concat"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"languages": ["de"], "pivot_languages": ["en"]}, r"\['en'\] are not among"),
        ({"languages": []}, "at least one"),
    ],
)
def test_settings_that_do_not_fit(options, message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        NtdvConfig(**({"pivot_languages": []} | options))


# ---- Learning


def test_translation_trains_what_the_directions_use():
    model = ntdv().train()
    labels = padded([[0, 8, 30, 2], [0, 5, 2]])["input_ids"]
    inputs = padded(TEXTS[:2]) | {"language_ids": torch.tensor([0, 0])}
    model(**inputs, labels=labels, target_language="en").loss.backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    expected = {
        name
        for name, _ in model.named_parameters()
        if not name.startswith(("model.encoders.en", "model.encoders.es", "decoder.decoders.es"))
    }
    assert reached == expected


def test_a_loss_on_the_embedding_trains_encoder_and_shared_layers_alone():
    model = ntdv()
    model.model(**padded(TEXTS), language_ids=torch.zeros(4, dtype=torch.long)).pooler_output.pow(2).sum().backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    parts = ("model.embed_tokens", "model.encoders.de", "model.shared.gru", "model.shared.self_attention")
    assert reached == {name for name, _ in model.named_parameters() if name.startswith(parts)}


def test_the_distance_cost_on_the_shared_layers_alone_brings_translations_together():
    model = ntdv().model
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("shared."))
    ids = torch.randint(3, 40, (2, 8, 5), generator=torch.Generator().manual_seed(0)).flatten(0, 1)
    languages, objective = torch.tensor([0] * 8 + [1] * 8), NtdvDistance(margin=1.0, negatives=7)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)

    def ratio() -> float:
        """Mean distance of translations by the mean distance of any two texts of the two languages."""
        vectors = model(ids, language_ids=languages).pooler_output.unflatten(0, (2, 8))
        distances = torch.cdist(vectors[0], vectors[1])
        return (distances.diagonal().mean() / distances.mean()).item()

    before, losses = ratio(), []
    for _ in range(150):
        loss = objective(model(ids, language_ids=languages).context.unflatten(0, (2, 8))).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert before > 0.9 and ratio() < 0.2


def test_loss_is_the_cross_entropy_of_the_next_tokens():
    model = ntdv()
    labels = torch.tensor([[0, 8, 30, 2], [0, 5, 2, -100]])
    outputs = model(**padded(TEXTS[:2]), language_ids=TEXT_LANGUAGES[:2], labels=labels, target_language="es")
    expected = [
        -outputs.logits[row, place].double().log_softmax(0)[labels[row, place + 1]].item()
        for row, place in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))
    ]
    assert outputs.loss.item() == pytest.approx(sum(expected) / 5, rel=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_half_precision_is_near(shared):
    model = ntdv(shared_layers=shared, d_model=16)
    inputs = padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}
    expected = model.model(**inputs).pooler_output
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(**inputs, labels=padded(TEXTS)["input_ids"], target_language="en")
        torch.testing.assert_close(model.model(**inputs).pooler_output.float(), expected, atol=0.03, rtol=0.03)
    mixed.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    half = model.bfloat16().model(**inputs).pooler_output
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, atol=0.03, rtol=0.03)


# ---- Generation


def greedy(model: NtdvForConditionalGeneration, ids: list[int], language: int, target: str, steps: int) -> list[int]:
    written = [0]
    for _ in range(steps):
        logits = model(
            torch.tensor([ids]),
            language_ids=torch.tensor([language]),
            decoder_input_ids=torch.tensor([written]),
            target_language=target,
        ).logits
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == 2:
            break
    return written


@pytest.mark.parametrize("shared", [True, False])
def test_generates_what_a_loop_of_whole_forward_passes_gives(shared):
    model = ntdv(shared_layers=shared)
    targets = ["en", "es", "es", "en"]
    inputs = padded(TEXTS, left=True)
    written = model.generate(**inputs, language_ids=TEXT_LANGUAGES, target_language=targets, max_new_tokens=6)
    for row, ids in enumerate(TEXTS):
        expected = greedy(model, ids, int(TEXT_LANGUAGES[row]), targets[row], 6)
        assert written[row, : len(expected)].tolist() == expected
        assert (written[row, len(expected) :] == 1).all()
    outputs = model.get_encoder()(**inputs, language_ids=TEXT_LANGUAGES)
    again = model.generate(
        encoder_outputs=outputs, attention_mask=inputs["attention_mask"], target_language=targets, max_new_tokens=6
    )
    assert torch.equal(again, written)


def test_beams_are_at_least_as_likely_as_greedy_search():
    model = ntdv()
    inputs = padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}

    def score(**options) -> float:
        ids = model.generate(
            **inputs, target_language="en", max_new_tokens=4, min_new_tokens=4, length_penalty=0.0, **options
        )
        assert ids.shape == (4, 5)
        logits = model(**inputs, decoder_input_ids=ids, target_language="en").logits.log_softmax(-1)
        return logits[:, :-1].gather(2, ids[:, 1:, None]).sum().item()

    assert score(num_beams=40) >= score(num_beams=1) - 1e-4


def test_a_bare_vector_is_not_enough_to_translate_from():
    model = ntdv()
    embedding = model.model(**padded(TEXTS), language_ids=TEXT_LANGUAGES).pooler_output
    with pytest.raises(ValueError, match=r"NtdvForConditionalGeneration decodes from the outputs .*\(4, 6\)"):
        model.generate(encoder_outputs=embedding, target_language="en")
    with pytest.raises(ValueError, match="decodes from the outputs"):
        model(encoder_outputs=embedding, decoder_input_ids=torch.zeros(4, 1, dtype=torch.long), target_language="en")


# ---- Checkpoints


@pytest.mark.parametrize("options", [{}, {"vector": "concat"}, {"shared_layers": False}])
def test_auto_classes_open_what_was_saved(options, tmp_path):
    model = ntdv(**options)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    names = {path.name for path in tmp_path.glob("*.py")}
    assert {"modeling_ntdv.py", "configuration_ntdv.py", "language_routing.py", "seq2seq.py"} <= names
    encoder, whole = AutoModel.from_pretrained(tmp_path), AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(encoder) is NtdvModel and type(whole) is NtdvForConditionalGeneration
    inputs = padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}
    expected = model.model(**inputs).pooler_output
    assert torch.equal(encoder(**inputs).pooler_output, expected)
    assert torch.equal(whole.get_encoder()(**inputs).pooler_output, expected)
    for name, value in model.state_dict().items():
        assert torch.equal(whole.state_dict()[name], value), name


def test_a_checkpoint_without_the_shared_layers_says_so_and_starts_them_anew(tmp_path):
    ntdv(shared_layers=False).save_pretrained(tmp_path)
    torch.manual_seed(3)
    model, report = NtdvForConditionalGeneration.from_pretrained(
        tmp_path, config=ntdv().config, output_loading_info=True
    )
    assert set(report["missing_keys"]) == {n for n, _ in model.named_parameters() if n.startswith("model.shared.")}
    assert not report["unexpected_keys"]
    for name, parameter in model.model.shared.named_parameters():
        assert parameter.isfinite().all() and 0.05 < parameter.std() < 1, name
    assert torch.equal(
        model.model.encoders["es"].weight_hh_l0, ntdv(shared_layers=False).model.encoders["es"].weight_hh_l0
    )


def test_resized_vocabulary(tmp_path):
    model = ntdv()
    before = model.model(torch.tensor([[0, 8, 2]]), language_ids=torch.tensor([1])).pooler_output
    model.resize_token_embeddings(50)
    tables = (model.model.embed_tokens.weight, model.decoder.embed_tokens.weight, model.lm_head.weight)
    assert all(table.shape == (50, 5) for table in tables) and model.config.vocab_size == 50
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.model(torch.tensor([[0, 8, 2]]), language_ids=torch.tensor([1])).pooler_output, before)


WITHOUT_PACKAGE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM
inputs = load_file("inputs.safetensors")
results = {}
for folder in ("saved", "again"):
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    whole = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    results[folder] = model(**inputs).pooler_output.detach().contiguous()
    results[f"{folder}/text"] = whole.generate(**inputs, target_language="en", max_new_tokens=5)
    whole.save_pretrained("again")
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
save_file(results, "results.safetensors")
"""


def test_remote_code_without_the_package(tmp_path):
    model, inputs = ntdv(), padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}
    model.save_pretrained(tmp_path / "saved")
    save_file(inputs, tmp_path / "inputs.safetensors")
    changes = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT_PACKAGE]
    process = subprocess.run(command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    results = load_file(tmp_path / "results.safetensors")
    written = model.generate(**inputs, target_language="en", max_new_tokens=5)
    for folder in ("saved", "again"):
        torch.testing.assert_close(results[folder], model.model(**inputs).pooler_output)
        assert torch.equal(results[f"{folder}/text"], written)
