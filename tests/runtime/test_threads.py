"""One model and many threads: every answer is the one that a single thread gets, and nothing hangs."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Iterator, List

import numpy as np
import pytest

from edgekit.errors import DataError, ModelBusyError, UsageError
from edgekit.runtime import Model

WAIT_S = 10


@pytest.fixture
def dense(models: Path) -> Iterator[Model]:
    with Model.open(models / "dense_int8.tflite", threads=1) as model:
        yield model


class Gate:
    """Holds the interpreter in the middle of an inference."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside, self.open = threading.Event(), threading.Event()
        self.threads: List[str] = []
        invoke = model._backend.invoke

        def held() -> None:
            self.threads.append(threading.current_thread().name)
            self.inside.set()
            assert self.open.wait(WAIT_S)
            invoke()

        monkeypatch.setattr(model._backend, "invoke", held)


def test_eight_threads_get_the_answers_of_one(dense: Model) -> None:
    inputs = np.random.RandomState(0).uniform(-3, 3, (64, 4))
    truth = [dense(x) for x in inputs]
    wrong: List[Any] = []

    def run(first: int) -> None:
        try:
            for turn in range(1000):
                index = (first + turn) % len(inputs)
                if not np.array_equal(dense(inputs[index]), truth[index]):
                    wrong.append(index)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(8 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_future_brings_the_result_or_the_error(dense: Model) -> None:
    good, bad, raw = (
        dense.submit(np.ones(4)),
        dense.submit(np.full(4, np.nan)),
        dense.submit(np.zeros(4, np.int8), raw=True),
    )
    assert np.array_equal(good.result(WAIT_S), dense(np.ones(4)))
    with pytest.raises(DataError, match="NaN"):
        bad.result(WAIT_S)
    assert raw.result(WAIT_S).dtype == np.int8


def test_a_slow_callback_does_not_hold_up_inferences(dense: Model) -> None:
    go_on = threading.Event()
    first = dense.submit(np.zeros(4))
    callback: Future[str] = Future()

    def slow(_: Future[Any]) -> None:
        callback.set_result(threading.current_thread().name)
        assert go_on.wait(WAIT_S)

    first.add_done_callback(slow)
    first.result(WAIT_S)
    assert callback.result(WAIT_S) in ("edgekit-delivery_0", threading.current_thread().name)
    computed = threading.Event()
    invoke = dense._backend.invoke
    dense._backend.invoke = lambda: (invoke(), computed.set())[0]  # type: ignore[method-assign,assignment]
    second = dense.submit(np.ones(4))
    assert computed.wait(WAIT_S)  # while the callback is still running
    go_on.set()
    assert np.array_equal(second.result(WAIT_S), dense(np.ones(4)))


def test_no_more_than_the_queue_holds(dense: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(dense, monkeypatch)
    running = dense.submit(np.zeros(4))
    assert gate.inside.wait(WAIT_S)
    waiting = [dense.submit(np.ones(4), wait=False) for _ in range(16)]
    with pytest.raises(ModelBusyError, match="16 inputs are waiting"):
        dense.submit(np.ones(4), wait=False)
    gate.open.set()
    assert len([future.result(WAIT_S) for future in [running, *waiting]]) == 17
    assert set(gate.threads) == {"edgekit-inference_0"}


def test_closing_cancels_what_has_not_begun(dense: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(dense, monkeypatch)
    running, waiting = dense.submit(np.zeros(4)), dense.submit(np.ones(4))
    assert gate.inside.wait(WAIT_S)
    closing = threading.Thread(target=dense.close)
    closing.start()
    submitter = dense._submitter
    assert submitter is not None
    while not submitter._closed:
        time.sleep(0.001)
    gate.open.set()
    closing.join(WAIT_S)
    assert running.result(WAIT_S).shape == (3,)
    with pytest.raises(CancelledError):
        waiting.result(WAIT_S)
    with pytest.raises(UsageError, match="closed"):
        dense.submit(np.zeros(4))
    dense.close()


def test_a_callback_may_close_the_model(dense: Model) -> None:
    closed: Future[None] = Future()

    def close(_: Future[Any]) -> None:
        try:
            dense.close()
            closed.set_result(None)
        except BaseException as error:
            closed.set_exception(error)

    dense.submit(np.zeros(4)).add_done_callback(close)
    closed.result(WAIT_S)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_so(dense: Model) -> None:
    """tflite-runtime would hang there for ever: its threads are not in the child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        said = []
        for call in (
            lambda: dense(np.zeros(4)),
            lambda: dense.submit(np.zeros(4)),
            lambda: dense.stream([], policy="all"),
        ):
            try:
                call()
            except UsageError as error:
                said.append(error.code)
        dense.close()
        os.write(write, " ".join(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "model_forked model_forked model_forked"
    os.waitpid(child, 0)
    assert dense(np.zeros(4)).shape == (3,)
