"""ONNX Runtime: whether it is there, on which device, and sessions of graphs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import onnxruntime

OUTPUT = "last_hidden_state"  # of every graph


def open_session(path: Path, device: torch.device) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # plans memory for each shape anew; batches have hundreds of shapes
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if device.type == "cuda":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    return onnxruntime.InferenceSession(path, options, providers=providers)


def onnx_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, or cuda where ONNX Runtime has it, else cpu.

    Raises:
        ImportError: Without ONNX Runtime.
        ValueError: A device that this ONNX Runtime cannot use.
    """
    require("onnxruntime")
    import onnxruntime

    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and torch.cuda.is_available()
    if device is None:
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: found {device!r}, expected 'cpu' or 'cuda' with backend='onnx'") from error
    if device.type == "cpu" or (device.type == "cuda" and has_cuda):
        return device
    raise ValueError(
        f"device: found {str(device)!r} with backend='onnx', expected 'cpu'"
        + (" or 'cuda'" if has_cuda else "; for a GPU install onnxruntime-gpu in place of onnxruntime")
    )


def require(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(f"backend='onnx' needs {' and '.join(missing)}: pip install 'tmde[onnx]'")
