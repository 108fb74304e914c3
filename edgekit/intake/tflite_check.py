"""Do the parts of a TFLite model refer to one another without a hole? What the native interpreter would abort or misread on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from edgekit.intake.tflite_types import item_bits

_MAX_RANK = 64  # far above any kernel's (8); a longer shape is a damaged one


def first_problem(model: Any) -> str:
    """The first contradiction in ``model`` (a ``ModelT``) in words, or "" when there is none."""
    if not model.subgraphs:
        return "it has no graph"
    if not model.buffers:
        return "it has no list of buffers"
    return next(_problems(model), "")


def _problems(model: Any) -> Iterator[str]:
    codes = len(model.operatorCodes or [])
    for number, subgraph in enumerate(model.subgraphs):
        tensors = subgraph.tensors or []
        for index, tensor in enumerate(tensors):
            yield from _tensor_problems(model, f"tensor {index} of graph {number}", tensor)
        for index, operator in enumerate(subgraph.operators or []):
            where = f"operator {index} of graph {number}"
            if not 0 <= operator.opcodeIndex < codes:
                yield f"{where} is of kind {operator.opcodeIndex}, but {codes} kinds are listed"
            yield from _index_problems(where, operator.inputs, len(tensors), optional=True)
            yield from _index_problems(where, operator.outputs, len(tensors), optional=False)
            yield from _index_problems(where, operator.intermediates, len(tensors), optional=True)
        yield from _index_problems(f"graph {number}", subgraph.inputs, len(tensors), optional=False)
        yield from _index_problems(f"graph {number}", subgraph.outputs, len(tensors), optional=False)
    yield from _signature_problems(model)
    for entry in model.metadata or []:
        if not 0 <= entry.buffer < len(model.buffers):
            yield f"metadata in buffer {entry.buffer}, but there are {len(model.buffers)}"


def _tensor_problems(model: Any, where: str, tensor: Any) -> Iterator[str]:
    if not 0 <= tensor.buffer < len(model.buffers):
        yield f"{where} is in buffer {tensor.buffer}, but there are {len(model.buffers)}"
        return
    bits = item_bits(tensor.type)
    if bits is None:
        yield f"{where} has the unknown type number {tensor.type}"
        return
    shape = [] if tensor.shape is None else list(tensor.shape)
    if len(shape) > _MAX_RANK or any(size < -1 for size in shape):
        yield f"{where} has the impossible shape {shape[:_MAX_RANK]}"
        return
    yield from _buffer_problems(model, where, tensor, shape, bits)
    yield from _quantization_problems(where, tensor.quantization, shape)


def _buffer_problems(model: Any, where: str, tensor: Any, shape: list[int], bits: int) -> Iterator[str]:
    data = model.buffers[tensor.buffer].data
    # Strings, resources and sparse tensors have sizes of their own; below eight bits older writers did not pack.
    if data is None or len(data) == 0 or bits < 8 or tensor.sparsity is not None:
        return
    count = 1
    for size in shape:
        count *= max(size, 0)
    if len(data) * 8 != count * bits:
        yield f"{where} of shape {shape} needs {count * bits // 8:,} bytes, but its buffer has {len(data):,}"


def _quantization_problems(where: str, quant: Any, shape: list[int]) -> Iterator[str]:
    if quant is None or quant.scale is None or len(quant.scale) <= 1:
        return
    axis = quant.quantizedDimension
    if not 0 <= axis < len(shape):
        yield f"{where} of shape {shape} is quantised along axis {axis}"
    elif shape[axis] != len(quant.scale):
        yield f"{where} of shape {shape} has {len(quant.scale)} scales along axis {axis}"


def _index_problems(where: str, indices: Iterable[int] | None, count: int, *, optional: bool) -> Iterator[str]:
    lowest = -1 if optional else 0  # -1 stands for an optional tensor that is not given
    for index in indices if indices is not None else ():
        if not lowest <= index < count:
            yield f"{where} refers to tensor {index}, but there are {count}"


def _signature_problems(model: Any) -> Iterator[str]:
    for signature in model.signatureDefs or []:
        if not 0 <= signature.subgraphIndex < len(model.subgraphs):
            yield f"a signature refers to graph {signature.subgraphIndex}, but there are {len(model.subgraphs)}"
            continue
        count = len(model.subgraphs[signature.subgraphIndex].tensors or [])
        maps = [*(signature.inputs or []), *(signature.outputs or [])]
        yield from _index_problems("a signature", [entry.tensorIndex for entry in maps], count, optional=False)
