"""When a run has measured enough: after a duration, after a count, or once the board is steady. Standard library only."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit.agent.steadiness import Moment, SteadyRule, is_steady

NO_LIMIT = 0


class Goal:
    """What the request asks for, and how far each variant is. ``duration_s`` is the goal, or the cap of the other two."""

    def __init__(self, request: Mapping[str, Any], variants: Sequence[str]) -> None:
        self._left_s = {variant: float(request["duration_s"]) for variant in variants}
        self._count = int(request.get("count") or NO_LIMIT)
        rule = request.get("until_steady")
        self._rule: Optional[SteadyRule] = None if rule is None else SteadyRule(**rule)
        self._block_s = float(request["block_s"])
        self._done = dict.fromkeys(variants, 0)
        self._medians: Dict[str, List[Tuple[float, float]]] = {variant: [] for variant in variants}
        self._cap_s = sum(self._left_s.values())
        self._spent_s = 0.0
        self.reached: Optional[str] = None

    def open(self) -> List[str]:
        """The variants that are to be measured on; none when the run is over."""
        if self.reached == "steady":
            return []
        return [
            variant
            for variant, left_s in self._left_s.items()
            if left_s > 0 and (not self._count or self._done[variant] < self._count)
        ]

    def block(self, variant: str) -> Dict[str, Any]:
        """How long and how often the next block runs at most."""
        runs = self._count - self._done[variant] if self._count else NO_LIMIT
        return {"seconds": min(self._block_s, self._left_s[variant]), "runs": runs}

    def measured(self, variant: str, reply: Mapping[str, Any], start_s: float) -> None:
        """One block is over; it began ``start_s`` after the run."""
        seconds = reply["wall_ns"] / 1e9
        self._left_s[variant] -= seconds
        self._done[variant] += reply["count"]
        self._spent_s += seconds
        self._medians[variant].append((start_s + seconds, float(reply["median_ns"])))
        if not self.open():
            counted = self._count and all(done >= self._count for done in self._done.values())
            self.reached = "count" if counted else "cap" if self._count or self._rule else "duration"

    def look(self, samples: Sequence[Moment]) -> None:
        """After each round of blocks: is the board steady? ``samples`` are the latest of the sensors."""
        if self._rule is not None and is_steady(list(self._medians.values()), samples, self._rule):
            self.reached = "steady"

    def expected_s(self) -> float:
        """Seconds that all variants together will have been measured for at the end, as far as it can be said now."""
        done = sum(self._done.values())
        if not self._count or not done:
            return self._cap_s
        return min(self._cap_s, self._spent_s * self._count * len(self._done) / done)
