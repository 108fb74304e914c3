"""Reading the kernel's small text files and the output of small commands, where every failure has a reason worth keeping.

Standard library only: the supervisor imports it.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import stat
import subprocess
from typing import Optional, Sequence

COMMAND_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/opt/vc/bin")
"""Where board makers put their tools; a log-in over SSH does not always have all of them in its PATH."""

COMMAND_TIMEOUT_S = 2.0
"""How long a sensor's command may take; a firmware that does not answer makes it hang."""


class Unreadable(Exception):
    """The value cannot be known; the text says why, for people, and behind it what would help (``fix``), where something would."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(f"{reason} (fix: {fix})" if fix else reason)
        self.reason = reason
        self.fix = fix


@dataclasses.dataclass(frozen=True)
class Roots:
    """Where ``/sys``, ``/proc``, ``/dev`` and commands are: recorded trees of other boards in the tests.

    ``commands`` is the only folder in which commands are looked for; None is the PATH and the usual places.
    """

    sys: str = "/sys"
    proc: str = "/proc"
    dev: str = "/dev"
    commands: Optional[str] = None

    def command(self, name: str) -> Optional[str]:
        """The full path of a command, None where it is not installed."""
        path = self.commands or os.pathsep.join((os.environ.get("PATH", ""), *COMMAND_FOLDERS))
        return shutil.which(name, path=path)


def read_text(path: str) -> str:
    """The file's text without blanks and NULs around it. Raises :class:`Unreadable`: a sensor may vanish and return at any time."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").strip(" \t\r\n\0")
    except OSError as error:
        # Sensors fail with EAGAIN, EINVAL, ENODATA and others while their hardware is off.
        fix = permission_fix(path) if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise Unreadable(f"{path}: {os.strerror(error.errno) if error.errno else error}", fix=fix) from error


def read_int(path: str) -> int:
    """The file's whole number. Raises :class:`Unreadable`."""
    return whole_number(read_text(path), path)


def whole_number(text: str, what: str) -> int:
    """``text`` as a whole number. Raises :class:`Unreadable` with the text."""
    try:
        return int(text)
    except ValueError as error:
        raise Unreadable(f"{what}: says {text[:40]!r}, which is no number") from error


def numbered(folder: str, prefix: str) -> list[str]:
    """The entries of ``folder`` called ``prefix`` and a number, in the order of the numbers."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [name for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
    return sorted(found, key=lambda name: int(name[len(prefix) :]))


def permission_fix(path: str) -> str:
    """What to type to be allowed to read ``path``: the group that may, where one may."""
    try:
        entry = os.stat(path)
    except OSError:
        return ""
    if entry.st_mode & stat.S_IRGRP and entry.st_gid != 0:
        try:
            import grp

            group = grp.getgrgid(entry.st_gid).gr_name
        except (ImportError, KeyError):
            group = str(entry.st_gid)
        return group_fix(group)
    return "only root may read it: run the agent with sudo"


def group_fix(group: str) -> str:
    """How a user joins a group."""
    return f"sudo usermod -aG {group} $USER, then log in again"


def command_text(argv: Sequence[str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """What a command prints, both streams. Raises :class:`Unreadable` when it is absent, fails, or does not end in time."""
    name = " ".join([os.path.basename(argv[0]), *argv[1:]])
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unreadable(f"{name}: no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise Unreadable(f"{name}: {os.strerror(error.errno) if error.errno else error}") from error
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise Unreadable(f"{name}: exit code {done.returncode}, says {text[:80]!r}")
    return text
