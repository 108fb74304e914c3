"""Every latency on disk, within a byte budget.

The file holds int64 nanoseconds, little-endian, in the order of the inferences. When it would outgrow its budget, every second value
is dropped and from then on every n-th inference is kept (n doubles each time), so what remains is spread evenly over the whole
run; a histogram then counts every single inference.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Any, Dict, Optional

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VALUE_BYTES = 8
_MANTISSA_BITS = 11
"""Histogram bins are 1 ns wide below 2^11 ns and at most 1/1024 of their value above."""


class LatencyLog:
    """One ``latencies*.bin``. Written between blocks of inferences only, never inside the measuring loop."""

    def __init__(self, path: str, *, budget_bytes: int) -> None:
        self._path = path
        self._limit = max(2, budget_bytes // _VALUE_BYTES)
        self._stored = 0
        self._bins: Optional[Dict[int, int]] = None
        self.count = 0
        self.kept_every = 1
        with open(path, "wb"):
            pass

    def append(self, values_ns: array[int], count: int) -> None:
        """Adds the first ``count`` of ``values_ns`` (typecode ``q``)."""
        values = np.frombuffer(values_ns, dtype=np.int64, count=count) if count else np.empty(0, np.int64)
        first = self.count
        kept = values[-first % self.kept_every :: self.kept_every]
        while self._stored + len(kept) > self._limit:
            self._thin_out()
            kept = values[-first % self.kept_every :: self.kept_every]
        with open(self._path, "ab") as file:
            file.write(kept.astype("<i8").tobytes())  # tofile would lose the reason when the disk is full
        self._stored += len(kept)
        self.count += count
        if self._bins is not None:
            _count_into(self._bins, values)

    def histogram(self) -> Optional[Dict[str, Any]]:
        """Counts of all inferences: bins ``lower_ns`` to below ``lower_ns + width_ns``. None while the file has every value."""
        if self._bins is None:
            return None
        lower = sorted(self._bins)
        return {
            "lower_ns": lower,
            "width_ns": [_width(value) for value in lower],
            "counts": [self._bins[value] for value in lower],
        }

    def _thin_out(self) -> None:
        """Keeps every second value of the file: inference i stays when n divides it, before and after n doubles."""
        stored = np.fromfile(self._path, dtype="<i8")
        if self._bins is None:
            self._bins = {}
            _count_into(self._bins, stored)
        kept = stored[::2]
        temporary = self._path + ".new"
        with open(temporary, "wb") as file:
            file.write(kept.tobytes())
        os.replace(temporary, self._path)
        self._stored = len(kept)
        self.kept_every *= 2


def _count_into(bins: Dict[int, int], values: NDArray[Any]) -> None:
    if not len(values):
        return
    bits = np.frexp(values.astype(np.float64))[1]  # bit length: exact, a latency is far below 2^53 ns
    shift = np.maximum(bits - _MANTISSA_BITS, 0)
    lower, counts = np.unique((values >> shift) << shift, return_counts=True)
    for value, count in zip(lower.tolist(), counts.tolist()):
        bins[value] = bins.get(value, 0) + count


def _width(lower: int) -> int:
    return 1 << max(lower.bit_length() - _MANTISSA_BITS, 0)
