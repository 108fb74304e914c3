"""What a board is, gathered in one round trip by a shell script, so that a board without Python can be asked too."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from typing import Any

from edgekit.bench.profiles import DeviceProfile, profile_for
from edgekit.errors import LinkError
from edgekit.link.base import Link
from edgekit.push.contact import DEFAULT_HOME
from edgekit.push.wheels import OLDEST_PYTHON, BoardFacts

GATHER_TIMEOUT_S = 30.0
NEWEST_PYTHON = (3, 13)
INTERPRETERS = ("ai_edge_litert", "tflite_runtime", "tensorflow")

Lines = dict[str, list[str]]


@dataclasses.dataclass(frozen=True)
class Python:
    """One Python on the board, with the packages in it that matter (name to version)."""

    command: str
    path: str
    version: tuple[int, int, int]
    bits: int
    packages: dict[str, str]

    @property
    def usable(self) -> bool:
        """Whether edgekit's own code runs on it."""
        return self.version[:2] >= OLDEST_PYTHON

    @property
    def ready(self) -> bool:
        """Whether it has numpy and an interpreter."""
        return "numpy" in self.packages and any(name in self.packages for name in INTERPRETERS)


@dataclasses.dataclass(frozen=True)
class Sensor:
    """Something that can be read on the board, or could: ``reading`` is None when not, and ``reason`` says why, ``fix`` what to type."""

    name: str
    reading: str | None
    reason: str = ""
    fix: str = ""


@dataclasses.dataclass(frozen=True)
class Facts:
    """One board. None and empty stand for what it does not say. Sizes in bytes, clocks in kHz, temperatures in degrees Celsius."""

    name: str
    profile: str
    title: str
    note: str
    hostname: str
    model: str | None
    compatible: tuple[str, ...]
    soc: str | None
    system: str
    kernel: str
    machine: str
    userland_bits: int
    libc: str
    libc_version: tuple[int, int]
    distribution: str | None
    cores: int | None
    clocks_khz: dict[str, dict[str, int]]
    governors: dict[str, str]
    memory_bytes: int | None
    memory_available_bytes: int | None
    swap_bytes: int
    swap_used_bytes: int
    disk_free_bytes: int | None
    home: str
    home_writable: bool
    user: str
    is_root: bool
    groups: tuple[str, ...]
    pythons: tuple[Python, ...]
    environment: str | None
    sensors: tuple[Sensor, ...]
    throttled: int | None
    """The firmware's throttle word of a Raspberry Pi: the lower half holds now, the upper half since boot."""
    power_mode: str | None
    boot_id: str | None
    clock_utc_s: int | None
    apps: dict[str, str]
    pending: tuple[str, ...]
    """Apps whose last push was cut between the switch and the restart."""

    @property
    def python(self) -> Python | None:
        """The newest Python that is used: 3.8 to 3.13, then any later one."""
        usable = sorted((one for one in self.pythons if one.usable), key=lambda one: one.version)
        known = [one for one in usable if one.version[:2] <= NEWEST_PYTHON]
        found = known or usable
        return found[-1] if found else None

    def for_wheels(self, python: Python) -> BoardFacts:
        """What decides on wheels for one of the Pythons."""
        kind = (
            "glibc" if self.libc.lower().startswith(("glibc", "ldd")) else "musl" if "musl" in self.libc else self.libc
        )
        return BoardFacts(self.machine, python.bits or self.userland_bits, python.version[:2], kind, self.libc_version)


def gather(link: Link, *, home: str | None = None) -> Facts:
    """The facts of the board behind ``link``, in one round trip. Raises :class:`LinkError` (``facts_unreadable``) for a board without ``sh``."""
    script = resources.files("edgekit.push").joinpath("facts.sh").read_bytes()
    place = [] if home is None or home == DEFAULT_HOME else [link.absolute(home)]
    done = link.run(["sh", "-s", "--", *place], timeout_s=GATHER_TIMEOUT_S, stdin=script, idempotent=True)
    lines, unreadable = parse(done.stdout.decode("utf-8", "replace"))
    if "end" not in lines:
        raise LinkError(
            f"{link.name} did not say what it is (exit {done.returncode})",
            code="facts_unreadable",
            hint="the board needs a POSIX shell",
            details={"stderr": done.stderr.decode("utf-8", "replace")[-2000:]},
        )
    return as_facts(link.name, lines, unreadable)


def parse(text: str) -> tuple[Lines, set[str]]:
    """The script's facts as lines by name, and the names of what is there and unreadable."""
    lines: Lines = {}
    unreadable = set()
    name = ""
    for line in text.splitlines():
        if line.startswith("@"):
            name = line[1:]
            lines[name] = []
        elif line.startswith("!"):
            unreadable.add(line[1:])
        elif name:
            lines[name].append(line[1:])
    return lines, unreadable


