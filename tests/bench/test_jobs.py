"""A job on a board, from the workstation's side, with the ways in which it can be lost."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.bench import jobs
from edgekit.bench.plan import make_plan
from edgekit.bench.runs import collect, read_result
from edgekit.errors import BoardBusyError, JobError
from edgekit.link.base import Transfer
from edgekit.link.local import LocalLink
from edgekit.push.pyz import agent_name


class CountingLink(LocalLink):
    """A link to this machine that remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def put(self, local: Path, remote: str, **more: Any) -> Transfer:
        self.sent.append(remote)
        return super().put(local, remote, **more)


def wait_until_measuring(link: LocalLink, job: jobs.Job) -> None:
    end = time.monotonic() + 60
    while jobs.poll(link, job).inferences == 0:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_from_start_to_done(models: Path, home: Path, tmp_path: Path) -> None:
    link = CountingLink()
    job = jobs.start(link, make_plan(models / "convs.tflite", duration_s=0.5))
    assert job.folder == str(home / "jobs" / job.id)
    seen: list[jobs.Status] = []
    status = jobs.wait(link, job, progress=seen.append, poll_every_s=0.05)
    assert status.state == "done"
    assert {one.state for one in seen} <= {"starting", "running", "done"}
    assert status.elapsed_s >= 0.5
    run = collect(link, job, tmp_path / "runs")
    assert run == tmp_path / "runs" / job.id
    assert read_result(run)["state"] == "done"
    jobs.discard(link, job)
    assert not Path(job.folder).exists()


def test_the_same_bytes_are_sent_once(models: Path, home: Path, bundle: Callable[..., Path]) -> None:
    plan = make_plan(bundle(), with_float=True, duration_s=0.2)
    first = CountingLink()
    jobs.wait(first, jobs.start(first, plan))
    assert len([name for name in first.sent if "/blobs/" in name]) == 3  # the model, its float model, the golden pairs
    second = CountingLink()
    job = jobs.start(second, plan)
    assert jobs.wait(second, job).state == "done"
    assert sorted(Path(name).name for name in second.sent) == ["bundle.json", "request.json"]
    assert job.id == f"{plan.id}-2"  # two runs of one second are two runs
    assert (home / agent_name()).is_file()


def test_a_busy_board_is_refused_before_anything_is_sent(models: Path, home: Path) -> None:
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "islands.tflite", duration_s=600.0))
    try:
        wait_until_measuring(link, job)
        second = CountingLink()
        with pytest.raises(BoardBusyError, match=job.id) as caught:
            jobs.start(second, make_plan(models / "convs.tflite"))
        assert caught.value.exit_code == 5
        assert job.id in caught.value.hint
        assert second.sent == []
    finally:
        jobs.cancel(link, job)
        assert jobs.wait(link, job).state == "cancelled"
    jobs.refuse_when_busy(link, str(home))


def test_the_lock_of_a_dead_job_holds_nobody(home: Path) -> None:
    home.mkdir()
    (home / "busy.json").write_text(json.dumps({"job": "old", "pid": 2**22 + 1}))
    jobs.refuse_when_busy(LocalLink(), str(home))
    (home / "busy.json").write_text("")
    jobs.refuse_when_busy(LocalLink(), str(home))
    (home / "busy.json").write_text("{half")
    jobs.refuse_when_busy(LocalLink(), str(home))


def test_a_supervisor_that_was_killed_is_an_error_and_not_a_wait(models: Path, home: Path, tmp_path: Path) -> None:
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "islands.tflite", duration_s=600.0))
    wait_until_measuring(link, job)
    os.kill(job.pid, signal.SIGKILL)
    with pytest.raises(JobError) as caught:
        jobs.wait(link, job)
    assert caught.value.code == "supervisor_gone"
    assert caught.value.details["last_status"]["inferences"] > 0
    run = collect(link, job, tmp_path / "runs", gone=caught.value)
    result = read_result(run)
    assert (result["state"], result["valid"]) == ("failed", False)
    assert result["error"]["code"] == "supervisor_gone"
    assert (run / "latencies.bin").stat().st_size > 0


def test_a_board_that_was_restarted_is_said_to_be(models: Path, home: Path, tmp_path: Path) -> None:
    """Its kernel calls this start otherwise, and the job's number may be another process's by now."""
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "islands.tflite", duration_s=600.0))
    wait_until_measuring(link, job)
    os.kill(job.pid, signal.SIGKILL)
    assert job.boot_id == jobs.boot_id(link)
    before = dataclasses.replace(job, pid=os.getpid(), boot_id="another-start")
    with pytest.raises(JobError, match="was restarted") as caught:
        jobs.wait(link, before)
    assert caught.value.code == "board_rebooted"
    assert read_result(collect(link, before, tmp_path / "runs", gone=caught.value))["state"] == "failed"


def test_a_job_that_never_began_shows_its_log(models: Path, home: Path) -> None:
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "islands.tflite"), python="no-such-python")
    with pytest.raises(JobError) as caught:
        jobs.wait(link, job)
    assert "no-such-python" in "".join(caught.value.details["log_tail"])


def test_a_frozen_supervisor_is_ended(models: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "islands.tflite", duration_s=600.0))
    wait_until_measuring(link, job)
    os.kill(job.pid, signal.SIGSTOP)
    monkeypatch.setattr(jobs, "SILENT_S", 1.5)
    with pytest.raises(JobError, match="no sign of life") as caught:
        jobs.wait(link, job, poll_every_s=0.1)
    assert caught.value.code == "job_stalled"
    end = time.monotonic() + 60
    while jobs.is_alive(link, job.pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_slow_inference_is_no_silence(models: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status of a long block does not change but for its beat: that is a living supervisor."""
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "islands.tflite", duration_s=600.0))
    wait_until_measuring(link, job)
    worker = children(job.pid)[0]
    os.kill(worker, signal.SIGSTOP)
    monkeypatch.setattr(jobs, "SILENT_S", 2.5)
    began = time.monotonic()

    resumed: list[float] = []

    def resume(status: jobs.Status) -> None:
        if not resumed and time.monotonic() - began > 4.0:
            os.kill(worker, signal.SIGCONT)
            jobs.cancel(link, job)
            resumed.append(status.t_s)

    assert jobs.wait(link, job, progress=resume).state == "cancelled"
    assert resumed


def test_a_home_below_the_user_s(models: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEKIT_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    link = LocalLink()
    job = jobs.start(link, make_plan(models / "convs.tflite", duration_s=0.1))
    assert job.folder.startswith(f"{tmp_path}/.edgekit/jobs/")
    assert jobs.wait(link, job).state == "done"


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
