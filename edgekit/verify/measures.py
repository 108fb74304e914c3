"""Measures of how far one output is from another, accumulated sample by sample at flat memory.

Signal-to-quantisation-noise ratio of a reference r and an output y: ``SQNR = 10 log10(sum(r^2) / sum((r - y)^2))`` in dB, over all
values, over one channel slice or over one sample. Equal arrays give infinity, written as None in JSON.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.values import IoSpec

NEAR_ZERO = 0.01
"""A slice whose largest reference value is below this share of the output's largest has no meaningful ratio: it is judged by its
absolute error instead."""

Array = NDArray[Any]


def sqnr_db(reference: Array, output: Array) -> float:
    """SQNR in dB over all values; infinity when equal, minus infinity when the reference is zero and the output is not."""
    ref = np.asarray(reference, np.float64)
    error = _error(ref, np.asarray(output, np.float64))
    return ratio_db(float(np.sum(ref**2)), float(np.sum(error**2)))


def equal_non_finite_cleared(reference: Array, output: Array) -> tuple[Array, Array]:
    """Both, with 0 where both are NaN or the same infinity: there a float model does what its source does.

    For float against its source only; where integers must stand for the numbers, :class:`Comparison` is right to call them the worst.
    """
    if reference.shape != output.shape or reference.dtype.kind != "f" or np.isfinite(reference).all():
        return reference, output
    with np.errstate(invalid="ignore"):
        same = ~np.isfinite(reference) & ((reference == output) | (np.isnan(reference) & np.isnan(output)))
    return np.where(same, 0, reference), np.where(same, 0, output)


def ratio_db(signal: float, noise: float) -> float:
    """10 log10(signal / noise) with the limits said in :func:`sqnr_db`; NaN and infinities count as the worst."""
    if not (math.isfinite(signal) and math.isfinite(noise)):
        return -math.inf
    if noise == 0.0:
        return math.inf
    return 10.0 * (math.log10(signal) - math.log10(noise)) if signal > 0.0 else -math.inf


def _error(reference: Array, output: Array) -> Array:
    """Reference minus output; infinite where either is no finite number: two NaN are no agreement."""
    with np.errstate(invalid="ignore"):
        difference = reference - output
    return np.where(np.isfinite(reference) & np.isfinite(output), difference, np.inf)


def json_db(value: float) -> float | None:
    """A ratio for JSON: None for infinity (exact), -999.0 for minus infinity (nothing in common), rounded otherwise."""
    if value == math.inf:
        return None
    return -999.0 if value == -math.inf else round(value, 3)


def json_number(value: float) -> float | None:
    """``value`` for JSON, which knows no NaN and no infinity: None for those."""
    return value if math.isfinite(value) else None


def words_db(value: float | None) -> str:
    """A ratio as :func:`json_db` gives it, for a sentence."""
    if value is None:
        return "exact"
    return "nothing in common" if value == -999.0 else f"{value:.1f} dB"


def slice_axis(spec: IoSpec) -> int:
    """The delivered axis whose slices are compared one by one: the channels of a map, the columns of a table.

    The last axis, except for a map (rank 4 and more) that kept a channels-first source layout, and where the description names one.
    """
    if spec.slice_axis is not None:
        return spec.slice_axis
    rank = len(spec.shape)
    if rank >= 4 and spec.permutation is None and spec.layout == "nchw":
        return 1
    return max(rank - 1, 0)


@dataclass(frozen=True)
class WorstSlice:
    """The slice of the lowest SQNR, with its largest absolute error."""

    axis: int
    index: int
    sqnr_db: float
    max_abs_error: float


class Comparison:
    """Reference against output for one output tensor, fed sample by sample.

    A value that is NaN or infinite on either side makes its slice, its sample and the whole the worst possible. Memory: a few
    numbers for each channel slice, whatever the number of samples.
    """

    def __init__(self, name: str, axis: int) -> None:
        self.name = name
        self.axis = axis
        self.samples = 0
        self.max_abs_error = 0.0
        self.max_reference = 0.0
        self.worst_sample_db = math.inf
        self._signal: Array | None = None
        self._noise: Array
        self._slice_error: Array
        self._slice_reference: Array
        self._broken: NDArray[np.bool_]
        self._out_low: Array
        self._out_high: Array
        self._ref_low: Array
        self._ref_high: Array

    def add(self, reference: Array, output: Array) -> None:
        """One sample; both arrays of the same shape, any number type."""
        ref, out = self._by_slice(reference), self._by_slice(output)
        error = _error(ref, out)
        if self._signal is None:
            self._start(ref.shape[1])
        signal, noise = np.sum(ref**2, axis=0), np.sum(error**2, axis=0)
        self._signal += signal
        self._noise += noise
        absolute, magnitude = np.abs(error), np.where(np.isfinite(ref), np.abs(ref), 0.0)
        self._slice_error = np.maximum(self._slice_error, absolute.max(axis=0))
        self._slice_reference = np.maximum(self._slice_reference, magnitude.max(axis=0))
        self._broken |= np.isinf(error).any(axis=0)
        self._out_low = np.minimum(self._out_low, out.min(axis=0))
        self._out_high = np.maximum(self._out_high, out.max(axis=0))
        self._ref_low = np.minimum(self._ref_low, ref.min(axis=0))
        self._ref_high = np.maximum(self._ref_high, ref.max(axis=0))
        self.max_abs_error = max(self.max_abs_error, float(absolute.max()))
        self.max_reference = max(self.max_reference, float(magnitude.max()))
        self.worst_sample_db = min(self.worst_sample_db, ratio_db(float(signal.sum()), float(noise.sum())))
        self.samples += 1

    def _by_slice(self, array: Array) -> Array:
        values = np.asarray(array, np.float64)
        if values.ndim == 0:
            return values.reshape(1, 1)
        return np.moveaxis(values, min(self.axis, values.ndim - 1), -1).reshape(
            -1, values.shape[min(self.axis, values.ndim - 1)]
        )

    def _start(self, slices: int) -> None:
        self._signal = np.zeros(slices)
        self._noise = np.zeros(slices)
        self._slice_error = np.zeros(slices)
        self._slice_reference = np.zeros(slices)
        self._broken = np.zeros(slices, bool)
        self._out_low, self._ref_low = np.full(slices, np.inf), np.full(slices, np.inf)
        self._out_high, self._ref_high = np.full(slices, -np.inf), np.full(slices, -np.inf)

    @property
    def sqnr_db(self) -> float:
        """Over all values of all samples."""
        return ratio_db(float(self._sum().sum()), float(self._noise.sum()))

    @property
    def relative_error(self) -> float:
        """Largest absolute error over the largest absolute reference value; 0 for an exact result."""
        if self.max_abs_error == 0.0:
            return 0.0
        return self.max_abs_error / self.max_reference if self.max_reference else math.inf

    @property
    def near_zero_slices(self) -> int:
        """How many slices are too small for a ratio (:data:`NEAR_ZERO`)."""
        return int(np.count_nonzero(~self._meaningful()))

    @property
    def near_zero_error(self) -> float:
        """Largest absolute error in those slices, relative to the output's largest reference value."""
        small = ~self._meaningful()
        worst = float(self._slice_error[small].max()) if small.any() else 0.0
        return worst / self.max_reference if self.max_reference else (math.inf if worst else 0.0)

    @property
    def mean_slice_db(self) -> float:
        """Mean of the finite slice ratios; infinity when every slice is exact, minus infinity when one has nothing in common."""
        ratios = self._slice_ratios()[self._meaningful()]
        if np.any(ratios == -math.inf):
            return -math.inf
        finite = ratios[np.isfinite(ratios)]
        return float(finite.mean()) if finite.size else math.inf

    @property
    def slices_db(self) -> Array:
        """SQNR of each slice in dB; infinity for those too small for a ratio."""
        return np.where(self._meaningful(), self._slice_ratios(), np.inf)

    @property
    def worst_slice(self) -> WorstSlice | None:
        """The worst of the meaningful slices; None where the output has a single slice or none is meaningful."""
        ratios = self.slices_db
        if ratios.size < 2 or not self._meaningful().any():
            return None
        index = int(np.argmin(ratios))
        return WorstSlice(self.axis, index, float(ratios[index]), float(self._slice_error[index]))

    @property
    def constant_slices(self) -> tuple[int, ...]:
        """Slices that vary in the reference by more than :data:`NEAR_ZERO` of the output's largest value and never in the output."""
        with np.errstate(invalid="ignore"):
            varies = (self._ref_high - self._ref_low) > NEAR_ZERO * self.max_reference
        return tuple(int(i) for i in np.flatnonzero(varies & (self._out_high == self._out_low)))

    def _sum(self) -> Array:
        if self._signal is None:
            raise ValueError(f"no sample of {self.name} was compared")
        return self._signal

    def _meaningful(self) -> NDArray[np.bool_]:
        self._sum()
        large = (self._slice_reference >= NEAR_ZERO * self.max_reference) & (self._slice_reference > 0)
        return np.asarray(large | self._broken)

    def _slice_ratios(self) -> Array:
        return np.array([ratio_db(float(s), float(n)) for s, n in zip(self._sum(), self._noise, strict=True)])
