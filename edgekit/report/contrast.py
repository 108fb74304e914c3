"""Is one thing faster than another: a shift with its interval, and one of four words.

The unit is a *run* or a *block* of one (about a second of inferences), never the single inference: inferences of one block resemble each
other and would promise a precision that is not there. Everything is on a logarithmic scale, so a shift is a ratio of latencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "no difference", "undecided"

MARGIN = 0.03
"""Latencies within this share of each other are no difference that anybody needs to act on."""
CONFIDENCE = 0.95
MIN_UNITS = 12
"""Pairs of blocks below which no interval is offered."""
MIN_WORTH = 3.0
"""What they must be worth as independent ones: below, how much they resemble each other cannot be told well enough."""
MAX_UNITS = 1000
"""More than these are joined: the number of pairwise comparisons grows with the square."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Contrast:
    """B against A. ``ratio`` is B's latency by A's (below 1: B is faster) with its interval ``low`` to ``high``, None without one.

    ``verdict`` is of B: ``faster``, ``slower``, ``no difference`` (the interval lies within ``margin``) or ``undecided``; ``reason`` says
    why. ``units`` are the pairs of blocks, or the runs of the smaller side, and ``worth`` what they are worth as independent ones.
    """

    ratio: float
    low: float | None
    high: float | None
    confidence: float
    units: int
    worth: float
    margin: float
    verdict: str
    reason: str


def contrast_pairs(a_ns: Sequence[float], b_ns: Sequence[float], *, margin: float = MARGIN) -> Contrast:
    """B against A of medians measured in turns: pair ``k`` saw the same heat and company.

    The shift is the Hodges-Lehmann estimate, the median of all means of two differences (Hodges and Lehmann, Estimates of Location
    Based on Rank Tests, 1963). Its interval is Student's, on the differences joined to batches long enough to be independent
    (batch means: Law and Kelton, Simulation Modeling and Analysis), or on what single ones are worth, whichever is wider.

    Raises ValueError for values that are not positive, and when both sides are empty.
    """
    count = min(len(a_ns), len(b_ns))
    a, b = _logs(a_ns[:count]), _logs(b_ns[:count])
    differences = _joined(b - a)
    ratio = math.exp(_pseudomedian(differences))
    if count < MIN_UNITS:
        reason = f"only {count} pairs of blocks, an interval needs {MIN_UNITS}: run longer"
        return Contrast(ratio, None, None, CONFIDENCE, count, float(count), margin, UNDECIDED, reason)
    half, worth = _half_width(differences)
    return _judged(ratio, half, count, worth, margin)


def contrast_apart(a_ns: Sequence[float], b_ns: Sequence[float], *, margin: float = MARGIN) -> Contrast:
    """B against A of block medians of two runs that were made one after the other.

    The interval joins those of both sides in quadrature. What it cannot know is how one run differs from the next: ``margin`` has to allow for
    it. Raises ValueError as :func:`contrast_pairs` does.
    """
    a, b = _joined(_logs(a_ns)), _joined(_logs(b_ns))
    ratio, units = math.exp(float(np.median(b[:, None] - a[None, :]))), min(len(a_ns), len(b_ns))
    if min(a.size, b.size) < MIN_UNITS:
        reason = f"{len(a_ns)} and {len(b_ns)} blocks are too few, an interval needs {MIN_UNITS} of each: run longer"
        return Contrast(ratio, None, None, CONFIDENCE, units, float(units), margin, UNDECIDED, reason)
    halves, worths = zip(*(_half_width(side) for side in (a, b)), strict=True)
    return _judged(ratio, math.hypot(*halves), units, min(worths), margin)


def contrast_runs(a_ns: Sequence[float], b_ns: Sequence[float], *, margin: float = MARGIN) -> Contrast:
    """B against A of the medians of whole, independent runs, which are resampled and not their blocks.

    The shift is the median of all differences of a run of B and one of A (Hodges and Lehmann), its interval that of the Mann-Whitney test,
    exact, which needs four runs of each to exist at 95 %. Raises ValueError for values that are not positive.
    """
    from scipy.stats import mannwhitneyu

    a, b = _logs(a_ns), _logs(b_ns)
    shifts = np.sort((b[:, None] - a[None, :]).ravel())
    ratio, units = math.exp(float(np.median(shifts))), min(a.size, b.size)
    # The interval holds every shift that the exact test does not reject; its ends are order statistics of the differences.
    outside = 0
    ranks_a = np.arange(a.size, dtype=float)
    while True:
        moved = _with_statistic(a.size, b.size, outside)
        if moved is None or mannwhitneyu(moved, ranks_a, method="exact").pvalue > 1.0 - CONFIDENCE:
            break
        outside += 1
    if outside == 0:
        reason = f"{a.size} and {b.size} runs are too few: the interval needs four of each"
        return Contrast(ratio, None, None, CONFIDENCE, units, float(units), margin, UNDECIDED, reason)
    low, high = float(shifts[outside - 1]), float(shifts[shifts.size - outside])
    verdict, reason = judge(math.exp(low), math.exp(high), margin=margin)
    return Contrast(ratio, math.exp(low), math.exp(high), CONFIDENCE, units, float(units), margin, verdict, reason)


