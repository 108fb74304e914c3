"""Which samples calibrate and which judge: never the same ones, and always the same choice for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import DataError

CALIBRATION_DEFAULT = 200
"""Calibration samples where one data set serves both parts and nothing was said: ranges stop growing well before that on the
networks measured so far, and the rest judges."""
EVALUATION_DEFAULT = 64
"""Held-out samples to judge agreement on where there are no labels."""


@dataclass(frozen=True)
class Split:
    """Ascending indices into the data. ``seed`` is None where nothing was drawn. ``same_data`` says that both index one data set."""

    calibration: tuple[int, ...]
    evaluation: tuple[int, ...]
    seed: int | None
    same_data: bool


def split(
    *,
    count: int,
    evaluation_count: int | None,
    labelled: bool,
    calibration_limit: int | None,
    evaluation_limit: int | None,
    seed: int,
) -> Split:
    """``count`` samples in ``--data``, ``evaluation_count`` in ``--eval-data`` (None where there is none).

    With evaluation data of their own, all (or the first ``calibration_limit``) calibrate. With one data set, the first
    ``calibration_limit`` in order calibrate and the others judge; without a limit, half of the samples, at most
    :data:`CALIBRATION_DEFAULT`, are drawn with ``seed``. Raises DataError when nothing is left to judge.
    """
    if calibration_limit is not None and calibration_limit < 1:
        raise DataError("--calibration must be at least 1", hint="200 is a good number where there are as many")
    if evaluation_count is not None:
        calibration = tuple(range(min(count, calibration_limit or count)))
        judged = _limited(tuple(range(evaluation_count)), labelled, evaluation_limit, seed)
        return Split(calibration, judged, _used(seed, judged, evaluation_count), same_data=False)
    if count < 2:
        raise DataError(
            "one sample cannot both calibrate and judge", hint="give more data, or judge on other data with --eval-data"
        )
    if calibration_limit is not None:
        if calibration_limit >= count:
            raise DataError(
                f"--calibration {calibration_limit} takes all {count} samples: none is left to judge the result",
                hint=f"calibrate on fewer (--calibration {count // 2}), or judge on other data with --eval-data",
            )
        calibration, others = tuple(range(calibration_limit)), tuple(range(calibration_limit, count))
        judged = _limited(others, labelled, evaluation_limit, seed)
        return Split(calibration, judged, _used(seed, judged, len(others)), same_data=True)
    order = np.random.default_rng(seed).permutation(count)
    size = min(count // 2, CALIBRATION_DEFAULT)
    calibration = tuple(int(i) for i in np.sort(order[:size]))
    others = tuple(int(i) for i in np.sort(order[size:]))
    return Split(calibration, _limited(others, labelled, evaluation_limit, seed), seed, same_data=True)


def spread(indices: Sequence[int], size: int, *, seed: int) -> tuple[int, ...]:
    """At most ``size`` of ``indices``, ascending: one drawn from each of ``size`` stretches of about equal length.

    Data often lie in class order, which a first part would not cover, or with the classes taking turns, which a fixed step would
    fall in with: every fourth sample of ten classes in turn shows five of them.
    """
    if size >= len(indices):
        return tuple(indices)
    bounds = [(i * len(indices)) // size for i in range(size + 1)]
    drawn = np.random.default_rng(seed).integers(bounds[:-1], bounds[1:])
    return tuple(indices[int(position)] for position in drawn)


def _used(seed: int, judged: Sequence[int], available: int) -> int | None:
    return seed if len(judged) < available else None


def _limited(indices: tuple[int, ...], labelled: bool, limit: int | None, seed: int) -> tuple[int, ...]:
    """At most ``limit`` of ``indices``. With labels, all by default."""
    size = limit if limit is not None else (len(indices) if labelled else EVALUATION_DEFAULT)
    if size < 1:
        raise DataError("--evaluation must be at least 1", hint="leave it out to judge on all with labels, else on 64")
    return spread(indices, size, seed=seed)
