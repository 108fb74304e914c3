"""Noise measures against sums written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.values import IoSpec
from edgekit.verify.measures import Comparison, json_db, json_number, slice_axis, sqnr_db, words_db


def spec(shape: tuple[int, ...], *, permutation: tuple[int, ...] | None = None, layout: str = "") -> IoSpec:
    return IoSpec("y", shape, "float32", "y", shape, "float32", permutation=permutation, layout=layout)


def compared(*pairs: tuple[object, object], axis: int = 1) -> Comparison:
    comparison = Comparison("y", axis)
    for reference, output in pairs:
        comparison.add(np.asarray(reference, np.float32), np.asarray(output, np.float32))
    return comparison


def test_sqnr_by_hand() -> None:
    # signal 9 + 16 = 25, noise 0.5**2 = 0.25: 10 log10(100) = 20 dB
    assert sqnr_db(np.array([3.0, 4.0]), np.array([3.0, 4.5])) == pytest.approx(20.0)
    assert sqnr_db(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == math.inf
    assert sqnr_db(np.zeros(2), np.array([0.0, 0.1])) == -math.inf
    assert sqnr_db(np.zeros(2), np.zeros(2)) == math.inf


def test_all_samples_count_together_and_the_worst_one_by_itself() -> None:
    comparison = compared(([[3.0, 4.0]], [[3.0, 4.5]]), ([[6.0, 8.0]], [[6.0, 8.0]]))
    # signal 25 + 100, noise 0.25
    assert comparison.sqnr_db == pytest.approx(10 * math.log10(125 / 0.25))
    assert comparison.worst_sample_db == pytest.approx(20.0)
    assert (comparison.samples, comparison.max_abs_error, comparison.relative_error) == (2, 0.5, 0.5 / 8)


def test_one_dead_column_is_the_worst_slice_though_the_mean_is_fine() -> None:
    generator = np.random.default_rng(0)
    reference = generator.normal(0, 10, (1, 6, 50)).astype(np.float32)
    output = reference + generator.normal(0, 0.001, reference.shape).astype(np.float32)
    output[:, 4] = 0
    comparison = compared((reference, output))
    worst = comparison.worst_slice
    assert worst is not None
    assert (worst.axis, worst.index, worst.sqnr_db) == (1, 4, pytest.approx(0.0))
    assert worst.max_abs_error == pytest.approx(np.abs(reference[:, 4]).max())
    assert comparison.sqnr_db == pytest.approx(
        10 * math.log10(np.sum(reference**2) / np.sum(reference[:, 4] ** 2)), abs=0.1
    )
    others = [sqnr_db(reference[:, i], output[:, i]) for i in range(6)]
    assert comparison.mean_slice_db == pytest.approx(np.mean(others), abs=1e-6)
    assert comparison.constant_slices == (4,)


def test_slices_near_zero_are_judged_by_their_absolute_error() -> None:
    """0.5 % of the largest value with an error of its own size: 0 dB, and 0.5 % of the output."""
    comparison = compared(([[100.0, 0.5]], [[100.0, 1.0]]))
    assert comparison.near_zero_slices == 1
    assert comparison.near_zero_error == pytest.approx(0.5 / 100)
    assert comparison.worst_slice is not None and comparison.worst_slice.index == 0
    assert compared(([[0.0, 0.0]], [[0.0, 0.0]])).near_zero_error == 0.0
    assert compared(([[0.0, 0.0]], [[0.0, 0.1]])).near_zero_error == math.inf


def test_a_slice_that_varies_in_float_only_is_constant_one_that_hardly_varies_is_not() -> None:
    references = [[10.0, 0.00, 1.0], [10.0, 0.05, 2.0], [-10.0, 0.01, 3.0]]
    outputs = [[10.0, 0.00, 2.0], [10.0, 0.00, 2.0], [-10.0, 0.00, 2.0]]
    comparison = compared(*(([r], [o]) for r, o in zip(references, outputs, strict=True)))
    assert comparison.constant_slices == (2,)  # 0.05 is less than 1 % of 10: nothing to be missed


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["output", "reference", "both"])
def test_what_is_no_finite_number_counts_as_the_worst(bad: float, side: str) -> None:
    reference, output = [[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]]
    if side != "reference":
        output = [[1.0, bad, 3.0]]
    if side != "output":
        reference = [[1.0, bad, 3.0]]
    comparison = compared(([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.1]]), (reference, output))
    assert comparison.sqnr_db == comparison.worst_sample_db == comparison.mean_slice_db == -math.inf
    worst = comparison.worst_slice
    assert worst is not None and (worst.index, worst.sqnr_db, worst.max_abs_error) == (1, -math.inf, math.inf)
    assert comparison.max_abs_error == comparison.relative_error == math.inf
    assert sqnr_db(np.asarray(reference), np.asarray(output)) == -math.inf


def test_a_single_slice_of_nan_is_not_exact() -> None:
    comparison = compared(([[math.nan]], [[math.nan]]))
    assert comparison.mean_slice_db == comparison.sqnr_db == -math.inf


def test_axes_of_slices() -> None:
    assert slice_axis(spec((1, 10))) == 1
    assert slice_axis(spec((1, 20, 20, 8), permutation=(0, 2, 3, 1), layout="nchw")) == 3
    assert slice_axis(spec((1, 8, 20, 20), layout="nchw")) == 1  # a map that was left as it was
    assert slice_axis(spec((1, 20, 20, 8), layout="nhwc")) == 3
    assert slice_axis(spec((1, 4420, 2))) == 2
    assert slice_axis(spec(())) == 0


def test_channels_of_a_map_by_hand() -> None:
    reference = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) + 1
    output = reference.copy()
    output[:, :, :, 2] += 1
    comparison = Comparison("y", 3)
    comparison.add(reference, output)
    worst = comparison.worst_slice
    assert worst is not None and worst.index == 2
    assert worst.sqnr_db == pytest.approx(10 * math.log10(np.sum(reference[..., 2] ** 2) / 6))


def test_a_scalar_and_a_vector_can_be_compared() -> None:
    scalar = Comparison("y", 0)
    scalar.add(np.float32(2), np.float32(2.2))
    assert scalar.sqnr_db == pytest.approx(20.0, abs=1e-4)
    vector = Comparison("y", 0)
    vector.add(np.float32([1, 2]), np.float32([1, 2]))
    assert vector.sqnr_db == math.inf


def test_ratios_and_errors_in_json() -> None:
    assert [json_db(value) for value in (math.inf, -math.inf, 12.34567)] == [None, -999.0, 12.346]
    assert [json_number(value) for value in (math.inf, math.nan, 0.5)] == [None, None, 0.5]
    assert [words_db(value) for value in (None, -999.0, 12.346)] == ["exact", "nothing in common", "12.3 dB"]
