"""The judge sees what is wrong, and a worker that crashes or hangs costs one answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import conformance_judge
import numpy as np
import pytest
from conformance_resident import Resident
from tiny_models import TinyTflite

from edgekit.intake import tflite

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("expected", "got", "right"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2000.0], [1.05, 2000.0], True),  # within 1e-4 of the largest
        ([1.0, 2.0], [1.0, 2.01], False),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [0.0, 1.0], False),
        ([INF, 1.0], [INF, 1.0], True),
        ([INF, 1.0], [-INF, 1.0], False),
        ([1.0, 2.0], [1.0, NAN], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([0.0, 0.0], [0.0, 1e-9], False),
    ],
)
def test_floats(expected: list[float], got: list[float], right: bool) -> None:
    assert (conformance_judge.difference(np.float32(expected), np.float32(got)) == "") is right


def test_integers_are_equal_or_wrong() -> None:
    large = np.array([10_000_000, 1])
    assert conformance_judge.difference(large, large.astype(np.int32)) == ""
    assert conformance_judge.difference(large, large + [1, 0]) == "1 of 2 integers differ"
    assert "float32" in conformance_judge.difference(large, large.astype(np.float32))
    assert conformance_judge.difference(np.zeros((2, 3)), np.zeros((3, 2))) == "shape [3, 2] instead of [2, 3]"


def case(folder: Path, inputs: dict[str, Any], outputs: dict[str, Any]) -> str:
    arrays = {f"i{k}": value for k, value in enumerate(inputs.values())}
    arrays |= {f"o{k}": value for k, value in enumerate(outputs.values())}
    path = folder / "data.npz"
    np.savez(path, **arrays, **{"in": np.array(list(inputs)), "out": np.array(list(outputs))})
    return str(path)


def doubling(folder: Path, shape: list[int]) -> str:
    """A file that adds ``x`` to itself."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", shape), tiny.tensor("y", shape)
    tiny.operator("ADD", [x, x], [y])
    path = folder / "m.tflite"
    tflite.write(tiny.model(tiny.graph([x], [y])), path)
    return str(path)


def test_a_file_that_declares_nothing_is_right_in_any_order_of_axes(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    file = doubling(tmp_path, [1, 4, 5, 3])
    right = conformance_judge.judge({"tflite": file, "data": case(tmp_path, {"x": x}, {"y": 2 * x}), "io": None})
    assert right["verdict"] == "right"
    wrong = conformance_judge.judge({"tflite": file, "data": case(tmp_path, {"x": x}, {"y": 3 * x}), "io": None})
    assert wrong["verdict"] == "wrong" and "off by" in wrong["why"]
    odd = np.ones((2, 2), np.float32)
    unfit = conformance_judge.judge({"tflite": file, "data": case(tmp_path, {"x": odd}, {"y": odd}), "io": None})
    assert unfit["verdict"] == "unusable"


def test_a_damaged_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(60))
    x = np.ones((1, 2), np.float32)
    request = {"tflite": str(tmp_path / "m.tflite"), "data": case(tmp_path, {"x": x}, {"y": x}), "io": None}
    assert conformance_judge.judge(request)["verdict"] == "unusable"


WORKER = """
import os, sys, time
sys.path.insert(0, {tools!r})
from conformance_resident import serve
def answer(request):
    if request["do"] == "crash":
        os.abort()
    if request["do"] == "hang":
        time.sleep(60)
    return {{"said": request["do"], "pid": os.getpid()}}
serve(answer)
"""


def test_crash_and_hang_cost_one_answer_each(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(tools=str(Path(conformance_judge.__file__).parent)))
    worker = Resident([sys.executable, str(script)], log=tmp_path / "log.txt", env=dict(os.environ), renew_after=3)
    try:
        first = worker.ask({"do": "a"}, timeout_s=30)
        assert first["said"] == "a"
        assert worker.ask({"do": "crash"}, timeout_s=30) == {"died": "died of SIGABRT"}
        second = worker.ask({"do": "b"}, timeout_s=30)
        assert second["said"] == "b" and second["pid"] != first["pid"]
        assert worker.ask({"do": "hang"}, timeout_s=0.5) == {"died": "no answer within 0.5 s"}
        pids = [worker.ask({"do": "c"}, timeout_s=30)["pid"] for _ in range(4)]
        assert len(set(pids)) == 2 and pids[0] == pids[2] != pids[3]
    finally:
        worker.close()
