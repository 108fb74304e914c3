"""Multiply-accumulates against counts made by hand, and never a 0 where the file does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tiny_models import TinyTflite, conv_onnx, float_conv_tflite, onnx_model, shared

from edgekit.intake import macs_onnx, macs_tflite, tflite
from edgekit.intake.inspect import inspect_model
from edgekit.intake.macs import MacCount
from edgekit.intake.onnx_reader import read_onnx
from edgekit.intake.onnx_shapes import value_infos


def of_onnx(model: Any) -> MacCount:
    return macs_onnx.count_macs(model, value_infos(model))


def one_node(
    kind: str, shapes: list[list[Any]], out: list[Any] | None = None, domain: str = "", **attributes: Any
) -> MacCount:
    names = [f"i{index}" for index in range(len(shapes))]
    node = helper.make_node(kind, names, ["y"], name="it", domain=domain, **attributes)
    return of_onnx(onnx_model([node], dict(zip(names, shapes, strict=True)), {"y": out}))


def of_tflite(model: Any) -> MacCount:
    model = tflite.read(tflite.serialize(model))
    graphs = [tflite.graph(model, subgraph=number) for number in range(len(model.subgraphs))]
    return macs_tflite.count_macs(graphs)


def one_operator(kind: str, shapes: list[Any], out: list[int], **options: Any) -> MacCount:
    """``shapes`` of the inputs; None for one that is not given."""
    tiny = TinyTflite()
    inputs = [-1 if shape is None else tiny.tensor(f"i{index}", shape) for index, shape in enumerate(shapes)]
    y = tiny.tensor("y", out)
    tiny.operator(kind, inputs, [y], **options)
    return of_tflite(tiny.model(tiny.graph([index for index in inputs if index >= 0], [y])))


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "by_hand"),
    [
        ("Conv", [[1, 3, 8, 8], [4, 3, 3, 3]], {"pads": [1, 1, 1, 1]}, 4 * 8 * 8 * 3 * 9),
        ("Conv", [[2, 3, 8, 8], [4, 3, 3, 3]], {"strides": [2, 2]}, 2 * 4 * 3 * 3 * 3 * 9),  # (8 - 3) // 2 + 1 = 3
        ("Conv", [[1, 6, 8, 8], [6, 1, 5, 5]], {"group": 6, "pads": [2, 2, 2, 2]}, 6 * 8 * 8 * 25),  # depthwise
        ("Conv", [[1, 8, 4, 4], [4, 2, 1, 1]], {"group": 4}, 4 * 4 * 4 * 2),  # grouped: 2 of 8 channels each
        ("Conv", [[1, 3, 10], [5, 3, 4]], {}, 5 * 7 * 3 * 4),  # 1-D
        ("Conv", [[1, 2, 4, 4, 4], [3, 2, 2, 2, 2]], {}, 3 * 27 * 2 * 8),  # 3-D
        ("ConvTranspose", [[1, 4, 5, 5], [4, 6, 3, 3]], {"strides": [2, 2]}, 4 * 5 * 5 * 6 * 9),
        ("ConvTranspose", [[1, 4, 5, 5], [4, 1, 2, 2]], {"group": 4}, 4 * 5 * 5 * 1 * 4),
        ("Gemm", [[3, 7], [7, 5]], {}, 3 * 7 * 5),
        ("Gemm", [[7, 3], [5, 7]], {"transA": 1, "transB": 1}, 3 * 7 * 5),
        ("MatMul", [[3, 7], [7, 5]], {}, 3 * 7 * 5),
        ("MatMul", [[2, 4, 3, 7], [2, 4, 7, 5]], {}, 8 * 3 * 7 * 5),
        ("MatMul", [[2, 4, 3, 7], [7, 5]], {}, 8 * 3 * 7 * 5),  # broadcast
        ("MatMul", [[7], [7, 5]], {}, 7 * 5),
        ("MatMul", [[7], [7]], {}, 7),
        ("Einsum", [[2, 3, 4], [4, 5]], {"equation": "bij,jk->bik"}, 2 * 3 * 4 * 5),
        ("Einsum", [[2, 3, 4]], {"equation": "bij->bji"}, 0),
        ("Relu", [[1, 100]], {}, 0),
        ("MaxPool", [[1, 3, 8, 8]], {"kernel_shape": [2, 2]}, 0),
    ],
)
def test_onnx_operators(kind: str, shapes: list[list[int]], attributes: dict[str, Any], by_hand: int) -> None:
    count = one_node(kind, shapes, **attributes)
    assert (count.total, count.uncounted) == (by_hand, ())


@pytest.mark.parametrize(
    ("kind", "gates", "directions"), [("LSTM", 4, 1), ("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)]
)
def test_recurrent_onnx_operators(kind: str, gates: int, directions: int) -> None:
    steps, batch, features, hidden = 16, 2, 10, 8
    node = helper.make_node(
        kind, ["x", "w", "r"], ["y"], hidden_size=hidden, direction="bidirectional" if directions == 2 else "forward"
    )
    shapes: dict[str, Sequence[Any]] = {
        "x": [steps, batch, features],
        "w": [directions, gates * hidden, features],
        "r": [directions, gates * hidden, hidden],
    }
    count = of_onnx(onnx_model([node], shapes, {"y": None}))
    assert count.total == steps * batch * directions * gates * hidden * (features + hidden)


def test_whole_onnx_network_by_hand() -> None:
    count = of_onnx(conv_onnx())
    assert count.total == 6912 + 40
    assert count.by_operator == {"Conv": 6912, "Gemm": 40}


def test_open_sizes_are_unknown_with_the_reason() -> None:
    count = of_onnx(conv_onnx("batch"))
    assert (count.total, count.counted) == (None, 0)
    assert [(item.operator, item.reason) for item in count.uncounted] == [
        ("Conv", "the shape of its output 'c' is open: batchx4x8x8"),
        ("Gemm", "the shape of its input 'f' is open: batchx4"),
    ]


def test_operators_without_a_rule_make_the_total_unknown() -> None:
    foreign = one_node("GroupQueryAttention", [[1, 4]], [1, 4], domain="com.microsoft")
    assert foreign.total is None and foreign.uncounted[0].reason == "there is no rule for operators of com.microsoft"
    spectrum = one_node("DFT", [[1, 8, 1]], None)
    assert spectrum.total is None and "no rule for DFT" in spectrum.uncounted[0].reason


def test_loops_count_only_when_their_body_holds_nothing() -> None:
    def branch(kind: str) -> Any:
        node = helper.make_node(kind, ["x", "x"], ["o"])
        return helper.make_graph([node], kind, [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, [4, 4])])

    def model(other: str) -> Any:
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Add"), else_branch=branch(other))
        return onnx_model([node], {"c": [], "x": [4, 4]}, {"y": [4, 4]}, dtypes={"c": "bool"})

    assert of_onnx(model("Mul")).total == 0
    count = of_onnx(model("MatMul"))
    assert count.total is None and "how often" in count.uncounted[0].reason


def test_shapes_that_are_computed_in_the_graph_are_followed() -> None:
    """Flatten as PyTorch 1.x wrote it: Shape, Gather, Unsqueeze, Concat, Reshape, then a MatMul that needs the result."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "minus": np.array([-1]), "w": np.ones((48, 5), np.float32)}
    assert of_onnx(onnx_model(nodes, {"x": [2, 3, 4, 4]}, {"y": None}, constants)).total == 2 * 48 * 5


