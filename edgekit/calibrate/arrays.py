"""Arrays as data: ``.npz`` and ``.npy`` are read sample by sample, a Python function's samples are spooled to disk first.

``.npz`` members are read as streams, compressed or not, so that ten thousand samples take no more memory than ten.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.pixels import normalise
from edgekit.calibrate.sources import DataOptions, Dataset, Sample
from edgekit.calibrate.truths import Truth, of_array
from edgekit.errors import DataError
from edgekit.resources import did_you_mean
from edgekit.values import IoSpec

UNREADABLE = (
    zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError, TypeError, KeyError,
    MemoryError, SystemError, SyntaxError, OverflowError, struct.error, tokenize.TokenError,
)  # fmt: skip
"""What damaged or foreign archives raise; numpy parses a header with Python's own tokenizer and parser."""


@dataclass(frozen=True)
class Column:
    """One array of the data: its shape with the samples first, its dtype, and how to read its rows in order."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[Sequence[int]], Iterator[NDArray[Any]]]


class ArrayDataset:
    """Columns of equal length, one for each input of the model."""

    def __init__(
        self,
        source: str,
        columns: Mapping[str, Column],
        inputs: Sequence[IoSpec],
        options: DataOptions,
        labels: NDArray[np.int64] | None,
        truth: Truth | None = None,
    ) -> None:
        self.source = source
        self.labels = labels
        self.truth = truth
        self.names: Sequence[str] | None = None
        self._columns = columns
        self._inputs = inputs
        self._options = options
        self._count = next(iter(columns.values())).shape[0]

    def __len__(self) -> int:
        return self._count

    def iterate(self, indices: Sequence[int] | None = None) -> Iterator[Sample]:
        """The samples at ``indices`` (ascending), or all."""
        wanted = range(self._count) if indices is None else indices
        streams = {spec.name: self._columns[spec.name].rows(wanted) for spec in self._inputs}
        for index in wanted:
            yield {spec.name: self._as_input(spec, next(streams[spec.name]), index) for spec in self._inputs}

    def _as_input(self, spec: IoSpec, row: NDArray[Any], index: int) -> NDArray[Any]:
        if row.dtype.kind == "f" and not np.isfinite(row).all():
            raise DataError(
                f"{self.source}: sample {index} of {spec.name!r} holds NaN or infinite values",
                hint="leave that sample out, or repair it",
                code="data_not_finite",
            )
        if self._options.raw_pixel_arrays:
            row = normalise(row, self._options, spec)
        shaped = row if row.ndim == len(spec.source_shape) else row[np.newaxis]
        return np.ascontiguousarray(shaped, dtype=spec.source_dtype)


def open_npz(path: Path, inputs: Sequence[IoSpec], options: DataOptions) -> Dataset:
    """One array for each input name, and the label array that ``options.labels`` names."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        columns = {name: _npz_column(path, name) for name in members}
    except UNREADABLE as error:
        raise DataError(f"{path.name} cannot be read as .npz: {error}", hint="write it with numpy.savez") from error
    return _checked(path.name, columns, inputs, options)


def open_npy(path: Path, inputs: Sequence[IoSpec], options: DataOptions) -> Dataset:
    """A single array, for a model with a single input."""
    if len(inputs) != 1:
        raise DataError(
            f"{path.name} holds one array, and the model has {len(inputs)} inputs: {', '.join(s.name for s in inputs)}",
            hint="put one array for each input name into a .npz",
        )
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an archive of several arrays")
    except UNREADABLE as error:
        raise DataError(
            f"{path.name} cannot be read as .npy: {error}", hint="write it with numpy.save, or name an archive .npz"
        ) from error
    return _checked(path.name, {inputs[0].name: _array_column(inputs[0].name, array)}, inputs, options)


def open_function(spec: str, inputs: Sequence[IoSpec], options: DataOptions) -> Dataset:
    """``module:function`` that yields ``{name: array}`` (one sample each, with or without its batch axis)."""
    function = _function(spec)
    columns: dict[str, Column] = {}
    # Unlinked at once: the files live as long as the maps on them, and no longer.
    with tempfile.TemporaryDirectory(prefix="edgekit-data-") as folder, ExitStack() as files:
        spools: dict[str, _Spool] = {}
        for count, sample in enumerate(_samples(spec, function)):
            if count and set(sample) != set(spools):
                raise DataError(
                    f"{spec}: sample {count} has arrays {sorted(sample)}, the first one had {sorted(spools)}",
                    hint="every sample has the same names",
                )
            for name, array in sample.items():
                if name not in spools:
                    spools[name] = _Spool(files.enter_context((Path(folder) / f"{len(spools)}.bin").open("w+b")))
                spools[name].append(spec, count, name, np.asarray(array))
        columns = {name: _array_column(name, spool.mapped()) for name, spool in spools.items()}
    if not columns:
        raise DataError(f"{spec} yields no samples", hint="let it yield {input name: array}")
    return _checked(spec, columns, inputs, options)


