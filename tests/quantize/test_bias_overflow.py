"""A channel with almost no weights and a real bias: the bias must survive quantisation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgekit import flow
from edgekit.calibrate.ranges import Ranges
from edgekit.intake import frontends, tflite
from edgekit.quantize import bias, litert, recipe
from edgekit.values import to_json

BIAS = 0.75


def network(path: Path) -> None:
    """conv (channel 1: weights of 1e-9, bias 0.75), then a 1x1 conv that adds both channels: the bias is half of the answer."""
    generator = np.random.default_rng(5)
    first = generator.normal(0, 0.5, (2, 1, 3, 3)).astype(np.float32)
    first[1] = 1e-9 * first[1]
    weights = {
        "w1": first,
        "b1": np.array([0.1, BIAS], np.float32),
        "w2": np.array([[[[0.5]], [[1.0]]], [[[-0.5]], [[1.0]]]], np.float32),
        "b2": np.zeros(2, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["h"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"], ["y"], kernel_shape=[1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 8, 8])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[flow.ConvertResult, NDArray[Any]]:
    """The bundle, and the data that went in."""
    if not frontends.installed():
        pytest.skip("no front end is installed: edgekit frontend add onnx2tf")
    folder = tmp_path_factory.mktemp("bias")
    network(folder / "net.onnx")
    data = np.random.default_rng(6).normal(0, 1, (80, 1, 8, 8)).astype(np.float32)
    np.save(folder / "data.npy", data)
    whole = recipe.load("full-int8")
    assert whole.corrections is not None  # equalisation would multiply the channel, and its bias with it
    as_it_is = replace(whole, corrections=replace(whole.corrections, equalise="off"))
    request = flow.ConvertRequest(
        model=folder / "net.onnx",
        data=str(folder / "data.npy"),
        out=folder / "net.bundle",
        recipe=as_it_is,
    )
    return flow.convert(request), data


def test_a_bias_above_32_bits_is_repaired(converted: tuple[flow.ConvertResult, NDArray[Any]]) -> None:
    result, _ = converted
    repairs = result.manifest["repairs"]["bias_overflow"]
    assert [repair["channels"] for repair in repairs] == [[1]]
    assert result.manifest["verification"]["audit"]["saturated_biases"] == 0
    stored = tflite.read(result.bundle / "model.tflite")
    graph = tflite.graph(stored)
    convolution = next(op for op in graph.operators if op.name in ("CONV_2D", "DEPTHWISE_CONV_2D"))
    tensor = graph.tensors[convolution.inputs[2]]
    values = tflite.constant_value(stored, tensor)
    assert values is not None and tensor.quant is not None
    assert values[1] * tensor.quant.scales[1] == pytest.approx(BIAS, rel=1e-6)


def test_the_answer_keeps_what_the_bias_says(converted: tuple[flow.ConvertResult, NDArray[Any]]) -> None:
    result, _ = converted
    (output,) = result.manifest["verification"]["int8"]["outputs"]
    assert output["sqnr_db"] > 30  # without the repair the constant 0.75 is lost: 1.2 dB was measured


def test_the_engine_alone_gets_it_wrong(converted: tuple[flow.ConvertResult, NDArray[Any]], tmp_path: Path) -> None:
    """The fault that the repair is for; should a newer engine do it right, this says so and the repair can go."""
    result, _ = converted
    ranges = {name: (r["min"], r["max"]) for name, r in result.manifest["calibration"]["ranges"].items()}
    raw = litert.quantize(result.bundle / "float.tflite", Ranges(ranges, 40, {}), work=tmp_path)
    assert bias.saturated(tflite.read(raw)) == 1
    repairs = bias.repair(raw, result.bundle / "float.tflite")
    assert to_json(repairs) == result.manifest["repairs"]["bias_overflow"]
    assert bias.saturated(tflite.read(raw)) == 0
    assert bias.repair(raw, result.bundle / "float.tflite") == ()
