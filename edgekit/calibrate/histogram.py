"""A histogram of a stream of values at flat memory: one pass, nothing known beforehand, no trace of the order of the samples.

Bins are as wide as a power of two and lie on multiples of it: bin ``k`` covers ``[k * width, (k + 1) * width)``. When a value falls
outside of what :data:`BINS` bins cover, the width doubles and pairs of bins become one, exactly. So the result depends on the values
alone, and histograms of two parts add up to the histogram of the whole.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 4096
"""Between 2048 and 4096 bins cover the range: 8 to 16 for each of the 255 steps of an int8 scale."""
_FINEST = 23
"""Bits of a float32 below its leading one: bins are never narrower than the spacing of the largest value."""
_SMALLEST = -100
"""Values below 2**-100 share one bin: no scale tells them apart."""

Array = NDArray[Any]


class Histogram:
    """Counts of float values. ``low`` and ``high`` are the true extremes, ``zeros`` counts the values that are exactly 0."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.count = 0
        self.zeros = 0
        self._exponent = 0
        self._first = 0  # the number of the bin that counts[0] belongs to
        self._counts = np.zeros(0, np.int64)

    @property
    def width(self) -> float:
        """The width of a bin."""
        return math.ldexp(1.0, self._exponent)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many values lie in each bin, from that of the lowest value to that of the highest."""
        return self._counts

    @property
    def edges(self) -> NDArray[np.float64]:
        """The borders of the bins: one more than there are bins."""
        edges = np.multiply(self._first + np.arange(self._counts.size + 1), self.width, dtype=np.float64)
        return edges

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of each bin; the borders of the range where a bin reaches beyond it."""
        edges = self.edges
        centres: NDArray[np.float64] = np.clip((edges[:-1] + edges[1:]) / 2, self.low, self.high)
        return centres

    def add(self, values: Array, *, low: float | None = None, high: float | None = None) -> None:
        """Count ``values`` (finite, float32). ``low`` and ``high`` are given where ``values`` are a part of what they stand for."""
        flat = values.reshape(-1)
        if not flat.size:
            return
        self._cover(float(flat.min()) if low is None else low, float(flat.max()) if high is None else high)
        keys = np.floor(flat * np.float32(math.ldexp(1.0, -self._exponent))).astype(np.int64) - self._first
        self._counts += np.bincount(keys, minlength=self._counts.size)
        self.count += flat.size
        self.zeros += flat.size - int(np.count_nonzero(flat))

    def plus(self, other: Histogram) -> Histogram:
        """The histogram of both streams."""
        return self._combined(other, 1)

    def minus(self, other: Histogram) -> Histogram:
        """What is left without a part of this stream; its extremes are known to a bin."""
        rest = self._combined(other, -1)
        occupied = np.flatnonzero(rest._counts)
        if occupied.size:
            edges, first, last = rest.edges, int(occupied[0]), int(occupied[-1])
            rest.low = max(self.low, float(edges[first]))
            rest.high = min(self.high, math.nextafter(float(edges[last + 1]), -math.inf))
            rest._first, rest._counts = rest._first + first, rest._counts[first : last + 1]
        return rest

    def quantile(self, share: float) -> float:
        """The value below which ``share`` of all values lie, to a bin; between the extremes."""
        total = int(self._counts.sum())
        if not total:
            return 0.0
        below = np.cumsum(self._counts) - self._counts
        wanted = share * (total - 1)
        position = int(np.searchsorted(below, wanted, side="right")) - 1
        inside = (wanted - below[position]) / max(int(self._counts[position]), 1)
        value = float(self.edges[position]) + min(inside, 1.0) * self.width
        return float(min(max(value, self.low), self.high))

    def _combined(self, other: Histogram, sign: int) -> Histogram:
        result = Histogram()
        for part, weight in ((self, 1), (other, sign)):
            if part._counts.size:
                result._cover(part.low, part.high)
                result._coarsen(part._exponent)
                keys = (
                    (part._first + np.arange(part._counts.size)) >> (result._exponent - part._exponent)
                ) - result._first
                result._counts += (
                    np.bincount(keys, part._counts * weight, minlength=result._counts.size).round().astype(np.int64)
                )
                result.count += weight * part.count
                result.zeros += weight * part.zeros
        return result

    def _cover(self, low: float, high: float) -> None:
        low, high = min(low, self.low), max(high, self.high)
        if low == self.low and high == self.high:
            return
        largest = max(abs(low), abs(high))
        exponent = max(math.frexp(largest)[1] - _FINEST, _SMALLEST)
        while _key(high, exponent) - _key(low, exponent) >= BINS:
            exponent += 1
        if not self._counts.size:
            self._exponent, self._first = exponent, _key(low, exponent)
        self.low, self.high = low, high
        self._coarsen(exponent)

    def _coarsen(self, exponent: int) -> None:
        """Bins of at least this exponent, from that of ``low`` to that of ``high``."""
        shift = max(exponent - self._exponent, 0)
        keys = (self._first + np.arange(self._counts.size)) >> shift
        self._exponent += shift
        first, last = _key(self.low, self._exponent), _key(self.high, self._exponent)
        counts = np.zeros(last - first + 1, np.int64)
        np.add.at(counts, keys - first, self._counts)
        self._first, self._counts = first, counts


def _key(value: float, exponent: int) -> int:
    """The number of the bin that ``value`` belongs to."""
    return math.floor(math.ldexp(value, -exponent))
