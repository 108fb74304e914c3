"""A benchmark on a board, seen from the workstation: start it, watch it, cancel it. It goes on without us.

On the board everything lies under one folder, the *home* (``~/.edgekit``): ``agent-HASH.pyz``, ``blobs/SHA256``, and ``jobs/ID/``, which
becomes the run folder.
"""

from __future__ import annotations

import dataclasses
import json
import posixpath
import time
from collections.abc import Callable
from typing import Any

from edgekit.agent.lock import LOCK_FILE
from edgekit.bench.plan import BenchPlan
from edgekit.errors import BoardBusyError, JobError, LinkError
from edgekit.link.base import Link
from edgekit.push.contact import Agent, put_bytes
from edgekit.push.pyz import agent_name
from edgekit.push.store import Content, send_missing
from edgekit.values import SCHEMA

COMMAND_TIMEOUT_S = 30.0

FINAL_STATES = ("done", "failed", "cancelled")

SILENT_S = 60.0
"""A living supervisor writes its status each second; one that has not for this long is frozen."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A benchmark on a board. ``folder`` is its place there, ``pid`` its supervisor, ``boot_id`` what the board was started as."""

    id: str
    device: str
    folder: str
    pid: int
    boot_id: str = ""


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a job is. ``elapsed_s`` of ``duration_s`` are measured, all variants together; ``t_s`` counts from the job's start."""

    state: str
    stage: str = ""
    elapsed_s: float = 0.0
    duration_s: float = 0.0
    inferences: int = 0
    temperature_c: float | None = None
    cpu_mhz: int | None = None
    message: str = ""
    t_s: float = 0.0


def start(link: Link, plan: BenchPlan, *, home: str | None = None, python: str | None = None) -> Job:
    """Sends what the board does not have yet and starts the job; returns while it is running.

    ``home`` is the folder on the board (by default ``$EDGEKIT_HOME`` on this machine, ``~/.edgekit`` elsewhere); ``python`` the
    interpreter that finds numpy and TFLite there (by default this one on this machine, what ``edgekit device prepare`` chose elsewhere).

    Raises :class:`BoardBusyError` when another job holds the board, :class:`JobError` when it is not ready or too full (``no_python``,
    ``disk_full``), and :class:`LinkError` when it cannot be reached.
    """
    agent = Agent(link, home=home)
    refuse_when_busy(link, agent.home)
    once = {file.sha256: file for file in plan.files}
    files = [Content(file.path.name, file.path, file.sha256, file.size_bytes) for file in once.values()]
    there = agent.ask("contact", {"wanted": [file.as_json() for file in files]})
    send_missing(agent, files, there["missing"], free_bytes=there["free_bytes"])
    plan = _with_free_id(link, plan, agent.home)
    folder = agent.path("jobs", plan.id)
    if plan.manifest is not None:
        link.put(plan.manifest, posixpath.join(folder, "bundle.json"))
    put_bytes(link, json.dumps(plan.request(), indent=1).encode() + b"\n", posixpath.join(folder, "request.json"))
    command = [python or there["python"], agent.path(agent_name()), "run", folder, "--home", agent.home]
    if there["environment"] and link.name != "local":
        command = ["env", f"PYTHONPATH={there['environment']['path']}", *command]
    pid = link.start_job(command, cwd=folder, log=posixpath.join(folder, "log.txt"))
    return Job(id=plan.id, device=plan.device, folder=folder, pid=pid, boot_id=there["boot_id"])


def poll(link: Link, job: Job) -> Status:
    """The job's status now. Raises :class:`JobError` (``supervisor_gone``) when it is gone without a final state."""
    status = _status(link, job)
    if status.state in FINAL_STATES or is_running(link, job):
        return status
    status = _status(link, job)  # it may have ended between the two looks
    if status.state in FINAL_STATES:
        return status
    tail = log_tail(link, job)
    if job.boot_id and boot_id(link) not in ("", job.boot_id):
        raise JobError(
            f"job {job.id} is lost: {link.name} was restarted while it measured",
            code="board_rebooted",
            hint="was it the power supply, or the heat? edgekit doctor --device " + link.name,
            details={"log_tail": tail, "last_status": dataclasses.asdict(status)},
        )
    raise JobError(
        f"job {job.id} is gone without a result: its supervisor (pid {job.pid}) was ended from outside or could not write",
        code="supervisor_gone",
        details={"log_tail": tail, "last_status": dataclasses.asdict(status)},
    )


