"""An ONNX file read as one of an older opset: for operators that a runtime has only in their version before the last.

A new version of an operator often takes more types and is otherwise the same; a runtime may not register it for a while. Nothing in the
graph is changed, only the number of the opset, and only where the schemas of both versions agree in all but types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

OLDEST = 21
"""The lowest opset that is tried: further down, operators changed their meaning and kept their signature."""


def as_older(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.ModelProto]]:
    """The opset and a copy of ``model`` that says it, from the next lower one down, as long as all operators are the same in it."""
    import onnx

    entry = next((item for item in model.opset_import if item.domain in ("", "ai.onnx")), None)
    if entry is None:
        return
    kinds = sorted(_kinds(model.graph))
    for version in range(int(entry.version) - 1, OLDEST - 1, -1):
        if not all(_same(kind, int(entry.version), version) for kind in kinds):
            return
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        next(item for item in copy.opset_import if item.domain in ("", "ai.onnx")).version = version
        yield version, copy


def _kinds(graph: onnx.GraphProto) -> set[str]:
    """The operators of ONNX's own domain, sub-graphs included."""
    found = {node.op_type for node in graph.node if node.domain in ("", "ai.onnx")}
    for node in graph.node:
        for item in node.attribute:
            for inner in (item.g, *item.graphs):
                found |= _kinds(inner)
    return found


def _same(kind: str, new: int, old: int) -> bool:
    """Whether both versions have the same inputs, outputs, attributes and defaults."""
    from onnx import defs

    try:
        newer, older = defs.get_schema(kind, new, ""), defs.get_schema(kind, old, "")
    except defs.SchemaError:
        return False
    return newer.since_version == older.since_version or _signature(newer) == _signature(older)


def _signature(schema: Any) -> tuple[Any, ...]:
    ends = [[(end.name, end.option) for end in side] for side in (schema.inputs, schema.outputs)]
    attributes = [
        (name, item.type, item.required, item.default_value.SerializeToString())
        for name, item in sorted(schema.attributes.items())
    ]
    return (*ends, attributes)
