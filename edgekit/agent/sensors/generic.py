"""The sensors that every Linux board has: thermal zones, cpufreq policies, cooling devices, /proc.

Paths and units are those of the kernel's documentation (Documentation/ABI/testing/sysfs-class-thermal, admin-guide/pm/cpufreq,
filesystems/proc): millidegrees Celsius, kHz, clock ticks. Standard library only.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit.agent.readings import Roots, Unreadable, numbered, read_int, read_text

PLAUSIBLE_C = (-20.0, 125.0)
"""A silicon sensor beyond this is off, faulty or a constant: a Jetson's powered-down zones read -256."""

_ZONE_ORDER = (r"^tj", r"soc|package|pkg", r"cpu", r"bigcore", r"core")
"""Types of zones that stand for the die that computes, best first (``tj`` is a Jetson's hottest junction)."""

_NOT_THE_DIE = re.compile(r"pmic|bat|charger|fan-est", re.IGNORECASE)
"""Zones that are no silicon we heat; a Jetson Nano's PMIC zone is a constant 100 degrees."""

_CAPS_THE_CPU = re.compile(r"cpufreq|^processor$|powerclamp", re.IGNORECASE)
"""Cooling devices that slow the CPU down (a fan is a cooling device too, and slows nothing)."""


@dataclasses.dataclass(frozen=True)
class Zone:
    """One thermal zone: ``name`` is its type, with the zone's number behind it where several share the type."""

    name: str
    path: str


@dataclasses.dataclass(frozen=True)
class SensorSample:
    """What could be read at one moment; what could not is in ``unknown`` with the reason."""

    temperature_c: Optional[float]
    zones_c: Dict[str, float]
    cpu_khz: Dict[str, int]
    cooling_state: Dict[str, int]
    rss_bytes: Dict[str, int]
    swapped_bytes: int
    cpu_busy_other: Optional[float]
    unknown: Dict[str, str]
    more: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """What this board's own sensors say beside, by the name it has in ``samples.jsonl``."""


