"""Recorded boards as trees of files, and jobs to run. Works on any Python from 3.8 on with numpy and one TFLite interpreter."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import pytest

from edgekit.runtime.backend import available_backends

sys.path.insert(0, str(Path(__file__).parents[1] / "boards"))

from board_files import Board, recorded

ROOT = Path(__file__).parents[2]
MODELS = Path(__file__).parents[1] / "runtime" / "models"


@pytest.fixture
def board(tmp_path: Path) -> Callable[..., Board]:
    """``board("raspberry-pi-4")`` or ``board(files={...})``."""

    def make(name: str = "", files: Optional[Mapping[str, str]] = None) -> Board:
        return Board(tmp_path / "board", *(recorded(name) if name else (files or {}, {})))

    return make


class Job:
    """A job folder with its request, run by a real agent process."""

    def __init__(self, home: Path, name: str, request: Mapping[str, Any]) -> None:
        self.home = home
        self.folder = home / "jobs" / name
        self.folder.mkdir(parents=True)
        (self.folder / "request.json").write_text(json.dumps(request))
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        log = open(self.folder / "log.txt", "ab")  # noqa: SIM115
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "edgekit.agent", *options, "run", str(self.folder), "--home", str(self.home)]
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        return self.process

    def run(self, *options: str) -> Dict[str, Any]:
        assert self.start(*options).wait(120) in (0, 1)
        return self.result()

    def result(self) -> Dict[str, Any]:
        return self.json("result.json")

    def json(self, name: str) -> Dict[str, Any]:
        value: Dict[str, Any] = json.loads((self.folder / name).read_text())
        return value

    def lines(self, name: str) -> List[Dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def wait_for(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                value = condition()
            except (OSError, ValueError, KeyError):
                value = None
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(
            "nothing happened in {} s; log: {}".format(timeout_s, (self.folder / "log.txt").read_text())
        )

    def wait_until_measuring(self) -> None:
        self.wait_for(lambda: self.json("status.json")["inferences"] > 0)

    def workers(self) -> List[int]:
        """Process ids of the supervisor's children."""
        assert self.process is not None
        return children(self.process.pid)


def children(parent: int) -> List[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry))
    return sorted(found)


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """``job("islands", "convs", duration_s=1)``: a job for one model, or for two to be interleaved."""
    if not available_backends():
        pytest.skip("no TFLite interpreter is installed (pip install ai-edge-litert)")
    made: List[Job] = []
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)

    def store(name: str) -> Dict[str, Any]:
        data = (MODELS / f"{name}.tflite").read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        shutil.copy(MODELS / f"{name}.tflite", home / "models" / f"{digest}.tflite")
        return {
            "name": name,
            "kind": "tflite",
            "sha256": digest,
            "size_bytes": len(data),
            "path": f"../../models/{digest}.tflite",
        }

    def make(model: str = "islands", float_model: Optional[str] = None, **changes: Any) -> Job:
        number = len(made)
        request: Dict[str, Any] = {
            "schema": 1,
            "id": f"job-{number}",
            "created_utc": "2026-01-01T00:00:00Z",
            "model": store(model),
            "float_model": store(float_model) if float_model else None,
            "golden": None,
            "device": "local",
            "duration_s": 0.3,
            "threads": 1,
            "warmup_min_runs": 5,
            "warmup_min_s": 0.05,
            "block_s": 0.1,
            "settle_runs": 1,
            "stall_s": 60.0,
            "seed": 0,
            "backend": None,
            "sample_hz": 10.0,
            "byte_budget": 64 << 20,
            "zone_types": [],
            **changes,
        }
        made.append(Job(home, f"job-{number}", request))
        return made[-1]

    yield make
    for one in made:
        if one.process is not None and one.process.poll() is None:
            for pid in one.workers():
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            one.process.kill()
            one.process.wait()
