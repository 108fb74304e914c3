"""Streams: order, drops, back pressure, errors where they belong, and an end that leaves no thread behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from pathlib import Path
from typing import Any, Iterator, List

import numpy as np
import pytest

from edgekit.errors import DataError, ModelBusyError, UsageError
from edgekit.runtime import Model
from edgekit.runtime.stream import Stream

WAIT_S = 10


@pytest.fixture
def dense(models: Path) -> Iterator[Model]:
    with Model.open(models / "dense_int8.tflite", threads=1) as model:
        yield model


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + WAIT_S
    while any(thread.name.startswith("edgekit-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.001)


def frames_of(count: int) -> np.ndarray[Any, Any]:
    return np.random.RandomState(1).uniform(-3, 3, (count, 4))


@pytest.mark.parametrize("workers", [1, 3])
def test_all_frames_in_their_order(dense: Model, workers: int) -> None:
    frames = frames_of(200)
    jitter = np.random.RandomState(2).uniform(0, 0.001, 200)

    def half(pair: Any) -> Any:
        time.sleep(jitter[pair[0]])  # workers finish out of order
        return pair[1] / 2

    with dense.stream(enumerate(frames), policy="all", preprocess=half, workers=workers) as stream:
        results = list(stream)
    assert [result.index for result in results] == list(range(200))
    assert [result.frame[0] for result in results] == list(range(200))
    for result, frame in zip(results, frames):
        assert np.array_equal(result.output, dense(frame / 2))
        assert result.age_ms >= result.inference_ms >= 0
    assert (stream.read, stream.dropped, stream.delivered) == (200, 0, 200)


class Held:
    """A model that computes one frame each time it is let."""

    def __init__(self) -> None:
        self.let = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.seen: List[int] = []
        self.names: List[str] = []

    def allow(self, count: int) -> None:
        for _ in range(count):  # Python 3.8 releases one at a time
            self.let.release()

    def __call__(self, x: int) -> int:
        self.seen.append(x)
        self.names.append(threading.current_thread().name)
        self.began.release()
        assert self.let.acquire(timeout=WAIT_S)
        return 10 * x


def test_latest_leaves_out_all_but_the_newest() -> None:
    model, camera = Held(), threading.Semaphore(0)
    handed_out = threading.Semaphore(0)

    def frames() -> Iterator[int]:
        for number in range(10):
            assert camera.acquire(timeout=WAIT_S)
            yield number
            handed_out.release()  # the stream asks for the next: it has taken this one in

    with Stream(model, frames(), policy="latest") as stream:
        camera.release()
        assert model.began.acquire(timeout=WAIT_S)  # frame 0 is being computed
        for _ in range(9):  # 1 to 9 come meanwhile
            camera.release()
        for _ in range(10):
            assert handed_out.acquire(timeout=WAIT_S)
        line = stream._line
        while line._waiting or line._preparing:
            time.sleep(0.001)
        model.allow(2)
        results = list(stream)
    assert [(result.output, result.dropped_before) for result in results] == [(0, 8), (90, 0)] or [
        (result.output, result.dropped_before) for result in results
    ] == [(0, 0), (90, 8)]
    assert model.seen == [0, 9]
    assert (stream.read, stream.dropped, stream.delivered) == (10, 8, 2)
    assert set(model.names) == {"edgekit-inference"}


def test_all_makes_the_source_wait() -> None:
    model, given = Held(), []

    def frames() -> Iterator[int]:
        for number in range(100):
            given.append(number)
            yield number

    with Stream(model, frames(), policy="all") as stream:
        assert model.began.acquire(timeout=WAIT_S)
        while len(given) < 5:
            time.sleep(0.001)
        time.sleep(0.05)
        assert len(given) == 5  # one computed, three between reader and model, one in the reader's hand
        model.allow(100)
        assert [result.output for result in stream] == list(range(0, 1000, 10))


def test_reject_says_which_frame_was_too_much() -> None:
    model = Held()
    results = []
    with Stream(model, range(100), policy="reject") as stream:
        assert model.began.acquire(timeout=WAIT_S)
        model.allow(100)
        with pytest.raises(ModelBusyError, match=r"frame \d+ came while 3 were waiting"):
            for result in stream:
                results.append(result.index)
        assert list(stream) == []
    assert results == list(range(len(results)))  # those before it were answered


def test_errors_come_where_the_result_would_have(dense: Model) -> None:
    def camera() -> Iterator[Any]:
        yield np.zeros(4)
        raise OSError("the camera was unplugged")

    def bad(frame: Any) -> Any:
        raise KeyError("no such region")

    stream = dense.stream(camera(), policy="all")
    assert next(stream).index == 0
    with pytest.raises(OSError, match="unplugged"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(KeyError, match="region"):
        next(dense.stream([1], policy="latest", preprocess=bad))
    with pytest.raises(DataError, match="shape"):
        next(dense.stream([np.zeros(5)], policy="latest"))


def test_a_stream_that_is_left_or_forgotten_ends() -> None:
    def endless() -> Iterator[int]:
        while True:
            time.sleep(0.001)
            yield 1

    with Stream(lambda x: x, endless(), policy="all") as stream:
        assert next(stream).output == 1
    assert list(stream) == []
    forgotten = Stream(lambda x: x, endless(), policy="latest")
    assert next(forgotten).output == 1
    del forgotten  # the fixture sees its threads end


def test_in_a_coroutine(dense: Model) -> None:
    frames = frames_of(50)

    async def collect() -> List[Any]:
        single = await asyncio.wrap_future(dense.submit(frames[0]))
        assert np.array_equal(single, dense(frames[0]))
        return [result async for result in dense.stream(frames, policy="all")]

    results = asyncio.run(collect())
    assert [result.index for result in results] == list(range(50))
    assert all(np.array_equal(result.output, dense(frame)) for result, frame in zip(results, frames))


def test_a_coroutine_that_gives_up_loses_no_result() -> None:
    model = Held()

    async def collect() -> List[int]:
        stream = Stream(model, range(3), policy="all")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream.__anext__(), 0.01)
        model.allow(3)
        return [result.output async for result in stream]

    assert asyncio.run(collect()) == [0, 10, 20]


def test_wrong_words_are_refused(dense: Model) -> None:
    with pytest.raises(UsageError, match="'newest'") as caught:
        dense.stream([], policy="newest")  # type: ignore[arg-type]
    assert "latest, all, reject" in caught.value.hint
    with pytest.raises(UsageError, match="at least one worker"):
        dense.stream([], policy="all", workers=0)
