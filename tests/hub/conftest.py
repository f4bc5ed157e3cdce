"""A Hub for each test, and a small model to push to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from modeling_tmde import TmdeForConditionalGeneration
from tests.conftest import tiny_config
from tests.hub_server import HubServer
from tests.hub_store import Account

ACCOUNTS = {
    "hf_user": Account("user", ("lab",)),
    "hf_reader": Account("user", writes=False),
    "hf_eve": Account("eve"),
}


@pytest.fixture
def hub(tmp_path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub", ACCOUNTS) as server:
        yield server


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, tokenizer) -> Path:
    """A model whose parameters are all unlike those of a new one."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(3)
    model = TmdeForConditionalGeneration(tiny_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
