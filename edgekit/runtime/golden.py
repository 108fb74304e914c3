"""A bundle's golden pairs: whether a model answers here as it did where it was made.

The kernels of two machines may round differently, so integers are not asked to be equal. An output passes when no value is more than
two steps away, or when its root-mean-square distance from the int8 output of the workstation is not larger than that output's own
distance from the float model: what the other rounding costs is then lost in what the integers cost anyway. Float outputs may differ
by a thousandth of their range.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from edgekit.errors import DataError
from edgekit.runtime.backend import Backend, TensorDetail
from edgekit.runtime.tensors import dequantize, quantize
from edgekit.values import IoSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 2
FLOAT_TOLERANCE = 1e-3
GOLDEN_FILE = "golden.npz"


def golden_samples(backend: Backend, *, golden: str, names: Mapping[str, str]) -> Tuple[Tuple[NDArray[Any], ...], ...]:
    """The inputs of the pairs in the tensors' own dtype, ``[pair][position]``; ``names`` maps tensor names to those in the file.

    Raises :class:`DataError` when there are none that fit.
    """
    if not os.path.isfile(golden):
        raise DataError(f"{golden} does not exist")
    columns: List[List[NDArray[Any]]] = []
    with np.load(golden, allow_pickle=False) as archive:
        for detail in backend.inputs:
            key = _golden_key(detail, backend.inputs, names, archive.files)
            columns.append([_as_tensor(pair, detail) for pair in archive[key]])
    if not columns or not columns[0]:
        raise DataError("the golden file holds no input")
    return tuple(zip(*columns))


def _golden_key(
    detail: TensorDetail, inputs: Sequence[TensorDetail], names: Mapping[str, str], keys: Sequence[str]
) -> str:
    key = "input/" + names.get(detail.name, detail.name)
    if key in keys:
        return key
    there = [key for key in keys if key.startswith("input/")]
    if len(inputs) == 1 and len(there) == 1:
        return there[0]  # one input, one array: no name is needed to pair them
    raise DataError(f"no golden array for input {detail.name!r}")


def _as_tensor(values: NDArray[Any], detail: TensorDetail) -> NDArray[Any]:
    if values.size != int(np.prod(detail.shape)):
        raise DataError(f"input {detail.name!r} has shape {list(detail.shape)}, the golden one {list(values.shape)}")
    values = values.reshape(detail.shape)
    if detail.is_quantized and values.dtype.kind == "f":
        return quantize(values, scale=detail.scale, zero_point=detail.zero_point, dtype=detail.dtype)
    return np.ascontiguousarray(values, dtype=detail.dtype)


def compared(golden: str, outputs: Sequence[IoSpec], answers: Sequence[NDArray[Any]]) -> List[Dict[str, Any]]:
    """For each of ``outputs`` its ``name``, distances, whether it ``passed`` and the ``reason`` if not; ``answers`` have the pairs as first axis."""
    with np.load(golden, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    found = []
    for spec, answer in zip(outputs, answers):
        exact, real = arrays.get(f"int8/{spec.name}"), arrays.get(f"float/{spec.name}")
        expected = real if exact is None or answer.dtype.kind == "f" else exact
        if expected is None or expected.size != answer.size:
            raise DataError(f"the golden pairs have no output {spec.name!r} of {list(answer.shape)}")
        if exact is not None and expected is exact:
            judged = _integers(spec, answer, exact, real)
        else:
            judged = _reals(spec, answer, expected, exact)
        found.append({"name": spec.name, **judged, "agreement": _agreement(answer, expected)})
    return found


def _integers(
    spec: IoSpec, answer: NDArray[Any], expected: NDArray[Any], real: Optional[NDArray[Any]]
) -> Dict[str, Any]:
    expected = expected.reshape(answer.shape)
    steps = np.abs(answer.astype(np.int64) - expected.astype(np.int64))
    worst = int(steps.max(initial=0))
    result: Dict[str, Any] = {"worst_steps": worst, "equal": float((steps == 0).mean())}
    allowed = 0.0
    if spec.quant is not None and real is not None:
        scale, zero_point = spec.quant.scale, spec.quant.zero_point
        as_real = dequantize(expected, scale=scale, zero_point=zero_point)
        allowed = _rms(as_real - real.reshape(answer.shape)) / scale if scale else 0.0
    distance = _rms(steps)
    passed = worst <= STEPS or distance <= allowed
    reason = (
        ""
        if passed
        else (
            f"output {spec.name!r} differs from where the model was made by up to {worst} steps "
            f"(root mean square {distance:.2f}; {STEPS} steps, or {allowed:.2f}, are allowed)"
        )
    )
    return {**result, "rms_steps": distance, "allowed_rms_steps": allowed, "passed": passed, "reason": reason}


def _reals(spec: IoSpec, answer: NDArray[Any], expected: NDArray[Any], exact: Optional[NDArray[Any]]) -> Dict[str, Any]:
    """A float output. Of a quantised model with float ends (``exact``) the distance is judged as that of integers is, in reals."""
    target = (expected if exact is None or exact.dtype.kind != "f" else exact).reshape(answer.shape).astype(np.float64)
    real = expected.reshape(answer.shape).astype(np.float64)
    distance = float(np.abs(answer - target).max(initial=0.0)) if np.isfinite(answer).all() else float("inf")
    span = float(np.abs(target).max(initial=0.0)) or 1.0
    cost = _rms(target - real)
    passed = distance <= FLOAT_TOLERANCE * span or (np.isfinite(distance) and _rms(answer - target) <= cost)
    reason = (
        ""
        if passed
        else (
            f"output {spec.name!r} differs from where the model was made by up to {distance:.4g}, of values up to {span:.4g}"
        )
    )
    return {"worst_difference": distance, "span": span, "passed": bool(passed), "reason": reason}


def _agreement(answer: NDArray[Any], expected: NDArray[Any]) -> Optional[Dict[str, int]]:
    """How often the largest value is at the same place, for outputs that look like classes."""
    if answer.ndim != 3 or answer.shape[1] != 1 or answer.shape[2] < 2:
        return None
    same = answer.argmax(axis=-1) == expected.reshape(answer.shape).argmax(axis=-1)
    return {"same": int(same.sum()), "count": int(same.size)}


def _rms(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if values.size else 0.0
