"""Biases that do not fit into 32 bits: found in the quantised file and repaired.

A bias is stored in units of (input scale x weight scale). Where the weights of a channel are almost zero (a channel that training
switched off), that unit is so small that the bias exceeds the integer; litert-quantizer 0.11 then stores the lowest integer, of the
wrong sign for every positive bias. The remedy is to let the bias choose the weight scale of that channel: its weights, which hardly
count, lose bits, and the bias is exact again. (The TFLite converter limits weight scales for the same reason.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite

LARGEST = 2.0**29
"""Largest bias after the repair: a quarter of the range, which leaves room for the sum that is added to it."""
WITH_BIAS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
"""Operators with an int32 bias, and the axis of their weights that is the output channel."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Repair:
    """Channels of one operator whose weight scale was raised so that their biases fit."""

    bias: str
    channels: tuple[int, ...]


@dataclass(frozen=True)
class _Layer:
    """The parts of one quantised layer with the float values that they stand for."""

    weights: tflite.Tensor
    bias: tflite.Tensor
    input_scale: float
    float_weights: Array
    float_bias: Array
    axis: int


def repair(int8_path: Path, float_path: Path) -> tuple[Repair, ...]:
    """Raise weight scales in ``int8_path`` (rewritten in place) wherever a bias of ``float_path`` does not fit; what was done.

    Tensors are found by name, which the quantiser keeps. A layer whose weights another layer uses too is left alone; the audit
    counts what remains.
    """
    model, source = tflite.read(int8_path), tflite.read(float_path)
    repairs = []
    for layer in _layers(model, source):
        channels = _overflowing(layer)
        if channels.size:
            _rescale(model, layer, channels)
            repairs.append(Repair(layer.bias.name, tuple(int(c) for c in channels)))
    if repairs:
        tflite.write(model, int8_path)
    return tuple(repairs)


def saturated(model: tflite.ModelT) -> int:
    """How many stored biases of ``model`` stand at an end of the 32-bit range: none does in a sound file."""
    count = 0
    graph = tflite.graph(model)
    for operator in graph.operators:
        position = _bias_position(operator)
        if position is not None:
            values = tflite.constant_value(model, graph.tensors[operator.inputs[position]])
            if values is not None and values.dtype == np.int32:
                limits = np.iinfo(np.int32)
                count += int(np.count_nonzero((values == limits.min) | (values == limits.max)))
    return count


def _bias_position(operator: tflite.Operator) -> int | None:
    """Where the bias stands among the inputs; None for operators without one."""
    if operator.name not in WITH_BIAS:
        return None
    position = 3 if operator.name == "TRANSPOSE_CONV" else 2
    return position if len(operator.inputs) > position and operator.inputs[position] >= 0 else None


def _layers(model: tflite.ModelT, source: tflite.ModelT) -> list[_Layer]:
    graph, float_graph = tflite.graph(model), tflite.graph(source)
    originals = {tensor.name: tensor for tensor in float_graph.tensors}
    uses: dict[int, int] = {}
    for operator in graph.operators:
        for index in operator.inputs:
            uses[index] = uses.get(index, 0) + 1
    layers = []
    for operator in graph.operators:
        position = _bias_position(operator)
        if position is None or any(uses[operator.inputs[i]] > 1 for i in (1, position)):
            continue
        data = graph.tensors[operator.inputs[2 if operator.name == "TRANSPOSE_CONV" else 0]]
        weights, bias = graph.tensors[operator.inputs[1]], graph.tensors[operator.inputs[position]]
        if bias.dtype != "int32" or weights.dtype != "int8" or data.quant is None or weights.quant is None:
            continue
        floats = [
            tflite.constant_value(source, originals[t.name]) if t.name in originals else None for t in (weights, bias)
        ]
        if floats[0] is not None and floats[1] is not None:
            scale = float(data.quant.scales[0])
            layers.append(_Layer(weights, bias, scale, floats[0], floats[1], WITH_BIAS[operator.name]))
    return layers


def _overflowing(layer: _Layer) -> Array:
    """Output channels whose bias exceeds the 32-bit range in units of (input scale x weight scale)."""
    assert layer.weights.quant is not None
    unit = layer.input_scale * layer.weights.quant.scales.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.abs(layer.float_bias.astype(np.float64)) / unit
    return np.flatnonzero(wanted > np.iinfo(np.int32).max)


def _rescale(model: tflite.ModelT, layer: _Layer, channels: Array) -> None:
    assert layer.weights.quant is not None
    tensors, buffers = model.subgraphs[0].tensors, model.buffers
    weights_t, bias_t = tensors[layer.weights.index], tensors[layer.bias.index]
    scales = layer.weights.quant.scales.astype(np.float64)
    if scales.size == 1:  # one scale for all channels: the largest bias decides for all
        channels = np.arange(layer.float_bias.size)
        scales = np.full(1, np.abs(layer.float_bias.astype(np.float64)).max() / (layer.input_scale * LARGEST))
    else:
        scales[channels] = np.abs(layer.float_bias[channels].astype(np.float64)) / (layer.input_scale * LARGEST)
    stored = scales.astype(np.float32)
    by_channel = np.broadcast_to(stored.astype(np.float64), layer.float_bias.shape)
    bias = np.rint(layer.float_bias.astype(np.float64) / (layer.input_scale * by_channel))
    new_bias = np.frombuffer(bytes(buffers[bias_t.buffer].data), np.int32).copy()
    new_bias[channels] = bias[channels].astype(np.int32)
    integers = np.frombuffer(bytes(buffers[weights_t.buffer].data), np.int8).reshape(layer.weights.shape).copy()
    view, floats = np.moveaxis(integers, layer.axis, 0), np.moveaxis(layer.float_weights, layer.axis, 0)
    for channel in channels:
        view[channel] = np.clip(np.rint(floats[channel] / by_channel[channel]), -127, 127).astype(np.int8)
    buffers[weights_t.buffer].data = np.frombuffer(integers.tobytes(), np.uint8)
    buffers[bias_t.buffer].data = np.frombuffer(new_bias.tobytes(), np.uint8)
    weights_t.quantization.scale = stored
    bias_t.quantization.scale = (layer.input_scale * stored.astype(np.float64)).astype(np.float32)
