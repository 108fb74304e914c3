"""Layers as matrices, biases in closed form, weights with error feedback: against the interpreter and against every possibility."""

from __future__ import annotations

import itertools
from typing import Any

import layer_models
import numpy as np
import pytest
from before_after import outputs_of
from numpy.typing import NDArray

from edgekit.quantize import rounding
from edgekit.quantize.layers import layers
from edgekit.quantize.moments import Moments

Array = NDArray[Any]


def problem(rows: int, columns: int, *, seed: int, blocks: int = 1) -> tuple[Array, Array, Array, Array]:
    """Weights, bias, scales, and moments of inputs that depend on one another and have a mean."""
    random = np.random.default_rng(seed)
    weights = random.normal(0, 1, (blocks, rows, columns)).astype(np.float32)
    mixing = random.normal(0, 1, (columns, columns)) + 0.2
    x = np.abs(random.normal(0.5, 1, (400, columns)) @ mixing)
    x = np.concatenate([x, np.ones((400, 1))], axis=1)
    moments = np.repeat((x.T @ x / 400)[None], blocks, axis=0)
    return weights, random.normal(0, 1, (blocks, rows)), np.abs(weights).max(axis=2) / 127, moments


@pytest.mark.parametrize("case", layer_models.CASES.values(), ids=layer_models.CASES)
def test_matrices_times_inputs_are_what_the_interpreter_computes(case: dict[str, Any]) -> None:
    model = layer_models.model(case)
    (layer,) = layers(model)
    x = np.random.default_rng(1).normal(0.3, 1, case["x"]).astype(np.float32)
    (y,) = outputs_of(model, x)
    assert layer.bias is not None
    inputs = layer.inputs(x, None)
    made = np.einsum("brc,bpc->pbr", layer.matrices(layer.weights), inputs).reshape(-1, layer.channels) + layer.bias
    assert np.allclose(made, y.reshape(-1, layer.channels), atol=1e-4)
    assert np.allclose(layer.mean_input(x), inputs.mean(axis=1), atol=1e-5)
    assert np.array_equal(layer.stored(layer.matrices(layer.weights)), layer.weights)
    some = np.array([0, layer.positions(x) - 1])
    assert np.array_equal(layer.inputs(x, some), inputs[:, some])


@pytest.mark.parametrize("case", layer_models.CASES.values(), ids=layer_models.CASES)
def test_moments_are_those_of_the_inputs(case: dict[str, Any]) -> None:
    (layer,) = layers(layer_models.model(case))
    moments = Moments(layer, seed=0)
    samples = np.random.default_rng(2).normal(0.3, 1, (60, *case["x"])).astype(np.float32)
    for sample in samples:
        moments.look(sample)
    moments.finish()
    x = np.concatenate([layer.inputs(sample, None) for sample in samples], axis=1).astype(np.float64)
    x = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
    expected = x.transpose(0, 2, 1) @ x / x.shape[1]
    assert np.allclose(moments.mean, expected[:, -1, :-1], atol=1e-5)
    assert np.allclose(moments.matrix, expected, atol=0.2)  # random positions where there are many
    if layer.positions(samples[0]) <= 24:
        assert np.allclose(moments.matrix, expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_error_feedback_comes_near_the_best_of_all_roundings(seed: int) -> None:
    """Five weights a row, each at one of the four next integers: 1024 possibilities, with the best bias for each."""
    weights, bias, scales, moments = problem(3, 5, seed=seed)
    scales = scales * 16  # a coarse grid: rounding matters
    plain = rounding.nearest(weights, scales)
    mean = moments[:, -1, :-1]
    shifted = rounding.Rounded(plain, rounding.corrected_bias(weights, bias, plain, scales, mean))
    fed_back = rounding.error_feedback(weights, bias, scales, moments)
    best = np.full((1, 3), np.inf)
    for steps in itertools.product((-1, 0, 1, 2), repeat=5):
        q = np.floor(weights / scales[..., None]) + np.array(steps)
        other = rounding.Rounded(q, rounding.corrected_bias(weights, bias, q, scales, mean))
        best = np.minimum(best, rounding.cost(weights, bias, other, scales, moments))
    found = rounding.cost(weights, bias, fed_back, scales, moments)
    before = rounding.cost(weights, bias, shifted, scales, moments)
    assert (found >= best * (1 - 1e-9)).all()  # no rounding is better than the best
    assert found.sum() <= before.sum()  # and this one is not worse than the plain one
    assert found.sum() - best.sum() <= 0.5 * (before.sum() - best.sum()) + 1e-12


@pytest.mark.parametrize("shape", [(1, 8, 30), (1, 20, 200), (12, 2, 9)], ids=str)
def test_error_feedback_beats_plain_rounding_with_the_best_bias(shape: tuple[int, int, int]) -> None:
    weights, bias, scales, moments = problem(shape[1], shape[2], seed=7, blocks=shape[0])
    plain = rounding.nearest(weights, scales)
    shifted = rounding.Rounded(plain, rounding.corrected_bias(weights, bias, plain, scales, moments[:, -1, :-1]))
    fed_back = rounding.error_feedback(weights, bias, scales, moments)
    assert fed_back.integers.dtype == np.int8 and np.abs(fed_back.integers.astype(int)).max() <= 127
    before = rounding.cost(weights, bias, shifted, scales, moments).sum()
    assert rounding.cost(weights, bias, fed_back, scales, moments).sum() < 0.9 * before


def test_the_corrected_bias_makes_the_mean_output_right() -> None:
    weights, bias, scales, moments = problem(4, 6, seed=3)
    mean = moments[:, -1, :-1]
    integers = rounding.nearest(weights, scales * 20)
    corrected = rounding.corrected_bias(weights, bias, integers, scales * 20, mean)
    before = np.einsum("brc,bc->br", weights.astype(np.float64), mean) + bias
    after = np.einsum("brc,bc->br", integers * (scales * 20)[..., None], mean) + corrected
    assert np.allclose(before, after, atol=1e-9)


def test_inputs_that_never_vary_do_no_harm() -> None:
    weights, bias, scales, moments = problem(3, 8, seed=5)
    moments = moments.copy()
    moments[:, 2, :] = moments[:, :, 2] = 0.0  # a channel that is always zero
    rounded = rounding.error_feedback(weights, bias, scales, moments)
    assert np.isfinite(rounded.bias).all()
    assert np.array_equal(rounded.integers[:, :, 2], rounding.nearest(weights, scales)[:, :, 2])
    nothing = np.zeros_like(moments)
    nothing[:, -1, -1] = 1.0
    assert np.array_equal(
        rounding.error_feedback(weights, bias, scales, nothing).integers, rounding.nearest(weights, scales)
    )
