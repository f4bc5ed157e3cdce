"""Aligned encoders: each text is read by its language's encoder alone, and the source's stays as it is."""

import json
import os
import subprocess
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from modeling_tmde import AlignedConfig, AlignedModel, BagModel, LaserModel
from modeling_tmde.training.objectives import XnliAlignment

LANGUAGES = ["de", "en", "fr"]
SMALL = {"bilstm": {"embedding_dim": 5, "d_model": 6}, "bag": {"d_model": 6}}
KINDS = sorted(SMALL)
TEXTS = [[0, 7, 12, 30, 2], [0, 5, 2], [0, 9, 9, 33, 21, 8, 2], [0, 39, 2]]
TEXT_LANGUAGES = torch.tensor([0, 1, 2, 1])


def aligned(kind: str, seed: int = 0, **changes) -> AlignedModel:
    torch.manual_seed(seed)
    options = {"vocab_size": 40, "encoder": kind, "encoder_config": SMALL[kind], "languages": LANGUAGES} | changes
    return AlignedModel(AlignedConfig(**options)).eval()


def padded(rows: list[list[int]], left: bool = False, extra: int = 0) -> dict[str, torch.Tensor]:
    width = max(map(len, rows)) + extra
    ids, mask = torch.ones(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask}


# ---- What it computes


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_is_read_by_the_encoder_of_its_language(kind):
    model = aligned(kind)
    assert list(model.encoders) == LANGUAGES
    assert {type(encoder) for encoder in model.encoders.values()} == {{"bilstm": LaserModel, "bag": BagModel}[kind]}
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES)
    assert outputs.pooler_output.shape == (4, 6) and model.config.hidden_size == 6
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])
    for row, ids in enumerate(TEXTS):
        vectors = {code: encoder(torch.tensor([ids])).pooler_output[0] for code, encoder in model.encoders.items()}
        own = vectors.pop(LANGUAGES[TEXT_LANGUAGES[row]])
        torch.testing.assert_close(outputs.pooler_output[row], own, atol=1e-6, rtol=0)
        assert all((own - other).abs().max() > 1e-3 for other in vectors.values())


def test_an_average_of_word_vectors_by_hand():
    model = aligned("bag", vocab_size=6, encoder_config={"d_model": 2})
    with torch.no_grad():
        model.encoders["de"].embed_tokens.weight[3:5] = torch.tensor([[3.0, 0.0], [0.0, 9.0]])
        model.encoders["en"].embed_tokens.weight[3:5] = torch.tensor([[-6.0, 6.0], [3.0, 0.0]])
    vectors = model(torch.tensor([[3, 3, 4], [4, 4, 3]]), language_ids=torch.tensor([0, 1])).pooler_output
    torch.testing.assert_close(vectors, torch.tensor([[2.0, 3.0], [0.0, 2.0]]))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(3, 39), max_size=8).map(lambda ids: [0, *ids, 2]), min_size=1, max_size=6),
    kind=st.sampled_from(KINDS),
    data=st.data(),
    extra=st.integers(0, 4),
    left=st.booleans(),
)
def test_does_not_depend_on_padding_batch_or_order(rows, kind, data, extra, left):
    model = aligned(kind)
    languages = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    order = data.draw(st.permutations(range(len(rows))))
    with torch.no_grad():
        alone = torch.cat(
            [
                model(torch.tensor([row]), language_ids=torch.tensor([language])).pooler_output
                for row, language in zip(rows, languages, strict=True)
            ]
        )
        together = model(**padded(rows, left, extra), language_ids=torch.tensor(languages)).pooler_output
        moved = model(
            **padded([rows[place] for place in order]), language_ids=torch.tensor([languages[p] for p in order])
        ).pooler_output
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    torch.testing.assert_close(moved, alone[list(order)], atol=1e-6, rtol=0)


def test_wrong_inputs_are_named():
    model = aligned("bag")
    ids = torch.tensor([[0, 7, 2]])
    with pytest.raises(ValueError, match=r"AlignedModel .* needs language_ids \(batch,\).*'de', 'en', 'fr'"):
        model(ids)
    with pytest.raises(ValueError, match=r"language_ids \(2,\) must be \(1,\)"):
        model(ids, language_ids=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="AlignedModel got language id -1"):
        model(ids, language_ids=torch.tensor([-1]))
    with pytest.raises(ValueError, match="takes input_ids only"):
        model(inputs_embeds=torch.zeros(1, 3, 6), language_ids=torch.tensor([0]))
    with pytest.raises(ValueError, match=r"input_ids \(1, 3\) and attention_mask \(1, 2\)"):
        model(ids, torch.ones(1, 2), torch.tensor([0]))


# ---- Settings


