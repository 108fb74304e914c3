"""What recorded boards say through the generic sensors, and what they do not say."""

from __future__ import annotations

import os
from typing import Any

import pytest

from edgekit.agent import facts
from edgekit.agent.readings import Unreadable
from edgekit.agent.sensors.board import BoardSensors
from edgekit.agent.sensors.generic import GenericSensors, machine_ticks, process_ticks
from edgekit.agent.throttle import ThrottleWatch


def test_a_raspberry_pi(board: Any) -> None:
    sensors = GenericSensors(board("raspberry-pi-4").roots)
    sample = sensors.sample({})
    assert sample.temperature_c == 48.123
    assert sensors.zone == "cpu-thermal"
    assert sample.cpu_khz == {"policy0": 1500000}
    assert "temperature" not in sample.unknown


@pytest.mark.parametrize(
    ("name", "zone", "celsius"),
    [
        ("rk3588", "package-thermal", 45.307),  # not the NPU's, although it is hotter
        ("jetson-orin-nano", "tj-thermal", 52.5),
        ("jetson-nano", "CPU-therm", 30.5),  # not the PMIC's constant 100
    ],
)
def test_the_zone_that_stands_for_the_die(board: Any, name: str, zone: str, celsius: float) -> None:
    sensors = GenericSensors(board(name).roots)
    assert sensors.sample({}).temperature_c == celsius
    assert sensors.zone == zone


def test_implausible_zones_and_power_chips_are_left_out(board: Any) -> None:
    orin = GenericSensors(board("jetson-orin-nano").roots).sample({})
    assert sorted(orin.zones_c) == ["cpu-thermal", "tj-thermal"]


def test_constant_zones_are_left_out(board: Any) -> None:
    nano = GenericSensors(board("jetson-nano").roots).sample({})
    assert sorted(nano.zones_c) == ["AO-therm", "CPU-therm"]


def test_a_profile_s_choice_comes_first(board: Any) -> None:
    sensors = GenericSensors(board("rk3588").roots, zone_types=["nothing", "bigcore0-thermal"])
    assert sensors.sample({}).temperature_c == 46.23


def test_the_hottest_of_nameless_zones(board: Any) -> None:
    tree = board(
        files={
            "sys/class/thermal/thermal_zone0/type": "acpitz\n",
            "sys/class/thermal/thermal_zone0/temp": "27800\n",
            "sys/class/thermal/thermal_zone1/type": "acpitz\n",
            "sys/class/thermal/thermal_zone1/temp": "29800\n",
        }
    )
    sensors = GenericSensors(tree.roots)
    sample = sensors.sample({})
    assert sample.temperature_c == 29.8
    assert sample.zones_c == {"acpitz:0": 27.8, "acpitz:1": 29.8}


def test_a_zone_that_vanishes_is_missing_and_may_return(board: Any) -> None:
    tree = board("rk3588")
    sensors = GenericSensors(tree.roots)
    assert sensors.sample({}).temperature_c == 45.307
    tree.remove("sys/class/thermal/thermal_zone0/temp")
    gone = sensors.sample({})
    assert gone.temperature_c is None  # and not another zone's value, which would look like a jump
    assert "thermal_zone0/temp" in gone.unknown["temperature"]
    tree.write("sys/class/thermal/thermal_zone0/temp", "-256000\n")
    assert "-256" in sensors.sample({}).unknown["temperature"]
    tree.write("sys/class/thermal/thermal_zone0/temp", "47000\n")
    assert sensors.sample({}).temperature_c == 47.0


def test_no_sensors_at_all_is_unknown_with_reasons(board: Any) -> None:
    sample = GenericSensors(board(files={}).roots).sample({"model": 1})
    assert sample.temperature_c is None
    assert sample.cpu_khz == {}
    assert sample.cpu_busy_other is None
    assert sample.rss_bytes == {}
    assert set(sample.unknown) == {"temperature", "cpu_khz", "cpu_busy_other", "rss_bytes"}
    assert "no thermal zone" in sample.unknown["temperature"]


