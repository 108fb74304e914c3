"""Weights to integers with error feedback: what one weight loses by rounding, the weights after it make up for.

Minimises ``(w - q)^T H (w - q)`` over the rows of a layer, H being the second moments of its inputs, column by column as in
Frantar et al., GPTQ, arXiv:2210.17323 (after Hassibi and Stork's optimal brain surgeon), with the factor of H in place of its inverse's. The inputs end with
a constant 1 whose weight is the bias: it comes last and stays a real number, so the mean error goes into the bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMPING = 0.01
"""This share of the mean diagonal is added to it: inputs that never vary would make the matrix singular."""
_BLOCK = 64
"""Columns after which the errors so far are carried on at once: as matrices multiply, not as vectors add."""
LEVEL = 127

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rounded:
    """Integers (blocks, rows, columns) and the bias (blocks, rows) that goes with them, in real numbers."""

    integers: Array
    bias: Array


def nearest(weights: Array, scales: Array) -> Array:
    """Plain rounding: each weight to the nearest multiple of its row's scale, int8."""
    return np.clip(np.rint(weights / scales[..., None]), -LEVEL, LEVEL).astype(np.int8)


def corrected_bias(weights: Array, bias: Array, integers: Array, scales: Array, mean: Array) -> Array:
    """The bias that makes the mean output right: ``b + (W - Wq) E[x]``; ``mean`` is (blocks, columns)."""
    lost = weights.astype(np.float64) - integers * scales[..., None].astype(np.float64)
    result: Array = bias + np.einsum("brc,bc->br", lost, mean)
    return result


def error_feedback(weights: Array, bias: Array, scales: Array, moments: Array) -> Rounded:
    """Round ``weights`` (blocks, rows, columns) to multiples of ``scales`` (blocks, rows).

    ``moments`` is ``E[x x^T]`` with the constant 1 as the last input.
    """
    columns = weights.shape[2]
    diagonal = np.einsum("bii->bi", moments)[:, :columns].copy()
    damping = DAMPING * diagonal.mean(axis=1, keepdims=True)
    # Large inputs first: their errors are made up for by all the others. The bias is last.
    order = np.argsort(-diagonal, axis=1, kind="stable")
    order = np.concatenate([order, np.full((order.shape[0], 1), columns)], axis=1)
    h = np.take_along_axis(np.take_along_axis(moments, order[:, :, None], axis=1), order[:, None, :], axis=2)
    h[:, np.arange(columns), np.arange(columns)] += np.where(damping > 0.0, damping, 1.0)
    wide = np.concatenate([weights.astype(np.float64), bias.astype(np.float64)[..., None]], axis=2)
    v = np.take_along_axis(
        wide.transpose(0, 2, 1), order[:, :, None], axis=1
    )  # columns first: they are what is walked over
    q, last = _columns_in_turn(v, scales.astype(np.float64), _factor(h))
    integers = np.empty((weights.shape[0], columns, weights.shape[1]), np.int8)
    np.put_along_axis(integers, order[:, :columns, None], q, axis=1)
    return Rounded(integers.transpose(0, 2, 1), last)


def _factor(h: Array) -> Array:
    """The upper triangular R with H = R R^T, a Cholesky factor read backwards, each column divided by its end on the diagonal.

    ``e^T H e`` is then a sum of squares of which the j-th holds the errors up to that of column j: ``e_j`` plus those before it times
    column j of this factor.
    """
    backwards = np.linalg.cholesky(h[:, ::-1, ::-1])[:, ::-1, ::-1]
    factor: Array = backwards / np.einsum("bii->bi", backwards)[:, None, :]
    return factor


def _columns_in_turn(v: Array, scales: Array, factor: Array) -> tuple[Array, Array]:
    """Rounds the columns of ``v`` (blocks, columns + 1, rows) but the last, each to where the errors before it are best made up for.

    The integers, and what becomes of the last column.
    """
    columns = v.shape[1] - 1
    q = np.empty((v.shape[0], columns, v.shape[2]), np.int8)
    errors = np.empty((v.shape[0], columns, v.shape[2]))
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        wanted = v[:, start:stop] - factor[:, :start, start:stop].transpose(0, 2, 1) @ errors[:, :start]
        for j in range(start, stop):
            rounded = np.clip(np.rint(wanted[:, j - start] / scales), -LEVEL, LEVEL)
            q[:, j] = rounded.astype(np.int8)
            errors[:, j] = rounded * scales - v[:, j]
            wanted[:, j - start + 1 :] -= factor[:, j, j + 1 : stop, None] * errors[:, j, None, :]
    return q, v[:, columns] - np.einsum("bc,bcr->br", factor[:, :columns, columns], errors)


def cost(weights: Array, bias: Array, rounded: Rounded, scales: Array, moments: Array) -> Array:
    """The mean squared error of each row's output over the inputs that ``moments`` were taken from, (blocks, rows)."""
    lost = weights.astype(np.float64) - rounded.integers * scales[..., None].astype(np.float64)
    wide = np.concatenate([lost, (bias - rounded.bias)[..., None]], axis=2)
    result: Array = np.einsum("bri,bij,brj->br", wide, moments, wide, optimize=True)
    return result
