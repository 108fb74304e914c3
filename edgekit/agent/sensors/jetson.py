"""A Jetson's own sensors: the GPU, the power rails, the counters of current and voltage events, the power mode.

Nothing is ever written: the limits of the power monitor and the switches beside the counters protect the board. Sources: NVIDIA's
Jetson Linux developer guide (power and thermal management, for each release), the kernel's documentation of ina3221 and devfreq.
Standard library only.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Callable, Dict, List, Optional, Tuple

from edgekit.agent.readings import Roots, Unreadable, numbered, read_text
from edgekit.agent.sensors.sensor import CommandSensor, FileSensor, SensorSet, bounded, counter, flag, khz_of_hz

_GPU_NODES = ("gpu", "gv11b", "gp10b", "gm20b", "ga10b", "gb10b")
"""What the device tree calls the GPU on each generation."""

_GPU_LOADS = (
    "devices/gpu.0/load",
    "devices/platform/gpu.0/load",
    "devices/17000000.gv11b/load",
    "devices/platform/17000000.ga10b/load",
)

_TOTAL_RAILS = ("VDD_IN", "POM_5V_IN", "POM_5V_IN_VDD", "SYS_VIN_HV")
"""The rail that everything is fed from; without one of these the rails overlap or leave something out, and are not added up."""

_MODE = re.compile(r"NV Power Mode:\s*(\S+)")

_milliwatts = bounded(0, 200, scale=1e-3, unit="W")
_millivolts = bounded(0, 60_000, unit="mV")
_milliamperes = bounded(0, 60_000, unit="mA")


def sensor_set(roots: Roots) -> SensorSet:
    """The sensors of this Jetson."""
    found = SensorSet("jetson")
    _gpu(roots, found)
    rails = _iio_rails(roots) or _hwmon_rails(roots)
    for name, sensor in rails.items():
        found.files.append(sensor)
        if name in _TOTAL_RAILS:
            found.files.append(FileSensor("power_w", sensor.where, sensor.parse))
    if not rails:
        found.unknown["power_w"] = f"no INA3221 power monitor under {roots.sys}/bus/i2c/drivers"
    found.files += _current_alarms(roots) + _event_counters(roots)
    nvpmodel = roots.command("nvpmodel")
    if nvpmodel is None:
        found.unknown["power_mode"] = "there is no nvpmodel"
    else:
        found.commands.append(
            CommandSensor("settings.power_mode", (nvpmodel, "-q"), power_mode, every_s=10.0, cpu_share=0.001)
        )
    return found


def power_mode(text: str) -> str:
    """``MAXN (0)`` of ``NV Power Mode: MAXN`` and the mode's number in the line under it."""
    match = _MODE.search(text)
    if match is None:
        raise Unreadable(f"nvpmodel says {text.strip()[:80]!r}")
    number = re.search(r"^\s*(\d+)\s*$", text, re.MULTILINE)
    return f"{match.group(1)} ({number.group(1)})" if number else match.group(1)


def gpu_load(text: str) -> float:
    """A share of 0 to 1 from the kernel's 0 to 1000."""
    return round(bounded(0, 1, scale=1e-3)(text), 4)


def watts(millivolts: str, milliamperes: str) -> float:
    """Watts of a rail from its mV and mA."""
    return round(_millivolts(millivolts) * _milliamperes(milliamperes) / 1e6, 4)


def rail_watts(milliwatts: str) -> float:
    """Watts from a JetPack 4 rail's mW."""
    return round(_milliwatts(milliwatts), 4)


def _gpu(roots: Roots, found: SensorSet) -> None:
    folder = _gpu_folder(roots)
    loads = [] if folder is None else [os.path.join(folder, "device", "load")]
    loads += [os.path.join(roots.sys, path) for path in _GPU_LOADS]
    load = next((path for path in loads if os.path.exists(path)), None)
    if load is None:
        found.unknown["gpu_load"] = f"no load of the GPU under {roots.sys}/devices"
    else:
        found.files.append(FileSensor("gpu_load", (load,), gpu_load))
    if folder is None:
        found.unknown["gpu_khz"] = f"no GPU under {roots.sys}/class/devfreq"
        return
    found.files.append(FileSensor("gpu_khz", (os.path.join(folder, "cur_freq"),), khz_of_hz))
    for name in ("min_freq", "max_freq"):
        found.settings.append(FileSensor(f"gpu_{name[:3]}_khz", (os.path.join(folder, name),), khz_of_hz))


