"""An int8 file whose scales, weights and biases are set in place, without the engine: what makes a search possible.

The integers of a bias follow from the scales of its layer's input and weights, so a layer's bias is given in real numbers and
written anew whenever one of those changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.clipping import Range
from edgekit.intake import tflite
from edgekit.quantize.groups import Group, parameters
from edgekit.rewrite.edit import add_buffer

_BIAS_AT = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
_DATA_AT = {"TRANSPOSE_CONV": 2}
LARGEST_BIAS = 2.0**30
"""Half of the range of a stored bias: the other half is for the sum that is added to it."""

Array = NDArray[Any]


@dataclass(frozen=True)
class _Weighted:
    """Tensor indices of a layer with int8 weights and an int32 bias."""

    data: int
    weights: int
    bias: int


@dataclass(frozen=True)
class _Places:
    """Where the file keeps the numbers of a tensor: (first byte, how many), of the scales, the zero points and the constant's bytes."""

    scales: tuple[int, int]
    zero_points: tuple[int, int]
    data: tuple[int, int]


@dataclass(frozen=True)
class _Plan:
    """What does not change while numbers do."""

    places: tuple[_Places, ...]
    layers: tuple[_Weighted, ...]
    index: Mapping[str, int]
    outputs: int


class Int8File:
    """The bytes of an int8 ``.tflite``, to be changed in place and run. Copies are independent of one another.

    ``index`` leads from the name of a tensor to its number.
    """

    def __init__(self, content: bytes | bytearray, plan: _Plan, biases: Mapping[int, Array]) -> None:
        self.content = bytearray(content)
        self.index = plan.index
        self._plan = plan
        self._layers = plan.layers
        self._biases = dict(biases)

    @classmethod
    def open(cls, path: Path, *, watched: Sequence[str] = ()) -> Int8File:
        """The file at ``path``; each weight and bias gets memory of its own, where the writer let equal ones share it.

        The tensors ``watched`` become further outputs of what is run here; :meth:`write` leaves them out again.
        """
        model = tflite.read(path)
        graph = tflite.graph(model)
        names = {tensor.name: tensor.index for tensor in graph.tensors}
        model.subgraphs[0].outputs = [*graph.outputs, *(names[name] for name in watched)]
        uses: dict[int, int] = {}
        for operator in graph.operators:
            for index in operator.inputs:
                uses[index] = uses.get(index, 0) + 1
        layers, biases = [], {}
        for operator in graph.operators:
            found = _weighted(graph, operator)
            if found is None or uses[found.weights] > 1 or uses[found.bias] > 1:
                continue
            bias, quant = graph.tensors[found.bias], graph.tensors[found.bias].quant
            integers = tflite.constant_value(model, bias)
            if integers is None or quant is None:
                continue
            layers.append(found)
            biases[found.bias] = integers.astype(np.float64) * quant.scales.astype(np.float64)
        own = {index for layer in layers for index in (layer.weights, layer.bias)}
        _part_buffers(model, own)
        content = bytearray(tflite.serialize(model))
        return cls(content, _Plan(_places(content), tuple(layers), names, len(graph.outputs)), biases)

    def copy(self) -> Int8File:
        """Another one with the same contents."""
        return Int8File(self.content, self._plan, self._biases)

    def weights_of(self, bias: int) -> int | None:
        """The index of the weights beside this bias; None where it is not one that can be set."""
        return next((layer.weights for layer in self._layers if layer.bias == bias), None)

    def scales(self, tensor: int) -> Array:
        """The scales of a tensor, float32, a copy."""
        return self._numbers(self._plan.places[tensor].scales, np.float32).copy()

    def zero_point(self, tensor: int) -> int:
        """The zero point of a tensor with one scale."""
        return int(self._numbers(self._plan.places[tensor].zero_points, np.int64)[0])

    def integers(self, tensor: int) -> Array:
        """The stored int8 of a constant, flat: a view."""
        return self._numbers(self._plan.places[tensor].data, np.int8)

    def bias(self, tensor: int) -> Array:
        """A bias in real numbers, as it was given or read."""
        return self._biases[tensor]

    def set_range(self, group: Group, limits: Range) -> None:
        """Scale and zero point of the group from a range; the biases of the layers that read it follow."""
        scale, zero_point = parameters(limits)
        for index in group.tensors:
            places = self._plan.places[index]
            self._numbers(places.scales, np.float32)[:] = np.float32(scale)
            self._numbers(places.zero_points, np.int64)[:] = zero_point
        for layer in self._layers:
            if layer.data in group.tensors:
                self._write_bias(layer)

    def set_weights(self, tensor: int, integers: Array) -> None:
        """The int8 values of a layer's weights, in the file's order; scales stay."""
        self.integers(tensor)[:] = integers.reshape(-1)

    def set_bias(self, tensor: int, values: Array) -> None:
        """A bias in real numbers."""
        self._biases[tensor] = np.asarray(values, np.float64)
        self._write_bias(next(layer for layer in self._layers if layer.bias == tensor))

    def bias_fits(self, tensor: int, values: Array) -> Array:
        """For each channel: whether ``values`` of this bias stays clear of the ends of 32 bits."""
        layer = next(layer for layer in self._layers if layer.bias == tensor)
        fits: Array = np.abs(values) <= LARGEST_BIAS * self._unit(layer)
        return fits

    def takes_range(self, group: Group, limits: Range) -> bool:
        """Whether the biases of all layers that read the group still fit with this range: a finer scale makes their integers larger."""
        change = float(np.float32(parameters(limits)[0])) / float(self.scales(group.tensors[0])[0])
        return all(
            bool(np.all(np.abs(self._biases[layer.bias]) <= LARGEST_BIAS * self._unit(layer) * change))
            for layer in self._layers
            if layer.data in group.tensors
        )

    def write(self, path: Path) -> None:
        """Writes the file, with the outputs that it came with."""
        model = tflite.read(bytes(self.content))
        model.subgraphs[0].outputs = list(model.subgraphs[0].outputs)[: self._plan.outputs]
        tflite.write(model, path)

    def _numbers(self, place: tuple[int, int], dtype: Any) -> Array:
        """A view into the file."""
        return np.frombuffer(self.content, dtype, count=place[1] // np.dtype(dtype).itemsize, offset=place[0])

    def _unit(self, layer: _Weighted) -> Array:
        unit: Array = self.scales(layer.data).astype(np.float64)[0] * self.scales(layer.weights).astype(np.float64)
        return unit

    def _write_bias(self, layer: _Weighted) -> None:
        unit, values = self._unit(layer), self._biases[layer.bias]
        limits = np.iinfo(np.int32)
        integers = np.clip(np.rint(values / unit), limits.min, limits.max).astype(np.int32)
        places = self._plan.places[layer.bias]
        self._numbers(places.data, np.int32)[:] = integers
        self._numbers(places.scales, np.float32)[:] = unit.astype(np.float32)


def _part_buffers(model: tflite.ModelT, own: Collection[int]) -> None:
    """Gives each tensor of ``own`` a buffer that no other tensor reads; the last one of those that share keeps theirs."""
    uses = Counter(int(tensor.buffer) for graph in model.subgraphs for tensor in graph.tensors)
    for index in sorted(own):
        tensor = model.subgraphs[0].tensors[index]
        if uses[int(tensor.buffer)] > 1:
            uses[int(tensor.buffer)] -= 1
            tensor.buffer = add_buffer(model, model.buffers[tensor.buffer].data)


def _places(content: bytearray) -> tuple[_Places, ...]:
    """Of every tensor of the main graph."""
    from ai_edge_litert import schema_py_generated as schema

    start = np.frombuffer(content, np.uint8).__array_interface__["data"][0]

    def place(values: Any) -> tuple[int, int]:
        # The generated reader gives 0 where there is nothing, and a view into the file otherwise.
        return (0, 0) if isinstance(values, int) else (values.__array_interface__["data"][0] - start, values.nbytes)

    model = schema.Model.GetRootAs(content, 0)
    graph = model.Subgraphs(0)
    found = []
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        quant, data = tensor.Quantization(), place(model.Buffers(tensor.Buffer()).DataAsNumpy())
        scales, zero_points = (0, 0), (0, 0)
        if quant is not None:
            scales, zero_points = place(quant.ScaleAsNumpy()), place(quant.ZeroPointAsNumpy())
        found.append(_Places(scales, zero_points, data))
    return tuple(found)


def _weighted(graph: tflite.Graph, operator: tflite.Operator) -> _Weighted | None:
    """The layer of this operator, where all of its parts are integers as int8 kernels take them."""
    at = _BIAS_AT.get(operator.name)
    if at is None or len(operator.inputs) <= at or operator.inputs[at] < 0:
        return None
    found = _Weighted(operator.inputs[_DATA_AT.get(operator.name, 0)], operator.inputs[1], operator.inputs[at])
    kinds = [graph.tensors[index].dtype for index in (found.data, found.weights, found.bias)]
    quants = [graph.tensors[index].quant for index in (found.data, found.weights, found.bias)]
    whole = kinds == ["int8", "int8", "int32"] and all(quants) and graph.tensors[found.weights].is_constant
    return found if whole else None
