"""What nothing refers to any more is taken out: tensors, buffers and kinds of operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgekit.intake.tflite import ModelT


def apply(model: ModelT) -> tuple[str, ...]:
    """Renumbers what stays, in its old order. For models of one graph."""
    tensors, buffers = _tensors(model), _buffers(model)
    _codes(model)
    return (f"{tensors} unused tensors and {buffers} unused buffers taken out",) if tensors or buffers else ()


def _tensors(model: ModelT) -> int:
    graph = model.subgraphs[0]
    lists = [graph.inputs, graph.outputs]
    for operator in graph.operators:
        lists += [operator.inputs, operator.outputs, operator.intermediates]
    entries = [
        entry
        for signature in model.signatureDefs or []
        for entry in (*(signature.inputs or []), *(signature.outputs or []))
    ]
    used = {int(index) for indices in lists if indices is not None for index in indices if index >= 0}
    used |= {int(entry.tensorIndex) for entry in entries}
    number = _numbers(used)
    dropped = len(graph.tensors) - len(used)
    graph.tensors = [tensor for index, tensor in enumerate(graph.tensors) if index in used]
    graph.inputs, graph.outputs = _renumbered(graph.inputs, number), _renumbered(graph.outputs, number)
    for operator in graph.operators:
        operator.inputs = _renumbered(operator.inputs, number)
        operator.outputs = _renumbered(operator.outputs, number)
        operator.intermediates = _renumbered(operator.intermediates, number)
    for entry in entries:
        entry.tensorIndex = number[int(entry.tensorIndex)]
    return dropped


def _buffers(model: ModelT) -> int:
    tensors = model.subgraphs[0].tensors
    metadata = model.metadata or []
    used = {0} | {int(tensor.buffer) for tensor in tensors} | {int(entry.buffer) for entry in metadata}
    used |= {int(index) for index in model.metadataBuffer or [] if index < len(model.buffers)}
    number = _numbers(used)
    dropped = len(model.buffers) - len(used)
    model.buffers = [buffer for index, buffer in enumerate(model.buffers) if index in used]
    for holder in (*tensors, *metadata):
        holder.buffer = number[int(holder.buffer)]
    if model.metadataBuffer is not None:
        model.metadataBuffer = [number[int(index)] for index in model.metadataBuffer if int(index) in number]
    return dropped


def _codes(model: ModelT) -> None:
    operators = model.subgraphs[0].operators
    number = _numbers({int(operator.opcodeIndex) for operator in operators})
    model.operatorCodes = [code for index, code in enumerate(model.operatorCodes) if index in number]
    for operator in operators:
        operator.opcodeIndex = number[int(operator.opcodeIndex)]


def _numbers(used: Iterable[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(sorted(used))}


def _renumbered(indices: Any, number: Mapping[int, int]) -> list[int] | None:
    return None if indices is None else [number[int(index)] if index >= 0 else -1 for index in indices]
