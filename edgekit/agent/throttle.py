"""When the kernel slows the CPU down to cool it: what generic Linux shows of it.

Two signs: a cooling device that caps the CPU has a state above 0, or a policy's ``scaling_max_freq`` is below the hardware's maximum
and below what it was when the run began (a limit that somebody set before is no throttling). A board whose firmware slows the CPU
down on its own (a Raspberry Pi) shows neither: no sign is not "not throttled". Standard library only.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from edgekit.agent.readings import Roots
from edgekit.agent.sensors.generic import cpu_cooling_devices, cpu_limits


class ThrottleWatch:
    """Turns readings into "on" and "off" at the moments of change."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._at_start = {
            policy: limits["scaling_max_khz"]
            for policy, limits in cpu_limits(roots).items()
            if "scaling_max_khz" in limits
        }
        self.observable = bool(self._at_start) or bool(cpu_cooling_devices(roots))
        self._throttled = False

    def limited_before(self) -> List[str]:
        """Policies that were held below the hardware's maximum before the run began, as sentences."""
        said = []
        for policy, limits in cpu_limits(self._roots).items():
            top, allowed = limits.get("cpuinfo_max_khz"), self._at_start.get(policy)
            if top is not None and allowed is not None and allowed < top:
                said.append(f"{policy} may run at {allowed // 1000} of {top // 1000} MHz since before the run")
        return said

    def change(self, cooling_state: Mapping[str, int]) -> Optional[Tuple[str, str, Dict[str, object]]]:
        """``(kind, message, facts)`` of an event when throttling began or ended since the last call, else None."""
        causes: Dict[str, object] = {name: state for name, state in cooling_state.items() if state > 0}
        for policy, limits in cpu_limits(self._roots).items():
            now, before = limits.get("scaling_max_khz"), self._at_start.get(policy)
            if now is not None and before is not None and now < before:
                causes[policy + "_max_khz"] = now
        throttled = bool(causes)
        if throttled == self._throttled:
            return None
        self._throttled = throttled
        if not throttled:
            return "throttle_off", "the kernel no longer caps the CPU", {}
        said = ", ".join(f"{name} {value}" for name, value in sorted(causes.items()))
        return "throttle_on", "the kernel caps the CPU: " + said, {"causes": causes}