@pytest.mark.parametrize(
    ("kind", "shapes", "out", "options", "by_hand"),
    [
        ("CONV_2D", [(1, 8, 8, 3), (4, 3, 3, 3), (4,)], [1, 8, 8, 4], {}, 8 * 8 * 4 * 27),
        ("CONV_2D", [(1, 8, 8, 8), (4, 1, 1, 2), (4,)], [1, 8, 8, 4], {}, 8 * 8 * 4 * 2),  # four groups
        ("DEPTHWISE_CONV_2D", [(1, 8, 8, 6), (1, 5, 5, 6), (6,)], [1, 8, 8, 6], {}, 8 * 8 * 6 * 25),
        ("TRANSPOSE_CONV", [(4,), (6, 3, 3, 4), (1, 5, 5, 4)], [1, 11, 11, 6], {}, 5 * 5 * 4 * 6 * 9),
        ("CONV_3D", [(1, 4, 4, 4, 2), (2, 2, 2, 2, 3)], [1, 3, 3, 3, 3], {}, 27 * 3 * 16),
        ("FULLY_CONNECTED", [(5, 64), (10, 64), None], [5, 10], {}, 5 * 10 * 64),
        ("BATCH_MATMUL", [(8, 3, 7), (8, 7, 5)], [8, 3, 5], {}, 8 * 3 * 7 * 5),
        ("BATCH_MATMUL", [(8, 7, 3), (8, 7, 5)], [8, 3, 5], {"adjX": True}, 8 * 3 * 7 * 5),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", [(1, 16, 10), *[(8, 10)] * 4, *[(8, 8)] * 4], [1, 16, 8], {}, 16 * 4 * 8 * 18),
        ("UNIDIRECTIONAL_SEQUENCE_RNN", [(2, 16, 10), (8, 10), (8, 8)], [2, 16, 8], {}, 2 * 16 * 8 * 18),
        ("SVDF", [(2, 10), (8, 10), (8, 4)], [2, 8], {}, 2 * (80 + 32)),
        ("RELU", [(1, 8)], [1, 8], {}, 0),
    ],
)
def test_tflite_operators(kind: str, shapes: list[Any], out: list[int], options: dict[str, Any], by_hand: int) -> None:
    count = one_operator(kind, shapes, out, **options)
    assert (count.total, count.uncounted) == (by_hand, ())


