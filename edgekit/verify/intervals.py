"""Shares and differences with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
Chance = float


@dataclass(frozen=True)
class Share:
    """``same`` of ``count``, with Wilson's interval."""

    same: int
    count: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Right:
    """A figure with its interval: of right answers Wilson's (fractions, not percent), of others by bootstrap, with ``right`` None."""

    right: int | None
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Points:
    """int8 minus float with the interval for paired samples, in percentage points or in the metric's own unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Accuracy:
    """A metric of both on the same samples. ``lost``: float right and int8 wrong; ``gained``: the other way round; None where samples are
    not right or wrong. ``unit`` "points" for shares, "" for the metric's own; ``p_value``: McNemar's exact test.
    """

    metric: str
    count: int
    float: Right
    int8: Right
    difference_points: Points
    lost: int | None
    gained: int | None
    source: str
    unit: str = "points"
    higher_is_better: bool = True
    method: str = "paired answers, Agresti and Min"
    p_value: Chance | None = None


def share(same: int, count: int) -> Share:
    """``same`` of ``count`` with Wilson's score interval (scipy.stats)."""
    low, high = wilson(same, count)
    return Share(same, count, same / count, low, high)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's score interval for a proportion at :data:`CONFIDENCE`."""
    from scipy.stats import binomtest

    interval = binomtest(hits, count).proportion_ci(confidence_level=CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def paired_difference(lost: float, gained: float, count: int) -> Points:
    """(gained - lost) / count in points, with the interval of Agresti and Min for matched pairs.

    Wald's interval after adding one half to each of the four cells (Agresti and Min, Statistics in Medicine 24, 2005): near-perfect
    agreement, where Wald's own interval would have no width, is the usual case here.
    """
    from scipy.stats import norm

    n, b, c = count + 2.0, lost + 0.5, gained + 0.5
    centre = (c - b) / n
    spread = float(norm.ppf(0.5 + CONFIDENCE / 2)) * math.sqrt(max(b + c - (c - b) ** 2 / n, 0.0)) / n
    return Points(100.0 * (gained - lost) / count, 100.0 * (centre - spread), 100.0 * (centre + spread))
