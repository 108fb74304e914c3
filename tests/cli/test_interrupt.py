"""Ctrl-C and a polite kill in the middle of a conversion: exit 130, nothing half-written, no process left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from bundles import SAMPLES
from command_line import command, environment

DEADLINE_S = 60.0


def started(folder: Path, frontend: str, *more: str) -> tuple[subprocess.Popen[str], int]:
    """A conversion whose front end is at work, and that worker's process id."""
    data = (np.load(SAMPLES / "test.npz")["image"][:40].astype(np.float32) - 127.5) / 127.5
    np.savez(folder / "d.npz", image=data)
    line = command("convert", SAMPLES / "fashion_silu.onnx", "--data", "d.npz", "--out", "deep/f.bundle")
    process = subprocess.Popen(
        [*line, "--frontend", frontend, *more],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a shell makes for the foreground
    )
    limit = time.monotonic() + DEADLINE_S
    while time.monotonic() < limit:
        workers = processes_in(folder)
        if workers:
            return process, workers[0]
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    pytest.fail("the front end's worker did not start")


def processes_in(folder: Path) -> list[int]:
    """The ids of processes that work in a staging folder below ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd").startswith(f"{folder}/deep/"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "as_json"),
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)],
    ids=["Ctrl-C", "Ctrl-C json", "kill", "hang-up json"],
)
def test_stopped_in_the_middle(tmp_path: Path, any_frontend: str, number: signal.Signals, as_json: bool) -> None:
    before = (SAMPLES / "fashion_silu.onnx").read_bytes()
    process, worker = started(tmp_path, any_frontend, *(["--json"] if as_json else []))
    if number is signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    if as_json:
        error = json.loads(out)["error"]
        assert (error["code"], err) == ("interrupted", "") and "nothing half-written" in error["message"]
    else:
        assert out == "" and "nothing half-written was left behind" in err
    assert sorted(os.listdir(tmp_path)) == ["d.npz"]
    assert not alive(worker) and processes_in(tmp_path) == []
    assert (SAMPLES / "fashion_silu.onnx").read_bytes() == before
