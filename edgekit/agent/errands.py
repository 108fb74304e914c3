"""What the workstation asks of a board in one round trip: a request as JSON on stdin, the answer as JSON on stdout.

Errands that change what an app uses run in a session of their own, so that a link that breaks does not stop them half way; the answer is
then lost, and the next one finds everything done. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from typing import Any, Callable, Dict, List, Mapping, Tuple

from edgekit.agent import environment
from edgekit.agent.release import App
from edgekit.agent.signature import KEY_FILE, required_key
from edgekit.agent.store import SCHEMA, Store, free_bytes, read_json, sweep
from edgekit.errors import EdgekitError, JobError

HEALTH_TIMEOUT_S = 120.0

Request = Mapping[str, Any]


def contact(home: str, request: Request) -> Dict[str, Any]:
    """What has to be sent, and what is there."""
    environment_here = environment.current_environment(home)
    found: Dict[str, Any] = {
        "home": home,
        "boot_id": _boot_id(),
        "python": sys.executable,
        "free_bytes": free_bytes(home),
        "missing": Store(home).missing(request.get("wanted", [])),
        "environment": environment_here or None,
        "require_signed": required_key(home),
    }
    if request.get("app"):
        found["app"] = _app(home, request).describe()
    return found


def install(home: str, request: Request) -> Dict[str, Any]:
    """See :meth:`edgekit.agent.release.App.install`."""
    key = required_key(home) or request.get("require_signed", "")
    outcome = _app(home, request).install({**request, "require_signed": key})
    if outcome["state"] == "done":
        outcome["swept"] = sweep(home, agent=os.path.realpath(sys.argv[0]))
    return outcome


def roll_back(home: str, request: Request) -> Dict[str, Any]:
    """See :meth:`edgekit.agent.release.App.roll_back`."""
    return _app(home, request).roll_back(to=request.get("to"))


def repair(home: str, request: Request) -> Dict[str, Any]:
    """See :meth:`edgekit.agent.release.App.repair`."""
    return _app(home, request).repair()


def health(home: str, request: Request) -> Dict[str, Any]:
    """The health of a bundle whose files are in the store, without a release."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".health-", dir=home) as folder:
        for name, file in request["files"].items():
            os.symlink(Store(home).path(file["sha256"]), os.path.join(folder, os.path.basename(name)))
        return {"state": "done", "health": _checked(home, request)(folder)}


def environment_install(home: str, request: Request) -> Dict[str, Any]:
    """See :func:`edgekit.agent.environment.install`."""
    return environment.install(home, request)


def environment_use(home: str, request: Request) -> Dict[str, Any]:
    """See :func:`edgekit.agent.environment.use`."""
    environment.use(home, request["hash"])
    return {"state": "done", "swept": sweep(home, agent=os.path.realpath(sys.argv[0]))}


def require_signed(home: str, request: Request) -> Dict[str, Any]:
    """Keeps the key that bundles have to be signed by; "" takes it away."""
    path = os.path.join(home, KEY_FILE)
    if not request["key"]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return {"state": "done"}
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(request["key"] + "\n")
    os.replace(f"{path}.new", path)
    return {"state": "done"}


def jobs(home: str, request: Request) -> Dict[str, Any]:
    """The benchmarks in ``jobs/``: what their status and request say, and whether the supervisor lives."""
    listed = []
    folder = os.path.join(home, "jobs")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        status = read_json(os.path.join(folder, name, "status.json"))
        asked = read_json(os.path.join(folder, name, "request.json"))
        if asked:
            alive = bool(status.get("pid")) and _is_agent(status["pid"])
            listed.append({"id": name, "status": status, "alive": alive, "model": asked.get("model", {}).get("name")})
    return {"state": "done", "jobs": listed, "boot_id": _boot_id()}


def purge(home: str, request: Request) -> Dict[str, Any]:
    """Ends the benchmarks and removes the folder."""
    import shutil

    for job in jobs(home, request)["jobs"]:
        if job["alive"]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(job["status"]["pid"], signal.SIGKILL)
    shutil.rmtree(home)
    return {"state": "done"}


ERRANDS: Dict[str, Callable[[str, Request], Dict[str, Any]]] = {
    errand.__name__: errand
    for errand in (
        contact, install, roll_back, repair, health, environment_install, environment_use, require_signed, jobs, purge
    )
}  # fmt: skip

