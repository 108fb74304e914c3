"""Run folders on the workstation: bring one home, find one again."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import tempfile
from pathlib import Path
from typing import Any

from edgekit.bench.jobs import Job
from edgekit.errors import JobError, LinkError, OutputError, UsageError
from edgekit.link.base import Link
from edgekit.resources import did_you_mean
from edgekit.values import SCHEMA

RUN_FILES = (
    "request.json",
    "facts.json",
    "status.json",
    "latencies.bin",
    "latencies-float.bin",
    "warmup.bin",
    "warmup-float.bin",
    "samples.jsonl",
    "events.jsonl",
    "log.txt",
    "bundle.json",
    "result.json",
)
"""What a run folder may hold when it comes from a board; ``report.html`` is made here."""


def collect(link: Link, job: Job, runs_dir: Path, *, gone: JobError | None = None) -> Path:
    """Copies the job's folder to ``runs_dir/ID``, which appears when it is complete and not before.

    ``gone`` is why the job left no ``result.json``: one that says so is then written here, so that the run can be read as a failed one.
    A run that was collected before is replaced. Raises :class:`OutputError` when ``runs_dir`` cannot be written.
    """
    target = runs_dir / job.id
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{job.id}.", dir=runs_dir))
    except OSError as error:
        raise OutputError(
            f"{runs_dir} cannot be written: {error.strerror or error}", hint="choose another --runs DIR"
        ) from error
    try:
        for name in RUN_FILES:
            _get_if_there(link, posixpath.join(job.folder, name), partial / name)
        for name in _more_files(partial / "request.json"):
            _get_if_there(link, posixpath.join(job.folder, name), partial / name)
        if gone is not None and not (partial / "result.json").exists():
            _write_json(partial / "result.json", _result_of_a_lost_job(gone))
        partial.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def list_runs(runs_dir: Path) -> list[Path]:
    """The run folders in ``runs_dir``, oldest first (an id begins with its time)."""
    if not runs_dir.is_dir():
        return []
    return sorted(path for path in runs_dir.iterdir() if is_run(path) and not path.name.startswith("."))


def is_run(path: Path) -> bool:
    """Whether this folder is a run."""
    return (path / "request.json").is_file()


def find_run(ref: str, runs_dir: Path) -> Path:
    """The run folder that ``ref`` means: a path, an id, the beginning of one id, or ``last``. Raises :class:`UsageError`."""
    if is_run(Path(ref)):
        return Path(ref)
    runs = list_runs(runs_dir)
    if ref == "last":
        if runs:
            return runs[-1]
        raise UsageError(f"there is no run in {runs_dir} yet", code="run_missing", hint="make one: edgekit bench MODEL")
    matching = [run for run in runs if run.name == ref] or [run for run in runs if run.name.startswith(ref)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            f"{ref!r} is the beginning of {len(matching)} runs",
            code="run_ambiguous",
            hint=", ".join(r.name for r in matching),
        )
    raise UsageError(
        f"there is no run {ref!r} in {runs_dir}",
        code="run_missing",
        hint=did_you_mean(ref, [run.name for run in runs]) or "a RUN is a folder, an id, or last",
    )


def read_result(run: Path) -> dict[str, Any]:
    """``result.json`` of a run. Raises :class:`UsageError` when it has none that can be read."""
    try:
        value = json.loads((run / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{run} has no readable result.json: {error}", code="run_unreadable") from error
    if not isinstance(value, dict):
        raise UsageError(f"{run / 'result.json'} is no object", code="run_unreadable")
    return value


def _more_files(request: Path) -> list[str]:
    """The raw files of the variants that the request names beside the model and its float form."""
    try:
        more = json.loads(request.read_text(encoding="utf-8")).get("more_variants", [])
        return [f"{kind}-{variant['name']}.bin" for variant in more for kind in ("latencies", "warmup")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _get_if_there(link: Link, remote: str, local: Path) -> None:
    try:
        link.get(remote, local)
    except LinkError as error:
        if error.code != "file_missing":
            raise


def _result_of_a_lost_job(gone: JobError) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "state": "failed",
        "valid": False,
        "invalid_reasons": ["the job left no result"],
        "warnings": [],
        "error": {"code": gone.code, "message": gone.message},
        "started_utc": None,
        "ended_utc": None,
        "clock": "CLOCK_MONOTONIC_RAW",
        "variants": {},
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
