"""Outputs whose shape the file leaves open, though it follows from the inputs, get it: some converters lay axes out by what is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import Graph

if TYPE_CHECKING:
    import onnx


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether an output got its shape."""
    from edgekit.intake.onnx_reader import value_shape

    graph = Graph(model)
    changed = False
    for info in model.graph.output:
        known = graph.shape(info.name)
        if known is None or not info.type.HasField("tensor_type") or value_shape(info, smallest=1) == known:
            continue
        del info.type.tensor_type.shape.dim[:]
        for size in known:
            info.type.tensor_type.shape.dim.add().dim_value = size
        changed = True
    return changed
