"""ONNX: an encoder that was written once as a graph, run by ONNX Runtime."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from .loading import pooled_options
from .onnx_export import encoder_of_one_graph, export_and_measure
from .onnx_files import data_file, find_graph, first_writable, sha256_of
from .onnx_session import OUTPUT, onnx_device, open_session, require

logger = logging.getLogger(__name__)


class OnnxEncoder(nn.Module):
    """An ONNX graph in the place of an encoder: the same call, the same first output.

    Args:
        path: Of the graph.
        skeleton: The encoder that was exported, without weights (on the meta device): its config, limits and names.
        device: `cpu` or `cuda`.
    """

    dtype = torch.float32

    def __init__(self, path: Path, skeleton: PreTrainedModel, device: str | torch.device = "cpu") -> None:
        super().__init__()
        self.path = path
        self._skeleton = (skeleton,)  # in a tuple: no submodule, which would be moved and saved
        self.config = skeleton.config
        self.name_or_path = skeleton.name_or_path
        # Of T-MDE the graph has P alone.
        self.pooled_only = bool(pooled_options(skeleton))
        # State for those who tell models apart by it.
        self.register_buffer("sha256", _sha256(path))
        self.to(device)
        self.eval()

    @classmethod
    def from_pretrained(
        cls, name: str, quantization: str | None, device: torch.device, shared: dict, **model_kwargs
    ) -> OnnxEncoder:
        """The graph of a checkpoint, which is written first if there is none of its weights."""
        require("onnxruntime")
        config = AutoConfig.from_pretrained(name, **shared)
        with torch.device("meta"):
            skeleton = AutoModel.from_config(config, trust_remote_code=shared.get("trust_remote_code", False))
        skeleton = encoder_of_one_graph(skeleton)
        options = ("revision", "token", "cache_dir", "local_files_only")
        hub = {key: shared[key] for key in options if key in shared}
        path, places, sources = find_graph(name, config, quantization, hub)
        if path is None:
            model = AutoModel.from_pretrained(name, **shared, **(model_kwargs | {"dtype": torch.float32})).eval()
            tokenizer = AutoTokenizer.from_pretrained(name, **shared)
            folder = first_writable(places)
            path = export_and_measure(model, tokenizer, folder, quantization, sources=sources).path
            logger.info(f"wrote {path}")
        skeleton.name_or_path = name
        return cls(path, skeleton, device)

    @property
    def device(self) -> torch.device:
        return self.sha256.device

    def to(self, device: str | torch.device) -> OnnxEncoder:
        """A graph belongs to a session, and a session to a device."""
        device = onnx_device(device)
        super().to(device)
        session = open_session(self.path, device)
        outputs = [output.name for output in session.get_outputs()]
        if OUTPUT not in outputs:
            raise ValueError(
                f"{self.path}: found a graph with outputs {outputs}, expected {OUTPUT!r}; it was not written by this "
                "package: move it away, and a new one is written"
            )
        self._inputs = {given.name for given in session.get_inputs()}
        self._run = session.run
        return self

    def get_encoder(self) -> OnnxEncoder:
        return self

    def get_input_embeddings(self) -> nn.Module:
        return self._skeleton[0].get_input_embeddings()

    def named_modules(self, *args, **kwargs) -> Iterator[tuple[str, nn.Module]]:
        """Those of the encoder that was exported."""
        return self._skeleton[0].named_modules(*args, **kwargs)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs) -> tuple[torch.Tensor]:
        """input_ids, attention_mask (batch, length) -> last_hidden_state (batch, length or, of T-MDE, 1, d)."""
        inputs = {"input_ids": input_ids.cpu().numpy(), "attention_mask": attention_mask.cpu().numpy()}
        if "token_type_ids" in self._inputs:  # of BERTs that others have exported
            inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
        (hidden,) = self._run([OUTPUT], inputs)
        return (torch.from_numpy(hidden).to(self.device),)


def _sha256(graph: Path) -> torch.Tensor:
    """(32,) uint8, of the graph and of the weights beside it."""
    digest = sha256_of(part for part in (graph, data_file(graph)) if part.is_file())
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)
