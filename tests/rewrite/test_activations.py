"""Stand-alone activations become part of an operator, and no value changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from before_after import kinds, outputs_of, reread
from tiny_models import TinyTflite

from edgekit.rewrite import clip_by_relu6, fuse_activations

ACTIVATIONS = ["RELU", "RELU6", "RELU_N1_TO_1"]
X = np.random.default_rng(3).normal(scale=5.0, size=(1, 4, 6)).astype(np.float32)


def formula(activation: str, values: Any) -> Any:
    """By the definition."""
    low, high = {"RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}[activation]
    return np.clip(values, low, high).astype(np.float32)


def sum_and_activation(
    activation: str, *, before: str = "ADD", view: str | None = None, read_twice: bool = False
) -> Any:
    """``x`` (1,4,6) and a constant of 0.5 by ``before``, an optional view, the activation to ``y``; ``read_twice``: the sum is a result too."""
    tiny = TinyTflite()
    x, half = tiny.tensor("x", (1, 4, 6)), tiny.tensor("half", (1,), data=np.float32([0.5]))
    total = last = tiny.tensor("total", (1, 4, 6))
    tiny.operator(before, [x, half], [total])
    shape = (1, 4, 6)
    if view is not None:
        shape = (1, 6, 4) if view == "TRANSPOSE" else (1, 24, 1)
        how = tiny.tensor("how", (3,), "int32", data=np.int32([0, 2, 1] if view == "TRANSPOSE" else shape))
        last = tiny.tensor("viewed", shape)
        tiny.operator(view, [total, how], [last])
    y = tiny.tensor("y", shape)
    tiny.operator(activation, [last], [y])
    return reread(tiny.model(tiny.graph([x], [y, total] if read_twice else [y])))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("before", "expected"), [("ADD", X + np.float32(0.5)), ("MUL", X * np.float32(0.5)), ("SUB", X - np.float32(0.5))]
)
def test_fused_into_the_operator_before(activation: str, before: str, expected: Any) -> None:
    model = sum_and_activation(activation, before=before)
    assert len(fuse_activations.apply(model)) == 1
    model = reread(model)
    assert kinds(model) == [before]
    np.testing.assert_array_equal(outputs_of(model, X)[0], formula(activation, expected))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("view", ["TRANSPOSE", "RESHAPE"])
def test_fused_across_a_view(activation: str, view: str) -> None:
    model = sum_and_activation(activation, view=view)
    expected = outputs_of(model, X)[0]
    fuse_activations.apply(model)
    model = reread(model)
    assert kinds(model) == ["ADD", view]
    np.testing.assert_array_equal(outputs_of(model, X)[0], expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("before", ["ADD", "TANH", "DIV"])
def test_where_it_cannot_be_fused_a_product_has_it(activation: str, before: str) -> None:
    """The sum has another reader; a hyperbolic tangent has no activation; a quotient none that every runtime clamps."""
    read_twice = before == "ADD"
    if before == "TANH":
        tiny = TinyTflite()
        x, t, y = tiny.tensor("x", X.shape), tiny.tensor("t", X.shape), tiny.tensor("y", X.shape)
        tiny.operator("TANH", [x], [t])
        tiny.operator(activation, [t], [y])
        model = reread(tiny.model(tiny.graph([x], [y])))
    else:
        model = sum_and_activation(activation, before=before, read_twice=read_twice)
    expected = outputs_of(model, X)
    assert "product with 1" in fuse_activations.apply(model)[0]
    model = reread(model)
    assert kinds(model) == [before, "MUL"]
    for result, value in zip(outputs_of(model, X), expected, strict=True):
        np.testing.assert_array_equal(result, value)


def test_an_activation_on_an_activation() -> None:
    """The second must not replace the first: relu6(relu_n1_to_1(x)) is neither."""
    tiny = TinyTflite()
    x, half = tiny.tensor("x", X.shape), tiny.tensor("half", (1,), data=np.float32([0.5]))
    tensors = [tiny.tensor(name, X.shape) for name in ("total", "first", "y")]
    tiny.operator("ADD", [x, half], tensors[:1])
    tiny.operator("RELU_N1_TO_1", tensors[:1], tensors[1:2])
    tiny.operator("RELU6", tensors[1:2], tensors[2:])
    model = reread(tiny.model(tiny.graph([x], tensors[2:])))
    assert len(fuse_activations.apply(model)) == 2
    model = reread(model)
    assert kinds(model) == ["ADD", "MUL"]
    np.testing.assert_array_equal(outputs_of(model, X)[0], np.clip(X + np.float32(0.5), 0, 1))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_of_an_input(activation: str) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", X.shape), tiny.tensor("y", X.shape)
    tiny.operator(activation, [x], [y])
    model = reread(tiny.model(tiny.graph([x], [y])))
    fuse_activations.apply(model)
    model = reread(model)
    assert kinds(model) == ["MUL"]
    np.testing.assert_array_equal(outputs_of(model, X)[0], formula(activation, X))


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_clip_to_one_by_relu6(scale: float) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", X.shape), tiny.tensor("y", X.shape)
    tiny.operator("RELU_0_TO_1", [x], [y])
    model = reread(tiny.model(tiny.graph([x], [y])))
    assert len(clip_by_relu6.apply(model)) == 1
    model = reread(model)
    assert kinds(model) == ["MUL", "MUL"]
    values = (X * scale).astype(np.float32)
    np.testing.assert_allclose(outputs_of(model, values)[0], np.clip(values, 0, 1), rtol=clip_by_relu6.ULP, atol=0)
