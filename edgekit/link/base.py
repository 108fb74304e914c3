"""What every link can do, whether the board is this machine or one behind SSH.

A link gives a few primitives (run, append, read, rename...); what is made of them (:meth:`Link.put`, :meth:`Link.start_job`) is written
once, here. Remote paths are strings with ``/``; a leading ``~/`` is the home of the user on the other side, and a path without a
leading ``/`` lies there too. No link replaces a file by writing into it: an app may have the old one mapped.

A link may be used by several threads; they take turns.
"""

from __future__ import annotations

import abc
import dataclasses
import posixpath
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from edgekit.errors import LinkError

Progress = Callable[[int, int], None]
"""Told ``(done_bytes, total_bytes)`` of a transfer, from the thread that called."""

MOST_OUTPUT_BYTES = 64 << 20
"""For each stream of a command. A program that says more is ended: nothing here reads so much, and it would fill the memory."""

CONTROL_TIMEOUT_S = 30.0
"""For the short commands that a link runs for itself."""


_FREE_SCRIPT = """\
place=$1
while [ ! -e "$place" ]; do place=$(dirname "$place"); done
LC_ALL=C df -Pk "$place"
"""

_TAIL_BYTES = 2000


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


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What a :meth:`Link.put` did: the file's hash and size, and how many bytes had to travel (fewer when it was resumed)."""

    sha256: str
    size_bytes: int
    sent_bytes: int


