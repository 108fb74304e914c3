"""What the integers cost by a metric: both figures with intervals, the paired interval of their difference, and how many more samples
would decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgekit.verify.intervals import CONFIDENCE, Accuracy, Points, Right, paired_difference, wilson
from edgekit.verify.metrics import Figure, Metric

RESAMPLES = 2000
RESAMPLES_OF_MATCHES = 300
"""Of mAP, whose summing up takes milliseconds."""
MOST_SAMPLES = 10_000_000


def compare(metric: Metric, before: Sequence[Any], after: Sequence[Any], *, source: str, seed: int = 0) -> Accuracy:
    """Contributions of the float model ``before`` and of the quantised one ``after`` for the same samples, in the same order."""
    if metric.counts:
        return _counted(metric, np.asarray(before, bool), np.asarray(after, bool), source)
    figures = metric.over(before), metric.over(after)
    resamples = RESAMPLES_OF_MATCHES if metric.name.startswith("map") else RESAMPLES
    first, second, difference = _bootstrap(figures, len(before), resamples, seed)
    factor = 100.0 if metric.share else 1.0
    return Accuracy(
        metric=metric.name,
        count=len(before),
        float=Right(None, *first),
        int8=Right(None, *second),
        difference_points=Points(*(factor * value for value in difference)),
        lost=None,
        gained=None,
        source=source,
        unit="points" if metric.share else "",
        higher_is_better=metric.higher_is_better,
        method=f"paired bootstrap, {resamples} resamples, percentiles",
    )


def _counted(metric: Metric, before: Any, after: Any, source: str) -> Accuracy:
    from scipy.stats import binomtest

    lost, gained, count = int((before & ~after).sum()), int((~before & after).sum()), len(before)
    first, second = (
        Right(int(side.sum()), int(side.sum()) / count, *wilson(int(side.sum()), count)) for side in (before, after)
    )
    luck = float(binomtest(lost, lost + gained).pvalue) if lost + gained else 1.0
    points = paired_difference(lost, gained, count)
    return Accuracy(metric.name, count, first, second, points, lost, gained, source, p_value=luck)


def _bootstrap(
    figures: tuple[Figure, Figure], count: int, resamples: int, seed: int
) -> tuple[tuple[float, float, float], ...]:
    """Value, low and high of the first figure, of the second, and of second minus first: percentiles over samples drawn again."""
    generator = np.random.default_rng(seed)
    whole = np.arange(count)
    values = [figure(whole) for figure in figures]
    draws = []
    for _ in range(resamples):
        chosen = generator.integers(0, count, count)
        draws.append([figure(chosen) for figure in figures])
    drawn = np.array(draws)
    tails = [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)]
    sides = [(drawn[:, 0], values[0]), (drawn[:, 1], values[1]), (drawn[:, 1] - drawn[:, 0], values[1] - values[0])]
    found = []
    for side, value in sides:
        low, high = np.percentile(side, tails)
        found.append((value, float(low), float(high)))
    return tuple(found)


def loss(found: Accuracy) -> tuple[float, float, float]:
    """How much worse int8 is, with the ends of its interval: positive is worse, whichever way the metric counts."""
    difference = found.difference_points
    if found.higher_is_better:
        return -difference.value, -difference.high, -difference.low
    return difference.value, difference.low, difference.high


def limit_of(found: Accuracy, limit_points: float) -> float:
    """The recipe's limit in the metric's unit: points as they are; where there are none, percent of the float model's figure."""
    return limit_points if found.unit == "points" else abs(found.float.value) * limit_points / 100


def more_samples(found: Accuracy, limit: float) -> int | None:
    """How many further samples like these would decide whether the loss is within ``limit``; None where no number would.

    Right and wrong answers: the interval for ever more samples with the same shares. Else its width shrinks with the root.
    """
    value, low, high = loss(found)
    if math.isclose(value, limit, rel_tol=1e-9, abs_tol=1e-12):
        return None
    if found.lost is not None and found.gained is not None:
        lost, gained = found.lost / found.count, found.gained / found.count
        return _further(lambda n: _decides(paired_difference(lost * n, gained * n, n), limit), found.count)
    half = (high - value) if value < limit else (value - low)
    needed = math.ceil(found.count * (half / abs(limit - value)) ** 2)
    return needed - found.count if needed <= MOST_SAMPLES else None


def _decides(points: Points, limit: float) -> bool:
    return -points.low <= limit or -points.high > limit


def _further(decides: Callable[[int], bool], count: int) -> int | None:
    high = count
    while not decides(high):
        high *= 2
        if high > MOST_SAMPLES:
            return None
    low = count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high - count
