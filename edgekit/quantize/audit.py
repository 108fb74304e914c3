"""The audit: a quantised file is read again, operator by operator. Nothing that a quantiser says about its result counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.intake import tflite
from edgekit.quantize.bias import saturated

NOTHING_QUANTISED = "nothing was quantised"
INTEGER_SINKS = frozenset({"int8", "uint8", "int16", "int32", "int64", "bool"})


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator occurs, and how often with a float tensor."""

    op: str
    count: int
    float_count: int


@dataclass(frozen=True)
class FloatOperator:
    """An operator that is not integer, and why as far as the file tells."""

    index: int
    op: str
    outputs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class IoType:
    """Name and dtype of one end of the model."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Audit:
    """What the file really holds. ``full_integer``: no operator touches a float tensor and both ends are integers.

    ``saturated_biases`` counts biases at an end of the 32-bit range: values that did not fit when the file was written.
    """

    operators_total: int
    operators: tuple[OperatorCount, ...]
    float_operators: tuple[FloatOperator, ...]
    io: tuple[IoType, ...]
    full_integer: bool
    saturated_biases: int


def audit(path: Path) -> Audit:
    """Read ``path`` and look at every tensor of every operator, in all subgraphs."""
    model = tflite.read(path)
    counts: dict[str, list[int]] = {}
    offenders: list[FloatOperator] = []
    for subgraph in range(len(model.subgraphs)):
        graph = tflite.graph(model, subgraph=subgraph)
        for operator in graph.operators:
            touched = [graph.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
            is_float = any(tensor.is_float for tensor in touched)
            entry = counts.setdefault(operator.name, [0, 0])
            entry[0] += 1
            entry[1] += is_float
            if is_float:
                outputs = tuple(graph.tensors[i].name for i in operator.outputs if i >= 0)
                offenders.append(FloatOperator(operator.index, operator.name, outputs, _reason(graph, operator)))
    main = tflite.graph(model)
    ends = tuple(IoType(main.tensors[i].name, main.tensors[i].dtype) for i in (*main.inputs, *main.outputs))
    operators = tuple(
        OperatorCount(op, *entry) for op, entry in sorted(counts.items(), key=lambda item: (-item[1][0], item[0]))
    )
    return Audit(
        operators_total=sum(o.count for o in operators),
        operators=operators,
        float_operators=tuple(offenders),
        io=ends,
        full_integer=not offenders and all(end.dtype in INTEGER_SINKS for end in ends),
        saturated_biases=saturated(model),
    )


def audit_float(path: Path) -> Audit:
    """:func:`audit` of a model that was not to be quantised: no operator is blamed for being float."""
    found = audit(path)
    operators = tuple(replace(operator, reason=NOTHING_QUANTISED) for operator in found.float_operators)
    return replace(found, float_operators=operators)


def _reason(graph: tflite.Graph, operator: tflite.Operator) -> str:
    if operator.is_custom:
        return "a custom operator: no integer kernel is known for it"
    if operator.name == "DEQUANTIZE":
        return "leads out of the integers, for a float operator behind it or a float output"
    if operator.name == "QUANTIZE":
        return "leads back into the integers, from a float operator or input before it"
    floats = [
        graph.tensors[i].name
        for i in operator.inputs
        if i >= 0 and graph.tensors[i].is_float and not graph.tensors[i].is_constant
    ]
    if floats:
        return f"the quantiser has no int8 form of {operator.name} here, so it computes in float"
    return f"{operator.name} produces a float value that was not quantised"
