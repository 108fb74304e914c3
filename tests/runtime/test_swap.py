"""Another model in the place of a running one: proved first, switched between two calls, refused without a trace."""

from __future__ import annotations

import os
import queue
import shutil
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest

from edgekit.errors import ModelFileError, UsageError
from edgekit.runtime import Model
from edgekit.runtime.swap import Swapped
from tests.runtime.test_model import DENSE_IN, DENSE_OUT, B, W, make_bundle

WAIT_S = 10
X = np.array([1.0, 2.0, 3.0, -4.0])


def golden(bundle: Path, models: Path, *, off: int = 0) -> Path:
    """``bundle`` with a golden pair; its int8 output is ``off`` steps beside what the model says."""
    with Model.open(models / "dense_int8.tflite", threads=1) as model:
        exact = model(np.array([[1, 3, 5, -9]], np.int8), raw=True)
    real = (exact.astype(np.float32) - 3.0)[np.newaxis]
    arrays: Dict[str, Any] = {
        "input/image:0": X.astype(np.float32).reshape(1, 1, 4),
        "int8/scores/y": exact[np.newaxis] + np.int8(off),
        "float/scores/y": real + off,
    }
    np.savez(bundle / "golden.npz", **arrays)
    return bundle


def bundle_at(folder: Path, models: Path, **more: Any) -> Path:
    return make_bundle(folder, models / "dense_int8.tflite", [DENSE_IN], [DENSE_OUT], **more)


@pytest.fixture
def running(models: Path, tmp_path: Path) -> Iterator[Model]:
    with Model.open(bundle_at(tmp_path / "old", models), threads=1) as model:
        yield model


def doubled(models: Path, folder: Path) -> Path:
    """The same model with twice the weights (int8, scale 0.25): y = 2 W x + b."""
    weights = np.round(W / 0.25).astype(np.int8)
    data = (models / "dense_int8.tflite").read_bytes()
    assert data.count(weights.tobytes()) == 1
    path = folder / "doubled.tflite"
    path.write_bytes(data.replace(weights.tobytes(), (2 * weights).tobytes()))
    return path


def is_doubled(y: Any) -> bool:
    once, twice = np.abs(y - (W @ X + B)).max() <= 0.5, np.abs(y - (2 * W @ X + B)).max() <= 0.5
    assert once != twice
    return bool(twice)


def test_swapped_between_two_calls_while_threads_call(running: Model, models: Path, tmp_path: Path) -> None:
    new = make_bundle(tmp_path / "new", doubled(models, tmp_path), [DENSE_IN], [DENSE_OUT])
    ended, answers = threading.Event(), []

    def run() -> None:
        mine: List[bool] = []
        while not ended.is_set():
            mine.append(is_doubled(running(X)))
        answers.append(mine)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    before = running.info
    running.swap(new)
    assert is_doubled(running(X))
    ended.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(answers) == 3
    for mine in answers:
        assert mine == sorted(mine)  # the old one, then the new one, and never back
    assert running.info.sha256 != before.sha256
    assert running.info.threads == before.threads


def test_what_does_not_hold_leaves_the_old_one(running: Model, models: Path, tmp_path: Path) -> None:
    damaged = bundle_at(tmp_path / "damaged", models)
    (damaged / "model.tflite").write_bytes((models / "dense_int8.tflite").read_bytes()[:500])
    cases = [
        (golden(bundle_at(tmp_path / "off", models), models, off=3), "golden_differs"),
        (damaged, None),
        (models / "islands.tflite", "swap_differs"),
        (models / "future.tflite", None),
        (tmp_path / "nothing", "model_file_missing"),
    ]
    (bundle_at(tmp_path / "unreadable", models) / "golden.npz").write_bytes(b"PK nothing")
    cases.append((tmp_path / "unreadable", "bundle_damaged"))
    before = running(X)
    for path, code in cases:
        with pytest.raises(ModelFileError) as caught:
            running.swap(path)
        assert code is None or caught.value.code == code
        assert running.info.sha256 == Model.open(models / "dense_int8.tflite").info.sha256
        assert np.array_equal(running(X), before)
    running.swap(
        golden(bundle_at(tmp_path / "right", models), models, off=2)
    )  # two steps are what kernels may differ by
    running.close()
    with pytest.raises(UsageError, match="closed"):
        running.swap(tmp_path / "right")


def test_a_link_is_followed_and_a_bad_release_is_refused(running: Model, models: Path, tmp_path: Path) -> None:
    """As a push switches: another link beside it, renamed over ``current``."""
    current = tmp_path / "current"

    def point_to(folder: Path) -> None:
        (tmp_path / ".current.new").symlink_to(folder)
        os.replace(tmp_path / ".current.new", current)

    point_to(tmp_path / "old")
    seen: queue.Queue[Swapped] = queue.Queue()
    running.watch(str(current), every_s=0.005, on_swap=seen.put)
    with pytest.raises(UsageError, match="watches a link already"):
        running.watch(str(current))
    point_to(make_bundle(tmp_path / "2-new", doubled(models, tmp_path), [DENSE_IN], [DENSE_OUT]))
    assert seen.get(timeout=WAIT_S) == Swapped(str(tmp_path / "2-new"), None)
    assert is_doubled(running(X))
    point_to(golden(bundle_at(tmp_path / "3-bad", models), models, off=5))
    refused = seen.get(timeout=WAIT_S)
    assert refused.error is not None
    assert refused.error.code == "golden_differs"
    assert is_doubled(running(X))
    current.unlink()  # nothing there for a moment
    point_to(tmp_path / "old")  # rolled back
    assert seen.get(timeout=WAIT_S) == Swapped(str(tmp_path / "old"), None)
    assert not is_doubled(running(X))
    running.close()
    assert not any(thread.name == "edgekit-watch" for thread in threading.enumerate())


def test_a_release_between_opening_and_watching_is_not_missed(running: Model, models: Path, tmp_path: Path) -> None:
    new = make_bundle(tmp_path / "new", doubled(models, tmp_path), [DENSE_IN], [DENSE_OUT])
    (tmp_path / "current").symlink_to(new)
    seen: queue.Queue[Swapped] = queue.Queue()
    running.watch(str(tmp_path / "current"), every_s=0.005, on_swap=seen.put)
    assert seen.get(timeout=WAIT_S).error is None
    assert is_doubled(running(X))


def test_a_watched_model_may_be_forgotten(models: Path, tmp_path: Path) -> None:
    model = Model.open(models / "dense_int8.tflite", threads=1)
    model.watch(str(models / "dense_int8.tflite"), every_s=0.005)
    assert model._watcher is not None
    thread = model._watcher._thread
    del model
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_the_file_under_a_running_model_may_go(models: Path, tmp_path: Path) -> None:
    bundle = bundle_at(tmp_path / "gone", models)
    with Model.open(bundle, threads=1) as model:
        before = model(X)
        shutil.rmtree(bundle)
        assert np.array_equal(model(X), before)
        with pytest.raises(ModelFileError):
            model.swap(bundle)
        assert np.array_equal(model(X), before)
