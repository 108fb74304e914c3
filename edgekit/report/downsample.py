"""A million latencies as a few hundred honest points: groups in time order, each with its median, p95, fastest and
slowest.

Nothing disappears: the slowest inference of the run is the slowest of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.report.folder import Latencies
from edgekit.report.timeline import Block, timeline_of

MAX_POINTS = 400
MIN_GROUP = 20
"""A p95 of fewer than this would be the slowest one under another name."""


@dataclass(frozen=True)
class Envelope:
    """One entry a group: middle time (s), and the group's median, p95, fastest and slowest latency (ns).

    ``group_size`` is the smallest and largest number of inferences in a group. ``p95_ns`` is empty when groups are too
    small for it.
    """

    times_s: tuple[float, ...]
    median_ns: tuple[float, ...]
    p95_ns: tuple[float, ...]
    min_ns: tuple[float, ...]
    max_ns: tuple[float, ...]
    group_size: tuple[int, int]


def envelope_of(blocks: Sequence[Block], *, max_points: int = MAX_POINTS) -> Envelope:
    """At most about ``max_points`` groups over the run.

    Long blocks are split, so that a group lies within one stretch of back-to-back inferences; when there are more
    blocks than points, neighbouring blocks are merged.
    """
    total = sum(block.latencies_ns.size for block in blocks)
    if total == 0:
        return Envelope((), (), (), (), (), (0, 0))
    points = max(1, min(max_points, total // MIN_GROUP))
    groups: list[tuple[float, Latencies]] = []
    if len(blocks) > points:
        ends = [len(blocks) * k // points for k in range(points + 1)]
        groups.extend(_group(blocks[start:end]) for start, end in zip(ends, ends[1:], strict=False))
    else:
        for block in blocks:
            pieces = max(1, min(block.latencies_ns.size // MIN_GROUP, points * block.latencies_ns.size // total))
            groups.extend(_split(block, pieces))
    sizes = [latencies.size for _, latencies in groups]
    return Envelope(
        times_s=tuple(time for time, _ in groups),
        median_ns=tuple(float(np.median(latencies)) for _, latencies in groups),
        p95_ns=tuple(float(np.percentile(latencies, 95)) for _, latencies in groups) if min(sizes) >= MIN_GROUP else (),
        min_ns=tuple(float(np.min(latencies)) for _, latencies in groups),
        max_ns=tuple(float(np.max(latencies)) for _, latencies in groups),
        group_size=(min(sizes), max(sizes)),
    )


def _group(blocks: Sequence[Block]) -> tuple[float, Latencies]:
    line = timeline_of(blocks)
    return float(line.times_s.mean()), line.latencies_ns


def _split(block: Block, pieces: int) -> list[tuple[float, Latencies]]:
    line = timeline_of([block])
    times, latencies = np.array_split(line.times_s, pieces), np.array_split(line.latencies_ns, pieces)
    return [(float(time.mean()), group) for time, group in zip(times, latencies, strict=True)]
