"""Limits and risks of a model, each from a fact of its run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from modeling_tmde.hub_cards.origins import Origin
from modeling_tmde.hub_cards.run_facts import RunFacts

FEW_WORDS = 5_000_000  # of training text, below which a model is a demonstration
UNSURE = 20.0  # a decoder that hesitates between so many tokens writes no translations


def limits(facts: RunFacts) -> list[str]:
    """Sentences in Markdown, most important first."""
    return [*_training_text(facts), *_inputs(facts), *_vectors(facts), *_decoder(facts), *_measured(facts)]


def words_seen(facts: RunFacts) -> float | None:
    """Words that the encoder read in the run, its first stage's included and repeated ones counted again."""
    counts = [(results.get("seen") or {}).get("source_words") for results in (facts.results, facts.first_stage)]
    return None if counts[0] is None else counts[0] + (counts[1] or 0.0)


def _training_text(facts: RunFacts) -> Iterator[str]:
    known = ", ".join(f"`{code}`" for code in facts.languages)
    if facts.goes_on:
        yield (
            f"**Languages.** What it began with may have read others before, but this run fitted it to {known} only: "
            "no other language was taught to have the vectors of these."
        )
    else:
        yield (
            f"**Languages.** Trained on {known} only. A text in any other language gets a vector too, which says "
            "little beyond the words that it shares with these."
        )
    yield from _sample(facts) if {source.kind for source in facts.sources} == {"sample"} else _domain(facts)
    if facts.teachers:
        yield (
            f"**A pupil's limits.** It learned the vectors of {_names(facts.teachers)}: their mistakes, biases and "
            "limits come with them, and what their licence asks for may too."
        )


def _sample(facts: RunFacts) -> Iterator[str]:
    what = (
        "the sample that comes with the package: sentences that a small grammar generates, with a few hundred words "
        "in each language."
    )
    if facts.goes_on:
        yield (
            f"**A demonstration.** In this run it was trained on {what} Of other words it knows what it began with "
            "had learned, as far as this run has not spoiled that; do not use it for real text before you have "
            "measured it there."
        )
    else:
        yield (f"**A demonstration.** It was trained on {what} It knows no other words; do not use it for real text.")


def _domain(facts: RunFacts) -> Iterator[str]:
    names = ", ".join(f"`{source.name}`" for source in facts.sources)
    read = f"the text it was trained on{f' ({names})' if names else ''}"
    if facts.goes_on:
        of_start = f" ({_names(facts.begun_with[:1])})" if facts.begun_with else ""
        read = f"the text of this run{f' ({names})' if names else ''} and that of what it began with{of_start}"
    yield (
        f"**Domain and bias.** It knows {read}: the more yours differs in subject, style or time, the less the "
        "numbers below say. Whatever associations that text has, of gender, origin or religion, the vectors "
        "may have too; no test for them was made."
    )
    words = words_seen(facts)
    if words is None or words >= FEW_WORDS:
        return
    if facts.goes_on:
        yield (
            f"**Little training.** It read {words:,.0f} words in this run: most of what it knows is from what it "
            "began with."
        )
    else:
        yield f"**Little training.** It read {words:,.0f} words in training, far fewer than useful models do."


def _names(origins: Sequence[Origin]) -> str:
    return ", ".join(origin.link for origin in origins)


def _inputs(facts: RunFacts) -> Iterator[str]:
    trained = facts.training("train_max_length")
    counts = facts.results.get("rows") or {}
    cut = ""
    if counts.get("truncated_texts"):
        cut = f" ({counts['truncated_texts']:,} of {counts['texts']:,} training texts were cut there)"
    if facts.max_length is None:
        text = "**Length.** It takes texts of any length"
    else:
        text = (
            f"**Length.** It takes {facts.max_length:,} tokens; what is longer is cut off, unless you ask "
            '`DocumentEmbedder` for `long_documents="sentences"` or `"chunk"`'
        )
    if trained:
        text += f". In training it saw no more than {trained:,} tokens of a text{cut}: longer ones are unlike those"
    yield f"{text}."
    if facts.lowercases:
        yield (
            "**Lower case.** Its tokenizer reads capital letters as small ones, so that `US` and `us` are one word, "
            "and text that is decoded has no capitals."
        )
    if facts.needs_language:
        yield (
            "**It must be told the language** of every text (`language=`, `language_ids`): each has an encoder of its "
            "own. With a wrong code the vector means nothing."
        )


def _vectors(facts: RunFacts) -> Iterator[str]:
    config = facts.config
    if config.model_type == "tmde_bag" and config.normalize:
        yield "**Vectors** have length 1: their product is their cosine."
    else:
        yield (
            "**Vectors** are not of length 1: compare them by cosine, or normalise them (`normalize=True`), which a "
            "plain product or an index for inner products does not do for you."
        )
    if config.model_type == "tmde_bag" or getattr(config, "encoder", None) == "bag":
        yield "**Word order** plays no part: *dog bites man* and *man bites dog* have one vector."
    yield (
        "**Same meaning, not same truth.** Near vectors are about the same things. Numbers, names and negation weigh "
        "little, so that *opens in 2019* and *does not open in 2020* may be neighbours: check what depends on them."
    )


def _decoder(facts: RunFacts) -> Iterator[str]:
    if not facts.decodes_embeddings:
        return
    perplexity = _perplexity(facts)
    text = "**The decoder** is there to shape the vectors in training"
    if perplexity is None:
        yield f"{text}; what it writes from a vector was not measured."
    elif perplexity > UNSURE:
        yield (
            f"{text}. On dev rows it hesitates between {perplexity:,.0f} tokens at each step (its perplexity, given "
            "the right tokens before): expect words of the topic, or one word again and again, and no translation."
        )
    else:
        yield (
            f"{text}. Its perplexity on dev rows is {perplexity:.1f}, given the right tokens before: it may write "
            "fluent sentences whose details are made up. It is no translation system."
        )


def _perplexity(facts: RunFacts) -> float | None:
    """The worst of the dev sets, of translation with a loss for each token."""
    translation = (facts.recipe.get("objectives") or {}).get("translation") or {}
    if translation.get("reduction", "mean") != "mean":
        return None
    best = facts.results.get("best") or {}
    losses = [value for key, value in best.items() if key.endswith("_translation_nll")]
    return math.exp(max(losses)) if losses else None


def _measured(facts: RunFacts) -> Iterator[str]:
    if not facts.results.get("best"):
        return
    if facts.holds_out:
        yield (
            "**The dev results** are those of rows of the kind it was trained for, and its weights were chosen by "
            "them: on other text expect less."
        )
    else:
        yield "**The dev results** are those of the rows by which its weights were chosen: on other text expect less."
