"""Which activation tensors of an int8 file share one scale, and which of those scales may be chosen.

A view or a pool only moves integers or picks among them, so its input and output have one scale; a concat demands it of all its
inputs. What an operator's kernel computes anew (a convolution, a sum, a product) has a scale of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.calibrate.clipping import Range
from edgekit.calibrate.histogram import Histogram
from edgekit.intake import tflite

RESCALING = frozenset(
    (
        "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL", "ADD", "SUB", "MUL", "DIV", "MEAN", "SUM",
        "SQUARED_DIFFERENCE", "RSQRT", "SQRT", "GELU", "HARD_SWISH", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU",
        "PRELU", "QUANTIZE", "DEQUANTIZE",
    )
)  # fmt: skip
"""Operators whose inputs and outputs each have a scale of their own."""
FIXED = frozenset(("LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"))
"""Operators whose output has the scale that the kernel demands."""


@dataclass(frozen=True)
class Group:
    """Tensors (by index in the int8 file) that have one scale; whether an input or an output of the model is among them."""

    tensors: tuple[int, ...]
    names: tuple[str, ...]
    is_input: bool
    is_output: bool

    @property
    def name(self) -> str:
        """What a reader calls it: its first tensor."""
        return self.names[0]


def groups(model: tflite.ModelT, ranges: Mapping[str, Range]) -> tuple[Group, ...]:
    """The groups of activations whose scale follows from the range of one of their tensors: the others are fixed by a kernel.

    ``ranges`` are those the file was made with. Left out too: groups with a constant, whose integers would have to change as well
    (unless it is the lowest or the highest integer throughout, as padding before a max-pool is: that stays so at any scale), and whatever has another scale than its range says.
    """
    graph = tflite.graph(model)
    leader = list(range(len(graph.tensors)))

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    fixed: set[int] = set()
    for operator in graph.operators:
        touched = [i for i in (*operator.inputs, *operator.outputs) if i >= 0 and graph.tensors[i].dtype == "int8"]
        if operator.name in FIXED:
            fixed.update(i for i in operator.outputs if i >= 0)
        elif operator.name not in RESCALING:
            for other in touched[1:]:
                leader[find(other)] = find(touched[0])
    members: dict[int, list[int]] = {}
    written = {i for operator in graph.operators for i in operator.outputs} | set(graph.inputs)
    for tensor in graph.tensors:
        if tensor.dtype == "int8" and tensor.quant is not None and (tensor.index in written or tensor.is_constant):
            members.setdefault(find(tensor.index), []).append(tensor.index)
    inputs, outputs = {*graph.inputs}, {*graph.outputs}
    for operator in graph.operators:  # float ends: what lies directly behind and before them counts
        if operator.name == "QUANTIZE" and operator.inputs[0] in graph.inputs:
            inputs |= {*operator.outputs}
        elif operator.name == "DEQUANTIZE" and operator.outputs[0] in graph.outputs:
            outputs |= {*operator.inputs}
    found = []
    for indices in members.values():
        tensors = [graph.tensors[i] for i in indices]
        if any(i in fixed for i in indices) or all(t.is_constant for t in tensors):
            continue
        if not all(_rescales(model, t) for t in tensors) or not _follows(tensors, ranges):
            continue
        names = tuple(t.name for t in tensors)
        found.append(Group(tuple(indices), names, bool(inputs & {*indices}), bool(outputs & {*indices})))
    return tuple(found)


def _rescales(model: tflite.ModelT, tensor: tflite.Tensor) -> bool:
    """Whether the stored integers stay right when the scale changes: there are none, or all say "as far as it goes"."""
    values = tflite.constant_value(model, tensor) if tensor.is_constant else None
    return not tensor.is_constant or (values is not None and bool((values == -128).all() or (values == 127).all()))


def _follows(tensors: list[tflite.Tensor], ranges: Mapping[str, Range]) -> bool:
    """Whether all have one scale and zero point, and those of the range of one of them."""
    pairs = {(float(t.quant.scales[0]), int(t.quant.zero_points[0]), t.quant.scales.size) for t in tensors if t.quant}
    if len(pairs) != 1:
        return False
    scale, zero_point, count = pairs.pop()
    if count != 1:
        return False
    for tensor in tensors:
        if tensor.name in ranges:
            expected = parameters(ranges[tensor.name])
            if abs(expected[0] - scale) <= 1e-5 * scale and expected[1] == zero_point:
                return True
    return False


def parameters(limits: Range) -> tuple[float, int]:
    """Scale and zero point of asymmetric int8 for a range, which is widened to hold 0."""
    low, high = min(limits[0], 0.0), max(limits[1], 0.0)
    scale = max(high - low, 1e-9) / 255.0
    return scale, int(round(-128.0 - low / scale))


def histogram(group: Group, histograms: Mapping[str, Histogram]) -> Histogram | None:
    """The values of all tensors of the group that the float model has; None where it has none of them."""
    found = [histograms[name] for name in group.names if name in histograms]
    if not found:
        return None
    result = found[0]
    for other in found[1:]:
        result = result.plus(other)
    return result