class Link(abc.ABC):
    """One board. Every method raises :class:`LinkError` when the board itself cannot be reached, within seconds.

    Methods that change nothing, and those that may be done twice, are tried again over a new connection when the old one broke.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What the user calls the board; ``local`` is this machine."""

    @abc.abstractmethod
    def home(self) -> str:
        """The user's home folder on the board, absolute, without a slash at its end."""

    @abc.abstractmethod
    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"", idempotent: bool = False) -> Completed:
        """Runs a program (no shell) and returns what it printed, both streams read to their end.

        ``stdin`` is what it reads, then end of file. A program that fails is no error here. One that takes longer than ``timeout_s`` is
        ended with all its children, and :class:`LinkError` with code ``command_timeout`` is raised (``output_too_large`` when it prints
        without end); the last words of both streams are in its details. When the link breaks meanwhile the
        program is ended too, and the error has code ``link_lost``; only with ``idempotent`` is it run again over a new connection.
        """

    @abc.abstractmethod
    def append(self, local: Path, remote: str, *, offset_bytes: int, progress: Progress | None = None) -> None:
        """Writes ``local`` from ``offset_bytes`` to its end at the same place of ``remote``, which is made if need be; then has it on the disk.

        Raises :class:`LinkError` with code ``write_failed`` when the board does not take it all (disk full, no permission). What did
        arrive stays. A broken link is not mended here: it is ``link_lost``.
        """

    @abc.abstractmethod
    def get(self, remote: str, local: Path, *, progress: Progress | None = None) -> None:
        """Copies a file from the board; ``local`` is replaced as a whole. :class:`LinkError` (``file_missing``) when there is none."""

    @abc.abstractmethod
    def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
        """The bytes of a file from ``offset`` on. :class:`LinkError` (``file_missing``) when it does not exist."""

    @abc.abstractmethod
    def size_bytes(self, remote: str) -> int | None:
        """The size of a file (links followed); None when there is nothing of this name."""

    @abc.abstractmethod
    def names(self, remote: str) -> list[str]:
        """The names in a folder, sorted; none when there is no such folder."""

    @abc.abstractmethod
    def make_folder(self, remote: str) -> None:
        """Makes a folder and those above it, where they are missing. :class:`LinkError` (``write_failed``) when it cannot."""

    @abc.abstractmethod
    def replace(self, remote: str, target: str) -> None:
        """Renames ``remote`` to ``target``, which is replaced in one step if it exists."""

    @abc.abstractmethod
    def symlink(self, points_to: str, remote: str) -> None:
        """Makes ``remote`` a symbolic link with the text ``points_to``; a link or file that is there is replaced in one step."""

    @abc.abstractmethod
    def read_symlink(self, remote: str) -> str | None:
        """The text of a symbolic link; None when there is none of this name."""

    @abc.abstractmethod
    def remove(self, remote: str) -> None:
        """Removes a file or symbolic link; nothing happens when it does not exist."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the connection. The link may be used again: it then connects anew."""

    def exists(self, remote: str) -> bool:
        """Whether there is a file or folder of this name."""
        return self.size_bytes(remote) is not None

    def absolute(self, remote: str) -> str:
        """``remote`` from the root on."""
        if remote.startswith("/"):
            return remote
        below = "" if remote == "~" else remote[2:] if remote.startswith("~/") else remote
        return posixpath.normpath(posixpath.join(self.home(), below))

    def shell_path(self, remote: str) -> str:
        """:meth:`absolute`, or ``~/...`` for the board's shell to complete from ``$HOME`` where that spares asking the board."""
        return self.absolute(remote)

    def put(self, local: Path, remote: str, *, resume: bool = True, progress: Progress | None = None) -> Transfer:
        """Copies a file to the board. Folders on the way are made, and ``remote`` is replaced as a whole or not at all.

        The bytes go into a file beside ``remote`` whose name holds their hash, are hashed on the board, and the file is renamed. With
        ``resume`` a part that an earlier attempt left is continued, and a broken link is mended on the way.

        Raises :class:`LinkError` with code ``write_failed`` when the board does not take it all (disk full, no permission; nothing is left
        behind), ``bytes_altered`` when other bytes arrived than were sent, ``link_lost`` when the link did not come back in time.
        """
        from edgekit.link.upload import upload

        return upload(self, local, remote, resume=resume, progress=progress)

    def sha256(self, remote: str) -> str:
        """The hash of a file, computed on the board by ``sha256sum``, ``shasum``, ``openssl`` or ``python3``, whichever it has.

        Raises :class:`LinkError`: ``file_missing``, or ``hash_unavailable`` when the board has none of them.
        """
        from edgekit.link.upload import hash_on_board

        return hash_on_board(self, remote)

    def free_bytes(self, remote: str) -> int | None:
        """What a user may still write where ``remote`` is or will be; None when the board cannot say."""
        done = self.run(
            ["sh", "-c", _FREE_SCRIPT, "sh", self.absolute(remote)], timeout_s=CONTROL_TIMEOUT_S, idempotent=True
        )
        words = done.text.splitlines()[-1].split() if done.returncode == 0 and done.text else []
        numbers = [word for word in words if word.isdigit()]
        return int(numbers[2]) * 1024 if len(numbers) >= 3 else None

    def start_job(self, argv: Sequence[str], *, cwd: str, log: str) -> int:
        """Starts a program that outlives the link and returns its pid.

        It gets a session of its own, no terminal, an empty stdin, and writes stdout and stderr to the file ``log``.
        """
        command = detached(argv, cwd=self.absolute(cwd), log=self.absolute(log))
        return started_pid(self.run(command, timeout_s=CONTROL_TIMEOUT_S))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ended_early(
    argv: Sequence[str], board: str, *, loud: bool, timeout_s: float, stdout: bytes, stderr: bytes
) -> LinkError:
    """What :meth:`Link.run` raises for a program that had to be ended."""
    if loud:
        what, code = f"printed more than {MOST_OUTPUT_BYTES >> 20} MiB", "output_too_large"
    else:
        what, code = f"did not end within {timeout_s:g} s", "command_timeout"
    details = {"stdout_tail": tail(stdout), "stderr_tail": tail(stderr)}
    return LinkError(f"{argv[0]} {what} on {board}, and was ended", code=code, details=details)


def tail(stream: bytes) -> str:
    """The last words of a stream, for an error's details."""
    return stream[-_TAIL_BYTES:].decode("utf-8", "replace")


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
            details={"stderr": tail(completed.stderr)},
        )
    return int(completed.text)
