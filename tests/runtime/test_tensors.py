"""Quantising against values worked out by hand: integer = clip(round_half_even(x / scale) + zero_point)."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import DataError
from edgekit.runtime.tensors import QUANTIZED_DTYPES, dequantize, quantize


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point", "real", "integer"),
    [
        ("int8", 0.5, -1, [0.0, 1.0, -1.0, 1.2, 1.3], [-1, 1, -3, 1, 2]),
        ("int8", 0.5, -1, [0.25, 0.75, 1.25, -0.25], [-1, 1, 1, -1]),  # ties go to the even quotient: 0, 2, 2, 0
        ("int8", 0.5, -1, [64.0, 64.5, 1000.0, -63.5, -64.0, -1000.0], [127, 127, 127, -128, -128, -128]),
        ("uint8", 0.1, 128, [0.0, 1.0, -12.8, 12.7, 12.8, 99.0, -12.9, -99.0], [128, 138, 0, 255, 255, 255, 0, 0]),
        (
            "int16",
            0.001,
            0,
            [1.0, -1.0, 32.767, 32.768, 40.0, -32.768, -40.0],
            [1000, -1000, 32767, 32767, 32767, -32768, -32768],
        ),
        ("uint16", 1.0, 32768, [0.0, -32768.0, 32767.0, 1e6, -1e6], [32768, 0, 65535, 65535, 0]),
        ("int32", 0.25, 0, [0.5, -0.75, 1e12], [2, -3, 2147483647]),
    ],
)
def test_values_worked_out_by_hand(dtype: str, scale: float, zero_point: int, real: list, integer: list) -> None:  # type: ignore[type-arg]
    result = quantize(np.array(real, np.float32), scale=scale, zero_point=zero_point, dtype=dtype)
    assert result.dtype == dtype
    assert result.tolist() == integer


def test_infinities_take_the_ends_and_huge_numbers_do_not_wrap() -> None:
    x = np.array([np.inf, -np.inf, 3e38, -3e38, 1e300, -1e300])
    assert quantize(x, scale=0.01, zero_point=5, dtype="int8").tolist() == [127, -128, 127, -128, 127, -128]


def test_nan_is_refused_with_its_count() -> None:
    x = np.array([[1.0, np.nan], [np.nan, np.inf]], np.float32)
    with pytest.raises(DataError, match="2 of 4 input values are NaN"):
        quantize(x, scale=1.0, zero_point=0, dtype="int8")


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_of_a_float_tensor_is_refused(scale: float) -> None:
    with pytest.raises(DataError, match="positive"):
        quantize([1.0], scale=scale, zero_point=0, dtype="int8")
    with pytest.raises(DataError, match="positive"):
        dequantize(np.array([1], np.int8), scale=scale, zero_point=0)


def test_other_types_are_refused() -> None:
    with pytest.raises(DataError, match="float32"):
        quantize([1.0], scale=1.0, zero_point=0, dtype="float32")


def test_dequantize_by_hand() -> None:
    assert dequantize(np.array([-128, -1, 0, 127], np.int8), scale=0.5, zero_point=-1).tolist() == [
        -63.5,
        0.0,
        0.5,
        64.0,
    ]
    assert dequantize(np.array([0, 128, 255], np.uint8), scale=0.25, zero_point=128).tolist() == [-32.0, 0.0, 31.75]
    # 2^24 + 1 is no float32: the difference must be taken before.
    assert dequantize(np.array([16777217], np.int32), scale=1.0, zero_point=16777216).tolist() == [1.0]


@pytest.mark.parametrize("dtype", [name for name in QUANTIZED_DTYPES if name != "int32"])
def test_every_integer_comes_back(dtype: str) -> None:
    limits = np.iinfo(dtype)
    integers = np.arange(limits.min, limits.max + 1).astype(dtype)
    real = dequantize(integers, scale=0.037, zero_point=3)
    assert real.dtype == np.float32
    assert np.array_equal(quantize(real, scale=0.037, zero_point=3, dtype=dtype), integers)


def test_shapes_are_kept_and_the_caller_s_array_is_left_alone() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    assert quantize(x, scale=1.0, zero_point=0, dtype="int8").shape == (2, 0, 3)
    assert quantize(np.float32(2.0), scale=1.0, zero_point=0, dtype="int8").shape == ()
    y = np.ones(3, np.float32)
    quantize(y, scale=0.5, zero_point=1, dtype="int8")
    assert y.tolist() == [1.0, 1.0, 1.0]
    integers = np.array([3], np.int8)
    dequantize(integers, scale=0.5, zero_point=1)
    assert integers.tolist() == [3]
