"""The built-in sample as a corpus: no network, no files."""

from .hub import HubPart


def sample_part(split: str, seed: int, max_rows: int | None, streaming: bool) -> HubPart:
    """Return `max_rows` rows (20,000 by default) of the built-in sample in de, en, es, fr and it."""
    from modeling_tmde.data.sample import sample_parallel  # here, so that reading files does not need it

    split = {"validation": "dev"}.get(split, split)
    rows = {} if max_rows is None else {"num_rows": max_rows}
    dataset = sample_parallel(split=split, seed=seed, **rows)
    return HubPart(dataset.to_iterable_dataset() if streaming else dataset, f"sample (split {split})", split)
