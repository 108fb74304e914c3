"""Parts of an ONNX model as models of their own, and the value of everything inside: what finding a faulty layer needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, NDArray[Any]]
_COMPARABLE = "fiub"


class Cuttable:
    """A ``ModelProto`` (static inputs) with its nodes in order and who reads what. The proto is never changed."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.nodes: tuple[Any, ...] = tuple(model.graph.node)
        self.outputs = tuple(info.name for info in model.graph.output)
        stored = {tensor.name for tensor in model.graph.initializer}
        self.inputs = tuple(info.name for info in model.graph.input if info.name not in stored)
        self.producer = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self._reads = [tuple(_reads(node)) for node in self.nodes]
        self.live = self._live()

    def ancestors(self, names: Iterable[str]) -> set[int]:
        """Indices of the nodes that ``names`` are computed from, the ones that write them included; constants left out."""
        found: set[int] = set()
        waiting = [self.producer[name] for name in names if name in self.producer]
        while waiting:
            index = waiting.pop()
            if index in found or index not in self.live:
                continue
            found.add(index)
            waiting += [self.producer[name] for name in self._reads[index] if name in self.producer]
        return found

    def reads(self, index: int) -> tuple[str, ...]:
        """The values that node ``index`` reads, those of its bodies too."""
        return self._reads[index]

    def _live(self) -> set[int]:
        """Nodes that depend on an input: the rest is constant."""
        known = set(self.inputs)
        live = set()
        for index, node in enumerate(self.nodes):
            if known.intersection(self._reads[index]):
                live.add(index)
                known.update(node.output)
        return live

    def all_values(self, sample: Values, work: Path, *, only: Container[str] | None = None) -> dict[str, NDArray[Any]]:
        """Every value that depends on the inputs, for ``sample``, as ONNX Runtime computes it; lists and texts left out.
        ``only`` restricts them to those (the inputs and outputs come anyway).

        Raises OSError when nothing can be written to ``work``, and whatever the runtime raises.
        """
        import onnx

        from edgekit.verify.reference import OnnxReference

        names = [name for index in sorted(self.live) for name in self.nodes[index].output if name]
        names = [name for name in names if only is None or name in only]
        widened = onnx.ModelProto()
        widened.CopyFrom(self.model)
        widened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in self.outputs)
        path = work / "all-values.onnx"
        onnx.save(widened, str(path))
        reference = OnnxReference(path, [*dict.fromkeys((*self.outputs, *names))], finite_only=False)
        found = {**sample, **reference.run(sample)}
        return {
            name: np.asarray(value)
            for name, value in found.items()
            if hasattr(value, "dtype") and value.dtype.kind in _COMPARABLE and value.size
        }

    def with_outputs(self, names: Sequence[str], values: Values) -> Any:
        """The part of the model that computes ``names``, with those as its outputs; their types and shapes are those of ``values``."""
        wanted = self.ancestors(names)
        return self._part([index for index in range(len(self.nodes)) if index in wanted], names, values)

    def prefix(self, count: int, values: Values) -> Any | None:
        """The first ``count`` nodes; outputs are what later nodes or the model need. None when nothing that counts is among them."""
        kept = range(count)
        inside = {name for index in kept if index in self.live for name in self.nodes[index].output if name in values}
        later = {name for index in range(count, len(self.nodes)) for name in self._reads[index]} | set(self.outputs)
        names = [name for name in values if name in inside and name in later]
        return self.with_outputs(names, values) if names else None

    def _part(self, kept: Sequence[int], names: Sequence[str], values: Values) -> Any:
        import onnx

        needed = self._with_constants(kept)
        reads = {name for index in needed for name in self._reads[index]} | set(names)
        part = onnx.ModelProto()
        part.ir_version = max(self.model.ir_version, 4)
        part.opset_import.extend(self.model.opset_import)
        part.functions.extend(self.model.functions)
        part.graph.name = self.model.graph.name or "part"
        part.graph.node.extend(self.nodes[index] for index in sorted(needed))
        stored = {tensor.name for tensor in self.model.graph.initializer}
        part.graph.initializer.extend(tensor for tensor in self.model.graph.initializer if tensor.name in reads)
        part.graph.sparse_initializer.extend(self.model.graph.sparse_initializer)
        part.graph.input.extend(
            info for info in self.model.graph.input if info.name in reads and info.name not in stored
        )
        for name in names:
            number = onnx.helper.np_dtype_to_tensor_dtype(values[name].dtype)
            part.graph.output.append(onnx.helper.make_tensor_value_info(name, number, list(values[name].shape)))
        return part

    def _with_constants(self, kept: Sequence[int]) -> set[int]:
        """``kept`` and the constant nodes that they need."""
        needed: set[int] = set()
        waiting = list(kept)
        while waiting:
            index = waiting.pop()
            if index not in needed:
                needed.add(index)
                waiting += [self.producer[name] for name in self._reads[index] if name in self.producer]
        return needed


@dataclasses.dataclass(frozen=True)
class NodeWords:
    """A node in the words of its author: name (or that of its first result), kind, the attributes it was given, its shapes."""

    name: str
    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def phrase(self) -> str:
        """``"'up' (Resize, mode=linear)"``"""
        given = "".join(f", {key}={value}" for key, value in self.attributes.items())
        return f"{self.name!r} ({self.operator}{given})"


def words_of(node: Any, values: Values) -> NodeWords:
    """``node`` in words; shapes are those of ``values``."""

    def shaped(name: str) -> str:
        return f"{name} {list(values[name].shape)}" if name in values else name

    return NodeWords(
        name=node.name or next((name for name in node.output if name), ""),
        operator=node.op_type,
        attributes={item.name: _attribute(item) for item in node.attribute},
        inputs=tuple(shaped(name) for name in node.input if name),
        outputs=tuple(shaped(name) for name in node.output if name),
    )


def _attribute(item: Any) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(item)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, list) and all(isinstance(element, (int, float)) for element in value):
        return [round(element, 6) if isinstance(element, float) else element for element in value[:16]]
    return "..."


def _reads(node: Any) -> Iterable[str]:
    yield from (name for name in node.input if name)
    for item in node.attribute:
        for body in (*([item.g] if item.HasField("g") else []), *item.graphs):
            for inner in body.node:
                yield from _reads(inner)
            yield from (info.name for info in body.output)
