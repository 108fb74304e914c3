"""How good an answer is, by task: what one sample contributes, and how contributions become the figure that people know.

Every metric is fed the real outputs of one model for one sample, by the source's names and in the source's layout, with the truth.
:meth:`Metric.over` turns the contributions of all samples into a function of which samples count, so that a bootstrap can draw.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.truths import METRIC_OF_KIND, Truth
from edgekit.errors import DataError, UsageError
from edgekit.resources import did_you_mean
from edgekit.values import FloatModel, IoSpec

Array = NDArray[Any]
Outputs = Mapping[str, Array]
Figure = Callable[[NDArray[np.int64]], float]
IGNORED = 255
"""The class index of mask pixels that count for nothing."""


class Metric(Protocol):
    """``share``: the figure is a share of 1, shown in percent. ``counts``: a sample is right or wrong, and nothing else."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def share(self) -> bool:
        """Shown in percent."""

    @property
    def higher_is_better(self) -> bool:
        """Which way is good."""

    @property
    def counts(self) -> bool:
        """Samples are right or wrong."""

    def contribution(self, outputs: Outputs, truth: Any) -> Any:
        """What one sample adds."""

    def over(self, contributions: Sequence[Any]) -> Figure:
        """The figure over the samples at given positions, which may repeat."""


@dataclass(frozen=True)
class TopK:
    """The share of samples whose class is among the ``k`` best scores. Ties count for the lower index, as in an argmax."""

    output: str
    k: int
    share: bool = True
    higher_is_better: bool = True
    counts: bool = True

    @property
    def name(self) -> str:
        """top1 or top5."""
        return f"top{self.k}"

    def contribution(self, outputs: Outputs, truth: Any) -> bool:
        """Whether it is."""
        best = np.argsort(-outputs[self.output].ravel(), kind="stable")[: self.k]
        return int(truth) in best

    def over(self, contributions: Sequence[Any]) -> Figure:
        """The share."""
        return _mean(contributions)


@dataclass(frozen=True)
class RegressionError:
    """Mean absolute error, or the root of the mean square, in the truth's own unit; every number of an output counts the same."""

    name: str
    output: str
    share: bool = False
    higher_is_better: bool = False
    counts: bool = False

    def contribution(self, outputs: Outputs, truth: Any) -> float:
        """Mean absolute or squared error of the sample."""
        got, wanted = outputs[self.output].astype(np.float64).ravel(), np.asarray(truth, np.float64).ravel()
        if got.size != wanted.size:
            raise DataError(
                f"a label holds {wanted.size} numbers, and output {self.output!r} has {got.size}",
                hint="one number for each value of the output",
            )
        error = got - wanted
        return float(np.abs(error).mean() if self.name == "mae" else (error**2).mean())

    def over(self, contributions: Sequence[Any]) -> Figure:
        """The mean, or its root."""
        mean = _mean(contributions)
        return mean if self.name == "mae" else lambda chosen: float(np.sqrt(mean(chosen)))


@dataclass(frozen=True)
class MeanIou:
    """Intersection over union by class, over all pixels of all samples, averaged over the classes that occur in truth or answer."""

    output: str
    axis: int
    classes: int
    name: str = "miou"
    share: bool = True
    higher_is_better: bool = True
    counts: bool = False

    def contribution(self, outputs: Outputs, truth: Any) -> Array:
        """Pixels by class: in both, in the answer, in the truth; shape (3, classes)."""
        answer = np.argmax(outputs[self.output], axis=self.axis).squeeze()
        mask = np.asarray(truth).squeeze()
        if answer.shape != mask.shape:
            answer = _nearest(answer, mask.shape)
        known = mask != IGNORED
        answer, mask = answer[known], mask[known]
        if mask.size and (mask.min() < 0 or mask.max() >= self.classes):
            raise DataError(
                f"a mask holds class {int(mask.max())}, and output {self.output!r} has {self.classes} classes",
                hint=f"class indices start at 0; {IGNORED} marks pixels to leave out",
            )
        rows = (answer[answer == mask], answer, mask)
        return np.stack([np.bincount(row.astype(np.int64), minlength=self.classes) for row in rows])

    def over(self, contributions: Sequence[Any]) -> Figure:
        """The mean over classes."""
        counts = np.stack(contributions).astype(np.float64)

        def figure(chosen: NDArray[np.int64]) -> float:
            both, answered, true = counts[chosen].sum(axis=0)
            union = answered + true - both
            return float((both[union > 0] / union[union > 0]).mean()) if (union > 0).any() else 0.0

        return figure