IN_ITS_OWN_SESSION = ("install", "roll_back", "repair", "environment_use")


def main(what: str, home: str) -> int:
    """Does one errand; the exit code is 0 whenever there is an answer."""
    request = json.loads(sys.stdin.read() or "{}")
    if what in IN_ITS_OWN_SESSION:
        answer = _apart(what, home, request)
    else:
        answer = _answer(what, home, request)
    print(json.dumps(answer))
    return 0


def _answer(what: str, home: str, request: Request) -> Dict[str, Any]:
    try:
        if what != "purge":
            os.makedirs(os.path.join(home, "blobs"), exist_ok=True)
        return {"schema": SCHEMA, **ERRANDS[what](home, request)}
    except EdgekitError as error:
        return {"schema": SCHEMA, "error": {**error.as_dict(), "exit_code": error.exit_code}}
    except OSError as error:
        return {"schema": SCHEMA, "error": {**_as_error(error, home).as_dict(), "exit_code": JobError.exit_code}}


def _as_error(error: OSError, home: str) -> JobError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return JobError(
            "the board's disk is full; nothing there was changed",
            code="disk_full",
            hint=f"free some space on the disk that holds {home}",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return JobError(
            f"{error.filename or home} on the board cannot be written: {os.strerror(error.errno)}",
            code="home_read_only",
            hint="is the home folder mounted read-only, or owned by somebody else? sudo mount -o remount,rw / for the first",
        )
    return JobError(f"{error}", code="board_failed")


def _apart(what: str, home: str, request: Request) -> Dict[str, Any]:
    """The answer of a child that goes on when this process is killed with its session."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        try:
            data = json.dumps(_answer(what, home, request)).encode()
        except BaseException as error:  # a fault of the agent itself; else the parent would only see an end
            data = json.dumps(
                {"error": JobError(f"{type(error).__name__}: {error}", code="agent_failed").as_dict()}
            ).encode()
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as pipe:
            pipe.write(data)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        return {"error": JobError("the agent was ended from outside", code="agent_failed").as_dict()}
    answer: Dict[str, Any] = json.loads(data)
    return answer


def _app(home: str, request: Request) -> App:
    return App(home, request["app"], health=_checked(home, request))


def _checked(home: str, request: Request) -> Callable[[str], Dict[str, Any]]:
    """Checks a folder's health in a process of its own, in the environment that is in use: native code may crash."""
    import tempfile

    def check(folder: str) -> Dict[str, Any]:
        known = environment.current_environment(home)
        path = request.get("environment") or known.get("path")
        variables = dict(os.environ)
        if path:
            variables["PYTHONPATH"] = path
        with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
            wanted = {"folder": folder, "report": os.path.join(scratch, "report.json")}
            wanted.update({key: request[key] for key in ("threads", "max_latency_ms") if request.get(key) is not None})
            report, said = _in_child(wanted, variables)
        if "error" in report:
            error = report["error"]
            raise JobError(error["message"], code=error["code"], hint=error["hint"], details={"log_tail": said})
        return report

    return check


def _in_child(wanted: Request, variables: Dict[str, str]) -> Tuple[Dict[str, Any], List[str]]:
    import subprocess

    command = [sys.executable, os.path.abspath(sys.argv[0]), "health"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(wanted).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            timeout=HEALTH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JobError(
            f"the health check did not end within {HEALTH_TIMEOUT_S:.0f} s", code="health_stalled",
            hint="is the board busy? the model may be too large for it",
        ) from error  # fmt: skip
    said = done.stdout.decode("utf-8", "replace").splitlines()[-10:]
    report = read_json(wanted["report"])
    if not report:
        how = f"killed by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else f"exit {done.returncode}"
        missing = any("No module named" in line and "numpy" in line for line in said)
        raise JobError(
            "this board's Python has no numpy" if missing else f"the health check died ({how})",
            code="interpreter_missing" if missing else "health_crashed",
            hint="edgekit device prepare NAME" if missing else "",
            details={"log_tail": said},
        )
    return report, said


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _is_agent(pid: int) -> bool:
    try:
        with open(f"/proc/{int(pid)}/cmdline", "rb") as file:
            return b"agent" in file.read()
    except (OSError, ValueError):
        return False
