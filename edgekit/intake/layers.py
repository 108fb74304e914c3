"""Which tensor of the float model is which value of the source: the side table, by names that were kept and values that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from edgekit.errors import EdgekitError
from edgekit.intake import tflite
from edgekit.intake.layout import delivered, permutations, permuted
from edgekit.intake.onnx_cut import Cuttable
from edgekit.intake.onnx_reader import read_onnx
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.measures import sqnr_db

if TYPE_CHECKING:
    from edgekit.intake.onnx import OnnxSource

EQUAL_DB = 60.0
"""Rounding in float32 stays above it, another value does not reach it."""


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
    source: OnnxSource, made: FloatModel, sample: Mapping[str, NDArray[Any]], work: Path
) -> dict[str, str]:
    """Tensors of ``made`` that are known to be a value of the source: tensor to value.

    Known: it kept the value's name, and holds what ONNX Runtime computes under it for ``sample`` (a converter that fuses an activation
    may leave the name of what went into it). Empty for front ends that lose names, and where one of the two cannot be run so.
    """
    try:
        return dict(sorted(_equal(source, made, sample, work)))
    except (EdgekitError, OSError, ValueError, RuntimeError, KeyError, MemoryError):
        return {}  # the table is for the reader; a conversion does not fail for want of it


def _equal(
    source: OnnxSource, made: FloatModel, sample: Mapping[str, NDArray[Any]], work: Path
) -> Iterator[tuple[str, str]]:
    cut, plain = Cuttable(read_onnx(source.copy)), plain_value_names(source)
    graph = tflite.graph_of(made.path)
    written = {*graph.producers(), *graph.inputs}
    tensors = {tensor.name: tensor for tensor in graph.tensors if tensor.index in written}
    kept = {value for value in (*cut.inputs, *cut.producer) if plain.get(value, value) in tensors}
    values = cut.all_values(sample, work, only=kept)
    # Without the delegate, since with it intermediate results are never written.
    with open_backend(made.path, delegate=False, preserve_all_tensors=True) as backend:
        for position, spec in enumerate(made.inputs):
            backend.set_input(position, delivered(sample[spec.name], spec))
        backend.invoke()
        for value in kept.intersection(values):
            tensor, wanted = tensors[plain.get(value, value)], values[value]
            got = backend.read_tensor(tensor.index)
            orders = permutations(wanted.shape, got.shape)
            if any(sqnr_db(permuted(wanted, order, got.shape), got) >= EQUAL_DB for order in orders):
                yield tensor.name, value


def still_there(sources: dict[str, str], path: Path) -> dict[str, str]:
    """``sources`` without the tensors that later passes took out of the model at ``path``."""
    names = {tensor.name for tensor in tflite.graph_of(path).tensors}
    return {tensor: value for tensor, value in sources.items() if tensor in names}
