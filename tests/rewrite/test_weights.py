"""Stored weights become float32: against numpy's own arithmetic and against the interpreter's DEQUANTIZE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from before_after import kinds, outputs_of, reread
from tiny_models import TinyTflite

from edgekit.errors import UnsupportedModelError
from edgekit.intake import tflite
from edgekit.rewrite import dequantise_weights, fold_dequantize, prune

X = np.random.default_rng(1).normal(size=(1, 6)).astype(np.float32)
INTEGERS = np.random.default_rng(2).integers(-127, 128, (4, 6)).astype(np.int8)


def dense(tiny: TinyTflite, weights: int) -> Any:
    """``x`` (1,6) through a dense layer with ``weights`` (4,6) to ``y`` (1,4)."""
    x, y = tiny.tensor("x", (1, 6)), tiny.tensor("y", (1, 4))
    tiny.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    return tiny.model(tiny.graph([x], [y]))


def dequantized(tiny: TinyTflite, shape: tuple[int, ...], dtype: str, **given: Any) -> int:
    """A constant behind a DEQUANTIZE; the index of the float tensor."""
    stored, floats = tiny.tensor("stored", shape, dtype, **given), tiny.tensor("floats", shape)
    tiny.operator("DEQUANTIZE", [stored], [floats])
    return floats


def test_float16_weights_are_folded_exactly() -> None:
    tiny = TinyTflite()
    halves = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float16)
    model = reread(dense(tiny, dequantized(tiny, (4, 6), "float16", data=halves)))
    before = outputs_of(model, X)[0]
    assert fold_dequantize.apply(model) == ("1 float16 constants are float32 constants now",)
    prune.apply(model)
    model = reread(model)
    assert kinds(model) == ["FULLY_CONNECTED"]
    assert {tensor.dtype for tensor in tflite.graph(model).tensors} == {"float32"}
    after = outputs_of(model, X)[0]
    np.testing.assert_array_equal(after, before)
    np.testing.assert_allclose(after, X @ halves.astype(np.float32).T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("scale", "zero_point"), [(0.02, 0), (0.05, 7)])
def test_weight_only_integers_are_folded(scale: float, zero_point: int) -> None:
    tiny = TinyTflite()
    floats = dequantized(tiny, (4, 6), "int8", data=INTEGERS, scale=scale, zero_point=zero_point)
    model = reread(dense(tiny, floats))
    before = outputs_of(model, X)[0]
    fold_dequantize.apply(model)
    np.testing.assert_allclose(outputs_of(model, X)[0], before, rtol=1e-6)
    meant = np.float32(scale) * (INTEGERS.astype(np.float32) - zero_point)
    np.testing.assert_allclose(outputs_of(model, X)[0], X @ meant.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scales", [0.02, np.float32([0.01, 0.02, 0.5, 0.003])], ids=["per tensor", "per channel"])
def test_dynamic_range_weights_are_what_they_say(scales: Any) -> None:
    tiny = TinyTflite()
    model = reread(dense(tiny, tiny.tensor("w", (4, 6), "int8", data=INTEGERS, scale=scales)))
    assert [tensor.name for tensor in dequantise_weights.weights(tflite.graph(model))] == ["w"]
    meant = (np.resize(np.float32(scales), 4)[:, None] * INTEGERS.astype(np.float32)).astype(np.float32)
    spelled_out = reread(model)
    dequantise_weights.spell_out(spelled_out)
    assert dequantise_weights.apply(model) == ("1 int8 weights are float32 weights now",)
    prune.apply(model)
    model = reread(model)
    assert kinds(model) == ["FULLY_CONNECTED"] and kinds(spelled_out) == ["DEQUANTIZE", "FULLY_CONNECTED"]
    np.testing.assert_array_equal(outputs_of(model, X)[0], outputs_of(reread(spelled_out), X)[0])
    np.testing.assert_allclose(outputs_of(model, X)[0], X @ meant.T, rtol=1e-5, atol=1e-5)
    stored = next(tensor for tensor in tflite.graph(model).tensors if tensor.name == "w")
    np.testing.assert_array_equal(tflite.constant_value(model, stored), meant)
    assert stored.quant is None


def test_a_buffer_that_two_tensors_share_serves_both() -> None:
    tiny = TinyTflite()
    first = tiny.tensor("w1", (4, 6), "int8", data=INTEGERS, scale=0.02)
    second = tiny.tensor("w2", (4, 6), "int8", scale=0.5)
    tiny.tensors[second].buffer = tiny.tensors[first].buffer
    x, y, z = tiny.tensor("x", (1, 6)), tiny.tensor("y", (1, 4)), tiny.tensor("z", (1, 4))
    tiny.operator("FULLY_CONNECTED", [x, first, -1], [y])
    tiny.operator("FULLY_CONNECTED", [x, second, -1], [z])
    model = reread(tiny.model(tiny.graph([x], [y, z])))
    dequantise_weights.apply(model)
    one, other = outputs_of(model, X)
    np.testing.assert_allclose(other, one * 25, rtol=1e-5)


def test_a_scheme_that_scales_do_not_describe_is_refused() -> None:
    tiny = TinyTflite()
    weights = tiny.tensor("w", (4, 6), "int8", data=INTEGERS, scale=0.02)
    tiny.tensors[weights].quantization.detailsType = tiny.schema.QuantizationDetails.CustomQuantization
    tiny.tensors[weights].quantization.details = tiny.schema.CustomQuantizationT()
    model = reread(dense(tiny, weights))
    with pytest.raises(UnsupportedModelError, match="'w'.*custom"):
        dequantise_weights.apply(model)


def test_a_float_model_has_no_such_weights() -> None:
    tiny = TinyTflite()
    model = dense(tiny, tiny.tensor("w", (4, 6), data=np.ones((4, 6), np.float32)))
    assert dequantise_weights.weights(tflite.graph(model)) == ()
    assert dequantise_weights.apply(model) == () and fold_dequantize.apply(model) == ()