def test_whole_tflite_network_by_hand() -> None:
    assert of_tflite(float_conv_tflite()).by_operator == {"CONV_2D": 1728, "FULLY_CONNECTED": 640}


def test_tflite_custom_operators_and_data_dependent_shapes() -> None:
    custom = one_operator("CUSTOM:FlexConv2D", [(1, 8)], [1, 8])
    assert custom.total is None and "custom operator" in custom.uncounted[0].reason
    tiny = TinyTflite()
    x = tiny.tensor("x", (4, 8))
    picked = tiny.tensor(
        "picked", (1, 8), signature=(-1, 8)
    )  # as many rows as the data say; the file's 1 is a placeholder
    weights, y = tiny.tensor("w", (3, 8)), tiny.tensor("y", (1, 3), signature=(-1, 3))
    tiny.operator("WHERE", [x], [picked])
    tiny.operator("FULLY_CONNECTED", [picked, weights, -1], [y])
    count = of_tflite(tiny.model(tiny.graph([x], [y])))
    assert count.total is None and "[-1, 3]" in count.uncounted[0].reason


def test_tflite_open_batch_counts_at_the_size_in_the_file() -> None:
    tiny = TinyTflite()
    x, weights = tiny.tensor("x", (1, 8), signature=(-1, 8)), tiny.tensor("w", (3, 8))
    y = tiny.tensor("y", (1, 3), signature=(-1, 3))
    tiny.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    assert of_tflite(tiny.model(tiny.graph([x], [y]))).total == 24


def test_called_graphs_and_graphs_that_call_themselves() -> None:
    def model(target: int) -> Any:
        tiny = TinyTflite()
        x, y = tiny.tensor("x", (1, 8)), tiny.tensor("y", (1, 3))
        tiny.operator("CALL", [x], [y], subgraph=target)
        main = tiny.graph([x], [y])
        inner, weights, result = tiny.tensor("i", (1, 8)), tiny.tensor("w", (3, 8)), tiny.tensor("o", (1, 3))
        tiny.operator("FULLY_CONNECTED", [inner, weights, -1], [result])
        return tiny.model(main, tiny.graph([inner, weights], [result]))

    assert of_tflite(model(1)).total == 24
    for target in (0, 7):
        assert of_tflite(model(target)).total is None


def efficientnet_lite0_by_its_table() -> int:
    """EfficientNet-Lite0 from its published architecture table: kernel, stride, expansion, channels, repeats of each stage."""
    size, channels = 112, 32
    total = size * size * channels * 3 * 9
    table = [
        (3, 1, 1, 16, 1),
        (3, 2, 6, 24, 2),
        (5, 2, 6, 40, 2),
        (3, 2, 6, 80, 3),
        (5, 1, 6, 112, 3),
        (5, 2, 6, 192, 4),
        (3, 1, 6, 320, 1),
    ]
    for kernel, stride, expansion, out, repeats in table:
        for repeat in range(repeats):
            middle = channels * expansion
            total += size * size * channels * middle if expansion > 1 else 0
            size //= stride if repeat == 0 else 1
            total += size * size * middle * (kernel * kernel + out)
            channels = out
    return total + size * size * 320 * 1280 + 1280 * 1000


def test_efficientnet_lite0_as_its_architecture_says() -> None:
    inspection = inspect_model(shared("models/efficientnet_lite0.onnx"))
    assert inspection.macs.total == efficientnet_lite0_by_its_table() == 385_187_552


def test_the_same_network_counts_the_same_in_both_formats() -> None:
    """MLPerf Tiny's DS-CNN by its architecture (25x5 maps, 64 channels), and one net that exists as ONNX and as TFLite."""
    int8 = inspect_model(shared("models/kws_ref_model.tflite"), run_interpreter=False)
    assert int8.macs.total == 125 * 64 * 10 * 4 + 4 * (125 * 64 * 9 + 125 * 64 * 64) + 64 * 12
    onnx = inspect_model(
        shared("models/basic_pitch_nmp.onnx"), input_shapes={"serving_default_input_2:0": (1, 43844, 1)}
    )
    lite = inspect_model(shared("models/basic_pitch_nmp.tflite"), run_interpreter=False)
    assert onnx.macs.total == lite.macs.total


def test_every_value_of_real_models_gets_its_shape() -> None:
    """Checked against what the runtime computes."""
    import onnx
    import onnxruntime

    path = shared("models/version-RFB-320_without_postprocessing.onnx")
    model = read_onnx(path)
    infos = value_infos(model)
    names = [name for node in model.graph.node for name in node.output]
    assert all(infos[name].static_shape is not None for name in names)
    watched = [name for name in names if infos[name].dtype == "float32"]
    existing = {info.name for info in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in watched if name not in existing)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(watched, {"input": np.zeros((1, 3, 240, 320), np.float32)})
    for name, value in zip(watched, values, strict=True):
        assert infos[name].static_shape == value.shape, name
