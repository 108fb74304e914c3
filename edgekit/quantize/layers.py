"""Layers with weights: where a float model keeps their parts, how a window walks over their input, and their weights as matrices.

Every kind is seen as ``blocks`` of matrices ``(blocks, rows, columns)`` that multiply vectors of inputs: a dense layer or a
convolution is one block with a row for each output channel, a depthwise convolution one block for each input channel, a grouped one
a block for each group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite

KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_SAME = 0  # Padding

Array = NDArray[Any]


@dataclass(frozen=True)
class Window:
    """How a kernel walks over a map of (height, width): all pairs are (vertical, horizontal); ``before`` is padding with zeros."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    steps: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of the float model. ``data`` is the index of its input tensor; weights and bias are named as in the file.

    ``window`` is None for a dense layer. ``weights`` has the shape of the file, ``bias`` may be missing.
    """

    name: str
    kind: str
    data: int
    output: int
    weights_name: str
    bias_name: str | None
    weights: Array
    bias: Array | None
    window: Window | None
    blocks: int

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return self.channels // self.blocks

    @property
    def channels(self) -> int:
        """Output channels."""
        return int(self.weights.shape[-1] if self.kind == "DEPTHWISE_CONV_2D" else self.weights.shape[0])

    @property
    def columns(self) -> int:
        """Inputs of a block."""
        return int(self.weights.size) // self.channels

    def matrices(self, weights: Array) -> Array:
        """Weights in the file's shape as (blocks, rows, columns)."""
        if self.kind == "DEPTHWISE_CONV_2D":
            weights = weights.reshape(-1, self.channels).T
        return weights.reshape(self.blocks, self.rows, self.columns)

    def stored(self, matrices: Array) -> Array:
        """The inverse of :meth:`matrices`."""
        flat = matrices.reshape(self.channels, self.columns)
        if self.kind == "DEPTHWISE_CONV_2D":
            flat = flat.T
        return np.ascontiguousarray(flat).reshape(self.weights.shape)

    def inputs(self, values: Array, positions: Array | None) -> Array:
        """Input vectors (blocks, positions, columns) at the flat output ``positions``, or at all."""
        if self.window is None:
            flat = values.reshape(-1, self.columns)
            return (flat if positions is None else flat[positions])[None]
        patches = _patches(values, self.window, positions)  # positions, kernel, channels
        count, area, channels = patches.shape
        per_block = channels // self.blocks
        grouped = patches.reshape(count, area, self.blocks, per_block)
        return np.ascontiguousarray(grouped.transpose(2, 0, 1, 3)).reshape(self.blocks, count, area * per_block)

    def positions(self, values: Array) -> int:
        """How many output positions this input has."""
        if self.window is None:
            return int(values.size) // self.columns
        return int(values.shape[0]) * self.window.steps[0] * self.window.steps[1]

    def mean_input(self, values: Array) -> Array:
        """The mean over all positions, (blocks, columns)."""
        if self.window is None:
            return values.reshape(-1, self.columns).mean(axis=0, dtype=np.float64)[None]
        means = _mean_taps(values, self.window)  # kernel area, channels
        area, channels = means.shape
        grouped = means.reshape(area, self.blocks, channels // self.blocks).transpose(1, 0, 2)
        return np.ascontiguousarray(grouped).reshape(self.blocks, -1)


def layers(model: tflite.ModelT) -> tuple[Layer, ...]:
    """The layers of :data:`KINDS` with float weights that no other operator reads, in order."""
    graph = tflite.graph(model)
    uses: dict[int, int] = {}
    for operator in graph.operators:
        for index in operator.inputs:
            uses[index] = uses.get(index, 0) + 1
    found = []
    for operator in graph.operators:
        if operator.name in KINDS and all(uses[index] == 1 for index in operator.inputs[1:] if index >= 0):
            layer = _layer(model, graph, operator)
            if layer is not None:
                found.append(layer)
    return tuple(found)


def _layer(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator) -> Layer | None:
    data, kernel = graph.tensors[operator.inputs[0]], graph.tensors[operator.inputs[1]]
    weights = tflite.constant_value(model, kernel)
    if weights is None or weights.dtype != np.float32 or not weights.size or min(data.shape, default=0) < 1:
        return None
    bias_index = operator.inputs[2] if len(operator.inputs) > 2 else -1
    bias = None if bias_index < 0 else tflite.constant_value(model, graph.tensors[bias_index])
    if bias_index >= 0 and bias is None:
        return None
    window, blocks = None, 1
    if operator.name != "FULLY_CONNECTED":
        if len(data.shape) != 4 or operator.options is None:
            return None
        window = _window(operator, data.shape, weights.shape)
        depthwise = operator.name == "DEPTHWISE_CONV_2D"
        blocks = data.shape[3] if depthwise else data.shape[3] // weights.shape[3]
    output = operator.outputs[0]
    bias_name = None if bias_index < 0 else graph.tensors[bias_index].name
    return Layer(
        graph.tensors[output].name, operator.name, data.index, output, kernel.name, bias_name, weights, bias, window, blocks
    )  # fmt: skip


def _window(operator: tflite.Operator, shape: tuple[int, ...], weights: tuple[int, ...]) -> Window:
    options = operator.options
    kernel, stride = (weights[1], weights[2]), (int(options.strideH), int(options.strideW))
    dilation = (int(options.dilationHFactor) or 1, int(options.dilationWFactor) or 1)
    before, steps = [], []
    for axis in range(2):
        reach, size = (kernel[axis] - 1) * dilation[axis] + 1, shape[1 + axis]
        if options.padding == _SAME:
            count = -(-size // stride[axis])
            before.append(max((count - 1) * stride[axis] + reach - size, 0) // 2)
        else:
            count = (size - reach) // stride[axis] + 1
            before.append(0)
        steps.append(count)
    return Window(kernel, stride, dilation, (before[0], before[1]), (steps[0], steps[1]))


def _mean_taps(values: Array, window: Window) -> Array:
    """(kernel area, channels): the mean of what each weight of the kernel sees, zeros outside of the map included.

    Rows are summed up for each row of the kernel first, then columns of those sums for each of its columns.
    """
    taps = []
    for down in range(window.kernel[0]):
        rows = _seen(values.shape[1], window, 0, down)
        by_column = values[:, rows].sum(axis=(0, 1), dtype=np.float64)
        taps += [by_column[_seen(values.shape[2], window, 1, across)].sum(axis=0) for across in range(window.kernel[1])]
    mean: Array = np.stack(taps) / (values.shape[0] * window.steps[0] * window.steps[1])
    return mean


def _seen(size: int, window: Window, axis: int, tap: int) -> slice:
    """The places of an axis of ``size`` that this weight of the kernel meets on its walk."""
    stride, start = window.stride[axis], tap * window.dilation[axis] - window.before[axis]
    last = start + (window.steps[axis] - 1) * stride
    first = start if start >= 0 else start % stride
    return slice(first, min(last, size - 1) + 1, stride) if first < size else slice(0, 0)


def _patches(values: Array, window: Window, positions: Array | None) -> Array:
    """(positions, kernel area, channels): the windows at flat positions of (batch, steps, steps), zero where they reach outside."""
    chosen = np.arange(values.shape[0] * window.steps[0] * window.steps[1]) if positions is None else positions
    batch, *starts = np.unravel_index(chosen, (values.shape[0], *window.steps))
    taps = np.indices(window.kernel).reshape(2, -1)
    places = []
    inside = np.ones((chosen.size, taps.shape[1]), bool)
    for axis in range(2):
        first = starts[axis] * window.stride[axis] - window.before[axis]
        at = first[:, None] + taps[axis] * window.dilation[axis]
        last = values.shape[1 + axis] - 1
        inside &= (at >= 0) & (at <= last)
        places.append(np.clip(at, 0, last))
    patches = values[batch[:, None], places[0], places[1]]
    patches[~inside] = 0
    return np.asarray(patches)
