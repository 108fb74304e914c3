"""Metrics against values worked by hand, against a loop over pixels, and against pycocotools fed directly."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from edgekit.calibrate.truths import Boxes
from edgekit.errors import DataError
from edgekit.verify.detection import MeanAveragePrecision
from edgekit.verify.drop import compare, limit_of, loss, more_samples
from edgekit.verify.intervals import paired_difference
from edgekit.verify.metrics import MeanIou, RegressionError, TopK


def whole(metric: Any, contributions: list[Any]) -> float:
    return float(metric.over(contributions)(np.arange(len(contributions))))


def test_top_k_by_hand() -> None:
    scores = {"y": np.float32([[0.1, 0.5, 0.2, 0.9, 0.3, 0.4, 0.0]])}  # best five: 3 1 5 4 2
    assert [TopK("y", 1).contribution(scores, c) for c in range(7)] == [c == 3 for c in range(7)]
    assert [TopK("y", 5).contribution(scores, c) for c in range(7)] == [c in (1, 2, 3, 4, 5) for c in range(7)]
    assert TopK("y", 1).contribution({"y": np.float32([[1, 1]])}, 0)  # as an argmax does


def test_regression_errors_by_hand() -> None:
    samples = [(np.float32([[1, 2]]), [2, 4]), (np.float32([[0, 0]]), [0, 4])]  # errors 1 2 | 0 4
    for name, expected in (("mae", 7 / 4), ("rmse", (21 / 4) ** 0.5)):
        metric = RegressionError(name, "y")
        assert whole(metric, [metric.contribution({"y": a}, b) for a, b in samples]) == pytest.approx(expected)
    with pytest.raises(DataError, match="a label holds 3 numbers, and output 'y' has 2"):
        RegressionError("mae", "y").contribution({"y": np.zeros((1, 2))}, [1, 2, 3])


def test_mean_iou_is_that_of_a_loop_over_pixels() -> None:
    generator = np.random.default_rng(1)
    metric = MeanIou("y", 1, 4)
    pairs = [(generator.normal(size=(1, 4, 6, 5)), generator.choice([0, 1, 2, 255], (6, 5))) for _ in range(5)]
    both, either = [0] * 4, [0] * 4
    for scores, mask in pairs:
        for row in range(6):
            for column in range(5):
                truth, answer = int(mask[row, column]), int(scores[0, :, row, column].argmax())
                if truth == 255:
                    continue
                for c in range(4):
                    both[c] += truth == answer == c
                    either[c] += c in (truth, answer)
    expected = np.mean([b / e for b, e in zip(both, either, strict=True) if e])
    assert whole(metric, [metric.contribution({"y": s}, m) for s, m in pairs]) == pytest.approx(expected)


def boxes(*objects: tuple[int, list[float]]) -> Boxes:
    entries = tuple({"bbox": box, "category_id": c, "area": box[2] * box[3], "iscrowd": 0} for c, box in objects)
    return Boxes("p.jpg", 100, 200, entries, (3, 7))


def decoded(rows: list[list[float]], truth: Boxes, name: str = "map") -> tuple[MeanAveragePrecision, Any]:
    metric = MeanAveragePrecision(name, lambda outputs, picture: rows)
    return metric, metric.contribution({}, truth)


def test_average_precision_by_hand() -> None:
    truth = boxes((7, [10, 20, 40, 100]))
    metric, exact = decoded([[0.1, 0.1, 0.5, 0.6, 0.9, 1]], truth)
    assert whole(metric, [exact]) == pytest.approx(1.0)
    # shifted by a quarter of its width: 30 of 50 columns are in both, an IoU of 0.6, enough at 0.50, 0.55 and 0.60 of ten thresholds
    metric, shifted = decoded([[0.2, 0.1, 0.6, 0.6, 0.9, 1]], truth)
    assert whole(metric, [shifted]) == pytest.approx(0.3)
    metric, half = decoded([[0.2, 0.1, 0.6, 0.6, 0.9, 1]], truth, "map50")
    assert whole(metric, [half]) == pytest.approx(1.0)
    metric, other_class = decoded([[0.1, 0.1, 0.5, 0.6, 0.9, 0]], truth)
    assert whole(metric, [other_class]) == 0.0
    assert whole(metric, [decoded([], truth)[1]]) == 0.0
    with pytest.raises(DataError, match="class 2 for p.jpg, and the annotations have 2"):
        decoded([[0, 0, 1, 1, 0.5, 2]], truth)


def random_pictures(count: int) -> list[Any]:
    generator, found = np.random.default_rng(3), []
    for _ in range(count):
        objects, rows = [], []
        for _ in range(int(generator.integers(1, 5))):
            x, y, w, h = generator.uniform([0, 0, 10, 20], [50, 100, 50, 100])
            c = int(generator.integers(0, 2))
            objects.append(((3, 7)[c], [x, y, w, h]))
            moved = np.array([x, y, x + w, y + h]) + generator.normal(0, 4, 4)
            rows.append([*(moved / [100, 200, 100, 200]), generator.uniform(), c])
        found.append(decoded(rows, boxes(*objects))[1])
    return found


def test_pictures_drawn_again_count_again() -> None:
    """The summing up over pictures that repeat equals pycocotools fed with the pictures repeated."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    contributions = random_pictures(6)
    chosen = np.array([0, 0, 3, 5, 2, 2])
    figure = MeanAveragePrecision("map", lambda *_: []).over(contributions)(chosen)
    truth, found = COCO(), COCO()
    truth.dataset = {"images": [], "annotations": [], "categories": [{"id": 3}, {"id": 7}]}
    found.dataset = {"images": [], "annotations": [], "categories": [{"id": 3}, {"id": 7}]}
    for image, index in enumerate(chosen):
        right, rows = contributions[index]
        for data in (truth.dataset, found.dataset):
            data["images"].append({"id": image})
        for entry in right.annotations:
            truth.dataset["annotations"].append(
                {**entry, "image_id": image, "id": len(truth.dataset["annotations"]) + 1}
            )
        for *box, score, c in rows.tolist():
            entry = {"bbox": box, "score": score, "category_id": (3, 7)[int(c)], "area": box[2] * box[3], "iscrowd": 0}
            found.dataset["annotations"].append(
                {**entry, "image_id": image, "id": len(found.dataset["annotations"]) + 1}
            )
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found.createIndex()
        judged = COCOeval(truth, found, "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    assert 0.05 < figure < 0.95 and figure == pytest.approx(judged.stats[0], abs=1e-9)


def test_the_paired_bootstrap_is_scipys() -> None:
    from scipy.stats import bootstrap

    generator = np.random.default_rng(5)
    before = np.abs(generator.normal(1, 0.3, 200))
    after = before + generator.normal(0.05, 0.1, 200)
    found = compare(RegressionError("mae", "y"), before.tolist(), after.tolist(), source="t")
    expected = bootstrap((after - before,), np.mean, method="percentile", n_resamples=5000, rng=1).confidence_interval
    assert found.difference_points.value == pytest.approx((after - before).mean())
    assert found.difference_points.low == pytest.approx(expected.low, abs=0.003)
    assert found.difference_points.high == pytest.approx(expected.high, abs=0.003)
    value, low, high = loss(found)  # more error is a loss
    assert low < value < high and value > 0 and limit_of(found, 2.0) == pytest.approx(0.02 * before.mean())


@pytest.mark.parametrize(("lost", "gained", "count", "limit"), [(1, 0, 100, 2.0), (12, 2, 300, 2.0), (3, 3, 200, 1.0)])
def test_the_number_of_samples_that_decide(lost: int, gained: int, count: int, limit: float) -> None:
    before = np.array([True] * count)
    after = before.copy()
    after[:lost] = False
    before[lost : lost + gained] = False
    found = compare(TopK("y", 1), before.tolist(), after.tolist(), source="t")
    assert (found.lost, found.gained) == (lost, gained)
    more = more_samples(found, limit)
    assert more is not None and more > 0

    def decided(n: int) -> bool:
        points = paired_difference(lost / count * n, gained / count * n, n)
        return -points.low <= limit or -points.high > limit

    assert decided(count + more) and not decided(count + more - 1)
