"""What the board is: ``facts.json`` without the interpreter's part. Standard library only."""

from __future__ import annotations

import os
import platform
import struct
from typing import Any, Callable, Dict, List, Optional

from edgekit.agent.readings import Roots, Unreadable, read_text
from edgekit.agent.sensors.board import BoardSensors
from edgekit.agent.sensors.generic import cpu_limits, governors
from edgekit.values import SCHEMA


def board_facts(roots: Roots, *, sensors: Optional[BoardSensors] = None) -> Dict[str, Any]:
    """The machine's part of ``facts.json``; what could not be read is null, with its reason under ``unknown``.

    ``zone`` is the thermal zone that stands for the board's temperature. ``sensors`` are those that the run uses; made when not given.
    """
    unknown: Dict[str, str] = {}

    def known(what: str, read: Callable[[], Optional[Any]]) -> Optional[Any]:
        try:
            return read()
        except Unreadable as error:
            unknown[what] = str(error)
            return None

    system = os.uname()
    facts: Dict[str, Any] = {
        "schema": SCHEMA,
        "hostname": system.nodename,
        "board_model": known("board_model", lambda: board_model(roots)),
        "kernel": system.release,
        "machine": system.machine,
        "userland_bits": struct.calcsize("P") * 8,
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "cpu_model": known("cpu_model", lambda: cpu_model(roots)),
        "cpu_features": known("cpu_features", lambda: cpu_features(roots)),
        "cpu_mhz": known("cpu_mhz", lambda: cpu_mhz(roots)),
        "memory_total_bytes": known("memory_total_bytes", lambda: memory_total_bytes(roots)),
        "governor": known("governor", lambda: governor(roots)),
        "cpu_limits_khz": cpu_limits(roots),
        "boot_id": known("boot_id", lambda: read_text(os.path.join(roots.proc, "sys/kernel/random/boot_id"))),
        "zone": None,
        "unknown": unknown,
    }
    sensors = sensors or BoardSensors(roots)
    facts["sensors"] = sensors.describe()
    sample = sensors.sample({})
    sensors.start_over()
    facts["zone"] = sensors.zone
    facts["temperature_c"] = sample.temperature_c
    if "temperature" in sample.unknown:
        unknown["temperature"] = sample.unknown["temperature"]
    return facts


def board_model(roots: Roots) -> str:
    """The device tree's name of the board, such as ``Raspberry Pi 5 Model B Rev 1.1``. Raises :class:`Unreadable`."""
    try:
        return read_text(os.path.join(roots.proc, "device-tree/model"))
    except Unreadable:
        return read_text(os.path.join(roots.sys, "firmware/devicetree/base/model"))


def cpu_model(roots: Roots) -> str:
    """The CPU's name as /proc/cpuinfo says it. Raises :class:`Unreadable` where it says none (many ARM kernels)."""
    path = os.path.join(roots.proc, "cpuinfo")
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "cpu model"):
            return value.strip()
    raise Unreadable(f"{path} names no CPU")


_KERNEL_FEATURES = (
    "neon",
    "asimd",
    "asimdhp",
    "asimddp",
    "i8mm",
    "sve",
    "sse4_1",
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
)
"""Instructions that the interpreters' kernels choose by: what an integer model can be fast with."""


def cpu_features(roots: Roots) -> List[str]:
    """Which of the instructions that matter to the kernels this CPU has. Raises :class:`Unreadable`."""
    path = os.path.join(roots.proc, "cpuinfo")
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("Features", "flags"):
            named = set(value.split())
            return [name for name in _KERNEL_FEATURES if name in named]
    raise Unreadable(f"{path} names no features")


def cpu_mhz(roots: Roots) -> float:
    """The clock that cpufreq allows at most, else what /proc/cpuinfo says. Raises :class:`Unreadable`."""
    allowed = [limits["cpuinfo_max_khz"] for limits in cpu_limits(roots).values() if "cpuinfo_max_khz" in limits]
    if allowed:
        return max(allowed) / 1000
    path = os.path.join(roots.proc, "cpuinfo")
    for line in read_text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "cpu MHz":
            try:
                return float(value)
            except ValueError:
                break
    raise Unreadable(f"{path} names no clock, and there is no cpufreq policy")


def memory_total_bytes(roots: Roots) -> int:
    """The memory that the kernel manages. Raises :class:`Unreadable`."""
    path = os.path.join(roots.proc, "meminfo")
    for line in read_text(path).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise Unreadable(f"{path} has no MemTotal")


def governor(roots: Roots) -> str:
    """The cpufreq governor; where policies differ all of them, with the policy's name. Raises :class:`Unreadable`."""
    found = governors(roots)
    if not found:
        raise Unreadable(f"no cpufreq policy under {roots.sys}/devices/system/cpu")
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{policy} {name}" for policy, name in sorted(found.items()))
