"""Type and shape of every value in an ONNX model, as far as they follow from the file.

``onnx.shape_inference`` stops where a shape is itself computed (Shape, Gather, Concat, ... into Reshape), which exporters write a lot.
So those small integer computations are carried out, their results are put in as constants, and inference goes on behind them. Weights
are left out of the work, so it costs the same for large models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.intake.onnx_reader import Dim, dtype_word, infer_shapes, value_shape

if TYPE_CHECKING:
    import numpy as np
    import onnx

_SMALL = 1024  # elements; a shape has a handful
_MAX_ROUNDS = 64  # each round gets past one more Reshape in a row; real models need a few
_FOLDABLE = frozenset((
    "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand",
    "Floor", "Gather", "Greater", "Identity", "Less", "Max", "Min", "Mod", "Mul",
    "Neg", "Not", "Or", "Range", "ReduceProd", "Reshape", "Slice", "Squeeze", "Sub",
    "Tile", "Transpose", "Unsqueeze", "Where",
))  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ValueInfo:
    """Type and shape of one value. ``shape`` is None when unknown, its sizes are numbers, symbols or "?"."""

    dtype: str
    shape: tuple[Dim, ...] | None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape when every size is a number, else None."""
        if self.shape is None or any(isinstance(size, str) for size in self.shape):
            return None
        return tuple(int(size) for size in self.shape)


UNKNOWN = ValueInfo("unknown", None)


def value_infos(model: onnx.ModelProto) -> dict[str, ValueInfo]:
    """Every value of the main graph that something is known of, by name. ``model`` is not changed."""
    working = _without_weights(model)
    constants = _small_constants(working)
    for _ in range(_MAX_ROUNDS):
        working = infer_shapes(working)
        infos = _collect(working)
        if not _fold(working, infos, constants):
            break
    return _collect(working)


def subgraph_value_infos(graph: onnx.GraphProto) -> dict[str, ValueInfo]:
    """What a graph itself says of its values; for the bodies of If, Loop and Scan."""
    infos = {info.name: _info(info) for info in [*graph.value_info, *graph.input, *graph.output]}
    for tensor in graph.initializer:
        infos[tensor.name] = ValueInfo(dtype_word(tensor.data_type), tuple(int(size) for size in tensor.dims))
    return infos


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large tensors are inputs of their type and shape: inference needs no more of them."""
    import onnx

    lean = onnx.ModelProto(ir_version=max(model.ir_version, 4))  # from 4 on an initializer need not be an input too
    lean.opset_import.extend(model.opset_import)
    lean.functions.extend(model.functions)
    stored = {tensor.name for tensor in model.graph.initializer}
    graph = lean.graph
    graph.name = model.graph.name or "graph"
    graph.input.extend(info for info in model.graph.input if info.name not in stored)
    graph.output.extend(model.graph.output)
    for tensor in model.graph.initializer:
        _add_tensor(graph, tensor.name, tensor)
    for node in model.graph.node:
        value = _constant_tensor(node)
        if value is not None:
            _add_tensor(graph, node.output[0], value)
        else:
            graph.node.add().CopyFrom(node)
    return lean


def _constant_tensor(node: Any) -> Any:
    if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t"):
        return node.attribute[0].t
    return None


def _add_tensor(graph: Any, name: str, tensor: Any) -> None:
    import onnx

    if _count(tensor.dims) <= _SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
        copy = graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = name
    else:
        graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))


def _small_constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    constants = {}
    for tensor in model.graph.initializer:
        try:
            constants[tensor.name] = numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError):
            continue  # a type without numpy form: nothing is folded from it
    return constants


def _collect(model: onnx.ModelProto) -> dict[str, ValueInfo]:
    return subgraph_value_infos(model.graph)


def _info(info: Any) -> ValueInfo:
    if not info.type.HasField("tensor_type"):
        return UNKNOWN
    return ValueInfo(dtype_word(info.type.tensor_type.elem_type), value_shape(info))


def _fold(model: onnx.ModelProto, infos: Mapping[str, ValueInfo], constants: dict[str, np.ndarray]) -> bool:
    """Puts the values of small computed constants into ``model`` and ``constants``; whether there was a new one."""
    from onnx import numpy_helper

    found = False
    outputs = {info.name for info in model.graph.output}
    for node in list(model.graph.node):
        if len(node.output) != 1 or node.output[0] in constants or node.domain not in ("", "ai.onnx"):
            continue
        value = _evaluate(model.opset_import, node, infos, constants)
        if value is None or value.size > _SMALL:
            continue
        name = node.output[0]
        constants[name] = value
        found = True
        if name not in outputs:  # an output keeps its node: an initializer cannot be one before IR version 4
            model.graph.node.remove(node)
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    return found


def _evaluate(
    opsets: Any, node: Any, infos: Mapping[str, ValueInfo], constants: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    import numpy as np

    if node.op_type in ("Shape", "Size"):
        shape = infos.get(node.input[0], UNKNOWN).static_shape
        if shape is None:
            return None
        if node.op_type == "Size":
            return np.array(_count(shape), np.int64)
        limits = {attribute.name: attribute.i for attribute in node.attribute}
        return np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], np.int64)
    if node.op_type == "Constant":
        return _run(opsets, node, {})  # value_int, value_ints, ...: the tensor form became an initializer
    if node.op_type not in _FOLDABLE or not all(name in constants for name in node.input if name):
        return None
    if _result_size(node, infos) > _SMALL:
        return None
    return _run(opsets, node, {name: constants[name] for name in node.input if name})


def _result_size(node: Any, infos: Mapping[str, ValueInfo]) -> int:
    """Elements of the result; a large one where it is not known for operators that can blow up a small input."""
    shape = infos.get(node.output[0], UNKNOWN).static_shape
    if shape is not None:
        return _count(shape)
    return _SMALL + 1 if node.op_type in ("ConstantOfShape", "Expand", "Range", "Tile") else 0


def _run(opsets: Any, node: Any, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The result of one node by onnx's own reference implementation, None when it refuses."""
    import numpy as np
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    try:
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(inputs[name].dtype), None)
            for name in inputs
        ]
        result = helper.make_tensor_value_info(node.output[0], 0, None)
        graph = helper.make_graph([node], "one", values, [result])
        model = helper.make_model(graph, opset_imports=list(opsets))
        with np.errstate(all="ignore"):
            results: Any = ReferenceEvaluator(model).run(None, dict(inputs))
    except Exception:  # the reference operators raise anything on odd input; then the shape stays unknown
        return None
    return np.asarray(results[0]) if isinstance(results[0], (np.ndarray, np.generic)) else None


def _count(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= int(size)
    return total
