"""The judge of every choice: int8 against float on samples held out of the calibration data, ordinary and rare ones apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.accuracy import run
from edgekit.verify.measures import NEAR_ZERO, slice_axis

CAP_DB = 60.0
"""Ratios above this count as this: beyond it nobody sees a difference."""

PEAKS = 0.002
"""This share of the values of a channel, the highest, are its peaks."""
FEWEST_PEAKS = 128
"""At least so many of all channels together: fewer say too little."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Score:
    """dB, means over the outputs: of the ordinary samples (and of each half of them), and of the rare ones.

    ``ordinary_db`` is the mean of three ratios: of all values, of the mean channel and of the mean sample. ``rare_db`` is the mean
    of ``each_rare_db``, the ratios of the rare samples one by one. ``peaks_db`` is of the highest values of each channel: what a
    detector or a classifier answers with.
    """

    ordinary_db: float
    rare_db: float
    peaks_db: float
    halves_db: tuple[float, float] = field(default=(0.0, 0.0), repr=False)
    each_rare_db: tuple[float, ...] = field(default=(), repr=False)

    @property
    def value(self) -> float:
        """What is to be as large as possible. Rare inputs are few, so their ratio is the less certain one: it weighs a quarter."""
        return 0.75 * self.ordinary_db + 0.25 * self.rare_db


class Judge:
    """Holds the held-out inputs and what float makes of them; :meth:`score` runs an int8 file on them."""

    def __init__(
        self,
        model: FloatModel,
        inputs: Sequence[Sequence[Array]],
        rare: Sequence[bool],
        *,
        watched: Mapping[int, str] | None = None,
        threads: int = 0,
    ) -> None:
        watched = watched or {}
        self._inputs = [list(sample) for sample in inputs]
        flags = np.asarray(rare, bool)
        ordinary = np.flatnonzero(~flags) if not flags.all() else np.arange(flags.size)
        self._rare = np.flatnonzero(flags) if flags.any() else ordinary
        self._parts = (ordinary, ordinary[::2], ordinary[1::2] if ordinary.size > 1 else ordinary)
        self._threads = threads
        self._axes = [*(slice_axis(spec) for spec in model.outputs), *(-1 for _ in watched)]
        self._judged = [position for position in range(len(self._axes)) if position not in watched]
        with open_backend(_with_outputs(model.path, tuple(watched.values())), threads=threads) as backend:
            truths = [run(backend, sample) for sample in self._inputs]
        self._truth = [np.stack([self._sliced(t[o], o) for t in truths]) for o in range(len(self._axes))]
        self._peaks = [_highest(truth) for truth in self._truth]

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(self._inputs)

    def score(self, content: bytes | bytearray) -> Score:
        """Int8 against float, for the bytes of an int8 file."""
        with open_backend(bytes(content), threads=self._threads) as backend:
            got = [run(backend, sample) for sample in self._inputs]
        parts, rare, peaks = [], [], []
        for output in self._judged:
            truth = self._truth[output]
            error = np.stack([self._sliced(values[output], output) for values in got]) - truth
            noise, signal = np.sum(error**2, axis=1), np.sum(truth**2, axis=1)  # samples, slices
            largest = np.abs(truth).max(axis=(0, 1))
            kept = largest >= NEAR_ZERO * largest.max() if largest.size else largest > 0
            parts.append([_ordinary_db(signal[part], noise[part], kept) for part in self._parts])
            rare.append(_sample_db(signal, noise, self._rare))
            high = self._peaks[output]
            peaks.append(float(_db((truth[high] ** 2).sum(), (error[high] ** 2).sum())))
        whole, *halves = (float(value) for value in np.mean(parts, axis=0))
        each = tuple(float(value) for value in np.mean(rare, axis=0))
        return Score(whole, float(np.mean(each)), float(np.mean(peaks)), (halves[0], halves[1]), each)

    def _sliced(self, values: Array, output: int) -> Array:
        """float64 (others, slices)."""
        array = np.asarray(values, np.float64)
        if array.ndim == 0:
            return array.reshape(1, 1)
        moved = np.moveaxis(array, self._axes[output], -1)
        return moved.reshape(-1, moved.shape[-1])


def before_the_last(path: Path) -> dict[int, str]:
    """Output position to the tensor that a last SOFTMAX or LOGISTIC squashes, which is judged in its place.

    Where answers are sure, the squashed values no longer show what rounding did.
    """
    graph = tflite.graph(tflite.read(path))
    producers = graph.producers()
    found = {}
    for position, output in enumerate(graph.outputs):
        operator = graph.operators[producers[output]] if output in producers else None
        if operator is not None and operator.name in ("SOFTMAX", "LOGISTIC"):
            before = operator.inputs[0]
            if before not in {*graph.inputs, *graph.outputs}:
                found[position] = graph.tensors[before].name
    return found


def _with_outputs(path: Path, watched: Sequence[str]) -> bytes:
    """The file with further outputs."""
    model = tflite.read(path)
    names = {tensor.name: tensor.index for tensor in tflite.graph(model).tensors}
    model.subgraphs[0].outputs = [*model.subgraphs[0].outputs, *(names[name] for name in watched)]
    return tflite.serialize(model)


def _highest(truth: Array) -> tuple[Array, ...]:
    """Where the highest values of each slice are, in an array (samples, others, slices)."""
    flat = truth.reshape(-1, truth.shape[2])
    wanted = max(round(PEAKS * flat.shape[0]), -(-FEWEST_PEAKS // max(flat.shape[1], 1)))
    count = max(min(wanted, flat.shape[0] // 4), min(1, flat.shape[0]))
    places = np.argpartition(-flat, count - 1, axis=0)[:count] if flat.size else np.zeros((0, flat.shape[1]), np.int64)
    slices = np.broadcast_to(np.arange(flat.shape[1]), places.shape)
    return (*np.unravel_index(places.reshape(-1), truth.shape[:2]), slices.reshape(-1))


def _ordinary_db(signal: Array, noise: Array, kept: Array) -> float:
    if not signal.size:
        return 0.0
    whole = float(_db(signal.sum(), noise.sum()))
    by_slice = _db(signal.sum(axis=0)[kept], noise.sum(axis=0)[kept])
    by_sample = _sample_db(signal, noise, np.arange(signal.shape[0]))
    return (whole + (float(by_slice.mean()) if by_slice.size else whole) + float(by_sample.mean())) / 3


def _sample_db(signal: Array, noise: Array, chosen: Array) -> Array:
    """The ratio of each chosen sample, against the signal of a typical one: a quiet sample with a quiet error is no failure."""
    return _db(signal[chosen].sum(axis=1).mean(), noise[chosen].sum(axis=1))


def _db(signal: Any, noise: Any) -> Array:
    """10 log10(signal / noise) of each, between -CAP_DB and CAP_DB; -CAP_DB where the noise is no finite number."""
    noise = np.where(np.isfinite(noise), noise, np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        ratios = 10.0 * np.log10(np.maximum(signal, 1e-300) / np.maximum(noise, 0.0))
    clipped: Array = np.clip(ratios, -CAP_DB, CAP_DB)
    return clipped
