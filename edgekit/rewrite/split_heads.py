"""A detection head's last concat taken apart, so that boxes in pixels and scores from 0 to 1 each have a scale of their own.

One integer tensor has one scale, in steps of ``width of its range / levels``. A part whose own values span only a few of those steps
has lost its accuracy: scores of 0 to 1 beside boxes of 0 to 640 fall into half a step and are all zero. The parts become outputs
of their own, and how the source's output is put together again travels with the model (:mod:`edgekit.runtime.join`). A last
multiplication by one number (relative coordinates made pixels) goes there too: done on integers it would round once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.calibrate.sources import Sample
from edgekit.intake import tflite
from edgekit.intake.layout import delivered
from edgekit.rewrite import prune
from edgekit.rewrite.edit import text, unused_name
from edgekit.runtime.backend import open_backend
from edgekit.runtime.join import join
from edgekit.values import FloatModel, IoSpec, Joined, Piece

Range = tuple[float, float]

FEWEST_STEPS = 64
"""A part with fewer steps than this inside of its own range is split off.

Of the 256 steps that a scale of its own would give it, a quarter is left: two of its eight bits, 12 dB of its SQNR. At int8 that is a
part whose range is a quarter of the joint one or less. From there to a half the loss is smaller than that of the layers before, and
not worth another output.
"""
LEVELS = {"int8": 255, "uint8": 255, "int16": 65535}
"""Steps from one end of a range to the other, by the type of activations."""


@dataclass(frozen=True)
class Split:
    """The model whose outputs are parts, what was changed, and the tensors that are no longer in it."""

    model: FloatModel
    changes: tuple[str, ...]
    gone: frozenset[str]

    def left(self, by_tensor: Mapping[str, Any]) -> dict[str, Any]:
        """What ``by_tensor`` says of the tensors that are still there."""
        return {name: value for name, value in by_tensor.items() if name not in self.gone}


def split_heads(
    model: FloatModel, ranges: Mapping[str, Range], samples: Iterable[Sample], *, levels: int, to: Path
) -> Split | None:
    """``model`` at ``to`` with mixed heads taken apart; None where no output mixes ranges (by tensor) in this way.

    None too where the parts, put together again, are not bit for bit the outputs that ``model`` gives for ``samples``.
    """
    found = _Heads.of(model, ranges, levels)
    if not found.mixed:
        return None
    changed = found.taken_apart(model, to)
    return changed if _equal(model, changed.model, samples) else None


def mixed_heads(model: FloatModel, ranges: Mapping[str, Range], *, levels: int) -> tuple[str, ...]:
    """A sentence for each output that :func:`split_heads` would take apart."""
    return tuple(_Heads.of(model, ranges, levels).mixed.values())


@dataclass(frozen=True)
class _Node:
    """A tensor, and what makes it of which others, as far as that only moves values. ``axis``: along which it goes into a concat."""

    tensor: int
    op: str = "output"
    numbers: tuple[int, ...] = ()
    of: tuple[_Node, ...] = ()
    axis: int | None = None
    factor: float = 1.0

    def leaves(self) -> Iterable[_Node]:
        """The tensors that the others are made of, in order."""
        if not self.of:
            yield self
        for child in self.of:
            yield from child.leaves()

    def inner(self) -> Iterable[_Node]:
        """The tensors that are made of others."""
        if self.of:
            yield self
        for child in self.of:
            yield from child.inner()


@dataclass
class _Heads:
    """The outputs of a model as trees, folded where the parts are alike."""

    file: tflite.ModelT
    graph: tflite.Graph
    ranges: Mapping[str, Range]
    levels: int
    unfold: _Unfolding = field(init=False)
    trees: list[_Node] = field(default_factory=list)
    mixed: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: FloatModel, ranges: Mapping[str, Range], levels: int) -> _Heads:
        file = tflite.read(model.path)
        heads = cls(file, tflite.graph(file), ranges, levels)
        if len(file.subgraphs) != 1:
            return heads
        heads.unfold = _Unfolding(file, heads.graph)
        for position, (tensor, spec) in enumerate(zip(heads.graph.outputs, model.outputs, strict=True)):
            tree = heads._folded(heads.unfold(tensor, None, last=True))
            if tree.of:
                heads.mixed[position] = f"output {spec.name!r} holds {heads._said(tree)}"
            heads.trees.append(heads._decoded(tree) if tree.of else tree)
        return heads

    def taken_apart(self, model: FloatModel, to: Path) -> Split:
        """The file at ``to`` with the leaves of the trees as outputs."""
        names = {tree.tensor: spec.name for tree, spec in zip(self.trees, model.outputs, strict=True) if not tree.of}
        specs = {tree.tensor: spec for tree, spec in zip(self.trees, model.outputs, strict=True) if not tree.of}
        order: list[int] = []
        for tree, spec in zip(self.trees, model.outputs, strict=True):
            for count, leaf in enumerate(tree.leaves(), 1):
                if leaf.tensor not in names:
                    taken = {*names.values(), *(other.name for other in model.outputs)}
                    names[leaf.tensor] = unused_name(f"{spec.name}.part{count}", taken)
                    specs[leaf.tensor] = self._part(leaf, names[leaf.tensor], spec)
                order += [leaf.tensor] * (leaf.tensor not in order)
        gone = self._rewired(order, names)
        prune.apply(self.file)
        tflite.write(self.file, to)
        joins = tuple(Joined(spec, _piece(tree, names)) for spec, tree in zip(model.outputs, self.trees, strict=True))
        parts = replace(model, path=to, outputs=tuple(specs[tensor] for tensor in order), joins=joins)
        changes = tuple(f"{said}: each is an output of its own" for said in self.mixed.values())
        return Split(parts, changes, gone)

    def _rewired(self, order: Sequence[int], names: Mapping[int, str]) -> frozenset[str]:
        """Outputs and signatures name the parts, and what put these together is taken out; the tensors that went."""
        main = self.file.subgraphs[0]
        inner = [node for tree in self.trees for node in tree.inner()]
        made = {node.tensor for node in inner}
        parts = {tree.tensor: [leaf.tensor for leaf in tree.leaves()] for tree in self.trees}
        main.outputs = list(order)
        for signature in self.file.signatureDefs or []:
            signature.outputs = _entries(signature.outputs or [], parts, names)
        producers = self.graph.producers()
        dropped = {producers[tensor] for tensor in made}
        main.operators = [item for index, item in enumerate(main.operators) if index not in dropped]
        return frozenset(self.graph.tensors[tensor].name for tensor in made)

    def _folded(self, tree: _Node) -> _Node:
        """``tree`` with every branch whose leaves are alike as one leaf."""
        if not tree.of or not self._mixes(tree):
            return _Node(tree.tensor, axis=tree.axis)
        return replace(tree, of=tuple(self._folded(child) for child in tree.of))

    def _decoded(self, tree: _Node) -> _Node:
        """``tree`` with what multiplies a leaf by one number as part of it."""
        if tree.of:
            return replace(tree, of=tuple(self._decoded(child) for child in tree.of))
        return self.unfold.multiplied(tree.tensor, tree.axis) or tree

    def _mixes(self, tree: _Node) -> bool:
        found = [self._range(leaf) for leaf in tree.leaves()]
        known = [limits for limits in found if limits is not None]
        if len(known) < len(found):
            return False
        widths = [high - low for low, high in known if high > low]
        step = (max(high for _, high in known) - min(low for low, _ in known)) / self.levels
        return any(width < FEWEST_STEPS * step for width in widths)

    def _range(self, leaf: _Node) -> Range | None:
        """With 0 in it, as every integer tensor has."""
        limits = self.ranges.get(self.graph.tensors[leaf.tensor].name)
        return None if limits is None else (min(limits[0], 0.0), max(limits[1], 0.0))

    def _part(self, leaf: _Node, name: str, whole: IoSpec) -> IoSpec:
        tensor = self.graph.tensors[leaf.tensor]
        return IoSpec(
            name=name,
            source_shape=tensor.shape,
            source_dtype=whole.source_dtype,
            tensor=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            slice_axis=leaf.axis,
        )

    def _said(self, tree: _Node) -> str:
        parts = []
        for leaf in tree.leaves():
            name = self.graph.tensors[leaf.tensor].name
            limits = self.ranges.get(name)
            parts.append(name if limits is None else f"{limits[0]:.3g} to {limits[1]:.3g} ({name})")
        return f"parts of very different ranges, {', '.join(parts)}"


@dataclass
class _Unfolding:
    """Finds what a tensor is made of by operators that only move values."""

    file: tflite.ModelT
    graph: tflite.Graph

    def __post_init__(self) -> None:
        self._producers, self._readers = self.graph.producers(), self.graph.consumers()
        self._steps: Mapping[str, Callable[[tflite.Operator], tuple[str, tuple[int, ...]] | None]] = {
            "CONCATENATION": self._concat,
            "TRANSPOSE": self._transpose,
            **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), self._reshape),
        }

    def __call__(self, tensor: int, axis: int | None, *, last: bool = False) -> _Node:
        """The tree of ``tensor``, which goes into a concat along ``axis``. ``last``: it is an output itself."""
        leaf = _Node(tensor, axis=axis)
        operator = self.graph.operators[self._producers[tensor]] if tensor in self._producers else None
        # What somebody else reads as well must stay as it is.
        others = len(self._readers.get(tensor, ())) > (0 if last else 1) or self.graph.outputs.count(tensor) > last
        if operator is None or others or operator.name not in self._steps:
            return leaf
        step = self._steps[operator.name](operator)
        if step is None:
            return leaf
        op, numbers = step
        inputs = operator.inputs if op == "concat" else operator.inputs[:1]
        of = tuple(self(i, numbers[0] if op == "concat" else None) for i in inputs)
        if op != "concat" and not of[0].of:
            return leaf  # a view of something that is no concat
        return _Node(tensor, op, numbers, of, axis)

    def multiplied(self, tensor: int, axis: int | None) -> _Node | None:
        """The tree of ``tensor`` down to what is multiplied by one number there; None where nothing is."""
        operator = self.graph.operators[self._producers[tensor]] if tensor in self._producers else None
        if operator is None or len(self._readers.get(tensor, ())) > 1 or tensor in self.graph.outputs:
            return None
        if operator.name == "MUL":
            return self._multiplication(operator, axis)
        step = self._steps[operator.name](operator) if operator.name in self._steps else None
        if step is None or step[0] == "concat":
            return None
        inner = self.multiplied(
            operator.inputs[0], _axis_before(step, self.graph.tensors[operator.inputs[0]].shape, axis)
        )
        return None if inner is None else _Node(tensor, step[0], step[1], (inner,), axis)

    def _multiplication(self, operator: tflite.Operator, axis: int | None) -> _Node | None:
        tensors = self.graph.tensors
        constants = [i for i in operator.inputs if tensors[i].is_constant]
        varying = [i for i in operator.inputs if i in self._producers]
        if len(constants) != 1 or len(varying) != 1 or operator.options.fusedActivationFunction:
            return None
        value = tflite.constant_value(self.file, tensors[constants[0]])
        output = operator.outputs[0]
        if (
            value is None
            or value.dtype != np.float32
            or value.size != 1
            or tensors[varying[0]].shape != tensors[output].shape
        ):
            return None
        return _Node(output, "multiply", (), (_Node(varying[0], axis=axis),), axis, float(value.reshape(-1)[0]))

    def _concat(self, operator: tflite.Operator) -> tuple[str, tuple[int, ...]] | None:
        tensors, produced = self.graph.tensors, self._producers
        if operator.options.fusedActivationFunction or len(operator.inputs) < 2:
            return None
        if any(i not in produced or tensors[i].dtype != "float32" for i in operator.inputs):
            return None
        return "concat", (operator.options.axis % len(tensors[operator.outputs[0]].shape),)

    def _transpose(self, operator: tflite.Operator) -> tuple[str, tuple[int, ...]] | None:
        order = tflite.constant_value(self.file, self.graph.tensors[operator.inputs[1]])
        return None if order is None else ("transpose", tuple(int(axis) for axis in order))

    def _reshape(self, operator: tflite.Operator) -> tuple[str, tuple[int, ...]] | None:
        output = self.graph.tensors[operator.outputs[0]]
        return None if output.has_open_size else ("reshape", output.shape)


def _axis_before(step: tuple[str, tuple[int, ...]], shape: Sequence[int], axis: int | None) -> int | None:
    """The axis of ``shape`` that the view ``step`` makes to ``axis``; None where it is not one."""
    op, numbers = step
    if axis is None or op == "transpose":
        return None if axis is None else numbers[axis]
    ahead = math.prod(numbers[:axis])
    fitting = [i for i, size in enumerate(shape) if size == numbers[axis] and math.prod(shape[:i]) == ahead]
    return fitting[0] if fitting else None


def _piece(node: _Node, names: Mapping[int, str]) -> Piece:
    if not node.of:
        return Piece("output", name=names[node.tensor])
    return Piece(node.op, numbers=node.numbers, of=tuple(_piece(child, names) for child in node.of), factor=node.factor)


def _entries(entries: Sequence[Any], parts: Mapping[int, Sequence[int]], names: Mapping[int, str]) -> list[Any]:
    """The outputs of a signature with the parts in place of what they make."""
    from ai_edge_litert import schema_py_generated as schema

    kept: list[Any] = []
    for entry in entries:
        tensors = parts.get(int(entry.tensorIndex), [int(entry.tensorIndex)])
        if list(tensors) == [int(entry.tensorIndex)]:
            kept.append(entry)
            continue
        for tensor in tensors:
            part = schema.TensorMapT()
            part.name, part.tensorIndex = names[tensor], tensor
            if names[tensor] not in {text(other.name) for other in (*kept, *entries)}:
                kept.append(part)
    return kept


def _equal(before: FloatModel, after: FloatModel, samples: Iterable[Sample]) -> bool:
    """Whether the joined parts are the outputs of ``before``, bit for bit."""
    with open_backend(before.path) as one, open_backend(after.path) as other:
        for sample in samples:
            for backend in (one, other):
                for position, spec in enumerate(before.inputs):
                    backend.set_input(position, delivered(sample[spec.name], spec))
                backend.invoke()
            parts = {spec.name: other.get_output(position) for position, spec in enumerate(after.outputs)}
            for position, joined in enumerate(join(after.joins, parts)):
                if not np.array_equal(one.get_output(position), joined):
                    return False
    return True
