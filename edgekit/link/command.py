"""One program run over a connection: both streams read to their end, a deadline on it all, and nothing left running behind."""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.errors import LinkError
from edgekit.link import base, remote_shell
from edgekit.link.base import Completed, tail
from edgekit.link.connect import STEP_TIMEOUT_S, Connection

if TYPE_CHECKING:
    import paramiko

_BLOCK_BYTES = 1 << 16
_LOOK_EVERY_S = 0.2


@dataclasses.dataclass(frozen=True)
class Orphan:
    """A program that may still be running on the board after its link broke."""

    group: int
    token: str


class Orphaned(Exception):
    """The link broke while a program was running. ``orphan`` is None when it is not known to have started."""

    def __init__(self, orphan: Orphan | None, cause: BaseException | None) -> None:
        super().__init__(str(cause or "the channel was closed"))
        self.orphan = orphan


def run_command(connection: Connection, argv: Sequence[str], *, timeout_s: float, stdin: bytes) -> Completed:
    """See :meth:`edgekit.link.base.Link.run`. Raises :class:`Orphaned` when the link broke meanwhile."""
    token = secrets.token_hex(8)
    reader = _Reader()
    with connection.session() as channel:
        end = time.monotonic() + timeout_s
        try:
            with connection.watchdog.deadline(STEP_TIMEOUT_S, f"starting {argv[0]}"):
                channel.exec_command(remote_shell.command_line(token))
            reader.start(channel)
            _send(channel, remote_shell.first_line(argv, token, len(stdin)), stdin)
            complaint = reader.wait(channel, end)
        except (EOFError, OSError, _ssh_exception()) as error:
            raise Orphaned(_orphan(reader, token), error) from error
        status = channel.exit_status if channel.status_event.is_set() else -1
    out, err = remote_shell.split(bytes(reader.stdout), token), remote_shell.split(bytes(reader.stderr), token)
    if complaint:
        _end(connection, _orphan(reader, token))
        said = {"stdout": out.output if out else b"", "stderr": err.output if err else b""}
        raise base.ended_early(argv, connection.name, loud=complaint == "loud", timeout_s=timeout_s, **said)
    if status == -1 and connection.has_ended():
        raise Orphaned(_orphan(reader, token), None)
    if out is None:
        raise _shell_unusable(connection, reader, status)
    code = -9 if status == -1 else remote_shell.returncode(status)  # -1: the shell itself was killed
    return Completed(tuple(argv), code, out.output, err.output if err else b"")


def end_orphan(connection: Connection, orphan: Orphan) -> None:
    """Ends what an earlier connection left running."""
    run_command(connection, remote_shell.kill_group(orphan.group, orphan.token), timeout_s=STEP_TIMEOUT_S, stdin=b"")


class _Reader:
    """Both streams of a channel, read side by side: a program that fills the one that nobody reads would wait for ever."""

    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._errors: threading.Thread | None = None

    def start(self, channel: paramiko.Channel) -> None:
        channel.settimeout(_LOOK_EVERY_S)
        self._errors = threading.Thread(target=self._read_stderr, args=(channel,), daemon=True)
        self._errors.start()

    def wait(self, channel: paramiko.Channel, end: float) -> str:
        """Reads until the program ended; "", or "late" or "loud" when it has to be ended."""
        assert self._errors is not None
        open_ended = True
        while open_ended:
            try:
                block = channel.recv(_BLOCK_BYTES)
                self.stdout += block
                open_ended = bool(block)
            except TimeoutError:
                pass
            if max(len(self.stdout), len(self.stderr)) > base.MOST_OUTPUT_BYTES:
                return "loud"
            if time.monotonic() > end:
                return "late"
        while not channel.status_event.wait(_LOOK_EVERY_S) or self._errors.is_alive():
            if time.monotonic() > end:
                return "late"
            self._errors.join(_LOOK_EVERY_S)
        return ""

    def _read_stderr(self, channel: paramiko.Channel) -> None:
        while len(self.stderr) <= base.MOST_OUTPUT_BYTES:
            try:
                block = channel.recv_stderr(_BLOCK_BYTES)
            except TimeoutError:
                continue
            except (EOFError, OSError, _ssh_exception()):
                return
            if not block:
                return
            self.stderr += block


def _send(channel: paramiko.Channel, line: bytes, stdin: bytes) -> None:
    """Gives the shell its line at once, and the program its input beside whatever else happens."""

    def feed() -> None:
        try:
            _send_all(channel, stdin)
        except (EOFError, OSError, _ssh_exception()):
            pass  # the program ended without reading it all, which is its own affair

    _send_all(channel, line)
    if stdin:
        threading.Thread(target=feed, daemon=True).start()


def _send_all(channel: paramiko.Channel, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            sent = channel.send(bytes(view[:_BLOCK_BYTES]))
        except TimeoutError:
            continue
        if sent == 0:
            raise EOFError("the channel was closed")
        view = view[sent:]


def _orphan(reader: _Reader, token: str) -> Orphan | None:
    out = remote_shell.split(bytes(reader.stdout), token)
    return Orphan(out.group, token) if out is not None and out.group is not None else None


def _end(connection: Connection, orphan: Orphan | None) -> None:
    """Makes sure that the group is gone; closing the channel has told the watcher there already.

    Raises :class:`Orphaned` when it was the link that stood still, and not the program.
    """
    if orphan is None:
        return
    try:
        end_orphan(connection, orphan)
    except Orphaned as broken:
        raise Orphaned(orphan, broken) from broken


def _shell_unusable(connection: Connection, reader: _Reader, status: int) -> LinkError:
    said = tail(bytes(reader.stdout + reader.stderr)).strip()
    return LinkError(
        f"the login shell of {connection.target.address} ended (exit {status}) before it ran `sh`"
        + (f": {said.splitlines()[-1][:200]}" if said else ""),
        code="shell_unusable",
        hint=f"try: ssh {connection.target.ssh_words} sh -c true; the account needs a shell that runs commands",
        details={"said": said},
    )


def _ssh_exception() -> type[Exception]:
    import paramiko

    kind: type[Exception] = paramiko.SSHException
    return kind
