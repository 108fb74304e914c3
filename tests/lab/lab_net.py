"""Two network namespaces with a bad line between them: packets, not streams, are delayed, lost and cut.

Each namespace has a TUN device; a relay in this process carries packets from one to the other. So a cut line is one that swallows
everything without a word, which no proxy can be, and a board that loses power takes its TCP state with it and sends nothing. Needs root
and ``/dev/net/tun``; nothing of this machine's own network is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from lab_sshd import LabBoard, Setup

T = TypeVar("T")

DESK_ADDRESS, BOARD_ADDRESS = "10.77.0.1", "10.77.0.2"
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001
_CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """Why there can be no such line here; "" when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun"
    name = f"edgekit{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    if made.returncode != 0:
        return "network namespaces cannot be made here (ip netns add)"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


class Line:
    """The line. ``delay_s`` is one way, ``loss`` the share of packets that vanish, ``bytes_per_s`` a limit (0: none), ``up`` whether
    anything passes at all; all may be changed at any time."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.loss = 0.0
        self.bytes_per_s = 0.0
        self.up = True
        self._random = random.Random(1)
        self.desk, self.board = f"edgekit{os.getpid()}d", f"edgekit{os.getpid()}b"
        self._tuns: dict[str, int] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._free_at: dict[int, float] = {}
        self._running = True
        self._lock = threading.Lock()
        self._make(self.desk, DESK_ADDRESS, BOARD_ADDRESS)
        self._make(self.board, BOARD_ADDRESS, DESK_ADDRESS)
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def at_the_desk(self, action: Callable[[], T]) -> T:
        """Does something in the desk's namespace: a thread's sockets are born in the namespace that it has entered."""
        return _within(self.desk, action)

    def power_off(self, board: LabBoard) -> None:
        """The board is gone from one moment to the next: no FIN, no RST, and nothing is remembered."""
        self.up = False
        board.stop()
        with self._lock:
            os.close(self._tuns.pop(self.board))
        _ip("netns", "del", self.board)

    def power_on(self, board: LabBoard) -> None:
        """It starts again and knows of no connection."""
        self._make(self.board, BOARD_ADDRESS, DESK_ADDRESS)
        board.start()
        self.up = True

    def close(self) -> None:
        """Takes it down."""
        self._running = False
        self._thread.join(10)
        for descriptor in self._tuns.values():
            os.close(descriptor)
        for name in (self.desk, self.board):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def _make(self, name: str, own: str, other: str) -> None:
        _ip("netns", "add", name)
        with self._lock:
            self._tuns[name] = _within(name, _tun)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", own, "peer", other, "dev", "line0")
        _ip("-n", name, "link", "set", "line0", "up", "mtu", "1400")

    def _relay(self) -> None:
        number = 0
        while self._running:
            with self._lock:
                ends = dict(self._tuns)
            pause = min(0.02, max(0.0, self._waiting[0][0] - time.monotonic())) if self._waiting else 0.02
            for source in select.select(list(ends.values()), [], [], pause)[0]:
                other = [descriptor for descriptor in ends.values() if descriptor != source]
                for packet in _packets(source):
                    number += 1
                    due = self._due(source, len(packet))
                    if other and self.up and self._random.random() >= self.loss and due is not None:
                        heapq.heappush(self._waiting, (due, number, other[0], packet))
            self._deliver()

    def _due(self, source: int, size: int) -> float | None:
        """When a packet comes out at the other end; None when the queue before the line is full, as a router's is at some time."""
        now = time.monotonic()
        if not self.bytes_per_s:
            return now + self.delay_s
        free_at = max(self._free_at.get(source, now), now)
        if free_at - now > 0.5:
            return None
        self._free_at[source] = free_at + size / self.bytes_per_s
        return self._free_at[source] + self.delay_s

    def _deliver(self) -> None:
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(self._waiting)
            with self._lock:
                if self.up and target in self._tuns.values():
                    with contextlib.suppress(OSError):  # the interface is going down
                        os.write(target, packet)


@contextlib.contextmanager
def board_on_a_line() -> Iterator[tuple[LabBoard, Line]]:
    """A board at the far end of a line."""
    line = Line()
    try:
        with LabBoard(Setup(address=BOARD_ADDRESS, netns=line.board), port=22) as board:
            yield board, line
    finally:
        line.close()


def _packets(source: int) -> Iterator[bytes]:
    for _ in range(64):
        try:
            yield os.read(source, 65536)
        except OSError:
            return


def _tun() -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH14x", b"line0", _IFF_TUN_NO_PI))
    return descriptor


def _within(name: str, action: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with open(f"/run/netns/{name}") as place:
                if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
