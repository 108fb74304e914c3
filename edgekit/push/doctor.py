"""What is wrong, or soon will be, with a workstation or a board: findings from facts, each with what to do."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
import time
from pathlib import Path

from edgekit.bench.profiles import load_profile
from edgekit.errors import UsageError
from edgekit.push.facts import Facts
from edgekit.push.wheels import choose_wheel

PROBLEM, WARNING, FINE = "problem", "warning", "fine"
"""A problem keeps edgekit from working there; a warning spoils measurements or will be a problem."""

MIN_FREE_BYTES = 200 << 20
"""The interpreter and numpy take about 120 MB unpacked."""
OLD_KERNEL = (4, 19)
CLOCK_OFF_S = 3600

_LIVE_BITS = ((0x1, "the supply voltage is too low"), (0x2, "the ARM clock is capped"), (0x4, "it is throttled"), (0x8, "the soft temperature limit is active"))  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at: ``level``, what is so, and what to type or do."""

    level: str
    what: str
    said: str
    fix: str = ""


def workstation_findings(*, frontends: int) -> list[Finding]:
    """This machine's. ``frontends`` is how many converter environments are installed."""
    version = sys.version_info[:2]
    found = [
        Finding(FINE, "Python", f"Python {version[0]}.{version[1]}")
        if (3, 11) <= version <= (3, 13)
        else Finding(
            WARNING, "Python", f"Python {version[0]}.{version[1]} is not one of 3.11 to 3.13", "use one of those"
        )
    ]
    if frontends:
        found.append(Finding(FINE, "front ends", f"{frontends} installed"))
    else:
        found.append(
            Finding(
                WARNING,
                "front ends",
                "none is installed: only .tflite files can be converted",
                "edgekit frontend add onnx2tf",
            )
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK):
        found.append(Finding(PROBLEM, "cache", f"{cache} cannot be written", "set XDG_CACHE_HOME to a folder that can"))
    elif free < MIN_FREE_BYTES:
        found.append(Finding(WARNING, "cache", f"the disk of {cache} has {free / 1e6:.0f} MB free", "free some space"))
    else:
        found.append(Finding(FINE, "cache", f"{cache}, {free / 1e9:.1f} GB free"))
    return found


def board_findings(facts: Facts) -> list[Finding]:
    """A board's, the problems first."""
    found = [
        *_python(facts),
        *_disk(facts),
        *_power(facts),
        *_speed(facts),
        *_memory(facts),
        *_sensors(facts),
        *_system(facts),
        *_releases(facts),
    ]
    if facts.note:
        found.append(Finding(FINE, "board", facts.note))
    order = (PROBLEM, WARNING, FINE)
    return sorted(found, key=lambda one: order.index(one.level))


def _python(facts: Facts) -> list[Finding]:
    if not facts.pythons:
        return [Finding(PROBLEM, "Python", "there is none", "sudo apt-get install python3")]
    python = facts.python
    newest = python or max(facts.pythons, key=lambda one: one.version)
    version = ".".join(map(str, newest.version))
    if python is not None and (python.ready or facts.environment):
        return [Finding(FINE, "Python", f"Python {version} with an interpreter")]
    try:
        choice = choose_wheel(facts.for_wheels(newest))
    except UsageError as error:
        return [Finding(PROBLEM, "Python", error.message, error.hint)]
    if choice.numpy_from_system and "numpy" not in newest.packages:
        return [Finding(PROBLEM, "numpy", f"there is no numpy wheel for {choice.machine}, and Python {version} has none", "sudo apt-get install python3-numpy")]  # fmt: skip
    return [Finding(PROBLEM, "interpreter", f"Python {version} has none", f"edgekit device prepare {facts.name} puts {choice.requirement} there")]  # fmt: skip


def _disk(facts: Facts) -> list[Finding]:
    if not facts.home_writable:
        return [Finding(PROBLEM, "home", f"{facts.home} cannot be written", "is the card mounted read-only? dmesg | tail; sudo mount -o remount,rw /")]  # fmt: skip
    if facts.disk_free_bytes is not None and facts.disk_free_bytes < MIN_FREE_BYTES:
        return [Finding(WARNING, "disk", f"{facts.disk_free_bytes / 1e6:.0f} MB are free", "sudo apt-get clean; edgekit's own files go with: edgekit device remove NAME --purge".replace("NAME", facts.name))]  # fmt: skip
    free = "unknown" if facts.disk_free_bytes is None else f"{facts.disk_free_bytes / 1e6:.0f} MB free"
    return [Finding(FINE, "disk", free)]


