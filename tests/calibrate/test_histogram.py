"""The streamed histogram: exact, without a trace of the order, as large after many samples as after few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit.calibrate.histogram import BINS, Histogram


def parts(count: int = 40, *, seed: int = 0) -> list[NDArray[Any]]:
    """Samples whose spread differs by six orders of magnitude, so that bins must grow again and again."""
    random = np.random.default_rng(seed)
    return [random.normal(0, 10 ** random.uniform(-3, 3), 500).astype(np.float32) for _ in range(count)]


def filled(some: list[NDArray[Any]]) -> Histogram:
    histogram = Histogram()
    for part in some:
        histogram.add(part)
    return histogram


def test_counts_are_those_of_numpy() -> None:
    some = parts()
    histogram = filled(some)
    expected, _ = np.histogram(np.concatenate(some).astype(np.float64), bins=histogram.edges)
    assert np.array_equal(histogram.counts, expected)
    assert BINS / 4 < histogram.counts.size <= BINS


def test_the_order_of_the_samples_leaves_no_trace() -> None:
    some = parts()
    one, other = filled(some), filled(some[::-1])
    assert one.width == other.width and np.array_equal(one.counts, other.counts)
    assert (one.low, one.high, one.zeros) == (other.low, other.high, other.zeros)


def test_parts_add_up_and_are_taken_out_again() -> None:
    some = parts()
    whole, first, rest = filled(some), filled(some[:30]), filled(some[30:])
    both = first.plus(rest)
    assert both.width == whole.width and np.array_equal(both.counts, whole.counts)
    left = whole.minus(rest)
    assert left.count == first.count
    assert abs(left.low - first.low) <= whole.width and abs(left.high - first.high) <= whole.width
    expected, _ = np.histogram(np.concatenate(some[:30]).astype(np.float64), bins=left.edges)
    assert np.array_equal(left.counts, expected)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 0.9999, 1.0])
def test_quantiles_are_those_of_numpy_to_a_bin(share: float) -> None:
    values = np.random.default_rng(1).gamma(2.0, 3.0, 200_000).astype(np.float32)
    histogram = filled(list(np.split(values, 100)))
    # Between two neighbours numpy interpolates, and at the far end those may lie bins apart: either neighbour is right.
    low, high = (float(np.quantile(values, share, method=m)) for m in ("lower", "higher"))  # type: ignore[call-overload]
    assert low - histogram.width <= histogram.quantile(share) <= high + histogram.width


def test_ten_thousand_samples_take_no_more_room_than_a_hundred() -> None:
    random = np.random.default_rng(2)
    histogram = Histogram()
    sizes = []
    for sample in range(10_000):
        histogram.add(random.normal(0, 1 + sample / 100, 20).astype(np.float32))
        if sample in (99, 9_999):
            sizes.append(histogram.counts.nbytes)
    assert max(sizes) <= BINS * 8 and histogram.count == 200_000


@pytest.mark.parametrize("value", [0.0, 1e-38, -3.5, 1e29, 1.0 / 3.0])
def test_one_and_the_same_value(value: float) -> None:
    histogram = filled([np.full(7, value, np.float32)] * 3)
    assert histogram.low == histogram.high == np.float32(value) and histogram.counts.sum() == 21
    assert histogram.quantile(0.5) == np.float32(value)
    assert histogram.zeros == (21 if value == 0 else 0)


def test_a_narrow_range_far_from_zero() -> None:
    values = np.linspace(1000, 1001, 5000, dtype=np.float32)
    histogram = filled([values])
    assert histogram.counts.sum() == 5000 and abs(histogram.quantile(0.25) - 1000.25) < 2e-3


def test_extremes_may_be_those_of_values_that_were_not_counted() -> None:
    histogram = Histogram()
    histogram.add(np.ones(4, np.float32), low=-8.0, high=64.0)
    assert (histogram.low, histogram.high, histogram.count) == (-8.0, 64.0, 4)
