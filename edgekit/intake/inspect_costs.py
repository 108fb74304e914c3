"""What each operator costs: multiply-accumulates, bytes moved, and how many of the one come on a byte of the other.

Bytes moved are the operator's inputs (weights included) and outputs, each once: the least that has to travel between memory and
processor when nothing stays in a cache. Arithmetic intensity, MACs per byte, tells which operators wait for memory: a processor that
does 10 GMAC/s and reads 5 GB/s needs more than two to be busy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgekit.intake.macs import MacResult, product
from edgekit.intake.macs_onnx import node_macs
from edgekit.intake.macs_tflite import operator_macs
from edgekit.intake.onnx_check import bits_of_word
from edgekit.intake.onnx_shapes import UNKNOWN, ValueInfo
from edgekit.intake.tflite_graph import Graph

_VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Constant", "Shape", "Size"))
"""ONNX operators that a runtime does without moving a byte."""


@dataclasses.dataclass(frozen=True)
class OperatorCost:
    """One operator, ``index`` in file order, called by its first result ``name``.

    ``macs`` and ``moved_bytes`` are None where they are unknown, with the ``reason``. ``macs_per_byte`` is None where either is.
    """

    index: int
    operator: str
    name: str
    macs: int | None
    moved_bytes: int | None
    reason: str = ""

    @property
    def macs_per_byte(self) -> float | None:
        """Arithmetic intensity."""
        return self.macs / self.moved_bytes if self.macs is not None and self.moved_bytes else None


@dataclasses.dataclass(frozen=True)
class KindCost:
    """All operators of one kind together; None where one of them is unknown."""

    operator: str
    count: int
    macs: int | None
    moved_bytes: int | None
    macs_per_byte: float | None


def tflite_costs(graphs: Sequence[Graph]) -> tuple[OperatorCost, ...]:
    """The operators of the main graph, at the sizes in the file."""
    graph = graphs[0]
    open_inputs = any(graph.tensors[index].has_open_size for index in graph.inputs)

    def moved(indices: Iterable[int]) -> int | str:
        total = 0
        for index in dict.fromkeys(item for item in indices if item >= 0):
            tensor = graph.tensors[index]
            if tensor.size_bytes is None or (tensor.has_open_size and not open_inputs and not tensor.is_constant):
                return f"the size of {tensor.name!r} is open"
            total += tensor.size_bytes
        return total

    return tuple(
        _cost(
            operator.index,
            operator.name,
            graph.tensors[operator.outputs[0]].name if operator.outputs else "",
            operator_macs(graphs, 0, operator, ()),
            moved((*operator.inputs, *operator.outputs)),
        )
        for operator in graph.operators
    )


def onnx_costs(model: Any, infos: Mapping[str, ValueInfo]) -> tuple[OperatorCost, ...]:
    """The nodes of the main graph, with the shapes of :func:`edgekit.intake.onnx_shapes.value_infos`."""

    def moved(node: Any) -> int | str:
        if node.op_type in _VIEWS:
            return 0
        total = 0
        for name in dict.fromkeys(name for name in (*node.input, *node.output) if name):
            info = infos.get(name, UNKNOWN)
            bits = bits_of_word(info.dtype)
            if info.static_shape is None or not bits:
                return f"the size of {name!r} is open"
            total += (product(info.static_shape) * bits + 7) // 8
        return total

    return tuple(
        _cost(
            index,
            node.op_type,
            node.name or next((name for name in node.output if name), ""),
            node_macs(node, infos),
            moved(node),
        )
        for index, node in enumerate(model.graph.node)
    )


def by_kind(costs: Sequence[OperatorCost]) -> tuple[KindCost, ...]:
    """Sums by kind of operator, the most bytes first."""
    groups: dict[str, list[OperatorCost]] = {}
    for cost in costs:
        groups.setdefault(cost.operator, []).append(cost)
    sums = [_summed(kind, members) for kind, members in groups.items()]
    return tuple(sorted(sums, key=lambda item: (-(item.moved_bytes or 0), item.operator)))


def _summed(kind: str, members: Sequence[OperatorCost]) -> KindCost:
    macs = None if any(cost.macs is None for cost in members) else sum(cost.macs or 0 for cost in members)
    moved = (
        None if any(cost.moved_bytes is None for cost in members) else sum(cost.moved_bytes or 0 for cost in members)
    )
    return KindCost(kind, len(members), macs, moved, macs / moved if macs is not None and moved else None)


def _cost(index: int, kind: str, name: str, macs: MacResult, moved: int | str) -> OperatorCost:
    reasons = [item for item in (macs, moved) if isinstance(item, str)]
    return OperatorCost(
        index,
        kind,
        name,
        None if isinstance(macs, str) else macs,
        None if isinstance(moved, str) else moved,
        "; ".join(dict.fromkeys(reasons)),
    )
