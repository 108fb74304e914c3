"""ArgMax and ArgMin that ask for the last of equal values: the first of the reversed input, counted from the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import Chain, Graph, attributes

if TYPE_CHECKING:
    import onnx


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was one."""
    import numpy as np
    from onnx import helper

    graph = Graph(model)
    changed = False
    for node in graph.nodes("ArgMax", "ArgMin"):
        given, shape = attributes(node), graph.shape(node.input[0])
        if not given.get("select_last_index") or shape is None:
            continue
        axis = given.get("axis", 0) % len(shape)
        stem = node.output[0]
        indices = graph.add_constant(f"{stem}.reversed", np.arange(shape[axis] - 1, -1, -1, dtype=np.int64))
        chain = Chain(graph, node.input[0], stem).then("Gather", indices, axis=axis)
        chain.then(node.op_type, axis=axis, keepdims=given.get("keepdims", 1))
        last = graph.add_constant(f"{stem}.last", np.array(shape[axis] - 1, np.int64))
        graph.replace(node, [*chain.nodes, helper.make_node("Sub", [last, chain.value], [stem])])
        changed = True
    return changed
