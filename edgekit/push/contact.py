"""The agent on a board, asked from the workstation: found or sent, started with the right Python, its complaints raised as ours."""

from __future__ import annotations

import json
import os
import posixpath
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import BoardBusyError, EdgekitError, JobError, LinkError, UsageError
from edgekit.link.base import Completed, Link, Progress
from edgekit.push.pyz import agent_name, build_agent

DEFAULT_HOME = "~/.edgekit"
PYTHONS = tuple(f"python3.{minor}" for minor in range(13, 7, -1))
"""What is looked for on a board, the newest first."""

ERRAND_TIMEOUT_S = 240.0
"""Longer than a health check and the restart of an app may take together."""

_NO_AGENT, _NO_PYTHON = 45, 46
_START = """\
home=$1; agent=$2; what=$3; python=$4
case $home in "~/"*) home=$HOME/${home#"~/"} ;; esac
if [ -z "$python" ] && [ -r "$home/env/current/edgekit-env.json" ]; then
  python=$(sed -n 's/^ *"python": "\\(.*\\)",*$/\\1/p' "$home/env/current/edgekit-env.json")
  [ -x "$python" ] || python=
fi
if [ -z "$python" ]; then
  for name in PYTHONS python3; do
    python=$(command -v "$name") && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && break
    python=
  done
fi
[ -n "$python" ] || exit 46
[ -s "$home/$agent" ] || exit 45
case $what in contact | jobs) set -- -S ;; *) set -- ;; esac  # these need no package, and looking for them takes time
exec "$python" "$@" "$home/$agent" do "$what" --home "$home"
""".replace("PYTHONS", " ".join(PYTHONS))


class Agent:
    """The agent on the board behind ``link``.

    ``home`` is edgekit's folder there (by default ``$EDGEKIT_HOME`` on this machine, ``~/.edgekit`` elsewhere). ``python`` is the
    interpreter to use; by default that of the environment that was prepared, else the newest that there is (this one on this machine).
    """

    def __init__(self, link: Link, *, home: str | None = None, python: str = "") -> None:
        self.link = link
        self._home = home or (os.environ.get("EDGEKIT_HOME") if link.name == "local" else None) or DEFAULT_HOME
        self._python = python or (sys.executable if link.name == "local" else "")

    def with_python(self, python: str) -> Agent:
        """The same agent, run by the interpreter at ``python`` on the board."""
        return Agent(self.link, home=self._home, python=python)

    @property
    def home(self) -> str:
        """edgekit's folder on the board, absolute."""
        return self.link.absolute(self._home)

    def path(self, *below: str) -> str:
        """A path below :attr:`home`."""
        return posixpath.join(self.home, *below)

    def ask(self, what: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to an errand (:mod:`edgekit.agent.errands`). Every errand may be done twice, so a broken link is mended.

        Raises what the agent raised, :class:`LinkError` for the link, and :class:`JobError` with code ``no_python`` or ``agent_failed``.
        """
        data = json.dumps(request or {}).encode()

        def asked(home: str) -> Completed:
            argv = ["sh", "-c", _START, "sh", home, agent_name(), what, self._python]
            return self.link.run(argv, timeout_s=ERRAND_TIMEOUT_S, stdin=data, idempotent=True)

        done = asked(self.link.shell_path(self._home))
        if done.returncode == _NO_AGENT:
            put_bytes(self.link, build_agent(), self.path(agent_name()))
            done = asked(self.home)
        if done.returncode == _NO_PYTHON:
            raise no_python(self.link.name)
        try:
            answer = json.loads(done.stdout)
        except ValueError as error:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-10:]
            raise JobError(
                f"the agent on {self.link.name} gave no answer (exit {done.returncode}){': ' + said[-1] if said else ''}",
                code="agent_failed",
                details={"log_tail": said},
            ) from error
        if "error" in answer:
            raise _raised(answer["error"], self.link.name)
        return dict(answer)


def put_bytes(link: Link, data: bytes, remote: str, *, progress: Progress | None = None) -> None:
    """Makes ``remote`` a file with these bytes."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        local = Path(folder) / posixpath.basename(remote)
        local.write_bytes(data)
        try:
            link.put(local, remote, progress=progress)
        except LinkError as error:
            raise explained(link, error, posixpath.dirname(remote), len(data)) from error


def explained(link: Link, error: LinkError, folder: str, needed_bytes: int) -> EdgekitError:
    """``error`` of a put, or what is really behind it: a server says "failure" for a full disk and for a read-only one."""
    if error.code != "write_failed":
        return error
    script = (
        'd=$1; while [ ! -d "$d" ]; do d=$(dirname "$d"); done; df -Pk "$d" | tail -n 1; [ -w "$d" ] && echo writable'
    )
    done = link.run(["sh", "-c", script, "sh", folder], timeout_s=30.0, idempotent=True)
    lines = done.text.splitlines()
    fields = lines[0].split() if lines else []
    free = int(fields[-3]) * 1024 if len(fields) >= 6 and fields[-3].isdigit() else None
    if "writable" not in lines:
        return JobError(
            f"{folder} on {link.name} cannot be written: {error.message}",
            code="home_read_only",
            hint="is the home folder mounted read-only, or owned by somebody else?",
        )
    if free is not None and free < needed_bytes:
        return disk_full(link.name, folder, needed_bytes, free)
    return error


def disk_full(name: str, folder: str, needed_bytes: int, free_bytes: int) -> JobError:
    """What to raise when the board has not enough room."""
    return JobError(
        f"the disk of {name} is too full: {needed_bytes / 1e6:.1f} MB are needed, {free_bytes / 1e6:.1f} MB are free",
        code="disk_full",
        hint=f"free some space on the disk that holds {folder} there",
        details={"needed_bytes": needed_bytes, "free_bytes": free_bytes},
    )


def no_python(name: str) -> JobError:
    """What to raise when the board has no Python that can run the agent."""
    return JobError(
        f"{name} has no Python 3.8 or later",
        code="no_python",
        hint=f"edgekit device info {name} says what there is; on Debian and Ubuntu: sudo apt-get install python3 "
        "(on Ubuntu 18.04: python3.8)",
    )


def _raised(error: Mapping[str, Any], name: str) -> EdgekitError:
    kinds: dict[str, type[EdgekitError]] = {"push_busy": BoardBusyError, "board_busy": BoardBusyError}
    by_exit = {2: UsageError, 4: LinkError}
    kind = kinds.get(error["code"]) or by_exit.get(error.get("exit_code", 5), JobError)
    hint = error["hint"].replace(" NAME", f" {name}")
    return kind(error["message"], code=error["code"], hint=hint, details=error["details"])
