"""What a Raspberry Pi and a Jetson say through their own sensors, and what stands in the way where they say nothing."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Tuple

import pytest
from board_files import MARK, board_names, texts_of

from edgekit.agent.readings import Roots, Unreadable, command_text, permission_fix
from edgekit.agent.sensors import jetson, kernel, pi
from edgekit.agent.sensors.board import BoardSensors, board_kind
from edgekit.agent.sensors.generic import SensorSample
from edgekit.agent.sensors.poller import CommandPoller
from edgekit.agent.sensors.sensor import CommandSensor
from edgekit.agent.throttle import ThrottleWatch


def settled(sensors: BoardSensors, wanted: str, timeout_s: float = 20.0) -> SensorSample:
    """The sample in which the value of a command has come."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        sensors.tend()
        sample = sensors.sample({})
        if wanted in sample.more or wanted in sample.unknown:
            return sample
        time.sleep(0.01)
    raise AssertionError(f"no {wanted} within {timeout_s} s")


@pytest.mark.parametrize("name", board_names())
def test_every_recorded_text_says_where_it_is_from(name: str) -> None:
    for file, text in texts_of(name).items():
        assert MARK.match(text.split("\n", 1)[0]), f"{name}/{file}"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("raspberry-pi-4", "raspberry-pi"),
        ("raspberry-pi-5", "raspberry-pi"),
        ("rk3588", "generic"),
        ("jetson-nano", "jetson"),
        ("jetson-orin-nano", "jetson"),
    ],
)
def test_the_device_tree_chooses_the_sensors(board: Any, name: str, kind: str) -> None:
    assert board_kind(board(name).roots) == kind


def test_a_pi_4_by_its_firmware(board: Any) -> None:
    sensors = BoardSensors(board("raspberry-pi-4").roots)
    assert sensors.describe()["throttle_source"] == "vcgencmd"
    assert "measures no power" in sensors.describe()["unknown"]["power_w"]
    assert settled(sensors, "real_khz").more["real_khz"] == {"arm": 1500346}
    fresh = BoardSensors(board("raspberry-pi-4").roots)
    sample = settled(fresh, "throttle_word")
    assert sample.more["throttle_word"] == 0x50000
    assert sample.more["alarms"] == {"under_voltage": False}
    assert "throttle_word" not in fresh.sample({}).more  # a value is told once
    fresh.close()
    sensors.close()


def test_what_the_kernel_shows_beside(board: Any) -> None:
    sample = BoardSensors(board("raspberry-pi-4").roots).sample({})
    assert sample.more["max_khz"] == {"policy0": 1500000}
    assert sample.more["pressure_us"] == {"cpu": 1834563}
    assert sample.more["time_in_state"] == {"policy0": {"600000": 295443, "700000": 1512, "1500000": 81327}}
    assert sample.more["settings"]["governor"] == {"policy0": "ondemand"}
    assert sample.more["settings"]["min_khz"] == {"policy0": 600000}


def test_settings_are_told_when_they_change(board: Any) -> None:
    tree = board("rk3588")
    sensors = BoardSensors(tree.roots)
    assert "settings" in sensors.sample({}).more
    assert "settings" not in sensors.sample({}).more
    tree.write("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n")
    assert sensors.sample({}).more["settings"]["governor"] == {"policy0": "powersave", "policy4": "performance"}


def test_the_hardware_s_clock_where_it_may_be_read(board: Any) -> None:
    sample = BoardSensors(board("rk3588").roots).sample({})
    assert sample.more["real_khz"] == {"policy4": 2016000}
    assert kernel.passive_trips(board("rk3588").roots) == {"package-thermal": 85.0}


def test_a_pi_5_measures_its_power(board: Any) -> None:
    sensors = BoardSensors(board("raspberry-pi-5").roots)
    sample = settled(sensors, "power_w")
    rails = sample.more["rails_w"]
    assert rails["VDD_CORE"] == pytest.approx(1.11625 * 0.74945, abs=1e-4)
    assert set(rails) == {"3V7_WL_SW", "3V3_SYS", "1V8_SYS", "1V1_SYS", "0V8_SW", "VDD_CORE"}
    by_hand = 0.0634311 * 3.68895 + 0.08198 * 3.3064 + 0.15029 * 1.79925 + 0.20299 * 1.10403 + 0.30547 * 0.80108
    assert sample.more["power_w"] == pytest.approx(by_hand + 1.11625 * 0.74945, abs=1e-3)
    assert sample.more["input_v"] == 5.0853
    assert "power_w" not in sensors.describe()["unknown"]
    assert sensors.describe().get("trips_c") is None  # 110 is critical, the others are the fan's
    sensors.close()


