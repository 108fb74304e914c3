"""Divisions that integers cannot do: the divisor comes so near to zero that it is stored as zero, and the kernel ends the inference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.intake import tflite

LEAST_STEPS = 4.0
"""How many steps of its scale a divisor must stay away from zero. One would do for the calibration data; an input beyond them must not
stop a device either."""


def reaching_zero(float_path: Path, ranges: Mapping[str, tuple[float, float]], *, levels: int) -> tuple[str, ...]:
    """The results of those DIV operators, by tensor name. ``levels``: the steps that a range is divided into, 255 for int8.

    A constant divisor is known and never rounded to zero; one without a range is left to the engine.
    """
    graph = tflite.graph_of(float_path)
    producers, found = graph.producers(), []
    for operator in graph.operators:
        if operator.name != "DIV":
            continue
        divisor = operator.inputs[1]
        computed = divisor in producers or divisor in graph.inputs
        name = graph.tensors[divisor].name
        if computed and name in ranges and _least_steps(*ranges[name], levels=levels) < LEAST_STEPS:
            found.append(graph.tensors[operator.outputs[0]].name)
    return tuple(found)


def _least_steps(low: float, high: float, *, levels: int) -> float:
    """Distance of the range from zero in steps of the scale that it gets: zero is always one of the stored values."""
    reach = max(high, 0.0) - min(low, 0.0)
    if low <= 0.0 <= high or reach == 0.0:
        return 0.0
    return min(abs(low), abs(high)) / reach * levels
