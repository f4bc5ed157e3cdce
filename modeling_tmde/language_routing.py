"""Which rows of a batch go to which language's part of a model."""

from collections.abc import Callable

import torch


def check_language_ids(
    language_ids: torch.LongTensor | None,
    batch_size: int,
    languages: list[str],
    owner: str,
    language: str | None = None,
) -> torch.LongTensor:
    """Language ids (batch,) as they were given, or one id repeated for every row.

    Args:
        language_ids: (batch,) or (1,) positions in `languages`.
        owner: Who asks, for the messages.
        language: The code of all rows, in place of `language_ids`. One, not a list: sentence-transformers, which
            passes it on, orders texts by length.

    Raises:
        ValueError: If they are missing or do not fit the batch; a code that is not one of `languages`.
    """
    if language is not None:
        if language_ids is not None:
            raise ValueError("Give either language_ids or language, the code of all texts")
        if not isinstance(language, str):
            raise ValueError(
                f"language: found {type(language).__name__}, expected one code of {languages} for all texts of a "
                "call; encode the texts of each language by a call of their own, or use DocumentEmbedder"
            )
        if language not in languages:
            raise ValueError(f"language: found {language!r}, expected one of {languages}")
        return torch.tensor([languages.index(language)]).expand(batch_size)
    if language_ids is None:
        raise ValueError(
            f"{owner} has a part of its own for each language and needs language_ids (batch,): positions in its "
            f"languages {languages}; or language=, the code of all texts, as in SentenceTransformer.encode(texts, "
            f"language={languages[0]!r})"
        )
    if language_ids.dim() != 1 or language_ids.shape[0] not in (1, batch_size):
        raise ValueError(
            f"language_ids {tuple(language_ids.shape)} must be ({batch_size},), one language for each of the texts"
        )
    return language_ids.expand(batch_size)


def by_language(
    language_ids: torch.LongTensor,
    languages: list[str],
    owner: str,
    known: list[str],
    apply: Callable[[str, torch.LongTensor], tuple[torch.Tensor, ...]],
) -> tuple[torch.Tensor, ...]:
    """Calls `apply(code, rows)` once for every language of a batch and puts the results in the order of the batch.

    Args:
        language_ids: (batch,) positions in `languages`, of which those in `known` have a part in this model.
        apply: Takes a code and the places (n,) of its rows, and returns tensors whose first dimension is n.

    Raises:
        ValueError: If an id is none of `languages`, or its language is not `known`.
    """
    present = torch.unique(language_ids).tolist()
    order, results = [], []
    for index in present:
        if not 0 <= index < len(languages) or languages[index] not in known:
            name = repr(languages[index]) if 0 <= index < len(languages) else "none"
            raise ValueError(
                f"{owner} got language id {index} ({name} of languages={languages}), and has parts for {known}"
            )
    for index in present:
        rows = (language_ids == index).nonzero().squeeze(1)
        order.append(rows)
        results.append(apply(languages[index], rows))
    if len(present) == 1:
        return results[0]
    places = torch.argsort(torch.cat(order)).to(results[0][0].device)  # of each row of the batch in the results
    return tuple(torch.cat(parts).index_select(0, places) for parts in zip(*results, strict=True))


__all__ = ["by_language", "check_language_ids"]