class GenericSensors:
    """Reads one board's sensors again and again.

    ``zone_types`` are types of thermal zones to prefer, best first (from the board's profile).
    """

    def __init__(self, roots: Roots, *, zone_types: Sequence[str] = ()) -> None:
        self._roots = roots
        self._zone_types = tuple(zone_types)
        self._zones = find_zones(roots)
        self._policies = _policies(roots)
        self._cooling = cpu_cooling_devices(roots)
        self._chosen: Optional[Zone] = None
        self._cpu_before: Optional[Tuple[int, int, int]] = None

    @property
    def zone(self) -> Optional[str]:
        """Name of the zone that stands for the board's temperature, once one could be read."""
        return self._chosen.name if self._chosen else None

    def sample(self, processes: Mapping[str, int]) -> SensorSample:
        """One reading. ``processes`` are the measured ones (variant to pid): their memory, and load that is not "other"."""
        unknown: Dict[str, str] = {}
        zones, reasons = self._read_zones()
        temperature = self._temperature(zones, reasons, unknown)
        resident, swapped = self._memory(processes, unknown)
        return SensorSample(
            temperature_c=temperature,
            zones_c={zone.name: celsius for zone, celsius in zones},
            cpu_khz=self._frequencies(unknown),
            cooling_state=self._cooling_states(unknown),
            rss_bytes=resident,
            swapped_bytes=swapped,
            cpu_busy_other=self._other_load(processes, unknown),
            unknown=unknown,
        )

    def _read_zones(self) -> Tuple[List[Tuple[Zone, float]], Dict[str, str]]:
        zones: List[Tuple[Zone, float]] = []
        reasons: Dict[str, str] = {}
        for zone in self._zones:
            try:
                celsius = read_int(os.path.join(zone.path, "temp")) / 1000.0
            except Unreadable as error:
                reasons[zone.name] = str(error)
                continue
            if PLAUSIBLE_C[0] <= celsius <= PLAUSIBLE_C[1]:
                zones.append((zone, celsius))
            else:
                reasons[zone.name] = f"{zone.name} reads {celsius:g} degrees, which no working sensor does"
        return zones, reasons

    def _temperature(
        self, zones: List[Tuple[Zone, float]], reasons: Mapping[str, str], unknown: Dict[str, str]
    ) -> Optional[float]:
        if self._chosen is None:
            self._chosen = choose_zone(zones, self._zone_types)
        for zone, celsius in zones:
            if zone == self._chosen:
                return celsius
        if self._chosen is not None:
            # Another zone would make a step in the curve that no heat made.
            unknown["temperature"] = reasons.get(self._chosen.name, f"zone {self._chosen.name} vanished")
        elif reasons:
            unknown["temperature"] = "; ".join(reasons.values())
        else:
            unknown["temperature"] = f"no thermal zone under {self._roots.sys}/class/thermal"
        return None

    def _frequencies(self, unknown: Dict[str, str]) -> Dict[str, int]:
        khz: Dict[str, int] = {}
        for policy, path in self._policies:
            try:
                khz[policy] = read_int(os.path.join(path, "scaling_cur_freq"))
            except Unreadable as error:
                unknown["cpu_khz"] = str(error)
        if not self._policies:
            unknown["cpu_khz"] = f"no cpufreq policy under {self._roots.sys}/devices/system/cpu"
        return khz

    def _cooling_states(self, unknown: Dict[str, str]) -> Dict[str, int]:
        states: Dict[str, int] = {}
        for name, path in self._cooling:
            try:
                states[name] = read_int(os.path.join(path, "cur_state"))
            except Unreadable as error:
                unknown["cooling_state"] = str(error)
        return states

    def _memory(self, processes: Mapping[str, int], unknown: Dict[str, str]) -> Tuple[Dict[str, int], int]:
        """Resident bytes of each process, and what is swapped out of all of them."""
        resident: Dict[str, int] = {}
        swapped = 0
        for variant, pid in processes.items():
            path = f"{self._roots.proc}/{pid}/status"
            try:
                sizes = dict(line.split(":", 1) for line in read_text(path).splitlines() if line.startswith("Vm"))
                resident[variant] = int(sizes["VmRSS"].split()[0]) * 1024
                swapped += int(sizes.get("VmSwap", "0").split()[0]) * 1024
            except Unreadable as error:
                unknown["rss_bytes"] = str(error)
            except (KeyError, ValueError):
                unknown["rss_bytes"] = f"{path} has no VmRSS"
        return resident, swapped

    def _other_load(self, processes: Mapping[str, int], unknown: Dict[str, str]) -> Optional[float]:
        """Share of all cores (0 to 1) that others kept busy since the last sample; None the first time."""
        try:
            busy, total = machine_ticks(self._roots)
            own = process_ticks(self._roots, os.getpid()) + sum(
                process_ticks(self._roots, pid) for pid in processes.values()
            )
        except Unreadable as error:
            unknown["cpu_busy_other"] = str(error)
            self._cpu_before = None
            return None
        before, self._cpu_before = self._cpu_before, (busy, total, own)
        if before is None or total <= before[1] or own < before[2]:
            unknown["cpu_busy_other"] = "needs two samples"
            return None
        others = (busy - before[0]) - (own - before[2])
        return min(1.0, max(0.0, others / (total - before[1])))


def find_zones(roots: Roots) -> List[Zone]:
    """The thermal zones of the board, without those that are no silicon (batteries, power chips)."""
    folder = os.path.join(roots.sys, "class", "thermal")
    found: List[Tuple[str, str]] = []
    for entry in numbered(folder, "thermal_zone"):
        try:
            kind = read_text(os.path.join(folder, entry, "type"))
        except Unreadable:
            kind = entry
        if not _NOT_THE_DIE.search(kind):
            found.append((kind, os.path.join(folder, entry)))
    kinds = [kind for kind, _ in found]
    return [
        Zone(kind if kinds.count(kind) == 1 else "{}:{}".format(kind, path.rsplit("thermal_zone", 1)[1]), path)
        for kind, path in found
    ]


