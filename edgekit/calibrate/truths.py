"""Ground truth that is more than a class index: numbers, masks and boxes, read one sample at a time.

| what | beside pictures | beside arrays (.npz) |
|---|---|---|
| numbers (``mae``, ``rmse``) | a CSV: file,value[,value...] | a float array, first axis the samples |
| masks (``miou``) | a folder of PNG files named like the pictures; a pixel is a class index, 255 is left out | an integer array (samples, height, width) |
| boxes (``map``) | a COCO ``instances.json`` | - |
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import DataError
from edgekit.values import Preprocessing

VALUES, MASKS, BOXES = "values", "masks", "boxes"
KIND_OF_METRIC = {"mae": VALUES, "rmse": VALUES, "miou": MASKS, "map": BOXES, "map50": BOXES}
METRIC_OF_KIND = {VALUES: "mae", MASKS: "miou", BOXES: "map"}


@dataclass(frozen=True)
class Truth:
    """What is right for each sample. ``read`` gives that of one sample: an array for numbers and masks, :class:`Boxes` for boxes."""

    kind: str
    read: Callable[[int], Any]

    def iterate(self, indices: Sequence[int]) -> Iterator[Any]:
        """The truths at ``indices``, one by one."""
        return (self.read(index) for index in indices)


@dataclass(frozen=True)
class Boxes:
    """The objects in one picture of ``width`` x ``height`` pixels. ``annotations`` as COCO has them (bbox x, y, width, height in pixels);
    ``categories``: the data set's category ids in ascending order: a decoder's class index is a position in it.
    """

    file: str
    width: int
    height: int
    annotations: tuple[dict[str, Any], ...]
    categories: tuple[int, ...]


def of_pictures(
    labels: str, files: Sequence[Path], folder: Path, metric: str | None, preprocessing: Preprocessing
) -> Truth | None:
    """The truth that ``labels`` names for ``files``; None where it is class indices. Raises DataError where a picture has none."""
    path = Path(labels)
    if path.suffix == ".json":
        return Truth(BOXES, _coco(path, files).__getitem__)
    if path.is_dir():
        masks = [path / file.relative_to(folder).with_suffix(".png") for file in files]
        missing = next((mask for mask in masks if not mask.is_file()), None)
        if missing is not None:
            raise DataError(
                f"there is no mask {missing}", hint="every picture needs a .png of the same name in the masks' folder"
            )
        return Truth(MASKS, lambda index: _mask(masks[index], preprocessing))
    if KIND_OF_METRIC.get(metric or "") == VALUES:
        values = _numbers(path, files, folder)
        return Truth(VALUES, values.__getitem__)
    return None


def of_array(
    read: Callable[[int], Any], shape: tuple[int, ...], dtype: np.dtype[Any], metric: str | None
) -> Truth | None:
    """The truth in an array of the .npz; None where it is class indices."""
    if KIND_OF_METRIC.get(metric or "") == VALUES or dtype.kind == "f":
        return Truth(VALUES, lambda index: np.asarray(read(index), np.float64))
    return (
        Truth(MASKS, lambda index: np.asarray(read(index), np.int64))
        if len(shape) >= 3 and dtype.kind in "iu"
        else None
    )


def _mask(path: Path, preprocessing: Preprocessing) -> Any:
    """The mask as the network sees the picture: resized and cropped like it, without mixing classes."""
    import dataclasses

    from PIL import Image

    from edgekit.runtime.preprocess import prepare

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image)
    except OSError as error:
        raise DataError(
            f"the mask {path.name} cannot be read: {error}", hint="masks are PNG files of one channel"
        ) from error
    if pixels.ndim != 2 or pixels.dtype != np.uint8:
        raise DataError(
            f"the mask {path.name} has shape {list(pixels.shape)} and type {pixels.dtype}",
            hint="a mask has one channel of 8 bits: a class index for each pixel",
        )
    spec = dataclasses.replace(preprocessing, filter="nearest", color="gray", mean=(0.0,), std=(1.0,))
    return np.rint(prepare(pixels[:, :, np.newaxis], spec)[:, :, 0]).astype(np.int64)


def _numbers(path: Path, files: Sequence[Path], folder: Path) -> list[Any]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
        by_file = {row[0]: np.array([float(cell) for cell in row[1:]]) for row in rows if _is_number(row[-1])}
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as CSV of numbers: {error}", hint="columns: file,value[,value...]"
        ) from error
    values = []
    for picture in files:
        found = by_file.get(str(picture.relative_to(folder)), by_file.get(picture.name))
        if found is None:
            raise DataError(
                f"{path.name} has no numbers for {picture.name}", hint="every picture needs a line: file,value"
            )
        values.append(found)
    return values


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _coco(path: Path, files: Sequence[Path]) -> list[Boxes]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        categories = tuple(sorted(int(entry["id"]) for entry in content["categories"]))
        images = {entry["file_name"]: entry for entry in content["images"]}
        annotations: dict[int, list[dict[str, Any]]] = {}
        for entry in content["annotations"]:
            annotations.setdefault(entry["image_id"], []).append(
                {key: entry[key] for key in ("bbox", "category_id")}
                | {"area": entry.get("area", entry["bbox"][2] * entry["bbox"][3]), "iscrowd": entry.get("iscrowd", 0)}
            )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{path} is no COCO annotation file: {type(error).__name__}: {error}",
            hint="it needs images (id, file_name, width, height), annotations (image_id, category_id, bbox) and categories (id)",
        ) from error
    found = []
    for file in files:
        image = images.get(file.name)
        if image is None:
            raise DataError(f"{path.name} has no picture {file.name}", hint="give the annotations of these pictures")
        objects = tuple(annotations.get(image["id"], ()))
        found.append(Boxes(file.name, int(image["width"]), int(image["height"]), objects, categories))
    return found
