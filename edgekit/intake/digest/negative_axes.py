"""Negative axes in attributes and negative constant indices of Gather are counted from the front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import Graph, attributes, set_attributes

if TYPE_CHECKING:
    import onnx

_GROWS = ("Unsqueeze",)
"""Operators whose axes count in the output."""


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether something was negative."""
    graph = Graph(model)
    changed = False
    for node in model.graph.node:
        changed |= _attributes(node, graph)
    for node in graph.nodes("Gather", "GatherElements"):
        changed |= _indices(node, graph)
    for node in graph.nodes("Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
        changed |= _axes_input(node, graph)
    return changed


def _rank(node: onnx.NodeProto, graph: Graph) -> int | None:
    value = node.output[0] if node.op_type in _GROWS else node.input[0] if node.input else ""
    shape = graph.shape(value)
    return None if shape is None else len(shape)


def _attributes(node: onnx.NodeProto, graph: Graph) -> bool:
    rank = _rank(node, graph)
    new: dict[str, Any] = {}
    for name, value in attributes(node).items():
        if rank is None or name not in ("axis", "axes"):
            continue
        if isinstance(value, int) and value < 0:
            new[name] = value + rank
        elif not isinstance(value, int) and min(value, default=0) < 0:
            new[name] = [item + rank if item < 0 else item for item in value]
    set_attributes(node, **new)
    return bool(new)


def _indices(node: onnx.NodeProto, graph: Graph) -> bool:
    import numpy as np

    indices, shape = graph.constant(node.input[1]), graph.shape(node.input[0])
    if indices is None or shape is None or not (indices < 0).any():
        return False
    size = shape[attributes(node).get("axis", 0)]
    node.input[1] = graph.add_constant(f"{node.output[0]}.indices", np.where(indices < 0, indices + size, indices))
    return True


def _axes_input(node: onnx.NodeProto, graph: Graph) -> bool:
    import numpy as np

    axes = graph.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    rank = _rank(node, graph)
    if axes is None or rank is None or not (axes < 0).any():
        return False
    node.input[1] = graph.add_constant(f"{node.output[0]}.axes", np.where(axes < 0, axes + rank, axes))
    return True
