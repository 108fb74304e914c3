"""Make the sample data: 200 calibration pictures and 1,000 labelled test pictures of Fashion-MNIST.

    python sample_models/make_data.py
    python sample_models/make_data.py --out /tmp/fashion

Needs numpy, Pillow and the Debian package dataset-fashion-mnist. It writes

    calibration/NNN-train-IIIII.png        200 training images, 20 a class; IIIII is the index in the data set
    test/NNN-t10k-IIIII.png                1,000 test images, 100 a class
    test/labels.csv                        file,label of each
    test.npz                               the same 1,000: image uint8 (1000, 1, 28, 28) raw pixels, label int64 (1000,)
    class_names.txt                        one a line, in label order

Which images is drawn by seed; the classes take turns in name order, so that any first N files are balanced, too. The
pixels are the data set's own (PNG loses nothing).
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from pathlib import Path

import fashion_mnist
import numpy as np
import numpy.typing as npt
from PIL import Image

SEED = 20
CALIBRATION_PER_CLASS = 20
TEST_PER_CLASS = 100


def draw(labels: npt.NDArray[np.uint8], per_class: int, *, seed: int) -> npt.NDArray[np.int64]:
    """Indices of ``per_class`` images of each class, the classes taking turns: 0, 1, ..., 9, 0, 1, ..."""
    generator = np.random.default_rng(seed)
    classes = range(len(fashion_mnist.CLASS_NAMES))
    columns = [generator.choice(np.flatnonzero(labels == k), per_class, replace=False) for k in classes]
    return np.stack(columns, axis=1).reshape(-1).astype(np.int64)


def write_pictures(
    folder: Path, images: npt.NDArray[np.uint8], indices: npt.NDArray[np.int64], *, part: str
) -> list[str]:
    """Write the chosen ``images`` as grey PNG files into ``folder``; returns their names in order."""
    digits = len(str(len(indices) - 1))
    names = [f"{position:0{digits}}-{part}-{index:05}.png" for position, index in enumerate(indices)]
    folder.mkdir()
    for name, index in zip(names, indices, strict=True):
        stream = io.BytesIO()
        Image.fromarray(images[index]).save(stream, format="png", optimize=True)
        (folder / name).write_bytes(stream.getvalue())
    return names


def build(source: Path, folder: Path) -> None:
    """Write all of it into ``folder``, which exists. Raises fashion_mnist.DataSetMissingError."""
    train_labels = fashion_mnist.read_labels(source, "train")
    test_labels = fashion_mnist.read_labels(source, "t10k")
    chosen = draw(train_labels, CALIBRATION_PER_CLASS, seed=SEED)
    write_pictures(folder / "calibration", fashion_mnist.read_images(source, "train"), chosen, part="train")

    images = fashion_mnist.read_images(source, "t10k")
    chosen = draw(test_labels, TEST_PER_CLASS, seed=SEED)
    names = write_pictures(folder / "test", images, chosen, part="t10k")
    labels = test_labels[chosen].astype(np.int64)
    rows = ["file,label"] + [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    (folder / "test" / "labels.csv").write_text("\n".join(rows) + "\n")
    np.savez_compressed(folder / "test.npz", image=images[chosen][:, None], label=labels)
    (folder / "class_names.txt").write_text("\n".join(fashion_mnist.CLASS_NAMES) + "\n")


def install(made: Path, out: Path) -> None:
    """Put what ``made`` holds into ``out`` in place of what has the same names there."""
    for path in sorted(made.iterdir()):
        target = out / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the sample data from Fashion-MNIST.")
    parser.add_argument("--data", type=Path, default=fashion_mnist.FOLDER, help="folder with the four .gz files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that a complete result moves into place and an interrupted one leaves the old data alone.
    with tempfile.TemporaryDirectory(dir=options.out, prefix=".partial-") as partial:
        try:
            build(options.data, Path(partial))
        except fashion_mnist.DataSetMissingError as error:
            print(f"make_data.py: {error}", file=sys.stderr)
            return 2
        install(Path(partial), options.out)
    print(f"{options.out}: calibration, test, test.npz, class_names.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
