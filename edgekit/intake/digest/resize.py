"""Resize in any mode: each axis is one product with a constant matrix, or for "nearest" one Gather with constant indices.

The matrices are not derived again: ONNX Runtime resizes the unit vectors of that axis. That is exact for every mode that treats axes one by
one (all but ``tf_crop_and_resize`` beyond the input, where a constant is mixed in).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import Chain, Graph, attributes, opset

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

LARGEST = 1 << 22
"""Elements of a matrix beyond which the file would grow too much."""


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was one with constant sizes."""
    graph = Graph(model)
    changed = False
    for node in graph.nodes("Resize"):
        nodes = _spelled_out(node, graph, opset(model))
        if nodes:
            graph.replace(node, nodes)
            changed = True
    return changed


def _spelled_out(node: onnx.NodeProto, graph: Graph, version: int) -> list[onnx.NodeProto]:
    import numpy as np

    before, after = graph.shape(node.input[0]), graph.shape(node.output[0])
    given = attributes(node)
    parameters = [graph.constant(name) if name else None for name in (*node.input[1:], "", "", "")][:3]
    known = all(value is not None for name, value in zip(node.input[1:], parameters, strict=False) if name)
    if before is None or after is None or not known or version < 11 or given.get("axes"):
        return []
    if given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return []
    chain = Chain(graph, node.input[0], node.output[0])
    nearest = given.get("mode", "nearest") == "nearest"
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        scales = parameters[1]
        scale = float(scales[axis]) if scales is not None and scales.size else None
        if old == new and (scale is None or scale == 1.0):
            continue
        if old * new > LARGEST:
            return []
        matrix = _matrix(node, old, new, scale, version)
        if nearest:
            chain.then("Gather", graph.add_constant(f"{node.output[0]}.indices", matrix.argmax(axis=1)), axis=axis)
        else:
            _multiply(chain, matrix.astype(np.float32), axis, len(before))
    return chain.ending_as(node.output[0])


def _multiply(chain: Chain, matrix: NDArray[Any], axis: int, rank: int) -> None:
    """The product along ``axis``: at the end from the right, before it from the left, elsewhere with the axis moved to the end."""
    if axis == rank - 1:
        chain.then("MatMul", chain.graph.add_constant(f"{chain.value}.matrix", matrix.T.copy()))
        return
    order = [*(i for i in range(rank) if i != axis), axis]
    back = [order.index(i) for i in range(rank)]
    chain.then("Transpose", perm=order)
    chain.then("MatMul", chain.graph.add_constant(f"{chain.value}.matrix", matrix.T.copy()))
    chain.then("Transpose", perm=back)


def _matrix(node: onnx.NodeProto, old: int, new: int, scale: float | None, version: int) -> NDArray[Any]:
    """Rows are outputs, columns inputs: what ONNX Runtime makes of each unit vector along one axis (1 x 1 x 1 x old)."""
    import numpy as np
    import onnxruntime
    from onnx import helper, numpy_helper

    copy = type(node).FromString(node.SerializeToString())
    copy.input[:] = ["x", "", "scales"] if scale is not None else ["x", "", "", "sizes"]
    copy.output[:] = ["y"]
    stored = (
        numpy_helper.from_array(np.array([1, 1, 1, scale], np.float32), "scales")
        if scale is not None
        else numpy_helper.from_array(np.array([old, 1, 1, new], np.int64), "sizes")
    )
    unit = np.eye(old, dtype=np.float32).reshape(old, 1, 1, old)
    graph = helper.make_graph(
        [copy],
        "axis",
        [helper.make_tensor_value_info("x", 1, unit.shape)],
        [helper.make_tensor_value_info("y", 1, [old, 1, 1, new])],
        [stored],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    made: NDArray[Any] = session.run(None, {"x": unit})[0].reshape(old, new).T
    return made
