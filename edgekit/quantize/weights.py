"""The weights of an int8 file, three ways: rounded plainly, with biases that make the mean output right, with error feedback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite
from edgekit.quantize import rounding
from edgekit.quantize.int8_file import Int8File
from edgekit.quantize.layers import Layer, layers
from edgekit.quantize.moments import Moments, gather, rounds
from edgekit.runtime.backend import open_backend

PLAIN, BIAS, FEEDBACK = "plain", "bias correction", "error feedback"

Array = NDArray[Any]


def variants(
    plain: Int8File,
    float_path: Path,
    inputs: Sequence[Sequence[Array]],
    *,
    wanted: Sequence[str],
    seed: int,
    alive: Callable[[], None] = lambda: None,
) -> dict[str, Int8File]:
    """``plain`` and the ``wanted`` ones of :data:`BIAS` and :data:`FEEDBACK`, by name.

    ``inputs`` are samples in delivered layout. Scales are those of ``plain``. One BLAS thread computes each layer, so the number of
    cores of a machine has no say in the result.
    """
    from threadpoolctl import threadpool_limits

    made = {name: plain.copy() for name in (PLAIN, *wanted)}
    settable = [layer for layer in layers(tflite.read(float_path)) if _settable(plain, layer)]
    with threadpool_limits(limits=1, user_api="blas"), open_backend(float_path, preserve_all_tensors=True) as backend:
        for part in rounds(settable):
            found = gather(backend, part, inputs, seed=seed)
            while found:
                moments = found.pop()  # its matrix is the largest thing here, and not needed afterwards
                for name, result in _corrected(plain, moments, wanted).items():
                    _apply(made[name], moments.layer, result)
                alive()
    return made


def scales_of(file: Int8File, layer: Layer) -> Array:
    """The scale of each row, (blocks, rows)."""
    scales = file.scales(file.index[layer.weights_name]).astype(np.float64)
    return np.broadcast_to(scales, (layer.channels,)).reshape(layer.blocks, layer.rows)


def integers_of(file: Int8File, layer: Layer) -> Array:
    """The stored weights, (blocks, rows, columns)."""
    return layer.matrices(file.integers(file.index[layer.weights_name]).reshape(layer.weights.shape))


def _settable(file: Int8File, layer: Layer) -> bool:
    names = file.index
    if layer.bias is None or layer.weights_name not in names or layer.bias_name not in names:
        return False
    return file.weights_of(names[layer.bias_name or ""]) == names[layer.weights_name]


def _corrected(file: Int8File, moments: Moments, wanted: Sequence[str]) -> dict[str, rounding.Rounded]:
    """What each wanted correction makes of a layer; nothing where the numbers do not allow it."""
    layer = moments.layer
    assert layer.bias is not None
    weights, bias = layer.matrices(layer.weights), layer.bias.reshape(layer.blocks, layer.rows)
    scales, integers = scales_of(file, layer), integers_of(file, layer)
    shifted = rounding.Rounded(integers, rounding.corrected_bias(weights, bias, integers, scales, moments.mean))
    result = dict.fromkeys(wanted, shifted)
    if FEEDBACK in wanted and moments.whole:
        try:
            result[FEEDBACK] = rounding.error_feedback(weights, bias, scales, moments.matrix)
        except np.linalg.LinAlgError:  # moments so lopsided that damping does not help: the corrected bias stays
            pass
    return {name: r for name, r in result.items() if np.isfinite(r.bias).all()}


def _apply(file: Int8File, layer: Layer, result: rounding.Rounded) -> None:
    names = file.index
    weights, bias = names[layer.weights_name], names[layer.bias_name or ""]
    values = result.bias.reshape(-1)
    fits = file.bias_fits(bias, values)  # a channel whose bias does not fit stays as it is
    rows = fits.reshape(layer.blocks, layer.rows, 1)
    file.set_weights(weights, layer.stored(np.where(rows, result.integers, integers_of(file, layer))))
    file.set_bias(bias, np.where(fits, values, file.bias(bias)))
