"""What the tensor arena has to hold: the life of every activation, the moment when most are alive, and who holds the memory then.

The runtime plans its memory from the same facts: a tensor lives from the operator that writes it to the last one that reads it; inputs
and variables live throughout, outputs from their operator to the end. The sum of what is alive at once is the least that any plan can
do; how the interpreter's own planner (greedy by size, 64-byte boundaries) packs it is worked out too. What the file does not tell is
left out: buffers that kernels ask for beside their tensors (im2col), results written in place, the memory of delegates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from edgekit.intake.tflite_graph import Graph

ALIGNMENT_BYTES = 64
"""Tensors in the interpreter's arena begin on such boundaries (kDefaultTensorAlignment)."""
_NO_DATA = ("resource", "variant")


@dataclasses.dataclass(frozen=True)
class Life:
    """An activation that lives from operator ``first`` to operator ``last`` (indices, both included)."""

    tensor: int
    name: str
    size_bytes: int
    first: int
    last: int
    throughout: bool


@dataclasses.dataclass(frozen=True)
class Holder:
    """A tensor that is alive at the peak. ``producer`` is the kind of operator that wrote it, "input" or "variable"."""

    tensor: str
    producer: str
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class ArenaPeak:
    """The moment of the most memory: while ``operator`` (kind; ``index`` in file order) runs, its result ``tensor``.

    ``peak_bytes`` is the sum of what is alive then, ``planned_bytes`` what the interpreter's planner needs for the whole graph, and
    ``holders`` are the tensors alive at the peak, the largest first.
    """

    peak_bytes: int
    planned_bytes: int
    index: int
    operator: str
    tensor: str
    holders: tuple[Holder, ...]


def lives(graph: Graph) -> tuple[Life, ...] | None:
    """Every activation with its life; None when a size depends on the data (open, although no graph input is)."""
    throughout = {*graph.inputs, *(tensor.index for tensor in graph.tensors if tensor.is_variable)}
    born, readers = graph.producers(), graph.consumers()
    end = max(len(graph.operators) - 1, 0)
    open_inputs = any(graph.tensors[index].has_open_size for index in graph.inputs)
    found = []
    for tensor in graph.tensors:
        always = tensor.index in throughout
        if tensor.is_constant or tensor.dtype in _NO_DATA or not (always or tensor.index in born):
            continue
        if tensor.size_bytes is None or (tensor.has_open_size and not open_inputs):
            return None
        first = 0 if always else born[tensor.index]
        last = end if always or tensor.index in graph.outputs else max([first, *readers.get(tensor.index, [])])
        found.append(Life(tensor.index, tensor.name, tensor.size_bytes, first, last, always))
    return tuple(found)


def arena_peak(graph: Graph) -> ArenaPeak | None:
    """The peak of ``graph`` at the sizes in the file; None where a size depends on the data, or there is no operator."""
    found = lives(graph)
    if found is None or not graph.operators:
        return None
    changes = [0] * (len(graph.operators) + 1)
    for life in found:
        changes[life.first] += life.size_bytes
        changes[life.last + 1] -= life.size_bytes
    alive = peak = at = 0
    for index, change in enumerate(changes):
        alive += change
        if alive > peak:
            peak, at = alive, index
    operator = graph.operators[min(at, len(graph.operators) - 1)]
    held = [life for life in found if life.first <= at <= life.last and life.size_bytes]
    holders = tuple(
        Holder(life.name, _producer(graph, life), life.size_bytes)
        for life in sorted(held, key=lambda life: (-life.size_bytes, life.tensor))
    )
    result = graph.tensors[operator.outputs[0]].name if operator.outputs else ""
    return ArenaPeak(peak, planned_bytes(found), operator.index, operator.name, result, holders)


def planned_bytes(found: Sequence[Life]) -> int:
    """The size of the arena after packing: long-lived tensors first, then the largest first, each into the lowest gap that it fits.

    The rule of TensorFlow Lite's ArenaPlanner (arena_planner.cc, CreateTensorAllocationVector) with the gap search of
    SimpleMemoryArena (simple_memory_arena.cc: the smallest gap that is large enough).
    """
    ordered = sorted(
        found, key=lambda life: (not life.throughout, -life.size_bytes if not life.throughout else 0, life.first)
    )
    placed: list[tuple[int, int, Life]] = []
    for life in ordered:
        if life.size_bytes:
            offset = _best_gap(placed, life)
            placed.append((offset, offset + life.size_bytes, life))
            placed.sort(key=lambda item: item[0])
    return max((end for _, end, _ in placed), default=0)


def _best_gap(placed: Sequence[tuple[int, int, Life]], life: Life) -> int:
    best, best_size, current = None, None, 0
    for start, end, other in placed:
        if other.last < life.first or other.first > life.last:
            continue
        aligned = -(-current // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        gap = start - current
        if aligned + life.size_bytes <= start and (best_size is None or gap < best_size):
            best, best_size = aligned, gap
        current = max(current, end)
    return best if best is not None else -(-current // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _producer(graph: Graph, life: Life) -> str:
    born = graph.producers()
    if life.tensor in born:
        return graph.operators[born[life.tensor]].name
    return "variable" if graph.tensors[life.tensor].is_variable else "input"
