"""A whole benchmark in one call: plan, start, wait, collect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgekit.bench import jobs
from edgekit.bench.jobs import Job, Status
from edgekit.bench.plan import DEFAULT_DURATION_S, make_plan
from edgekit.bench.profiles import profile_of
from edgekit.bench.runs import collect, read_result
from edgekit.errors import BoardBusyError, EdgekitError, JobError, LinkError, UsageError
from edgekit.link.base import Link
from edgekit.link.local import LocalLink

CANCEL_WAIT_S = 30.0
"""How long a cancelled job may take to hand over what it has before it is ended."""


class BenchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a benchmark on this machine. ``run`` is the folder with what was measured, None when nothing could be saved."""

    def __init__(self, run: Path | None) -> None:
        super().__init__()
        self.run = run


def run_benchmark(
    source: Path,
    *,
    device: str = "local",
    duration_s: float = DEFAULT_DURATION_S,
    threads: int = 0,
    with_float: bool = False,
    runs_dir: Path = Path("runs"),
    progress: Callable[[Status], None] | None = None,
    seed: int = 0,
    backend: str | None = None,
    home: str | None = None,
    python: str | None = None,
) -> Path:
    """Measures a bundle or a ``.tflite`` file and returns the run folder.

    ``duration_s`` is the sustained time of each variant; ``with_float`` measures the bundle's float model beside it, interleaved.
    ``threads`` 0 means all cores. ``progress`` is called about twice a second.

    Raises :class:`BoardBusyError` when another job is running there, :class:`JobError` when the job failed (``details["run"]`` is the
    folder with what there is, ``details["log_tail"]`` the end of its log), and :class:`BenchInterrupted` on Ctrl-C, after the run was
    cancelled and saved.
    """
    link = open_link(device)
    zone_types = profile_of(link).zone_types
    plan = make_plan(
        Path(source),
        device=device,
        duration_s=duration_s,
        threads=threads,
        with_float=with_float,
        seed=seed,
        backend=backend,
        zone_types=zone_types,
    )
    job = jobs.start(link, plan, home=home, python=python)
    try:
        jobs.wait(link, job, progress=progress)
    except KeyboardInterrupt as interrupt:
        raise BenchInterrupted(_cancel_and_collect(link, job, runs_dir)) from interrupt
    except JobError as gone:
        run = collect(link, job, runs_dir, gone=gone)
        raise JobError(
            gone.message, hint=gone.hint, code=gone.code, details={**gone.details, "run": str(run)}
        ) from gone
    run = collect(link, job, runs_dir)
    jobs.discard(link, job)
    refuse_failed(run)
    return run


def open_link(device: str) -> Link:
    """The link to a board by its name. Raises :class:`UsageError` (``board_unknown``) for a name that nobody added."""
    if device == "local":
        return LocalLink()
    raise UsageError(
        f"no board is called {device!r}",
        code="board_unknown",
        hint="--device local is this machine and needs no set-up",
    )


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
