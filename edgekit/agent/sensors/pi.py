"""A Raspberry Pi's own sensors: what its firmware says about supply, heat and the real clock.

The throttle word has two sources that differ. ``vcgencmd get_throttled`` prints ``throttled=0x50005``: the lower half is now, the
upper half since the board started. The kernel's old file holds bare hexadecimal digits (``50005``), and its upper half is what
happened since the driver's last look, two seconds ago; it was removed from the kernel in 2025, and reading it where it still exists
prints a warning to the kernel's log, so it is asked last. ``scaling_cur_freq`` is what the kernel wishes; the clock that the firmware
gives is ``vcgencmd measure_clock arm``. Sources: raspberrypi/documentation (vcgencmd, frequency management), raspberrypi/linux issue
2367 and pull request 6697, drivers/hwmon/raspberrypi-hwmon.c. Standard library only.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional

from edgekit.agent.readings import Roots, Unreadable, command_text, group_fix, numbered, read_text
from edgekit.agent.sensors.sensor import CommandSensor, FileSensor, SensorSet, flag

SYSFS_WORD = "devices/platform/soc/soc:firmware/get_throttled"

_INSTALL = "install Raspberry Pi's utilities: sudo apt install raspi-utils (older systems: libraspberrypi-bin)"
_NO_DEVICE = re.compile(r"can't open device file|vchi initiali[sz]ation failed|failed to open vchiq", re.IGNORECASE)
_CLOCK = re.compile(r"^frequency\(\d+\)=(\d+)$")
_ADC = re.compile(r"^\s*(\w+)_([AV])\s+(?:current|volt)\(\d+\)=(-?\d+(?:\.\d+)?)([AV])\s*$")


def sensor_set(roots: Roots) -> SensorSet:
    """The sensors of this Pi that answer; asks the firmware once to know."""
    found = SensorSet("raspberry-pi")
    vcgencmd = roots.command("vcgencmd")
    word = _word_source(roots, vcgencmd, found)
    found.facts["throttle_source"] = word
    if vcgencmd is not None and word == "vcgencmd":
        # The word at 1 Hz: a short drop of the supply must not fall between two looks.
        found.commands += [
            CommandSensor("throttle_word", (vcgencmd, "get_throttled"), throttle_word, every_s=1.0, cpu_share=0.004),
            CommandSensor("real_khz.arm", (vcgencmd, "measure_clock", "arm"), clock_khz, every_s=2.0, cpu_share=0.0015),
        ]
        _pmic(vcgencmd, found)
    elif word == "sysfs":
        found.files.append(FileSensor("throttle_word", (os.path.join(roots.sys, SYSFS_WORD),), sysfs_word, every_s=1.0))
    found.files += _under_voltage_alarm(roots)
    return found


def throttle_word(text: str) -> int:
    """The word in ``throttled=0x50005``. Raises :class:`Unreadable` with the text when it holds none."""
    match = re.fullmatch(r"(?:throttled=)?0x([0-9a-fA-F]{1,8})", text.strip())
    if match is None:
        raise refused(text)
    return int(match.group(1), 16)


def sysfs_word(text: str) -> int:
    """The word in the kernel's bare hexadecimal ``50005``; ``80008`` are digits of sixteen, not of ten."""
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,8})", text.strip())
    if match is None:
        raise Unreadable(f"get_throttled says {text[:80]!r}, which is no throttle word")
    return int(match.group(1), 16)


def clock_khz(text: str) -> int:
    """The clock in ``frequency(48)=1500345728`` (Hz; the number in brackets differs between boards), rounded to kHz."""
    match = _CLOCK.match(text.strip())
    if match is None:
        raise refused(text)
    value = round(int(match.group(1)) / 1000)
    if not 1_000 <= value <= 10_000_000:
        raise Unreadable(f"measure_clock says {value} kHz, which cannot be")
    return value


def pmic_power(text: str) -> Dict[str, Any]:
    """The rails in ``pmic_read_adc`` (Pi 5), ``power_w`` their sum, and ``input_v`` what the supply gives.

    A rail's power is its volts times its amperes. EXT5V has no current of its own, so the sum is what the processor's side draws:
    USB devices and the 5 V pins are not in it.
    """
    values: Dict[str, Dict[str, float]] = {"A": {}, "V": {}}
    for line in text.splitlines():
        match = _ADC.match(line)
        if match is not None and match.group(2) == match.group(4):
            value = float(match.group(3))
            if not 0 <= value <= 30:
                raise Unreadable(f"pmic_read_adc says {line.strip()!r}, which cannot be")
            values[match.group(2)][match.group(1)] = value
    rails = {
        f"rails_w.{name}": round(values["A"][name] * values["V"][name], 4)
        for name in values["A"]
        if name in values["V"]
    }
    if not rails:
        raise refused(text)
    found: Dict[str, Any] = {"power_w": round(sum(rails.values()), 4), **rails}
    if "EXT5V" in values["V"]:
        found["input_v"] = values["V"]["EXT5V"]
    return found


def refused(text: str) -> Unreadable:
    """What ``vcgencmd`` said in place of a value, with the way to be allowed where that is known."""
    reason = f"vcgencmd says {text.strip()[:80]!r}"
    return Unreadable(reason, fix=group_fix("video") if _NO_DEVICE.search(text) else "")


def _word_source(roots: Roots, vcgencmd: Optional[str], found: SensorSet) -> Optional[str]:
    """``vcgencmd`` or ``sysfs``, or None with the reason under ``unknown``."""
    try:
        if vcgencmd is None:
            raise Unreadable("there is no vcgencmd", fix=_INSTALL)
        throttle_word(_ask(vcgencmd, "get_throttled"))
        return "vcgencmd"
    except Unreadable as error:
        reason = error
    if vcgencmd is not None and not any(os.path.exists(os.path.join(roots.dev, name)) for name in ("vcio", "vchiq")):
        reason = Unreadable(
            f"{reason.reason}; this kernel has no {roots.dev}/vcio",
            fix="use a kernel of Raspberry Pi, not the mainline one",
        )
    found.unknown["real_khz"] = str(reason)
    try:
        sysfs_word(read_text(os.path.join(roots.sys, SYSFS_WORD)))
        return "sysfs"
    except Unreadable:
        found.unknown["throttle_word"] = str(reason)
        return None


def _pmic(vcgencmd: str, found: SensorSet) -> None:
    """Power, on the boards that can measure it (only the Pi 5 family has the chip)."""
    try:
        pmic_power(_ask(vcgencmd, "pmic_read_adc"))
    except Unreadable as error:
        found.unknown["power_w"] = f"this board measures no power: {error}"
        return
    found.commands.append(CommandSensor("", (vcgencmd, "pmic_read_adc"), pmic_power, every_s=2.0, cpu_share=0.0015))


def _ask(vcgencmd: str, *arguments: str) -> str:
    try:
        return command_text([vcgencmd, *arguments])
    except Unreadable as error:
        if _NO_DEVICE.search(error.reason):
            raise Unreadable(error.reason, fix=group_fix("video")) from error
        raise


def _under_voltage_alarm(roots: Roots) -> List[FileSensor]:
    """The kernel's own alarm: under-voltage within the driver's last two seconds."""
    folder = os.path.join(roots.sys, "class", "hwmon")
    for entry in numbered(folder, "hwmon"):
        try:
            name = read_text(os.path.join(folder, entry, "name"))
        except Unreadable:
            continue
        if name == "rpi_volt":
            return [FileSensor("alarms.under_voltage", (os.path.join(folder, entry, "in0_lcrit_alarm"),), flag)]
    return []
