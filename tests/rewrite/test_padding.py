"""PADV2 becomes PAD exactly where that is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from before_after import kinds, outputs_of, reread
from tiny_models import TinyTflite

from edgekit.rewrite import pad_for_max_pool, pad_with_zero

LOWEST = float(np.finfo(np.float32).min)
X = np.random.default_rng(4).normal(size=(1, 6, 6, 2)).astype(np.float32)


def padded_pool(
    before: str | None,
    *,
    pads: Any = 1,
    value: float = LOWEST,
    pool: str = "MAX_POOL_2D",
    filter_size: int = 3,
    padding: int = 1,
) -> Any:
    """``x`` (1,6,6,2), operator ``before`` (if any), PADV2 with ``value``, a pool of stride 2 to ``y``."""
    tiny = TinyTflite()
    around = np.zeros((4, 2), np.int32)
    around[1:3] = pads
    high = 6 + int(around[1].sum())
    size = (high - filter_size) // 2 + 1 if padding == 1 else (high + 1) // 2
    x = last = tiny.tensor("x", (1, 6, 6, 2))
    if before is not None:
        last = tiny.tensor("before", (1, 6, 6, 2))
        tiny.operator(before, [x], [last])
    amounts = tiny.tensor("pads", (4, 2), "int32", data=around)
    constant = tiny.tensor("value", (1,), data=np.float32([value]))
    wide = tiny.tensor("padded", (1, high, high, 2))
    y = tiny.tensor("y", (1, size, size, 2))
    tiny.operator("PADV2", [last, amounts, constant], [wide])
    tiny.operator(
        pool, [wide], [y], padding=padding, strideH=2, strideW=2, filterHeight=filter_size, filterWidth=filter_size
    )  # fmt: skip
    return reread(tiny.model(tiny.graph([x], [y])))


@pytest.mark.parametrize("before", ["RELU", "RELU6", "LOGISTIC", "ABS", "EXP"])
@pytest.mark.parametrize("pads", [1, [[0, 1], [1, 0]], 2], ids=["around", "uneven", "two"])
def test_behind_values_that_are_never_negative_zero_is_the_same(before: str, pads: Any) -> None:
    model = padded_pool(before, pads=pads)
    expected = outputs_of(model, X)[0]
    assert len(pad_for_max_pool.apply(model)) == 1
    model = reread(model)
    assert kinds(model) == [before, "PAD", "MAX_POOL_2D"]
    np.testing.assert_array_equal(outputs_of(model, X)[0], expected)


@pytest.mark.parametrize("before", [None, "TANH", "ELU"])
def test_values_that_may_be_negative_keep_their_padding(before: str | None) -> None:
    model = padded_pool(before)
    assert pad_for_max_pool.apply(model) == () and "PADV2" in kinds(model)
    # and rightly so: with zeros the answer would be another one
    assert (outputs_of(model, -np.abs(X) - 1)[0] != 0).all()


def test_a_window_of_padding_alone_is_left_as_it_is() -> None:
    model = padded_pool("RELU", pads=2, filter_size=2)
    assert outputs_of(model, X)[0].min() == LOWEST
    assert pad_for_max_pool.apply(model) == ()


@pytest.mark.parametrize(
    "given", [{"value": -100.0}, {"pool": "AVERAGE_POOL_2D"}, {"padding": 0}], ids=["a value", "another pool", "same"]
)  # fmt: skip
def test_other_padding_is_left_as_it_is(given: dict[str, Any]) -> None:
    assert pad_for_max_pool.apply(padded_pool("RELU", **given)) == ()


def test_padding_that_something_else_reads_too_is_left_as_it_is() -> None:
    model = padded_pool("RELU")
    model.subgraphs[0].outputs = [*model.subgraphs[0].outputs, 4]  # "padded"
    assert pad_for_max_pool.apply(reread(model)) == ()


def two_branches(first: str, second: str, joined: str) -> Any:
    """Two branches joined, then the padded pool."""
    tiny = TinyTflite()
    x, a, b = (tiny.tensor(name, (1, 6, 6, 2)) for name in ("x", "a", "b"))
    depth = 4 if joined == "CONCATENATION" else 2
    c, wide, y = (tiny.tensor(n, (1, s, s, depth)) for n, s in (("c", 6), ("wide", 8), ("y", 3)))
    amounts = tiny.tensor("pads", (4, 2), "int32", data=np.int32([[0, 0], [1, 1], [1, 1], [0, 0]]))
    constant = tiny.tensor("value", (1,), data=np.float32([LOWEST]))
    tiny.operator(first, [x], [a])
    tiny.operator(second, [x], [b])
    tiny.operator(joined, [a, b], [c], **({"axis": 3} if joined == "CONCATENATION" else {}))
    tiny.operator("PADV2", [c, amounts, constant], [wide])
    tiny.operator("MAX_POOL_2D", [wide], [y], padding=1, strideH=2, strideW=2, filterHeight=3, filterWidth=3)
    return reread(tiny.model(tiny.graph([x], [y])))


@pytest.mark.parametrize("joined", ["ADD", "MUL", "CONCATENATION"])
def test_branches_are_followed_each(joined: str) -> None:
    both = two_branches("RELU", "LOGISTIC", joined)
    expected = outputs_of(both, X)[0]
    assert len(pad_for_max_pool.apply(both)) == 1
    np.testing.assert_array_equal(outputs_of(reread(both), X)[0], expected)
    assert pad_for_max_pool.apply(two_branches("RELU", "TANH", joined)) == ()


@pytest.mark.parametrize("pool", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_padv2_with_zero_is_pad(pool: str) -> None:
    model = padded_pool("TANH", value=0.0, pool=pool)
    expected = outputs_of(model, X)[0]
    assert pad_with_zero.apply(model) == ("'padded': PADV2 with 0 is PAD",)
    model = reread(model)
    assert kinds(model) == ["TANH", "PAD", pool]
    np.testing.assert_array_equal(outputs_of(model, X)[0], expected)


def test_padv2_with_another_value_is_left_as_it_is() -> None:
    assert pad_with_zero.apply(padded_pool("TANH", value=0.5)) == ()