def choose_zone(zones: Sequence[Tuple[Zone, float]], preferred: Sequence[str] = ()) -> Optional[Zone]:
    """The zone that stands for the die: by the profile, else by its type, else the hottest of those that can be read."""
    for kind in preferred:
        for zone, _ in zones:
            if zone.name == kind or zone.name.startswith(kind + ":"):
                return zone
    for pattern in _ZONE_ORDER:
        matching = [(celsius, zone) for zone, celsius in zones if re.search(pattern, zone.name, re.IGNORECASE)]
        if matching:
            return max(matching, key=lambda pair: pair[0])[1]
    return max(zones, key=lambda pair: pair[1])[0] if zones else None


def cpu_cooling_devices(roots: Roots) -> List[Tuple[str, str]]:
    """Name and path of the cooling devices that slow the CPU down."""
    folder = os.path.join(roots.sys, "class", "thermal")
    devices = []
    for entry in numbered(folder, "cooling_device"):
        path = os.path.join(folder, entry)
        try:
            kind = read_text(os.path.join(path, "type"))
        except Unreadable:
            continue
        if _CAPS_THE_CPU.search(kind):
            devices.append(("{}:{}".format(kind, entry[len("cooling_device") :]), path))
    return devices


def cpu_limits(roots: Roots) -> Dict[str, Dict[str, int]]:
    """Per cpufreq policy what is readable of ``cpuinfo_min_khz``, ``cpuinfo_max_khz``, ``scaling_min_khz`` and ``scaling_max_khz``."""
    limits: Dict[str, Dict[str, int]] = {}
    for policy, path in _policies(roots):
        limits[policy] = {}
        for name in ("cpuinfo_min", "cpuinfo_max", "scaling_min", "scaling_max"):
            try:
                limits[policy][name + "_khz"] = read_int(os.path.join(path, name + "_freq"))
            except Unreadable:
                continue
    return limits


def governors(roots: Roots) -> Dict[str, str]:
    """The cpufreq governor of each policy that says one."""
    found = {}
    for policy, path in _policies(roots):
        try:
            found[policy] = read_text(os.path.join(path, "scaling_governor"))
        except Unreadable:
            continue
    return found


def machine_ticks(roots: Roots) -> Tuple[int, int]:
    """Busy and total clock ticks of all CPUs since boot. Raises :class:`Unreadable`."""
    path = os.path.join(roots.proc, "stat")
    fields = read_text(path).split("\n", 1)[0].split()
    try:
        # user nice system idle iowait irq softirq steal; guest time is in user already.
        ticks = [int(field) for field in fields[1:9]]
        idle = ticks[3] + ticks[4]
    except (IndexError, ValueError) as error:
        raise Unreadable(f"{path}: first line is {fields!r}") from error
    return sum(ticks) - idle, sum(ticks)


def process_ticks(roots: Roots, pid: int) -> int:
    """CPU ticks (user and system, all threads, and children that have ended) of a process. Raises :class:`Unreadable`."""
    path = f"{roots.proc}/{pid}/stat"
    text = read_text(path)
    try:
        # The name in parentheses may hold blanks; utime, stime, cutime and cstime are fields 14 to 17.
        fields = text.rsplit(")", 1)[1].split()
        return sum(int(field) for field in fields[11:15])
    except (IndexError, ValueError) as error:
        raise Unreadable(f"{path}: cannot be understood") from error


def _policies(roots: Roots) -> List[Tuple[str, str]]:
    folder = os.path.join(roots.sys, "devices", "system", "cpu", "cpufreq")
    return [(name, os.path.join(folder, name)) for name in numbered(folder, "policy")]


def sample_as_json(sample: SensorSample, t_s: float) -> Dict[str, Any]:
    """One line of ``samples.jsonl``."""
    return {
        "t_s": round(t_s, 3),
        "temperature_c": sample.temperature_c,
        "zones": sample.zones_c,
        "cpu_khz": sample.cpu_khz,
        "rss_bytes": sample.rss_bytes,
        "swapped_bytes": sample.swapped_bytes,
        "cpu_busy_other": None if sample.cpu_busy_other is None else round(sample.cpu_busy_other, 4),
        "cooling_state": sample.cooling_state,
        **sample.more,
        "unknown": sample.unknown,
    }
