"""The ONNX half of :func:`edgekit.intake.inspect.inspect_model`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.intake.inspect import Inspection, TensorInfo, WeightInfo, file_sha256, tally
from edgekit.intake.inspect_costs import by_kind, onnx_costs
from edgekit.intake.macs import product
from edgekit.intake.macs_onnx import count_macs
from edgekit.intake.onnx_check import stored_bytes
from edgekit.intake.onnx_external import check_external_data
from edgekit.intake.onnx_reader import (
    OnnxValue,
    apply_input_shapes,
    dtype_word,
    dynamic_inputs,
    onnx_io,
    read_onnx,
    shape_words,
)
from edgekit.intake.onnx_shapes import UNKNOWN, ValueInfo, subgraph_value_infos, value_infos
from edgekit.intake.preflight import in_order
from edgekit.intake.preflight_onnx import onnx_findings
from edgekit.intake.tflite_types import FLOAT_DTYPES

_OWN_DOMAINS = ("", "ai.onnx")
_QUANTIZED_WEIGHTS = frozenset(("int8", "uint8", "int4", "uint4", "int2", "uint2", "int16", "uint16"))
_BIAS_INPUTS = {"DequantizeLinear": 0, "QLinearConv": 8, "QGemm": 6}  # where an int32 constant is a bias


def inspect_onnx(path: Path, *, input_shapes: Mapping[str, Sequence[int]]) -> Inspection:
    """Looks into an ONNX file; see :func:`edgekit.intake.inspect.inspect_model`. External data are checked, not read."""
    model = read_onnx(path, external_data=False)
    external = check_external_data(model, path)
    findings = in_order(onnx_findings(model, external_bytes=sum(item.size_bytes for item in external)))
    if input_shapes:
        model = apply_input_shapes(model, input_shapes)
    model = _inlined(model)
    infos = value_infos(model)
    costs = onnx_costs(model, infos)
    operators = [
        (name, dtype, node.domain not in _OWN_DOMAINS)
        for node, scope in _nodes(model.graph, infos)
        for name, dtype in [_operator(node, scope)]
    ]
    inputs, outputs = onnx_io(model)
    return Inspection(
        path=str(path),
        format="onnx",
        size_bytes=path.stat().st_size,
        sha256=file_sha256(path),
        inputs=tuple(_tensor_info(value, infos) for value in inputs),
        outputs=tuple(_tensor_info(value, infos) for value in outputs),
        operators=tally(operators),
        weights=_weights(model),
        macs=count_macs(model, infos),
        facts=_facts(model),
        custom_operators=tuple(dict.fromkeys(name for name, _, custom in operators if custom)),
        external_files={item.location: item.size_bytes for item in external},
        notes=_notes(model),
        findings=findings,
        costs=costs,
        costs_by_kind=by_kind(costs),
    )


def _inlined(model: Any) -> Any:
    """The model with its own functions written out, so that their operators count; unchanged where onnx cannot."""
    import onnx.inliner

    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except (RuntimeError, ValueError):
        return model


def _nodes(graph: Any, infos: Mapping[str, ValueInfo]) -> Iterator[tuple[Any, Mapping[str, ValueInfo]]]:
    """Every node with the values in its scope, those in the bodies of control flow too."""
    for node in graph.node:
        yield node, infos
        for attribute in node.attribute:
            for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _nodes(body, {**infos, **subgraph_value_infos(body)})


def _operator(node: Any, infos: Mapping[str, ValueInfo]) -> tuple[str, str]:
    """Kind (with its domain, where it is not ONNX's own) and the type it computes in."""
    name = node.op_type if node.domain in _OWN_DOMAINS else f"{node.domain}::{node.op_type}"
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return name, "quantize"
    if node.op_type == "DequantizeLinear":
        return name, "dequantize"
    if node.op_type in ("Shape", "Size") and node.domain in _OWN_DOMAINS:  # they look at the size of a value only
        return name, "int64"
    words = [infos.get(value, UNKNOWN).dtype for value in (*node.output, *node.input) if value]
    floats = [word for word in words if word in FLOAT_DTYPES]
    return name, floats[0] if floats else next(iter(words), "none")


def _tensor_info(value: OnnxValue, infos: Mapping[str, ValueInfo]) -> TensorInfo:
    """The declared shape; open sizes filled in where they follow from the inputs."""
    inferred = infos.get(value.name, UNKNOWN)
    shape = value.shape if value.is_static or inferred.static_shape is None else inferred.static_shape
    return TensorInfo(value.name, shape, value.dtype)


def _weights(model: Any) -> WeightInfo:
    biases, scales = _constant_roles(model.graph)
    parameters = 0
    sizes: dict[str, int] = {}
    for name, tensor in _constants(model.graph):
        word = dtype_word(tensor.data_type)
        sizes[word] = sizes.get(word, 0) + stored_bytes(tensor)
        counts = word in FLOAT_DTYPES or word in _QUANTIZED_WEIGHTS or (word == "int32" and name in biases)
        if counts and name not in scales:
            parameters += product(tensor.dims)
    return WeightInfo(parameters, dict(sorted(sizes.items(), key=lambda item: -item[1])))


def _constants(graph: Any) -> Iterator[tuple[str, Any]]:
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for sparse in graph.sparse_initializer:
        yield sparse.values.name, sparse.values
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t") and node.output:
                yield node.output[0], attribute.t
            for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _constants(body)


def _constant_roles(graph: Any) -> tuple[set[str], set[str]]:
    """Names of values that are integer biases, and of those that are scales and zero points of quantisation."""
    biases: set[str] = set()
    scales: set[str] = set()
    for node in graph.node:
        place = _BIAS_INPUTS.get(node.op_type)
        if place is not None and place < len(node.input):
            biases.add(node.input[place])
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scales.update(node.input[1:3])
        elif node.op_type in ("QLinearConv", "QLinearMatMul"):
            scales.update(node.input[index] for index in (1, 2, 4, 5, 6, 7) if index < len(node.input))
    return biases, scales


def _facts(model: Any) -> dict[str, int | str]:
    facts: dict[str, int | str] = {"ir_version": int(model.ir_version)}
    for item in model.opset_import:
        facts["opset" if item.domain in _OWN_DOMAINS else f"opset {item.domain}"] = int(item.version)
    facts["producer"] = f"{model.producer_name} {model.producer_version}".strip()
    return facts


def _notes(model: Any) -> tuple[str, ...]:
    notes = [f"input {value.name} leaves sizes open: {shape_words(value.shape)}" for value in dynamic_inputs(model)]
    return tuple(notes)
