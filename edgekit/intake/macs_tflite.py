"""Multiply-accumulates of TFLite operators, by the conventions in :mod:`edgekit.intake.macs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from edgekit.intake.macs import MacCount, MacResult, product, sum_up
from edgekit.intake.tflite_graph import Graph, Operator

_NO_RULE = frozenset(("STABLEHLO_CONVOLUTION", "STABLEHLO_DOT_GENERAL", "STABLEHLO_CUSTOM_CALL", "RFFT2D"))
_RUNS_ONCE = frozenset(("CALL_ONCE",))  # initialisation, not part of a run
_CALLED = {  # operator: fields of its options that hold the number of a graph
    "CALL": ("subgraph",),
    "STABLEHLO_COMPOSITE": ("decompositionSubgraphIndex",),
    "IF": ("thenSubgraphIndex", "elseSubgraphIndex"),
    "WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "STABLEHLO_WHILE": ("condSubgraphIndex", "bodySubgraphIndex"),
    "STABLEHLO_CASE": ("branchSubgraphIndices",),
}
_RUN_EXACTLY_ONCE = frozenset(("CALL", "STABLEHLO_COMPOSITE"))
_LSTM_WEIGHTS = (*range(1, 9), 16)  # input and recurrent weights of the four gates, projection
_BIDIRECTIONAL_LSTM_WEIGHTS = (
    *range(1, 9),
    16,
    *range(18, 26),
    33,
    *range(40, 48),
)  # forward, backward, of the auxiliary input


class _Open(Exception):
    """A size that the rule needs is not known; the text is the reason."""


class _Shapes:
    """Looks up the shapes of one operator's inputs and outputs."""

    def __init__(self, graph: Graph, operator: Operator) -> None:
        self._graph = graph
        self.operator = operator
        self._open_inputs = any(graph.tensors[index].has_open_size for index in graph.inputs)

    def input(self, position: int) -> tuple[int, ...]:
        return self._static("input", self.operator.inputs, position)

    def output(self, position: int = 0) -> tuple[int, ...]:
        return self._static("output", self.operator.outputs, position)

    def elements(self, positions: Sequence[int]) -> int:
        """The elements of those of the inputs that are given."""
        inputs = self.operator.inputs
        return sum(
            product(self.input(position)) for position in positions if position < len(inputs) and inputs[position] >= 0
        )

    def _static(self, what: str, indices: tuple[int, ...], position: int) -> tuple[int, ...]:
        if position >= len(indices) or indices[position] < 0:
            raise _Open(f"its {what} {position} is missing")
        tensor = self._graph.tensors[indices[position]]
        # With open graph inputs the file's sizes are those that the interpreter takes unless told otherwise. Without them, an open
        # size depends on the data, and the size in the file is a placeholder.
        if any(size <= 0 for size in tensor.shape) or (tensor.has_open_size and not self._open_inputs):
            shape = list(tensor.shape_signature or tensor.shape)
            raise _Open(f"the shape of its {what} {tensor.name!r} is open: {shape}")
        return tensor.shape


def count_macs(graphs: Sequence[Graph], *, main: int = 0) -> MacCount:
    """The MACs of one run of graph number ``main``, at the sizes in the file; ``graphs`` are all graphs of the model."""
    return sum_up(_graph_results(graphs, main, ()))


def _graph_results(
    graphs: Sequence[Graph], number: int, callers: tuple[int, ...]
) -> Iterator[tuple[str, str, MacResult]]:
    graph = graphs[number]
    for operator in graph.operators:
        name = graph.tensors[operator.outputs[0]].name if operator.outputs else ""
        yield operator.name, name, operator_macs(graphs, number, operator, callers)


