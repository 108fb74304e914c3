"""Percentiles that a run can support, and nothing else.

How many inferences a percentile needs is the early-stopping rule of MLPerf LoadGen: with ``t`` allowed queries above
the percentile, the smallest ``h`` such that ``P[Binomial(h + t, 1 - p) <= t] <= 1 - confidence``; LoadGen requires ``n
>= h + t`` at ``t = 1``. That gives 11 for p50, 64 for p90, 130 for p95, 662 for p99 and 6636 for p99.9 at 99 %
confidence.

The count is judged, and the interval computed, on what the inferences are worth as independent ones (``effective_count``), because
neighbours in time resemble each other: a thousand inferences of one slow minute have seen one slow minute.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from edgekit.report.summary import NotEnough, Percentile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgekit.report.distribution import Distribution

COUNT_CONFIDENCE = 0.99
"""Confidence of the count rule, LoadGen's own."""
INTERVAL_CONFIDENCE = 0.95
"""Confidence of the printed interval."""
MEDIAN_NEEDS = 11
"""The count of p50: a run with fewer steady inferences supports no number at all."""


@functools.lru_cache(maxsize=64)
def required_count(percent: float, *, confidence: float = COUNT_CONFIDENCE, over: int = 1) -> int:
    """Inferences needed before percentile ``percent`` (50 or more, below 100) may be printed; ``over`` is LoadGen's
    ``t``.

    Raises ValueError for a percentile outside that range.
    """
    from scipy.stats import binom

    _check(percent)
    tail = 1.0 - percent / 100.0

    def enough(n: int) -> bool:
        # The tolerance absorbs the last bits of 1 - confidence; the probabilities around a count differ by far more.
        return bool(binom.cdf(over, n, tail) <= (1.0 - confidence) * (1.0 + 1e-9))

    high = over + 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:  # enough() is monotone in n
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, over + 1)


def interval_ranks(n: int, percent: float, *, confidence: float = INTERVAL_CONFIDENCE) -> tuple[int | None, int | None]:
    """Ranks (1-based) of the order statistics that enclose a percentile of ``n`` independent samples, whatever their
    distribution.

    Each tail holds at most ``(1 - confidence) / 2``. None is an end that ``n`` samples cannot bound.
    """
    from scipy.stats import binom

    if n < 1:
        return None, None
    p = percent / 100.0
    alpha = (1.0 - confidence) / 2.0
    low = int(binom.ppf(alpha, n, p))
    high = int(binom.ppf(1.0 - alpha, n, p)) + 1
    return (low if low >= 1 else None), (high if high <= n else None)


def percentile(
    samples_ns: NDArray[np.int64],
    percent: float,
    *,
    confidence: float = COUNT_CONFIDENCE,
    effective_count: int | None = None,
) -> Percentile | NotEnough:
    """Percentile ``percent`` (50 to below 100) of ``samples_ns`` (any order, ns), or :class:`NotEnough` saying how many
    it needs.

    The value is a measured one: the order statistic of rank ``ceil(n * percent / 100)``. ``effective_count`` widens the
    interval of samples that are not independent; without it they count as independent.
    """
    from edgekit.report.distribution import Distribution

    return percentile_of(
        Distribution.from_samples(samples_ns), percent, confidence=confidence, effective_count=effective_count
    )


def percentile_of(
    distribution: Distribution,
    percent: float,
    *,
    confidence: float = COUNT_CONFIDENCE,
    effective_count: int | None = None,
) -> Percentile | NotEnough:
    """:func:`percentile` of a distribution that is already sorted or that came as a histogram."""
    _check(percent)
    n = distribution.count
    needs = required_count(percent, confidence=confidence)
    worth = n if effective_count is None else max(1, min(n, effective_count))
    if worth < needs:
        return NotEnough(percent=percent, needs=needs, has=n, worth=worth)
    low, high = interval_ranks(worth, percent)
    scale = n / worth
    return Percentile(
        percent=percent,
        value_ns=distribution.at_rank(nearest_rank(n, percent)),
        low_ns=None if low is None else distribution.at_rank(max(1, math.floor(low * scale))),
        high_ns=None if high is None else distribution.at_rank(min(n, math.ceil(high * scale))),
        confidence=INTERVAL_CONFIDENCE,
        needs=needs,
        has=n,
    )


def nearest_rank(n: int, percent: float) -> int:
    """1-based rank of the percentile among ``n``: ``ceil(n * percent / 100)``, safe from 99.9 not being a binary
    number.
    """
    return max(1, min(n, math.ceil(round(n * percent / 100.0, 6))))


def _check(percent: float) -> None:
    if not 50.0 <= percent < 100.0:
        raise ValueError(f"percentile {percent:g} is outside 50 (included) to 100 (excluded); it is given in percent")
