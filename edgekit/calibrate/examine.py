"""Collects what :mod:`edgekit.calibrate.health` judges: a few more runs of the float network, on data of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.calibrate.families import Span
from edgekit.calibrate.feeding import MOST, Alternative, better_fed, wrong_order
from edgekit.calibrate.health import Evidence, Health, judge
from edgekit.calibrate.profile import Profile, Profiler, channel_axis
from edgekit.calibrate.ranges import Ranges, observe
from edgekit.calibrate.sources import Dataset, subset_labels
from edgekit.calibrate.split import spread
from edgekit.calibrate.stability import LOOKED_AT, ByTensor, growth
from edgekit.values import FloatModel, Preprocessing
from edgekit.verify.accuracy import is_class_scores

PICTURES = 8
"""Pictures whose layout is looked at; most of them have to look wrong."""


@dataclass(frozen=True)
class Part:
    """The samples at ``indices`` (ascending) of a data set."""

    data: Dataset
    indices: Sequence[int]


def examine(
    model: FloatModel,
    profiles: tuple[Profile, ...],
    ranges: Ranges,
    *,
    calibration: Part,
    verification: Part,
    preprocessing: Preprocessing | None,
    seed: int,
    threads: int = 0,
    alive: Callable[[int], None] = lambda _: None,
) -> Health:
    """The health of ``calibration``, whose ``profiles`` and ``ranges`` one pass has found, beside the data that judge."""
    verification_profiles, seen = _seen(model, verification, seed, threads, alive)
    alternatives, tried = _fed(model, verification, verification_profiles, preprocessing, seed, threads)
    evidence = Evidence(
        calibration=profiles,
        verification=verification_profiles,
        ranges=ranges,
        seen=seen,
        growth=growth(
            model, calibration.data.iterate, calibration.indices, seed=seed, threads=threads, alive=lambda _: alive(0)
        ),
        alternatives=alternatives,
        out_of_order=_out_of_order(model, calibration, seed),
        feeding_tried=tried,
    )
    return judge(model, preprocessing, evidence)


def _seen(
    model: FloatModel, part: Part, seed: int, threads: int, alive: Callable[[int], None]
) -> tuple[tuple[Profile, ...], ByTensor]:
    """What the inputs and the tensors of the network are like on data that did not calibrate."""
    profiler = Profiler(model.inputs)
    samples = profiler.over(part.data.iterate(spread(part.indices, LOOKED_AT, seed=seed)))
    seen = observe(model, samples, threads=threads, progress=lambda _: alive(0)).by_tensor
    return profiler.profiles(), seen


def _fed(
    model: FloatModel,
    part: Part,
    profiles: Sequence[Profile],
    preprocessing: Preprocessing | None,
    seed: int,
    threads: int,
) -> tuple[tuple[Alternative, ...], str]:
    """Better ways of feeding, and what decided about them."""
    scores = [position for position, spec in enumerate(model.outputs) if is_class_scores(spec)]
    if len(scores) != 1 or len(model.inputs) != 1 or len(model.inputs[0].source_shape) != 4 or not profiles:
        return (), ""
    chosen = spread(part.indices, MOST, seed=seed)
    labels = subset_labels(part.data, chosen)
    found = better_fed(
        model,
        part.data.iterate(chosen),
        labels=labels,
        output=scores[0],
        preprocessing=preprocessing,
        span=Span(profiles[0].span.low, profiles[0].span.high),
        threads=threads,
    )
    return found, "certainty" if labels is None else "labels"


def _out_of_order(model: FloatModel, part: Part, seed: int) -> dict[str, str]:
    """Picture inputs most of whose samples lie in the other layout, with the layout that the model has."""
    spec = model.inputs[0]
    if len(model.inputs) != 1 or part.data.names is not None:  # picture files are laid out by edgekit itself
        return {}
    chosen = spread(part.indices, PICTURES, seed=seed)
    wrong = sum(wrong_order(sample[spec.name], spec) for sample in part.data.iterate(chosen))
    return {spec.name: "nchw" if channel_axis(spec) == 1 else "nhwc"} if wrong > 0.75 * len(chosen) else {}
