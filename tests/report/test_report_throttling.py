"""The throttle verdict on runs in which something odd happens: counters, modes, restarts, clocks that jump, sensors that go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.report.throttling import throttle_verdict
from edgekit.report.timeline import Timeline

JETSON = {"cpu_count": 6, "sensors": {"set": "jetson", "trips_c": {"cpu-thermal": 99.0}}}


def samples_of(seconds: int = 60, hz: float = 2.0, **fields: Any) -> list[dict[str, Any]]:
    """Samples of a board at rest; a field may be a function of the time."""
    samples = []
    for index in range(int(seconds * hz)):
        t_s = index / hz
        sample = {"t_s": t_s, "temperature_c": 50.0, "cooling_state": {"cpufreq-cpu0:0": 0}, "wall_s": 1e9 + t_s}
        for name, value in fields.items():
            sample[name] = value(t_s) if callable(value) else value
        samples.append({name: value for name, value in sample.items() if value is not None})
    return samples


def latencies_of(seconds: int = 60, base_ms: float = 20.0, slow: Any = None) -> Timeline:
    """Inferences back to back; ``slow(t)`` is how many times longer one takes."""
    times, latencies, t_s = [], [], 0.0
    rng = np.random.default_rng(0)
    while t_s < seconds:
        latency = base_ms / 1e3 * (slow(t_s) if slow else 1.0) * float(np.exp(rng.normal(0, 0.003)))
        times.append(t_s)
        latencies.append(round(latency * 1e9))
        t_s += latency
    return Timeline(np.array(times), np.array(latencies, dtype=np.int64))


def twice_from(start_s: float, end_s: float = 1e9) -> Any:
    return lambda t_s: 2.0 if start_s <= t_s < end_s else 1.0


def test_no_samples_is_unknown() -> None:
    found = throttle_verdict([], [latencies_of()])
    assert (found.verdict, found.unknown) == ("unknown", "the run has no sensor samples")


def test_a_quiet_board_is_not_throttled() -> None:
    found = throttle_verdict(samples_of(), [latencies_of()], facts=JETSON)
    assert (found.verdict, found.causes, found.notes, found.invalid) == ("not_throttled", (), (), ())


def test_the_kernel_s_cooling_with_its_cost() -> None:
    samples = samples_of(
        cooling_state=lambda t: {"cpufreq-cpu0:0": 3 if t >= 20 else 0},
        real_khz=lambda t: {"policy0": 1_000_000 if t >= 20 else 2_000_000},
    )
    found = throttle_verdict(samples, [latencies_of(slow=twice_from(20.0))], facts=JETSON)
    main = found.main
    assert main is not None and (main.cause, main.onset_s) == ("thermal", 20.0)
    assert main.share == pytest.approx(2 / 3, abs=0.01)
    assert (main.clock_floor_mhz, main.slowdown) == (1000.0, pytest.approx(2.0, rel=0.01))
    assert main.lost_share == pytest.approx(1 / 3, abs=0.01)


def test_voltage_events_spoil_the_run_and_momentary_ones_are_weighed() -> None:
    few = samples_of(counters=lambda t: {"oc1": 0, "oc2": 0, "oc3": int(27390 + 7.6 * t)})
    found = throttle_verdict(few, [latencies_of()], facts=JETSON)
    assert (found.verdict, found.invalid) == ("not_throttled", ())
    assert "0.38 % of the speed" in found.notes[0]  # 7.6 events a second, half a millisecond each
    low = samples_of(counters=lambda t: {"oc1": int(t >= 30), "oc2": 0, "oc3": 0})
    found = throttle_verdict(low, [latencies_of()], facts=JETSON)
    assert found.main is not None and found.main.cause == "under_voltage"
    assert "supply was too low" in found.invalid[0]
    drawn = samples_of(counters=lambda t: {"oc1": 0, "oc2": 3 * int(t >= 30), "oc3": 0})
    found = throttle_verdict(drawn, [latencies_of()], facts=JETSON)
    assert found.main is not None and found.main.cause == "power_cap"
    assert "average current 3 times" in found.invalid[0]


def test_a_mode_that_changes_spoils_the_run_even_if_it_costs_nothing() -> None:
    samples = samples_of()
    samples[0]["settings"] = {"governor": {"policy0": "schedutil"}, "boot_id": "a"}
    samples[4]["settings"] = {"governor": {"policy0": "schedutil"}, "boot_id": "a", "power_mode": "MAXN (0)"}
    assert throttle_verdict(samples, [latencies_of()], facts=JETSON).invalid == ()  # told late, not changed
    samples[40]["settings"] = {"governor": {"policy0": "powersave"}, "boot_id": "a", "power_mode": "15W (2)"}
    found = throttle_verdict(samples, [latencies_of()], facts=JETSON)
    assert found.verdict == "not_throttled"
    assert found.invalid == (
        "governor of policy0 changed from schedutil to powersave at 20.0 s",
        "power_mode changed from MAXN (0) to 15W (2) at 20.0 s",
    )
    slower = throttle_verdict(samples, [latencies_of(slow=twice_from(20.0))], facts=JETSON)
    assert slower.verdict == "slowed"
    assert slower.main is not None and slower.main.cause == "mode_change"
    assert slower.main.onset_s == pytest.approx(20.0, abs=1.0)


def test_a_board_that_restarts() -> None:
    samples = samples_of()
    samples[0]["settings"] = {"boot_id": "a"}
    after = [{**sample, "t_s": sample["t_s"] + 60.0, "cooling_state": {"cpufreq-cpu0:0": 9}} for sample in samples_of()]
    after[0]["settings"] = {"boot_id": "b"}
    found = throttle_verdict(samples + after, [latencies_of()], facts=JETSON)
    assert found.invalid == ("the board restarted after 59.5 s",)
    assert found.verdict == "not_throttled"  # the other boot is not this run


def test_a_clock_that_goes_back() -> None:
    found = throttle_verdict(samples_of() + samples_of(10), [latencies_of()], facts=JETSON)
    assert found.invalid == ("the run's clock went back from 59.5 to 0.0 s",)


def test_a_wall_clock_that_jumps_is_told_and_spoils_nothing() -> None:
    samples = samples_of(wall_s=lambda t: 1e9 + t + (3600 if t >= 30 else 0))
    found = throttle_verdict(samples, [latencies_of()], facts=JETSON)
    assert (found.verdict, found.invalid) == ("not_throttled", ())
    assert "jumped by +3600 s at 30.0 s" in found.notes[0]


def test_a_hole_in_the_samples_is_told() -> None:
    samples = [sample for sample in samples_of() if not 20 <= sample["t_s"] < 40]
    assert "from 19.5 to 40.0 s" in throttle_verdict(samples, [latencies_of()], facts=JETSON).notes[0]


def test_other_processes_count_only_where_they_slow_the_run() -> None:
    samples = samples_of(cpu_busy_other=lambda t: 0.3 if 20 <= t < 40 else 0.01)
    assert throttle_verdict(samples, [latencies_of()], facts=JETSON).verdict == "not_throttled"
    found = throttle_verdict(samples, [latencies_of(slow=twice_from(20.0, 40.0))], facts=JETSON)
    assert (found.verdict, found.main.cause if found.main else "") == ("slowed", "other_load")
    assert found.main is not None and "1.8 cores" in found.main.evidence[0]


def test_a_slowness_that_nothing_explains_is_unknown_and_not_throttling() -> None:
    found = throttle_verdict(samples_of(), [latencies_of(slow=twice_from(30.0))], facts=JETSON)
    assert found.verdict == "slowed"
    assert found.main is not None and found.main.cause == "unknown"
    assert found.main.onset_s == pytest.approx(30.0, abs=1.0)


def test_noise_is_no_slowness() -> None:
    rng = np.random.default_rng(3)
    wild = throttle_verdict(
        samples_of(), [latencies_of(slow=lambda t: float(np.exp(rng.normal(0, 0.3))))], facts=JETSON
    )
    assert wild.verdict == "not_throttled"
    short = throttle_verdict(samples_of(), [latencies_of(slow=twice_from(30.0, 32.0))], facts=JETSON)
    assert short.verdict == "not_throttled"


def test_two_variants_are_each_measured_by_themselves() -> None:
    """The float model's turns take five times as long: that is no slowness."""
    turns = [latencies_of(), latencies_of(base_ms=100.0)]
    kept = [
        Timeline(line.times_s[mask], line.latencies_ns[mask])
        for number, line in enumerate(turns)
        for mask in [(line.times_s // 1.0) % 2 == number]
    ]
    assert throttle_verdict(samples_of(), kept, facts=JETSON).verdict == "not_throttled"


def test_inferences_longer_than_a_sampling_period() -> None:
    found = throttle_verdict(samples_of(120), [latencies_of(120, base_ms=2500.0, slow=twice_from(60.0))], facts=JETSON)
    assert found.verdict == "slowed"
    assert found.main is not None and found.main.slowdown == pytest.approx(2.0, rel=0.02)


def test_a_board_that_shows_nothing_is_unknown() -> None:
    samples = samples_of(cooling_state=None)
    facts = {"sensors": {"set": "generic", "unknown": {}}}
    found = throttle_verdict(samples, [latencies_of()], facts=facts)
    assert (found.verdict, found.unknown) == ("unknown", "the kernel of this board does not show it")


def test_a_limit_that_somebody_lowered_on_a_cool_board_is_no_heat() -> None:
    samples = samples_of(cooling_state={}, max_khz=lambda t: {"policy0": 1_000_000 if t >= 20 else 2_000_000})
    found = throttle_verdict(samples, [latencies_of(slow=twice_from(20.0))], facts=JETSON)
    assert found.main is not None and found.main.cause == "mode_change"
    hot = [{**sample, "temperature_c": 98.0} for sample in samples]
    found = throttle_verdict(hot, [latencies_of(slow=twice_from(20.0))], facts=JETSON)
    assert found.main is not None and found.main.cause == "thermal"


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"t_s": None},
        {"t_s": "1"},
        {
            "t_s": 1.25,
            "throttle_word": "0x5",
            "cooling_state": [],
            "counters": None,
            "alarms": 1,
            "settings": "x",
            "max_khz": {"a": None},
        },
        {"t_s": 1.25, "temperature_c": float("nan"), "cpu_busy_other": "much", "wall_s": None},
    ],
)
def test_lines_that_are_not_as_they_should_be(line: dict[str, Any]) -> None:
    samples = samples_of(10)
    samples.insert(3, line)
    assert throttle_verdict(samples, [latencies_of(10)], facts=JETSON).verdict == "not_throttled"


def test_every_cause_of_an_invalid_run_has_its_remedy() -> None:
    from lab_thermal import Scenario, simulate
    from lab_thermal_judge import run_of

    from edgekit.report.next_steps import advise_run
    from edgekit.report.stats import summarise

    scenario = Scenario("raspberry-pi-4", "bare", ambient_c=28.0, duration_s=300.0, sags=((60.0, 70.0),))
    keys = [item.key for item in advise_run(summarise(run_of(simulate(scenario))))]
    assert set(keys[:-1]) == {"throttled", "under_voltage"}
    assert keys[-1] == "rerun"
