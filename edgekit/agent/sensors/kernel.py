"""What any kernel may show of clocks and pressure beside the plain readings, and what is set rather than measured.

Formats: the kernel's documentation of cpufreq (``cpuinfo_cur_freq`` is asked of the hardware, ``scaling_max_freq`` is what the cooling
lets the clock reach, ``stats/time_in_state`` counts hundredths of a second in each clock) and of pressure stall information.
Standard library only.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List

from edgekit.agent.readings import Roots, Unreadable, numbered, read_int, read_text
from edgekit.agent.sensors.sensor import FileSensor, SensorSet, khz

RESIDENCY_EVERY_S = 10.0

_SOME_TOTAL = re.compile(r"^some .*total=(\d+)$", re.MULTILINE)


def sensor_set(roots: Roots) -> SensorSet:
    """The sensors that this kernel has."""
    found = SensorSet("generic")
    folder = os.path.join(roots.sys, "devices", "system", "cpu", "cpufreq")
    for policy in numbered(folder, "policy"):
        _clocks(os.path.join(folder, policy), policy, found)
    for what in ("cpu", "memory"):
        path = os.path.join(roots.proc, "pressure", what)
        if os.path.exists(path):
            found.files.append(FileSensor(f"pressure_us.{what}", (path,), stalled_us))
    boot = os.path.join(roots.proc, "sys/kernel/random/boot_id")
    if os.path.exists(boot):
        found.settings.append(FileSensor("boot_id", (boot,), str))
    trips = passive_trips(roots)
    if trips:
        found.facts["trips_c"] = trips
    return found


def stalled_us(text: str) -> int:
    """Microseconds since boot in which some process had to wait (``some ... total=``)."""
    match = _SOME_TOTAL.search(text)
    if match is None:
        raise Unreadable(f"the pressure file says {text[:60]!r}")
    return int(match.group(1))


def time_in_state(text: str) -> Dict[str, int]:
    """Hundredths of a second in each clock (kHz)."""
    found = {}
    for line in text.splitlines():
        clock, _, ticks = line.partition(" ")
        try:
            found[str(khz(clock))] = int(ticks)
        except ValueError as error:
            raise Unreadable(f"time_in_state says {line[:40]!r}") from error
    return found


def passive_trips(roots: Roots) -> Dict[str, float]:
    """By thermal zone, the lowest temperature in degrees from which the kernel slows something down to cool the zone."""
    folder = os.path.join(roots.sys, "class", "thermal")
    trips: Dict[str, float] = {}
    for entry in numbered(folder, "thermal_zone"):
        path = os.path.join(folder, entry)
        number = 0
        while os.path.exists(os.path.join(path, f"trip_point_{number}_type")):
            try:
                kind = read_text(os.path.join(path, f"trip_point_{number}_type"))
                celsius = read_int(os.path.join(path, f"trip_point_{number}_temp")) / 1000.0
                if kind == "passive" and 30.0 <= celsius <= 125.0:
                    zone = read_text(os.path.join(path, "type"))
                    trips[zone] = min(celsius, trips.get(zone, celsius))
            except Unreadable:
                pass
            number += 1
    return trips


def _clocks(path: str, policy: str, found: SensorSet) -> None:
    def add(sensors: List[FileSensor], key: str, name: str, every_s: float = 0.0) -> None:
        where = os.path.join(path, name)
        if os.path.exists(where):
            parse = time_in_state if key == "time_in_state" else str if key == "governor" else khz
            sensors.append(FileSensor(f"{key}.{policy}", (where,), parse, every_s))

    add(found.files, "max_khz", "scaling_max_freq")
    add(found.files, "time_in_state", "stats/time_in_state", RESIDENCY_EVERY_S)
    add(found.settings, "governor", "scaling_governor")
    add(found.settings, "min_khz", "scaling_min_freq")
    try:
        read_int(os.path.join(path, "cpuinfo_cur_freq"))
        add(found.files, "real_khz", "cpuinfo_cur_freq")
    except Unreadable as error:
        found.unknown["real_khz"] = str(error)
