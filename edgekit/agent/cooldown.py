"""A run starts from a cool board, or says that it did not. Standard library only.

Fixed pauses are not enough: a board in a closed metal case stays warm for more than ten minutes. So the start condition is a temperature
and a slope, with a time after which the run starts all the same and is marked.
"""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

from edgekit.agent.steadiness import Moment, slope_k_per_min


@dataclasses.dataclass(frozen=True)
class CooldownRule:
    """Start at ``max_c`` or below, with a temperature that moves less than ``slope_k_per_min`` over ``look_s`` seconds.

    After ``timeout_s`` the run starts anyway. So it does when the temperature has settled above ``max_c`` for ``settled_s``: that
    is where this board rests, and waiting longer would not change it.
    """

    max_c: float = 55.0
    slope_k_per_min: float = 0.5
    look_s: float = 30.0
    settled_s: float = 120.0
    timeout_s: float = 600.0


@dataclasses.dataclass(frozen=True)
class Cooldown:
    """How the wait ended. ``warm`` marks a run that did not start cool; ``said`` is why, empty when all is well."""

    warm: bool
    said: str


def judge(samples: Sequence[Moment], waited_s: float, rule: CooldownRule) -> Optional[Cooldown]:
    """Whether the run may start now; None is to wait on. ``samples`` are those of the wait, the last one the latest."""
    if not samples:
        return None
    now_s, now_c, throttled = samples[-1]
    if all(celsius is None for _, celsius, _ in samples):
        return Cooldown(False, "no sensor tells the temperature: the run starts without a cool-down")
    if now_c is not None and waited_s >= rule.look_s and not throttled:
        if now_c <= rule.max_c and _still(samples, now_s - rule.look_s, rule):
            return Cooldown(False, "")
        if now_c > rule.max_c and waited_s >= rule.settled_s and _still(samples, now_s - rule.settled_s, rule):
            return Cooldown(
                True, f"the board rests at {now_c:.1f} °C, above the start condition of {rule.max_c:.0f} °C"
            )
    if waited_s >= rule.timeout_s:
        at = "unknown" if now_c is None else f"{now_c:.1f} °C"
        return Cooldown(True, f"after {waited_s:.0f} s of cool-down the board was still warm or changing: {at}")
    return None


def _still(samples: Sequence[Moment], since_s: float, rule: CooldownRule) -> bool:
    slope = slope_k_per_min([(t, c) for t, c, _ in samples if t >= since_s and c is not None])
    return slope is not None and abs(slope) < rule.slope_k_per_min
