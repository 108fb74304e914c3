"""Mean average precision as COCO defines it, by pycocotools: boxes from a decoder of the user's, matched with annotated ones."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.truths import Boxes
from edgekit.errors import DataError, UsageError

Decode = Callable[[Mapping[str, NDArray[Any]], Mapping[str, Any]], Any]
LARGEST_AREA = 1e10


@dataclass(frozen=True)
class MeanAveragePrecision:
    """AP averaged over IoU 0.50 to 0.95 ("map") or at 0.50 ("map50"), and over the categories that occur; 100 boxes a picture."""

    name: str
    decode: Decode
    share: bool = True
    higher_is_better: bool = True
    counts: bool = False

    def contribution(self, outputs: Mapping[str, NDArray[Any]], truth: Any) -> tuple[Boxes, NDArray[Any]]:
        """The truth, and the decoded boxes in pixels: x, y, width, height, score, class index."""
        picture = {"file": truth.file, "width": truth.width, "height": truth.height}
        try:
            rows = np.asarray(self.decode(outputs, picture), np.float64).reshape(-1, 6)
        except Exception as error:  # the user's code may raise anything
            raise DataError(
                f"the decoder failed on {truth.file}: {type(error).__name__}: {error}",
                hint="it returns rows of (x1, y1, x2, y2, score, class), edges as fractions of the picture",
            ) from error
        foreign = [row[5] for row in rows.tolist() if not 0 <= row[5] < len(truth.categories)]
        if foreign:
            raise DataError(
                f"the decoder gives class {foreign[0]:g} for {truth.file}, and the annotations have "
                f"{len(truth.categories)} categories",
                hint="a class is a position in the category ids in ascending order",
            )
        scaled = rows * [truth.width, truth.height, truth.width, truth.height, 1, 1]
        scaled[:, 2:4] -= scaled[:, :2]
        return truth, scaled

    def over(self, contributions: Sequence[Any]) -> Callable[[NDArray[np.int64]], float]:
        """Each picture is matched once; what is drawn again is only summed up again."""
        matched = _matched(contributions, [0.5] if self.name == "map50" else None)
        return lambda chosen: _precision(matched, chosen)


def _matched(contributions: Sequence[tuple[Boxes, NDArray[Any]]], ious: Sequence[float] | None) -> Any:
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise UsageError(
            "mAP is computed by pycocotools, which is not installed", hint="pip install pycocotools"
        ) from error
    truth, found = COCO(), COCO()
    with contextlib.redirect_stdout(io.StringIO()):  # it reports to the standard output
        truth.dataset, found.dataset = _dataset(contributions, decoded=False), _dataset(contributions, decoded=True)
        truth.createIndex()
        found.createIndex()
        judged = COCOeval(truth, found, "bbox")
        judged.params.maxDets = [100]
        judged.params.areaRng, judged.params.areaRngLbl = [[0, LARGEST_AREA]], ["all"]
        if ious is not None:
            judged.params.iouThrs = np.array(ious)
        judged.evaluate()
    return judged


def _dataset(contributions: Sequence[tuple[Boxes, NDArray[Any]]], *, decoded: bool) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = []
    for image, (truth, rows) in enumerate(contributions):
        if decoded:
            for *box, score, index in rows.tolist():
                category = truth.categories[int(index)]
                area = box[2] * box[3]
                annotations.append({"bbox": box, "score": score, "category_id": category, "area": area, "iscrowd": 0})
        else:
            annotations += [dict(entry) for entry in truth.annotations]
        for entry in annotations:
            entry.setdefault("image_id", image)
    for number, entry in enumerate(annotations, 1):
        entry["id"] = number
    categories = contributions[0][0].categories if contributions else ()
    images = [{"id": i, "width": t.width, "height": t.height} for i, (t, _) in enumerate(contributions)]
    return {"images": images, "annotations": annotations, "categories": [{"id": c} for c in categories]}


def _precision(matched: Any, chosen: NDArray[np.int64]) -> float:
    """The mean precision over the pictures at ``chosen``: the library's own summing up, over its matches in another order."""
    pictures = len(matched.params.imgIds)
    drawn = copy.copy(matched)
    drawn.params = copy.copy(matched.params)
    drawn.params.imgIds = list(range(len(chosen)))
    drawn._paramsEval = drawn.params
    blocks = range(0, len(matched.evalImgs), pictures)
    drawn.evalImgs = [matched.evalImgs[block + int(index)] for block in blocks for index in chosen]
    with contextlib.redirect_stdout(io.StringIO()):
        drawn.accumulate()
    precision = drawn.eval["precision"]
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0