def test_the_old_kernel_s_file_is_the_last_resort(board: Any) -> None:
    sensors = BoardSensors(board("raspberry-pi-3-old-kernel").roots)
    assert sensors.describe()["throttle_source"] == "sysfs"
    assert sensors.sample({}).more["throttle_word"] == 0x80008


def test_a_kernel_without_the_device_is_unknown_with_the_reason_and_the_fix(board: Any) -> None:
    said = BoardSensors(board("raspberry-pi-4-mainline").roots).describe()
    assert said["throttle_source"] is None
    assert "Can't open device file" in said["unknown"]["throttle_word"]
    assert "/dev/vcio" in said["unknown"]["throttle_word"]
    assert "mainline" in said["unknown"]["throttle_word"]


@pytest.mark.parametrize(
    ("text", "code"), [("VCHI initialization failed\n", 255), ("Can't open device file: /dev/vcio\n", 0)]
)
def test_a_user_who_may_not_is_told_the_group(board: Any, text: str, code: int) -> None:
    tree = board("raspberry-pi-4")
    tree.answer("vcgencmd get_throttled", text, code)
    reason = BoardSensors(tree.roots).describe()["unknown"]["throttle_word"]
    assert "sudo usermod -aG video" in reason
    assert text.strip() in reason


def test_no_vcgencmd_names_the_package(board: Any) -> None:
    tree = board("raspberry-pi-4")
    tree.remove("commands/vcgencmd")
    assert "raspi-utils" in BoardSensors(tree.roots).describe()["unknown"]["throttle_word"]


def test_firmware_that_stops_answering_is_unknown_and_holds_nothing_up(board: Any) -> None:
    tree = board("raspberry-pi-4")
    sensors = BoardSensors(tree.roots)
    tree.script("vcgencmd", "exec sleep 600\n")
    sample = settled(sensors, "throttle_word")
    assert "no answer within 2 s" in sample.unknown["throttle_word"]
    assert sample.temperature_c == 48.123
    sensors.close()


