"""A folder of images as data: decoded one by one, labelled by a CSV file or by one folder for each class."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate import pixels
from edgekit.calibrate.sources import DataOptions, Sample
from edgekit.calibrate.truths import Truth, of_pictures
from edgekit.errors import DataError
from edgekit.resources import did_you_mean
from edgekit.values import IoSpec, Preprocessing

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
FOLDERS = "folders"
"""What ``--labels`` says for one folder for each class."""


class ImageFolder:
    """Every image below a folder, in name order."""

    def __init__(
        self,
        folder: Path,
        files: Sequence[Path],
        spec: IoSpec,
        preprocessing: Preprocessing,
        labels: NDArray[np.int64] | None,
        truth: Truth | None = None,
    ) -> None:
        self.source = folder.resolve().name
        self.labels = labels
        self.truth = truth
        self.names: Sequence[str] | None = [str(file.relative_to(folder)) for file in files]
        self._files = files
        self._spec = spec
        self._preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self._files)

    def iterate(self, indices: Sequence[int] | None = None) -> Iterator[Sample]:
        """The samples at ``indices`` (ascending), or all; a picture that cannot be decoded is a DataError that names it."""
        for index in range(len(self._files)) if indices is None else indices:
            yield {self._spec.name: pixels.from_file(self._files[index], self._preprocessing, self._spec)}


def open_folder(folder: Path, inputs: Sequence[IoSpec], options: DataOptions) -> ImageFolder:
    """All images below ``folder``. Raises DataError when there is none, or when no preprocessing was given."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        others = sorted({path.suffix for path in folder.rglob("*") if path.is_file()})
        found = f"only files ending in {', '.join(others[:5])}" if others else "nothing at all"
        raise DataError(f"the folder {folder} holds no images: {found}", hint=f"edgekit reads {', '.join(SUFFIXES)}")
    spec = pixels.picture_input(inputs)
    if options.preprocessing is None:
        raise DataError(
            f"{folder.name} holds images, and nothing says how a pixel becomes a number that the model was trained on",
            hint="give --mean and --std as in training (for pixels as they are: --mean 0 --std 1), and --resize, --crop, --color",
            code="preprocessing_missing",
        )
    truth = labels = None
    if options.labels:
        truth = of_pictures(options.labels, files, folder, options.metric, options.preprocessing)
        labels = _labels(folder, files, options) if truth is None else None
    dataset = ImageFolder(folder, files, spec, options.preprocessing, labels, truth)
    next(dataset.iterate([0]))  # the first picture shows at once whether size and channels fit
    return dataset


def _labels(folder: Path, files: Sequence[Path], options: DataOptions) -> NDArray[np.int64]:
    if options.labels == FOLDERS:
        return _labels_by_folder(folder, files, options)
    path = Path(options.labels or "")
    if not path.is_file():
        raise DataError(
            f"there is no labels file {path}", hint=f"give a CSV with the columns file,label, or --labels {FOLDERS}"
        )
    by_file = _read_csv(path, options)
    labels = []
    for file in files:
        name = str(file.relative_to(folder))
        if name not in by_file and file.name not in by_file:
            raise DataError(
                f"{path.name} has no label for {name}",
                hint=did_you_mean(name, by_file) or "every image needs a line: file,label",
            )
        labels.append(by_file[name] if name in by_file else by_file[file.name])
    return np.asarray(labels, np.int64)


def _read_csv(path: Path, options: DataOptions) -> dict[str, int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets put a mark in front
            rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}", hint="two columns: file,label") from error
    if rows and rows[0][1][:2] == ["file", "label"]:
        rows = rows[1:]
    by_file = {}
    for number, row in rows:
        if len(row) < 2:
            raise DataError(
                f"{path.name}, row {number}: {','.join(row)!r} is not file,label", hint="two columns: file,label"
            )
        by_file[row[0]] = _class_index(f"{path.name}, row {number}", row[1], options.class_names)
    return by_file


def _labels_by_folder(folder: Path, files: Sequence[Path], options: DataOptions) -> NDArray[np.int64]:
    classes = [file.relative_to(folder).parts[0] if len(file.relative_to(folder).parts) > 1 else "" for file in files]
    if "" in classes:
        raise DataError(
            f"{files[classes.index('')].name} lies in no class folder, and --labels {FOLDERS} was given",
            hint="move it into the folder of its class, or give the labels as a CSV: file,label",
        )
    numbered = not options.class_names and all(name.isdecimal() for name in classes)
    names = () if numbered else options.class_names or tuple(sorted(set(classes)))
    return np.asarray([_class_index(folder.name, name, names) for name in classes], np.int64)


def _class_index(where: str, word: str, names: Sequence[str]) -> int:
    if word in names:
        return list(names).index(word)
    if word.isdecimal():
        return int(word)
    raise DataError(
        f"{where}: {word!r} is neither a class index nor one of the class names",
        hint=did_you_mean(word, names) or "give the names, one a line, with --class-names FILE",
    )
