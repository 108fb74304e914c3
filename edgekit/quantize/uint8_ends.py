"""int8 ends become uint8 ones, for programs and accelerators that take bytes: a QUANTIZE of 128 more at each end, nothing inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.intake import tflite
from edgekit.rewrite.edit import add_tensor, new_operator, text, unused_name

SHIFT = 128


def to_uint8(path: Path) -> None:
    """Rewrites the int8 file at ``path``. Scales stay, zero points and integers are 128 higher: the decoded values are the very same.

    The outer tensors take over the names of the ends; the inner ones have ``_int8`` appended.
    """
    model = tflite.read(path)
    graph = model.subgraphs[0]
    before, after = [], []
    for index in _int8_ends(model, graph.inputs):
        outer = _outer(model, index)
        before.append(new_operator(model, "QUANTIZE", [outer], [index], version=2))
        _renumber(model, "inputs", index, outer)
    for index in _int8_ends(model, graph.outputs):
        outer = _outer(model, index)
        after.append(new_operator(model, "QUANTIZE", [index], [outer], version=2))
        _renumber(model, "outputs", index, outer)
    if before or after:
        graph.operators = [*before, *graph.operators, *after]
        tflite.write(model, path)


def _int8_ends(model: tflite.ModelT, indices: Any) -> list[int]:
    tensors = tflite.graph(model).tensors
    ends = dict.fromkeys(int(i) for i in indices)
    return [i for i in ends if tensors[i].dtype == "int8" and tensors[i].quant is not None]


def _outer(model: tflite.ModelT, index: int) -> int:
    """A new uint8 tensor with the name and the real values of the int8 one."""
    from ai_edge_litert import schema_py_generated as schema

    described, inner = tflite.graph(model).tensors[index], model.subgraphs[0].tensors[index]
    name = text(inner.name)
    inner.name = unused_name(f"{name}_int8", {text(tensor.name) for tensor in model.subgraphs[0].tensors})
    outer = add_tensor(model, name, described.shape, "uint8")
    quantization = schema.QuantizationParametersT()
    quantization.scale = np.array(inner.quantization.scale, np.float32)
    quantization.zeroPoint = np.array(inner.quantization.zeroPoint, np.int64) + SHIFT
    tensor = model.subgraphs[0].tensors[outer]
    tensor.quantization, tensor.shapeSignature = quantization, inner.shapeSignature
    return outer


def _renumber(model: tflite.ModelT, side: str, index: int, outer: int) -> None:
    graph = model.subgraphs[0]
    setattr(graph, side, [outer if int(i) == index else int(i) for i in getattr(graph, side)])
    for signature in model.signatureDefs or []:
        for entry in getattr(signature, side) or []:
            if int(entry.tensorIndex) == index:
                entry.tensorIndex = outer
