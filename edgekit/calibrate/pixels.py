"""From pixels to a model's picture input: the one preprocessing spec applied, the channels put where the model has them.

The work on pixels is :mod:`edgekit.runtime.preprocess`, which the board runs too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import DataError
from edgekit.values import IoSpec, Preprocessing

if TYPE_CHECKING:
    from edgekit.calibrate.sources import DataOptions

CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1}


def picture_input(inputs: Sequence[IoSpec]) -> IoSpec:
    """The model's only input, which must be a picture. Raises DataError otherwise."""
    if len(inputs) == 1 and len(inputs[0].source_shape) == 4 and inputs[0].source_shape[0] != 1:
        raise DataError(
            f"input {inputs[0].name!r} takes {inputs[0].source_shape[0]} pictures at once, and a folder gives one at a time",
            hint="export the model with a batch of 1",
        )
    if len(inputs) != 1 or len(inputs[0].source_shape) != 4:
        shapes = ", ".join(f"{spec.name} {list(spec.source_shape)}" for spec in inputs)
        raise DataError(
            f"a folder of images fits a model with one picture input of rank 4, and this one takes {shapes}",
            hint="give a .npz with one array for each input name",
        )
    return inputs[0]


def model_layout(spec: IoSpec, channels: int) -> str:
    """ "nchw" or "nhwc", told by where the ``channels`` are. Raises DataError where the shape fits neither, or both."""
    shape = tuple(spec.source_shape)
    fits = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if shape[axis] == channels]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise DataError(
            f"input {spec.name!r} has shape {list(shape)}: none of its axes 1 and 3 has the {channels} channels that --color says",
            hint="give --color gray for one channel, --color rgb or bgr for three",
        )
    if shape[1:] == (channels, channels, channels):
        raise DataError(
            f"input {spec.name!r} has shape {list(shape)}: its layout cannot be told", hint="give arrays in a .npz"
        )
    raise DataError(
        f"input {spec.name!r} has shape {list(shape)}: both axis 1 and axis 3 could be the channels",
        hint="give the data as arrays in the model's own layout (.npz)",
    )


def from_file(path: Path, preprocessing: Preprocessing, spec: IoSpec) -> NDArray[Any]:
    """The picture at ``path`` as the model's input, with batch axis, in the source's layout and dtype."""
    from edgekit.runtime.preprocess import prepare

    try:
        picture = prepare(path, preprocessing)
    except DataError as error:
        hint = error.hint or "take the file out of the folder, or replace it"
        raise DataError(error.message, hint=hint, code=error.code, details=error.details) from error
    return _as_input(path.name, picture, preprocessing, spec)


def normalise(row: NDArray[Any], options: DataOptions, spec: IoSpec) -> NDArray[Any]:
    """One row of raw pixels as the model's input. Raises DataError when they are no pixels or do not fit."""
    from edgekit.runtime.preprocess import prepare

    preprocessing = options.preprocessing
    if preprocessing is None:
        raise DataError("--arrays raw-pixels needs --mean and --std", hint="for pixels as they are: --mean 0 --std 1")
    low, high = float(row.min()), float(row.max())
    if low < 0 or high > 255 or (row.dtype.kind == "f" and not np.array_equal(row, np.rint(row))):
        raise DataError(
            f"--arrays raw-pixels expects whole numbers from 0 to 255, and {spec.name!r} holds values from {low:g} to {high:g}",
            hint="leave it out if the arrays are preprocessed already",
        )
    if options.layout not in ("nhwc", "nchw"):
        raise DataError(
            "--arrays raw-pixels needs to know how the pixels lie",
            hint="--layout nhwc where the channels are the last axis, --layout nchw where they come first",
        )
    if row.ndim != 3:
        raise DataError(
            f"--arrays raw-pixels expects pictures of rank 3, and {spec.name!r} has rows of shape {list(row.shape)}",
            hint="give arrays of shape (samples, height, width, channels), or channels first",
        )
    pixels = np.asarray(row if options.layout == "nhwc" else row.transpose(1, 2, 0), np.uint8)
    if pixels.shape[2] != CHANNELS[preprocessing.color]:
        raise DataError(
            f"one picture of {spec.name!r} has {pixels.shape[2]} channels as {options.layout}, and --color {preprocessing.color} has "
            f"{CHANNELS[preprocessing.color]}",
            hint="give the other --layout, or another --color",
        )
    return _as_input(spec.name, prepare(pixels, preprocessing), preprocessing, spec)


def _as_input(name: str, picture: NDArray[Any], preprocessing: Preprocessing, spec: IoSpec) -> NDArray[Any]:
    layout = model_layout(spec, CHANNELS[preprocessing.color])
    ordered = picture.transpose(2, 0, 1) if layout == "nchw" else picture
    if ordered.shape != tuple(spec.source_shape[1:]):
        height, width = spec.source_shape[2:] if layout == "nchw" else spec.source_shape[1:3]
        raise DataError(
            f"{name} comes out of the preprocessing as {picture.shape[1]}x{picture.shape[0]} pixels, and input {spec.name!r} takes "
            f"{width}x{height}",
            hint=f"add --resize {height} --crop {height}, or --resize {height}x{width} --fit stretch",
        )
    if np.dtype(spec.source_dtype).kind in "iu":
        _refuse_rounding(ordered, spec)
    return np.ascontiguousarray(ordered[np.newaxis], dtype=spec.source_dtype)


def _refuse_rounding(picture: NDArray[Any], spec: IoSpec) -> None:
    limits = np.iinfo(spec.source_dtype)
    if not np.array_equal(picture, np.rint(picture)) or picture.min() < limits.min or picture.max() > limits.max:
        raise DataError(
            f"input {spec.name!r} takes {spec.source_dtype}, and the preprocessing gives values from {picture.min():g} to "
            f"{picture.max():g}",
            hint="for pixels as they are: --mean 0 --std 1",
        )
