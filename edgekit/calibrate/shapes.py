"""The shape that one sample of the data has, read from headers: what to type for an input whose shape the model leaves open."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.calibrate.arrays import UNREADABLE, npy_header
from edgekit.errors import UsageError
from edgekit.values import Preprocessing

Open = Sequence[int | str | None] | None
"""Sizes of an input, with a symbol or None for an open one; None where even the number of axes is open."""


def suggested(inputs: Mapping[str, Open], data: str, preprocessing: Preprocessing | None) -> dict[str, tuple[int, ...]]:
    """The static shapes that ``data`` ask for, by name of those ``inputs`` that they settle; nothing is read but headers.

    Arrays have the input's name, or are the only one; pictures have the size that ``preprocessing`` ends with.
    """
    path = Path(data)
    if path.is_dir():
        size = _picture_size(preprocessing)
        fitting = {name: _with_picture(shape, size) for name, shape in inputs.items()} if size else {}
    else:
        rows = _rows(path)
        only = rows.get("") if len(inputs) == 1 else None
        fitting = {name: _with_row(shape, rows.get(name, only)) for name, shape in inputs.items()}
    return {name: shape for name, shape in fitting.items() if shape is not None}


def with_shapes_of_data(error: UsageError, data: str | None, preprocessing: Preprocessing | None) -> UsageError:
    """``error`` of a model with open inputs (code ``input_shape_open``), its hint made of what ``data`` hold where they settle it."""
    inputs: dict[str, Open] = error.details.get("inputs", {})
    found = suggested(inputs, data, preprocessing) if data is not None else {}
    if not inputs or set(found) != set(inputs):
        return error
    words = (shlex.quote(f"{name}={'x'.join(map(str, shape))}") for name, shape in found.items())
    hint = f"fix it to the shape of the data: {' '.join(f'--input-shape {word}' for word in words)}"
    return UsageError(error.message, hint=hint, code=error.code, details=error.details)


def _rows(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of one row of each array by name; a single array's name is ""."""
    try:
        if path.suffix == ".npy":
            return {"": np.load(path, mmap_mode="r", allow_pickle=False).shape[1:]}
        with zipfile.ZipFile(path) as archive:
            rows = {}
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as member:
                        rows[name[:-4]] = npy_header(member)[0][1:]
            return rows
    except UNREADABLE:
        return {}  # the data complain for themselves when they are opened


def _with_row(shape: Open, row: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if row is None or shape is None or not row:
        return None
    full = row if len(row) == len(shape) else (1, *row)
    if len(full) != len(shape) or any(isinstance(s, int) and s != size for s, size in zip(shape, full, strict=True)):
        return None
    return full


def _picture_size(preprocessing: Preprocessing | None) -> tuple[int, int] | None:
    """Height and width, where the preprocessing alone settles them."""
    if preprocessing is None:
        return None
    if preprocessing.crop is not None:
        return preprocessing.crop
    return preprocessing.resize if preprocessing.fit != "short-side" else None


def _with_picture(shape: Open, size: tuple[int, int]) -> tuple[int, ...] | None:
    """Channels first where axis 1 is 1 or 3, last where axis 3 is."""
    if shape is None or len(shape) != 4:
        return None
    if shape[1] in (1, 3):
        return _with_row(shape, (1, int(shape[1] or 0), *size))
    return _with_row(shape, (1, *size, int(shape[3]))) if shape[3] in (1, 3) else None
