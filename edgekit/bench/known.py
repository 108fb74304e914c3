"""The benchmarks that this workstation started on boards and has not brought home yet: one small file each, so that nothing needs to be remembered."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from edgekit.bench.jobs import Job
from edgekit.errors import UsageError
from edgekit.resources import did_you_mean


def jobs_folder() -> Path:
    """Where they are remembered."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "edgekit" / "jobs"


def remember(job: Job) -> None:
    """Keeps a job until :func:`forget`. A state folder that cannot be written costs the short way back to it, and nothing else."""
    try:
        jobs_folder().mkdir(parents=True, exist_ok=True)
        beside = jobs_folder() / f".{job.id}.new"
        beside.write_text(json.dumps(dataclasses.asdict(job)), encoding="utf-8")
        beside.replace(jobs_folder() / f"{job.id}.json")
    except OSError:
        pass


def forget(job: Job) -> None:
    """The job was brought home, or is gone."""
    (jobs_folder() / f"{job.id}.json").unlink(missing_ok=True)


def known_jobs() -> list[Job]:
    """The jobs that are remembered, the oldest first."""
    found = []
    for path in sorted(jobs_folder().glob("*.json")):
        try:
            found.append(Job(**json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            continue  # of another version, or cut short
    return sorted(found, key=lambda job: job.id)


def find_job(ref: str) -> Job:
    """The remembered job with this id, the beginning of one, or ``last``. Raises :class:`UsageError` (``job_unknown``)."""
    jobs = known_jobs()
    if ref == "last" and jobs:
        return jobs[-1]
    found = [job for job in jobs if job.id == ref] or [job for job in jobs if job.id.startswith(ref)]
    if len(found) == 1:
        return found[0]
    ids = [job.id for job in jobs]
    hint = did_you_mean(ref, ids) or (
        f"there are {', '.join(ids)}" if ids else "edgekit jobs --device NAME asks the board"
    )
    raise UsageError(f"no job {ref!r} was started here and is still to be collected", code="job_unknown", hint=hint)
