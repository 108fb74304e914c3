"""O18: the wrapper quantises itself: every honest form of the same input gives the same answer, and a doubtful one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import DataError
from edgekit.runtime import Model
from edgekit.runtime.tensors import quantize

MODELS = Path(__file__).resolve().parents[1] / "runtime" / "models"
W = np.array([[1, 2, -1, 0], [0.5, 0, 0, 3], [-2, 0.25, 1, 1]])
B = np.array([1, -2, 0.5])
OUTPUT_STEP = 1.0


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.open(MODELS / "dense_int8.tflite", threads=1)


def real(x: Any) -> Any:
    return W @ np.asarray(x, np.float64).ravel() + B


def values(count: int = 40) -> Any:
    """On the input's grid of 0.5, so that quantising loses nothing."""
    return np.random.default_rng(1).integers(-16, 17, (count, 1, 4)) / 2


def test_every_accepted_form_gives_the_same_answer(model: Model) -> None:
    spec = model.inputs[0]
    assert spec.quant is not None
    for x in values():
        integers = quantize(x, scale=spec.quant.scale, zero_point=spec.quant.zero_point, dtype=spec.dtype)
        answers = [model(x.astype(kind)) for kind in (np.float16, np.float32, np.float64)]
        raw = model(integers, raw=True)
        out = model.outputs[0].quant
        assert out is not None
        answers.append((raw.astype(np.float64) - out.zero_point) * out.scale)
        answers.append(model(np.asfortranarray(x)))
        answers.append(model(x[0])[np.newaxis])
        for answer in answers:
            np.testing.assert_array_equal(answer, answers[0])
            assert np.abs(answer.ravel() - real(x)).max() <= OUTPUT_STEP


@pytest.mark.parametrize("beyond", [70.0, 1000.0, 1e30, np.inf])
def test_what_is_beyond_the_range_is_clipped_and_never_wraps(model: Model, beyond: float) -> None:
    largest = (127 + 1) * 0.5
    for sign in (1, -1):
        edge = largest if sign > 0 else (-128 + 1) * 0.5
        for position in range(4):
            x, clipped = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32)
            x[0, position], clipped[0, position] = sign * beyond, edge
            np.testing.assert_array_equal(model(x), model(clipped))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_integers_whose_meaning_is_open_are_refused(model: Model, dtype: str) -> None:
    """Pixels, or integers that stand for reals? A bare cast answers both wrongly."""
    with pytest.raises(DataError) as caught:
        model(np.ones((1, 4), dtype))
    assert dtype in caught.value.message and "real numbers" in caught.value.message
    assert "floats" in caught.value.hint and "raw=True" in caught.value.hint


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
def test_raw_takes_the_tensors_own_type_only(model: Model, dtype: str) -> None:
    with pytest.raises(DataError, match="is int8"):
        model(np.ones((1, 4), dtype), raw=True)


def test_nan_is_refused(model: Model) -> None:
    x = np.zeros((1, 4), np.float32)
    x[0, 2] = np.nan
    with pytest.raises(DataError, match="1 of 4 input values are NaN"):
        model(x)


@pytest.mark.parametrize("shape", [(4, 1), (1, 5), (2, 4), (3,), (1, 1, 4), ()])
def test_a_wrong_shape_is_refused_with_the_right_one(model: Model, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as caught:
        model(np.zeros(shape, np.float32))
    assert "[1, 4]" in caught.value.message and str(list(shape)) in caught.value.message


@pytest.mark.parametrize("given", [["a", "b", "c", "d"], [[1 + 2j, 0, 0, 0]], [[None, 0, 0, 0]]])
def test_what_is_no_number_is_refused(model: Model, given: Any) -> None:
    with pytest.raises(DataError):
        model(np.array(given).reshape(1, 4))
