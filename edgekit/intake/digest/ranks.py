"""A constant of fewer axes than what it is combined with gets the leading ones that ONNX's rule of broadcasting implies.

Converters move channels to the end, and a constant of shape (C,1,1) beside a map of four axes makes them guess where its axes went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import Graph

if TYPE_CHECKING:
    import onnx

_KINDS = ("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min", "Where")


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was such a constant. Scalars and vectors along the last axis stay: nothing is guessed there."""
    graph = Graph(model)
    changed = False
    for node in graph.nodes(*_KINDS):
        shape = graph.shape(node.output[0])
        for place, name in enumerate(node.input):
            values = graph.constant(name)
            if shape is None or values is None or not 2 <= values.ndim < len(shape):
                continue
            full = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
            node.input[place] = graph.add_constant(f"{name}.full", full)
            changed = True
    return changed
