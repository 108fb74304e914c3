"""int8 against float on held-out data: noise of every output, agreement, and with labels the task's own metric with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.sources import Dataset, Sample, subset_labels
from edgekit.errors import DataError, UsageError
from edgekit.intake.layout import delivered
from edgekit.runtime.backend import Backend, open_backend
from edgekit.runtime.join import join
from edgekit.runtime.tensors import dequantize, quantize
from edgekit.values import FloatModel, IoSpec
from edgekit.verify.drop import compare
from edgekit.verify.intervals import Accuracy, Share, share
from edgekit.verify.measures import Comparison, json_db, slice_axis
from edgekit.verify.metrics import Metric, TopK, choose
from edgekit.verify.parity import SliceResult


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
    """All outputs over ``samples`` held-out inputs: as the source has them, and ``parts`` each for itself where some are in parts."""

    samples: int
    outputs: tuple[OutputInt8, ...]
    parts: tuple[OutputInt8, ...] = ()


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
    found = [i for i, spec in enumerate(model.answers) if is_class_scores(spec)]
    if len(found) != 1:
        shapes = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in model.answers)
        raise DataError(
            f"labels need one output of class scores, shape (1, classes), and the model has {len(found)}: {shapes}",
            hint="leave out --labels: int8 is then judged against float alone",
        )
    return found[0]


@dataclass(frozen=True)
class Task:
    """What to judge by where there are labels: a metric, and what is right for each sample in the order of the samples."""

    metric: Metric
    truths: Iterable[Any]


def task(
    model: FloatModel, data: Dataset, indices: Sequence[int], *, metric: str | None, decode: str | None
) -> Task | None:
    """The task that the labels of ``data`` at ``indices`` set, by ``metric`` or the one that fits the labels; None without labels.

    Raises DataError when a label is no class of the model, and what :func:`edgekit.verify.metrics.choose` raises.
    """
    if data.labels is None and data.truth is None:
        if metric is not None:
            raise UsageError(
                f"--metric {metric} needs labels",
                hint="give them with --labels; without labels int8 is judged against float",
            )
        return None
    chosen = choose(metric, model, truth=data.truth, decode=decode)
    if data.truth is not None:
        return Task(chosen, data.truth.iterate(indices))
    labels = subset_labels(data, indices)
    if labels is None:
        return None
    if isinstance(chosen, TopK):
        check_classes(labels, next(spec for spec in model.answers if spec.name == chosen.output))
    return Task(chosen, labels)


def evaluate(
    model: FloatModel,
    int8_path: Path,
    samples: Iterable[Sample],
    *,
    task: Task | None,
    source: str,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Run both models over ``samples`` (held out from calibration), one at a time; ``seed`` is that of a bootstrap."""
    comparisons = [Comparison(spec.name, slice_axis(spec)) for spec in model.answers]
    parts = [Comparison(spec.name, slice_axis(spec)) for spec in (model.outputs if model.joins else ())]
    answers: list[list[tuple[int, int]]] = [[] for _ in model.answers]
    marks: tuple[list[Any], list[Any]] = ([], [])
    truths = iter(task.truths) if task is not None else iter(())
    with open_backend(model.path) as float_backend, open_backend(int8_path) as int8_backend:
        for count, sample in enumerate(samples, 1):
            inputs = [delivered(sample[spec.name], spec) for spec in model.inputs]
            both = run(float_backend, inputs), run(int8_backend, inputs)
            for position, part in enumerate(parts):
                part.add(both[0][position], both[1][position])
            both = whole(model, both[0]), whole(model, both[1])
            for position, comparison in enumerate(comparisons):
                expected, got = both[0][position], both[1][position]
                comparison.add(expected, got)
                if is_class_scores(model.answers[position]):
                    answers[position].append((int(np.argmax(expected)), int(np.argmax(got))))
            if task is not None:
                right = next(truths)
                for kept, outputs in zip(marks, both, strict=True):
                    kept.append(task.metric.contribution(_by_name(model, outputs), right))
            progress(count)
    result = Int8Result(
        comparisons[0].samples,
        tuple(_output(c, a) for c, a in zip(comparisons, answers, strict=True)),
        tuple(_output(part, ()) for part in parts),
    )
    return Evaluation(result, None if task is None else compare(task.metric, *marks, source=source, seed=seed))


def _by_name(model: FloatModel, outputs: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """By the source's names and in its order of axes."""
    found = {}
    for spec, value in zip(model.answers, outputs, strict=True):
        order = spec.permutation
        found[spec.name] = value if order is None else value.transpose(np.argsort(order))
    return found


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


def whole(model: FloatModel, outputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs of the file put together to those of the source, where they are parts."""
    if not model.joins:
        return outputs
    return join(model.joins, {spec.name: value for spec, value in zip(model.outputs, outputs, strict=True)})


def check_classes(labels: NDArray[np.int64], spec: IoSpec) -> None:
    """Raises DataError when one of ``labels`` is no class of the output."""
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
