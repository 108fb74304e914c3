"""Padding with the lowest float before a max-pool becomes padding with zero where no value is below zero.

ONNX pads a max-pool with minus infinity, which converters write as PADV2 with -3.4e38. No integer scale stands for that next to real
values, and the int8 engine leaves PADV2 float. Behind a ReLU the largest of a window is the same with zeros around, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.calibrate.ranges import NOT_A_VALUE
from edgekit.intake import tflite
from edgekit.rewrite.pad_with_zero import make_pad

_RELU, _RELU6 = 1, 3  # ActivationFunctionType
_VALID = 1  # Padding
_NEVER_NEGATIVE = frozenset(
    ("RELU", "RELU6", "RELU_0_TO_1", "LOGISTIC", "SOFTMAX", "ABS", "SQUARE", "EXP", "SQRT", "SQUARED_DIFFERENCE")
)
_PASS_ON = frozenset(  # the first input's values, or means and maxima of them; the other inputs are sizes and indices
    (
        "RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "GATHER", "PAD", "MIRROR_PAD", "MAX_POOL_2D",
        "AVERAGE_POOL_2D", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM", "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR", "TILE",
        "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "REVERSE_V2", "UNPACK", "BROADCAST_TO", "SPLIT_V",
    )
)  # fmt: skip
_OF_ALL = frozenset(("CONCATENATION", "ADD", "MUL", "PACK", "MINIMUM"))
"""Never negative when no input is."""


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """Every PADV2 of a constant of -1e30 or less that feeds max-pools only, around values that are proven not to be negative."""
    graph = tflite.graph(model)
    changed = []
    for operator in graph.operators:
        if operator.name != "PADV2" or not _replaceable(model, graph, operator):
            continue
        make_pad(model, operator)
        name = graph.tensors[operator.outputs[0]].name
        changed.append(
            f"{name!r}: padded with 0 in place of the lowest float, for a max-pool of values that are never negative"
        )
    return tuple(changed)


def _replaceable(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator) -> bool:
    padding = tflite.constant_value(model, graph.tensors[operator.inputs[1]])
    value = tflite.constant_value(model, graph.tensors[operator.inputs[2]])
    output = operator.outputs[0]
    if padding is None or value is None or graph.tensors[output].dtype != "float32" or output in graph.outputs:
        return False
    if value.size != 1 or float(value.reshape(-1)[0]) > -NOT_A_VALUE or padding.shape != (4, 2):
        return False
    readers = [graph.operators[index] for index in graph.consumers().get(output, [])]
    if not readers or not all(_sees_a_value(reader, padding) for reader in readers):
        return False
    return never_negative(model, graph, operator.inputs[0])


def _sees_a_value(reader: tflite.Operator, padding: np.ndarray) -> bool:
    """Whether each window of this max-pool covers at least one value that is no padding."""
    if reader.name != "MAX_POOL_2D" or reader.options is None or reader.options.padding != _VALID:
        return False
    sizes = (reader.options.filterHeight, reader.options.filterWidth)
    outside = np.asarray(padding)
    return not outside[[0, 3]].any() and all(
        outside[axis].max() < size for axis, size in zip((1, 2), sizes, strict=True)
    )


def never_negative(model: tflite.ModelT, graph: tflite.Graph, tensor: int) -> bool:
    """Whether the operators before ``tensor`` leave no value below zero; False where that is not known."""
    producers = graph.producers()
    open_tensors, seen = [tensor], set[int]()
    while open_tensors:
        index = open_tensors.pop()
        if index in seen:
            continue
        seen.add(index)
        constant = tflite.constant_value(model, graph.tensors[index]) if graph.tensors[index].is_constant else None
        if constant is not None and constant.dtype.kind in "fiub" and bool((constant >= 0).all()):
            continue
        if constant is not None or index not in producers:
            return False
        before = _inputs_that_decide(graph.operators[producers[index]])
        if before is None:
            return False
        open_tensors += before
    return True


def _inputs_that_decide(operator: tflite.Operator) -> Sequence[int] | None:
    """The inputs that must not be negative for the output not to be; none where it never is, None where it may be."""
    if operator.name in _NEVER_NEGATIVE or getattr(operator.options, "fusedActivationFunction", 0) in (_RELU, _RELU6):
        return ()
    if operator.name in _OF_ALL:
        return operator.inputs
    if operator.name in _PASS_ON:
        return operator.inputs[:1]
    return None