def judge(low: float, high: float, *, margin: float) -> tuple[str, str]:
    """The word for B whose latency lies at ``low`` to ``high`` times that of A, and why."""
    upper, lower = 1.0 + margin, 1.0 / (1.0 + margin)
    span = f"the interval {low:.4g}x to {high:.4g}x"
    if high < lower:
        return FASTER, f"{span} lies below {lower:.3g}x"
    if low > upper:
        return SLOWER, f"{span} lies above {upper:.3g}x"
    if lower <= low and high <= upper:
        return SAME, f"{span} lies within {margin * 100:g} % of equal"
    return UNDECIDED, f"{span} reaches across the {margin * 100:g} % margin: run longer, or on a quieter board"


def _judged(ratio: float, half: float, count: int, worth: float, margin: float) -> Contrast:
    if worth < MIN_WORTH:
        reason = f"{count} blocks resemble each other so much that they are worth {worth:.1f}, {MIN_WORTH:.0f} are needed: run longer"
        return Contrast(ratio, None, None, CONFIDENCE, count, worth, margin, UNDECIDED, reason)
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    verdict, reason = judge(low, high, margin=margin)
    return Contrast(ratio, low, high, CONFIDENCE, count, worth, margin, verdict, reason)


def _half_width(differences: Floats) -> tuple[float, float]:
    """Half the interval, and what the differences are worth as independent ones."""
    from scipy.stats import t

    n = differences.size
    rho = _lag1(differences)
    worth = n * (1.0 - rho) / (1.0 + rho)
    found = [(float(t.ppf(0.975, max(worth - 1.0, 1.0))) * float(differences.std(ddof=1)) / math.sqrt(worth), worth)]
    batches = _batches(n)
    if batches < n:
        size = n // batches
        means = differences[: batches * size].reshape(batches, size).mean(axis=1)
        found.append((float(t.ppf(0.975, batches - 1)) * float(means.std(ddof=1)) / math.sqrt(batches), worth))
    return max(found)


def _batches(n: int) -> int:
    """How many batches ``n`` differences make: 10 where each then has two at least."""
    return 10 if n >= 20 else n


def _lag1(values: Floats) -> float:
    """The correlation of neighbours, 0 to 0.95, without the bias towards zero that a short series has (Kendall, 1954), and with half a
    standard error more (of a short series a whole one): too high an estimate widens an interval, too low a one breaks its promise.
    The allowance is fitted with ``tools/compare_coverage.py``.
    """
    centred = values - values.mean()
    power = float(np.dot(centred, centred))
    if power == 0.0:
        return 0.0
    raw = float(np.dot(centred[1:], centred[:-1])) / power
    rho = min(0.95, max(0.0, (raw * values.size + 1.0) / (values.size - 3.0)))
    return min(0.95, rho + (0.5 + 12.0 / values.size) * math.sqrt((1.0 - rho**2) / values.size))


def _pseudomedian(values: Floats) -> float:
    first, second = np.triu_indices(values.size)
    return float(np.median((values[first] + values[second]) / 2.0))


def _joined(values: Floats) -> Floats:
    """Neighbours joined until no more than ``MAX_UNITS`` are left."""
    size = -(-values.size // MAX_UNITS)
    if size == 1:
        return values
    count = values.size // size
    joined: Floats = values[: count * size].reshape(count, size).mean(axis=1)
    return joined


def _with_statistic(n_a: int, n_b: int, wins: int) -> Floats | None:
    """Values for B of which exactly ``wins`` pairs lie above one of A's ranks ``0..n_a-1``; None beyond the middle of the distribution."""
    if 2 * wins >= n_a * n_b:
        return None
    full, rest = divmod(wins, n_a)
    below = -1.0 - np.arange(n_b - full - (1 if rest else 0))
    above = n_a + np.arange(full, dtype=float)
    middle = [rest - 0.5] if rest else []
    return np.concatenate((below, middle, above))


def _logs(values: Sequence[float]) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.size == 0 or not (found > 0).all():
        raise ValueError("latencies are positive, and there must be at least one on each side")
    return np.log(found)
