"""The island report: each operator that computes in float within an integer model, why it does, and what its owner can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.intake import tflite
from edgekit.quantize.close_islands import VERSIONS

BORDERS = frozenset(("QUANTIZE", "DEQUANTIZE"))
SUFFIXES = ("_dequant", "_quantized", "_rescaled")
"""What engine and rewrites append to the name of a float tensor."""
ADVICE: Mapping[str, str] = {
    "CUMSUM": "a matrix product with a triangle of ones computes the same, and has an integer form",
    "REDUCE_PROD": "write it as products of slices (MUL), or as the exponential of a sum of logarithms",
    "SIN": "compute it outside of the model, or replace it by a polynomial of MUL and ADD over the range that occurs",
    "COS": "compute it outside of the model, or replace it by a polynomial of MUL and ADD over the range that occurs",
    "POW": "write small whole exponents as MUL of the value with itself",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "export the network with its recurrence written out step by step",
    **dict.fromkeys(
        ("FLOOR", "CEIL", "ROUND"),
        "leave it out if it only imitates quantisation, or round after the model: int8 values are steps already",
    ),
}
"""Other ways to compute the same, by operator."""


@dataclass(frozen=True)
class Island:
    """A float operator with its first output; ``layer`` is the value of the source model that this is, or None where that is unknown."""

    index: int
    op: str
    tensor: str
    layer: str | None
    reason: str
    fix: str


def islands(path: Path, layers: Mapping[str, str]) -> tuple[Island, ...]:
    """All islands of the file at ``path``, in the order in which they run. ``layers`` leads from float tensors to values of the source."""
    model = tflite.read(path)
    found: list[Island] = []
    for number in range(len(model.subgraphs)):
        graph = tflite.graph(model, subgraph=number)
        for operator in graph.operators:
            touched = (*operator.inputs, *operator.outputs)
            if operator.name not in BORDERS and any(i >= 0 and graph.tensors[i].is_float for i in touched):
                found.append(_island(graph, operator, layers, main=number == 0))
    return tuple(found)


def _island(graph: tflite.Graph, operator: tflite.Operator, layers: Mapping[str, str], *, main: bool) -> Island:
    tensor = next((graph.tensors[i].name for i in operator.outputs if i >= 0), "")
    layer = _layer(tensor, layers)
    where = f"the value {layer!r}" if layer else f"the tensor {tensor!r}"
    return Island(operator.index, operator.name, tensor, layer, _reason(operator, main), _fix(graph, operator, where))


def _layer(tensor: str, layers: Mapping[str, str]) -> str | None:
    """The value of the source that ``tensor`` is, by its name with or without what was appended to it."""
    names = [tensor, *(tensor.removesuffix(suffix) for suffix in SUFFIXES)]
    return next((layers[name] for name in names if name in layers), None)


def _reason(operator: tflite.Operator, main: bool) -> str:
    if operator.is_custom and operator.name.removeprefix("CUSTOM:").startswith("Flex"):
        return (
            "a TensorFlow operator (Flex): it needs the Flex delegate, which the small runtimes of boards do not have"
        )
    if operator.is_custom:
        return "a custom operator: neither the quantiser nor the interpreter know an integer kernel for it"
    if not main:
        return "it stands inside a branch or loop, where ranges are not observed"
    if operator.name in VERSIONS:
        return f"there is an int8 kernel for {operator.name}, but not for what stands here: a value that it reads or writes has no known range, or goes beyond what the kernel can hold"
    return f"neither the quantiser nor the interpreter have an int8 form of {operator.name}"


def _fix(graph: tflite.Graph, operator: tflite.Operator, where: str) -> str:
    """What helps, the mildest first."""
    if operator.is_custom:
        first = "export the network with the operator written out in standard ones"
    else:
        first = ADVICE.get(
            operator.name, "replace the operator in the network by one with an integer form (docs/int8_gaps.md)"
        )
    if _at_an_end(graph, operator):
        first += f"; or end the export before {where} and compute the rest in your program"
    return first + "; or accept it: a copy of the recipe with gates.contract = false"


def _at_an_end(graph: tflite.Graph, operator: tflite.Operator) -> bool:
    """Whether only a QUANTIZE or nothing lies between this operator and an output."""
    readers = graph.consumers()
    for index in operator.outputs:
        behind = [graph.operators[i] for i in readers.get(index, ())]
        if index in graph.outputs or any(o.name in BORDERS and o.outputs[0] in graph.outputs for o in behind):
            return True
    return False