def _gpu_folder(roots: Roots) -> Optional[str]:
    folder = os.path.join(roots.sys, "class", "devfreq")
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return None
    for entry in entries:
        path = os.path.join(folder, entry)
        try:
            node = read_text(os.path.join(path, "device", "of_node", "name"))
        except Unreadable:
            node = entry.rpartition(".")[2]
        if node in _GPU_NODES:
            return path
    return None


def _iio_rails(roots: Roots) -> Dict[str, FileSensor]:
    """JetPack 4: the monitor is an iio device that gives the power of each rail in mW."""
    rails: Dict[str, FileSensor] = {}
    for folder in sorted(glob.glob(os.path.join(roots.sys, "bus/i2c/drivers/ina3221x/*/iio:device*"))):
        for entry in numbered(folder, "rail_name_"):
            number = entry[len("rail_name_") :]
            name = _rail_name(os.path.join(folder, entry))
            if name:
                path = os.path.join(folder, f"in_power{number}_input")
                rails[name] = FileSensor(f"rails_w.{name}", (path,), rail_watts)
    return rails


def _hwmon_rails(roots: Roots) -> Dict[str, FileSensor]:
    """JetPack 5 and later: the monitor is a hwmon device with volts and amperes of each rail; power is their product."""
    rails: Dict[str, FileSensor] = {}
    for folder, number, name in _hwmon_channels(roots):
        paths = (os.path.join(folder, f"in{number}_input"), os.path.join(folder, f"curr{number}_input"))
        rails[name] = FileSensor(f"rails_w.{name}", paths, watts)
    return rails


def _hwmon_channels(roots: Roots) -> List[Tuple[str, str, str]]:
    """``(folder, number, rail)`` of each channel that measures a rail; the seventh only sums up shunt voltages."""
    channels = []
    for folder in sorted(glob.glob(os.path.join(roots.sys, "bus/i2c/drivers/ina3221/*/hwmon/hwmon*"))):
        for number in ("1", "2", "3"):
            name = _rail_name(os.path.join(folder, f"in{number}_label"))
            if name:
                channels.append((folder, number, name))
    return channels


def _rail_name(path: str) -> str:
    """The rail's label; empty for a channel that is not connected or has none."""
    try:
        name = read_text(path)
    except Unreadable:
        return ""
    return "" if "NC" in name.split("_") or name == "NC" or "sum of shunt" in name else name.replace(".", "_")


def _current_alarms(roots: Roots) -> List[FileSensor]:
    sensors = []
    for folder, number, name in _hwmon_channels(roots):
        for level in ("max", "crit"):
            path = os.path.join(folder, f"curr{number}_{level}_alarm")
            if os.path.exists(path):
                sensors.append(FileSensor(f"alarms.current_{level}_{name}", (path,), flag))
    return sensors


def _event_counters(roots: Roots) -> List[FileSensor]:
    """OC1 is a voltage of the input too low, OC2 an average current too high, OC3 a momentary one: each halves the clock for a moment."""
    folder = os.path.join(roots.sys, "class", "hwmon")
    for entry in numbered(folder, "hwmon"):
        path = os.path.join(folder, entry)
        try:
            if read_text(os.path.join(path, "name")) != "soctherm_oc":
                continue
        except Unreadable:
            continue
        names = [f"oc{number}" for number in (1, 2, 3)]
        parse: Callable[[str], int] = counter
        return [
            FileSensor(f"counters.{name}", (os.path.join(path, f"{name}_event_cnt"),), parse)
            for name in names
            if os.path.exists(os.path.join(path, f"{name}_event_cnt"))
        ]
    return []
