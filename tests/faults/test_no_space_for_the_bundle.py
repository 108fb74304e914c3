"""A disk with one megabyte left: said before the work begins, with need and have."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networks
import pytest
from bundles import SAMPLES


@pytest.fixture
def small_disk(place: Any) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder: Path = place.home.parent / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["convert", "dry run"])
def test_no_space(place: Any, any_frontend: str, small_disk: Path, more: tuple[str, ...]) -> None:
    place.npz(image=networks.normal(20, 1, 28, 28))
    out = small_disk / "deep" / "b"
    line = ("convert", SAMPLES / "fashion_relu6.onnx", "--data", "d.npz", "--out", out, *more)
    said = place.refused(*line, exit_code=2, code="no_space")
    assert f"{small_disk} has 1.0 MB free" in said and "needs about 5.0 MB" in said
    assert "free some space, or choose another --out" in said
    assert list(small_disk.iterdir()) == []
