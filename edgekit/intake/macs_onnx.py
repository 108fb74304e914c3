"""Multiply-accumulates of ONNX operators, by the conventions in :mod:`edgekit.intake.macs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.intake.macs import MacCount, MacResult, product, sum_up
from edgekit.intake.onnx_reader import shape_words
from edgekit.intake.onnx_shapes import UNKNOWN, ValueInfo, subgraph_value_infos

if TYPE_CHECKING:
    import onnx

_STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
_NO_RULE = frozenset(("Attention", "CausalConvWithState", "LinearAttention", "DFT", "STFT"))
_FREE_ELSEWHERE = frozenset(
    (
        "QuantizeLinear",
        "DequantizeLinear",
        "QLinearAdd",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearGlobalAveragePool",
        "QLinearAveragePool",
        "QLinearConcat",
        "QLinearSoftmax",
        "Gelu",
        "FastGelu",
        "BiasGelu",
        "QuickGelu",
        "SkipLayerNormalization",
        "LayerNormalization",
        "BiasAdd",
    )
)  # com.microsoft


class _Open(Exception):
    """A size that the rule needs is not known; the text is the reason."""


class _Shapes:
    """Looks up the static shapes of one node's inputs and outputs."""

    def __init__(self, node: Any, infos: Mapping[str, ValueInfo]) -> None:
        self._node = node
        self._infos = infos

    def input(self, position: int) -> tuple[int, ...]:
        return self._static("input", list(self._node.input), position)

    def output(self, position: int = 0) -> tuple[int, ...]:
        return self._static("output", list(self._node.output), position)

    def attribute(self, name: str, default: Any = None) -> Any:
        for attribute in self._node.attribute:
            if attribute.name == name:
                return attribute.s.decode() if attribute.type == attribute.STRING else attribute.i
        return default

    def _static(self, what: str, names: list[str], position: int) -> tuple[int, ...]:
        if position >= len(names) or not names[position]:
            raise _Open(f"its {what} {position} is missing")
        info = self._infos.get(names[position], UNKNOWN)
        if info.static_shape is None:
            raise _Open(f"the shape of its {what} {names[position]!r} is open: {shape_words(info.shape)}")
        return info.static_shape


def count_macs(model: onnx.ModelProto, infos: Mapping[str, ValueInfo]) -> MacCount:
    """The MACs of one run, with the shapes of :func:`edgekit.intake.onnx_shapes.value_infos`."""
    return sum_up(_graph_results(model.graph, infos))


def _graph_results(graph: Any, infos: Mapping[str, ValueInfo]) -> Iterator[tuple[str, str, MacResult]]:
    for node in graph.node:
        yield node.op_type, node.name or (node.output[0] if node.output else ""), node_macs(node, infos)


def node_macs(node: Any, infos: Mapping[str, ValueInfo]) -> MacResult:
    """The MACs of one node, or why they are unknown."""
    kind = node.op_type
    bodies = [
        graph
        for attribute in node.attribute
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
    ]
    if bodies:
        return _body_macs(bodies, infos)
    rule = _RULES.get(kind)
    if rule is None:
        if node.domain in _STANDARD_DOMAINS:
            return f"there is no rule for {kind}" if kind in _NO_RULE else 0
        return 0 if kind in _FREE_ELSEWHERE else f"there is no rule for operators of {node.domain}"
    try:
        return rule(_Shapes(node, infos))
    except _Open as reason:
        return str(reason)
    except IndexError:
        return "its shapes have too few axes"


def _body_macs(bodies: list[Any], infos: Mapping[str, ValueInfo]) -> MacResult:
    """Control flow counts only where the bodies hold nothing that counts."""
    for body in bodies:
        inner = sum_up(_graph_results(body, {**infos, **subgraph_value_infos(body)}))
        if inner.total != 0:
            return "how often its body runs is not in the file"
    return 0


def _conv(shapes: _Shapes, weights: int = 1) -> int:
    return product(shapes.output()) * product(shapes.input(weights)[1:])  # weights: M, C/group, kernel...


def _conv_transpose(shapes: _Shapes) -> int:
    return product(shapes.input(0)) * product(shapes.input(1)[1:])  # weights: C, M/group, kernel...


def _gemm(shapes: _Shapes) -> int:
    depth = shapes.input(0)[0 if shapes.attribute("transA", 0) else 1]
    return product(shapes.output()) * depth


def _matmul(shapes: _Shapes) -> int:
    left = shapes.input(0)
    depth = left[-2 if shapes.attribute("transA", 0) else -1]  # transA: FusedMatMul only
    return product(shapes.output()) * depth


def _recurrent(shapes: _Shapes) -> int:
    steps_and_batch = product(shapes.input(0)[:2])
    return steps_and_batch * (product(shapes.input(1)) + product(shapes.input(2)))


def _einsum(shapes: _Shapes) -> int:
    """Two operands: one MAC for each combination of all indices; one operand only moves or adds."""
    terms = str(shapes.attribute("equation", "")).replace(" ", "").split("->")[0].split(",")
    if len(terms) == 1:
        return 0
    if len(terms) != 2 or any("." in term for term in terms):
        raise _Open("there is no rule for this Einsum equation")
    sizes: dict[str, int] = {}
    for position, term in enumerate(terms):
        sizes.update(zip(term, shapes.input(position), strict=False))
    return product(list(sizes.values()))


_RULES: dict[str, Callable[[_Shapes], int]] = {
    "Conv": _conv,
    "FusedConv": _conv,
    "ConvInteger": _conv,
    "DeformConv": _conv,
    "QLinearConv": lambda shapes: _conv(shapes, weights=3),
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "QGemm": _gemm,
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "QLinearMatMul": _matmul,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Einsum": _einsum,
}
