"""A whole benchmark in one call, and what is left when it ends early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.bench import BenchInterrupted, Status, run_benchmark
from edgekit.bench.runs import find_run, list_runs, read_result
from edgekit.errors import JobError, ModelFileError, UsageError
from edgekit.link.local import LocalLink
from edgekit.report.html import write_run_report
from edgekit.report.table import run_table

ROOT = Path(__file__).parents[2]


def test_a_bundle_with_its_float_model(bundle: Callable[..., Path], home: Path, tmp_path: Path) -> None:
    seen: list[Status] = []
    run = run_benchmark(
        bundle(), duration_s=0.3, with_float=True, threads=1, runs_dir=tmp_path / "runs", progress=seen.append
    )
    assert find_run("last", tmp_path / "runs") == run
    result = read_result(run)
    assert result["state"] == "done"
    assert set(result["variants"]) == {"model", "float"}
    assert result["variants"]["model"]["input"]["kind"] == "golden"
    # The float model here is another network: the bundle's golden input does not fit it, and the result says so.
    assert "do not fit" in result["variants"]["float"]["input"]["note"]
    assert (run / "bundle.json").read_bytes() == (bundle("again.bundle") / "manifest.json").read_bytes()
    assert len(np.fromfile(run / "latencies-float.bin", "<i8")) == result["variants"]["float"]["count"]
    assert seen[-1].state == "done"
    assert list((home / "jobs").iterdir()) == []  # collected, so the board need not keep it


def test_a_run_that_is_too_short_for_statistics_is_kept(models: Path, home: Path, tmp_path: Path) -> None:
    run = run_benchmark(models / "convs.tflite", duration_s=0.001, runs_dir=tmp_path / "runs")
    assert read_result(run)["variants"]["model"]["count"] >= 1


def test_ctrl_c_saves_what_there_is(models: Path, home: Path, tmp_path: Path) -> None:
    def interrupt(status: Status) -> None:
        if status.inferences and status.state == "running":
            raise KeyboardInterrupt

    with pytest.raises(BenchInterrupted) as caught:
        run_benchmark(models / "islands.tflite", duration_s=600.0, runs_dir=tmp_path / "runs", progress=interrupt)
    assert isinstance(caught.value, KeyboardInterrupt)
    run = caught.value.run
    assert run is not None
    result = read_result(run)
    assert result["state"] == "cancelled"
    assert result["variants"]["model"]["count"] > 0
    assert json.loads((home / "busy.json").read_text() or "{}") == {}


def test_a_real_ctrl_c_in_a_terminal(models: Path, home: Path, tmp_path: Path) -> None:
    """The signal goes to the whole process group: the job must not be in it."""
    code = f"""
from pathlib import Path
from edgekit.bench import BenchInterrupted, run_benchmark
def progress(status):
    if status.inferences:
        print("measuring", flush=True)
try:
    run_benchmark(Path({str(models / "islands.tflite")!r}), duration_s=600.0, runs_dir=Path({str(tmp_path / "runs")!r}), progress=progress)
except BenchInterrupted as interrupted:
    print(interrupted.run)
    raise SystemExit(130)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "measuring\n"
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    run = Path(output.strip().splitlines()[-1])
    assert read_result(run)["state"] == "cancelled"


def test_a_crash_is_a_job_error_with_the_run_and_the_log(models: Path, home: Path, tmp_path: Path) -> None:
    def crash(status: Status) -> None:
        if status.inferences and status.state == "running":
            supervisor = json.loads((home / "busy.json").read_text())["pid"]
            for pid in children(supervisor):
                os.kill(pid, signal.SIGABRT)
            time.sleep(0.2)

    with pytest.raises(JobError) as caught:
        run_benchmark(models / "islands.tflite", duration_s=600.0, runs_dir=tmp_path / "runs", progress=crash)
    error = caught.value
    assert (error.code, error.exit_code) == ("interpreter_crashed", 5)
    assert "SIGABRT" in error.message
    assert error.details["log_tail"]
    run = Path(error.details["run"])
    assert read_result(run)["state"] == "failed"
    assert (run / "latencies.bin").stat().st_size > 0


def test_a_lost_job_is_a_job_error_with_the_run(models: Path, home: Path, tmp_path: Path) -> None:
    def kill(status: Status) -> None:
        if status.inferences:
            os.kill(json.loads((home / "busy.json").read_text())["pid"], signal.SIGKILL)

    with pytest.raises(JobError) as caught:
        run_benchmark(models / "islands.tflite", duration_s=600.0, runs_dir=tmp_path / "runs", progress=kill)
    assert caught.value.code == "supervisor_gone"
    assert read_result(Path(caught.value.details["run"]))["error"]["code"] == "supervisor_gone"


def test_what_the_agent_refuses_comes_back_in_its_words(models: Path, home: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="ADD") as caught:
        run_benchmark(models / "future.tflite", runs_dir=tmp_path / "runs")
    assert caught.value.code == "operator_unknown"
    assert caught.value.hint


def test_nothing_is_started_for_wrong_calls(models: Path, home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run_benchmark(models / "convs.tflite", device="pi5", runs_dir=tmp_path / "runs")
    assert caught.value.code == "board_unknown"
    with pytest.raises(ModelFileError):
        run_benchmark(tmp_path / "none.tflite", runs_dir=tmp_path / "runs")
    assert not home.exists()
    assert list_runs(tmp_path / "runs") == []


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_every_report_from_a_jetson_says_that_its_gpu_was_idle(models: Path, home: Path, tmp_path: Path) -> None:
    class Jetson(LocalLink):
        def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
            if remote == "/proc/device-tree/compatible":
                return b"nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0"
            return super().read_bytes(remote, offset=offset)

    run = run_benchmark(models / "convs.tflite", link=Jetson(), duration_s=0.1, runs_dir=tmp_path / "runs")
    summary = write_run_report([run], run / "report.html")[0]
    assert "TFLite runs on this board's CPU" in run_table(summary).notes[0]
    assert "TFLite runs on this board" in (run / "report.html").read_text()
