"""Resizing a picture with numpy alone, bit for bit as Pillow does it.

Pillow resizes with a separable convolution whose support grows with the reduction (so nothing aliases), in fixed point with 22
fractional bits, rounding to 8 bit after the horizontal and after the vertical pass (its ``Resample.c``). The same arithmetic here
gives the same pixels on a board without Pillow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Dict, Tuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FRACTION_BITS = 32 - 8 - 2
"""8 bits for the pixel, 2 for sums beyond 255 and below 0, the rest for the weight's fraction."""


def _triangle(x: NDArray[Any]) -> NDArray[Any]:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: NDArray[Any]) -> NDArray[Any]:
    """Keys' cubic convolution with a = -0.5 (IEEE Trans. ASSP 29(6), 1981)."""
    a = -0.5
    t = np.abs(x)
    near = ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    far = (((t - 5.0) * t + 8.0) * t - 4.0) * a
    weights: NDArray[Any] = np.where(t < 1.0, near, np.where(t < 2.0, far, 0.0))
    return weights


_FILTERS: Dict[str, Tuple[Callable[[NDArray[Any]], NDArray[Any]], float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
}


def resize(pixels: NDArray[Any], *, height: int, width: int, filter: str) -> NDArray[Any]:
    """``pixels`` (uint8, height x width x channels) in another size; ``filter`` is bilinear, bicubic or nearest."""
    if filter == "nearest":
        nearest: NDArray[Any] = pixels[_nearest(pixels.shape[0], height)][:, _nearest(pixels.shape[1], width)]
        return nearest
    if width != pixels.shape[1]:
        pixels = _along_rows(pixels, width, filter)
    if height != pixels.shape[0]:
        pixels = _along_rows(pixels.swapaxes(0, 1), height, filter).swapaxes(0, 1)
    return pixels


def _nearest(before: int, after: int) -> NDArray[Any]:
    """Which of ``before`` positions is nearest to the centre of each of ``after``; summed up step by step, as Pillow does."""
    scale = before / after
    steps = np.full(after, scale)
    steps[0] = scale * 0.5
    return np.minimum(np.cumsum(steps).astype(np.intp), before - 1)


def _along_rows(pixels: NDArray[Any], width: int, filter: str) -> NDArray[Any]:
    """The horizontal pass: every row convolved to ``width`` pixels."""
    first, weights = _weights(pixels.shape[1], width, filter)
    total = np.full(
        (pixels.shape[0], width, pixels.shape[2]), 1 << (_FRACTION_BITS - 1), np.int32
    )  # rounds the shift below
    last = pixels.shape[1] - 1
    for tap in range(weights.shape[1]):
        taken = pixels[:, np.minimum(first + tap, last)].astype(np.int32)
        taken *= weights[:, tap, np.newaxis]
        total += taken
    total >>= _FRACTION_BITS
    return np.clip(total, 0, 255).astype(np.uint8)


def _weights(before: int, after: int, filter: str) -> Tuple[NDArray[Any], NDArray[Any]]:
    """First source position and fixed-point weights (after x taps) for every target position; unused taps weigh 0."""
    function, support = _FILTERS[filter]
    scale = before / after
    stretch = max(scale, 1.0)
    reach = support * stretch
    taps = math.ceil(reach) * 2 + 1
    centre = (np.arange(after) + 0.5) * scale
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + reach + 0.5).astype(np.int64), before)
    position = first[:, np.newaxis] + np.arange(taps)
    weights = function((position - centre[:, np.newaxis] + 0.5) * (1.0 / stretch))
    weights = np.where(position < end[:, np.newaxis], weights, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    # Half away from zero.
    fixed = np.trunc(weights * (1 << _FRACTION_BITS) + np.copysign(0.5, weights))
    return first, fixed.astype(np.int32)
