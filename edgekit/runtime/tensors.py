"""From real numbers to a tensor's integers and back, done in one place.

The affine rule of the TFLite quantisation specification: ``real = scale * (integer - zero_point)``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUANTIZED_DTYPES = ("int8", "uint8", "int16", "uint16", "int32")
"""The integer types that TFLite lets stand for real numbers."""

_LIMITS = {name: (float(np.iinfo(name).min), float(np.iinfo(name).max)) for name in QUANTIZED_DTYPES}


def quantize(x: Any, *, scale: float, zero_point: int, dtype: str) -> NDArray[Any]:
    """The integers that stand for ``x``, in ``dtype``, same shape.

    ``integer = clip(round(x / scale) + zero_point)``: values beyond the type's range take its nearest end (an infinity too) instead of
    wrapping around as ``astype`` would. Ties are rounded to even (:func:`numpy.rint`), as XNNPACK does; TFLite's reference kernel
    rounds them away from zero, which differs by one step exactly on a tie. Raises :class:`DataError` for NaN, which no integer
    stands for, and for a scale that is not a positive number.
    """
    if dtype not in QUANTIZED_DTYPES:
        raise DataError(f"no real numbers are kept in {dtype}", hint=f"one of {', '.join(QUANTIZED_DTYPES)}")
    _refuse_scale(scale)
    # float32 holds the quotient of an 8-bit type to 1e-5 of a step, but only to 1/500 of one for 16 bit.
    work = np.float32 if dtype in ("int8", "uint8") else np.float64
    real = np.asarray(x)
    low, high = _LIMITS[dtype]
    # A value that is too large for float32 becomes an infinity and then the end of the range: the right answer.
    with np.errstate(over="ignore", invalid="ignore"):
        quotient: NDArray[Any] = np.empty(real.shape, work)
        np.divide(real, scale, out=quotient, dtype=work, casting="unsafe")
    if quotient.size and math.isnan(quotient.min()):  # NaN as soon as one value is
        raise DataError(f"{int(np.isnan(quotient).sum())} of {quotient.size} input values are NaN")
    # In place throughout: each temporary of a picture's size costs more than the arithmetic.
    np.rint(quotient, out=quotient)
    np.add(quotient, zero_point, out=quotient)
    quotient.clip(low, high, out=quotient)
    return quotient.astype(dtype)


def dequantize(integers: Any, *, scale: float, zero_point: int) -> NDArray[Any]:
    """The real numbers that ``integers`` stand for, float32, same shape: ``scale * (integer - zero_point)``."""
    _refuse_scale(scale)
    array = np.asarray(integers)
    # Integers of up to 16 bit and their difference are exact in float32; wider ones need float64 on the way.
    work = np.float32 if array.dtype.itemsize <= 2 else np.float64
    real = array.astype(work)
    np.subtract(real, zero_point, out=real)
    np.multiply(real, scale, out=real)
    return real.astype(np.float32, copy=False)


def _refuse_scale(scale: float) -> None:
    if not 0 < scale < math.inf:
        raise DataError(f"a scale must be a positive number, not {scale}: this tensor is not quantised")
