"""How often a comparison of two equal models says that they differ, and how often its interval holds the truth.

Series are autoregressive with drift, spikes and runs that differ from each other, as boards make them: ``python tools/compare_coverage.py``.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

from edgekit.report.contrast import FASTER, SLOWER, contrast_pairs, contrast_runs


def blocks_in_turns(rng: Any, pairs: int, *, rho: float, noise: float, shift: float) -> tuple[Any, Any]:
    """Block medians of A and B measured in turns: a common drift, and correlated noise of each."""
    drift = np.cumsum(rng.normal(0.0, noise / 3, 2 * pairs))
    order = np.argsort(rng.random((pairs, 2)), axis=1)
    logs = []
    for side in range(2):
        own = autoregressive(rng, pairs, rho) * noise + (rng.random(pairs) < 0.03) * rng.random(pairs) * 0.2
        logs.append(own + drift[2 * np.arange(pairs) + order[:, side]] + (shift if side else 0.0))
    return 8e6 * np.exp(logs[0]), 8e6 * np.exp(logs[1])


def whole_runs(rng: Any, runs: int, *, noise: float, shift: float) -> tuple[Any, Any]:
    """Medians of independent runs that differ from each other."""
    return 8e6 * np.exp(rng.normal(0.0, noise, runs)), 8e6 * np.exp(rng.normal(shift, noise, runs))


def autoregressive(rng: Any, count: int, rho: float) -> Any:
    """A first-order series of variance 1."""
    steps = rng.normal(size=count)
    steps[1:] *= math.sqrt(1.0 - rho**2)
    for index in range(1, count):
        steps[index] += rho * steps[index - 1]
    return steps


def trial(rng: Any, *, shift: float = 0.0, margin: float = 0.03, rho: float | None = None) -> tuple[str, bool | None]:
    """The verdict of one comparison of random kind, and whether its interval, where there is one, holds the true shift."""
    noise = float(rng.choice([0.002, 0.01, 0.03]))
    if rho is None and rng.random() < 0.25:
        found = contrast_runs(*whole_runs(rng, int(rng.integers(4, 12)), noise=noise, shift=shift), margin=margin)
    else:
        correlation = float(rng.choice([0.0, 0.3, 0.6, 0.8])) if rho is None else rho
        pairs = int(rng.choice([15, 30, 60, 120]))
        found = contrast_pairs(*blocks_in_turns(rng, pairs, rho=correlation, noise=noise, shift=shift), margin=margin)
    if found.low is None or found.high is None:  # it says that it cannot tell
        return found.verdict, None
    return found.verdict, found.low <= math.exp(shift) <= found.high


def main() -> None:
    """Prints the share of wrong words without any margin and with the usual one, and the coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for margin in (0.0, 0.03):
        rng = np.random.default_rng(arguments.seed)
        words = [trial(rng, margin=margin)[0] for _ in range(arguments.count)]
        wrong = sum(word in (FASTER, SLOWER) for word in words)
        print(f"A/A, margin {100 * margin:g} %: {wrong} of {len(words)} say faster or slower")
    for rho in (0.0, 0.3, 0.6, 0.8):
        rng = np.random.default_rng(arguments.seed + 1)
        all_of_them = [trial(rng, shift=0.05, rho=rho)[1] for _ in range(10 * arguments.count)]
        held = [item for item in all_of_them if item is not None]
        print(
            f"coverage at correlation {rho:g}: {np.mean(held):.3f} of {len(held)} intervals, {len(all_of_them)} comparisons"
        )


if __name__ == "__main__":
    main()
