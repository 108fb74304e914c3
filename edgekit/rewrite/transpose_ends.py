"""``--keep-layout``: inputs and outputs in the source's order of axes, by a TRANSPOSE at each end that a converter had turned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.intake.tflite import ModelT
from edgekit.rewrite.edit import add_tensor, new_operator, text, unused_name
from edgekit.values import IoSpec

Ends = tuple[tuple[IoSpec, ...], tuple[IoSpec, ...]]

_VERSIONS = {5: 4, 6: 6}
"""The version of TRANSPOSE that took on so many axes; 1 knows four."""


def apply(model: ModelT, inputs: Sequence[IoSpec], outputs: Sequence[IoSpec]) -> tuple[Ends, tuple[str, ...]]:
    """The ends as they are afterwards (no permutation left), and what was changed. ``model`` is edited in place.

    ``inputs`` and ``outputs`` describe the model's ends in their order. Works on types of any kind: only the order of values changes.
    """
    graph = model.subgraphs[0]
    changes: list[str] = []
    new_inputs, first = [], []
    for position, spec in enumerate(inputs):
        if spec.permutation is None:
            new_inputs.append(spec)
            continue
        inner = int(graph.inputs[position])
        outer = _outer(model, spec, inner)
        first.append(_transpose(model, outer, inner, spec.permutation))
        graph.inputs[position] = outer
        _move_signature(model, "inputs", spec.name, outer)
        new_inputs.append(_in_source_layout(model, spec, outer))
        changes.append(_said("input", spec))
    new_outputs, last = [], []
    for position, spec in enumerate(outputs):
        if spec.permutation is None:
            new_outputs.append(spec)
            continue
        inner = int(graph.outputs[position])
        outer = _outer(model, spec, inner)
        back = tuple(int(axis) for axis in np.argsort(spec.permutation))
        last.append(_transpose(model, inner, outer, back))
        graph.outputs[position] = outer
        _move_signature(model, "outputs", spec.name, outer)
        new_outputs.append(_in_source_layout(model, spec, outer))
        changes.append(_said("output", spec))
    graph.operators = [*first, *graph.operators, *last]
    return (tuple(new_inputs), tuple(new_outputs)), tuple(changes)


def _outer(model: ModelT, spec: IoSpec, inner: int) -> int:
    """A new tensor at this end, of the type of ``inner`` and in the source's shape."""
    tensors = model.subgraphs[0].tensors
    taken = {text(tensor.name) for tensor in tensors}
    name = unused_name(f"{text(tensors[inner].name)}/source_layout", taken)
    outer = add_tensor(model, name, spec.source_shape, spec.dtype)
    tensors[outer].type = tensors[inner].type
    return outer


def _transpose(model: ModelT, source: int, target: int, order: Sequence[int]) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    taken = {text(tensor.name) for tensor in model.subgraphs[0].tensors}
    name = unused_name(f"{text(model.subgraphs[0].tensors[target].name)}/order", taken)
    axes = add_tensor(model, name, [len(order)], "int32", data=np.array(order, np.int32))
    operator = new_operator(model, "TRANSPOSE", [source, axes], [target], version=_VERSIONS.get(len(order), 1))
    operator.builtinOptionsType = schema.BuiltinOptions.TransposeOptions
    operator.builtinOptions = schema.TransposeOptionsT()
    return operator


def _move_signature(model: ModelT, side: str, name: str, tensor: int) -> None:
    for signature in model.signatureDefs or []:
        for entry in getattr(signature, side) or []:
            if text(entry.name) == name:
                entry.tensorIndex = tensor


def _in_source_layout(model: ModelT, spec: IoSpec, outer: int) -> IoSpec:
    name = text(model.subgraphs[0].tensors[outer].name)
    return dataclasses.replace(spec, tensor=name, shape=spec.source_shape, permutation=None)


def _said(what: str, spec: IoSpec) -> str:
    return f"{what} {spec.name!r} is in the source's order of axes, {list(spec.source_shape)}"
