"""Data as the user has them, as a stream of model inputs: folders of pictures, ``.npz``, ``.npy``, or a Python function.

Whatever the source, one sample is ``{input name: array}`` in the source model's own layout with its batch axis, and only one sample
is in memory at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.truths import Truth
from edgekit.errors import DataError
from edgekit.values import IoSpec, Preprocessing

Sample = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """What the user said about the data, beside where they are.

    ``preprocessing`` is None where the user gave none. ``raw_pixel_arrays`` says that arrays hold pixels 0..255 which still need it;
    ``layout`` ("nhwc", "nchw" or "") says how such arrays lie. ``labels`` is a CSV file, "folders" for one folder for each class,
    the name of an array in the ``.npz``, a folder of masks, a COCO file, or None; ``metric`` what is to be judged by them, where that
    was said.
    """

    preprocessing: Preprocessing | None = None
    raw_pixel_arrays: bool = False
    layout: str = ""
    labels: str | None = None
    metric: str | None = None
    class_names: tuple[str, ...] = ()


class Dataset(Protocol):
    """Labelled or unlabelled samples in a fixed order (by name for files, by position for arrays)."""

    source: str
    """The file or folder name, without its path: it goes into the manifest."""
    labels: NDArray[np.int64] | None
    """Class indices, or None."""
    truth: Truth | None
    """Ground truth of another kind, or None."""
    names: Sequence[str] | None

    def __len__(self) -> int: ...

    def iterate(self, indices: Sequence[int] | None = None) -> Iterator[Sample]:
        """The samples at ``indices`` (ascending), or all."""
        ...


def open_dataset(spec: str, inputs: Sequence[IoSpec], options: DataOptions) -> Dataset:
    """The data set that ``spec`` names, checked against the model's ``inputs``.

    Raises DataError when it does not exist, is empty, or does not fit: shape, dtype, names and layout are compared before anything
    runs.
    """
    from edgekit.calibrate import arrays, images

    path = Path(spec)
    if path.is_dir():
        return images.open_folder(path, inputs, options)
    if path.is_file():
        if path.suffix == ".npz":
            return arrays.open_npz(path, inputs, options)
        if path.suffix == ".npy":
            return arrays.open_npy(path, inputs, options)
        raise DataError(
            f"{path.name} is not data that edgekit reads",
            hint="give a folder of images, a .npz, a .npy, or module:function",
        )
    if ":" in spec and "/" not in spec:
        return arrays.open_function(spec, inputs, options)
    raise DataError(
        f"there is no file or folder {spec}", hint="give a folder of images, a .npz, a .npy, or module:function"
    )


def is_labelled(dataset: Dataset) -> bool:
    """Whether it says what is right."""
    return dataset.labels is not None or dataset.truth is not None


def sample_name(dataset: Dataset, index: int) -> str:
    """What to call one sample in a message: its file, or its number in the data."""
    return f"sample {index} of {dataset.source}" if dataset.names is None else dataset.names[index]


def subset_labels(dataset: Dataset, indices: Sequence[int]) -> NDArray[np.int64] | None:
    """The labels at ``indices``, or None when the data have none."""
    return None if dataset.labels is None else dataset.labels[np.asarray(indices, int)]
