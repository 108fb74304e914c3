"""Frames in, results out, in order, while everything overlaps: a thread reads, others prepare, one computes, the caller uses.

::

    with model.stream(camera, policy="latest", preprocess=model.preprocess) as results:
        for result in results:
            show(result.frame, result.output, result.age_ms)

A result is computed ahead of the loop that takes it, but only one: a loop that is slower than the model gets fresh frames and the board
stays cool. No code of the app runs in the thread that computes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Type

from edgekit.errors import ModelBusyError, UsageError

if TYPE_CHECKING:
    from typing import Literal

    Policy = Literal["latest", "all", "reject"]

POLICIES = ("latest", "all", "reject")

_READER_WAIT_S = 2.0
"""How long closing waits for a camera to give one more frame; then its thread is left to end by itself."""


@dataclasses.dataclass(frozen=True)
class StreamResult:
    """The answer to one frame.

    ``index`` counts the frames that were read, from 0. ``age_ms`` is the time since the frame was read, ``inference_ms`` what the model
    took of it. ``dropped_before`` frames were left out since the result before.
    """

    output: Any
    frame: Any
    index: int
    age_ms: float
    inference_ms: float
    dropped_before: int


@dataclasses.dataclass
class _Frame:
    """One frame on its way."""

    index: int
    read_s: float
    frame: Any
    prepared: Any = None
    output: Any = None
    inference_s: float = 0.0
    error: Optional[BaseException] = None


class Stream:
    """An iterator of :class:`StreamResult`, for ``for`` and for ``async for``. Made by :meth:`edgekit.runtime.Model.stream`.

    ``read``, ``dropped`` and ``delivered`` count frames. What ``frames``, ``preprocess`` or the model raises is raised where the frame's
    result would have come, and ends the stream. Leaving the ``with`` block, :meth:`close` or forgetting the stream ends its threads.
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        frames: Iterable[Any],
        *,
        policy: Policy,
        preprocess: Optional[Callable[[Any], Any]] = None,
        workers: int = 1,
    ) -> None:
        if policy not in POLICIES:
            raise UsageError(f"no stream policy is called {policy!r}", hint=f"one of {', '.join(POLICIES)}")
        if workers < 1:
            raise UsageError(f"a stream needs at least one worker to prepare frames, not {workers}")
        self._line = _Line(model, frames, policy=policy, preprocess=preprocess, workers=workers)
        # Also at the interpreter's exit, while its threads can still end in order.
        self._finalizer = weakref.finalize(self, self._line.stop)
        self._line.start()

    @property
    def read(self) -> int:
        """Frames that were read."""
        return self._line.read

    @property
    def dropped(self) -> int:
        """Frames that were left out, because a newer one was there."""
        return self._line.dropped

    @property
    def delivered(self) -> int:
        """Results that were taken."""
        return self._line.delivered

    def close(self) -> None:
        """Ends the threads. Waits for the inference that is running, and for a moment for the frame that is being read."""
        self._finalizer()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> StreamResult:
        result = self._line.take(block=True)
        if result is None:
            self.close()
            raise StopIteration
        return result

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> StreamResult:
        loop = asyncio.get_running_loop()
        while True:
            changed: asyncio.Future[None] = loop.create_future()
            self._line.wake = functools.partial(loop.call_soon_threadsafe, _settle, changed)
            result = self._line.take(block=False)
            if result is not None:
                return result
            if self._line.is_over():
                await loop.run_in_executor(None, self.close)
                raise StopAsyncIteration
            await changed

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Line:
    """The threads and what lies between them, under one lock. Knows nothing of the :class:`Stream`, so that one can be forgotten.

    A frame goes from ``_waiting`` (read) over ``_preparing`` and ``_ready`` to ``_result`` (one place). Under "latest" each of the first
    three keeps the newest alone; under the others at most ``_depth`` frames are between reader and model.
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        frames: Iterable[Any],
        *,
        policy: str,
        preprocess: Optional[Callable[[Any], Any]],
        workers: int,
    ) -> None:
        self._model = model
        self._frames = frames
        self._latest, self._rejects = policy == "latest", policy == "reject"
        self._preprocess = preprocess
        self._depth = workers + 2
        self._changed = threading.Condition()
        self._waiting: List[_Frame] = []
        self._preparing: List[_Frame] = []
        self._ready: Dict[int, _Frame] = {}
        self._result: Optional[_Frame] = None
        self._computing = False
        self._next = 0  # the frame that the model takes next, where none may be left out
        self._read_all = self._stopped = False
        self._dropped_reported = 0
        self.read = self.dropped = self.delivered = 0
        self.wake: Optional[Callable[[], object]] = None
        """Called once, at the next change."""
        self._reader = threading.Thread(target=self._read, name="edgekit-reader", daemon=True)
        self._others = [
            threading.Thread(target=self._prepare, name=f"edgekit-prepare-{number}", daemon=True)
            for number in range(workers)
        ]
        self._others.append(threading.Thread(target=self._compute, name="edgekit-inference", daemon=True))

    def start(self) -> None:
        for thread in (self._reader, *self._others):
            thread.start()

    def stop(self) -> None:
        """Ends all threads."""
        with self._changed:
            self._stopped = True
            self._notify()
        here = threading.current_thread()
        for thread in self._others:
            if thread is not here:
                thread.join()
        if self._reader is not here:
            self._reader.join(_READER_WAIT_S)

    def take(self, *, block: bool) -> Optional[StreamResult]:
        """The next result; None when there is no more (or, without ``block``, none yet). Raises what went wrong with the frame."""
        with self._changed:
            if block:
                self._changed.wait_for(lambda: self._result is not None or self._over())
            found = self._result
            if found is None:
                return None
            self._result = None
            dropped, self._dropped_reported = self.dropped - self._dropped_reported, self.dropped
            if found.error is None:
                self.delivered += 1
            else:
                self._stopped = True
            self._notify()
        if found.error is not None:
            raise found.error
        age_s = time.monotonic() - found.read_s
        return StreamResult(found.output, found.frame, found.index, age_s * 1e3, found.inference_s * 1e3, dropped)

    def is_over(self) -> bool:
        """Whether no result will come any more."""
        with self._changed:
            return self._result is None and self._over()

    def _over(self) -> bool:
        between = self._waiting or self._preparing or self._ready or self._computing
        return self._stopped or (self._read_all and not between)

    def _notify(self) -> None:
        self._changed.notify_all()
        wake, self.wake = self.wake, None
        if wake is not None:
            try:
                wake()
            except RuntimeError:
                pass  # the event loop is closed: nobody waits there any more

    def _read(self) -> None:
        """The reader's thread: everything that the app's own iterator does happens here."""
        last: Optional[BaseException] = None
        try:
            for frame in self._frames:
                if not self._admit(frame):
                    break
        except BaseException as error:
            last = error
        with self._changed:
            if last is not None:
                self._ready[self.read] = _Frame(self.read, time.monotonic(), None, error=last)
            self._read_all = True
            self._notify()

    def _admit(self, frame: Any) -> bool:
        """Takes a frame in; False when no more is wanted."""
        item = _Frame(self.read, time.monotonic(), frame)
        with self._changed:
            if self._latest:
                self.dropped += len(self._waiting)
                self._waiting = [item]
            elif self._is_full() and self._rejects:
                raise ModelBusyError(
                    f"frame {self.read} came while {self._depth} were waiting for the model",
                    hint='read fewer frames a second, or use policy="latest"',
                )
            else:
                self._changed.wait_for(lambda: self._stopped or not self._is_full())
                self._waiting.append(item)
            self.read += 1
            self._notify()
            return not self._stopped

    def _is_full(self) -> bool:
        return len(self._waiting) + len(self._preparing) + len(self._ready) >= self._depth

    def _prepare(self) -> None:
        """A worker's thread."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._waiting or self._read_all)
                if self._stopped or not self._waiting:
                    return
                item = self._waiting.pop(0)
                self._preparing.append(item)
            try:
                item.prepared = item.frame if self._preprocess is None else self._preprocess(item.frame)
            except BaseException as error:
                item.error = error
            with self._changed:
                self._preparing.remove(item)
                self._put_ready(item)
                self._notify()

    def _put_ready(self, item: _Frame) -> None:
        if not self._latest:
            self._ready[item.index] = item
        elif item.index < self._next or any(index > item.index for index in self._ready):
            self.dropped += 1  # another worker was faster with a newer one
        else:
            self.dropped += len(self._ready)
            self._ready = {item.index: item}

    def _compute(self) -> None:
        """The thread that runs the model."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopped or (self._result is None and self._next_ready() is not None)
                )
                if self._stopped:
                    return
                item = self._next_ready()
                assert item is not None
                del self._ready[item.index]
                self._next = item.index + 1
                self._computing = True
                self._notify()
            if item.error is None:
                began_s = time.monotonic()
                try:
                    item.output = self._model(item.prepared)
                except BaseException as error:
                    item.error = error
                item.inference_s = time.monotonic() - began_s
            item.prepared = None
            with self._changed:
                self._computing = False
                self._result = item
                self._notify()

    def _next_ready(self) -> Optional[_Frame]:
        if self._latest:
            return self._ready[min(self._ready)] if self._ready else None
        return self._ready.get(self._next)