def _power(facts: Facts) -> list[Finding]:
    if facts.throttled is None:
        return []
    word = facts.throttled
    supply = "use the board's own supply and a short, thick cable; take USB devices off"
    cooling = "cool it: a fan or a metal case"
    found = [
        Finding(WARNING, "power" if bit == 1 else "throttling", f"{said} now", supply if word & 1 else cooling)
        for bit, said in _LIVE_BITS
        if word & bit
    ]
    past = [said.replace(" is ", " was ") for bit, said in _LIVE_BITS if word & (bit << 16) and not word & bit]
    if past:
        found.append(Finding(WARNING, "power", f"since boot: {', '.join(past)}", supply if word & 0x10000 else cooling))
    return found or [Finding(FINE, "power", "no under-voltage and no throttling since boot")]


def _speed(facts: Facts) -> list[Finding]:
    found = []
    slow = sorted({name for name in facts.governors.values() if name not in ("performance", "schedutil", "ondemand")})
    if slow:
        fix = "echo ondemand | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
        found.append(Finding(WARNING, "governor", f"the clock is held by the governor {', '.join(slow)}", fix))
    elif facts.governors:
        found.append(Finding(FINE, "governor", ", ".join(sorted(set(facts.governors.values())))))
    for policy, limits in sorted(facts.clocks_khz.items()):
        top, allowed = limits.get("cpuinfo_max_freq", 0), limits.get("scaling_max_freq", 0)
        if 0 < allowed < top:
            found.append(Finding(WARNING, "clock", f"{policy} is limited to {allowed // 1000} of {top // 1000} MHz", f"echo {top} | sudo tee /sys/devices/system/cpu/cpufreq/{policy}/scaling_max_freq"))  # fmt: skip
    return found


def _memory(facts: Facts) -> list[Finding]:
    if facts.swap_used_bytes > 50 << 20:
        return [Finding(WARNING, "swap", f"{facts.swap_used_bytes / 1e6:.0f} MB are swapped out: a run that swaps is invalid", "end what is not needed there")]  # fmt: skip
    return []


def _sensors(facts: Facts) -> list[Finding]:
    blind = [one for one in facts.sensors if one.reading is None and one.fix]
    found = [Finding(WARNING, one.name, f"unknown: {one.reason}", one.fix) for one in blind]
    if not any(one.name.startswith("zone ") and one.reading for one in facts.sensors):
        found.append(
            Finding(WARNING, "temperature", "no thermal zone can be read: throttling by heat will not be seen")
        )
    return found


def _system(facts: Facts) -> list[Finding]:
    found = []
    match = re.match(r"(\d+)\.(\d+)", facts.kernel)
    if match and (int(match[1]), int(match[2])) < OLD_KERNEL:
        found.append(Finding(WARNING, "kernel", f"{facts.kernel} is older than 4.19: memory peaks and some sensors may be missing", "a newer system release"))  # fmt: skip
    if facts.userland_bits == 32 and facts.machine == "aarch64":
        found.append(Finding(WARNING, "system", "a 32-bit system on a 64-bit kernel: inference is slower, and wheels are fewer", "a 64-bit system"))  # fmt: skip
    if facts.clock_utc_s is not None and abs(facts.clock_utc_s - time.time()) > CLOCK_OFF_S:
        days = (facts.clock_utc_s - time.time()) / 86400
        found.append(Finding(WARNING, "clock", f"the board's clock is {abs(days):.0f} days {'ahead' if days > 0 else 'behind'}: nothing here depends on it, logs will", "sudo timedatectl set-ntp true"))  # fmt: skip
    profile = load_profile(facts.profile)
    if facts.power_mode and facts.profile.startswith("jetson") and "MAXN" not in facts.power_mode.upper():
        found.append(Finding(WARNING, "power mode", f"{profile.title} is in mode {facts.power_mode}, not its fastest", "sudo nvpmodel -m 0"))  # fmt: skip
    return found


def _releases(facts: Facts) -> list[Finding]:
    return [
        Finding(
            WARNING,
            f"app {app}",
            "its last push was cut between the switch and the restart",
            f"edgekit rollback --device {facts.name} --app {app}, or push again: both put it right first",
        )  # fmt: skip
        for app in facts.pending
    ]
