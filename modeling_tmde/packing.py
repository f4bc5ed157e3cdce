"""Batches without their padding: what is done token by token need not be done for tokens that are not there."""

from functools import cached_property

import torch

LEAST_PADDING = 0.04  # share of a batch; moving tokens in and out of attention costs about as much


class TextStarts:
    """
    Texts moved to place 0 of their rows, and back.

    For encoders that count positions from the first place. On a CPU nothing is copied where all texts begin there.

    Args:
        begins: (batch, 1) the first place of each text; None moves nothing.
        length: Of the rows.
    """

    def __init__(self, begins: torch.LongTensor | None, length: int = 0):
        self.begins = begins
        self.length = length

    @classmethod
    def of(cls, attention_mask: torch.Tensor | None) -> "TextStarts":
        """Those of a mask (batch, length). Programs that are compiled or exported take texts that begin at place 0."""
        if attention_mask is None or attention_mask.dim() != 2:
            return cls(None)
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return cls(None)
        if attention_mask.device.type == "cpu" and bool(attention_mask[:, 0].all()):  # to ask elsewhere is to wait
            return cls(None)
        begins = attention_mask.ne(0).to(torch.uint8).argmax(dim=1, keepdim=True)
        return cls(begins, attention_mask.shape[1])

    def to_front(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """(batch, length, ...) or (1, length, ...) with every text from place 0 on, what was before it behind it."""
        if self.begins is None or tensor is None:
            return tensor
        return self._turned(tensor, self.begins)

    def back(self, tensor: torch.Tensor) -> torch.Tensor:
        """(batch, length, ...) with every text where it was; of another length, as it is."""
        if self.begins is None or tensor.shape[1] != self.length:
            return tensor
        return self._turned(tensor, -self.begins)

    def _turned(self, tensor: torch.Tensor, by: torch.LongTensor) -> torch.Tensor:
        order = (torch.arange(self.length, device=by.device) + by) % self.length  # (batch, length)
        tensor = tensor.expand(*order.shape, *tensor.shape[2:])
        return tensor.gather(1, order.view(*order.shape, *[1] * (tensor.dim() - 2)).expand(tensor.shape))


class Packing:
    """
    Where the tokens of a padded batch are.

    Packed states are (tokens, d_model), one text after the other; attention pads them for as long as it needs rows.

    Args:
        indices: (tokens,) ascending places in the flattened batch. The first place of every text is among them, and
            every place that is attended.
        shape: (batch, length) of the padded batch.
    """

    def __init__(self, indices: torch.LongTensor, shape: tuple[int, int]):
        self.indices = indices
        self.shape = shape

    @classmethod
    def of(cls, attention_mask: torch.Tensor | None) -> "Packing | None":
        """The packing of a mask (batch, length) if it is worth it: on a CPU, for a good part of padding.

        On an accelerator, to count the tokens would be to wait for it; there, give the indices.
        """
        if attention_mask is None or attention_mask.device.type != "cpu" or attention_mask.dim() != 2:
            return None
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return None
        attended = attention_mask.bool()
        if attended.numel() - int(attended.sum()) <= LEAST_PADDING * attended.numel():
            return None
        attended = torch.cat([torch.ones_like(attended[:, :1]), attended[:, 1:]], dim=1)
        return cls(attended.flatten().nonzero().squeeze(1), tuple(attended.shape))

    @cached_property
    def rows(self) -> torch.LongTensor:
        """(tokens,) which text each token belongs to."""
        return self.indices // self.shape[1]

    @cached_property
    def columns(self) -> torch.LongTensor:
        """(tokens,) the place of each token in its text."""
        return self.indices % self.shape[1]

    @cached_property
    def firsts(self) -> torch.LongTensor:
        """(batch,) where in the packed states each text begins."""
        begins = torch.arange(self.shape[0], device=self.indices.device) * self.shape[1]
        return torch.searchsorted(self.indices, begins)

    def pack(self, padded: torch.Tensor) -> torch.Tensor:
        """(batch, length, ...) -> (tokens, ...)"""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def pad(self, packed: torch.Tensor) -> torch.Tensor:
        """(tokens, ...) -> (batch, length, ...), zeros where nothing is packed."""
        batch, length = self.shape
        padded = packed.new_zeros(batch * length, *packed.shape[1:]).index_copy(0, self.indices, packed)
        return padded.unflatten(0, self.shape)
