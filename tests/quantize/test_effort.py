"""How much is tried: by counts that follow from the network, and not at all where nothing can come of it."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.quantize import judge, rounding, search


def test_small_networks_are_searched_through_and_large_ones_not_at_all() -> None:
    assert search.affordable(None, 24) == search.TRIES
    assert search.affordable(2_700_000, 24) == search.TRIES
    assert search.affordable(100_000_000, 24) == 25
    assert search.affordable(385_000_000, 24) == 0


def test_fewer_samples_leave_more_tries() -> None:
    assert search.affordable(385_000_000, 5) > search.affordable(385_000_000, 10) > 0


def test_error_feedback_is_what_optimal_brain_surgery_says() -> None:
    """Against the textbook form: round one weight, move all later ones by the inverse of the moments that are left, and so on."""
    generator = np.random.default_rng(3)
    x = generator.normal(0, 1, (400, 7)) @ generator.normal(0, 1, (7, 7))
    x = np.concatenate([x, np.ones((400, 1))], axis=1)
    moments = x.T @ x / 400
    weights, bias = generator.normal(0, 1, (1, 5, 7)), generator.normal(0, 1, (1, 5))
    scales = np.abs(weights).max(axis=2) / 127 * 20
    got = rounding.error_feedback(weights, bias, scales, moments[None])

    h = moments.copy()
    h[range(7), range(7)] += rounding.DAMPING * np.diag(moments)[:7].mean()
    left = [*np.argsort(-np.diag(moments)[:7], kind="stable"), 7]
    wide = np.concatenate([weights[0], bias[0][:, None]], axis=1)
    integers = np.empty((5, 7))
    while len(left) > 1:
        column = left[0]
        inverse = np.linalg.inv(h[np.ix_(left, left)])
        integers[:, column] = np.clip(np.rint(wide[:, column] / scales[0]), -127, 127)
        lost = (wide[:, column] - integers[:, column] * scales[0]) / inverse[0, 0]
        wide[:, left] -= lost[:, None] * inverse[0]
        left = left[1:]
    np.testing.assert_array_equal(got.integers[0], integers)
    np.testing.assert_allclose(got.bias[0], wide[:, 7], rtol=1e-8)


def test_ratios_stay_inside_the_cap() -> None:
    signal = np.array([1.0, 1.0, 0.0, 1.0, 100.0])
    noise = np.array([0.0, np.nan, 1.0, np.inf, 1.0])
    cap = judge.CAP_DB
    assert judge._db(signal, noise) == pytest.approx([cap, -cap, -cap, -cap, 20.0])
