"""Is the network fed as it was trained? Its own answers under other ways of feeding it: channels swapped, axes swapped, other scales.

With labels the answers are right or wrong, and a way of feeding that is right far more often settles the matter. Without labels only the
network's certainty is left, which a foreign input usually lowers: a hint, and for scales not even that (larger inputs make larger
logits), so there only the order of channels and axes is tried. Both are paired sign tests, exact (binomial).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.families import PIXEL_SCALES, WORDS, Span, family
from edgekit.calibrate.profile import channel_axis
from edgekit.calibrate.sources import Sample
from edgekit.intake.layout import delivered
from edgekit.runtime.backend import Backend, open_backend
from edgekit.values import FloatModel, IoSpec, Preprocessing

FIRST = 32
"""Samples after which a way of feeding that does no better is dropped."""
MOST = 256
SURE = 0.001
"""Chance that a difference this large is luck, shared out over the ways that were tried."""

Array = NDArray[Any]
Change = Callable[[Array], Array]


@dataclass(frozen=True)
class Alternative:
    """A way of feeding that did better. With labels ``given`` and ``other`` are shares of right answers, else mean certainties."""

    name: str
    words: str
    labelled: bool
    samples: int
    given: float
    other: float
    better: int
    worse: int
    p_value: float


@dataclass
class _Tried:
    name: str
    words: str
    change: Change
    scores: list[tuple[float, float]] = field(default_factory=list)

    def sides(self) -> tuple[int, int]:
        """How often this way did better, and how often worse."""
        return sum(o > g for g, o in self.scores), sum(o < g for g, o in self.scores)


def better_fed(
    model: FloatModel,
    samples: Iterable[Sample],
    *,
    labels: NDArray[np.int64] | None,
    output: int | None,
    preprocessing: Preprocessing | None,
    span: Span,
    threads: int = 0,
) -> tuple[Alternative, ...]:
    """Ways of feeding the model's only picture input that it answers significantly better to, the best first.

    ``output``: the position of its class scores; without one nothing can be told, and the result is empty. ``span``: the range of the
    input. ``labels`` belong to ``samples``; at most :data:`MOST` are used.
    """
    spec = model.inputs[0]
    if output is None or len(model.inputs) != 1 or len(spec.source_shape) != 4:
        return ()
    running = _ways(spec, preprocessing, span, labelled=labels is not None)
    with open_backend(model.path, threads=threads) as backend:
        tried = len(running)
        for count, sample in enumerate(samples):
            if count >= MOST or not running:
                break
            label = None if labels is None else int(labels[count])
            given = _score(_answer(backend, sample[spec.name], spec, output), label)
            for way in running:
                other = _answer(backend, way.change(sample[spec.name]), spec, output)
                way.scores.append((given, _score(other, label)))
            if (count + 1) % FIRST == 0:
                running = [way for way in running if _promising(way)]
    found = [_judged(way, tried, labels is not None) for way in running if way.scores]
    return tuple(sorted((f for f in found if f is not None), key=lambda f: f.p_value))


def _promising(way: _Tried) -> bool:
    better, worse = way.sides()
    return better > 1.1 * worse


def _judged(way: _Tried, tried: int, labelled: bool) -> Alternative | None:
    from scipy.stats import binomtest

    better, worse = way.sides()
    if better <= worse:
        return None
    p_value = float(binomtest(better, better + worse, alternative="greater").pvalue)
    if p_value > SURE / tried:
        return None
    given, other = (float(value) for value in np.mean(way.scores, axis=0))
    return Alternative(way.name, way.words, labelled, len(way.scores), given, other, better, worse, p_value)


def _answer(backend: Backend, values: Array, spec: IoSpec, output: int) -> Array:
    backend.set_input(0, delivered(np.ascontiguousarray(values, np.float32), spec))
    backend.invoke()
    return np.asarray(backend.get_output(output), np.float64).ravel()


def _score(scores: Array, label: int | None) -> float:
    """1 or 0 for a right or wrong answer; without a label the share of the largest score, as a probability."""
    if label is not None:
        return float(int(np.argmax(scores)) == label)
    is_probability = scores.min() >= 0 and abs(scores.sum() - 1) < 0.02
    if is_probability:
        return float(scores.max())
    powers = np.exp(scores - scores.max())
    return float(1.0 / powers.sum())


def _ways(spec: IoSpec, preprocessing: Preprocessing | None, span: Span, *, labelled: bool) -> list[_Tried]:
    axis = channel_axis(spec) or 1
    rows, columns = (2, 3) if axis == 1 else (1, 2)
    ways = []
    if spec.source_shape[axis] == 3:
        ways.append(_Tried("channels", "the channels in the other order (BGR for RGB)", lambda x: np.flip(x, axis)))
    if spec.source_shape[rows] == spec.source_shape[columns]:
        ways.append(_Tried("axes", "height and width swapped", lambda x: np.swapaxes(x, rows, columns)))
    scale = _scale(preprocessing, span, spec.source_shape[axis])
    if labelled and scale is not None:
        mean, std = scale
        ways += [
            _Tried(name, WORDS[name], _rescaled(mean, std, *PIXEL_SCALES[name], axis))
            for name in PIXEL_SCALES
            if not _alike(scale, PIXEL_SCALES[name])
        ]
    return ways


def _scale(
    preprocessing: Preprocessing | None, span: Span, channels: int
) -> tuple[Sequence[float], Sequence[float]] | None:
    """Mean and standard deviation that the pixels went through: said, or guessed from the range; None where there is no telling."""
    if channels not in (1, 3):
        return None
    if preprocessing is not None:
        return preprocessing.mean, preprocessing.std
    return PIXEL_SCALES.get(family(span))


def _alike(one: tuple[Sequence[float], Sequence[float]], other: tuple[Sequence[float], Sequence[float]]) -> bool:
    """Whether both lead to about the same numbers; (x - 127) / 128 and (x - 127.5) / 127.5 do."""
    first, second = ([(edge - np.array(mean)) / np.array(std) for edge in (0.0, 255.0)] for mean, std in (one, other))
    width = float(np.max(second[1] - second[0]))
    return all(float(np.abs(a - b).max()) < 0.05 * width for a, b in zip(first, second, strict=True))


def _rescaled(
    mean: Sequence[float], std: Sequence[float], to_mean: Sequence[float], to_std: Sequence[float], axis: int
) -> Change:
    def channelwise(values: Sequence[float]) -> Array:
        return np.array(values, np.float32).reshape([-1 if a == axis else 1 for a in range(4)])

    m, s = channelwise(mean), channelwise(std)

    def change(x: Array) -> Array:
        one_channel = x.shape[axis] == 1
        new_mean = channelwise([float(np.mean(to_mean))] if one_channel else to_mean)
        new_std = channelwise([float(np.mean(to_std))] if one_channel else to_std)
        return np.asarray((x * s + m - new_mean) / new_std)

    return change


def wrong_order(values: Array, spec: IoSpec) -> bool:
    """Whether a three-channel picture looks like one whose numbers lie in the other layout: reshaped where it had to be transposed.

    Neighbouring pixels resemble one another. If they do far more when the same numbers are read in the other layout, that one is theirs.
    """
    axis = channel_axis(spec)
    if axis is None or len(spec.source_shape) != 4 or spec.source_shape[axis] != 3:
        return False
    height, width = spec.source_shape[2:] if axis == 1 else spec.source_shape[1:3]
    if min(height, width) < 8:
        return False
    flat = np.asarray(values, np.float64).reshape(-1)
    first, last = flat.reshape(3, height, width), flat.reshape(height, width, 3).transpose(2, 0, 1)
    as_given, otherwise = (first, last) if axis == 1 else (last, first)
    return _roughness(otherwise) < 0.5 * _roughness(as_given)


def _roughness(picture: Array) -> float:
    """Mean difference between neighbours along height and width; ``picture`` is (channels, height, width)."""
    return float(np.abs(np.diff(picture, axis=1)).mean() + np.abs(np.diff(picture, axis=2)).mean())


def describe(found: Alternative) -> Mapping[str, Any]:
    """The numbers of an alternative, for JSON."""
    return {**found.__dict__, "p_value": float(f"{found.p_value:.3g}")}