class _Spool:
    """Rows of one input, appended to a file and mapped back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._shape: tuple[int, ...] | None = None
        self._dtype: np.dtype[Any] = np.dtype(np.float32)
        self._count = 0

    def append(self, spec: str, count: int, name: str, array: NDArray[Any]) -> None:
        if array.dtype == object:
            raise DataError(
                f"{spec}: sample {count}, {name!r} is not an array of numbers", hint="yield {input name: numpy array}"
            )
        if self._shape is None:
            self._shape, self._dtype = array.shape, array.dtype
        if array.shape != self._shape or array.dtype != self._dtype:
            raise DataError(
                f"{spec}: sample {count}, {name!r} is {array.dtype}{list(array.shape)}, the first one was "
                f"{self._dtype}{list(self._shape)}",
                hint="all samples have one shape and type",
            )
        self._file.write(np.ascontiguousarray(array).tobytes())
        self._count += 1

    def mapped(self) -> NDArray[Any]:
        self._file.flush()
        shape = (self._count, *(self._shape or ()))
        if not all(shape):
            return np.zeros(shape, self._dtype)  # nothing to map
        return np.memmap(self._file, dtype=self._dtype, mode="r", shape=shape)  # stays when the file is closed


def _function(spec: str) -> Callable[[], Any]:
    module_name, _, function_name = spec.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise DataError(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}",
            hint="MODULE:FUNCTION is looked for in the current folder and among the installed packages",
        ) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [name for name in vars(module) if not name.startswith("_")]
        hint = did_you_mean(function_name, names) or "a function without arguments that yields {input name: array}"
        raise DataError(f"{module_name} has no function {function_name!r}", hint=hint)
    return function  # type: ignore[no-any-return]


def _samples(spec: str, function: Callable[[], Any]) -> Iterator[Mapping[str, Any]]:
    try:
        for sample in function():
            if not isinstance(sample, Mapping):
                raise DataError(
                    f"{spec} yields {type(sample).__name__}, not {{input name: array}}",
                    hint="let it yield a dictionary for each sample",
                )
            yield sample
    except DataError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{spec} failed: {type(error).__name__}: {error}", hint="call it by itself to see where"
        ) from error


def _array_column(name: str, array: NDArray[Any]) -> Column:
    return Column(name, array.shape, array.dtype, lambda wanted: (np.array(array[i]) for i in wanted))


def _npz_column(path: Path, name: str) -> Column:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        shape, dtype, fortran = npy_header(member)

    def rows(wanted: Sequence[int]) -> Iterator[NDArray[Any]]:
        try:
            # The rows of a Fortran-ordered array are not contiguous: no way to stream them.
            yield from _loaded_rows(path, name, wanted) if fortran else _streamed_rows(path, name, wanted)
        except UNREADABLE as error:
            raise DataError(
                f"{path.name}: array {name!r} is damaged: {error}", hint="copy the file again, or write it anew"
            ) from error

    return Column(name, shape, dtype, rows)


def _loaded_rows(path: Path, name: str, wanted: Sequence[int]) -> Iterator[NDArray[Any]]:
    with np.load(path, allow_pickle=False) as archive:
        array = archive[name]
    yield from (array[index] for index in wanted)


def _streamed_rows(path: Path, name: str, wanted: Sequence[int]) -> Iterator[NDArray[Any]]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        shape, dtype, _ = npy_header(member)
        size = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        position = 0
        for index in wanted:
            _skip(member, (index - position) * size)
            data = member.read(size)
            if len(data) != size:
                raise ValueError(f"it ends at sample {index} of {shape[0]}")
            yield np.frombuffer(data, dtype).reshape(shape[1:])
            position = index + 1


def npy_header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Shape, dtype and whether in Fortran's order, of the array that begins at the file's position."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(member)
    return shape, dtype, fortran


def _skip(member: IO[bytes], size: int) -> None:
    while size > 0:
        got = len(member.read(min(size, 1 << 20)))
        if not got:
            return
        size -= got


def _checked(
    source: str, columns: Mapping[str, Column], inputs: Sequence[IoSpec], options: DataOptions
) -> ArrayDataset:
    if options.preprocessing is not None and not options.raw_pixel_arrays:
        raise DataError(
            f"{source} holds arrays, and preprocessing applies to images",
            hint="leave out --resize, --crop, --mean, --std ...; or say --arrays raw-pixels if the arrays hold pixels 0..255",
        )
    missing = [spec.name for spec in inputs if spec.name not in columns]
    if missing:
        raise DataError(
            f"{source} has no array for input {missing[0]!r}: it has {', '.join(sorted(columns)) or 'none'}",
            hint=f"name the arrays like the model's inputs: {', '.join(spec.name for spec in inputs)}",
        )
    for spec in inputs:
        _check_shape(source, columns[spec.name], spec, options)
    counts = {columns[spec.name].shape[0] for spec in inputs}
    if len(counts) > 1:
        raise DataError(
            f"{source}: the inputs have different numbers of samples: {sorted(counts)}",
            hint="the first axis counts the samples; give each input as many",
        )
    if counts == {0}:
        raise DataError(f"{source} holds no samples", hint="the first axis of each array counts the samples")
    count = counts.pop()
    truth = _truth(columns, options, count)
    labels = _labels(source, columns, options, count) if truth is None else None
    return ArrayDataset(source, columns, inputs, options, labels, truth)


def _check_shape(source: str, column: Column, spec: IoSpec, options: DataOptions) -> None:
    wanted = spec.source_shape
    if column.dtype.kind not in "fiub":
        raise DataError(
            f"{source}: array {column.name!r} is {column.dtype}, not numbers", hint="save it as an array of numbers"
        )
    if not column.shape:
        raise DataError(
            f"{source}: array {column.name!r} is a single number",
            hint="the first axis of each array counts the samples",
        )
    if np.dtype(spec.source_dtype).kind in "iub" and column.dtype.kind == "f":
        raise DataError(
            f"{source}: array {column.name!r} is {column.dtype}, and the model takes {spec.source_dtype}",
            hint=f"save it as {spec.source_dtype}: integers are codes, and rounding would be a guess",
        )
    row = column.shape[1:]
    if row == wanted or (wanted and wanted[0] == 1 and row == wanted[1:]):
        return
    if options.raw_pixel_arrays:
        return  # their layout and size are checked where they are normalised
    _refuse_shape(source, column, spec)


def _refuse_shape(source: str, column: Column, spec: IoSpec) -> NoReturn:
    row, wanted = column.shape[1:], tuple(spec.source_shape)
    inner = wanted[1:] if wanted and wanted[0] == 1 else wanted
    hint = f"give arrays of shape (samples, {', '.join(map(str, inner))})"
    if len(row) == len(inner) >= 3:
        if (*row[-1:], *row[:-1]) == inner:
            hint += (
                "; these look channels-last: transpose(0, 3, 1, 2)"
                if len(row) == 3
                else "; move the last axis to the front"
            )
        elif (*row[1:], row[0]) == inner:
            hint += (
                "; these look channels-first: transpose(0, 2, 3, 1)"
                if len(row) == 3
                else "; move the first axis to the end"
            )
    raise DataError(
        f"{source}: one sample of {column.name!r} has shape {list(row)} (rank {len(row)}), and the model takes {list(inner)} "
        f"(rank {len(inner)})",
        hint=hint,
        details={"input": spec.name, "data_shape": list(column.shape), "model_shape": list(wanted)},
    )


def _truth(columns: Mapping[str, Column], options: DataOptions, count: int) -> Truth | None:
    """Labels that are numbers or masks; None where they are class indices, or none, or not there."""
    column = columns.get(options.labels or "")
    if column is None or column.shape[:1] != (count,):
        return None
    return of_array(lambda index: next(column.rows([index])), column.shape, column.dtype, options.metric)


def _labels(source: str, columns: Mapping[str, Column], options: DataOptions, count: int) -> NDArray[np.int64] | None:
    if options.labels is None:
        return None
    column = columns.get(options.labels)
    if column is None:
        raise DataError(
            f"{source} has no label array {options.labels!r}: it has {', '.join(sorted(columns))}",
            hint=did_you_mean(options.labels, columns) or "name an integer array of the .npz with --labels",
        )
    if column.dtype.kind not in "iu" or column.shape != (count,):
        raise DataError(
            f"{source}: labels {options.labels!r} are {column.dtype}{list(column.shape)}, not {count} integers",
            hint="labels are one class index for each sample",
        )
    return np.array([int(row) for row in column.rows(range(count))], np.int64)
