"""Ways to choose the range of a tensor from its histogram: each gives (low, high), and none is the best for every tensor.

``min-max`` keeps every value. ``head-room`` leaves room for values that the samples did not show. ``percentile`` cuts a fixed share
off both ends. ``mse`` makes the squared error of rounding and clipping smallest. ``entropy`` makes the integers tell most about the
distribution (Kullback-Leibler divergence, as in Migacz, "8-bit inference with TensorRT", GTC 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.histogram import Histogram

Range = tuple[float, float]
STEPS = 255
"""Steps between the lowest and the highest int8."""
PERCENTILES = {"percentile": 0.99999, "percentile-99.99": 0.9999}
HEAD_ROOM = 1.1
_SHRINK = (*np.arange(1.0, 0.5, -0.02), *np.arange(0.5, 0.14, -0.03))
_ENTROPY_SHRINK = np.arange(1.0, 0.28, -0.04)


def min_max(histogram: Histogram) -> Range:
    """The true extremes."""
    return histogram.low, histogram.high


def head_room(histogram: Histogram) -> Range:
    """The extremes times 1.1."""
    return min(histogram.low * HEAD_ROOM, histogram.low), max(histogram.high * HEAD_ROOM, histogram.high)


def percentile(histogram: Histogram, share: float) -> Range:
    """The values that ``share`` of all lie below, and above."""
    return float(histogram.quantile(1.0 - share)), float(histogram.quantile(share))


def mse(histogram: Histogram) -> Range:
    """The ends, shrunk in turn, with the least squared error.

    Rounding costs step^2 / 12 a value (zero is always exact), clipping the squared distance to the end.
    """
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    centres, counts = histogram.centres, histogram.counts.astype(np.float64)
    factors = [1.0, 1.0]

    def error(low_factor: float, high_factor: float) -> float:
        bottom, top = low * low_factor, high * high_factor
        outside = np.maximum(centres - top, 0.0) + np.maximum(bottom - centres, 0.0)
        inside = float(counts[outside == 0.0].sum()) - histogram.zeros
        return float(counts @ outside**2) + inside * ((top - bottom) / STEPS) ** 2 / 12.0

    for _ in range(2):
        if low < 0.0:
            factors[0] = min(_SHRINK, key=lambda f: error(f, factors[1]))
        if high > 0.0:
            factors[1] = min(_SHRINK, key=lambda f: error(factors[0], f))
    return _inside(histogram, low * factors[0], high * factors[1])


def entropy(histogram: Histogram) -> Range:
    """Both ends shrunk together, with the least divergence between the values and what the integers say of them."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    best = min(_ENTROPY_SHRINK, key=lambda f: divergence(histogram, low * f, high * f))
    return _inside(histogram, low * best, high * best)


def divergence(histogram: Histogram, low: float, high: float) -> float:
    """Kullback-Leibler divergence of the values clipped to the range from their 256 integers spread out again, in nats.

    Infinite where the range holds no value at all.
    """
    centres, counts = histogram.centres, histogram.counts.astype(np.float64)
    inside = (centres >= low) & (centres <= high)
    if not inside.any() or high <= low:
        return float("inf")
    kept = np.flatnonzero(inside)
    clipped = counts[kept].copy()
    levels = np.rint((centres[kept] - low) / (high - low) * STEPS).astype(np.int64)
    occupied = clipped > 0
    sums = np.bincount(levels, clipped, minlength=STEPS + 1)
    members = np.bincount(levels, occupied, minlength=STEPS + 1)
    spread = np.where(occupied, sums[levels] / np.maximum(members[levels], 1), 0.0)
    clipped[0] += counts[: kept[0]].sum()
    clipped[-1] += counts[kept[-1] + 1 :].sum()
    return _kullback_leibler(clipped, spread)


def _kullback_leibler(p: NDArray[Any], q: NDArray[Any]) -> float:
    """sum p log(p / q) of both made to sum up to one; a ``p`` where ``q`` is nothing counts as one value of ``q``."""
    if not p.sum() or not q.sum():
        return float("inf")
    q = np.where((p > 0) & (q == 0), 1.0, q)
    p, q = p / p.sum(), q / q.sum()
    there = p > 0
    return float(np.sum(p[there] * np.log(p[there] / q[there])))


def _inside(histogram: Histogram, low: float, high: float) -> Range:
    """Never wider than the values, and a range at all."""
    return float(max(low, min(histogram.low, 0.0))), float(min(high, max(histogram.high, 0.0)))


METHODS: Mapping[str, Callable[[Histogram], Range]] = {
    "min-max": min_max,
    "head-room": head_room,
    "percentile": lambda h: percentile(h, PERCENTILES["percentile"]),
    "percentile-99.99": lambda h: percentile(h, PERCENTILES["percentile-99.99"]),
    "mse": mse,
    "entropy": entropy,
}
"""The word of a recipe, and what it does."""
