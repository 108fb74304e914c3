"""A DEQUANTIZE of a constant becomes the constant that it computes: float16 and weight-only int8 files turn into float32 files.

Exact: every float16 is a float32, and ``scale * (integer - zero_point)`` is computed here in float32 as the kernel computes it.
"""

from __future__ import annotations

from typing import Any

from edgekit.errors import UnsupportedModelError
from edgekit.intake import tflite
from edgekit.rewrite.edit import add_buffer


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """The result keeps the name of the DEQUANTIZE's output. Raises UnsupportedModelError for a constant that cannot be read."""
    graph = tflite.graph(model)
    folded, kinds = set(), set()
    for operator in graph.operators:
        if operator.name != "DEQUANTIZE" or not graph.tensors[operator.inputs[0]].is_constant:
            continue
        source = graph.tensors[operator.inputs[0]]
        target = model.subgraphs[0].tensors[operator.outputs[0]]
        target.buffer = add_buffer(model, float_values(model, source))
        folded.add(operator.index)
        kinds.add(source.dtype)
    if not folded:
        return ()
    operators = model.subgraphs[0].operators
    model.subgraphs[0].operators = [item for index, item in enumerate(operators) if index not in folded]
    return (f"{len(folded)} {' and '.join(sorted(kinds))} constants are float32 constants now",)


def float_values(model: tflite.ModelT, tensor: tflite.Tensor) -> Any:
    """The real values that a constant tensor stands for, float32, in its shape.

    Raises UnsupportedModelError where scales and zero points alone do not say what the integers mean.
    """
    import numpy as np

    values = tflite.constant_value(model, tensor)
    if values is None:
        raise UnsupportedModelError(f"tensor {tensor.name!r} is no constant")
    quant = tensor.quant
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    if quant is None or quant.details:
        how = quant.details if quant is not None else "no"
        raise UnsupportedModelError(
            f"the weights {tensor.name!r} are {tensor.dtype} with {how} quantisation parameters, and this version reads plain scales only",
            hint="convert the model again from its source, as float32",
        )
    shape = [1] * values.ndim
    if quant.axis is not None:
        shape[quant.axis] = -1
    centred = values.astype(np.int64) - quant.zero_points.reshape(shape if quant.axis is not None else ())
    return quant.scales.reshape(shape if quant.axis is not None else ()) * centred.astype(np.float32)
