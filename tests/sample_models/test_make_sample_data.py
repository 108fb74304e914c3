"""``make_data.py``: reproducible, and what is there stays when the source is broken."""

from __future__ import annotations

import gzip
import hashlib
import struct
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("PIL.Image", reason="Pillow is not installed")

import fashion_mnist  # type: ignore[import-not-found, unused-ignore]
import make_data  # type: ignore[import-not-found, unused-ignore]

FOLDER = Path(__file__).resolve().parents[2] / "sample_models"

needs_package = pytest.mark.skipif(
    not (fashion_mnist.FOLDER / "t10k-images-idx3-ubyte.gz").is_file(),
    reason="the Debian package dataset-fashion-mnist is not installed",
)


def write_idx(path: Path, values: npt.NDArray[np.uint8]) -> None:
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes(), mtime=0))


def small_data_set(folder: Path) -> Path:
    """The four files with 1,200 random pictures each, 120 a class."""
    generator = np.random.default_rng(7)
    folder.mkdir()
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", generator.integers(0, 256, (1200, 28, 28), np.uint8))
        labels = generator.permutation(np.repeat(np.arange(10, dtype=np.uint8), 120))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["make_data.py", *arguments])
    return int(make_data.main())


def pixels_of(path: Path) -> npt.NDArray[np.uint8]:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture)


def tree(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@needs_package
def test_the_shipped_data_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--out", str(tmp_path)) == 0
    for folder in ("calibration", "test"):
        made = sorted(path.name for path in (tmp_path / folder).iterdir())
        assert made == sorted(path.name for path in (FOLDER / folder).iterdir())
        for name in (name for name in made if name.endswith(".png")):
            # Pixels, not bytes: zlib may be another version.
            assert np.array_equal(pixels_of(tmp_path / folder / name), pixels_of(FOLDER / folder / name)), name
    for name in ("test/labels.csv", "class_names.txt"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()
    with np.load(tmp_path / "test.npz") as made_again, np.load(FOLDER / "test.npz") as shipped:
        assert made_again.files == shipped.files
        assert all(np.array_equal(made_again[key], shipped[key]) for key in shipped.files)


@needs_package
def test_calibration_pictures_are_balanced_training_images() -> None:
    images = fashion_mnist.read_images(fashion_mnist.FOLDER, "train")
    labels = fashion_mnist.read_labels(fashion_mnist.FOLDER, "train")
    found = []
    for path in sorted((FOLDER / "calibration").glob("*.png")):
        index = int(path.stem.split("-")[-1])
        assert np.array_equal(pixels_of(path), images[index]), path.name
        found.append(int(labels[index]))
    assert [found.count(k) for k in range(10)] == [20] * 10


def test_file_names_lead_back_to_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = small_data_set(tmp_path / "source"), tmp_path / "out"
    assert run(monkeypatch, "--data", str(source), "--out", str(out)) == 0
    images = fashion_mnist.read_images(source, "t10k")
    labels = fashion_mnist.read_labels(source, "t10k")
    rows = (out / "test" / "labels.csv").read_text().splitlines()[1:]
    assert len(rows) == 1000
    for row in rows:
        name, label = row.split(",")
        index = int(name.removesuffix(".png").split("-")[-1])
        assert int(label) == labels[index]
        assert np.array_equal(pixels_of(out / "test" / name), images[index])


def test_same_seed_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = small_data_set(tmp_path / "source")
    for name in ("a", "b"):
        assert run(monkeypatch, "--data", str(source), "--out", str(tmp_path / name)) == 0
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


@pytest.mark.parametrize("fault", ["truncated", "not idx", "missing"])
def test_a_broken_source_leaves_the_old_data_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    source, out = small_data_set(tmp_path / "source"), tmp_path / "out"
    assert run(monkeypatch, "--data", str(source), "--out", str(out)) == 0
    before = tree(out)
    broken = source / "t10k-images-idx3-ubyte.gz"  # read last: the calibration pictures are written by then
    if fault == "truncated":
        broken.write_bytes(gzip.compress(gzip.decompress(broken.read_bytes())[:-5]))
    elif fault == "not idx":
        broken.write_bytes(gzip.compress(b"\x89PNG" + bytes(100)))
    else:
        broken.unlink()
    assert run(monkeypatch, "--data", str(source), "--out", str(out)) == 2
    assert broken.name in capsys.readouterr().err
    assert tree(out) == before
    assert sorted(path.name for path in out.iterdir()) == ["calibration", "class_names.txt", "test", "test.npz"]


def test_a_cut_gzip_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = small_data_set(tmp_path / "source")
    broken = source / "train-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:1000])
    assert run(monkeypatch, "--data", str(source), "--out", str(tmp_path / "out")) == 2
    assert broken.name in capsys.readouterr().err
