"""What a run amounts to, as ``result.json`` holds it: counts and raw facts, no statistics. Standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

if TYPE_CHECKING:
    from edgekit.agent.monitor import Monitor

STAGES = ("import", "load", "allocate", "first_invoke", "sustained")

BUSY_WARNING = 0.1
"""Share of all cores that others may use before the result says that the board was not alone."""


class Tally:
    """Adds up what one variant's worker reports."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model
        self._opened: Dict[str, Any] = {}
        self._first_ns: Optional[int] = None
        self._warmup: Optional[Dict[str, Any]] = None
        self._blocks: List[Dict[str, Any]] = []
        self._memory: Dict[str, Any] = {}
        self._histogram: Optional[Dict[str, Any]] = None
        self.kept_every = 1

    @property
    def is_sustained(self) -> bool:
        """Whether the sustained part has begun."""
        return bool(self._blocks)

    @property
    def count(self) -> int:
        """Steady inferences so far."""
        return sum(block["count"] for block in self._blocks)

    def opened(self, reply: Mapping[str, Any]) -> None:
        """The model is loaded."""
        self._opened = dict(reply)
        self._memory.update(reply["memory"])

    def first(self, reply: Mapping[str, Any]) -> None:
        """The first inference is over."""
        self._first_ns = reply["latency_ns"]
        self._memory.update(reply["memory"])

    def warmed_up(self, reply: Mapping[str, Any]) -> None:
        """The warm-up is over."""
        self._warmup = {"count": reply["count"], "total_ns": reply["total_ns"]}

    def block(self, reply: Mapping[str, Any], started_ns: int) -> None:
        """One block is over; its start is counted from the run's."""
        self.kept_every = reply["kept_every"]
        self._blocks.append(
            {
                "start_s": round((reply["start_ns"] - started_ns) / 1e9, 6),
                "first": reply["first"],
                "count": reply["count"],
                "wall_ns": reply["wall_ns"],
                "late": reply["late"],
            }
        )

    def finished(self, reply: Mapping[str, Any]) -> None:
        """The worker's last words."""
        self._histogram = reply["histogram"]
        self.kept_every = reply["kept_every"]
        self._memory.update(reply["memory"])

    def as_json(self) -> Dict[str, Any]:
        """The variant's object in ``result.json``."""
        gone = {"peak_rss_bytes": None, "rss_bytes": None, "memory_unknown": "the worker ended before it could say"}
        value = {
            "file_sha256": self._model["sha256"],
            "size_bytes": self._model["size_bytes"],
            "io": self._opened.get("io"),
            "input": self._opened.get("input"),
            "threads": self._opened.get("threads"),
            "interpreter": self._opened.get("interpreter"),
            "delegate": self._opened.get("delegate"),
            "first_inference_ns": self._first_ns,
            "warmup": self._warmup,
            "count": self.count,
            "late": sum(block["late"] for block in self._blocks),
            "busy_ns": sum(block["wall_ns"] for block in self._blocks),
            "kept_every": self.kept_every,
            "histogram": self._histogram,
            "blocks": self._blocks,
            "memory": {stage: self._memory.get(stage, gone) for stage in STAGES},
        }
        if self.kept_every > 1 and value["histogram"] is None:
            value["histogram_unknown"] = gone["memory_unknown"]
        return value


def verdicts(monitor: Monitor, tallies: Mapping[str, Tally]) -> Tuple[List[str], List[str]]:
    """``(invalid_reasons, warnings)`` that the board itself can tell; the report adds those that need statistics."""
    invalid: List[str] = []
    warnings: List[str] = []
    if monitor.swapped_bytes:
        invalid.append(
            f"{monitor.swapped_bytes / 1e6:.1f} MB of the measured processes were swapped out during the run"
        )
    if monitor.governors_at_start != monitor.governors_now():
        invalid.append(
            f"the cpufreq governor changed during the run: {monitor.governors_at_start} to {monitor.governors_now()}"
        )
    load = monitor.mean_other_load()
    if load is not None and load > BUSY_WARNING:
        warnings.append(f"other processes kept {100 * load:.0f} % of the CPU busy")
    if monitor.throttled:
        warnings.append("the kernel capped the CPU during the run: see events.jsonl")
    for variant, tally in tallies.items():
        if tally.kept_every > 1:
            warnings.append(
                f"{variant}: the latencies were beyond the byte budget; one in {tally.kept_every} is kept, the histogram has all"
            )
    return invalid, warnings
