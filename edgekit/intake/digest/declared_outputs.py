"""Outputs whose size depends on a value (the k of a TopK, the condition of a Compress) are given the shape that the file declares for them.

Converters write such a tensor with sizes that stand for nothing, and nothing tells where they come from. The source says what they
are, so a Reshape says it too: for the values that the declaration was made for the result is the same, and for values that give
another number of elements the model stops with an error, where the source would contradict its own declaration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import Graph, int64, opset

if TYPE_CHECKING:
    import onnx

_FIRST_OPSET = 5  # before it, Reshape took its shape as an attribute


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether an output's shape was known from its declaration alone."""
    from onnx import helper

    graph = Graph(model)
    if opset(model) < _FIRST_OPSET:
        return False
    found = _following_from_the_graph(model)
    changed = False
    for info in model.graph.output:
        shape = graph.shape(info.name)
        maker = next((node for node in model.graph.node if info.name in node.output), None)
        if maker is None or shape is None or info.name in found:
            continue
        inner = graph.fresh(f"{info.name}.as_computed")
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [inner if name == info.name else name for name in names]
        target = graph.add_constant(f"{info.name}.declared", int64(*shape))
        model.graph.node.append(helper.make_node("Reshape", [inner, target], [info.name], name=f"{inner}.Reshape"))
        changed = True
    return changed


def _following_from_the_graph(model: onnx.ModelProto) -> set[str]:
    """The outputs whose shape can be told without their declaration."""
    import onnx

    from edgekit.intake.onnx_reader import infer_shapes, value_shape

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for info in bare.graph.output:
        info.type.tensor_type.ClearField("shape")
    inferred = infer_shapes(bare)
    shapes = {info.name: value_shape(info, smallest=1) for info in inferred.graph.output}
    return {name for name, shape in shapes.items() if shape is not None and all(isinstance(s, int) for s in shape)}
