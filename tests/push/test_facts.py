"""What boards say of themselves: trees written from documented formats, tools that fail in documented ways, and boards that lack things.

The files are documented, not captured: see the sources in ``edgekit/agent/sensors`` and the device profiles.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from push_boards import FolderLink

from edgekit.errors import JobError, UsageError
from edgekit.push.bootstrap import prepare
from edgekit.push.doctor import Finding, board_findings, workstation_findings
from edgekit.push.facts import Facts, facts_table, gather
from edgekit.push.release import push_bundle

SHELL_TOOLS = [
    "sh",
    "dirname",
    "df",
    "tail",
    "head",
    "tr",
    "id",
    "uname",
    "getconf",
    "ldd",
    "date",
    "ls",
    "sed",
    "readlink",
    "timeout",
    "mkdir",
    "rm",
    "cat",
    "sha256sum",
    "mv",
]
PI4 = {
    "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
    "proc/device-tree/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0",
    "proc/meminfo": "MemTotal:        3884360 kB\nMemAvailable:    3400000 kB\nSwapTotal:        102396 kB\nSwapFree:         10000 kB\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n',
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "1800000\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1200000\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "48312\n",
}
ORIN = {
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
    "proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
    "sys/class/thermal/thermal_zone0/type": "cv0-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "",
    "sys/class/hwmon/hwmon3/name": "ina3221\n",
    "sys/class/hwmon/hwmon3/in1_input": "5016\n",
}

Look = Callable[..., Facts]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """``look(files, tools)``: the facts of a board with these files, and with these programs beside those of a shell."""

    def gathered(files: Mapping[str, str], tools: Mapping[str, str] | None = None) -> Facts:
        root, programs = tmp_path / "root", tmp_path / "bin"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        programs.mkdir()
        for name in SHELL_TOOLS:
            found = shutil.which(name)
            if found and name not in (tools or {}):  # a link that is written to would change this machine's own program
                (programs / name).symlink_to(found)
        for name, text in (tools or {}).items():
            assert not os.path.lexists(programs / name)
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        (tmp_path / "home").mkdir()
        monkeypatch.setenv("EDGEKIT_ROOT", str(root))
        monkeypatch.setenv("PATH", str(programs))
        return gather(FolderLink(tmp_path / "home"), home=str(tmp_path / "home/.edgekit"))

    return gathered


def found(findings: list[Finding], what: str) -> Finding:
    return next(one for one in findings if one.what == what)


def test_a_raspberry_pi_with_a_weak_supply(look: Look) -> None:
    facts = look(PI4, {"vcgencmd": "echo throttled=0x50001", "python3": python("3.11.2")})
    assert (facts.profile, facts.soc, facts.distribution) == (
        "raspberry-pi-4",
        "bcm2711",
        "Debian GNU/Linux 12 (bookworm)",
    )
    assert facts.memory_bytes == 3884360 * 1024 and facts.swap_used_bytes == 92396 * 1024
    assert facts.throttled == 0x50001
    assert {one.name: one.reading for one in facts.sensors} == {
        "zone cpu-thermal": "48.3 °C",
        "throttle state of the firmware": "0x50001",
    }
    findings = board_findings(facts)
    assert "supply voltage is too low now" in found(findings, "power").said
    assert any("since boot: it was throttled" in one.said for one in findings)
    assert "powersave" in found(findings, "governor").said and "scaling_governor" in found(findings, "governor").fix
    assert "1200 of 1800 MHz" in found(findings, "clock").said
    assert "swapped out" in found(findings, "swap").said
    assert ("board", "Raspberry Pi 4 Model B Rev 1.4") in facts_table(facts)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "not installed"),
        ("echo VCHI initialization failed; exit 255", "VCHI"),
        ("echo VCHI initialization failed", "VCHI"),
        ("exec sleep 60", "within 3 s"),
        ("echo throttled=", "throttled="),
    ],
)
def test_o22_a_throttle_state_that_cannot_be_read_is_unknown(look: Look, script: str | None, reason: str) -> None:
    tools = {"sleep": f'exec {shutil.which("sleep")} "$@"'} | ({} if script is None else {"vcgencmd": script})
    began = time.monotonic()
    facts = look(PI4, tools)
    assert time.monotonic() - began < 20
    sensor = next(one for one in facts.sensors if one.name.startswith("throttle"))
    assert facts.throttled is None and sensor.reading is None
    assert reason in sensor.reason
    assert found(board_findings(facts), sensor.name).fix
    assert "48.3 °C" in [one.reading for one in facts.sensors]


def test_a_device_that_another_group_may_read(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.push.facts import as_facts, parse

    lines, unreadable = parse(
        "@model\n Raspberry Pi 5 Model B Rev 1.1\n@user\n anna\n 1000\n!dev.vcio\n@dev.vcio.owner\n crw-rw---- root video\n@vcgencmd\n Can't open device file: /dev/vcio\n exit 255\n"
    )
    sensor = as_facts("pi5", lines, unreadable).sensors[0]
    assert "group video" in sensor.reason and sensor.fix == "sudo usermod -aG video anna, then log in again"


def test_a_jetson_says_that_tflite_runs_on_its_cpu(look: Look) -> None:
    facts = look(ORIN, {"nvpmodel": "printf 'NV Power Mode: 15W\\n0\\n'", "python3": python("3.10.12")})
    assert (facts.profile, facts.power_mode, facts.soc) == ("jetson-orin-nano", "15W", "tegra234")
    assert "CPU" in facts.note and any("CPU" in value for _, value in facts_table(facts))
    findings = board_findings(facts)
    assert "TFLite runs on this board's CPU" in found(findings, "board").said
    assert "nvpmodel -m 0" in found(findings, "power mode").fix
    assert next(one for one in facts.sensors if one.name == "zone cv0-thermal").reading is None
    assert next(one for one in facts.sensors if one.name == "hwmon ina3221").reading == "in1_input"


def test_a_board_without_python(look: Look, make_bundle: Callable[..., Path]) -> None:
    facts = look({})
    assert facts.pythons == () and facts.python is None and facts.profile == "generic-linux"
    assert "apt-get install python3" in found(board_findings(facts), "Python").fix
    from edgekit.push.contact import Agent

    agent = Agent(FolderLink(Path(facts.home).parent))
    for work in (lambda: prepare(agent), lambda: push_bundle(agent, make_bundle())):
        with pytest.raises(JobError) as caught:
            work()
        assert caught.value.code == "no_python" and "python3" in caught.value.hint


def test_python_3_6_alone_as_on_jetpack_4(look: Look) -> None:
    facts = look({}, {"python3": python("3.6.9")})
    assert facts.python is None and [one.version for one in facts.pythons] == [(3, 6, 9)]
    finding = found(board_findings(facts), "Python")
    assert "3.6" in finding.said and "apt-get install python3.8" in finding.fix
    with pytest.raises(UsageError) as caught:
        from edgekit.push.contact import Agent

        prepare(Agent(FolderLink(Path(facts.home).parent)))
    assert caught.value.code == "no_wheel" and "python3.8" in caught.value.hint


def test_the_newest_python_is_used(look: Look) -> None:
    facts = look({}, {"python3": python("3.8.10"), "python3.8": python("3.8.10"), "python3.11": python("3.11.4")})
    assert facts.python is not None and facts.python.version == (3, 11, 4)
    assert len(facts.pythons) == 2  # python3 is one of them


def test_a_board_whose_clock_is_wrong(look: Look) -> None:
    facts = look({}, {"date": "echo 86400", "python3": python("3.11.4")})
    assert facts.clock_utc_s == 86400
    assert "behind" in found(board_findings(facts), "clock").said


def test_everything_is_one_round_trip(tmp_path: Path) -> None:
    class Counting(FolderLink):
        count = 0

        def run(self, *args: object, **more: object):  # type: ignore[no-untyped-def]
            self.count += 1
            return super().run(*args, **more)  # type: ignore[arg-type]

    link = Counting(tmp_path)
    facts = gather(link)
    assert link.count == 1
    assert (
        facts.cores == os.cpu_count() and facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    )


def test_the_workstation_without_front_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "edgekit frontend add" in found(workstation_findings(frontends=0), "front ends").fix
    assert found(workstation_findings(frontends=2), "cache").level == "fine"


def python(version: str) -> str:
    """A program that answers as this Python does: to the question for its packages, and whether it is new enough."""
    new = int(version.split(".")[1]) >= 8
    return f"""case "$2" in
*sys.version_info*'<'*) exit {0 if new else 1} ;;
*) printf 'version {version}\\nbits 64\\npath /usr/bin/python3\\n' ;;
esac"""
