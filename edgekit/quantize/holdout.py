"""Which calibration samples correct and which judge the corrections; and which of them are the rare ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.calibrate.split import spread

FEWEST = 5
"""Below this many samples nothing is held out, and so nothing is corrected: no gain could be shown."""
JUDGING = 24
"""At most so many samples judge."""
CORRECTING = 48
"""At most so many samples give the moments of the layers' inputs: on the networks measured, more change nothing."""
RARE_SHARE = 0.1
"""The tenth of the samples that excites the network most: bright, loud, full ones."""


@dataclass(frozen=True)
class Holdout:
    """Positions among the calibration samples, ascending.

    ``judging`` are the samples that judge, ``rare`` says it of each. ``unseen`` are those of them that no range is to know of: the
    ordinary ones. The extremes of rare samples stay known, since a range that has not seen them could only fail them.
    ``correcting`` are others, for weights and biases.
    """

    judging: tuple[int, ...]
    rare: tuple[bool, ...]
    unseen: tuple[int, ...]
    correcting: tuple[int, ...]


def hold_out(extents: Sequence[float], *, seed: int) -> Holdout | None:
    """A part of the samples judges: the rarest tenth, and ordinary ones to make it a quarter; None where there are too few.

    ``extents`` say how far each sample reaches (:class:`edgekit.calibrate.ranges.Ranges`).
    """
    count = len(extents)
    if count < FEWEST:
        return None
    size = min(max(count // 4, 2), JUDGING)
    order = [int(i) for i in np.argsort(-np.asarray(extents), kind="stable")]
    rare = set(order[: min(max(round(count * RARE_SHARE), 1), size // 2)])
    ordinary = [i for i in range(count) if i not in rare]
    unseen = spread(ordinary, size - len(rare), seed=seed)
    judging = tuple(sorted((*unseen, *rare)))
    others = sorted(set(range(count)) - set(judging))
    return Holdout(judging, tuple(i in rare for i in judging), unseen, spread(others, CORRECTING, seed=seed))
