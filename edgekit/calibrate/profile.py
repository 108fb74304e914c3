"""What the samples are like, collected while they pass by: range of each channel, constants, near-duplicates, diversity. Flat memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.families import Span
from edgekit.calibrate.histogram import Histogram
from edgekit.calibrate.sources import Sample
from edgekit.values import IoSpec

CHANNELS_MAX = 16
"""Channels of an input that are looked at one by one; with more, the input as a whole."""
KEPT = 512
"""Samples whose signatures are compared with one another; of more, the first ones."""
SIGNATURE = 16
"""A signature has so many means along each of the two longest axes."""
SAME = 0.03
"""Signatures closer than this share of the usual distance between two samples are the same content."""
COVERAGE_BINS = 64

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Channel:
    """Range, mean, standard deviation and distribution of one channel over all samples."""

    span: Span
    mean: float
    std: float
    histogram: Histogram

    def coverage(self, over: Span) -> float:
        """The share of 64 equal parts of ``over`` in which values were seen."""
        if over.width <= 0:
            return 0.0
        counts = np.histogram(
            self.histogram.centres, COVERAGE_BINS, (over.low, over.high), weights=self.histogram.counts
        )[0]
        return float(np.count_nonzero(counts)) / COVERAGE_BINS


@dataclass(frozen=True)
class Profile:
    """One input over ``count`` samples. ``constant``: positions of samples that are a single value throughout. ``similar``: pairs of a
    sample and the earlier one that it repeats (among the first :data:`KEPT`). ``diversity``: the effective number of independent
    directions in which the signatures differ. ``grey``: all channels are the same.
    """

    name: str
    count: int
    span: Span
    channels: tuple[Channel, ...]
    constant: tuple[int, ...]
    similar: tuple[tuple[int, int], ...]
    diversity: float
    grey: bool

    @property
    def distinct(self) -> int:
        """Samples without the near-duplicates."""
        return self.count - len(self.similar)


class Profiler:
    """Looks at the samples that pass through :meth:`over`."""

    def __init__(self, inputs: Sequence[IoSpec]) -> None:
        self._inputs = [_Input(spec) for spec in inputs if np.dtype(spec.source_dtype).kind == "f"]

    def over(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """``samples``, one by one, unchanged."""
        for sample in samples:
            for one in self._inputs:
                one.add(np.asarray(sample[one.spec.name]))
            yield sample

    def profiles(self) -> tuple[Profile, ...]:
        """One for each float input that was fed."""
        return tuple(one.profile() for one in self._inputs if one.count)


class _Input:
    def __init__(self, spec: IoSpec) -> None:
        self.spec = spec
        self.count = 0
        self.axis = channel_axis(spec)
        self._channels: list[Histogram] = []
        self._sums: Array = np.zeros((2, 1))
        self._values = 0
        self._constant: list[int] = []
        self._signatures: list[Array] = []
        self._grey = True

    def add(self, values: NDArray[np.generic]) -> None:
        rows = self._rows(values)
        if not self._channels:
            self._channels = [Histogram() for _ in rows]
            self._sums = np.zeros((2, len(rows)))
        for histogram, row in zip(self._channels, rows, strict=True):
            histogram.add(row)
        wide = rows.astype(np.float64)
        self._sums += np.stack([wide.sum(axis=1), (wide**2).sum(axis=1)])
        self._values += wide.shape[1]
        if float(np.ptp(wide)) == 0.0:
            self._constant.append(self.count)
        self._grey &= len(rows) > 1 and bool((rows == rows[0]).all())
        if len(self._signatures) < KEPT:
            self._signatures.append(signature(values, self.axis))
        self.count += 1

    def _rows(self, values: NDArray[np.generic]) -> NDArray[np.float32]:
        floats = np.asarray(values, np.float32)
        if self.axis is None or floats.shape[self.axis] > CHANNELS_MAX:
            return floats.reshape(1, -1)
        return np.moveaxis(floats, self.axis, 0).reshape(floats.shape[self.axis], -1)

    def profile(self) -> Profile:
        means = self._sums[0] / self._values
        stds = np.sqrt(np.maximum(self._sums[1] / self._values - means**2, 0.0))
        channels = tuple(
            Channel(Span(h.low, h.high), float(m), float(s), h)
            for h, m, s in zip(self._channels, means, stds, strict=True)
        )
        span = Span(min(c.span.low for c in channels), max(c.span.high for c in channels))
        vectors = np.stack(self._signatures)
        similar, diversity = near_duplicates(vectors), _diversity(vectors)
        return Profile(
            self.spec.name, self.count, span, channels, tuple(self._constant), similar, diversity, self._grey
        )


def channel_axis(spec: IoSpec) -> int | None:
    """The axis of the source's layout that holds channels; None for an input of rank 2 and less, whose values are one channel."""
    rank = len(spec.source_shape)
    if rank < 3:
        return None
    if spec.layout == "nchw":
        return 1
    if spec.layout == "nhwc":
        return rank - 1
    smallest = min((1, rank - 1), key=lambda axis: spec.source_shape[axis])
    return smallest


def signature(values: NDArray[np.generic], axis: int | None) -> Array:
    """Means over a grid of at most 16 x 16 parts for each channel: what the sample looks like from afar."""
    array = np.asarray(values, np.float64)
    channels = array.reshape(1, -1) if axis is None else np.moveaxis(array, axis, 0)
    if channels.shape[0] > CHANNELS_MAX:
        channels = channels.reshape(1, *channels.shape)
    return np.concatenate([_grid(channel.squeeze()) for channel in channels])


def _grid(plane: Array) -> Array:
    """Block means along every axis of ``plane`` (ends of uneven blocks included), flattened."""
    for axis in range(plane.ndim):
        size = plane.shape[axis]
        if size > SIGNATURE:
            starts = np.arange(SIGNATURE) * size // SIGNATURE
            widths = np.diff(np.append(starts, size)).reshape([-1 if a == axis else 1 for a in range(plane.ndim)])
            plane = np.add.reduceat(plane, starts, axis=axis) / widths
    return plane.reshape(-1)


def near_duplicates(vectors: Array) -> tuple[tuple[int, int], ...]:
    """Each vector that repeats an earlier one, with that one: closer than :data:`SAME` of the median distance between any two."""
    if len(vectors) < 2:
        return ()
    squares = (vectors**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * vectors @ vectors.T, 0.0))
    upper = distances[np.triu_indices(len(vectors), 1)]
    usual = float(np.median(upper[upper > 0])) if (upper > 0).any() else 0.0
    noise = 1e-6 * math.sqrt(float(np.max(squares)))  # of the subtraction above
    found, originals = [], [0]
    for index in range(1, len(vectors)):
        nearest = min(originals, key=lambda other: distances[index, other])
        if distances[index, nearest] <= max(SAME * usual, noise):
            found.append((index, nearest))
        else:
            originals.append(index)
    return tuple(found)


def _diversity(vectors: Array) -> float:
    """(sum of eigenvalues)^2 / sum of their squares, of the covariance of the signatures: the participation ratio."""
    centred = vectors - vectors.mean(axis=0)
    gram = centred @ centred.T
    squared = float((gram**2).sum())
    return float(np.trace(gram)) ** 2 / squared if squared > 0 else 0.0
