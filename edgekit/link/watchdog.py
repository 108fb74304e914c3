"""Notices that a link is dead, whatever is being waited for, and ends every wait on it.

No single means does it. A cut link: the kernel gives up only after a quarter of an hour, unless ``TCP_USER_TIMEOUT`` says otherwise. A
frozen peer whose kernel still acknowledges, or a link that swallows everything while we wait for a silent command: only a question
whose answer is awaited tells. A slow link in the middle of an upload answers such a question late, behind megabytes of our own
data, and must not be taken for dead: so what counts is that nothing at all was received *and* nothing was acknowledged while an answer
is due. When that lasts too long the transport is closed, which wakes whoever waits in it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko

PING_EVERY_S = 2.0
SILENT_S = 6.0
"""With the wait for the next ping this makes at most 8 s until a dead link is noticed, 10 s with all delays."""

_LOOK_EVERY_S = 0.25
_TCP_INFO_BYTES = 192
_TCP_INFO_ACKED_AND_RECEIVED = 120
"""Offset of ``tcpi_bytes_acked`` and ``tcpi_bytes_received``, two u64, in ``struct tcp_info`` (linux/tcp.h, since Linux 4.1)."""


def harden(sock: socket.socket) -> None:
    """A TCP socket that sends at once (Nagle's delay costs 40 ms a command) and that the kernel gives up early."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_USER_TIMEOUT", round(SILENT_S * 1000)),
        ("TCP_KEEPIDLE", 3),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 4),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def tcp_evidence(sock: socket.socket) -> Callable[[], Hashable]:
    """A function whose result changes whenever the peer's kernel acknowledged or sent something."""

    def look() -> Hashable:
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except (OSError, AttributeError):
            return None
        if len(info) < _TCP_INFO_ACKED_AND_RECEIVED + 16:
            return None
        numbers: tuple[int, int] = struct.unpack_from("=QQ", info, _TCP_INFO_ACKED_AND_RECEIVED)
        return numbers

    return look


class CountedStream:
    """A stream that is no TCP connection (a channel through a jump host, a proxy command), with what went through it counted.

    ``at_close`` is called once, when it is closed.
    """

    def __init__(self, stream: socket.socket | paramiko.Channel, at_close: Callable[[], object] = lambda: None) -> None:
        self._stream = stream
        self._at_close = at_close
        self._closed = False  # paramiko looks at a socket's own
        self._sent = 0
        self._received = 0

    def send(self, data: bytes) -> int:
        """As the stream's own."""
        sent = self._stream.send(data)
        self._sent += sent
        return int(sent)

    def recv(self, size: int) -> bytes:
        """As the stream's own."""
        data: bytes = self._stream.recv(size)
        self._received += len(data)
        return data

    def settimeout(self, timeout_s: float | None) -> None:
        """As the stream's own."""
        self._stream.settimeout(timeout_s)

    def close(self) -> None:
        """As the stream's own."""
        if not self._closed:
            self._closed = True
            self._stream.close()
            self._at_close()

    def evidence(self) -> Hashable:
        """Changes whenever the other end took or sent something."""
        return self._sent, self._received


class Watchdog:
    """Watches one transport from the moment it is logged in. ``reason`` says why it was ended, "" as long as it was not."""

    def __init__(
        self, transport: paramiko.Transport, evidence: Callable[[], Hashable], *, ping_every_s: float = PING_EVERY_S
    ) -> None:
        self.reason = ""
        self._transport = transport
        self._evidence = evidence
        self._ping_every_s = ping_every_s
        self._asked_at: float | None = None
        self._deadlines: dict[object, tuple[float, str]] = {}
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"edgekit-{work.__name__.strip('_')}", daemon=True)
            for work in (self._ping, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    @contextlib.contextmanager
    def deadline(self, seconds: float, what: str) -> Iterator[None]:
        """Ends the transport when the body takes longer: for calls of paramiko that know no timeout of their own."""
        token = object()
        self._deadlines[token] = (time.monotonic() + seconds, what)
        try:
            yield
        finally:
            self._deadlines.pop(token, None)

    def stop(self) -> None:
        """Stops watching."""
        self._closing.set()

    def _ping(self) -> None:
        """Asks, and waits for the answer as long as the transport lives; OpenSSH answers at once that it knows no such request."""
        while not self._closing.wait(self._ping_every_s):
            self._asked_at = time.monotonic()
            try:
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except Exception:  # closed under our hands: whoever uses the transport gets the error
                return
            self._asked_at = None
            if not self._transport.is_active():
                return

    def _watch(self) -> None:
        seen, changed_at = self._evidence(), time.monotonic()
        while not self._closing.wait(_LOOK_EVERY_S):
            if not self._transport.is_active():
                return
            now, latest, asked_at = time.monotonic(), self._evidence(), self._asked_at
            if latest != seen:
                seen, changed_at = latest, now
            if asked_at is not None and now - max(asked_at, changed_at) > SILENT_S:
                self._end(f"nothing was heard of it for {now - max(asked_at, changed_at):.0f} s")
            for end, what in list(self._deadlines.values()):
                if now > end:
                    self._end(f"{what} took too long")

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._closing.set()
        self._transport.close()