def test_text_that_is_no_number_is_unknown(board: Any) -> None:
    tree = board("raspberry-pi-4")
    tree.write("sys/class/thermal/thermal_zone0/temp", "N/A\n")
    tree.write("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "<unknown>\n")
    sample = GenericSensors(tree.roots).sample({})
    assert "'N/A', which is no number" in sample.unknown["temperature"]
    assert "'<unknown>'" in sample.unknown["cpu_khz"]


def test_a_permission_is_a_reason(board: Any) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    tree = board("raspberry-pi-4")
    (tree.folder / "sys/class/thermal/thermal_zone0/temp").chmod(0)
    assert "Permission denied" in GenericSensors(tree.roots).sample({}).unknown["temperature"]


def stat_line(busy: int, idle: int) -> str:
    return f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n"


def process_stat(pid: int, ticks: int) -> str:
    # The name holds blanks and a bracket: fields are counted from the last one.
    return f"{pid} (my (odd) name) S 1 1 1 0 -1 0 0 0 0 0 {ticks - 1} {1} 0 0 20 0 1 0 100 0 0\n"


def test_load_of_others_is_what_is_not_ours(board: Any) -> None:
    me, worker = os.getpid(), 4242
    tree = board(
        files={
            "proc/stat": stat_line(1000, 9000),
            f"proc/{me}/stat": process_stat(me, 10),
            f"proc/{worker}/stat": process_stat(worker, 100),
            f"proc/{worker}/status": "VmRSS:\t    2048 kB\nVmSwap:\t      12 kB\n",
        }
    )
    sensors = GenericSensors(tree.roots)
    first = sensors.sample({"model": worker})
    assert first.cpu_busy_other is None
    assert first.rss_bytes == {"model": 2048 * 1024}
    assert first.swapped_bytes == 12 * 1024
    # 400 ticks later: 250 busy, of them 10 the supervisor's and 150 the worker's.
    tree.write("proc/stat", stat_line(1250, 9150))
    tree.write(f"proc/{me}/stat", process_stat(me, 20))
    tree.write(f"proc/{worker}/stat", process_stat(worker, 250))
    assert sensors.sample({"model": worker}).cpu_busy_other == pytest.approx(90 / 400)


def test_ticks_of_this_machine() -> None:
    from edgekit.agent.readings import Roots

    busy, total = machine_ticks(Roots())
    assert 0 < busy <= total
    assert process_ticks(Roots(), os.getpid()) >= 0
    with pytest.raises(Unreadable):
        process_ticks(Roots(), 2**22 + 1)


def test_facts_of_a_board(board: Any) -> None:
    value = facts.board_facts(board("raspberry-pi-4").roots)
    assert value["board_model"] == "Raspberry Pi 4 Model B Rev 1.4"
    assert value["cpu_model"] == "BCM2835"
    assert value["cpu_features"] == ["asimd"]
    assert value["cpu_mhz"] == 1500.0
    assert value["memory_total_bytes"] == 3884436 * 1024
    assert value["governor"] == "ondemand"
    assert value["boot_id"] == "0b51ae6a-0000-4000-8000-4b4f4d8d0001"
    assert value["cpu_limits_khz"]["policy0"]["cpuinfo_max_khz"] == 1500000
    assert value["zone"] == "cpu-thermal"
    assert value["unknown"] == {}
    assert value["sensors"]["set"] == "raspberry-pi"


def test_clock_and_features_without_cpufreq(board: Any) -> None:
    text = "processor\t: 0\nmodel name\t: A CPU\ncpu MHz\t\t: 2445.428\nflags\t\t: fpu sse4_1 avx2 fma avx512_vnni\n"
    roots = board(files={"proc/cpuinfo": text}).roots
    assert facts.cpu_mhz(roots) == 2445.428
    assert facts.cpu_features(roots) == ["sse4_1", "avx2", "fma", "avx512_vnni"]
    with pytest.raises(Unreadable, match="names no features"):
        facts.cpu_features(board(files={"proc/cpuinfo": "processor: 0\n"}).roots)


def test_facts_that_cannot_be_known_are_null_with_a_reason(board: Any) -> None:
    value = facts.board_facts(board("rk3588").roots)
    assert value["board_model"] == "Radxa ROCK 5B"  # from /sys where /proc has no device tree
    assert value["governor"] == "policy0 ondemand, policy4 performance"
    assert value["memory_total_bytes"] is None
    assert "meminfo" in value["unknown"]["memory_total_bytes"]
    assert value["boot_id"] is None


def test_a_model_ends_at_its_nul(board: Any) -> None:
    tree = board(files={"proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.1\0"})
    assert facts.board_model(tree.roots) == "Raspberry Pi 5 Model B Rev 1.1"


def test_a_cooling_device_that_caps_the_cpu_is_throttling(board: Any) -> None:
    tree = board("rk3588")
    sensors, watch = BoardSensors(tree.roots), ThrottleWatch(tree.roots)
    assert watch.changes(sensors.sample({})) == []  # the fan runs: no throttling
    tree.write("sys/class/thermal/cooling_device0/cur_state", "2\n")
    ((kind, message, said),) = watch.changes(sensors.sample({}))
    assert (kind, said["cause"]) == ("throttle_on", "thermal")
    assert "cpufreq-cpu0:0 2" in message
    assert watch.changes(sensors.sample({})) == []  # told once
    tree.write("sys/class/thermal/cooling_device0/cur_state", "0\n")
    assert [kind for kind, _, _ in watch.changes(sensors.sample({}))] == ["throttle_off"]


def test_a_limit_set_before_the_run_is_no_throttling(board: Any) -> None:
    tree = board("rk3588")  # policy4 may run at 2016 of 2400 MHz
    sensors, watch = BoardSensors(tree.roots), ThrottleWatch(tree.roots)
    assert watch.limited_before() == ["policy4 may run at 2016 of 2400 MHz since before the run"]
    assert watch.changes(sensors.sample({})) == []
    tree.write("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "1416000\n")
    ((kind, message, _),) = watch.changes(sensors.sample({}))
    assert kind == "throttle_on"
    assert "policy4 capped to 1416 MHz" in message
    tree.write("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "2016000\n")
    assert watch.changes(sensors.sample({})) != []


def test_what_shows_no_throttling_is_not_called_unthrottled(board: Any) -> None:
    assert not ThrottleWatch(board("jetson-nano").roots).observable
