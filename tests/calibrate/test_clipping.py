"""Ways to choose a range: each against values worked out another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import entropy as scipy_entropy

from edgekit.calibrate import clipping
from edgekit.calibrate.histogram import Histogram


def histogram(values: NDArray[Any]) -> Histogram:
    made = Histogram()
    made.add(values.astype(np.float32))
    return made


def relu_like(seed: int = 0) -> NDArray[Any]:
    """Half zeros, a long tail, and one value far out."""
    values = np.maximum(np.random.default_rng(seed).laplace(0, 1, 100_000), 0)
    values[0] = 40.0
    return values.astype(np.float32)


def squared_error(values: NDArray[Any], limits: tuple[float, float]) -> float:
    """Of real quantisation to 256 levels, value by value."""
    low, high = min(limits[0], 0.0), max(limits[1], 0.0)
    scale = (high - low) / 255
    zero = round(-128 - low / scale)
    integers = np.clip(np.rint(values / scale) + zero, -128, 127)
    return float(np.sum((values - scale * (integers - zero)) ** 2))


def test_true_extremes_and_room_above_them() -> None:
    made = histogram(np.array([-2.0, 0.5, 4.0]))
    assert clipping.min_max(made) == (-2.0, 4.0)
    assert clipping.head_room(made) == pytest.approx((-2.2, 4.4))
    assert clipping.head_room(histogram(np.array([1.0, 4.0]))) == pytest.approx((1.0, 4.4))


def test_percentiles_are_those_of_numpy() -> None:
    values = np.random.default_rng(3).normal(0, 1, 2_000_000).astype(np.float32)
    made = histogram(values)
    for method, share in clipping.PERCENTILES.items():
        expected = np.quantile(values, [1 - share, share])
        assert clipping.METHODS[method](made) == pytest.approx(tuple(expected), abs=2 * made.width)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_least_squared_error_is_the_least_of_real_quantisation(seed: int) -> None:
    values = relu_like(seed)
    chosen = clipping.mse(histogram(values))
    tried = [(0.0, 40.0 * factor) for factor in np.linspace(0.15, 1.0, 86)]
    least = min(squared_error(values, limits) for limits in tried)
    assert squared_error(values, chosen) <= 1.02 * least < squared_error(values, clipping.min_max(histogram(values)))


def test_both_ends_are_shrunk_on_their_own() -> None:
    values = np.random.default_rng(4).uniform(-1, 1, 400_000)
    values[0] = (
        3.0  # rare and far out on one side only: 8.2 with it, 400,000 (2.5 / 255)^2 / 12 + 1.5^2 = 5.5 when cut at 1.5
    )
    low, high = clipping.mse(histogram(values))
    assert low == pytest.approx(-1.0, abs=0.03) and 1.0 < high < 2.0


def test_divergence_is_that_of_scipy() -> None:
    """P: values clipped to the range, by bin; Q: the same put on 256 levels and spread out again over the bins that hold any."""
    values = np.random.default_rng(5).gamma(1.5, 1.0, 50_000)
    made = histogram(values)
    low, high = 0.0, 5.0
    centres, counts = made.centres, made.counts.astype(float)
    inside = [i for i, c in enumerate(centres) if low <= c <= high]
    p = [counts[i] for i in inside]
    level = [round((centres[i] - low) / (high - low) * 255) for i in inside]
    q = []
    for i, own in zip(inside, level, strict=True):
        same = [j for j, other in zip(inside, level, strict=True) if other == own and counts[j] > 0]
        q.append(sum(counts[j] for j in same) / len(same) if counts[i] > 0 else 0.0)
    p[-1] += counts[inside[-1] + 1 :].sum()
    assert q[-1] > 0
    assert clipping.divergence(made, low, high) == pytest.approx(scipy_entropy(p, q), rel=1e-9)


def test_entropy_takes_the_range_of_least_divergence() -> None:
    made = histogram(relu_like())
    low, high = clipping.entropy(made)
    tried = {factor: clipping.divergence(made, 0.0, 40.0 * factor) for factor in np.arange(1.0, 0.28, -0.04)}
    assert low == 0.0 and high == pytest.approx(40.0 * min(tried, key=tried.__getitem__))


@pytest.mark.parametrize("method", clipping.METHODS)
@pytest.mark.parametrize("values", [[0.0], [2.5, 2.5], [-3.0, -1.0], [0.0, 1e-30]], ids=str)
def test_every_method_copes_with_hardly_any_values(method: str, values: list[float]) -> None:
    low, high = clipping.METHODS[method](histogram(np.array(values)))
    assert np.isfinite([low, high]).all() and low <= high
    assert low <= max(values) * 1.1 + 1e-6 and high >= min(0.0, *values) * 1.1
