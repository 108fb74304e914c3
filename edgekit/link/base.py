"""What every link can do, whether the board is this machine or one behind SSH.

Remote paths are strings with ``/``; a leading ``~/`` is the home of the user on the other side. A link is used by one thread.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from edgekit.errors import LinkError


@dataclasses.dataclass(frozen=True)
class Completed:
    """A command that ended by itself. ``returncode`` is negative for a signal, 127 for a program that does not exist."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout as text, without the newline at its end."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")


class Link(Protocol):
    """One board. Every method raises :class:`LinkError` when the board itself cannot be reached."""

    @property
    def name(self) -> str:
        """What the user calls the board; ``local`` is this machine."""

    def run(self, argv: Sequence[str], *, timeout_s: float) -> Completed:
        """Runs a program (no shell) and returns what it printed, both streams read to their end.

        A program that fails is no error here. One that takes longer than ``timeout_s`` is ended with all its children, and
        :class:`LinkError` with code ``command_timeout`` is raised.
        """

    def put(self, local: Path, remote: str) -> None:
        """Copies a file to the board. Folders on the way are made, and ``remote`` is replaced as a whole or not at all.

        Raises :class:`LinkError` with code ``write_failed`` when the board does not take it all (disk full, no permission).
        """

    def get(self, remote: str, local: Path) -> None:
        """Copies a file from the board; ``local`` is replaced as a whole. :class:`LinkError` (``file_missing``) when there is none."""

    def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
        """The bytes of a file from ``offset`` on. :class:`LinkError` (``file_missing``) when it does not exist."""

    def exists(self, remote: str) -> bool:
        """Whether there is a file or folder of this name."""

    def start_job(self, argv: Sequence[str], *, cwd: str, log: str) -> int:
        """Starts a program that outlives the link and returns its pid.

        It gets a session of its own, no terminal, an empty stdin, and writes stdout and stderr to the file ``log``.
        """


def detached(argv: Sequence[str], *, cwd: str, log: str) -> list[str]:
    """The command that starts ``argv`` detached and prints its pid: the same on every link.

    ``setsid`` gives the job a session without a terminal, so neither a hang-up nor Ctrl-C reaches it; the shell's background child is
    no group leader, so ``setsid`` need not fork and the printed pid is the job's own.
    """
    words = " ".join(shlex.quote(word) for word in argv)
    script = f"cd {shlex.quote(cwd)} && {{ setsid {words} </dev/null >>{shlex.quote(log)} 2>&1 & echo $!; }}"
    return ["sh", "-c", script]


def started_pid(completed: Completed) -> int:
    """The pid that a :func:`detached` command printed; :class:`LinkError` when it printed none."""
    if completed.returncode != 0 or not completed.text.isdigit():
        raise LinkError(
            f"the job could not be started (exit {completed.returncode})",
            code="start_failed",
            details={"stderr": completed.stderr.decode("utf-8", "replace")[-2000:]},
        )
    return int(completed.text)
