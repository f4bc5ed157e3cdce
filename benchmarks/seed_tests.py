r"""Level and power of tests that compare two systems with a few seeds each, by simulation.

    python benchmarks/seed_tests.py --json benchmarks/results/seed_tests.json

A system has an accuracy on each test item: the mean of the system, plus a deviation of the seed,
plus the difficulty of the item, which all systems share. Each item is answered several times, as a
text is in several pairs of languages, and each answer is right by chance with this accuracy,
clipped to 0 and 1, which makes true differences about 6% smaller than stated. Four tests decide
whether two systems differ:

- Welch's t-test of the seeds' scores.
- Student's t-test with the variance pooled over the systems of a family, see
  `tmde.papers.verdicts.pooled_difference`. Two further systems of the family have two seeds each.
- The same, where the further systems vary half as much as the two that are compared, so that the
  pooled variance is too small.
- The hierarchical bootstrap over seeds and items: the percentile interval of the difference.

The level is the share of significant differences between two systems that do not differ. The power
is that share where they differ.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from common import markdown, write_json

from tmde.papers.verdicts import (
    SIGNIFICANT,
    SeedVariance,
    pooled_difference,
    pooled_variance,
    seed_difference,
)

SEEDS = 3
FURTHER_SYSTEMS = 2
FURTHER_SEEDS = 2
ITEMS = 1000
ANSWERS = 10  # Answers to an item.
ACCURACY = 0.6
ITEM_DEVIATION = 0.25  # The standard deviation of the difficulty of items.
RESAMPLES = 400
DIFFERENCES = (0.0, 0.01, 0.02, 0.04)
TESTS = ("Welch", "pooled", "pooled, unequal", "bootstrap")


def answers(
    generator: np.random.Generator, difficulty: np.ndarray, mean: float, deviation: float
) -> np.ndarray:
    """Return the share of right answers to each item, (seeds, items)."""
    shifts = generator.normal(0.0, deviation, size=(SEEDS, 1))
    accuracy = np.clip(mean + shifts + difficulty, 0.0, 1.0)
    shares: np.ndarray = generator.binomial(ANSWERS, accuracy) / ANSWERS
    return shares


def family_variance(
    generator: np.random.Generator,
    difficulty: np.ndarray,
    scores: list[dict[int, float]],
    deviation: float,
) -> SeedVariance:
    """Return the variance of two systems, pooled with that of further systems of the family."""
    family = list(scores)
    for _ in range(FURTHER_SYSTEMS):
        further = answers(generator, difficulty, ACCURACY, deviation)[:FURTHER_SEEDS]
        family.append(dict(enumerate(further.mean(axis=1))))
    return pooled_variance(family)


def bootstrap_excludes_zero(generator: np.random.Generator, a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether the interval of the hierarchical bootstrap excludes 0.

    Args:
        generator: The source of chance.
        a: The shares of right answers of one system, (seeds, items).
        b: Those of the other system.
    """
    seeds_of_a = generator.integers(SEEDS, size=(RESAMPLES, SEEDS))
    seeds_of_b = generator.integers(SEEDS, size=(RESAMPLES, SEEDS))
    # How often each item is in each resample, (resamples, items).
    counts = generator.multinomial(ITEMS, np.full(ITEMS, 1 / ITEMS), size=RESAMPLES)
    scores_of_a = counts @ a.T / ITEMS  # (resamples, seeds)
    scores_of_b = counts @ b.T / ITEMS
    means_of_a = np.take_along_axis(scores_of_a, seeds_of_a, axis=1).mean(axis=1)
    means_of_b = np.take_along_axis(scores_of_b, seeds_of_b, axis=1).mean(axis=1)
    low, high = np.quantile(means_of_a - means_of_b, [SIGNIFICANT / 2, 1 - SIGNIFICANT / 2])
    return bool(low > 0 or high < 0)


def is_significant(
    generator: np.random.Generator, difference: float, deviation: float
) -> dict[str, bool]:
    """Simulate two systems, and return what each test decides."""
    difficulty = generator.normal(0.0, ITEM_DEVIATION, size=ITEMS)
    a = answers(generator, difficulty, ACCURACY + difference, deviation)
    b = answers(generator, difficulty, ACCURACY, deviation)
    scores = [dict(enumerate(a.mean(axis=1))), dict(enumerate(b.mean(axis=1)))]
    welch = seed_difference(*scores)
    assert welch is not None  # Both have several seeds.
    variance = family_variance(generator, difficulty, scores, deviation)
    pooled = pooled_difference(*scores, variance)
    unequal_variance = family_variance(generator, difficulty, scores, deviation / 2)
    unequal = pooled_difference(*scores, unequal_variance)
    return {
        "Welch": welch.p < SIGNIFICANT,
        "pooled": pooled.p < SIGNIFICANT,
        "pooled, unequal": unequal.p < SIGNIFICANT,
        "bootstrap": bootstrap_excludes_zero(generator, a, b),
    }


def main(
    repetitions: Annotated[int, typer.Option(min=1, help="Simulations of each case.")] = 1000,
    deviation: Annotated[
        list[float] | None,
        typer.Option(min=0.0, help="Standard deviations over seeds. Default: 0.008 and 0.025."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Simulate every difference with every deviation."""
    rows = []
    for seed_deviation in deviation or (0.008, 0.025):
        for difference in DIFFERENCES:
            generator = np.random.default_rng(0)
            counts = dict.fromkeys(TESTS, 0)
            for _ in range(repetitions):
                decisions = is_significant(generator, difference, seed_deviation)
                for test, decision in decisions.items():
                    counts[test] += decision
            shares = {test: round(100 * count / repetitions, 1) for test, count in counts.items()}
            rows.append({"seed deviation": seed_deviation, "difference": difference} | shares)
    typer.echo(markdown(rows))
    settings = {
        "repetitions": repetitions,
        "seeds": SEEDS,
        "further systems": FURTHER_SYSTEMS,
        "their seeds": FURTHER_SEEDS,
        "items": ITEMS,
        "answers": ANSWERS,
        "accuracy": ACCURACY,
        "item deviation": ITEM_DEVIATION,
    }
    write_json(json, "seed_tests", settings, rows)


if __name__ == "__main__":
    typer.run(main)
