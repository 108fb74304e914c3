"""Is the integer model faster than the float one on this board: a ratio, its interval, and one of four words.

The two were interleaved in blocks, so block ``k`` of one and block ``k`` of the other saw the same heat and the same
company. Blocks, not inferences, are resampled in pairs: inferences of one block resemble each other and would promise a
precision that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.report.summary import Speedup
from edgekit.report.timeline import Block

MARGIN = 0.03
"""Two models within this share of each other are called the same."""
MIN_PAIRS = 9
"""Pairs of blocks below which no interval is offered."""
CONFIDENCE = 0.95
RESAMPLES = 9999


def speedup_of(main: Sequence[Block], other: Sequence[Block], *, seed: int = 0) -> Speedup | None:
    """How many times faster ``main`` is than ``other``: the ratio of their medians over paired blocks, with a bootstrap
    interval.

    None when one of them has no block. The same blocks and ``seed`` give the same interval.
    """
    pairs = min(len(main), len(other))
    if pairs == 0:
        return None
    mine = np.array([block.median_ns for block in main[:pairs]])
    others = np.array([block.median_ns for block in other[:pairs]])
    ratio = float(np.median(others) / np.median(mine))
    if pairs < MIN_PAIRS:
        reason = f"only {pairs} pairs of blocks, an interval needs {MIN_PAIRS}: run longer"
        return Speedup(ratio, None, None, CONFIDENCE, pairs, MARGIN, "undecided", reason)
    low, high = _interval(others, mine, seed)
    verdict, reason = judge(low, high, margin=MARGIN)
    return Speedup(ratio, low, high, CONFIDENCE, pairs, MARGIN, verdict, reason)


def judge(low: float, high: float, *, margin: float) -> tuple[str, str]:
    """The word for a speed-up whose interval is ``low`` to ``high``, and why.

    ``same`` needs the whole interval within the margin, ``faster`` and ``slower`` need it wholly outside; anything else
    is ``undecided``.
    """
    upper, lower = 1.0 + margin, 1.0 / (1.0 + margin)
    span = f"the interval {low:.3g}x to {high:.3g}x"
    if low > upper:
        return "faster", f"{span} lies above {upper:.3g}x"
    if high < lower:
        return "slower", f"{span} lies below {lower:.3g}x"
    if lower <= low and high <= upper:
        return "same", f"{span} lies within {margin * 100:.0f} % of equal"
    return "undecided", f"{span} reaches across the {margin * 100:.0f} % margin: run longer, or on a quieter board"


def _interval(others: np.ndarray, mine: np.ndarray, seed: int) -> tuple[float, float]:
    from scipy.stats import bootstrap

    def ratio(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        quotient: np.ndarray = np.median(a, axis=axis) / np.median(b, axis=axis)
        return quotient

    # The percentile method: BCa divides by the jackknife's spread, which is zero when the medians are equal to the
    # clock's last digit.
    found = bootstrap(
        (others, mine),
        ratio,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)
