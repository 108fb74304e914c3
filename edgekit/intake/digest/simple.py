"""Operators in a form that converters stumble over, in the form that they know: one-input sums and maxima, norms, Hardmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import Chain, Graph, attributes, int64, opset

if TYPE_CHECKING:
    import onnx

_SMALLEST = 1e-30
"""Beside a norm of zero, which ONNX divides by nothing: 0 / 1e-30 is 0."""


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was such an operator."""
    from onnx import helper

    graph = Graph(model)
    changed = False
    for node in graph.nodes("Sum", "Max", "Min", "Mean"):
        if len(node.input) == 1:
            graph.replace(node, [helper.make_node("Identity", [node.input[0]], [node.output[0]])])
            changed = True
    for node in graph.nodes("LpNormalization"):
        graph.replace(node, _normalized(node, graph, opset(model)))
        changed = True
    for node in graph.nodes("Hardmax"):
        shape = graph.shape(node.input[0])
        if shape is not None and graph.dtype(node.input[0]) == "float32" and opset(model) >= 13:
            graph.replace(node, _hardmax(node, graph, shape))
            changed = True
    return changed


def _normalized(node: onnx.NodeProto, graph: Graph, version: int) -> list[onnx.NodeProto]:
    """x / |x| along one axis, the norm by its definition."""
    import numpy as np
    from onnx import helper

    given, stem = attributes(node), node.output[0]
    axis, power = given.get("axis", -1), given.get("p", 2)
    norm = Chain(graph, node.input[0], stem)
    if power == 1:
        norm.then("Abs")
    else:
        norm.then("Mul", node.input[0])
    if version >= 13:
        norm.then("ReduceSum", graph.add_constant(f"{stem}.axes", int64(axis)), keepdims=1)
    else:
        norm.then("ReduceSum", axes=[axis], keepdims=1)
    if power != 1:
        norm.then("Sqrt")
    norm.then("Max", graph.add_constant(f"{stem}.smallest", np.array(_SMALLEST, np.float32)))
    return [*norm.nodes, helper.make_node("Div", [node.input[0], norm.value], [stem])]


def _hardmax(node: onnx.NodeProto, graph: Graph, shape: tuple[int, ...]) -> list[onnx.NodeProto]:
    """1 at the first of the largest values along one axis, 0 elsewhere."""
    import numpy as np
    from onnx import TensorProto

    stem = node.output[0]
    axis = attributes(node).get("axis", -1) % len(shape)
    places = np.arange(shape[axis], dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    chain = Chain(graph, node.input[0], stem).then("ArgMax", axis=axis, keepdims=1)
    chain.then("Equal", graph.add_constant(f"{stem}.places", places)).then("Cast", to=TensorProto.FLOAT)
    return chain.ending_as(stem)
