"""What slows the board down at this moment, as far as its sensors say so: for the events of a run and its live view.

Signs: a cooling device that caps the CPU has a state above 0; a policy's ``scaling_max_freq`` is below what it was when the run began
(a limit that somebody set before is no throttling); the live bits of a Raspberry Pi's throttle word; an alarm of the supply; the
counters of a Jetson's voltage and current events. A board with none of these is not "not throttled". The verdict over the whole run is
the report's, from the samples. Standard library only.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from edgekit.agent.readings import Roots
from edgekit.agent.sensors.generic import SensorSample, cpu_cooling_devices, cpu_limits
from edgekit.values import ThrottleWord

Event = Tuple[str, str, Dict[str, object]]

_EVENT_CAUSES = {"oc1": "under_voltage", "oc2": "power_cap"}
"""Counters whose every event matters; ``oc3`` counts moments of a millisecond, which the report weighs."""


class ThrottleWatch:
    """Turns samples into "on" and "off" at the moments of change."""

    def __init__(self, roots: Roots) -> None:
        limits = cpu_limits(roots)
        self._limits = limits
        self._at_start = {policy: at["scaling_max_khz"] for policy, at in limits.items() if "scaling_max_khz" in at}
        self._observable = bool(self._at_start) or bool(cpu_cooling_devices(roots))
        self._word: Optional[ThrottleWord] = None
        self._counters: Dict[str, int] = {}
        self.cause: Optional[str] = None

    @property
    def observable(self) -> bool:
        """Whether anything on this board could show throttling."""
        return self._observable

    def limited_before(self) -> List[str]:
        """Policies that were held below the hardware's maximum before the run began, as sentences."""
        said = []
        for policy, limits in self._limits.items():
            top, allowed = limits.get("cpuinfo_max_khz"), self._at_start.get(policy)
            if top is not None and allowed is not None and allowed < top:
                said.append(f"{policy} may run at {allowed // 1000} of {top // 1000} MHz since before the run")
        return said

    def changes(self, sample: SensorSample) -> List[Event]:
        """``(kind, message, facts)`` of the events since the last sample: throttling began, ended, or goes on for another cause."""
        causes = self._causes(sample)
        cause = "under_voltage" if "under_voltage" in causes else next(iter(causes), None)
        if cause == self.cause:
            return []
        events: List[Event] = []
        if self.cause is not None:
            events.append(("throttle_off", "no sensor says any longer that the board is slowed down", {}))
        self.cause = cause
        if cause is not None:
            said = "; ".join(text for texts in causes.values() for text in texts)
            events.append(("throttle_on", f"the board slows down: {said}", {"cause": cause, "causes": causes}))
        return events

    def _causes(self, sample: SensorSample) -> Dict[str, List[str]]:
        """By cause, what says so."""
        found: Dict[str, List[str]] = {}
        self._from_word(sample.more, found)
        hot = [f"{name} {state}" for name, state in sample.cooling_state.items() if state > 0]
        for policy, now in sample.more.get("max_khz", {}).items():
            before = self._at_start.get(policy)
            if before is not None and now < before:
                hot.append(f"{policy} capped to {now // 1000} MHz")
        if hot:
            found.setdefault("thermal", []).append("the kernel caps the CPU: " + ", ".join(sorted(hot)))
        if sample.more.get("alarms", {}).get("under_voltage"):
            found.setdefault("under_voltage", []).append("the kernel's alarm of under-voltage")
        before_counters, self._counters = self._counters, {**self._counters, **sample.more.get("counters", {})}
        for name, cause in _EVENT_CAUSES.items():
            count = self._counters.get(name, 0) - before_counters.get(name, self._counters.get(name, 0))
            if count > 0:
                found.setdefault(cause, []).append(f"{count} more {name} events")
        return found

    def _from_word(self, more: Mapping[str, int], found: Dict[str, List[str]]) -> None:
        """The firmware's live bits; between two looks at them the last ones stand."""
        if "throttle_word" in more:
            self._word = ThrottleWord(more["throttle_word"])
            self._observable = True
        if self._word is not None and self._word.live:
            # Low voltage sets the other bits too: with it they say nothing about heat.
            cause = "under_voltage" if self._word.under_voltage else "thermal"
            found.setdefault(cause, []).append("the firmware says " + ", ".join(self._word.live))