@dataclass(frozen=True)
class Custom:
    """The mean of what a function of the user's gives for each sample: ``function(outputs, truth) -> number``, higher is better."""

    name: str
    function: Callable[[Outputs, Any], float]
    share: bool = False
    higher_is_better: bool = True
    counts: bool = False

    def contribution(self, outputs: Outputs, truth: Any) -> float:
        """What the function says."""
        try:
            return float(self.function(outputs, truth))
        except Exception as error:  # the user's code may raise anything
            raise DataError(
                f"{self.name} failed: {type(error).__name__}: {error}",
                hint="it gets {output name: array} and the label of one sample, and returns a number: higher is better",
            ) from error

    def over(self, contributions: Sequence[Any]) -> Figure:
        """The mean."""
        return _mean(contributions)


def _mean(contributions: Sequence[Any]) -> Figure:
    values = np.asarray(contributions, np.float64)
    return lambda chosen: float(values[chosen].mean())


def _nearest(answer: Array, shape: tuple[int, ...]) -> Array:
    """``answer`` at another size: the value at the middle of each new pixel."""
    rows, columns = (
        np.minimum(((np.arange(new) + 0.5) * old / new).astype(int), old - 1)
        for new, old in zip(shape, answer.shape, strict=True)
    )
    return answer[np.ix_(rows, columns)]


METRICS = ("top1", "top5", "map", "map50", "miou", "mae", "rmse")


def choose(asked: str | None, model: FloatModel, *, truth: Truth | None, decode: str | None) -> Metric:
    """The metric that ``asked`` names; without a name the one that fits the labels: top1, map, miou or mae.

    Raises UsageError for a name that is none, DataError where the model has no output that it fits or the labels are of another kind.
    """
    name = asked or (METRIC_OF_KIND[truth.kind] if truth is not None else "top1")
    if ":" in name:
        return Custom(name, function_at(name, "--metric"))
    if name not in METRICS:
        raise UsageError(
            f"there is no metric {name!r}",
            hint=did_you_mean(name, METRICS) or f"one of {', '.join(METRICS)}, or module:function",
        )
    _check_kind(name, truth)
    if name.startswith("top"):
        return TopK(_class_scores(model), int(name[3:]))
    if name in ("mae", "rmse"):
        return RegressionError(name, _only(model, name, lambda spec: spec.source_dtype.startswith("float")).name)
    if name == "miou":
        spec = _only(model, name, lambda spec: len(spec.source_shape) == 4)
        axis = 1 if spec.layout == "nchw" else 3
        return MeanIou(spec.name, axis, spec.source_shape[axis])
    from edgekit.verify.detection import MeanAveragePrecision

    if decode is None:
        raise UsageError(
            "mAP needs boxes, and a network gives numbers from which they are yet to be made",
            hint="--decode module:function: it gets {output name: array} and the picture, and returns rows of "
            "(x1, y1, x2, y2, score, class), edges as fractions of the picture",
            code="decode_missing",
        )
    return MeanAveragePrecision(name, function_at(decode, "--decode"))


def _check_kind(name: str, truth: Truth | None) -> None:
    from edgekit.calibrate.truths import KIND_OF_METRIC

    wanted, got = KIND_OF_METRIC.get(name, "class indices"), truth.kind if truth is not None else "class indices"
    if wanted != got:
        raise DataError(
            f"metric {name} needs labels that are {wanted}, and these are {got}",
            hint="give other --labels, or another --metric (without one the labels decide)",
        )


def _class_scores(model: FloatModel) -> str:
    from edgekit.verify.accuracy import labelled_output

    return model.answers[labelled_output(model)].name


def _only(model: FloatModel, metric: str, fits: Callable[[IoSpec], bool]) -> IoSpec:
    found = [spec for spec in model.answers if fits(spec)]
    if len(found) != 1:
        shapes = ", ".join(f"{spec.name} {list(spec.source_shape)}" for spec in model.answers)
        raise DataError(
            f"metric {metric} needs one output that fits it, and the model has {len(found)}: {shapes}",
            hint="judge with a function of your own: --metric module:function",
        )
    return found[0]


def function_at(spec: str, option: str) -> Callable[..., Any]:
    """The function that ``module:function`` names, looked for in the current folder and among the installed packages."""
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), name, None)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise UsageError(
            f"{option} {spec}: {module_name} cannot be imported: {type(error).__name__}: {error}",
            hint="module:function is looked for in the current folder and among the installed packages",
        ) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
    if not callable(function):
        raise UsageError(f"{option} {spec}: {module_name} has no function {name!r}", hint="write it as module:function")
    return function  # type: ignore[no-any-return]
