"""The contract of a recipe: what types the file must have at its ends and inside, read from the file itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from edgekit.intake import tflite
from edgekit.quantize.audit import Audit
from edgekit.quantize.recipe import Quantization

FULL_INTEGER = "full-integer"
"""The gate's name where nothing may be float."""
UNTOUCHED = frozenset({"int32", "int64", "bool", "uint8"})
"""Ends that hold indices or masks and are integers in the source: they stay what they are."""


@dataclass(frozen=True)
class Contract:
    """``end``: the type of both ends. ``borders``: QUANTIZE and DEQUANTIZE may stand at float ends. ``integer``: every other operator
    computes on integers alone. ``weights``: the type that at least one weight must have, or "" where operators say it already.
    """

    name: str
    end: str
    borders: bool
    integer: bool
    weights: str = ""


def contract(quantize: Quantization) -> Contract:
    """What ``[quantize]`` promises of the file."""
    if quantize.weights == "float16":
        return Contract("float16-weights", "float32", borders=True, integer=False, weights="float16")
    if quantize.activations == "dynamic":
        return Contract("dynamic-range", "float32", borders=True, integer=False, weights="int8")
    if quantize.io == "float32":
        return Contract("integer-inside", "float32", borders=True, integer=True)
    return Contract(FULL_INTEGER, quantize.io, borders=False, integer=True)


def breaches(wanted: Contract, found: Audit, weights: Counter[str]) -> tuple[str, ...]:
    """What in the file is not as ``wanted``, a few words each; none where the contract holds. ``weights``: :func:`weight_types`."""
    said = [f"{end.name} is {end.dtype}" for end in found.io if end.dtype not in {wanted.end, *UNTOUCHED}]
    if wanted.integer:
        allowed = _borders(wanted, found)
        for count in found.operators:
            beyond = count.float_count - allowed.get(count.op, 0)
            if beyond > 0:
                said.append(f"{count.op} x{beyond}")
    if wanted.weights and not weights[wanted.weights]:
        said.append(f"no weight is {wanted.weights}")
    return tuple(said)


def _borders(wanted: Contract, found: Audit) -> dict[str, int]:
    """How many QUANTIZE and DEQUANTIZE may touch floats: one for each float end."""
    ends = sum(end.dtype == "float32" for end in found.io) if wanted.borders else 0
    return {"QUANTIZE": ends, "DEQUANTIZE": ends}


def weight_types(path: Path) -> Counter[str]:
    """How many constants that operators read have which type."""
    model = tflite.read(path)
    types: Counter[str] = Counter()
    for subgraph in range(len(model.subgraphs)):
        graph = tflite.graph(model, subgraph=subgraph)
        read = {index for operator in graph.operators for index in operator.inputs if index >= 0}
        types.update(graph.tensors[index].dtype for index in read if graph.tensors[index].is_constant)
    return types
