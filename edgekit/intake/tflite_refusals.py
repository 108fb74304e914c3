"""Which ``.tflite`` files cannot be made float32, and in which words that is said: by operator and tensor name."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.errors import UnsupportedModelError
from edgekit.intake import tflite

_ENDS = frozenset(
    ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
)
_OTHER_GRAPHS = frozenset((
    "IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_WHILE", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_REDUCE",
    "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER", "STABLEHLO_SORT",
))  # fmt: skip
"""Operators that enter another graph of the file."""
_RESOURCES = frozenset((
    "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "HASHTABLE", "HASHTABLE_LOOKUP", "HASHTABLE_FIND", "HASHTABLE_IMPORT",
    "HASHTABLE_SIZE",
))  # fmt: skip
_IN_EVERY_RUNTIME = frozenset(("CUSTOM:TFLite_Detection_PostProcess",))
"""Custom operators that the ordinary interpreters bring along, with a float kernel only."""
_MOST_NAMES = 5


def refuse(model: tflite.ModelT, name: str) -> None:
    """Raises UnsupportedModelError for the first reason that ``model`` (of one graph) cannot become a float32 file; ``name`` is the file's."""
    graph = tflite.graph(model)
    _integers(graph, name)
    custom = [operator for operator in graph.operators if operator.is_custom and operator.name not in _IN_EVERY_RUNTIME]
    if custom:
        flex = any(operator.name.startswith("CUSTOM:Flex") for operator in custom)
        what = "TensorFlow (Flex) and custom" if flex else "custom"
        raise UnsupportedModelError(
            f"{name} has {what} operators, which an interpreter on a board lacks: {_named(graph, custom)}",
            hint="convert the model from its source without them"
            + (" (builtin operators only)" if flex else ", or end it before them and do their work in the app"),
            code="custom_operators",
            details={"operators": sorted({operator.name for operator in custom})},
        )
    _by_kind(
        graph,
        name,
        _OTHER_GRAPHS,
        "control flow into other graphs of the file",
        "unroll the loop or choose the branch in the export",
    )
    _by_kind(
        graph, name, _RESOURCES, "variables or tables that outlive one run",
        "export the state as inputs and outputs, or benchmark the file as it is: edgekit bench MODEL",
    )  # fmt: skip
    _ends(graph, name)


def _integers(graph: tflite.Graph, name: str) -> None:
    """Refuses files in which something that is computed is a quantised integer already."""
    computed = [
        operator
        for operator in graph.operators
        if any(graph.tensors[i].quant is not None and not graph.tensors[i].is_float for i in operator.outputs if i >= 0)
    ]
    ends = [graph.tensors[i] for i in (*graph.inputs, *graph.outputs)]
    if not computed and not any(tensor.quant is not None and not tensor.is_float for tensor in ends):
        return
    floats = [
        operator
        for operator in graph.operators
        if any(graph.tensors[i].is_float for i in operator.outputs if i >= 0) and operator.name != "DEQUANTIZE"
    ]
    how = f"{len(computed)} of its {len(graph.operators)} operators compute on quantised integers"
    raise UnsupportedModelError(
        f"{name} is already {'partly ' if floats else ''}integer: {how}",
        hint=f"measure it as it is: edgekit bench {name}; to quantise anew, start from the float model that it was made from",
        code="already_integer",
        details={"integer_operators": len(computed), "operators": len(graph.operators)},
    )


def _by_kind(graph: tflite.Graph, name: str, kinds: frozenset[str], what: str, hint: str) -> None:
    found = [operator for operator in graph.operators if operator.name in kinds]
    if found:
        raise UnsupportedModelError(
            f"{name} uses {what}: {_named(graph, found)}",
            hint=hint,
            code="control_flow" if kinds is _OTHER_GRAPHS else "variables",
            details={"operators": sorted({operator.name for operator in found})},
        )


def _ends(graph: tflite.Graph, name: str) -> None:
    if not graph.inputs or not graph.outputs:
        raise UnsupportedModelError(
            f"{name} has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs: nothing to convert"
        )
    for index in (*graph.inputs, *graph.outputs):
        tensor = graph.tensors[index]
        if tensor.dtype not in _ENDS:
            raise UnsupportedModelError(
                f"{'input' if index in graph.inputs else 'output'} {tensor.name!r} of {name} holds values of type {tensor.dtype}",
                hint="cut the part that makes them off the model, and do its work in the app",
            )


def _named(graph: tflite.Graph, operators: Sequence[tflite.Operator]) -> str:
    """``IF (operator 3, 'name'), ...``; the first few, and how many more."""
    said = []
    for operator in operators[:_MOST_NAMES]:
        output = next((graph.tensors[i].name for i in operator.outputs if i >= 0), "")
        said.append(
            f"{operator.name.removeprefix('CUSTOM:')} (operator {operator.index}"
            + (f", {output!r})" if output else ")")
        )
    more = len(operators) - _MOST_NAMES
    return ", ".join(said) + (f" and {more} more" if more > 0 else "")
