"""The latency file and its byte budget, against a plain list of everything."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from pathlib import Path
from typing import List

import numpy as np
import pytest

from edgekit.agent.latencies import LatencyLog


def fill(path: Path, values: List[int], *, budget_bytes: int, seed: int) -> LatencyLog:
    """Appends ``values`` in chunks of random sizes, each in an array that is longer than what counts."""
    log = LatencyLog(str(path), budget_bytes=budget_bytes)
    generator, position = random.Random(seed), 0
    while position < len(values):
        count = min(generator.randint(0, 60), len(values) - position)
        log.append(array("q", values[position : position + count] + [-1, -1]), count)
        position += count
    return log


def test_within_the_budget_everything_is_kept(tmp_path: Path) -> None:
    values = [random.Random(1).randint(1000, 10**9) for _ in range(500)]
    log = fill(tmp_path / "l.bin", values, budget_bytes=500 * 8, seed=2)
    assert np.fromfile(tmp_path / "l.bin", "<i8").tolist() == values
    assert (log.count, log.kept_every, log.histogram()) == (500, 1, None)


@pytest.mark.parametrize("budget", [2, 3, 7, 64, 100, 499])
@pytest.mark.parametrize("seed", range(5))
def test_beyond_it_every_nth_is_kept_and_all_are_counted(tmp_path: Path, budget: int, seed: int) -> None:
    values = [int(2 ** random.Random(seed).uniform(0, 40)) + i for i in range(1, 1001)]
    log = fill(tmp_path / "l.bin", values, budget_bytes=budget * 8, seed=seed)
    kept = np.fromfile(tmp_path / "l.bin", "<i8").tolist()
    assert kept == values[:: log.kept_every]
    assert budget / 2 - 1 < len(kept) <= budget
    assert log.count == 1000
    histogram = log.histogram()
    assert histogram is not None
    assert sum(histogram["counts"]) == 1000
    bins = list(zip(histogram["lower_ns"], histogram["width_ns"], histogram["counts"]))
    expected: Counter[int] = Counter()
    for value in values:
        matching = [lower for lower, width, _ in bins if lower <= value < lower + width]
        assert len(matching) == 1
        expected[matching[0]] += 1
    assert {lower: count for lower, _, count in bins} == dict(expected)
    assert all(width == 1 or width * 1024 <= lower for lower, width, _ in bins)


def test_an_empty_block(tmp_path: Path) -> None:
    log = LatencyLog(str(tmp_path / "l.bin"), budget_bytes=80)
    log.append(array("q"), 0)
    assert log.count == 0
    assert (tmp_path / "l.bin").read_bytes() == b""
