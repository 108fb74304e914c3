"""Which tensor of the float model is which value of the source: the side table, by names that were kept and values that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from edgekit.errors import EdgekitError
from edgekit.intake import tflite
from edgekit.intake.layout import permutations, permuted
from edgekit.intake.matching import EQUAL_DB, MATCHING_SAMPLES, by_value, inner_tensors
from edgekit.intake.onnx_cut import Cuttable
from edgekit.intake.onnx_reader import read_onnx
from edgekit.values import FloatModel
from edgekit.verify.measures import sqnr_db

if TYPE_CHECKING:
    from edgekit.intake.onnx import OnnxSource

KEPT_SHARE = 0.7
"""Where fewer of the tensors than this kept a name of the source, the others are recognised by their values."""
MOST_BYTES = 300_000_000
"""... unless all inner values together are larger than this."""


def plain_value_names(source: OnnxSource) -> dict[str, str]:
    """The name that each value of the source has in the file for front ends; only where the two graphs correspond node by node."""
    if source.plain == source.copy:
        return {}
    own, plain = read_onnx(source.copy).graph, read_onnx(source.plain).graph
    if [node.op_type for node in own.node] != [node.op_type for node in plain.node]:
        return {}
    pairs = zip(own.node, plain.node, strict=True)
    return {a: b for one, other in pairs for a, b in zip(one.output, other.output, strict=False)}


def tensor_sources(
    source: OnnxSource, made: FloatModel, samples: Sequence[Mapping[str, NDArray[Any]]], work: Path
) -> dict[str, str]:
    """Tensors of ``made`` that are known to be a value of the source: tensor to value.

    Known: it kept the value's name, and holds what ONNX Runtime computes under it (a converter that fuses an activation may leave the
    name of what went into it); or, where few names were kept, it holds one on two samples. Empty where one of the two cannot be run so.
    """
    try:
        return dict(sorted(_equal(source, made, samples, work)))
    except (EdgekitError, OSError, ValueError, RuntimeError, KeyError, MemoryError):
        return {}  # the table is for the reader; a conversion does not fail for want of it


def _equal(
    source: OnnxSource, made: FloatModel, samples: Sequence[Mapping[str, NDArray[Any]]], work: Path
) -> Iterator[tuple[str, str]]:
    cut, plain = Cuttable(read_onnx(source.copy)), plain_value_names(source)
    graph = tflite.graph_of(made.path)
    written = {*graph.producers(), *graph.inputs}
    tensors = {tensor.name: tensor for tensor in graph.tensors if tensor.index in written}
    kept = {value for value in (*cut.inputs, *cut.producer) if plain.get(value, value) in tensors}
    few = len(kept) < KEPT_SHARE * len(written) and _inner_bytes(graph) <= MOST_BYTES
    chosen = samples[:MATCHING_SAMPLES] if few else samples[:1]
    values = [cut.all_values(sample, work, only=None if few else kept) for sample in chosen]
    known: dict[int, str] = {}
    ends = set(graph.inputs)
    wanted = None if few else {tensors[plain.get(value, value)].index for value in kept} - ends
    held = [inner_tensors(made, sample, wanted) for sample in chosen]
    for value in kept.intersection(values[0]):
        tensor = tensors[plain.get(value, value)]
        if tensor.index in ends:
            known[tensor.index] = value
            continue
        got, right = held[0][tensor.index], values[0][value]
        orders = permutations(right.shape, got.shape)
        if any(sqnr_db(permuted(right, order, got.shape), got) >= EQUAL_DB for order in orders):
            known[tensor.index] = value
    if few:
        known |= by_value(held, values, known=known)
    yield from ((graph.tensors[index].name, value) for index, value in known.items())


def _inner_bytes(graph: tflite.Graph) -> int:
    return sum(graph.tensors[index].size_bytes or 0 for index in graph.producers())


def still_there(sources: dict[str, str], path: Path) -> dict[str, str]:
    """``sources`` without the tensors that later passes took out of the model at ``path``."""
    names = {tensor.name for tensor in tflite.graph_of(path).tensors}
    return {tensor: value for tensor, value in sources.items() if tensor in names}
