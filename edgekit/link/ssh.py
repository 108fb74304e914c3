"""The link to a board over SSH: a connection that is made when it is needed, watched, and made anew when it breaks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from edgekit.errors import LinkError, UsageError
from edgekit.link.base import Completed, Link, Progress
from edgekit.link.boards import Board
from edgekit.link.command import Orphan, Orphaned, end_orphan, run_command
from edgekit.link.connect import Connection, connect
from edgekit.link.files import Files
from edgekit.link.login import Secrets
from edgekit.link.questions import Questions

T = TypeVar("T")

RETRY_FOR_S = 30.0
"""How long a broken link is tried to be mended: a board that only lost its Wi-Fi is back by then, and one that restarts often is."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0

HANG_UP_ATTEMPTS = 4
"""sshd hangs up on some of many who come at once; they have to come again, not all at the same time."""

_MENDABLE = ("link_lost", "connect_timeout", "connection_refused", "unreachable", "no_ssh_server", "host_unknown")
"""What may be otherwise in a moment, once we have been connected. A refused key will not be."""


class SshLink(Link):
    """A board behind SSH. Nothing is connected before the first use."""

    def __init__(self, board: Board, *, questions: Questions, retry_for_s: float = RETRY_FOR_S) -> None:
        self._board = board
        self._questions = questions
        self._retry_for_s = retry_for_s
        self._secrets: dict[str, Secrets] = {}
        self._connection: Connection | None = None
        self._files: Files | None = None
        self._home: str | None = None
        self._orphans: list[Orphan] = []
        self._was_connected = False
        self._turn = threading.RLock()

    @property
    def name(self) -> str:
        """The name that the user gave the board."""
        return self._board.name

    def connect(self) -> Connection:
        """The living connection, made now if there is none. Raises :class:`LinkError`, see :func:`edgekit.link.connect.connect`."""
        with self._turn:
            if self._connection is not None and self._connection.alive:
                return self._connection
            self._drop()
            self._connection = self._connected()
            self._was_connected = True
            self._end_orphans(self._connection)
            return self._connection

    def close(self) -> None:
        """See :meth:`edgekit.link.base.Link.close`."""
        with self._turn:
            self._drop()

    def home(self) -> str:
        """See :meth:`edgekit.link.base.Link.home`."""
        if self._home is None:
            self._home = self._file_step("~", "read", lambda files: files.home())
        return self._home

    def shell_path(self, remote: str) -> str:
        """See :meth:`edgekit.link.base.Link.shell_path`."""
        return remote if self._home is None and remote.startswith("~/") else self.absolute(remote)

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"", idempotent: bool = False) -> Completed:
        """See :meth:`edgekit.link.base.Link.run`."""

        def step(connection: Connection) -> Completed:
            try:
                return run_command(connection, argv, timeout_s=timeout_s, stdin=stdin)
            except Orphaned as broken:
                if broken.orphan is not None:
                    self._orphans.append(broken.orphan)
                raise connection.lost(broken) from broken

        return self._step(step, again=idempotent)

    def append(self, local: Path, remote: str, *, offset_bytes: int, progress: Progress | None = None) -> None:
        """See :meth:`edgekit.link.base.Link.append`."""
        path = self.absolute(remote)
        self._file_step(
            remote,
            "write",
            lambda files: files.append(local, path, offset_bytes=offset_bytes, progress=progress),
            again=False,
        )

    def get(self, remote: str, local: Path, *, progress: Progress | None = None) -> None:
        """See :meth:`edgekit.link.base.Link.get`."""
        path = self.absolute(remote)
        self._file_step(remote, "read", lambda files: files.get(path, local, progress))

    def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
        """See :meth:`edgekit.link.base.Link.read_bytes`."""
        path = self.absolute(remote)
        return self._file_step(remote, "read", lambda files: files.read_bytes(path, offset))

    def size_bytes(self, remote: str) -> int | None:
        """See :meth:`edgekit.link.base.Link.size_bytes`."""
        path = self.absolute(remote)
        return self._file_step(remote, "read", lambda files: files.size_bytes(path))

    def names(self, remote: str) -> list[str]:
        """See :meth:`edgekit.link.base.Link.names`."""
        path = self.absolute(remote)
        return self._file_step(remote, "read", lambda files: files.names(path))

    def make_folder(self, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.make_folder`."""
        path = self.absolute(remote)
        self._file_step(remote, "write", lambda files: files.make_folder(path))

    def replace(self, remote: str, target: str) -> None:
        """See :meth:`edgekit.link.base.Link.replace`. Done twice it would miss ``remote``, so a broken link ends it."""
        path, place = self.absolute(remote), self.absolute(target)
        self._file_step(target, "write", lambda files: files.replace(path, place), again=False)

    def symlink(self, points_to: str, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.symlink`."""
        path = self.absolute(remote)
        self._file_step(remote, "write", lambda files: files.symlink(points_to, path))

    def read_symlink(self, remote: str) -> str | None:
        """See :meth:`edgekit.link.base.Link.read_symlink`."""
        path = self.absolute(remote)
        return self._file_step(remote, "read", lambda files: files.read_symlink(path))

    def remove(self, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.remove`."""
        path = self.absolute(remote)
        self._file_step(remote, "write", lambda files: files.remove(path))

    def _file_step(self, remote: str, deed: str, step: Callable[[Files], T], *, again: bool = True) -> T:
        """One step over SFTP; what the server refuses becomes a LinkError about ``remote``."""
        import paramiko

        def with_files(connection: Connection) -> T:
            try:
                if self._files is None or not self._files.alive:
                    self._files = Files(connection)
                return step(self._files)
            except (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError) as error:
                if not connection.alive:
                    raise connection.lost(error) from error
                if isinstance(error, TimeoutError):
                    error = TimeoutError("its SFTP server does not answer, though sshd does")
                ended = self._files is not None and not self._files.alive
                if ended or isinstance(error, (paramiko.SFTPError, paramiko.SSHException, EOFError, TimeoutError)):
                    self._drop()  # the answers no longer fit the questions
                    raise connection.lost(error if str(error) else None) from error
                raise _refused(remote, deed, error) from error

        return self._step(with_files, again=again)

    def _step(self, step: Callable[[Connection], T], *, again: bool) -> T:
        """Does ``step``; when the link breaks and ``again`` allows it, over and over until the time for mending is up."""
        import paramiko

        with self._turn:
            end = time.monotonic() + self._retry_for_s
            pause_s = FIRST_PAUSE_S
            while True:
                try:
                    connection = self.connect()
                    try:
                        return step(connection)
                    except (paramiko.SSHException, EOFError, OSError) as error:
                        raise connection.lost(error) from error
                except LinkError as error:
                    mendable = again and self._was_connected and error.code in _MENDABLE
                    if not mendable or time.monotonic() + pause_s > end:
                        raise
                time.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _end_orphans(self, connection: Connection) -> None:
        """Ends what broken links left running on the board."""
        while self._orphans:
            orphan = self._orphans.pop()
            try:
                end_orphan(connection, orphan)
            except Orphaned as broken:
                self._orphans.append(orphan)
                raise connection.lost(broken) from broken
            except LinkError:
                pass  # a board too busy to end it; what the user asked for comes first

    def _connected(self) -> Connection:
        for attempt in range(HANG_UP_ATTEMPTS):
            try:
                return connect(self._board, self._questions, self._secrets)
            except LinkError as error:
                if error.code != "no_ssh_server" or attempt == HANG_UP_ATTEMPTS - 1:
                    raise
            time.sleep(random.uniform(0.2, 0.6) * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _drop(self) -> None:
        self._files = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _refused(remote: str, deed: str, error: OSError) -> LinkError | UsageError:
    """What an SFTP server said, in our words. It has a number only for "no such file" and "permission denied"."""
    if isinstance(error, FileNotFoundError):
        return LinkError(f"{remote} does not exist", code="file_missing")
    if isinstance(error, PermissionError):
        reason = "permission denied"
    elif isinstance(error, IsADirectoryError):
        reason = "it is a folder"
    else:
        reason = str(error.strerror or error) or type(error).__name__
    deed_words, code = ("written", "write_failed") if deed == "write" else ("read", "read_failed")
    return LinkError(f"{remote} cannot be {deed_words}: {reason}", code=code)
