"""Parts of a graph that do not depend on its inputs are computed: shapes, ranges, masks, weights that are prepared in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import Graph, attributes, opset

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

LARGEST = 1 << 20
"""Elements that a computed constant may have; what is larger would only make the file so."""
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether something was computed."""
    graph = Graph(model)
    known: dict[str, NDArray[Any]] = {}
    ends = {info.name for info in model.graph.output}
    kept = []
    for node in model.graph.node:
        values = _values(node, graph, known, model)
        if values is None:
            kept.append(node)
        else:
            known.update(values)
    if len(kept) == len(model.graph.node):
        return False
    _store(model, kept, known, ends)
    return True


def _values(
    node: onnx.NodeProto, graph: Graph, known: dict[str, NDArray[Any]], model: onnx.ModelProto
) -> dict[str, NDArray[Any]] | None:
    """The node's outputs where they follow from constants or static shapes."""
    import numpy as np

    if node.domain not in ("", "ai.onnx") or node.op_type in ("Constant", *_RANDOM) or not node.input:
        return None
    shape = graph.shape(node.input[0])
    if node.op_type == "Shape" and shape is not None:
        given = attributes(node)
        return {node.output[0]: np.array(shape[given.get("start", 0) : given.get("end", None)], np.int64)}
    if node.op_type == "Size" and shape is not None:
        return {node.output[0]: np.array(int(np.prod(shape)), np.int64)}
    if any(item.HasField("g") or item.graphs for item in node.attribute):
        return None
    inputs = {name: known[name] if name in known else graph.constant(name) for name in node.input if name}
    if any(value is None for value in inputs.values()):
        return None
    return _computed(node, {name: value for name, value in inputs.items() if value is not None}, model)


def _computed(
    node: onnx.NodeProto, inputs: dict[str, NDArray[Any]], model: onnx.ModelProto
) -> dict[str, NDArray[Any]] | None:
    import onnxruntime
    from onnx import helper

    def info(name: str, value: NDArray[Any] | None) -> onnx.ValueInfoProto:
        if value is None:
            return onnx_value(name)
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

    def onnx_value(name: str) -> onnx.ValueInfoProto:
        made = helper.make_empty_tensor_value_info(name)
        return made

    outputs = [name for name in node.output if name]
    small = helper.make_graph([node], "part", [info(n, v) for n, v in inputs.items()], [info(n, None) for n in outputs])
    part = helper.make_model(small, opset_imports=[helper.make_opsetid("", opset(model))], ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(outputs, inputs)
    except Exception:  # onnxruntime raises a family of classes without a common base; what it cannot compute stays
        return None
    found = dict(zip(outputs, results, strict=True))
    return None if any(value.size > LARGEST for value in found.values()) else found


def _store(model: onnx.ModelProto, kept: list[onnx.NodeProto], known: dict[str, NDArray[Any]], ends: set[str]) -> None:
    """What remains reads the computed values as initializers; an output of the graph must be written by a node."""
    from onnx import helper, numpy_helper

    read = {name for node in kept for name in node.input} | _read_inside(kept)
    nodes = list(kept)
    for name, value in known.items():
        if name in ends:
            nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name)))
        elif name in read:
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    first = [node for node in nodes if node.op_type == "Constant"]
    rest = [node for node in nodes if node.op_type != "Constant"]
    copies = [type(node).FromString(node.SerializeToString()) for node in (*first, *rest)]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _read_inside(nodes: list[onnx.NodeProto]) -> set[str]:
    """What bodies of If, Loop and Scan read."""
    found: set[str] = set()
    for node in nodes:
        for item in node.attribute:
            for body in [*([item.g] if item.HasField("g") else []), *item.graphs]:
                inner = list(body.node)
                found |= {name for one in inner for name in one.input} | _read_inside(inner)
                found |= {info.name for info in body.output}
    return found
