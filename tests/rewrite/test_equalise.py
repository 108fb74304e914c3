"""Equalisation: the same network bit for bit, with channels of like ranges, and hands off what would change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from before_after import outputs_of
from numpy.typing import NDArray
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.rewrite import equalise

NONE, RELU, RELU6 = 0, 1, 3
UNLIKE = np.array([1.0, 0.1, 0.01, 3.0], np.float32)


def normal(*shape: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def network(
    activation: int = RELU, *, between: tuple[str, ...] = (), reader: str = "CONV_2D", second: bool = False
) -> Any:
    """``x`` 1x6x6x2, a convolution to ``h`` with four channels of unlike ranges, ``between``, and a reader to ``y``."""
    tiny = TinyTflite()
    x = tiny.tensor("x", (1, 6, 6, 2))
    w = tiny.tensor("w", (4, 3, 3, 2), data=normal(4, 3, 3, 2, seed=1) * UNLIKE[:, None, None, None])
    b = tiny.tensor("b", (4,), data=normal(4, seed=2) * UNLIKE)
    h = tiny.tensor("h", (1, 6, 6, 4))
    tiny.operator("CONV_2D", [x, w, b], [h], padding=0, strideH=1, strideW=1, fusedActivationFunction=activation)
    at, size = h, 6
    for kind in between:
        if kind == "PAD":
            size += 2
            pads = tiny.tensor("pads", (4, 2), "int32", data=np.int32([[0, 0], [1, 1], [1, 1], [0, 0]]))
            at, before = tiny.tensor("padded", (1, size, size, 4)), at
            tiny.operator("PAD", [before, pads], [at])
        else:
            size //= 2
            at, before = tiny.tensor(kind, (1, size, size, 4)), at
            tiny.operator(kind, [before], [at], padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2)
    outputs = []
    for number in range(2 if second else 1):
        channels = 4 if reader == "DEPTHWISE_CONV_2D" else 5
        shape = (1, 3, 3, 4) if reader == "DEPTHWISE_CONV_2D" else (5, 3, 3, 4)
        v = tiny.tensor(f"v{number}", shape, data=normal(*shape, seed=3 + number))
        c = tiny.tensor(f"c{number}", (channels,), data=normal(channels, seed=5))
        outputs.append(tiny.tensor(f"y{number}", (1, size, size, channels)))
        options = {"depthMultiplier": 1} if reader == "DEPTHWISE_CONV_2D" else {}
        tiny.operator(reader, [at, v, c], [outputs[-1]], padding=0, strideH=1, strideW=1, **options)
    return tiny.model(tiny.graph([x], outputs))


def hidden(model: Any, x: NDArray[Any]) -> NDArray[Any]:
    """The largest magnitude of each channel of ``h``."""
    graph = tflite.read(tflite.serialize(model))
    graph.subgraphs[0].outputs = [next(t.index for t in tflite.graph(graph).tensors if t.name == "h")]
    return np.abs(outputs_of(graph, x)[0]).max(axis=(0, 1, 2))


@pytest.mark.parametrize("exponent", [0.5, 1.0])
@pytest.mark.parametrize("reader", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize(
    "between", [(), ("PAD",), ("MAX_POOL_2D",), ("AVERAGE_POOL_2D",), ("PAD", "MAX_POOL_2D")], ids="-".join
)
@pytest.mark.parametrize("activation", [NONE, RELU])
def test_the_same_bit_for_bit(activation: int, between: tuple[str, ...], reader: str, exponent: float) -> None:
    model = network(activation, between=between, reader=reader, second=True)
    x = normal(1, 6, 6, 2, seed=9)
    before, reach = outputs_of(model, x), hidden(model, x)
    (said,) = equalise.apply(model, {"h": reach}, exponent=exponent)
    assert "'h'" in said
    for one, other in zip(before, outputs_of(model, x), strict=True):
        assert np.array_equal(one, other)
    after = hidden(model, x)
    assert after.max() == reach.max() and after.max() / after.min() < reach.max() / reach.min()
    if exponent == 1.0:
        assert after.max() / after.min() <= max(2.0, reach.max() / reach.min() / 64 * 1.5)


def test_relu6_does_not_scale_and_is_left_alone() -> None:
    model = network(RELU6)
    assert equalise.junctions(model) == ()
    assert equalise.apply(model, {"h": np.array([1.0, 6.0, 2.0, 0.1])}, exponent=1.0) == ()


def test_what_is_read_by_others_too_is_left_alone() -> None:
    model = network()
    h = next(t.index for t in tflite.graph(model).tensors if t.name == "h")
    model.subgraphs[0].outputs = [*model.subgraphs[0].outputs, h]
    assert equalise.junctions(model) == ()


def test_weights_that_two_layers_share_are_left_alone() -> None:
    model = network(second=True)
    readers = list(model.subgraphs[0].operators[1:])
    readers[1].inputs[1] = readers[0].inputs[1]
    assert equalise.junctions(model) == ()


def test_factors_are_powers_of_two_and_a_silent_channel_keeps_its_own() -> None:
    model = network()
    before = tflite.constant_value(model, tflite.graph(model).tensors[1])
    assert before is not None
    before = before.copy()
    equalise.apply(model, {"h": np.array([8.0, 1.0, 0.0, 0.001])}, exponent=1.0)
    after = tflite.constant_value(model, tflite.graph(model).tensors[1])
    assert after is not None
    factors = (after / before).reshape(4, -1)
    assert np.array_equal(factors, np.repeat([[1.0], [8.0], [1.0], [64.0]], factors.shape[1], axis=1))
