"""Whole runs by a real agent process: the folder it leaves, and what it leaves when something goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.agent.run_folder import RunFolder
from edgekit.agent.supervisor import Supervisor


def latencies(job: Any, name: str = "latencies.bin") -> Any:
    return np.fromfile(job.folder / name, "<i8")


def test_a_run_leaves_a_whole_folder(job: Any, board: Any) -> None:
    pi = board("raspberry-pi-4")
    run = job("convs", duration_s=0.4)
    result = run.run("--sys", pi.roots.sys)
    assert result["state"] == "done", result
    assert result["valid"], result
    assert result["error"] is None
    variant = result["variants"]["model"]
    times, warmup = latencies(run), latencies(run, "warmup.bin")
    assert variant["count"] == len(times) == sum(block["count"] for block in variant["blocks"]) > 0
    assert np.all(times > 0)
    assert variant["busy_ns"] >= 0.4e9
    assert variant["busy_ns"] >= times.sum()
    assert variant["warmup"]["count"] == len(warmup) >= 5
    assert variant["warmup"]["total_ns"] == warmup.sum()
    assert variant["first_inference_ns"] == warmup[0]
    assert (variant["kept_every"], variant["histogram"]) == (1, None)
    assert [block["first"] for block in variant["blocks"]] == [
        sum(block["count"] for block in variant["blocks"][:k]) for k in range(len(variant["blocks"]))
    ]
    assert variant["input"]["kind"] == "random"
    assert variant["threads"] == 1
    assert variant["io"]["inputs"][0]["shape"] == [1, 32, 32, 8]
    assert list(variant["memory"]) == ["import", "load", "allocate", "first_invoke", "sustained"]
    for stage in variant["memory"].values():
        assert stage["rss_bytes"] > 0
    facts = run.json("facts.json")
    assert facts["interpreter"]["name"]
    assert facts["delegate"]["total_operators"] == 4
    status = run.json("status.json")
    assert (status["state"], status["inferences"]) == ("done", len(times))
    assert status["elapsed_s"] >= 0.4
    samples = run.lines("samples.jsonl")
    assert samples[0]["temperature_c"] == 48.123
    assert samples[-1]["rss_bytes"]["model"] > 0
    stages = [event["message"] for event in run.lines("events.jsonl") if event["kind"] == "stage"]
    assert stages == ["open", "first", "warmup", "sustained"]


def test_two_variants_are_interleaved_and_each_gets_the_whole_duration(job: Any) -> None:
    run = job("dense_int8", "convs", duration_s=0.5, block_s=0.1, seed=3)
    result = run.run()
    variants = result["variants"]
    assert list(variants) == ["model", "float"]
    assert all(variant["busy_ns"] >= 0.5e9 for variant in variants.values())
    assert len(latencies(run, "latencies-float.bin")) == variants["float"]["count"]
    assert len(latencies(run, "warmup-float.bin")) == variants["float"]["warmup"]["count"]
    assert result["settle_runs"] == 1
    blocks = sorted(
        (block["start_s"], block["start_s"] + block["wall_ns"] / 1e9, name)
        for name, variant in variants.items()
        for block in variant["blocks"]
    )
    for (_, end, _), (start, _, _) in zip(blocks, blocks[1:]):
        assert start >= end - 1e-5  # never two at once
    order = [name for _, _, name in blocks]
    assert all(set(order[k : k + 2]) == {"model", "float"} for k in range(0, 8, 2))
    assert run.json("status.json")["duration_s"] == 1.0


def test_the_byte_budget_holds(job: Any) -> None:
    run = job("islands", duration_s=0.3, byte_budget=800)
    variant = run.run()["variants"]["model"]
    kept = latencies(run)
    assert len(kept) <= 100
    assert variant["kept_every"] > 1
    assert len(kept) == -(-variant["count"] // variant["kept_every"])
    assert sum(variant["histogram"]["counts"]) == variant["count"]
    assert any("byte budget" in warning for warning in run.result()["warnings"])


@pytest.mark.parametrize("how", ["file", "SIGTERM", "SIGINT"])
def test_a_cancelled_run_is_readable(job: Any, how: str) -> None:
    run = job("islands", duration_s=600.0, block_s=0.2)
    process = run.start()
    run.wait_until_measuring()
    if how == "file":
        (run.folder / "cancel").touch()
    else:
        process.send_signal(getattr(signal, how))
    assert process.wait(60) == 0
    result = run.result()
    assert result["state"] == "cancelled"
    assert not result["valid"]
    variant = result["variants"]["model"]
    assert variant["count"] == len(latencies(run)) > 0
    assert variant["memory"]["sustained"]["rss_bytes"] > 0
    assert run.json("status.json")["state"] == "cancelled"
    assert run.lines("events.jsonl")[-1]["kind"] == "cancel"


def test_a_crash_of_the_interpreter_is_survived_and_named(job: Any) -> None:
    run = job("islands", duration_s=600.0, block_s=0.1)
    process = run.start()
    run.wait_until_measuring()
    os.kill(run.workers()[0], signal.SIGSEGV)
    assert process.wait(60) == 1
    result = run.result()
    assert result["state"] == "failed"
    assert result["error"]["code"] == "interpreter_crashed"
    assert "SIGSEGV" in result["error"]["message"]
    # The worker's fault handler leaves the Python frame in the log, and the end of the log is in the error.
    assert any("Segmentation fault" in line or "worker.py" in line for line in result["error"]["log_tail"])
    variant = result["variants"]["model"]
    assert len(latencies(run)) >= variant["count"] > 0  # what was measured before is there
    assert "memory_unknown" in variant["memory"]["sustained"]
    assert variant["memory"]["load"]["rss_bytes"] > 0
    crash = [event for event in run.lines("events.jsonl") if event["kind"] == "crash"]
    assert len(crash) == 1
    assert run.json("status.json")["state"] == "failed"


def test_out_of_memory_is_suggested_for_sigkill(job: Any) -> None:
    run = job("islands", duration_s=600.0)
    process = run.start()
    run.wait_for(run.workers)
    os.kill(run.workers()[0], signal.SIGKILL)
    assert process.wait(60) == 1
    assert "SIGKILL" in run.result()["error"]["message"]
    assert "memory" in run.result()["error"]["message"]


def test_a_stuck_interpreter_is_ended(job: Any) -> None:
    run = job("islands", duration_s=600.0, block_s=0.1, stall_s=1.0)
    process = run.start()
    run.wait_until_measuring()
    worker = run.workers()[0]
    os.kill(worker, signal.SIGSTOP)
    assert process.wait(60) == 1
    assert run.result()["error"]["code"] == "interpreter_stalled"
    assert not os.path.exists(f"/proc/{worker}")


def test_a_supervisor_that_is_killed_leaves_no_worker(job: Any) -> None:
    run = job("islands", duration_s=600.0, block_s=0.1)
    process = run.start()
    run.wait_until_measuring()
    worker = run.workers()[0]
    process.kill()
    process.wait()
    run.wait_for(lambda: not os.path.exists(f"/proc/{worker}"))


def test_no_interpreter_is_told_by_code(job: Any) -> None:
    run = job("islands", backend="no_such_package")
    assert run.run()["error"]["code"] == "usage"
    run = job("islands", backend="tensorflow")
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        error = run.run()["error"]
        assert error["code"] == "interpreter_missing"
        assert "pip install" in error["hint"]


def test_a_model_that_is_not_the_one_asked_for_is_not_measured(job: Any) -> None:
    run = job("islands")
    model = next((run.home / "models").iterdir())
    model.write_bytes(model.read_bytes()[:-20])
    result = run.run()
    assert result["error"]["code"] == "model_file_damaged"
    assert result["variants"]["model"]["count"] == 0
    assert not (run.folder / "latencies.bin").exists()


def test_a_model_that_this_interpreter_cannot_load(job: Any) -> None:
    error = job("future").run()["error"]
    assert error["code"] == "operator_unknown"
    assert "ADD" in error["message"]


def test_two_runs_at_once_are_refused(job: Any) -> None:
    first, second = job("islands", duration_s=600.0), job("islands")
    process = first.start()
    first.wait_until_measuring()
    result = second.run()
    assert result["error"]["code"] == "board_busy"
    assert "job-0" in result["error"]["message"]
    (first.folder / "cancel").touch()
    assert process.wait(60) == 0
    assert job("islands").run()["state"] == "done"  # the board is free again


def test_a_killed_run_does_not_hold_the_board(job: Any) -> None:
    first = job("islands", duration_s=600.0)
    process = first.start()
    first.wait_until_measuring()
    process.kill()
    process.wait()
    assert job("islands").run()["state"] == "done"


def test_a_full_disk_is_refused_before_anything_is_written(
    job: Any, board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job("islands")
    monkeypatch.setattr(RunFolder, "free_bytes", lambda self: 1 << 20)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        supervisor = Supervisor(
            RunFolder(str(run.folder)), worker=["false"], roots=board("raspberry-pi-4").roots, lock=None
        )
        assert supervisor.run() == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    error = run.result()["error"]
    assert error["code"] == "disk_full"
    assert "1.0 MB free" in error["message"]


@pytest.mark.parametrize("name", ["latencies.bin", "warmup.bin", "samples.jsonl"])
def test_a_disk_that_fills_up_during_the_run_is_named(job: Any, name: str) -> None:
    run = job("islands")
    (run.folder / name).symlink_to("/dev/full")  # takes nothing: every write fails with ENOSPC
    error = run.run()["error"]
    assert error["code"] == "disk_full", error
    assert "No space left" in error["message"]


def test_a_governor_that_changes_makes_the_run_invalid(job: Any, board: Any) -> None:
    pi = board("raspberry-pi-4")
    run = job("islands", duration_s=600.0, block_s=0.1)
    process = run.start("--sys", pi.roots.sys)
    run.wait_until_measuring()
    pi.write("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n")
    (run.folder / "cancel").touch()
    process.wait(60)
    assert any("governor changed" in reason for reason in run.result()["invalid_reasons"])


def test_throttling_and_vanishing_sensors_during_the_run_are_recorded(job: Any, board: Any) -> None:
    rk = board("rk3588")
    run = job("islands", duration_s=600.0, block_s=0.1, sample_hz=50.0)
    process = run.start("--sys", rk.roots.sys)
    run.wait_until_measuring()
    rk.write("sys/class/thermal/cooling_device0/cur_state", "1\n")
    run.wait_for(lambda: [event for event in run.lines("events.jsonl") if event["kind"] == "throttle_on"])
    rk.remove("sys/class/thermal/thermal_zone0/temp")
    run.wait_for(lambda: "temperature" in run.lines("samples.jsonl")[-1]["unknown"])
    rk.write("sys/class/thermal/cooling_device0/cur_state", "0\n")
    run.wait_for(lambda: [event for event in run.lines("events.jsonl") if event["kind"] == "throttle_off"])
    (run.folder / "cancel").touch()
    process.wait(60)
    assert any("capped" in warning for warning in run.result()["warnings"])
    assert run.lines("samples.jsonl")[-1]["temperature_c"] is None


def cores_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))


def test_the_sampling_keeps_off_the_worker_s_cores(job: Any) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: there is none to spare")
    run = job("islands", duration_s=600.0, threads=1)
    process = run.start()
    run.wait_until_measuring()
    (worker,) = run.workers()
    sampling, working = cores_of(process.pid), cores_of(worker)
    (run.folder / "cancel").touch()
    process.wait(60)
    assert run.json("facts.json")["sampling_core"] == int(sampling)
    assert sampling not in working.replace("-", ",").split(",")


def test_a_worker_that_needs_all_cores_shares_them(job: Any) -> None:
    run = job("islands", threads=0)
    run.run()
    assert run.json("facts.json")["sampling_core"] is None


def test_a_pi_s_throttle_word_is_in_samples_events_and_status(job: Any, board: Any) -> None:
    pi = board("raspberry-pi-4")
    pi.write("sys/firmware/devicetree/base/model", "Raspberry Pi 4 Model B Rev 1.4")  # /proc stays the real one
    run = job("islands", duration_s=600.0, sample_hz=20.0)
    process = run.start("--sys", pi.roots.sys, "--commands", pi.roots.commands)
    run.wait_until_measuring()
    run.wait_for(lambda: [line for line in run.lines("samples.jsonl") if line.get("throttle_word") == 0x50000])
    assert run.json("status.json")["throttled"] is False  # what has been is not what is
    pi.answer("vcgencmd get_throttled", "throttled=0x50005\n")
    run.wait_for(lambda: run.json("status.json")["throttle_cause"] == "under_voltage")
    (run.folder / "cancel").touch()
    process.wait(60)
    (on,) = [event for event in run.lines("events.jsonl") if event["kind"] == "throttle_on"]
    assert on["cause"] == "under_voltage"
    first = run.lines("samples.jsonl")[0]
    assert first["settings"]["governor"] == {"policy0": "ondemand"}
    assert first["wall_s"] > 1.7e9


def test_golden_inputs_are_used_where_there_are_some(job: Any) -> None:
    run = job("dense_int8", golden={"path": "../../models/golden.npz", "names": {"x": "image"}})
    np.savez(run.home / "models" / "golden.npz", **{"input/image": np.zeros((3, 1, 4))})
    variant = run.run()["variants"]["model"]
    assert variant["input"] == {"kind": "golden", "samples": 3, "note": ""}


def test_golden_inputs_that_do_not_fit_leave_a_warning(job: Any) -> None:
    run = job("dense_int8", golden={"path": "../../models/golden.npz", "names": {}})
    variant = run.run()["variants"]["model"]
    assert variant["input"]["kind"] == "random"
    assert any(event["kind"] == "warning" for event in run.lines("events.jsonl"))


def agent(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-m", "edgekit.agent", *arguments], capture_output=True, text=True, env=environment, timeout=60
    )


def test_facts_and_version_on_the_command_line(board: Any) -> None:
    import json

    from edgekit import __version__

    pi = board("raspberry-pi-4")
    done = agent("--sys", pi.roots.sys, "--proc", pi.roots.proc, "facts")
    assert json.loads(done.stdout)["board_model"] == "Raspberry Pi 4 Model B Rev 1.4"
    assert __version__ in agent("--version").stdout


def test_a_folder_without_a_request_is_one_line(tmp_path: Path) -> None:
    done = agent("run", str(tmp_path))
    assert done.returncode == 1
    assert "request.json cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_supervisor_needs_no_numpy() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import edgekit.agent.supervisor, edgekit.agent.__main__, edgekit.agent.lock\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=str(Path(__file__).parents[2]), timeout=60)
