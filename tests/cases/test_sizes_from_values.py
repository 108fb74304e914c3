"""Outputs whose size depends on an input's value: delivered in the size that the source declares, and an error for any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, truth
from tiny_models import onnx_model


def top_k(shape: list[int], axis: int, k: int, largest: int) -> Any:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest)
    sizes = [k if at == axis % len(shape) else size for at, size in enumerate(shape)]
    return onnx_model([node], {"x": shape, "k": [1]}, {"v": sizes, "i": sizes}, dtypes={"k": "int64", "i": "int64"})


@pytest.mark.parametrize(
    ("shape", "axis", "k", "largest"), [([3, 6], 1, 2, 1), ([3, 6], -1, 4, 0), ([5, 3], 0, 3, 1), ([2, 3, 7], 2, 5, 1)]
)
def test_top_k(route: Front, shape: list[int], axis: int, k: int, largest: int) -> None:
    model = top_k(shape, axis, k, largest)
    samples = [{"x": normal(*shape, seed=seed), "k": np.array([k])} for seed in range(4)]
    made = route.imported(model, samples[:3])
    expected, got = truth(model, samples[3]), made.run(samples[3])
    np.testing.assert_array_equal(got["i"], expected["i"])
    assert largest_error(expected, got) < 1e-6
    with pytest.raises((RuntimeError, ValueError)):  # the size of another k is not the declared one
        made.run({**samples[3], "k": np.array([k - 1])})


@pytest.mark.parametrize(("axis", "declared"), [(0, [2, 4]), (1, [3, 2]), (None, [2])])
def test_compress(route: Front, axis: int | None, declared: list[int]) -> None:
    length = {0: 3, 1: 4, None: 12}[axis]
    node = helper.make_node("Compress", ["x", "c"], ["y"], **({} if axis is None else {"axis": axis}))
    model = onnx_model([node], {"x": [3, 4], "c": [length]}, {"y": declared}, dtypes={"c": "bool"})

    def sample(kept: list[int], seed: int) -> dict[str, Any]:
        return {"x": normal(3, 4, seed=seed), "c": np.isin(np.arange(length), kept)}

    made = route.imported(model, [sample([0, 2], 0), sample([1, 2], 1)])
    held_out = sample([0, 1], 2)
    assert largest_error(truth(model, held_out), made.run(held_out)) == 0
    with pytest.raises((RuntimeError, ValueError)):
        made.run(sample([0, 1, 2], 3))


def scalar(value: float) -> Any:
    return np.array(value, np.float32)


def test_range_of_floats(route: Front) -> None:
    """A step of zero, as any number might be, ends no range: the first run is with the real values."""
    node = helper.make_node("Range", ["start", "limit", "step"], ["y"])
    model = onnx_model([node], {"start": [], "limit": [], "step": []}, {"y": [4]})
    samples = [
        {"start": scalar(a), "limit": scalar(a + 3.5 * b), "step": scalar(b)} for a, b in ((0, 1), (2, 0.5), (-3, 2.25))
    ]
    made = route.imported(model, samples[:2])
    assert largest_error(truth(model, samples[2]), made.run(samples[2])) < 1e-6
