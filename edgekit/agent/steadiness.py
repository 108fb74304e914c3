"""Has the board reached the speed that it can keep? Pure functions of block medians and sensor samples. Standard library only.

Steady is: over the last windows the median latency, and the share of the time that the board throttled, stay where they are, and
the temperature hardly rises or falls. The report computes it afresh from the raw latencies, with limits a little wider than these.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import List, Optional, Sequence, Tuple

Moment = Tuple[float, Optional[float], Optional[bool]]
"""``(t_s, temperature_c, throttled)`` of one sample; None is unknown."""

MAX_POINTS = 60
"""A slope compares every pair of points: more of them would cost the board more than they tell."""


@dataclasses.dataclass(frozen=True)
class SteadyRule:
    """``windows`` windows of ``window_s`` seconds must agree: medians within the share ``change``, throttled time within
    ``throttle_points`` percent points, temperature within ``slope_k_per_min`` either way.
    """

    window_s: float = 30.0
    windows: int = 3
    change: float = 0.018
    slope_k_per_min: float = 0.45
    throttle_points: float = 4.0


def is_steady(blocks: Sequence[Sequence[Tuple[float, float]]], samples: Sequence[Moment], rule: SteadyRule) -> bool:
    """``blocks`` holds, for each variant, ``(end_s, median_ns)`` of its blocks in time order.

    False while the run is shorter than one window more than ``rule.windows``: the first belongs to the burst. A board without a
    thermometer is judged by its latency alone.
    """
    if not blocks or not all(blocks):
        return False
    end = max(variant[-1][0] for variant in blocks)
    begin = min(variant[0][0] for variant in blocks)
    if end - begin < (rule.windows + 1) * rule.window_s - rule.window_s / 10:
        return False
    edges = [end - k * rule.window_s for k in range(rule.windows, -1, -1)]
    if not all(_even(variant, edges, rule.change) for variant in blocks):
        return False
    late = [sample for sample in samples if sample[0] >= edges[0]]
    slope = slope_k_per_min([(t, c) for t, c, _ in late if c is not None])
    if slope is not None and abs(slope) > rule.slope_k_per_min:
        return False
    shares = _throttled_shares(late, edges)
    return not shares or 100.0 * (max(shares) - min(shares)) <= rule.throttle_points


def slope_k_per_min(points: Sequence[Tuple[float, float]]) -> Optional[float]:
    """The median slope of all pairs of ``(t_s, temperature_c)`` (Theil and Sen), in kelvin a minute; None below 3 points."""
    if len(points) < 3:
        return None
    step = -(-len(points) // MAX_POINTS)
    chosen = points[::step]
    slopes = [
        (c2 - c1) / (t2 - t1) for k, (t1, c1) in enumerate(chosen) for t2, c2 in chosen[k + 1 :] if t2 - t1 > 1e-9
    ]
    return 60.0 * statistics.median(slopes) if slopes else None


def _even(blocks: Sequence[Tuple[float, float]], edges: Sequence[float], change: float) -> bool:
    medians: List[float] = []
    for start, end in zip(edges, edges[1:]):
        inside = [median for t, median in blocks if start < t <= end]
        if not inside:
            return False
        medians.append(statistics.median(inside))
    return max(medians) <= min(medians) * (1.0 + change)


def _throttled_shares(samples: Sequence[Moment], edges: Sequence[float]) -> List[float]:
    """The throttled share of each window; empty where nothing on the board shows it."""
    shares: List[float] = []
    for start, end in zip(edges, edges[1:]):
        known = [throttled for t, _, throttled in samples if start < t <= end and throttled is not None]
        if not known:
            return []
        shares.append(sum(known) / len(known))
    return shares