def test_defaults_are_those_of_the_paper():
    config = AlignedConfig()
    inner = config.build_encoder_config()
    assert (inner.model_type, inner.embedding_dim, inner.d_model) == ("tmde_laser", 300, 1024)
    assert (inner.encoder_layers, inner.pooling, config.hidden_size) == (1, "max", 1024)
    with torch.device("meta"):
        model = AlignedModel(config)
    lstm = 2 * 4 * (512 * 300 + 512 * 512 + 2 * 512)
    assert sum(p.numel() for p in model.encoders["de"].parameters()) == 50000 * 300 + lstm
    bag = AlignedConfig(encoder="bag", vocab_size=7, eos_token_id=5).build_encoder_config()
    assert (bag.model_type, bag.d_model, bag.normalize, bag.vocab_size, bag.eos_token_id) == (
        "tmde_bag",
        300,
        False,
        7,
        5,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "lstm"}, "encoder='lstm' is unknown; choose one of bilstm, bag"),
        ({"encoder_config": {"layers": 2}}, "encoder_config names 'layers'; known: .*encoder_layers"),
        ({"encoder": "bag", "encoder_config": {"pooling": "max"}}, "encoder_config names 'pooling'; known: d_model"),
        ({"encoder_config": {"vocab_size": 5}}, "encoder_config names 'vocab_size'.* set vocab_size itself"),
        ({"encoder_config": {"model_type": "bag"}}, "encoder_config names 'model_type'"),
        ({"source_language": "xx"}, "source_language='xx' is not among"),
        ({"languages": ["de", "en", "de"]}, "twice"),
    ],
)
def test_settings_that_do_not_fit(options, message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        AlignedConfig(**options)


def test_settings_that_the_encoder_refuses():
    with pytest.raises(StrictDataclassClassValidationError, match="d_model=7 must be even"):
        AlignedConfig(encoder_config={"d_model": 7})


# ---- Learning


@pytest.mark.parametrize("kind", KINDS)
def test_alignment_trains_the_target_encoders_and_brings_them_to_the_source(kind):
    model = aligned(kind)
    source = {name: p.clone() for name, p in model.encoders["en"].named_parameters()}
    ids = torch.randint(3, 40, (8, 5), generator=torch.Generator().manual_seed(0))

    def step() -> tuple[float, torch.Tensor]:
        """Distance of translations and loss of rows of German and English; French stays out."""
        vectors = model(torch.cat([ids, ids]), language_ids=torch.tensor([0] * 8 + [1] * 8)).pooler_output
        output = XnliAlignment()(vectors.unflatten(0, (2, 8)), ("de", "en"))
        return output.components["positive"].item(), output.loss

    first, loss = step()
    loss.backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert reached == {name for name, _ in model.named_parameters() if name.startswith("encoders.de.")}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        last, loss = step()
        loss.backward()
        optimizer.step()
    assert last < 0.5 * first
    assert all(torch.equal(p, source[name]) for name, p in model.encoders["en"].named_parameters())


# ---- Checkpoints


@pytest.mark.parametrize("kind", KINDS)
def test_auto_model_opens_what_was_saved(kind, tmp_path):
    model = aligned(kind)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["auto_map"] == {
        "AutoConfig": "configuration_aligned.AlignedConfig",
        "AutoModel": "modeling_aligned.AlignedModel",
    }
    assert saved["encoder_config"] == SMALL[kind]
    names = {path.name for path in tmp_path.glob("*.py")}
    assert {"modeling_aligned.py", "modeling_laser.py", "modeling_bag.py", "configuration_bag.py"} <= names
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is AlignedModel and not loaded.training
    inputs = padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}
    assert torch.equal(loaded(**inputs).pooler_output, model(**inputs).pooler_output)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_that_a_checkpoint_lacks_starts_anew(kind, tmp_path):
    model = aligned(kind)
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("encoders.fr")}
    model.save_pretrained(tmp_path, state_dict=state)
    loaded, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == {name for name in model.state_dict() if name.startswith("encoders.fr.")}
    vector = loaded(torch.tensor([[0, 7, 8, 2]]), language_ids=torch.tensor([2])).pooler_output
    assert vector.isfinite().all() and vector.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_near(kind):
    model, inputs = aligned(kind), padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}
    expected = model(**inputs).pooler_output
    half = model.bfloat16()(**inputs).pooler_output
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, atol=0.02, rtol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_resized_vocabulary(kind, tmp_path):
    model = aligned(kind)
    ids, languages = torch.tensor([[0, 8, 2]]).expand(3, -1), torch.tensor([0, 1, 2])
    before = model(ids, language_ids=languages).pooler_output
    table = model.resize_token_embeddings(50)
    assert table is model.get_input_embeddings() is model.encoders["en"].embed_tokens
    assert all(encoder.embed_tokens.num_embeddings == 50 for encoder in model.encoders.values())
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.config.vocab_size == 50
    assert torch.equal(loaded(ids, language_ids=languages).pooler_output, before)


WITHOUT_PACKAGE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
from safetensors.torch import load_file, save_file
from transformers import AutoModel
inputs = load_file("inputs.safetensors")
results = {}
for kind in ("bag", "bilstm"):
    model = AutoModel.from_pretrained(f"{kind}-saved", trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    model.save_pretrained(f"{kind}-again")
    again = AutoModel.from_pretrained(f"{kind}-again", trust_remote_code=True)
    results[kind] = model(**inputs).pooler_output.detach().contiguous()
    results[f"{kind}-again"] = again(**inputs).pooler_output.detach().contiguous()
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
save_file(results, "results.safetensors")
"""


def test_remote_code_without_the_package(tmp_path):
    inputs, models = padded(TEXTS) | {"language_ids": TEXT_LANGUAGES}, {kind: aligned(kind) for kind in KINDS}
    for kind, model in models.items():
        model.save_pretrained(tmp_path / f"{kind}-saved")
    save_file(inputs, tmp_path / "inputs.safetensors")
    changes = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT_PACKAGE]
    process = subprocess.run(command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    results = load_file(tmp_path / "results.safetensors")
    for kind, model in models.items():
        for name in (kind, f"{kind}-again"):
            torch.testing.assert_close(results[name], model(**inputs).pooler_output)
