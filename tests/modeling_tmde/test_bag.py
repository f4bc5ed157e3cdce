"""The bag model: a weighted sum whatever the batch, small on disk, and opened without this package."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoTokenizer

from modeling_tmde import BagConfig, BagModel
from tests.conftest import make_rows

TEXTS = [row[language] for row in make_rows(3, seed=5) for language in ("de", "fr")]


def bag(seed: int = 0, **changes) -> BagModel:
    """A model none of whose weights are as they start, those of the special tokens apart."""
    torch.manual_seed(seed)
    model = BagModel(BagConfig(**({"vocab_size": 400, "d_model": 16} | changes))).eval()
    with torch.no_grad():
        model.token_weights[3:] = torch.randn(len(model.token_weights) - 3)
    return model


def reference(model: BagModel, ids: list[int]) -> torch.Tensor:
    """One text in float64, token by token."""
    summed = torch.zeros(model.config.d_model, dtype=torch.float64)
    for token in ids:
        vector = model.embed_tokens.weight[token].detach().double()
        summed += math.exp(model.token_weights[token].item()) * vector
    return summed / summed.norm() if model.config.normalize else summed / len(ids)


def padded(rows: list[list[int]], left: bool = False, extra: int = 0) -> dict[str, torch.Tensor]:
    width = max(map(len, rows)) + extra
    ids, mask = torch.ones(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask}


ROWS = st.lists(st.lists(st.integers(3, 399), max_size=12).map(lambda ids: [0, *ids, 2]), min_size=1, max_size=6)


@pytest.mark.parametrize("normalize", [True, False])
def test_equals_a_plain_loop(normalize):
    model = bag(normalize=normalize)
    rows = [[0, 7, 7, 300, 2], [0, 2], [0, 9, 2], [0, *range(3, 400), 2]]
    outputs = model(**padded(rows))
    expected = torch.stack([reference(model, row) for row in rows])
    atol = 1e-6 if normalize else 1e-5 * expected.abs().max()
    torch.testing.assert_close(outputs.pooler_output.double(), expected, atol=float(atol), rtol=1e-4)
    assert outputs.last_hidden_state.shape == (4, 1, 16)
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)


def test_numbers_computed_by_hand():
    model = BagModel(BagConfig(vocab_size=5, d_model=2, normalize=False))
    with torch.no_grad():
        model.embed_tokens.weight[3:] = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        model.token_weights[3:] = torch.tensor([0.0, math.log(8)])
    mean = model(input_ids=torch.tensor([[0, 3, 4, 2]])).pooler_output  # (3, 8) over 4 tokens
    torch.testing.assert_close(mean, torch.tensor([[0.75, 2.0]]))
    model.config.normalize = True
    unit = model(input_ids=torch.tensor([[0, 3, 3, 4, 2]])).pooler_output  # (6, 8), whose length is 10
    torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8]]))


def test_sublinear_counts_by_hand():
    model = BagModel(BagConfig(vocab_size=5, d_model=2, sublinear_counts=True))
    with torch.no_grad():
        model.embed_tokens.weight[3:] = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    # Token 3 four times counts twice; in the text beside it, once, it counts once.
    rows = torch.tensor([[0, 3, 3, 4, 4, 3, 4, 3, 4, 4, 4, 4, 4, 4, 2], [0, 3, 4, 4, 4, 4, *[1] * 8, 2]])
    vectors = model(input_ids=rows, attention_mask=(rows != 1).long()).pooler_output
    expected = torch.tensor([[6.0, 2 * 9**0.5], [3.0, 4.0]])
    torch.testing.assert_close(vectors, expected / expected.norm(dim=1, keepdim=True))


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, extra=st.integers(0, 9), left=st.booleans(), shuffle=st.randoms(use_true_random=False))
def test_does_not_depend_on_padding_batch_or_order(rows, extra, left, shuffle):
    model = bag()
    with torch.no_grad():
        alone = torch.cat([model(input_ids=torch.tensor([row])).pooler_output for row in rows])
        together = model(**padded(rows, left, extra)).pooler_output
        order = list(range(len(rows)))
        shuffle.shuffle(order)
        shuffled = model(**padded([rows[i] for i in order])).pooler_output
        ragged = model.embed_ragged(
            torch.tensor([token for row in rows for token in row], dtype=torch.int32),
            torch.tensor([len(row) for row in rows]),
        )
    for vectors in (together, ragged):
        torch.testing.assert_close(vectors, alone, atol=1e-6, rtol=0)
    torch.testing.assert_close(shuffled, alone[order], atol=1e-6, rtol=0)
    torch.testing.assert_close(alone.norm(dim=1), torch.ones(len(rows)))


@settings(max_examples=30, deadline=None)
@given(row=st.lists(st.integers(3, 399), min_size=1, max_size=30), shuffle=st.randoms(use_true_random=False))
def test_order_of_the_words_plays_no_part(row, shuffle):
    model = bag()
    moved = row.copy()
    shuffle.shuffle(moved)
    vectors = model(input_ids=torch.tensor([row, moved])).pooler_output
    torch.testing.assert_close(vectors[0], vectors[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_special_tokens_count_only_where_nothing_else_is(dtype):
    model = bag(d_model=256).to(dtype)
    bare, framed = (model(input_ids=torch.tensor([row])).pooler_output for row in ([9, 10], [0, 9, 10, 2]))
    torch.testing.assert_close(bare, framed, atol=1e-7, rtol=0)
    empty = model(input_ids=torch.tensor([[0, 2]])).pooler_output
    assert empty.dtype == dtype and empty.isfinite().all()
    assert empty.float().norm().item() == pytest.approx(1, abs=0.01)
    both = (model.embed_tokens.weight[0] + model.embed_tokens.weight[2]).float()
    torch.testing.assert_close(empty[0].float(), both / both.norm(), atol=2e-3, rtol=0)
    masked = model(input_ids=torch.tensor([[1, 1]]), attention_mask=torch.zeros(1, 2)).pooler_output
    assert not masked.any()


def test_no_longest_text():
    model = bag()
    ids = torch.randint(3, 400, (1, 50_000))
    expected = reference(model, ids[0].tolist())
    torch.testing.assert_close(model(input_ids=ids).pooler_output[0].double(), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("normalize", [True, False])
def test_gradients_reach_both_parameters_and_are_right(normalize):
    """Against autograd through the plain formula, in float64."""
    model = bag(normalize=normalize)
    rows, direction = [[0, 7, 7, 300, 2], [0, 9, 2]], torch.randn(2, 16)
    (model(**padded(rows)).pooler_output * direction).sum().backward()
    table = model.embed_tokens.weight.detach().double().requires_grad_()
    weights = model.token_weights.detach().double().requires_grad_()
    loss = 0.0
    for row, vector in zip(rows, direction.double(), strict=True):
        summed = sum(weights[token].exp() * table[token] for token in row)
        loss = loss + (summed / (summed.norm() if normalize else len(row))) @ vector
    loss.backward()
    torch.testing.assert_close(model.embed_tokens.weight.grad.double(), table.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.token_weights.grad.double(), weights.grad, atol=1e-5, rtol=1e-4)
    assert set(model.token_weights.grad.nonzero().flatten().tolist()) >= {7, 9, 300}


def test_bad_input_is_named():
    model = bag()
    with pytest.raises(ValueError, match="inputs_embeds have no token ids"):
        model(inputs_embeds=torch.zeros(1, 2, 16))
    with pytest.raises(ValueError, match=r"input_ids \(1, 3\) and attention_mask \(1, 2\)"):
        model(input_ids=torch.tensor([[0, 5, 2]]), attention_mask=torch.ones(1, 2))
    with pytest.raises(StrictDataclassClassValidationError, match="pivot_languages"):
        BagConfig(languages=["de", "en"], pivot_languages=["es"])
    with pytest.raises(StrictDataclassClassValidationError, match="d_model=0"):
        BagConfig(d_model=0)


def test_initial_weights():
    torch.manual_seed(0)
    model = BagModel(BagConfig(vocab_size=2000, d_model=64, eos_token_id=[2, 5]))
    assert model.embed_tokens.weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    special = torch.zeros(2000, dtype=torch.bool)
    special[[0, 1, 2, 5]] = True
    assert (model.token_weights[special] == -20).all() and (model.token_weights[~special] == 0).all()
    assert BagConfig().hidden_size == 256


# ---- On disk


def test_save_and_load(tokenizer, tmp_path):
    model = bag(languages=["de", "en"], pivot_languages=["en"], normalize=False)
    with torch.no_grad():
        model.token_weights[:3] = torch.tensor([-1.0, -2.0, -3.0])  # not put back to what they start with
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"] == {"AutoConfig": "configuration_bag.BagConfig", "AutoModel": "modeling_bag.BagModel"}
    shared = {"card_text.py", "hub_upload.py", "loading.py", "onnx_files.py", "sharing.py", "text_languages.py"}
    code = {"configuration_bag.py", "language_settings.py", "modeling_bag.py", "token_counts.py"} | shared
    code |= {"sentence_transformers_files.py"}
    assert {path.name for path in tmp_path.glob("*.py")} == code
    assert set(load_file(tmp_path / "model.safetensors")) == {"embed_tokens.weight", "token_weights"}
    loaded, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is BagModel and not any(report.values()) and not loaded.training
    loaded_config = AutoConfig.from_pretrained(tmp_path)
    assert loaded_config.languages == ["de", "en"] and not loaded_config.normalize
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    assert torch.equal(loaded(**inputs).pooler_output, model(**inputs).pooler_output)


def test_a_checkpoint_without_weights_says_so_and_starts_anew(tmp_path):
    model = bag()
    state = {"embed_tokens.weight": model.embed_tokens.weight.detach()}
    model.save_pretrained(tmp_path, state_dict=state)
    loaded, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == {"token_weights"}
    assert torch.equal(loaded.token_weights, model.initial_token_weights())


def test_size_in_half_precision(tmp_path):
    torch.manual_seed(0)
    BagModel(BagConfig()).half().save_pretrained(tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert 0 <= size - 2 * (32000 * 256 + 32000) < 1000  # 16.4 MB


def test_half_precision_is_near(tokenizer, tmp_path):
    model = bag(d_model=256)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    expected = model(**inputs).pooler_output
    model.half().save_pretrained(tmp_path)
    for dtype in (torch.float16, torch.float32):
        vectors = AutoModel.from_pretrained(tmp_path, dtype=dtype)(**inputs).pooler_output
        assert vectors.dtype == dtype
        assert (vectors.float() * expected).sum(dim=1).min() > 0.9999


@pytest.mark.parametrize("size", [410, 390])
def test_resized_vocabulary(size, tmp_path):
    model = bag()
    before = model(input_ids=torch.tensor([[0, 8, 2]])).pooler_output
    weights = model.token_weights.detach().clone()
    model.resize_token_embeddings(size)
    kept = min(size, 400)
    assert model.token_weights.shape == (size,) and model.config.vocab_size == size
    assert torch.equal(model.token_weights[:kept], weights[:kept])
    assert (model.token_weights[kept:] == weights.median()).all()
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(loaded(input_ids=torch.tensor([[0, 8, 2]])).pooler_output, before)
    assert loaded(input_ids=torch.tensor([[0, size - 1, 2]])).pooler_output.isfinite().all()


WITHOUT_PACKAGE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer
model = AutoModel.from_pretrained("saved", trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model)
inputs = AutoTokenizer.from_pretrained("saved")(sys.argv[1].split("|"), return_tensors="pt", padding=True)
vectors = model(**inputs).pooler_output.detach()
model.save_pretrained("again")
again = AutoModel.from_pretrained("again", trust_remote_code=True)(**inputs).pooler_output.detach()
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
save_file({"vectors": vectors.contiguous(), "again": again.contiguous()}, "results.safetensors")
"""


def test_remote_code_without_the_package(tokenizer, tmp_path):
    model = bag()
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    changes = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT_PACKAGE, "|".join(TEXTS)]
    process = subprocess.run(command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    results = load_file(tmp_path / "results.safetensors")
    inputs = AutoTokenizer.from_pretrained(tmp_path / "saved")(TEXTS, return_tensors="pt", padding=True)
    expected = model(**inputs).pooler_output
    assert torch.equal(results["vectors"], expected) and torch.equal(results["again"], expected)
