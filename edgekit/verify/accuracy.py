"""int8 against float on held-out data: noise of every output, agreement, and with labels accuracy with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.sources import Sample
from edgekit.errors import DataError
from edgekit.intake.layout import delivered
from edgekit.runtime.backend import Backend, open_backend
from edgekit.runtime.tensors import dequantize, quantize
from edgekit.values import FloatModel, IoSpec
from edgekit.verify.measures import Comparison, json_db, slice_axis
from edgekit.verify.parity import SliceResult

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Share:
    """``same`` of ``count``, with Wilson's interval."""

    same: int
    count: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class OutputInt8:
    """One output of int8 against float. Ratios in dB, None means exact; ``agreement`` for class scores only."""

    name: str
    sqnr_db: float | None
    mean_slice_db: float | None
    worst_slice: SliceResult | None
    worst_sample_db: float | None
    constant_slices: int
    agreement: Share | None


@dataclass(frozen=True)
class Int8Result:
    """All outputs over ``samples`` held-out inputs."""

    samples: int
    outputs: tuple[OutputInt8, ...]


@dataclass(frozen=True)
class Right:
    """Right answers with Wilson's interval (fractions, not percent)."""

    right: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Points:
    """int8 minus float in percentage points, with the interval for paired answers."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Accuracy:
    """Top-1 of both on the same samples. ``lost``: float right and int8 wrong; ``gained``: the other way round."""

    metric: str
    count: int
    float: Right
    int8: Right
    difference_points: Points
    lost: int
    gained: int
    source: str


@dataclass(frozen=True)
class Evaluation:
    """What one pass over the held-out data found."""

    int8: Int8Result
    accuracy: Accuracy | None


def is_class_scores(spec: IoSpec) -> bool:
    """Whether an output is a row of scores of which the largest is the answer: shape (1, N), N > 1, real numbers."""
    return len(spec.shape) == 2 and spec.shape[0] == 1 and spec.shape[1] > 1 and spec.source_dtype.startswith("float")


def labelled_output(model: FloatModel) -> int:
    """Position of the output that labels speak of. Raises DataError unless there is exactly one."""
    found = [i for i, spec in enumerate(model.outputs) if is_class_scores(spec)]
    if len(found) != 1:
        shapes = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in model.outputs)
        raise DataError(
            f"labels need one output of class scores, shape (1, classes), and the model has {len(found)}: {shapes}",
            hint="leave out --labels: int8 is then judged against float alone",
        )
    return found[0]


def evaluate(
    model: FloatModel,
    int8_path: Path,
    samples: Iterable[Sample],
    *,
    labels: NDArray[np.int64] | None,
    source: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Run both models over ``samples`` (held out from calibration), one at a time.

    Raises DataError when a label is no class of the model.
    """
    scored = labelled_output(model) if labels is not None else -1
    if labels is not None:
        _check_labels(labels, model.outputs[scored])
    comparisons = [Comparison(spec.name, slice_axis(spec)) for spec in model.outputs]
    answers: list[list[tuple[int, int]]] = [[] for _ in model.outputs]
    with open_backend(model.path) as float_backend, open_backend(int8_path) as int8_backend:
        for count, sample in enumerate(samples, 1):
            inputs = [delivered(sample[spec.name], spec) for spec in model.inputs]
            truth, got = run(float_backend, inputs), run(int8_backend, inputs)
            for position, comparison in enumerate(comparisons):
                comparison.add(truth[position], got[position])
                if is_class_scores(model.outputs[position]):
                    answers[position].append((int(np.argmax(truth[position])), int(np.argmax(got[position]))))
            progress(count)
    outputs = tuple(_output(c, a) for c, a in zip(comparisons, answers, strict=True))
    result = Int8Result(comparisons[0].samples, outputs)
    accuracy = None if labels is None else _accuracy(np.asarray(answers[scored]), labels, source)
    return Evaluation(result, accuracy)


def run(backend: Backend, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Real numbers in, real numbers out, for a float or a quantised model; ``inputs`` in delivered layout."""
    for position, (detail, value) in enumerate(zip(backend.inputs, inputs, strict=True)):
        if detail.is_quantized:
            value = quantize(value, scale=detail.scale, zero_point=detail.zero_point, dtype=detail.dtype)
        backend.set_input(position, value)
    backend.invoke()
    results = []
    for position, detail in enumerate(backend.outputs):
        value = backend.get_output(position)
        if detail.is_quantized:
            value = dequantize(value, scale=detail.scale, zero_point=detail.zero_point)
        results.append(value)
    return results


def _check_labels(labels: NDArray[np.int64], spec: IoSpec) -> None:
    classes = spec.shape[1]
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        raise DataError(
            f"label {int(labels[outside[0]])} (sample {int(outside[0])}) is no class of output {spec.name!r}, which has {classes}",
            hint="class indices start at 0, in the order of the model's output",
        )


def _output(comparison: Comparison, answers: Sequence[tuple[int, int]]) -> OutputInt8:
    return OutputInt8(
        name=comparison.name,
        sqnr_db=json_db(comparison.sqnr_db),
        mean_slice_db=json_db(comparison.mean_slice_db),
        worst_slice=SliceResult.of(comparison.worst_slice),
        worst_sample_db=json_db(comparison.worst_sample_db),
        constant_slices=len(comparison.constant_slices),
        agreement=share(sum(a == b for a, b in answers), len(answers)) if answers else None,
    )


def share(same: int, count: int) -> Share:
    """``same`` of ``count`` with Wilson's score interval (scipy.stats)."""
    low, high = wilson(same, count)
    return Share(same, count, same / count, low, high)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's score interval for a proportion at :data:`CONFIDENCE`."""
    from scipy.stats import binomtest

    interval = binomtest(hits, count).proportion_ci(confidence_level=CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def paired_difference(lost: int, gained: int, count: int) -> Points:
    """(gained - lost) / count in points, with the interval of Agresti and Min for matched pairs.

    Wald's interval after adding one half to each of the four cells (Agresti and Min, Statistics in Medicine 24, 2005): near-perfect
    agreement, where Wald's own interval would have no width, is the usual case here.
    """
    from scipy.stats import norm

    n, b, c = count + 2.0, lost + 0.5, gained + 0.5
    centre = (c - b) / n
    spread = float(norm.ppf(0.5 + CONFIDENCE / 2)) * math.sqrt(max(b + c - (c - b) ** 2 / n, 0.0)) / n
    return Points(100.0 * (gained - lost) / count, 100.0 * (centre - spread), 100.0 * (centre + spread))


def _accuracy(answers: NDArray[np.int64], labels: NDArray[np.int64], source: str) -> Accuracy:
    right_float, right_int8 = answers[:, 0] == labels, answers[:, 1] == labels
    lost = int(np.count_nonzero(right_float & ~right_int8))
    gained = int(np.count_nonzero(~right_float & right_int8))
    count = len(labels)
    return Accuracy(
        metric="top1",
        count=count,
        float=_right(int(right_float.sum()), count),
        int8=_right(int(right_int8.sum()), count),
        difference_points=paired_difference(lost, gained, count),
        lost=lost,
        gained=gained,
        source=source,
    )


def _right(right: int, count: int) -> Right:
    return Right(right, right / count, *wilson(right, count))
