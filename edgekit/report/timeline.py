"""When each kept inference happened, from the blocks that the agent recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.report.folder import Latencies, RunFolder, mapping, number


@dataclass(frozen=True, eq=False)
class Block:
    """A stretch of back-to-back inferences of one model: kept latencies in order, and what the stretch took.

    ``count`` is all inferences of the block, of which ``latencies_ns`` are those that were kept.
    """

    start_s: float
    wall_s: float
    count: int
    latencies_ns: Latencies

    @property
    def median_ns(self) -> float:
        """Median of the kept latencies; the block has at least one."""
        return float(np.median(self.latencies_ns))


@dataclass(frozen=True, eq=False)
class Timeline:
    """Kept latencies of one variant with the time in the run at which each began, seconds, increasing."""

    times_s: NDArray[np.float64]
    latencies_ns: Latencies


def blocks_of(run: RunFolder, variant: str) -> tuple[Block, ...]:
    """The variant's blocks that hold at least one kept latency, in time order.

    With a byte budget every ``kept_every``-th inference was kept, so kept latency ``j`` is inference ``j *
    kept_every``. Without a result (the run was cut) the latencies are one block that began at 0.
    """
    latencies = run.latencies_ns.get(variant)
    if latencies is None or latencies.size == 0:
        return ()
    facts = run.variant(variant)
    every = max(1, int(number(facts.get("kept_every")) or 1))
    found = []
    for item in facts.get("blocks") or ():
        block = mapping(item)
        first, count = int(number(block.get("first")) or 0), int(number(block.get("count")) or 0)
        start_s, wall_ns = number(block.get("start_s")), number(block.get("wall_ns"))
        kept = latencies[-(-first // every) : -(-(first + count) // every)]
        if kept.size and start_s is not None:
            wall_s = (wall_ns if wall_ns is not None else float(kept.sum()) * every) / 1e9
            found.append(Block(start_s, wall_s, count, kept))
    if not found:
        wall_s = float(latencies.sum()) * every / 1e9
        return (Block(0.0, wall_s, latencies.size * every, latencies),)
    return tuple(sorted(found, key=lambda block: block.start_s))


def timeline_of(blocks: Sequence[Block]) -> Timeline:
    """Every kept latency with its time: within a block, inferences follow each other as fast as they were measured."""
    if not blocks:
        return Timeline(np.empty(0), np.empty(0, dtype=np.int64))
    times = []
    for block in blocks:
        # Kept latencies share the wall time of the block in proportion, so the sum of pauses is spread over it evenly.
        begun = np.concatenate(([0.0], np.cumsum(block.latencies_ns)[:-1])) / float(block.latencies_ns.sum())
        times.append(block.start_s + begun * block.wall_s)
    return Timeline(np.concatenate(times), np.concatenate([block.latencies_ns for block in blocks]))
