"""Weights that a checkpoint lacks: an error, unless no vector needs them; never a table."""

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel
from transformers.utils import logging as logging_of_transformers

from modeling_tmde import TmdeError
from tests.conftest import save, tiny_model
from tmde.embedding.loading import load_encoder, without_load_report


@pytest.fixture
def bert_folder(tmp_path):
    """The folder of a tiny BERT without a pooler."""
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def restored_bars():
    """Put the progress bars of transformers and the Hub back as they were."""
    had_bars = logging_of_transformers.is_progress_bar_enabled()
    yield
    if had_bars:
        logging_of_transformers.enable_progress_bar()
    else:
        logging_of_transformers.disable_progress_bar()


def remove_weight(folder, ending):
    """Delete the weight whose name ends so from a checkpoint."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    (name,) = (name for name in weights if name.endswith(ending))
    del weights[name]
    save_file(weights, path, metadata={"format": "pt"})


@pytest.fixture
def transformers_log(caplog, monkeypatch):
    """The log of transformers, whatever other tests and libraries have set."""
    # By default the logs of transformers reach no handler but its own.
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("transformers.modeling_utils"), "disabled", False)
    # Not that of `modeling_utils`: it checks more if its own logger has this level.
    caplog.set_level(logging.NOTSET, logger="transformers.modeling_utils")
    caplog.set_level(logging.WARNING, logger="transformers")
    return caplog


def test_a_missing_pooler_is_not_reported(bert_folder, transformers_log):
    model = load_encoder(str(bert_folder))
    assert isinstance(model, BertModel)
    assert transformers_log.text == ""


def test_the_report_of_others_stays(bert_folder, transformers_log):
    load_encoder(str(bert_folder))
    BertModel.from_pretrained(bert_folder)
    assert "pooler.dense.weight" in transformers_log.text


def test_no_bar_of_weights(bert_folder, capfd, restored_bars):
    logging_of_transformers.enable_progress_bar()
    load_encoder(str(bert_folder))
    assert "Loading weights" not in capfd.readouterr().err
    # Others who load a model keep their bars.
    BertModel.from_pretrained(bert_folder)
    assert "Loading weights" in capfd.readouterr().err


def test_a_hook_that_the_application_had_set_is_called(bert_folder):
    """In a process of its own, because the hook is set before tmde is imported."""
    script = f"""
from transformers import BertModel
from transformers.utils import logging

calls = []
def hook(factory, arguments, options):
    calls.append(options.get("disable", False))
    return factory(*arguments, **options)
logging.set_tqdm_hook(hook)
from tmde.embedding.loading import load_encoder
BertModel.from_pretrained({str(bert_folder)!r})
load_encoder({str(bert_folder)!r})
print(calls)
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[False, True]"


def test_a_quiet_load_hides_the_report_of_its_own_thread_alone(bert_folder, transformers_log):
    with ThreadPoolExecutor(1) as pool, without_load_report():
        pool.submit(BertModel.from_pretrained, bert_folder).result()
    assert "pooler.dense.weight" in transformers_log.text


def test_a_missing_layer_is_an_error(bert_folder):
    remove_weight(bert_folder, "attention.self.query.weight")
    with pytest.raises(TmdeError, match="without 1 of the weights of a BertModel.*query.weight"):
        load_encoder(str(bert_folder))


def test_a_missing_table_of_our_models_is_an_error(tokenizer, tmp_path):
    save(tmp_path / "model", tiny_model(), tokenizer)
    remove_weight(tmp_path / "model", "model.layers.0.fc1.weight")
    with pytest.raises(TmdeError, match="without 1 of the weights of a TmdeModel"):
        load_encoder(str(tmp_path / "model"))
