"""Float forms of a network in which only a part is rounded as int8 does it: where the noise of a full-integer file comes from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.calibrate.clipping import Range
from edgekit.intake import tflite
from edgekit.quantize.groups import parameters
from edgekit.quantize.layers import layers
from edgekit.rewrite.edit import add_buffer, add_tensor, new_operator

Ranges = Mapping[str, Mapping[str, float]]


def forms(float_path: Path, ranges: Ranges, work: Path) -> list[tuple[str, Path]]:
    """Weights alone rounded (plainly, a scale for each output channel), and activations alone (with the delivered ranges)."""
    weights, activations = work / "weights.tflite", work / "activations.tflite"
    model = tflite.read(float_path)
    graph = {tensor.name: tensor for tensor in tflite.graph(model).tensors}
    for layer in layers(model):
        matrices = layer.matrices(layer.weights)
        scales = np.maximum(np.abs(matrices).max(axis=2, keepdims=True), 1e-12) / 127
        tensor = model.subgraphs[0].tensors[graph[layer.weights_name].index]
        tensor.buffer = add_buffer(model, layer.stored((np.rint(matrices / scales) * scales).astype(np.float32)))
    tflite.write(model, weights)
    _rounded(float_path, ranges, activations, None)
    return [("weights int8, activations float", weights), ("activations int8, weights float", activations)]


def worst_tensors(float_path: Path, ranges: Ranges, work: Path, judge: Callable[[Path], float]) -> list[str]:
    """The three activations that cost most when only they are integers, with the SQNR of the worst output."""
    graph = tflite.graph(tflite.read(float_path))
    path = work / "one.tflite"
    found = []
    for name in [t.name for t in graph.tensors if t.name in ranges and not t.is_constant and t.dtype == "float32"]:
        _rounded(float_path, ranges, path, {name})
        found.append((judge(path), name))
    return [f"{name} {db:.1f}" for db, name in sorted(found)[:3]]


def _rounded(float_path: Path, ranges: Ranges, to: Path, only: Collection[str] | None) -> None:
    """QUANTIZE and DEQUANTIZE behind every computed tensor and input (or ``only`` some) that has a range."""
    from ai_edge_litert import schema_py_generated as schema

    model = tflite.read(float_path)
    graph, part = tflite.graph(model), model.subgraphs[0]
    renamed: dict[int, int] = {}

    def pair(index: int) -> list[Any]:
        tensor = graph.tensors[index]
        if tensor.name not in ranges or tensor.dtype != "float32" or (only is not None and tensor.name not in only):
            return []
        limits: Range = (ranges[tensor.name]["min"], ranges[tensor.name]["max"])
        scale, zero_point = parameters(limits)
        middle = add_tensor(model, f"{tensor.name}/int8", tensor.shape, "int8")
        quantization = schema.QuantizationParametersT()
        quantization.scale, quantization.zeroPoint = np.float32([scale]), np.int64([zero_point])
        part.tensors[middle].quantization = quantization
        renamed[index] = add_tensor(model, f"{tensor.name}/real", tensor.shape, "float32")
        return [
            new_operator(model, "QUANTIZE", [index], [middle]),
            new_operator(model, "DEQUANTIZE", [middle], [renamed[index]], version=2),
        ]

    operators = [made for index in graph.inputs for made in pair(index)]
    for operator in graph.operators:
        item = part.operators[operator.index]
        item.inputs = [renamed.get(index, index) for index in operator.inputs]
        operators.append(item)
        operators += [made for index in operator.outputs for made in pair(index)]
    part.operators = operators
    part.outputs = [renamed.get(index, index) for index in graph.outputs]
    tflite.write(model, to)
