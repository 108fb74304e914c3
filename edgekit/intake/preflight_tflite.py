"""The TFLite half of :mod:`edgekit.intake.preflight`: operators, versions and ranks of a ``ModelT``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.intake import runtimes, tflite
from edgekit.intake.preflight import Finding, Level, found
from edgekit.intake.tflite_graph import Graph, Operator

_IN_EVERY_RUNTIME = ("TFLite_Detection_PostProcess", "AudioSpectrogram", "Mfcc", "NumericVerify")
"""Custom operators that the ordinary resolver registers."""
_CONTROL = ("IF", "WHILE", "CALL", "STABLEHLO_WHILE", "STABLEHLO_CASE")
_STATE = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE")
_RECURRENT = (
    "LSTM",
    "RNN",
    "SVDF",
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BIDIRECTIONAL_SEQUENCE_LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BIDIRECTIONAL_SEQUENCE_RNN",
)
_QUANTIZED = ("int8", "uint8", "int16")


def tflite_findings(model: Any) -> Iterator[Finding]:
    """Findings for a ``ModelT`` as :func:`edgekit.intake.tflite.read` gives it."""
    graphs = [tflite.graph(model, subgraph=number) for number in range(len(model.subgraphs))]
    groups: dict[str, list[str]] = {}
    for graph in graphs:
        for operator in graph.operators:
            groups.setdefault(operator.name, []).append(_name(graph, operator))
    for kind, names in groups.items():
        yield from _kind(kind, names)
    yield from _versions(model)
    yield from _ranks(graphs)
    yield from _types(graphs)


def _name(graph: Graph, operator: Operator) -> str:
    return graph.tensors[operator.outputs[0]].name if operator.outputs else f"operator {operator.index}"


def _kind(kind: str, names: list[str]) -> Iterator[Finding]:
    custom = kind.partition("CUSTOM:")[2]
    if kind.startswith("CUSTOM:Flex"):
        reason = "it needs the TensorFlow Flex delegate, which boards do not have"
        advice = f"convert again with tf.lite.OpsSet.TFLITE_BUILTINS only, and replace tf.{custom[4:]} in the network"
        yield found(Level.REFUSE, "operator_flex", reason, advice, operator=custom, nodes=names)
    elif kind.startswith("CUSTOM:") and custom not in _IN_EVERY_RUNTIME:
        reason = "a custom operator: it needs a kernel that the ordinary runtime does not have"
        yield found(
            Level.REFUSE, "operator_custom", reason, "convert again without it", operator=custom or "?", nodes=names
        )
    elif kind.startswith("BUILTIN_"):
        reason = f"operator code {kind[8:]} is above those of the schema that is known here"
        yield found(Level.REFUSE, "operator_unknown", reason, "use an older converter", operator=kind, nodes=names)
    elif kind in _CONTROL:
        reason = "control flow: no integer kernels, and delegates stop there"
        yield found(Level.WARN, "control_flow", reason, "unroll it, or export one branch", operator=kind, nodes=names)
    elif kind in _STATE:
        reason = "the model keeps a state between runs, so that results depend on what was run before"
        advice = "export the state as an input and an output"
        yield found(Level.WARN, "stateful", reason, advice, operator=kind, nodes=names)
    elif kind in _RECURRENT:
        reason = "recurrent layer: its states share scales that rarely fit in int8"
        advice = "look at the worst slice of every output in the report"
        yield found(Level.WARN, "recurrent", reason, advice, operator=kind, nodes=names)


def _versions(model: Any) -> Iterator[Finding]:
    """Operators that even the newest runtime that was measured lacks in that version."""
    report = runtimes.requirements(model)
    for runtime in report.runtimes[-1:]:
        for missing in runtime.missing:
            if missing.highest is not None:
                yield found(
                    Level.REFUSE,
                    "operator_too_new",
                    f"version {missing.version}, and {runtime.name} has versions up to {missing.highest}",
                    "convert again with an older converter",
                    operator=missing.operator,
                )


def _ranks(graphs: list[Graph]) -> Iterator[Finding]:
    high = [
        (graph, operator)
        for graph in graphs
        for operator in graph.operators
        if any(len(graph.tensors[index].shape) >= 5 for index in (*operator.inputs, *operator.outputs) if index >= 0)
    ]
    if high:
        yield found(
            Level.WARN,
            "rank_high",
            "tensors of five axes or more: many kernels end at four, and delegates leave the rest to slow ones",
            "reshape to four axes where that is possible",
            operator="/".join(dict.fromkeys(operator.name for _, operator in high)),
            nodes=[_name(graph, operator) for graph, operator in high],
        )


def _types(graphs: list[Graph]) -> Iterator[Finding]:
    activations = [
        tensor
        for graph in graphs
        for operator in graph.operators
        for tensor in (graph.tensors[index] for index in operator.outputs)
        if tensor.quant is not None and tensor.dtype in _QUANTIZED
    ]
    if activations:
        yield found(
            Level.NOTE,
            "quantised_already",
            f"the model is quantised already ({len(activations)} integer results)",
            "to convert, give the float model that it was made from; to measure, bench it as it is",
        )
    halves = sum(tensor.dtype == "float16" and tensor.is_constant for graph in graphs for tensor in graph.tensors)
    if halves:
        yield found(Level.NOTE, "weights_float16", f"float16 weights ({halves} tensors)", "nothing to do")
