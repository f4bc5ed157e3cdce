# SPDX-License-Identifier: Apache-2.0

"""Configuration of the bag model."""

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, size

__all__ = ["BagConfig"]


@strict
class BagConfig(EmbedderConfig):
    r"""Configuration of [`BagModel`].

    The defaults have 8.2 M parameters: 33 MB, or 16 MB in half precision.

    Args:
        vocab_size: The size of the shared vocabulary.
        d_model: The width of the vectors and of the document embedding.
        normalize: Whether to scale every embedding to length 1 instead of dividing it by the number
            of tokens.
        sublinear_counts: Whether a token that occurs n times in a text counts sqrt(n) times.
        languages: Not used, see [`TmdeConfig`].
        pivot_languages: Not used; a subset of `languages`.

    Raises:
        ValueError: A size is not positive, or a pivot language is not in `languages`.

    Example:
        ```python
        from modeling_tmde import BagModel, BagConfig

        config = BagConfig(vocab_size=32_000, d_model=256, languages=["de", "en", "es"])
        model = BagModel(config)
        ```
    """

    model_type = "tmde_bag"
    attribute_map = {"hidden_size": "d_model"}

    vocab_size: int = size(default=32000)
    d_model: int = size(default=256)
    normalize: bool = True
    sublinear_counts: bool = False
