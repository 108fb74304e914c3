"""Many SFTP requests under way at once: without them each 32 KiB would wait for the answer to the last.

paramiko's own pipelining loses the errors of the last writes, and its prefetch thread goes on for ever when the link dies under it. This
one has no thread: it asks ahead as far as its window goes, and reads an answer whenever the window is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paramiko

WRITE_BYTES = 32768
READ_BYTES = 32768
"""The most that every SFTP server takes in one request."""

REQUESTS = 128
"""4 MiB under way, which fills a link of 80 MB/s at 50 ms."""


class Pipeline:
    """Reads or writes one open file. ``handle`` is the server's name for it."""

    def __init__(self, client: paramiko.SFTPClient, handle: bytes) -> None:
        self._client = client
        self._handle = handle
        self._answers: dict[int, tuple[int, Any]] = {}
        self._writes: deque[int] = deque()

    def write(self, offset: int, data: bytes) -> None:
        """Sends one block. Raises OSError for an earlier one that the server did not take."""
        from paramiko.sftp import CMD_WRITE, int64

        while len(self._writes) >= REQUESTS:
            self._confirm()
        self._writes.append(self._client._async_request(self, CMD_WRITE, self._handle, int64(offset), data))

    def finish(self) -> None:
        """Returns when the server has taken every block."""
        while self._writes:
            self._confirm()

    def read(self, offset: int, end: int) -> Iterator[bytes]:
        """The bytes from ``offset`` to ``end`` in blocks; stops early where the file does."""
        from paramiko.sftp import CMD_READ, int64

        asked: deque[tuple[int, int, int]] = deque()
        place = offset
        while asked or place < end:
            while place < end and len(asked) < REQUESTS:
                length = min(READ_BYTES, end - place)
                number = self._client._async_request(self, CMD_READ, self._handle, int64(place), length)
                asked.append((number, place, length))
                place += length
            number, begin, length = asked.popleft()
            try:
                block = self._data(number)
            except EOFError:  # SFTP's word for the end of the file; a dead link raises SSHException
                break
            yield block
            if len(block) < length:  # the server may give less than was asked for
                asked.clear()
                place = begin + len(block)

    def _async_response(self, kind: int, message: Any, number: int) -> None:
        """Called by paramiko for an answer to one of our requests."""
        self._answers[number] = kind, message

    def _check_exception(self) -> None:
        """Called by paramiko when a file is closed: errors are raised where the answers are used."""

    def _answer(self, number: int) -> tuple[int, Any]:
        while number not in self._answers:
            self._client._read_response()
        return self._answers.pop(number)

    def _confirm(self) -> None:
        self._status(*self._answer(self._writes.popleft()))

    def _data(self, number: int) -> bytes:
        from paramiko.sftp import CMD_DATA

        kind, message = self._answer(number)
        if kind != CMD_DATA:
            self._status(kind, message)
            raise EOFError
        data: bytes = message.get_string()
        return data

    def _status(self, kind: int, message: Any) -> None:
        from paramiko.sftp import CMD_STATUS, SFTPError

        if kind != CMD_STATUS:
            raise SFTPError(f"answer {kind} where a status is due")
        self._client._convert_status(message)
