"""A pickle runs code while it is read. Array files, model files and external data are read in ways that cannot."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.calibrate.sources import DataOptions, open_dataset
from edgekit.errors import EdgekitError
from edgekit.intake.door import DoorOptions, open_door
from edgekit.intake.inspect import inspect_model
from edgekit.values import IoSpec

SPEC = IoSpec("x", (1, 2), "float32", "x", (1, 2), "float32")


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "ran"


def npy(path: Path, mark: Path) -> Path:
    path = path.with_suffix(".npy")
    np.save(path, np.array([Payload(mark)] * 2, object), allow_pickle=True)
    return path


def npz(path: Path, mark: Path) -> Path:
    path = path.with_suffix(".npz")
    np.savez(path, allow_pickle=True, x=np.array([[Payload(mark), 0]] * 2, object))
    return path


def pickle_as_npy(path: Path, mark: Path) -> Path:
    path = path.with_suffix(".npy")
    path.write_bytes(pickle.dumps(Payload(mark)))
    return path


def labels_in_npz(path: Path, mark: Path) -> Path:
    path = path.with_suffix(".npz")
    np.savez(path, allow_pickle=True, x=np.zeros((2, 2), np.float32), label=np.array([Payload(mark)] * 2, object))
    return path


def is_live(read: Callable[[], Any], mark: Path) -> None:
    """Whoever reads the file without such care runs the payload."""
    read()
    assert mark.exists()


@pytest.mark.parametrize("make", [npy, npz, pickle_as_npy, labels_in_npz])
def test_arrays_are_read_without_pickle(make: Callable[[Path, Path], Path], tmp_path: Path, mark: Path) -> None:
    path = make(tmp_path / "data", mark)
    with pytest.raises(EdgekitError) as caught:
        dataset = open_dataset(str(path), [SPEC], DataOptions(labels="label" if make is labels_in_npz else None))
        list(dataset.iterate())
    assert caught.value.exit_code == 2
    assert not mark.exists()
    if make is npy:
        is_live(lambda: np.load(path, allow_pickle=True), mark)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".onnx"])
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "zip"])
def test_pytorch_pickles_are_refused_unread(suffix: str, zipped: bool, tmp_path: Path, mark: Path) -> None:
    path = tmp_path / f"net{suffix}"
    payload = pickle.dumps(Payload(mark))
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net/data.pkl", payload)
    else:
        path.write_bytes(payload)
    for read in (lambda: inspect_model(path), lambda: open_door(path, DoorOptions(tmp_path))):
        with pytest.raises(EdgekitError) as caught:
            read()
        assert caught.value.exit_code in (2, 3)
        assert "pickle" in caught.value.message
    assert not mark.exists()
    is_live(lambda: pickle.loads(payload), mark)


def test_the_golden_pairs_of_a_bundle_are_read_without_pickle(tmp_path: Path, mark: Path) -> None:
    from edgekit.agent.inputs import golden_feed
    from edgekit.runtime.backend import open_backend

    models = Path(__file__).resolve().parents[1] / "runtime" / "models"
    np.savez(tmp_path / "golden.npz", allow_pickle=True, **{"input/x": np.array([Payload(mark)], object)})
    with open_backend(models / "dense_int8.tflite") as backend, pytest.raises((EdgekitError, ValueError)):
        golden_feed(backend, golden=str(tmp_path / "golden.npz"), names={})
    assert not mark.exists()
