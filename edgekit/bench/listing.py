"""The benchmarks on a board, whoever started them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgekit.bench.jobs import FINAL_STATES, Job
from edgekit.bench.known import find_job
from edgekit.errors import UsageError
from edgekit.link.base import Link
from edgekit.push.contact import Agent


@dataclasses.dataclass(frozen=True)
class JobLine:
    """One benchmark on a board. ``state`` is its own word, or ``lost`` for one whose supervisor is gone without a last word."""

    id: str
    device: str
    model: str
    state: str
    elapsed_s: float
    duration_s: float
    pid: int


def list_jobs(link: Link) -> list[JobLine]:
    """Every benchmark that lies on the board, the oldest first, in one round trip."""
    found = []
    for job in Agent(link).ask("jobs")["jobs"]:
        status = job["status"]
        state = str(status.get("state", "starting"))
        if state not in FINAL_STATES and not job["alive"]:
            state = "lost"
        seconds = (float(status.get("elapsed_s", 0.0)), float(status.get("duration_s", 0.0)))
        found.append(JobLine(job["id"], link.name, str(job["model"]), state, *seconds, int(status.get("pid", 0))))
    return found


def job_on_board(link: Link, ref: str) -> Job:
    """The job with this id, or the beginning of one, that lies on the board. Raises :class:`UsageError` (``job_unknown``)."""
    lines = list_jobs(link)
    found = [line for line in lines if line.id == ref] or [line for line in lines if line.id.startswith(ref)]
    if ref == "last" and lines:
        found = lines[-1:]
    if len(found) != 1:
        there = ", ".join(line.id for line in lines) or "none"
        raise UsageError(f"{link.name} has no job {ref!r}", code="job_unknown", hint=f"jobs there: {there}")
    return Job(found[0].id, link.name, Agent(link).path("jobs", found[0].id), found[0].pid)


def device_of(ref: str, device: str | None) -> str:
    """The board that a job is on: ``device`` when it is given, else where this machine started it."""
    return device or find_job(Path(ref).name).device
