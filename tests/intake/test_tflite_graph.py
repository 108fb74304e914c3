"""The frozen view of a TFLite model says what the file says."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import TinyTflite, float_conv_tflite

from edgekit.errors import UnsupportedModelError
from edgekit.intake import tflite
from edgekit.runtime.backend import open_backend


def test_tensors_operators_and_their_connections() -> None:
    graph = tflite.graph(tflite.read(tflite.serialize(float_conv_tflite())))
    x, weights, _, conv, shape, flat, *_, y = graph.tensors
    assert (x.name, x.shape, x.dtype, x.is_constant, x.size_bytes, x.quant) == (
        "x",
        (1, 8, 8, 3),
        "float32",
        False,
        768,
        None,
    )
    assert (weights.is_constant, weights.size_bytes, weights.is_float) == (True, 432, True)
    assert (shape.dtype, shape.is_constant, shape.is_float) == ("int32", True, False)
    assert [(item.name, item.inputs, item.outputs) for item in graph.operators] == [
        ("CONV_2D", (0, 1, 2), (3,)),
        ("RESHAPE", (3, 4), (5,)),
        ("FULLY_CONNECTED", (5, 6, 7), (8,)),
    ]
    assert graph.operators[0].options.strideH == 2
    assert (graph.inputs, graph.outputs) == ((x.index,), (y.index,))
    assert graph.producers() == {conv.index: 0, flat.index: 1, y.index: 2}
    assert graph.consumers()[conv.index] == [1]


def test_quantisation_per_tensor_and_per_channel() -> None:
    tiny = TinyTflite()
    x = tiny.tensor("x", (1, 2), "int8", scale=0.5, zero_point=-3)
    weights = tiny.tensor("w", (3, 2), "int8", data=np.ones((3, 2), np.int8), scale=[0.1, 0.2, 0.3])
    y = tiny.tensor("y", (1, 3), "int8", scale=1.0)
    tiny.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    graph = tflite.graph(tflite.read(tflite.serialize(tiny.model(tiny.graph([x], [y])))))
    single, many = graph.tensors[x].quant, graph.tensors[weights].quant
    assert single is not None and (single.scales.tolist(), single.zero_points.tolist(), single.axis) == (
        [0.5],
        [-3],
        None,
    )
    assert many is not None and many.axis == 0 and many.zero_points.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(many.scales, np.array([0.1, 0.2, 0.3], np.float32))
    assert graph.operators[0].inputs == (x, weights, -1)
    assert graph.consumers() == {x: [0], weights: [0]}


def test_custom_and_flex_operators_are_named() -> None:
    tiny = TinyTflite()
    x, y, z = tiny.tensor("x", (1,)), tiny.tensor("y", (1,)), tiny.tensor("z", (1,))
    tiny.operator("CUSTOM:FlexErf", [x], [y])
    tiny.operator("CUSTOM:TFLite_Detection_PostProcess", [y], [z])
    tiny.operators[1].customOptions = np.frombuffer(b"flexbuffer", np.uint8)
    graph = tflite.graph(tflite.read(tflite.serialize(tiny.model(tiny.graph([x], [z])))))
    assert [item.name for item in graph.operators] == ["CUSTOM:FlexErf", "CUSTOM:TFLite_Detection_PostProcess"]
    assert all(item.is_custom for item in graph.operators)
    assert graph.operators[1].options == b"flexbuffer"


def test_a_constant_without_elements_is_a_constant() -> None:
    tiny = TinyTflite()
    x = tiny.tensor("x", (1,))
    scalar_shape = tiny.tensor("shape", (0,), "int32")
    y = tiny.tensor("y", ())
    tiny.operator("RESHAPE", [x, scalar_shape], [y])
    model = tflite.read(tflite.serialize(tiny.model(tiny.graph([x], [y]))))
    tensor = tflite.graph(model).tensors[scalar_shape]
    value = tflite.constant_value(model, tensor)
    assert tensor.is_constant and value is not None and value.shape == (0,) and value.dtype == np.int32
    assert tflite.constant_value(model, tflite.graph(model).tensors[x]) is None


@pytest.mark.parametrize(
    ("dtype", "stored", "expected"),
    [
        ("float16", np.array([1.5, -2], np.float16), [1.5, -2]),
        ("bool", np.array([1, 0], np.uint8), [True, False]),
        ("int64", np.array([2**40, -1], np.int64), [2**40, -1]),
        ("bfloat16", np.array([0x3FC0, 0xC000], np.uint16), [1.5, -2.0]),  # the upper halves of float32 1.5 and -2
        ("int2", bytes([0b10_01_00_11]), [-1, 0]),
        ("uint4", bytes([0x2F]), [15, 2]),
    ],
)
def test_values_of_constants(dtype: str, stored: object, expected: list[float]) -> None:
    tiny = TinyTflite()
    constant = tiny.tensor("c", (2,), dtype, data=stored)
    model = tflite.read(tflite.serialize(tiny.model(tiny.graph([], [constant]))))
    value = tflite.constant_value(model, tflite.graph(model).tensors[constant])
    assert value is not None and value.tolist() == expected


def test_int4_is_unpacked_as_the_interpreter_does() -> None:
    tiny = TinyTflite()
    packed = bytes([0x7F, 0x08, 0x03])  # five values, the last half byte empty
    constant = tiny.tensor("c", (5,), "int4", data=packed, scale=1.0)
    y = tiny.tensor("y", (5,))
    tiny.operator("DEQUANTIZE", [constant], [y])
    content = tflite.serialize(tiny.model(tiny.graph([], [y])))
    model = tflite.read(content)
    value = tflite.constant_value(model, tflite.graph(model).tensors[constant])
    with open_backend(content, threads=1) as backend:
        backend.invoke()
        truth = backend.get_output(0)
    assert value is not None and value.dtype == np.int8
    np.testing.assert_array_equal(value, truth)


def test_strings_and_sparse_data_are_refused_not_guessed() -> None:
    tiny = TinyTflite()
    text = tiny.tensor("text", (1,), "string", data=b"\1\0\0\0\x0c\0\0\0\x0d\0\0\0A")
    model = tflite.read(tflite.serialize(tiny.model(tiny.graph([], [text]))))
    with pytest.raises(UnsupportedModelError, match="string"):
        tflite.constant_value(model, tflite.graph(model).tensors[text])


def test_signatures_belong_to_their_graph() -> None:
    model = float_conv_tflite()
    schema = TinyTflite().schema
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    signature.inputs, signature.outputs = [schema.TensorMapT()], [schema.TensorMapT()]
    signature.inputs[0].name, signature.inputs[0].tensorIndex = "picture", 0
    signature.outputs[0].name, signature.outputs[0].tensorIndex = "scores", 8
    model.signatureDefs = [signature]
    found = tflite.graph(tflite.read(tflite.serialize(model))).signatures
    assert [(item.key, dict(item.inputs), dict(item.outputs)) for item in found] == [
        ("serving_default", {"picture": 0}, {"scores": 8})
    ]
