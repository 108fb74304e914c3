"""An ONNX model computed in another way than ONNX Runtime does by itself: unoptimised, and in float64. For the noise floor of parity."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.verify.reference import OnnxReference

Sample = Mapping[str, NDArray[Any]]
PATIENCE_S = 30.0
"""For float64 where ONNX Runtime lacks kernels and the operators' definitions are computed in numpy: one sample at least, then as
many as this allows."""
_FLOAT32_INPUTS = {"Resize": (2,), "Upsample": (1,)}
"""Inputs that ONNX wants as float32 whatever the data are: scales."""


def recompute(model: Path, outputs: Sequence[str], samples: Sequence[Sample]) -> Iterator[tuple[str, Sequence[Sample]]]:
    """What each way is called, and the outputs for ``samples`` (all, or the first ones). Raises what the runtimes raise."""
    plain = OnnxReference(model, outputs, finite_only=False, optimised=False)
    yield f"{plain.name} without optimisations", [plain.run(sample) for sample in samples]
    yield from _in_float64(model, outputs, samples)


def _in_float64(model: Path, outputs: Sequence[str], samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample]]]:
    import onnx

    wide = widened(onnx.load(str(model)))
    path = model.with_name("float64.onnx")
    onnx.save(wide, str(path))
    given = [{name: _wide(value) for name, value in sample.items()} for sample in samples]
    try:
        reference = OnnxReference(path, outputs, finite_only=False)
        yield f"{reference.name} in float64", [reference.run(sample) for sample in given]
        return
    except Exception:  # it has no kernels in float64 for convolutions and more
        path.unlink(missing_ok=True)
    yield "the operators' definitions in float64", _by_definition(wide, outputs, given)


def _by_definition(model: Any, outputs: Sequence[str], samples: Sequence[Sample]) -> list[Sample]:
    from onnx.reference import ReferenceEvaluator

    evaluator, end_s = ReferenceEvaluator(model, new_ops=[_batch_normalization()]), time.monotonic() + PATIENCE_S
    found: list[Sample] = []
    for sample in samples:
        results: Any = evaluator.run(list(outputs), dict(sample))
        found.append({name: np.asarray(value) for name, value in zip(outputs, results, strict=True)})
        if time.monotonic() > end_s:
            break
    return found


def _batch_normalization() -> Any:
    """As it is in a trained network: the evaluator's own normalises by the batch where a file of opset 9 to 13 gives a momentum."""
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):  # type: ignore[misc, unused-ignore]
        op_domain = ""

        def _run(
            self,
            x: Any,
            scale: Any,
            bias: Any,
            mean: Any,
            var: Any,
            epsilon: Any = None,
            momentum: Any = None,
            training_mode: Any = None,
        ) -> tuple[Any]:
            least = 1e-5 if epsilon is None else epsilon
            factor = scale / np.sqrt(var + least)
            shape = (1, -1, *[1] * (x.ndim - 2))
            return ((x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape),)

    return BatchNormalization


def _wide(value: NDArray[Any]) -> NDArray[Any]:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def widened(model: Any) -> Any:
    """A copy of the ``ModelProto`` that computes in float64 what the original computes in float32 or float16, from the same weights."""
    import onnx

    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    return wide


def _widen_graph(graph: Any) -> None:
    import onnx

    narrow = _narrow_types()
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    del graph.value_info[:]
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type in narrow:
            info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    nodes = []
    for node in graph.node:
        for item in node.attribute:
            _widen_attribute(node, item)
        for position in _FLOAT32_INPUTS.get(node.op_type, ()):
            if len(node.input) > position and node.input[position]:
                name = f"{node.input[position]}/float32 for {node.output[0]}"
                nodes.append(onnx.helper.make_node("Cast", [node.input[position]], [name], to=onnx.TensorProto.FLOAT))
                node.input[position] = name
        nodes.append(_constant(node))
    del graph.node[:]
    graph.node.extend(nodes)


def _constant(node: Any) -> Any:
    """A Constant of plain floats as one of a float64 tensor; any other node as it is."""
    import onnx

    plain = {item.name: item for item in node.attribute if item.name in ("value_float", "value_floats")}
    if node.op_type != "Constant" or not plain:
        return node
    values = np.asarray(onnx.helper.get_attribute_value(next(iter(plain.values()))), np.float64)
    return onnx.helper.make_node("Constant", [], list(node.output), value=onnx.numpy_helper.from_array(values))


def _widen_attribute(node: Any, item: Any) -> None:
    import onnx

    if item.HasField("t"):
        _widen_tensor(item.t)
    if item.HasField("g"):
        _widen_graph(item.g)
    for body in item.graphs:
        _widen_graph(body)
    if item.name in ("to", "dtype") and item.type == onnx.AttributeProto.INT and item.i in _narrow_types():
        item.i = onnx.TensorProto.DOUBLE


def _widen_tensor(tensor: Any) -> None:
    import onnx

    if tensor.data_type in _narrow_types():
        values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def _narrow_types() -> frozenset[int]:
    import onnx

    return frozenset((onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16))
