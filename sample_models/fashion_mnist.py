"""Fashion-MNIST as the Debian package ``dataset-fashion-mnist`` installs it: 28x28 grey pictures of clothes.

60,000 training and 10,000 test images in ten classes, by Zalando Research, MIT licence. Needs numpy only.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts the four files."""

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
"""In label order, as the data set's README names them."""

MEAN = 127.5
STD = 127.5
"""The sample networks' preprocessing: x = (pixel - MEAN) / STD, so that pixels 0..255 become -1..1."""


class DataSetMissingError(Exception):
    """The data set is not installed, or its files are not what they should be."""


def read_images(folder: Path, part: str) -> npt.NDArray[np.uint8]:
    """The pictures of ``part`` ("train" or "t10k"): uint8, shape (n, 28, 28), 0 is the background."""
    return _read_idx(folder / f"{part}-images-idx3-ubyte.gz", dimensions=3)


def read_labels(folder: Path, part: str) -> npt.NDArray[np.uint8]:
    """The labels of ``part`` ("train" or "t10k"): uint8, shape (n,), 0..9."""
    return _read_idx(folder / f"{part}-labels-idx1-ubyte.gz", dimensions=1)


def normalise(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """What the sample networks take: float32 of the same shape, -1..1."""
    return ((pixels.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)).astype(np.float32)


def _read_idx(path: Path, *, dimensions: int) -> npt.NDArray[np.uint8]:
    """An IDX file of unsigned bytes: magic 0x00 0x00 0x08 <dimensions>, big-endian uint32 sizes, then the values."""
    try:
        data = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataSetMissingError(
            f"{path} is missing; install the Debian package dataset-fashion-mnist, "
            "or unpack it (apt-get download, dpkg -x) and name its folder with --data"
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataSetMissingError(f"{path} cannot be unpacked: {error}; install dataset-fashion-mnist again") from None
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes((0, 0, 8, dimensions)):
        raise DataSetMissingError(f"{path} is not an IDX file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    values = np.frombuffer(data, np.uint8, offset=header)
    if values.size != int(np.prod(shape)):
        raise DataSetMissingError(f"{path} holds {values.size} values, its header says {shape}")
    return values.reshape(shape)
