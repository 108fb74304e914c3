"""What calibrates never judges; the choice is the same for the same seed, and covers the data however they are ordered."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.calibrate.split import CALIBRATION_DEFAULT, EVALUATION_DEFAULT, Split, split, spread
from edgekit.errors import DataError


def made(count: int, evaluation_count: int | None = None, **given: object) -> Split:
    options = {"labelled": False, "calibration_limit": None, "evaluation_limit": None, "seed": 0, **given}
    return split(count=count, evaluation_count=evaluation_count, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 3, 10, 401, 5000])
@pytest.mark.parametrize("labelled", [False, True])
def test_one_data_set_serves_both_without_overlap(count: int, labelled: bool) -> None:
    found = made(count, labelled=labelled)
    assert len(found.calibration) == min(count // 2, CALIBRATION_DEFAULT)
    rest = count - len(found.calibration)
    assert len(found.evaluation) == (rest if labelled else min(rest, EVALUATION_DEFAULT))
    assert not set(found.calibration) & set(found.evaluation)
    for part in (found.calibration, found.evaluation):
        assert list(part) == sorted(set(part)) and part[0] >= 0 and part[-1] < count
    assert found.seed == 0 and found.same_data


def test_the_seed_decides_and_is_recorded() -> None:
    assert made(100, seed=7) == made(100, seed=7)
    assert made(100, seed=7).calibration != made(100, seed=8).calibration
    assert made(100, seed=7).seed == 7


def test_a_limit_takes_the_first_in_order() -> None:
    found = made(100, calibration_limit=30, labelled=True)
    assert found.calibration == tuple(range(30)) and found.evaluation == tuple(range(30, 100))
    assert found.seed is None and found.same_data  # nothing was drawn
    assert made(100, calibration_limit=30).seed == 0  # 64 of 70 judge, and those were


def test_data_of_their_own_to_judge() -> None:
    found = made(50, 80, labelled=True)
    assert (found.calibration, found.evaluation, found.seed) == (tuple(range(50)), tuple(range(80)), None)
    assert not found.same_data
    assert made(50, 80, calibration_limit=10, labelled=True).calibration == tuple(range(10))
    assert made(5, 80, calibration_limit=10, labelled=True).calibration == tuple(range(5))
    assert len(made(1, 1).evaluation) == 1
    assert len(made(50, 80, labelled=True, evaluation_limit=20).evaluation) == 20
    assert made(50, 80, labelled=True, evaluation_limit=20).seed == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": 1}, "one sample cannot both calibrate and judge"),
        ({"count": 10, "calibration_limit": 0}, "--calibration must be at least 1"),
        ({"count": 10, "calibration_limit": 10}, "--calibration 10 takes all 10 samples: none is left to judge"),
        ({"count": 10, "evaluation_count": 10, "evaluation_limit": 0}, "--evaluation must be at least 1"),
    ],
)
def test_impossible_splits(given: dict[str, int], said: str) -> None:
    with pytest.raises(DataError, match=said):
        made(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("classes_in", ["turn", "blocks"])
@pytest.mark.parametrize("size", [64, 200, 250])
def test_all_classes_judge_however_the_data_are_ordered(classes_in: str, size: int) -> None:
    """1,000 samples of ten classes: a fixed step of four would see five of those that take turns."""
    labels = np.arange(1000) % 10 if classes_in == "turn" else np.arange(1000) // 100
    chosen = np.array(spread(range(1000), size, seed=0))
    counts = np.bincount(labels[chosen], minlength=10)
    assert len(set(chosen.tolist())) == size and counts.sum() == size
    assert counts.min() >= 0.3 * size / 10


def test_a_spread_covers_every_stretch() -> None:
    chosen = spread(range(1000), 16, seed=3)
    assert [index * 16 // 1000 for index in chosen] == list(range(16))
    assert spread([5, 7, 9], 3, seed=0) == spread([5, 7, 9], 10, seed=0) == (5, 7, 9)
    assert set(spread([5, 7, 9, 11], 2, seed=1)) <= {5, 7, 9, 11}
