"""Cross-layer equalisation: channels of one tensor brought to like ranges, by factors that the layers around it undo.

A channel that reaches 0.1 beside one that reaches 10 has two bits of its scale. Multiplied in the layer that writes it and divided
in those that read it, nothing changes but the use of the scale (Nagel et al., arXiv:1906.04721). The factors are powers of two, so the
float model stays equal value for value. RELU6 does not scale with its input, so only tensors behind RELU or no activation take part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite
from edgekit.rewrite.edit import add_buffer

LARGEST_FACTOR = 64.0
_NONE, _RELU = 0, 1  # ActivationFunctionType
_CONVOLUTIONS = frozenset(("CONV_2D", "DEPTHWISE_CONV_2D"))
_THROUGH = frozenset(("PAD", "MAX_POOL_2D", "AVERAGE_POOL_2D"))
"""Operators that treat each channel alike, whatever its scale."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Junction:
    """A tensor that one convolution (``writer``) writes and only convolutions (``readers``) read; operator indices."""

    tensor: int
    name: str
    writer: int
    readers: tuple[int, ...]


def junctions(model: tflite.ModelT) -> tuple[Junction, ...]:
    """The tensors that can be equalised."""
    graph = tflite.graph(model)
    consumers = graph.consumers()
    shared = {index for index, readers in consumers.items() if len(readers) > 1}
    found = []
    for operator in graph.operators:
        if not _is_free(graph, operator, shared) or operator.options.fusedActivationFunction not in (_NONE, _RELU):
            continue
        readers = _readers(graph, consumers, operator.outputs[0])
        if readers and all(_is_free(graph, graph.operators[index], shared) for index in readers):
            output = operator.outputs[0]
            found.append(Junction(output, graph.tensors[output].name, operator.index, tuple(sorted(readers))))
    return tuple(found)


def apply(model: tflite.ModelT, largest: Mapping[str, Array], *, exponent: float) -> tuple[str, ...]:
    """Equalise each junction for which ``largest`` has the largest magnitude of each channel; what was done, a sentence each.

    A channel's factor is (largest of all / its own largest)^``exponent``, at most 64, rounded down to a power of two: the range of the
    tensor never grows.
    """
    graph = tflite.graph(model)
    changed = []
    for junction in junctions(model):
        if junction.name not in largest:
            continue
        factors = _factors(largest[junction.name], exponent)
        if factors.max() > 1.0:
            _scale_output(model, graph, graph.operators[junction.writer], factors)
            for reader in junction.readers:
                _scale_input(model, graph, graph.operators[reader], factors)
            changed.append(
                f"{junction.name!r}: {np.count_nonzero(factors > 1.0)} channels times up to {factors.max():g}"
            )
    return tuple(changed)


def _is_free(graph: tflite.Graph, operator: tflite.Operator, shared: set[int]) -> bool:
    """A convolution with float weights and bias of its own."""
    if operator.name not in _CONVOLUTIONS or operator.options is None or len(operator.inputs) < 2:
        return False
    constants = [graph.tensors[index] for index in operator.inputs[1:] if index >= 0]
    own = all(tensor.is_constant and tensor.is_float and tensor.index not in shared for tensor in constants)
    ungrouped = operator.name != "CONV_2D" or graph.tensors[operator.inputs[0]].shape[-1] == constants[0].shape[-1]
    return own and ungrouped


def _readers(graph: tflite.Graph, consumers: Mapping[int, list[int]], tensor: int) -> set[int]:
    """The operators that read the tensor, looked for through pads and pools; none where it is an output or read otherwise."""
    found: set[int] = set()
    waiting = [tensor]
    while waiting:
        index = waiting.pop()
        if index in graph.outputs or not consumers.get(index):
            return set()
        for reader in consumers[index]:
            operator = graph.operators[reader]
            if operator.name in _THROUGH and operator.inputs[0] == index and _keeps_scale(operator):
                waiting.append(operator.outputs[0])
            elif operator.inputs[0] == index:
                found.add(reader)
            else:
                return set()
    return found


def _keeps_scale(operator: tflite.Operator) -> bool:
    return getattr(operator.options, "fusedActivationFunction", _NONE) in (_NONE, _RELU)


def _factors(largest: Array, exponent: float) -> Array:
    """Powers of two; a channel that never spoke keeps its own."""
    known = np.where(largest > 0.0, largest, largest.max() if largest.size else 1.0)
    if not known.max() > 0.0:
        return np.ones(largest.shape)
    wanted = np.minimum((known.max() / known) ** exponent, LARGEST_FACTOR)
    factors: Array = np.exp2(np.floor(np.log2(wanted)))
    return factors


def _scale_output(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator, factors: Array) -> None:
    by_channel = factors if operator.name == "DEPTHWISE_CONV_2D" else factors.reshape(-1, 1, 1, 1)
    _multiply(model, graph.tensors[operator.inputs[1]], by_channel)
    if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
        _multiply(model, graph.tensors[operator.inputs[2]], factors)


def _scale_input(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator, factors: Array) -> None:
    weights = graph.tensors[operator.inputs[1]]
    each = weights.shape[-1] // factors.size  # more than 1 where a depthwise convolution makes several channels of one
    _multiply(model, weights, np.repeat(1.0 / factors, each))


def _multiply(model: tflite.ModelT, tensor: tflite.Tensor, factors: Array) -> None:
    values = tflite.constant_value(model, tensor)
    model.subgraphs[0].tensors[tensor.index].buffer = add_buffer(model, (values * factors).astype(np.float32))
