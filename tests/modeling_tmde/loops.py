"""Recurrent layers and convolutions as plain float64 loops over one text."""

import numpy as np
from torch import nn


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    """The weights of a module by name, in float64."""
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def lstm_loop(
    weights: dict[str, np.ndarray],
    inputs: np.ndarray,
    suffix: str = "",
    hidden: np.ndarray | None = None,
    cell: np.ndarray | None = None,
) -> np.ndarray:
    """Read a text (length, width) a step at a time, with gates i, f, g, o -> (length, size)."""
    size = weights["weight_hh_l0" + suffix].shape[1]
    hidden = np.zeros(size) if hidden is None else hidden
    cell = np.zeros(size) if cell is None else cell
    outputs = []
    for vector in inputs:
        from_input = weights["weight_ih_l0" + suffix] @ vector + weights["bias_ih_l0" + suffix]
        from_state = weights["weight_hh_l0" + suffix] @ hidden + weights["bias_hh_l0" + suffix]
        i, f, g, o = np.split(from_input + from_state, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs)


def gru_loop(
    weights: dict[str, np.ndarray],
    inputs: np.ndarray,
    suffix: str = "",
    hidden: np.ndarray | None = None,
) -> np.ndarray:
    """Read a text (length, width) a step at a time, with gates r, z, n -> (length, size)."""
    size = weights["weight_hh_l0" + suffix].shape[1]
    hidden = np.zeros(size) if hidden is None else hidden
    outputs = []
    for vector in inputs:
        from_input = weights["weight_ih_l0" + suffix] @ vector + weights["bias_ih_l0" + suffix]
        from_state = weights["weight_hh_l0" + suffix] @ hidden + weights["bias_hh_l0" + suffix]
        reset = sigmoid(from_input[:size] + from_state[:size])
        update = sigmoid(from_input[size : 2 * size] + from_state[size : 2 * size])
        candidate = np.tanh(from_input[2 * size :] + reset * from_state[2 * size :])
        hidden = (1 - update) * candidate + update * hidden
        outputs.append(hidden)
    return np.stack(outputs)


def conv_loop(weights: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Convolve a text (length, width) over three tokens -> (length, channels)."""
    framed = np.pad(inputs, ((1, 1), (0, 0)))
    outputs = []
    for place in range(len(inputs)):
        output = weights["bias"].copy()
        for offset in range(3):
            output += weights["weight"][:, :, offset] @ framed[place + offset]
        outputs.append(output)
    return np.stack(outputs)