def wait(
    link: Link,
    job: Job,
    *,
    progress: Callable[[Status], None] | None = None,
    poll_every_s: float = 0.5,
    within_s: float | None = None,
) -> Status:
    """The job's final status.

    Raises :class:`JobError` when the job is gone (``supervisor_gone``), when it gave no sign of life for a minute, or when it did
    not end ``within_s`` (both ``job_stalled``; it is then ended).
    """
    began = since = time.monotonic()
    beat = -1.0
    while True:
        status = poll(link, job)
        if progress is not None:
            progress(status)
        if status.state in FINAL_STATES:
            return status
        if status.t_s != beat:
            beat, since = status.t_s, time.monotonic()
        now = time.monotonic()
        if now - since > SILENT_S:
            raise _ended(link, job, f"gave no sign of life for {SILENT_S:.0f} s")
        if within_s is not None and now - began > within_s:
            raise _ended(link, job, f"did not end within {within_s:.0f} s")
        time.sleep(poll_every_s)


def _ended(link: Link, job: Job, why: str) -> JobError:
    """Ends the job; returns the error to raise."""
    kill(link, job)
    return JobError(f"job {job.id} {why} and was ended", code="job_stalled", details={"log_tail": log_tail(link, job)})


def cancel(link: Link, job: Job) -> None:
    """Asks the job to end early; it does within some seconds, and its folder stays readable."""
    link.run(["touch", posixpath.join(job.folder, "cancel")], timeout_s=COMMAND_TIMEOUT_S)


def kill(link: Link, job: Job) -> None:
    """Ends the job and its workers at once. They are one process group, as each job has a session of its own."""
    link.run(["kill", "-KILL", "--", f"-{job.pid}"], timeout_s=COMMAND_TIMEOUT_S)


def discard(link: Link, job: Job) -> None:
    """Removes the job's folder from the board, after it was collected."""
    link.run(["rm", "-rf", "--", job.folder], timeout_s=COMMAND_TIMEOUT_S)


def refuse_when_busy(link: Link, home: str) -> None:
    """Raises :class:`BoardBusyError` when a living job holds the board.

    A first look, before anything is sent: the lock itself is taken by the job on the board.
    """
    try:
        holder = json.loads(link.read_bytes(posixpath.join(home, LOCK_FILE)) or b"{}")
    except (LinkError, ValueError) as error:
        if isinstance(error, LinkError) and error.code != "file_missing":
            raise
        return
    if "pid" in holder and is_alive(link, int(holder["pid"])):
        raise BoardBusyError(
            f"job {holder['job']} (pid {holder['pid']}) is measuring on {link.name}",
            hint=f"wait for it, or cancel it: edgekit cancel {holder['job']}",
            details=holder,
        )


def is_running(link: Link, job: Job) -> bool:
    """Whether the job's supervisor lives: a process of its number that was started for its folder (after a restart numbers begin anew)."""
    try:
        words = link.read_bytes(f"/proc/{job.pid}/cmdline")
        # A process that is just becoming another program has no words for a moment; nor has one that is dead.
        return job.id.encode() in words if words else is_alive(link, job.pid)
    except LinkError as error:
        if error.code in ("file_missing", "read_failed"):
            return False
        raise


def boot_id(link: Link) -> str:
    """What the kernel of the board calls this start; "" when it does not say."""
    try:
        return link.read_bytes("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
    except LinkError as error:
        if error.code in ("file_missing", "read_failed"):
            return ""
        raise


def is_alive(link: Link, pid: int) -> bool:
    """Whether the board has a process of this number that has not ended (a zombie has)."""
    try:
        text = link.read_bytes(f"/proc/{pid}/stat").decode("utf-8", "replace")
    except LinkError as error:
        if error.code in ("file_missing", "read_failed"):
            return False
        raise
    return ")" in text and text.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


def log_tail(link: Link, job: Job, *, lines: int = 10) -> list[str]:
    """The last lines of the job's log."""
    try:
        data = link.read_bytes(posixpath.join(job.folder, "log.txt"))
    except LinkError:
        return []
    return data.decode("utf-8", "replace").splitlines()[-lines:]


def _status(link: Link, job: Job) -> Status:
    try:
        data: dict[str, Any] = json.loads(link.read_bytes(posixpath.join(job.folder, "status.json")))
    except LinkError as error:
        if error.code != "file_missing":
            raise
        return Status("starting")
    if data.get("schema") != SCHEMA:
        raise JobError(f"the agent's status has schema {data.get('schema')!r}, this edgekit reads {SCHEMA}")
    fields = {field.name for field in dataclasses.fields(Status)}
    return Status(**{key: value for key, value in data.items() if key in fields})


def _with_free_id(link: Link, plan: BenchPlan, home: str) -> BenchPlan:
    """The plan under an id that no job has: two runs may begin within one second."""
    number, free = 1, plan.id
    while link.exists(posixpath.join(home, "jobs", free)):
        number += 1
        free = f"{plan.id}-{number}"
    return dataclasses.replace(plan, id=free)
