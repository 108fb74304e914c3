"""Same inputs, same bytes: in other processes, folders, locales and time zones, with other hashes and thread counts, and from a lock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from command_line import Said, run

HERE = {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
THERE = {
    "PYTHONHASHSEED": "4711",
    "LC_ALL": "C.UTF-8",
    "TZ": "Asia/Kathmandu",
    "OMP_NUM_THREADS": "4",
    "OPENBLAS_NUM_THREADS": "4",
}


@dataclass(frozen=True)
class Place:
    """A model, its data and what was made of them, all in one folder."""

    folder: Path
    bundle: Path

    @property
    def model(self) -> bytes:
        """The delivered file."""
        return (self.bundle / "model.tflite").read_bytes()

    @property
    def manifest(self) -> bytes:
        """The manifest as it is written."""
        return (self.bundle / "manifest.json").read_bytes()


def filled(folder: Path, *, data_seed: int = 0, classes: int = 10) -> Path:
    """``folder`` with a network of convolutions and a dense layer, and 80 samples."""
    folder.mkdir(parents=True)
    networks.save(networks.small_classifier(classes=classes), folder / "net.onnx")
    np.savez(folder / "data.npz", x=networks.normal(80, 3, 8, 8, seed=data_seed))
    return folder


def converted(folder: Path, out: str, *more: str | Path, frontend: str, threads: int, env: dict[str, str]) -> Said:
    return run(
        *("convert", "net.onnx", "--data", "data.npz", "--out", out, "--json"),
        *("--frontend", frontend, "--threads", str(threads), "--allow-undecided"),
        *more,
        cwd=folder,
        env=env,
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, any_frontend: str) -> Place:
    """A conversion with one thread."""
    folder = filled(tmp_path_factory.mktemp("first") / "here")
    said = converted(folder, "m.bundle", frontend=any_frontend, threads=1, env=HERE)
    assert said.exit_code == 0, said.out + said.err
    return Place(folder, folder / "m.bundle")


def test_another_process_elsewhere_makes_the_same_bytes(first: Place, any_frontend: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "some where" / "else")
    said = converted(folder, "other.bundle", frontend=any_frontend, threads=3, env=THERE)
    assert said.exit_code == 0, said.out + said.err
    second = Place(folder, folder / "other.bundle")
    assert second.model == first.model
    assert second.manifest == first.manifest


def test_a_lock_makes_the_same_bytes(first: Place, any_frontend: str, tmp_path: Path) -> None:
    """The seed given beside it is the lock's to say."""
    folder = filled(tmp_path / "locked")
    lock = first.bundle / "manifest.json"
    options = ("--locked", lock, "--seed", "5")
    said = converted(folder, "l.bundle", *options, frontend=any_frontend, threads=2, env=THERE)
    assert said.exit_code == 0, said.out + said.err
    again = Place(folder, folder / "l.bundle")
    assert (again.model, again.manifest) == (first.model, first.manifest)


def refused(first: Place, folder: Path, lock: Path, frontend: str) -> dict[str, Any]:
    """The error of a conversion that is locked and cannot repeat; nothing is left at its place."""
    said = converted(folder, "l.bundle", "--locked", lock, frontend=frontend, threads=1, env=HERE)
    assert said.exit_code not in (0, 1)
    assert not (folder / "l.bundle").exists()
    return said.error


def test_a_lock_tells_of_other_data(first: Place, any_frontend: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "d", data_seed=1)
    error = refused(first, folder, first.bundle / "manifest.json", any_frontend)
    assert error["code"] == "lock_differs" and "the calibration data (digest" in error["message"]
    versions = json.loads(first.manifest)["versions"]
    assert not any(f"{name} {version}" in error["message"] for name, version in versions.items())


def test_a_lock_tells_of_another_model(first: Place, any_frontend: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "m", classes=11)
    error = refused(first, folder, first.bundle / "manifest.json", any_frontend)
    assert error["code"] == "lock_source" and "net.onnx has sha256" in error["message"]


def test_a_lock_tells_of_another_version(first: Place, any_frontend: str, tmp_path: Path) -> None:
    """The manifest as another numpy would have left it, with the other bytes that it made."""
    document = json.loads(first.manifest)
    here = document["versions"]["numpy"]
    document["versions"]["numpy"] = "1.0.0"
    document["files"]["model.tflite"]["sha256"] = "0" * 64
    lock = tmp_path / "other.json"
    lock.write_text(json.dumps(document))
    error = refused(first, filled(tmp_path / "v"), lock, any_frontend)
    assert error["code"] == "lock_differs"
    assert error["details"]["differences"] == [f"numpy {here} instead of 1.0.0"]
