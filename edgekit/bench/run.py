"""A whole benchmark in one call: plan, start, wait, collect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgekit.bench import jobs, known
from edgekit.bench.jobs import Job, Status
from edgekit.bench.plan import DEFAULT_DURATION_S, make_plan
from edgekit.bench.profiles import profile_of
from edgekit.bench.protocol import Protocol
from edgekit.bench.runs import collect, read_result
from edgekit.errors import BoardBusyError, EdgekitError, JobError, LinkError
from edgekit.link.base import Link
from edgekit.link.boards import LOCAL, open_link

CANCEL_WAIT_S = 30.0
"""How long a cancelled job may take to hand over what it has before it is ended."""


class BenchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a benchmark.

    On this machine the job was cancelled, and ``run`` is the folder with what was measured, None when nothing could be saved. On a board
    the job goes on, and ``job`` is how to come back to it.
    """

    def __init__(self, run: Path | None, *, job: Job | None = None) -> None:
        super().__init__()
        self.run = run
        self.job = job


def run_benchmark(
    source: Path,
    *,
    device: str = "local",
    link: Link | None = None,
    duration_s: float = DEFAULT_DURATION_S,
    threads: int = 0,
    with_float: bool = False,
    runs_dir: Path = Path("runs"),
    progress: Callable[[Status], None] | None = None,
    seed: int = 0,
    backend: str | None = None,
    home: str | None = None,
    python: str | None = None,
    protocol: Protocol | None = None,
    more_threads: tuple[int, ...] = (),
    other: Path | None = None,
) -> Path:
    """Measures a bundle or a ``.tflite`` file and returns the run folder.

    ``duration_s`` is the sustained time of each variant; ``with_float`` measures the bundle's float model beside it, interleaved.
    ``threads`` 0 means all cores; ``more_threads`` and the model ``other`` are measured in turns with it. ``protocol`` is how the run begins,
    is paced and ends: without one it starts at once and takes ``duration_s``. ``progress`` is called about twice a second. ``link`` is one to ``device`` that is open already.

    Raises :class:`BoardBusyError` when another job is running there, :class:`JobError` when the job failed (``details["run"]`` is the
    folder with what there is, ``details["log_tail"]`` the end of its log), and :class:`BenchInterrupted` on Ctrl-C. On a board
    the job goes on when the link is lost (:class:`LinkError`, ``details["job"]``) or the user stops waiting: :func:`bring_home` is the
    way back to it.
    """
    link = link or open_link(device)
    profile = profile_of(link)
    plan = make_plan(
        Path(source),
        device=device,
        duration_s=duration_s,
        threads=threads,
        with_float=with_float,
        seed=seed,
        backend=backend,
        zone_types=profile.zone_types,
        throttle_c=profile.throttle_c,
        board_note=profile.note,
        protocol=protocol,
        more_threads=more_threads,
        other=other,
    )
    job = jobs.start(link, plan, home=home, python=python)
    if device != LOCAL:
        known.remember(job)
    return bring_home(link, job, runs_dir=runs_dir, progress=progress)


def bring_home(
    link: Link, job: Job, *, runs_dir: Path = Path("runs"), progress: Callable[[Status], None] | None = None
) -> Path:
    """Waits until a job has ended, copies its folder to ``runs_dir`` and removes it from the board; returns the run folder.

    Raises as :func:`run_benchmark` does; a run that was lost is brought home too, marked as failed.
    """
    try:
        jobs.wait(link, job, progress=progress)
    except KeyboardInterrupt as interrupt:
        if job.device == LOCAL:
            raise BenchInterrupted(_cancel_and_collect(link, job, runs_dir)) from interrupt
        raise BenchInterrupted(None, job=job) from interrupt
    except LinkError as error:
        raise LinkError(
            f"{error.message}; job {job.id} goes on on the board",
            code=error.code,
            hint=f"when the board can be reached again: edgekit collect {job.id}",
            details={**error.details, "job": job.id},
        ) from error
    except JobError as gone:
        run = collect(link, job, runs_dir, gone=gone)
        known.forget(job)
        raise JobError(
            gone.message, hint=gone.hint, code=gone.code, details={**gone.details, "run": str(run)}
        ) from gone
    run = collect(link, job, runs_dir)
    jobs.discard(link, job)
    known.forget(job)
    refuse_failed(run)
    return run


def refuse_failed(run: Path) -> None:
    """Raises the error that a failed run ended with (:class:`JobError`, or :class:`BoardBusyError`); returns for others."""
    result = read_result(run)
    if result["state"] != "failed":
        return
    error: dict[str, Any] = result.get("error") or {"code": "job_failed", "message": "the job failed"}
    details = {"run": str(run), "log_tail": error.get("log_tail", [])}
    kind = BoardBusyError if error["code"] == BoardBusyError.code else JobError
    raise kind(
        error["message"],
        code=error["code"],
        hint=error.get("hint", "") or f"the log is {run / 'log.txt'}",
        details=details,
    )


def _cancel_and_collect(link: Link, job: Job, runs_dir: Path) -> Path | None:
    """What a cancelled job leaves; a second Ctrl-C meanwhile goes through."""
    gone: JobError | None = None
    try:
        jobs.cancel(link, job)
        jobs.wait(link, job, poll_every_s=0.1, within_s=CANCEL_WAIT_S)
    except JobError as error:
        gone = error
    except LinkError:
        return None
    try:
        run = collect(link, job, runs_dir, gone=gone)
    except EdgekitError:
        return None
    jobs.discard(link, job)
    return run
