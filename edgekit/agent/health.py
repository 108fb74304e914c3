"""Whether a model answers on this board as it did where it was made: its golden pairs are run and compared. Runs in a process of its own.

The kernels of two machines may round differently, so integers are not asked to be equal. An output passes when no value is more than
two steps away, or when its root-mean-square distance from the int8 output of the workstation is not larger than that output's own
distance from the float model: what the other rounding costs is then lost in what the integers cost anyway. Float outputs may differ
by a thousandth of their range.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from edgekit.agent.inputs import golden_feed, random_feed
from edgekit.errors import DataError, EdgekitError
from edgekit.runtime.backend import Backend, open_backend
from edgekit.runtime.naming import describe, read_bundle
from edgekit.runtime.tensors import dequantize
from edgekit.values import IoSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 2
FLOAT_TOLERANCE = 1e-3
TIMED_RUNS = 5


def check_health(folder: str, *, threads: int = 0, max_latency_ms: Optional[float] = None) -> Dict[str, Any]:
    """What the model in a bundle folder (or release) does here: ``passed``, ``reasons``, ``outputs``, ``pairs``, ``latency_ms``, ``interpreter``.

    ``latency_ms`` is the median of a few inferences after the first: enough to see a model that is far too slow, and no benchmark.
    Raises :class:`ModelFileError` and :class:`UsageError` as :func:`edgekit.runtime.backend.open_backend` does.
    """
    from pathlib import Path

    bundle = read_bundle(Path(folder))
    golden = os.path.join(folder, "golden.npz")
    with open_backend(bundle.model, threads=threads) as backend:
        inputs, outputs = describe(backend, bundle)
        if os.path.exists(golden):
            feed = golden_feed(backend, golden=golden, names={spec.tensor: spec.name for spec in inputs})
        else:
            feed = random_feed(backend, seed=0)
        answers, times = _run(backend, feed.samples)
        report: Dict[str, Any] = {
            "interpreter": {"name": backend.name, "version": backend.version},
            "pairs": len(feed.samples) if feed.kind == "golden" else 0,
            "first_ms": round(times[0] / 1e6, 3),
            "latency_ms": round(statistics.median(times[1:]) / 1e6, 3),
            "outputs": _compared(golden, outputs, answers) if feed.kind == "golden" else _finite(outputs, answers),
        }
    report["reasons"] = [output["reason"] for output in report["outputs"] if not output["passed"]]
    if max_latency_ms is not None and report["latency_ms"] > max_latency_ms:
        report["reasons"].append(
            f"one inference takes {report['latency_ms']:.1f} ms, at most {max_latency_ms:g} are allowed"
        )
    report["passed"] = not report["reasons"]
    return report


def _run(backend: Backend, samples: Sequence[Sequence[NDArray[Any]]]) -> Any:
    """Outputs by position, each with the samples as first axis; and latencies in ns, of the samples and some repetitions."""
    answers: List[List[NDArray[Any]]] = []
    times: List[int] = []
    for count in range(max(len(samples), TIMED_RUNS + 1)):
        before = time.perf_counter_ns()
        for position, value in enumerate(samples[count % len(samples)]):
            backend.set_input(position, value)
        backend.invoke()
        got = [backend.get_output(position) for position in range(len(backend.outputs))]
        times.append(time.perf_counter_ns() - before)
        if count < len(samples):
            answers.append(got)
    return [np.stack(column) for column in zip(*answers)], times


def _compared(golden: str, outputs: Sequence[IoSpec], answers: Sequence[NDArray[Any]]) -> List[Dict[str, Any]]:
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


def _finite(outputs: Sequence[IoSpec], answers: Sequence[NDArray[Any]]) -> List[Dict[str, Any]]:
    """Without golden pairs it can only be said that numbers come out."""
    return [
        {
            "name": spec.name,
            "passed": bool(np.isfinite(answer.astype(np.float64)).all()),
            "reason": f"output {spec.name!r} holds NaN or infinity",
            "agreement": None,
        }
        for spec, answer in zip(outputs, answers)
    ]


def _agreement(answer: NDArray[Any], expected: NDArray[Any]) -> Optional[Dict[str, int]]:
    """How often the largest value is at the same place, for outputs that look like classes."""
    if answer.ndim != 3 or answer.shape[1] != 1 or answer.shape[2] < 2:
        return None
    same = answer.argmax(axis=-1) == expected.reshape(answer.shape).argmax(axis=-1)
    return {"same": int(same.sum()), "count": int(same.size)}


def _rms(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if values.size else 0.0


def main(request: Mapping[str, Any]) -> int:
    """One check; the report (or ``{"error": ...}``) is written to the file ``request["report"]``."""
    try:
        report = check_health(
            request["folder"], threads=request.get("threads", 0), max_latency_ms=request.get("max_latency_ms")
        )
    except EdgekitError as error:
        report = {"error": error.as_dict()}
    with open(request["report"], "w", encoding="utf-8") as file:
        json.dump(report, file)
    sys.stdout.flush()
    return 0