def test_firmware_that_fails_and_comes_back(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.agent.sensors.poller.RETRY_S", 0.05)
    tree = board("raspberry-pi-4")
    sensors = BoardSensors(tree.roots)
    tree.answer("vcgencmd get_throttled", "throttled=\n")
    assert "throttled=" in settled(sensors, "throttle_word").unknown["throttle_word"]
    tree.answer("vcgencmd get_throttled", "throttled=0x50005\n")
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        sensors.tend()
        sample = sensors.sample({})
        if "throttle_word" in sample.more:
            break
        time.sleep(0.02)
    assert sample.more["throttle_word"] == 0x50005
    assert "throttle_word" not in sample.unknown
    sensors.close()


@pytest.mark.parametrize("text", ["frequency(48)=0", "frequency(48)=99999999999999", "frequency=1", "error=1", ""])
def test_clocks_that_cannot_be(text: str) -> None:
    with pytest.raises(Unreadable):
        pi.clock_khz(text)


@pytest.mark.parametrize(
    "text", ["VDD_CORE_A current(7)=900.0A\nVDD_CORE_V volt(1)=1.0V", "error=1", "EXT5V_V volt(24)=5.0V"]
)
def test_powers_that_cannot_be(text: str) -> None:
    with pytest.raises(Unreadable):
        pi.pmic_power(text)


def test_an_orin(board: Any) -> None:
    sensors = BoardSensors(board("jetson-orin-nano").roots)
    sample = settled(sensors, "settings")
    assert sample.more["rails_w"] == {
        "VDD_IN": pytest.approx(5.016 * 1.512, abs=1e-4),
        "VDD_CPU_GPU_CV": pytest.approx(5.008 * 0.408, abs=1e-4),
    }
    assert sample.more["power_w"] == sample.more["rails_w"]["VDD_IN"]
    assert sample.more["counters"] == {"oc1": 0, "oc2": 0, "oc3": 27390}
    assert sample.more["alarms"] == {"current_crit_VDD_IN": False}
    assert (sample.more["gpu_load"], sample.more["gpu_khz"]) == (0.415, 1020000)
    assert sample.more["settings"]["gpu_min_khz"] == 306000
    assert sensors.describe()["trips_c"] == {"cpu-thermal": 99.0}
    sensors.close()


def test_the_power_mode_of_a_jetson_comes_with_the_settings(board: Any) -> None:
    sensors = BoardSensors(board("jetson-nano").roots)
    end = time.monotonic() + 20.0
    settings: Dict[str, Any] = {}
    while "power_mode" not in settings and time.monotonic() < end:
        sensors.tend()
        settings.update(sensors.sample({}).more.get("settings", {}))
        time.sleep(0.01)
    assert settings["power_mode"] == "5W (1)"
    sensors.close()


def test_a_nano_with_jetpack_4(board: Any) -> None:
    sample = BoardSensors(board("jetson-nano").roots).sample({})
    assert sample.more["rails_w"] == {"POM_5V_IN": 4.531, "POM_5V_GPU": 1.203, "POM_5V_CPU": 0.988}
    assert sample.more["power_w"] == 4.531
    assert (sample.more["gpu_load"], sample.more["gpu_khz"]) == (0.993, 921600)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1000", 1.0), ("1001", None), ("-1", None), ("busy", None)])
def test_a_gpu_s_load_is_in_thousandths(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(Unreadable):
            jetson.gpu_load(text)
    else:
        assert jetson.gpu_load(text) == value


def test_rails_that_cannot_be() -> None:
    with pytest.raises(Unreadable):
        jetson.watts("5016", "99999999")
    with pytest.raises(Unreadable):
        jetson.power_mode("NVPM ERROR: no mode")


def test_a_rail_that_fails_is_missing_with_the_reason(board: Any) -> None:
    tree = board("jetson-orin-nano")
    sensors = BoardSensors(tree.roots)
    tree.remove("sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3/curr1_input")
    sample = sensors.sample({})
    assert "VDD_IN" not in sample.more["rails_w"]
    assert "power_w" not in sample.more
    assert "curr1_input" in sample.unknown["power_w"]


def test_voltage_events_of_a_jetson_are_told_at_once(board: Any) -> None:
    tree = board("jetson-orin-nano")
    sensors, watch = BoardSensors(tree.roots), ThrottleWatch(tree.roots)
    assert watch.changes(sensors.sample({})) == []  # 27390 events from before the run are not the run's
    tree.write("sys/class/hwmon/hwmon4/oc1_event_cnt", "3\n")
    ((kind, message, facts),) = watch.changes(sensors.sample({}))
    assert (kind, facts["cause"]) == ("throttle_on", "under_voltage")
    assert "3 more oc1" in message
    assert [kind for kind, _, _ in watch.changes(sensors.sample({}))] == ["throttle_off"]


@pytest.mark.parametrize(
    ("word", "cause"), [("0x50005", "under_voltage"), ("0x4", "thermal"), ("0x8", "thermal"), ("0x50000", None)]
)
def test_the_firmware_s_word_in_the_live_view(board: Any, word: str, cause: Any) -> None:
    tree = board("raspberry-pi-4")
    tree.answer("vcgencmd get_throttled", f"throttled={word}\n")
    sensors, watch = BoardSensors(tree.roots), ThrottleWatch(tree.roots)
    watch.changes(settled(sensors, "throttle_word"))
    assert watch.cause == cause
    assert watch.observable
    watch.changes(sensors.sample({}))  # a sample without a new word: the old one stands
    assert watch.cause == cause
    sensors.close()


def test_a_command_that_costs_too_much_is_asked_less_often(tmp_path: Any) -> None:
    asked = tmp_path / "asked"
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\ni=0\nwhile [ $i -lt 20000 ]; do i=$((i+1)); done\necho x >> {asked}\necho 1\n")
    script.chmod(0o755)
    poller = CommandPoller([CommandSensor("value", (str(script),), int, every_s=0.01, cpu_share=0.0001)])
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        poller.tend()
        time.sleep(0.005)
    poller.close()
    # It costs some ten milliseconds; at a ten-thousandth of a core the next time is minutes away, not a hundredth of a second.
    assert len(asked.read_text().split()) == 1


def test_a_command_s_failures_have_reasons(tmp_path: Any) -> None:
    def script(body: str) -> Tuple[str]:
        path = tmp_path / "command"
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o755)
        return (str(path),)

    assert command_text(script("echo fine; echo too >&2\n")) == "fine\ntoo"
    with pytest.raises(Unreadable, match="exit code 3, says 'no'"):
        command_text(script("echo no; exit 3\n"))
    with pytest.raises(Unreadable, match="no answer within"):
        command_text(script("exec sleep 60\n"), timeout_s=0.1)
    with pytest.raises(Unreadable, match="No such file"):
        command_text((str(tmp_path / "absent"),))


def test_the_fix_of_a_forbidden_file_is_its_group(tmp_path: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    path = tmp_path / "secret"
    path.write_text("1")
    os.chown(path, 0, 44)
    path.chmod(0o640)
    assert "usermod -aG" in permission_fix(str(path))
    path.chmod(0o600)
    assert "sudo" in permission_fix(str(path))


def test_commands_are_looked_for_where_makers_put_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert Roots().command("sh") in ("/bin/sh", "/usr/bin/sh")
    assert Roots(commands="/nowhere").command("sh") is None