def as_facts(name: str, lines: Lines, unreadable: set[str]) -> Facts:
    """The facts that the script's lines say."""
    profile = profile_for(model=_first(lines, "model"), compatible="\n".join(lines.get("compatible", [])) or None)
    system = [*lines.get("system", []), "", "", ""]
    memory = _sizes(lines.get("meminfo", []))
    disk = lines.get("disk", [])
    libc = _first(lines, "libc") or ""
    version = re.search(r"(\d+)\.(\d+)", libc)
    user = [*lines.get("user", []), "", ""]
    bits = _first(lines, "bits") or ""
    fields = disk[0].split() if disk else []
    return Facts(
        name=name,
        profile=profile.name,
        title=profile.title,
        note=profile.note,
        hostname=_first(lines, "hostname") or "",
        model=_first(lines, "model"),
        compatible=tuple(lines.get("compatible", [])),
        soc=_soc(lines),
        system=system[0],
        kernel=system[1],
        machine=system[2],
        userland_bits=int(bits) if bits.isdigit() else (64 if "64" in system[2] else 32),
        libc=libc,
        libc_version=(int(version[1]), int(version[2])) if version else (0, 0),
        distribution=_named(lines.get("os", []), "PRETTY_NAME"),
        cores=_integer(_first(lines, "cores")),
        clocks_khz=_policies(lines, ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_max_freq")),
        governors={
            key.split(".")[1]: value[0]
            for key, value in lines.items()
            if key.startswith("cpufreq.") and key.endswith(".scaling_governor") and value
        },
        memory_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        swap_bytes=memory.get("SwapTotal", 0),
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        disk_free_bytes=int(fields[3]) * 1024 if len(fields) > 3 and fields[3].isdigit() else None,
        home=_first(lines, "home") or "",
        home_writable="writable" in disk[1:],
        user=user[0],
        is_root=user[1] == "0",
        groups=tuple((_first(lines, "groups") or "").split()),
        pythons=_pythons(lines),
        environment=_environment(lines),
        sensors=_sensors(lines, unreadable, profile, user[0]),
        throttled=throttle_word(lines),
        power_mode=_power_mode(lines),
        boot_id=_first(lines, "boot_id"),
        clock_utc_s=_integer(_first(lines, "time")),
        apps={key[4:]: (value[0].rsplit("/", 1)[-1] if value else "") for key, value in lines.items() if key.startswith("app.")},
        pending=tuple(key[4:] for key, value in lines.items() if key.startswith("app.") and "pending" in value),
    )  # fmt: skip


def throttle_word(lines: Lines) -> int | None:
    """The number in ``throttled=0x50005``, or of the old sysfs file, which is hexadecimal without ``0x``; None when there is none."""
    for line in lines.get("vcgencmd", []):
        match = re.fullmatch(r"throttled=(0x[0-9a-fA-F]+)\s*", line)
        if match:
            return int(match[1], 16)
    word = (_first(lines, "throttled.sysfs") or "").strip()
    return int(word, 16) if re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", word) else None


def _pythons(lines: Lines) -> tuple[Python, ...]:
    found = []
    for key, value in lines.items():
        if not key.startswith("python."):
            continue
        words = dict(line.split(" ", 1) for line in value if " " in line)
        version = tuple(int(part) for part in words.pop("version", "0.0.0").split(".")[:3])
        path, bits = words.pop("path", ""), words.pop("bits", "0")
        found.append(Python(key[7:], path, (version[0], version[1], version[2]), int(bits), words))
    return tuple(found)


def _sensors(lines: Lines, unreadable: set[str], profile: DeviceProfile, user: str) -> tuple[Sensor, ...]:
    found = []
    for key, value in lines.items():
        if key.startswith("zone.") and key.endswith(".type") and value:
            found.append(_zone(value[0], key.replace(".type", ".temp"), lines, unreadable))
        if key.startswith("hwmon.") and key.endswith(".name") and value:
            number = key.split(".")[1]
            inputs = [
                name.split(".")[2]
                for name in lines
                if name.startswith(f"hwmon.{number}.") and not name.endswith(".name")
            ]
            found.append(Sensor(f"hwmon {value[0]}", ", ".join(inputs) or None, "" if inputs else "it has no reading"))
    if profile.throttled_by == "firmware":
        found.append(_firmware(lines, unreadable, user))
    return tuple(found)


def _zone(kind: str, key: str, lines: Lines, unreadable: set[str]) -> Sensor:
    text = _first(lines, key)
    if text is None or not re.fullmatch(r"-?\d+", text):
        return Sensor(
            f"zone {kind}", None, "it is off, or may not be read" if key in unreadable else "it says no number"
        )
    return Sensor(f"zone {kind}", f"{int(text) / 1000:.1f} °C")


def _firmware(lines: Lines, unreadable: set[str], user: str) -> Sensor:
    """Throttling as a Raspberry Pi's firmware tells it; unknown is not "not throttled"."""
    word = throttle_word(lines)
    if word is not None:
        return Sensor("throttle state of the firmware", f"0x{word:x}")
    name = "throttle state of the firmware"
    for device in ("vcio", "vchiq"):
        if f"dev.{device}" in unreadable:
            owner = (_first(lines, f"dev.{device}.owner") or "").split()
            group = owner[2] if len(owner) > 2 else "video"
            if group == "root":
                fix = f"sudo chgrp video /dev/{device} && sudo chmod g+rw /dev/{device} (a udev rule makes it last)"
            else:
                fix = f"sudo usermod -aG {group} {user}, then log in again"
            return Sensor(name, None, f"/dev/{device} may not be read by {user}: it belongs to group {group}", fix)
    said = [line for line in lines.get("vcgencmd", []) if not line.startswith("exit ")]
    if "vcgencmd" in lines:
        ended = next((line for line in lines["vcgencmd"] if line.startswith("exit ")), "")
        slow = "it did not answer within 3 s" if ended == "exit 124" else ""
        return Sensor(
            name,
            None,
            f"vcgencmd: {slow or ' '.join(said)[:200] or ended}",
            "is the firmware's device there? ls -l /dev/vcio",
        )
    return Sensor(
        name, None, "vcgencmd is not installed", "sudo apt-get install raspi-utils (older systems: libraspberrypi-bin)"
    )


def _soc(lines: Lines) -> str | None:
    """The chip: the last compatible name without its maker, else what /proc/cpuinfo says."""
    compatible = lines.get("compatible", [])
    if compatible:
        return compatible[-1].split(",")[-1]
    for line in lines.get("cpuinfo", []):
        key, _, value = line.partition(":")
        if key.strip() in ("Hardware", "model name"):
            return value.strip()
    return None


def _policies(lines: Lines, names: tuple[str, ...]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for key, value in lines.items():
        if key.startswith("cpufreq."):
            _, policy, name = key.split(".", 2)
            if name in names and value and value[0].isdigit():
                found.setdefault(policy, {})[name] = int(value[0])
    return found


def _power_mode(lines: Lines) -> str | None:
    for line in lines.get("nvpmodel", []):
        if "NV Power Mode" in line:
            return line.split(":", 1)[1].strip()
    return None


def _environment(lines: Lines) -> str | None:
    match = re.search(r'"hash": "([0-9a-f]+)"', "\n".join(lines.get("environment", [])))
    return match[1] if match else None


def _sizes(lines: list[str]) -> dict[str, int]:
    found = {}
    for line in lines:
        match = re.match(r"(\w+):\s+(\d+) kB", line)
        if match:
            found[match[1]] = int(match[2]) * 1024
    return found


def _named(lines: list[str], name: str) -> str | None:
    return next((line.split("=", 1)[1].strip("\"'") for line in lines if line.startswith(f"{name}=")), None)


def _first(lines: Lines, name: str) -> str | None:
    value = lines.get(name)
    return value[0] if value and value[0] else None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def facts_table(facts: Facts) -> list[tuple[str, str]]:
    """The facts as rows for people; what is not known is left out."""
    clocks = sorted(
        {limits["cpuinfo_max_freq"] // 1000 for limits in facts.clocks_khz.values() if "cpuinfo_max_freq" in limits}
    )
    rows: list[tuple[str, Any]] = [
        ("board", facts.model or "unknown"),
        ("profile", f"{facts.profile} ({facts.title})"),
        ("note", facts.note),
        ("SoC", facts.soc),
        ("cores", facts.cores),
        ("clock", f"up to {', '.join(map(str, clocks))} MHz" if clocks else None),
        ("governor", ", ".join(sorted(set(facts.governors.values())))),
        ("power mode", facts.power_mode),
        ("memory", _mb(facts.memory_bytes)),
        ("swap", f"{_mb(facts.swap_bytes)}, {_mb(facts.swap_used_bytes)} used" if facts.swap_bytes else "none"),
        (
            "system",
            f"{facts.distribution or facts.system}, kernel {facts.kernel}, {facts.machine}, {facts.userland_bits}-bit",
        ),
        ("libc", facts.libc),
        ("disk free", _mb(facts.disk_free_bytes)),
        ("user", f"{facts.user} ({', '.join(facts.groups)})"),
        *((f"Python {'.'.join(map(str, one.version))}", _packages(one, facts)) for one in facts.pythons),
        ("environment", facts.environment),
        *((sensor.name, sensor.reading or f"unreadable: {sensor.reason}") for sensor in facts.sensors),
        *((f"app {app}", release or "nothing current") for app, release in facts.apps.items()),
    ]
    return [(name, str(value)) for name, value in rows if value]


def _packages(python: Python, facts: Facts) -> str:
    used = " (used)" if python == facts.python else ""
    return f"{python.path}{used}: {', '.join(f'{name} {version}' for name, version in python.packages.items()) or 'no numpy, no interpreter'}"


def _mb(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"