def operator_macs(graphs: Sequence[Graph], number: int, operator: Operator, callers: tuple[int, ...]) -> MacResult:
    """The MACs of one operator of graph ``number``, or why they are unknown; ``callers`` are the graphs that led here."""
    if operator.is_custom:
        return "what a custom operator computes is not in the file"
    if operator.name in _CALLED:
        return _called_macs(graphs, operator, (*callers, number))
    if operator.name in _NO_RULE or operator.name.startswith("BUILTIN_"):
        return f"there is no rule for {operator.name}"
    rule = _RULES.get(operator.name)
    if rule is None or operator.name in _RUNS_ONCE:
        return 0
    try:
        return rule(_Shapes(graphs[number], operator))
    except _Open as reason:
        return str(reason)
    except IndexError:
        return "its shapes have too few axes"


def _called_macs(graphs: Sequence[Graph], operator: Operator, callers: tuple[int, ...]) -> MacResult:
    called: list[int] = []
    for field in _CALLED[operator.name]:
        value = getattr(operator.options, field, None)
        called += (
            [int(value)]
            if isinstance(value, int)
            else [int(item) for item in value if value is not None]
            if value is not None
            else []
        )
    if not called or any(not 0 <= number < len(graphs) or number in callers for number in called):
        return "the graph that it calls is not in the file"
    counts = [sum_up(_graph_results(graphs, number, callers)) for number in called]
    if all(count.total == 0 for count in counts):
        return 0
    if operator.name not in _RUN_EXACTLY_ONCE:
        return "how often its body runs is not in the file"
    inner = counts[0]
    return inner.uncounted[0].reason if inner.total is None else inner.total


def _conv_2d(shapes: _Shapes) -> int:
    return product(shapes.output()) * product(shapes.input(1)[1:])  # weights: out, height, width, in/groups


def _depthwise(shapes: _Shapes) -> int:
    return product(shapes.output()) * product(shapes.input(1)[1:3])  # weights: 1, height, width, out


def _transpose_conv(shapes: _Shapes) -> int:
    return product(shapes.input(2)) * product(shapes.input(1)[:3])  # weights: out, height, width, in


def _conv_3d(shapes: _Shapes) -> int:
    return product(shapes.output()) * product(shapes.input(1)[:4])  # weights: depth, height, width, in, out


def _conv_3d_transpose(shapes: _Shapes) -> int:
    return product(shapes.input(2)) * product(shapes.input(1)[:4])  # weights: depth, height, width, out, in


def _fully_connected(shapes: _Shapes) -> int:
    return product(shapes.output()) * shapes.input(1)[-1]  # weights: out, in


def _batch_matmul(shapes: _Shapes) -> int:
    adjoint = getattr(shapes.operator.options, "adjX", False)
    return product(shapes.output()) * shapes.input(0)[-2 if adjoint else -1]


def _sequence(weights: Sequence[int]) -> Callable[[_Shapes], int]:
    """Recurrent operators over steps and batch: input 0 is [steps, batch, features] or [batch, steps, features]."""
    return lambda shapes: product(shapes.input(0)[:2]) * shapes.elements(weights)


def _lstm(shapes: _Shapes) -> int:
    weights = (
        (2,) if len(shapes.operator.inputs) == 5 else _LSTM_WEIGHTS
    )  # five inputs: the basic kernel, all weights in one matrix
    return shapes.input(0)[0] * shapes.elements(weights)


_RULES: dict[str, Callable[[_Shapes], int]] = {
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transpose_conv,
    "CONV_3D": _conv_3d,
    "CONV_3D_TRANSPOSE": _conv_3d_transpose,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _sequence(_LSTM_WEIGHTS),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _sequence(_BIDIRECTIONAL_LSTM_WEIGHTS),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence((1, 2)),
    "BIDIRECTIONAL_SEQUENCE_RNN": _sequence((1, 2, 5, 6, 10, 11)),
    "LSTM": _lstm,
    "RNN": lambda shapes: shapes.input(0)[0] * shapes.elements((1, 2)),
    "SVDF": lambda shapes: shapes.input(0)[0] * shapes.elements((1, 2)),
}
