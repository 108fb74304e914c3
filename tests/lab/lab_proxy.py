"""A TCP proxy that is a bad link: it delays, throttles, freezes and cuts, as told while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_BLOCK_BYTES = 16384
_BUFFER_BYTES = 1 << 18
"""Of the proxy's sockets: small, so that a frozen link is felt after this much and not after megabytes."""


class Proxy:
    """Listens on ``127.0.0.1:port`` and passes on to ``target``. Everything here may be called from any thread.

    ``delay_s`` is one way; ``bytes_per_s`` holds for each direction of each connection (0: no limit). ``up_bytes`` and ``down_bytes``
    count what was passed on to the target and back, ``connections`` who came.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.delay_s = 0.0
        self.bytes_per_s = 0.0
        self.up_bytes = 0
        self.down_bytes = 0
        self.connections = 0
        self._target = target
        self._cut_at: int | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.port = int(self._listener.getsockname()[1])
        self._flowing = self._do(self._event)
        self._server: asyncio.Server | None = None
        self.restore()

    def freeze(self) -> None:
        """Nothing passes any more; the connections stay, and new ones are made and stay silent."""
        self._do(self._clear)

    def thaw(self) -> None:
        """What was held back goes on its way."""
        self._do(self._set)

    def strand(self) -> None:
        """The connections that there are stay silent for ever, at both ends; new ones pass."""
        old = self._flowing
        self._flowing = self._do(self._event)
        self._do(old.clear)

    def cut(self) -> None:
        """Resets every connection."""
        self._do(self._reset_all)

    def cut_after(self, up_bytes: int) -> None:
        """Resets every connection once so many bytes more have gone to the target; once."""
        self._cut_at = self.up_bytes + up_bytes

    def refuse(self) -> None:
        """Cuts, and refuses connections until :meth:`restore`."""
        self._run(self._stop_listening())
        self.cut()

    def restore(self) -> None:
        """Listens (again)."""
        self._run(self._listen())

    def close(self) -> None:
        """Ends it."""
        self.thaw()
        self._run(self._stop_listening())
        self.cut()
        self._run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._listener.close()

    def _do(self, action: Callable[[], T]) -> T:
        async def call() -> T:
            return action()

        return self._run(call())

    def _run(self, work):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _event(self) -> asyncio.Event:
        event = asyncio.Event()
        event.set()
        return event

    def _clear(self) -> None:
        self._flowing.clear()

    def _set(self) -> None:
        self._flowing.set()

    async def _listen(self) -> None:
        if self._server is None:
            if self._listener.fileno() == -1:
                self._listener = socket.create_server(("127.0.0.1", self.port))
            self._server = await asyncio.start_server(self._accepted, sock=self._listener)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _reset_all(self) -> None:
        for writer in list(self._open):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._open.clear()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            flowing = self._flowing
            await flowing.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        for one in (writer, far_writer):
            one.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._pump(reader, far_writer, flowing, up=True), self._pump(far_reader, writer, flowing, up=False)
        )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event, *, up: bool
    ) -> None:
        """Two halves with a queue between them, so that a delay costs no throughput."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1024)
        sender = asyncio.ensure_future(self._deliver(queue, writer, flowing, up=up))
        try:
            while True:
                block = await reader.read(_BLOCK_BYTES)
                await queue.put((self._loop.time() + self.delay_s, block))
                if not block:
                    break
            await sender
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            sender.cancel()
            self._open.discard(writer)
            writer.close()

    async def _deliver(
        self,
        queue: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        flowing: asyncio.Event,
        *,
        up: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, block = await queue.get()
                if not block:
                    return
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await flowing.wait()
                if self.bytes_per_s:
                    await asyncio.sleep(len(block) / self.bytes_per_s)
                writer.write(block)
                await writer.drain()
                self._count(len(block), up=up)

    def _count(self, size: int, *, up: bool) -> None:
        if not up:
            self.down_bytes += size
            return
        self.up_bytes += size
        if self._cut_at is not None and self.up_bytes >= self._cut_at:
            self._cut_at = None
            self._reset_all()
