"""Whether a model answers on this board as it did where it was made: its golden pairs are run and compared. Runs in a process of its own.

What passes is decided in :mod:`edgekit.runtime.golden`, for apps as well.
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
from edgekit.errors import EdgekitError
from edgekit.runtime.backend import Backend, open_backend
from edgekit.runtime.golden import compared
from edgekit.runtime.naming import describe, read_bundle
from edgekit.values import IoSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
            "outputs": compared(golden, outputs, answers) if feed.kind == "golden" else _finite(outputs, answers),
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
