"""Which operators of a TFLite graph compute in integers, which in floats, and the float islands of a partly quantised graph."""

from __future__ import annotations

import dataclasses

from edgekit.intake.tflite_graph import Graph, Operator, Tensor

_BORDERS = frozenset(("QUANTIZE", "DEQUANTIZE"))
_SHAPE_READERS = frozenset(("SHAPE", "RANK"))  # they look at the size of a tensor, never at its values
_INTEGERS = frozenset(("int8", "uint8", "int16", "int4", "int2", "uint4"))


@dataclasses.dataclass(frozen=True)
class FloatIsland:
    """Operators that compute in floats, connected with one another, in an otherwise integer graph.

    ``operators`` are indices in the graph and ``names`` their kinds. ``inputs`` and ``outputs`` are the tensors at the border, named as
    the integer tensors outside of DEQUANTIZE and QUANTIZE where there are such, and as the graph's own float inputs and outputs else.
    """

    graph: int
    operators: tuple[int, ...]
    names: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def operator_dtype(graph: Graph, operator: Operator) -> str:
    """In what the operator computes, in one word.

    The word of its output for integers ("int8", "int16", ...; "int16x8" for int16 activations with int8 weights), "float32" or
    "float16" when any activation is a float, "hybrid" when its weights are integers then, "quantize" and "dequantize" for the borders,
    "none" for an operator without tensors.
    """
    activations = _activations(graph, operator)
    floats = [tensor.dtype for tensor in activations if tensor.is_float]
    if operator.name == "DEQUANTIZE":
        return "dequantize"
    if operator.name == "QUANTIZE" and floats:
        return "quantize"
    weights = [tensor for index in operator.inputs if index >= 0 and (tensor := graph.tensors[index]).is_constant]
    integer_weights = [tensor for tensor in weights if tensor.quant is not None and tensor.dtype in _INTEGERS]
    if floats:
        return "hybrid" if integer_weights else floats[-1]
    results = [graph.tensors[index] for index in operator.outputs] or activations
    if not results:
        return "none"
    word = results[0].dtype
    return "int16x8" if word == "int16" and any(tensor.dtype == "int8" for tensor in integer_weights) else word


def is_full_integer(graph: Graph) -> bool:
    """Whether no operator reads or writes a float: inputs, outputs and everything between, weights too."""
    used = {index for operator in graph.operators for index in (*operator.inputs, *operator.outputs) if index >= 0}
    return not any(graph.tensors[index].is_float for index in used | set(graph.inputs) | set(graph.outputs))


def has_integer_activations(graph: Graph) -> bool:
    """Whether any operator writes a quantised tensor, that is, whether the graph is at least partly quantised."""
    return any(graph.tensors[index].quant is not None for operator in graph.operators for index in operator.outputs)


def float_islands(graph: Graph, *, number: int = 0) -> tuple[FloatIsland, ...]:
    """The islands of graph ``number`` in execution order; none in a graph that is float throughout."""
    if not has_integer_activations(graph):
        return ()
    members = [
        operator
        for operator in graph.operators
        if operator.name not in _BORDERS and _computes_in_float(graph, operator)
    ]
    producers = graph.producers()
    group = {operator.index: operator.index for operator in members}

    def root(index: int) -> int:
        while group[index] != index:
            index = group[index]
        return index

    for operator in members:
        for tensor in operator.inputs:
            source = producers.get(tensor)
            if source in group and graph.tensors[tensor].is_float:
                low, high = sorted((root(operator.index), root(source)))
                group[high] = low
    islands: dict[int, list[Operator]] = {}
    for operator in members:
        islands.setdefault(root(operator.index), []).append(operator)
    return tuple(_island(graph, number, islands[first], producers) for first in sorted(islands))


def _island(graph: Graph, number: int, operators: list[Operator], producers: dict[int, int]) -> FloatIsland:
    own = {operator.index for operator in operators}
    consumers = graph.consumers()
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for operator in operators:
        for index in operator.inputs:
            if index >= 0 and producers.get(index) not in own and not _holds_constant(graph, producers, index):
                inputs[_outer_name(graph, index, producers)] = None
        for index in operator.outputs:
            readers = [graph.operators[reader] for reader in consumers.get(index, [])]
            outside = [reader for reader in readers if reader.index not in own]
            if index in graph.outputs or outside:
                quantized = [
                    graph.tensors[reader.outputs[0]].name
                    for reader in outside
                    if reader.name == "QUANTIZE" and reader.outputs
                ]
                outputs.update(dict.fromkeys(quantized or [graph.tensors[index].name]))
    return FloatIsland(
        graph=number,
        operators=tuple(operator.index for operator in operators),
        names=tuple(operator.name for operator in operators),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def _outer_name(graph: Graph, index: int, producers: dict[int, int]) -> str:
    source = producers.get(index)
    if source is not None and graph.operators[source].name == "DEQUANTIZE":
        return graph.tensors[graph.operators[source].inputs[0]].name
    return graph.tensors[index].name


def _holds_constant(graph: Graph, producers: dict[int, int], index: int) -> bool:
    """A constant, or a constant behind DEQUANTIZE (weights stored as float16 or int8)."""
    source = producers.get(index)
    if source is not None and graph.operators[source].name == "DEQUANTIZE":
        index = graph.operators[source].inputs[0]
    return graph.tensors[index].is_constant


def _computes_in_float(graph: Graph, operator: Operator) -> bool:
    return any(tensor.is_float for tensor in _activations(graph, operator))


def _activations(graph: Graph, operator: Operator) -> list[Tensor]:
    """The tensors that the operator reads and writes, without constants."""
    indices = operator.outputs if operator.name in _SHAPE_READERS else (*operator.inputs, *operator.outputs)
    tensors = [graph.tensors[index] for index in indices if index >= 0]
    return [tensor for tensor in tensors if not tensor.is_constant]
