"""Float islands of an int8 file closed: operators that the engine has no integer form of, and the interpreter has.

litert-quantizer 0.11 leaves such an operator float between a DEQUANTIZE and a QUANTIZE, without a word. Where the interpreter's own int8
kernel is known to compute it, the operator reads and writes integers here, with the ranges that calibration found; chains of them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.calibrate.clipping import Range
from edgekit.intake import tflite
from edgekit.quantize.groups import parameters
from edgekit.rewrite import prune
from edgekit.rewrite.edit import add_tensor, new_operator, operator_code, text, unused_name

OWN_SCALE: Mapping[str, int] = {
    "ABS": 2, "ELU": 1, "EXP": 2, "LEAKY_RELU": 2, "LOG": 2, "PRELU": 1, "RELU": 2, "RELU6": 2, "RELU_N1_TO_1": 1, "RSQRT": 2,
    "SQUARED_DIFFERENCE": 2, "SUM": 2, "HARD_SWISH": 1, "GELU": 2,
}  # fmt: skip
"""Operators with an int8 kernel that takes any scales, and the version of the operator that has it."""
SAME_SCALE: Mapping[str, int] = {
    "EXPAND_DIMS": 1, "PADV2": 2, "MIRROR_PAD": 2, "REDUCE_MAX": 2, "REDUCE_MIN": 2, "MINIMUM": 2, "MAXIMUM": 2, "DEPTH_TO_SPACE": 1,
    "SPACE_TO_DEPTH": 2, "TILE": 2, "REVERSE_V2": 1, "GATHER": 2, "GATHER_ND": 2, "SQUEEZE": 1, "RESHAPE": 1, "TRANSPOSE": 2,
    "SLICE": 2, "STRIDED_SLICE": 2, "PACK": 2, "UNPACK": 2, "SPLIT": 2, "SPLIT_V": 2, "SELECT": 2, "SELECT_V2": 1,
    "BROADCAST_TO": 2, "ARG_MAX": 2, "ARG_MIN": 2, "TOPK_V2": 2, "SPACE_TO_BATCH_ND": 2, "BATCH_TO_SPACE_ND": 2,
}  # fmt: skip
"""Operators whose int8 kernel moves or compares integers: everything that they read and write has one scale."""
FIXED_SCALE: Mapping[str, tuple[int, float, int]] = {
    "L2_NORMALIZATION": (2, 1 / 128, 0),
    "LOG_SOFTMAX": (2, 16 / 256, 127),
}
"""Operators whose int8 kernel writes one scale and zero point and refuses all others: version, scale, zero point."""
VERSIONS: Mapping[str, int] = {**OWN_SCALE, **SAME_SCALE, **{op: fixed[0] for op, fixed in FIXED_SCALE.items()}}
SCALE_OF_FIRST = frozenset(("PADV2",))
"""Of those: the ones whose constants do not widen the range. A padding below all values is as good as the lowest value."""


@dataclass(frozen=True)
class Closed:
    """An operator that computes on integers now, with its first output."""

    op: str
    output: str


def close_islands(path: Path, ranges: Mapping[str, Range], *, integer_ends: bool = True) -> tuple[Closed, ...]:
    """Closes what can be closed in the int8 file at ``path`` (rewritten in place where anything was); what was closed, in order.

    ``ranges`` are those of the float model's tensors, by name. Models of one graph only. With ``integer_ends``, an output that the engine
    delivers in float, because a float operator reads that value too, becomes the integers before its DEQUANTIZE.
    """
    model = tflite.read(path)
    if len(model.subgraphs) != 1:
        return ()
    work = _Work(model, tflite.graph(model), ranges)
    work.through()
    if integer_ends:
        work.integer_outputs()
    work.forget_unread()
    if work.closed or work.ends_moved:
        prune.apply(model)
        tflite.write(model, path)
    return tuple(work.closed)


@dataclass
class _Work:
    """One walk over the operators in order. ``integers`` leads from a float tensor to the int8 tensor with the same value."""

    model: tflite.ModelT
    graph: tflite.Graph
    ranges: Mapping[str, Range]
    integers: dict[int, int] = field(default_factory=dict)
    closed: list[Closed] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    ends_moved: bool = False

    def through(self) -> None:
        """Makes the new list of operators."""
        self._readers = self.graph.consumers()
        self._dropped: set[int] = set()
        items = list(self.model.subgraphs[0].operators)
        for operator in self.graph.operators:
            item = items[operator.index]
            if operator.index in self._dropped:
                continue
            if operator.name == "DEQUANTIZE" and self.graph.tensors[operator.inputs[0]].dtype == "int8":
                self.integers[operator.outputs[0]] = operator.inputs[0]
            elif operator.name == "QUANTIZE" and operator.inputs[0] in self.integers:
                item.inputs = [self.integers[operator.inputs[0]]]
            elif self._closable(operator):
                self._close(operator, item)
                continue
            self.operators.append(item)

    def integer_outputs(self) -> None:
        """Outputs behind a DEQUANTIZE become what is before it, in the signatures too."""
        graph = self.model.subgraphs[0]
        moved = {index: self.integers[index] for index in self.graph.outputs if index in self.integers}
        graph.outputs = [moved.get(int(index), int(index)) for index in graph.outputs]
        for signature in self.model.signatureDefs or []:
            for entry in signature.outputs or []:
                entry.tensorIndex = self.integers.get(int(entry.tensorIndex), int(entry.tensorIndex))
        self.ends_moved = bool(moved)

    def _closable(self, operator: tflite.Operator) -> bool:
        tensors = self.graph.tensors
        if operator.name not in VERSIONS:
            return False
        read = [tensors[i] for i in operator.inputs if i >= 0 and tensors[i].dtype == "float32"]
        written = [tensors[i] for i in operator.outputs if tensors[i].dtype == "float32"]
        known = all(t.is_constant or t.index in self.integers for t in read)
        known = known and any(not t.is_constant for t in read)
        return known and all(self._holds(operator.name, self._range(t)) for t in written)

    def _holds(self, op: str, limits: Range | None) -> bool:
        """Whether the values are known to fit: a fixed scale ends somewhere, as that of LOG_SOFTMAX at -15.9."""
        if limits is None or op not in FIXED_SCALE:
            return limits is not None
        _, scale, zero_point = FIXED_SCALE[op]
        return limits[0] >= scale * (-128.5 - zero_point) and limits[1] <= scale * (128 - zero_point)

    def _close(self, operator: tflite.Operator, item: Any) -> None:
        tensors = self.graph.tensors
        written = [i for i in operator.outputs if tensors[i].dtype == "float32"]
        if operator.name in SAME_SCALE:
            shared = self._shared_parameters(operator)
            inputs = [self._brought_to(i, shared) for i in operator.inputs]
            outputs = {i: self._output(i, shared) for i in written}
        else:
            fixed = FIXED_SCALE[operator.name][1:] if operator.name in FIXED_SCALE else None
            inputs = [self._read(i) for i in operator.inputs]
            outputs = {i: self._output(i, fixed) for i in written}
        item.inputs = inputs
        item.outputs = [outputs.get(i, i) for i in operator.outputs]
        item.opcodeIndex = operator_code(self.model, operator.name, max(VERSIONS[operator.name], operator.version))
        self.operators.append(item)
        for index in written:
            self._leave_float(index, outputs[index])
        self.closed.append(Closed(operator.name, tensors[operator.outputs[0]].name))

    def _read(self, index: int) -> int:
        """The integer form of something that is read with a scale of its own."""
        if index < 0 or self.graph.tensors[index].dtype != "float32":
            return index
        if not self.graph.tensors[index].is_constant:
            return self.integers[index]
        values = self._constant(index)
        scale = max(float(np.abs(values).max()), 1e-9) / 127.0
        return self._quantised_constant(index, values, (scale, 0))

    def _brought_to(self, index: int, shared: tuple[float, int]) -> int:
        """The integer form of something that is read with the common scale: converted in front of the operator where it has another."""
        if index < 0 or self.graph.tensors[index].dtype != "float32":
            return index
        if self.graph.tensors[index].is_constant:
            return self._quantised_constant(index, self._constant(index), shared)
        source = self.integers[index]
        if self._parameters(source) == shared:
            return source
        target = self._new(f"{self._name(source)}_rescaled", self.graph.tensors[index].shape, shared)
        self.operators.append(new_operator(self.model, "QUANTIZE", [source], [target], version=2))
        return target

    def _shared_parameters(self, operator: tflite.Operator) -> tuple[float, int]:
        """The scale of all that the operator touches: its input's own where there is one input, or else of the range that holds all."""
        tensors = self.graph.tensors
        read = [i for i in operator.inputs if i >= 0 and tensors[i].dtype == "float32"]
        moving = [i for i in read if not tensors[i].is_constant]
        if operator.name in SCALE_OF_FIRST or len(read) == 1:
            return self._parameters(self.integers[moving[0]])
        low, high = 0.0, 0.0
        for index in read:
            if tensors[index].is_constant:
                values = self._constant(index)
                limits = float(values.min()), float(values.max())
            else:
                scale, zero_point = self._parameters(self.integers[index])
                limits = scale * (-128 - zero_point), scale * (127 - zero_point)
            low, high = min(low, limits[0]), max(high, limits[1])
        return parameters((low, high))

    def _output(self, index: int, shared: tuple[float, int] | None) -> int:
        """The int8 tensor that the operator writes: the one behind the QUANTIZE that read the float one, where its scale allows it."""
        readers = [self.graph.operators[i] for i in self._readers.get(index, ())]
        for reader in readers:
            if reader.name == "QUANTIZE" and self.graph.tensors[reader.outputs[0]].dtype == "int8":
                target = reader.outputs[0]
                if shared is None or self._parameters(target) == shared:
                    self._dropped.add(reader.index)
                    return target
        name = self.graph.tensors[index].name
        limits = self._range(self.graph.tensors[index])
        assert limits is not None
        self._tensor(index).name = self._unused(f"{name}_dequant")
        return self._new(name, self.graph.tensors[index].shape, shared or parameters(limits))

    def _leave_float(self, index: int, integers: int) -> None:
        """A DEQUANTIZE for whoever still reads the float tensor; :meth:`forget_unread` takes it out again where nobody does."""
        self.integers[index] = integers
        self.operators.append(new_operator(self.model, "DEQUANTIZE", [integers], [index], version=2))

    def forget_unread(self) -> None:
        """Takes out each DEQUANTIZE that nobody reads any more."""
        read = {i for item in self.operators for i in item.inputs} | {int(i) for i in self.model.subgraphs[0].outputs}
        number = operator_code(self.model, "DEQUANTIZE")
        dequantize = self.model.operatorCodes[number].builtinCode
        self.model.subgraphs[0].operators = [
            item
            for item in self.operators
            if self.model.operatorCodes[item.opcodeIndex].builtinCode != dequantize or item.outputs[0] in read
        ]

    def _range(self, tensor: tflite.Tensor) -> Range | None:
        if tensor.name in self.ranges:
            return self.ranges[tensor.name]
        for index in self._readers.get(tensor.index, ()):
            reader = self.graph.operators[index]
            quant = self.graph.tensors[reader.outputs[0]].quant if reader.name == "QUANTIZE" else None
            if quant is not None and quant.scales.size == 1:
                scale, zero_point = float(quant.scales[0]), int(quant.zero_points[0])
                return scale * (-128 - zero_point), scale * (127 - zero_point)
        return None

    def _constant(self, index: int) -> Any:
        values = tflite.constant_value(self.model, self.graph.tensors[index])
        assert values is not None
        return values.astype(np.float64)

    def _quantised_constant(self, index: int, values: Any, given: tuple[float, int]) -> int:
        scale, zero_point = given
        integers = np.clip(np.rint(values / scale) + zero_point, -128, 127).astype(np.int8)
        name = self._unused(f"{self.graph.tensors[index].name}_quantized")
        return self._new(name, values.shape, given, data=integers)

    def _new(self, name: str, shape: Sequence[int], given: tuple[float, int], *, data: Any = None) -> int:
        from ai_edge_litert import schema_py_generated as schema

        index = add_tensor(self.model, self._unused(name), shape, "int8", data=data)
        quantization = schema.QuantizationParametersT()
        quantization.scale, quantization.zeroPoint = np.array([given[0]], np.float32), np.array([given[1]], np.int64)
        self._tensor(index).quantization = quantization
        return index

    def _parameters(self, index: int) -> tuple[float, int]:
        quantization = self._tensor(index).quantization
        return float(quantization.scale[0]), int(quantization.zeroPoint[0])

    def _name(self, index: int) -> str:
        return text(self._tensor(index).name)

    def _unused(self, wanted: str) -> str:
        return unused_name(wanted, {text(tensor.name) for tensor in self.model.subgraphs[0].tensors})

    def _tensor(self, index: int) -> Any:
        return self.model.subgraphs[0].tensors[index]
