"""Inferences for later: a bounded queue, one thread that computes, another that hands out results.

Two threads, because what an app attaches to a future runs in the thread that completes it, and a slow callback must not hold up the
next inference.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable

from edgekit.errors import ModelBusyError, UsageError

QUEUED = 16
"""How many inferences wait at most."""


class Submitter:
    """Runs callables one after the other. ``queued`` bounds those that wait."""

    def __init__(self, *, queued: int = QUEUED) -> None:
        self._room = threading.Semaphore(queued)
        self._queued = queued
        self._closed = False
        self._inference = ThreadPoolExecutor(1, thread_name_prefix="edgekit-inference")
        self._delivery = ThreadPoolExecutor(1, "edgekit-delivery", self._remember_delivery)
        self._delivery_thread = 0

    def submit(self, call: Callable[[], Any], *, wait: bool = True) -> Future[Any]:
        """A future of what ``call`` returns or raises.

        Raises :class:`ModelBusyError` when all places are taken and ``wait`` is False, :class:`UsageError` when it is closed.
        """
        if not self._room.acquire(blocking=wait):
            raise ModelBusyError(
                f"{self._queued} inputs are waiting for the model",
                hint="submit less often, or let submit wait for its turn",
            )
        future: Future[Any] = Future()
        try:
            if self._closed:
                raise RuntimeError
            self._inference.submit(self._run, future, call)
        except RuntimeError:  # closed meanwhile
            self._room.release()
            raise UsageError("the model is closed", code="model_closed") from None
        return future

    def close(self) -> None:
        """Ends both threads after the inference that is running; what has not begun is cancelled. Harmless when called twice."""
        self._closed = True
        self._inference.shutdown(wait=True)
        # A callback that closes the model runs in the delivery thread, which cannot wait for itself.
        self._delivery.shutdown(wait=threading.get_ident() != self._delivery_thread)

    def _remember_delivery(self) -> None:
        self._delivery_thread = threading.get_ident()

    def _run(self, future: Future[Any], call: Callable[[], Any]) -> None:
        self._room.release()  # it does not wait any more
        if self._closed:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:
            self._delivery.submit(future.set_exception, error)
        else:
            self._delivery.submit(future.set_result, result)
