"""Do the ranges hold? Each tensor's range over parts of the calibration data, over all of them, and over data that did not calibrate.

Extremes do not depend on the order of the samples; they grow with their number. Four interleaved parts, their unions by two and the
whole give the growth by doubling twice, which says how many more samples would be worth having.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from edgekit.calibrate.ranges import observe
from edgekit.calibrate.sources import Sample
from edgekit.calibrate.split import spread
from edgekit.values import FloatModel

LOOKED_AT = 64
"""Calibration samples whose parts are compared, and held-out samples that are looked at."""
SETTLED = 0.05
"""Ranges that grow by less than this when the samples double (mean over the tensors) are settled."""
MOST_MORE = 10_000

ByTensor = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Growth:
    """By what share ranges grew (mean over the tensors) when a quarter of ``looked_at`` samples became a half, and the half the whole.

    ``worst``: the tensors that grew most by the last doubling, with their growth. ``more``: the estimated number of further samples
    until they are settled; 0 where they are, None where the growth does not slow down.
    """

    looked_at: int
    to_half: float
    to_whole: float
    worst: tuple[tuple[str, float], ...]
    more: int | None


@dataclass(frozen=True)
class Beyond:
    """A tensor whose values on held-out data leave its calibrated range, by ``share`` of that range's width."""

    tensor: str
    calibrated: tuple[float, float]
    seen: tuple[float, float]
    share: float


def widths(ranges: ByTensor) -> dict[str, float]:
    """Each range's width after it was widened to hold zero, as scales need it."""
    return {name: max(high, 0.0) - min(low, 0.0) for name, (low, high) in ranges.items()}


def growth(
    model: FloatModel,
    iterate: Callable[[Sequence[int]], Iterable[Sample]],
    indices: Sequence[int],
    *,
    seed: int,
    threads: int = 0,
    alive: Callable[[int], None] = lambda _: None,
) -> Growth | None:
    """How the ranges grow with the samples at ``indices`` (at most :data:`LOOKED_AT` are looked at); None with fewer than four."""
    chosen = spread(indices, LOOKED_AT, seed=seed)
    if len(chosen) < 4:
        return None
    parts = [observe(model, iterate(chosen[k::4]), threads=threads, progress=alive).by_tensor for k in range(4)]
    return grown(parts, looked_at=len(chosen), count=len(indices))


def grown(parts: Sequence[ByTensor], *, looked_at: int, count: int) -> Growth:
    """The growth that the ranges of four ``parts`` of ``looked_at`` samples show, and what it means for ``count`` in all."""
    halves = [_union([parts[a], parts[b]]) for a, b in combinations(range(4), 2)]
    whole = widths(_union(parts))
    quarter = _mean([widths(part) for part in parts])
    half = _mean([widths(part) for part in halves])
    to_half = {name: _relative(half[name], quarter[name]) for name in whole}
    to_whole = {name: _relative(whole[name], half[name]) for name in whole}
    worst = sorted(to_whole.items(), key=lambda item: (-item[1], item[0]))[:3]
    first, last = float(np.mean(list(to_half.values()))), float(np.mean(list(to_whole.values())))
    return Growth(looked_at, first, last, tuple(worst), _more(first, last, looked_at, count))


def _more(first: float, last: float, looked_at: int, count: int) -> int | None:
    """Doublings until the growth is below :data:`SETTLED`, if it goes on to shrink as it did; in further samples beyond ``count``."""
    if last <= SETTLED:
        return 0
    ratio = last / first if first > 0 else 1.0
    if ratio >= 0.95:
        return None
    doublings = math.ceil(math.log(SETTLED / last) / math.log(ratio))
    more = looked_at * 2**doublings - count
    return None if more > MOST_MORE else max(more, 0)


def beyond(calibrated: ByTensor, seen: ByTensor, *, least: float) -> tuple[Beyond, ...]:
    """Tensors that ``seen`` drives out of their calibrated range by at least the share ``least``, the furthest first."""
    found = []
    for name, (low, high) in calibrated.items():
        if name not in seen:
            continue
        width, floor, ceiling = max(high, 0.0) - min(low, 0.0), min(low, 0.0), max(high, 0.0)
        over = max(seen[name][1] - ceiling, floor - seen[name][0], 0.0)
        share = over / width if width > 0 else (math.inf if over > 0 else 0.0)
        if share > 0 and share >= least:
            found.append(Beyond(name, (low, high), seen[name], share))
    return tuple(sorted(found, key=lambda item: (-item.share, item.tensor)))


def _union(parts: Sequence[ByTensor]) -> dict[str, tuple[float, float]]:
    names = set.intersection(*(set(part) for part in parts))
    return {n: (min(p[n][0] for p in parts), max(p[n][1] for p in parts)) for n in sorted(names)}


def _mean(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = set.intersection(*(set(item) for item in each))
    return {name: float(np.mean([item[name] for item in each])) for name in names}


def _relative(larger: float, smaller: float) -> float:
    if smaller > 0:
        return larger / smaller - 1.0
    return 0.0 if larger == 0 else 1.0
