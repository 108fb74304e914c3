"""Burst, steady state, and the stretch of a run that its percentiles are of.

A run that slowed down on the way has two speeds, and a percentile over both describes neither. So the numbers of a run are of one regime: the
stretch at its end in which the speed stayed what it was, and the first half minute is told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.report.folder import mapping, number
from edgekit.report.summary import Regime, Sustained, Thermal
from edgekit.report.timeline import Block

WINDOW_S = 30.0
"""Length of the windows that are compared."""
STEADY_WINDOWS = 3
SUSTAINED_NEEDS_S = (STEADY_WINDOWS + 1) * WINDOW_S
"""One window for the burst and three that must agree before the run is called steady."""
REGIME_CHANGE = 0.03
"""Windows whose medians lie within this share of the last one's belong to its regime."""
STEADY_CHANGE = 0.02
"""Windows whose medians lie within this share of each other are steady."""
STEADY_K_PER_MIN = 0.5
STEADY_THROTTLE_POINTS = 5.0
OWN_DOING = ("thermal", "under_voltage", "power_cap")


def sustained_of(
    blocks: Sequence[Block], samples: Sequence[Mapping[str, Any]], thermal: Thermal, *, paced: bool = False
) -> tuple[Sustained | None, str]:
    """Burst against sustained speed when the run is long enough for it, else None and the reason.

    ``retention`` is sustained by burst throughput; of a run at a rate, where throughput is what arrives, that of the median latencies.
    """
    if not blocks:
        return None, "no inference was timed"
    start, end = blocks[0].start_s, max(_end(block) for block in blocks)
    if end - start < SUSTAINED_NEEDS_S - WINDOW_S / 10:
        return None, f"needs {SUSTAINED_NEEDS_S:.0f} s of measuring, this run has {end - start:.0f} s"
    first = _median(blocks, start - 1.0, start + WINDOW_S)
    edges = [end - k * WINDOW_S for k in range(STEADY_WINDOWS, -1, -1)]
    last = [_median(blocks, low, high) for low, high in zip(edges, edges[1:], strict=False)]
    medians = [median for median in last if median is not None]
    if first is None or len(medians) < len(last):
        return None, "a window of half a minute holds no inference"
    burst, final = _rate(blocks, start, start + WINDOW_S), _rate(blocks, end - WINDOW_S, end)
    kept = first / medians[-1] if paced else None if burst is None or final is None else final / burst
    reasons = _unsteady(medians, samples, thermal, edges)
    return (
        Sustained(
            window_s=WINDOW_S,
            burst_median_ns=first,
            sustained_median_ns=medians[-1],
            ratio=medians[-1] / first,
            retention=kept,
            steady=not reasons,
            unsteady=reasons,
            time_to_throttle_s=min(
                (c.onset_s for c in thermal.throttling.causes if c.cause in OWN_DOING), default=None
            ),
        ),
        "",
    )


def regime_of(blocks: Sequence[Block], sustained: Sustained | None) -> Regime | None:
    """The stretch that the run's percentiles are of: all of a run with one speed, else its last stretch of one speed.

    A run too short for windows of half a minute is one regime. None without a block.
    """
    if not blocks:
        return None
    start, end = blocks[0].start_s, max(_end(block) for block in blocks)
    if sustained is None:
        return Regime("whole run", start, end)
    low = end
    while low - WINDOW_S > start - WINDOW_S / 10:
        median = _median(blocks, low - WINDOW_S, low)
        if median is None or abs(median / sustained.sustained_median_ns - 1.0) > REGIME_CHANGE:
            break
        low -= WINDOW_S
    if low - start < WINDOW_S and abs(sustained.ratio - 1.0) <= REGIME_CHANGE:
        return Regime("whole run", start, end)
    return Regime("steady state" if sustained.steady else "last stretch", low, end)


def within(blocks: Sequence[Block], regime: Regime | None) -> list[Block]:
    """The blocks that began in the regime."""
    if regime is None:
        return []
    return [block for block in blocks if block.start_s >= regime.start_s - 1e-6]


def _unsteady(
    medians: Sequence[float], samples: Sequence[Mapping[str, Any]], thermal: Thermal, edges: Sequence[float]
) -> tuple[str, ...]:
    """Why the last windows are no steady state; empty when they are one."""
    found = []
    change = max(medians) / min(medians) - 1.0
    if change > STEADY_CHANGE:
        found.append(f"the last {len(medians)} half minutes differ by {100 * change:.1f} %")
    slope = _slope_k_per_min(samples, edges[0], edges[-1])
    if slope is not None and abs(slope) > STEADY_K_PER_MIN:
        found.append(f"the temperature still changes by {slope:+.1f} K a minute")
    shares = [100.0 * _throttled(thermal, low, high) for low, high in zip(edges, edges[1:], strict=False)]
    if max(shares) - min(shares) > STEADY_THROTTLE_POINTS:
        found.append(f"the board throttles between {min(shares):.0f} and {max(shares):.0f} % of the time")
    return tuple(found)


def _slope_k_per_min(samples: Sequence[Mapping[str, Any]], start_s: float, end_s: float) -> float | None:
    points = [(number(sample.get("t_s")), number(mapping(sample).get("temperature_c"))) for sample in samples]
    inside = [(t, c) for t, c in points if t is not None and c is not None and start_s <= t <= end_s]
    if len(inside) < 10:
        return None
    from scipy.stats import theilslopes

    # Theil-Sen compares every pair; 400 evenly chosen samples keep that to 80,000 of them.
    chosen = [inside[index] for index in np.linspace(0, len(inside) - 1, min(len(inside), 400)).astype(int)]
    return 60.0 * float(theilslopes([c for _, c in chosen], [t for t, _ in chosen])[0])


def _throttled(thermal: Thermal, low: float, high: float) -> float:
    """The share of a window in which the board lowered its own clock."""
    spells = [spell for spell in thermal.throttling.spells if spell.cause in OWN_DOING]
    return sum(max(0.0, min(spell.end_s, high) - max(spell.start_s, low)) for spell in spells) / (high - low)


def _end(block: Block) -> float:
    return block.start_s + block.wall_s


def _median(blocks: Sequence[Block], low: float, high: float) -> float | None:
    """The median of the medians of the blocks that end in the window."""
    inside = [block.median_ns for block in blocks if low < _end(block) <= high + 1e-6]
    return float(np.median(inside)) if inside else None


def _rate(blocks: Sequence[Block], start_s: float, end_s: float) -> float | None:
    """Inferences by busy second of the blocks that lie in the window; None when the blocks are longer than it."""
    inside = [block for block in blocks if block.start_s >= start_s and _end(block) <= end_s + 1e-6]
    wall_s = sum(block.wall_s for block in inside)
    return sum(block.count for block in inside) / wall_s if wall_s > 0 else None
