"""Boards that heat, sag, lose their fan or their sensors, in virtual time: what the report says is what the simulator knows.

A fixed sample; ``tools/thermal_scenarios.py`` runs two hundred.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from lab_thermal import Scenario, random_scenario, simulate
from lab_thermal_judge import judged, run_of

from edgekit.bench.profiles import load_profile
from edgekit.report.stats import summarise

HOT = Scenario("raspberry-pi-4", "bare", ambient_c=30.0, duration_s=420.0)


@pytest.mark.parametrize("seed", range(1000, 1024))
def test_a_random_board(seed: int) -> None:
    scenario = random_scenario(seed)
    assert judged(scenario, simulate(scenario)) == []


def test_the_judge_knows_wrong_from_right() -> None:
    run, cool = simulate(HOT), simulate(replace(HOT, setup="fan"))
    assert judged(HOT, run) == []
    for key, change in (
        ("says", {"samples": cool.samples}),
        ("onset", {"samples": [{**sample, "t_s": sample["t_s"] + 10.0} for sample in run.samples]}),
        ("retention", {"blocks": cool.blocks}),
        (
            "cause",
            {
                "samples": [
                    {**sample, "throttle_word": 5} if sample.get("throttle_word") else sample for sample in run.samples
                ]
            },
        ),
    ):
        complaints = judged(HOT, run, summarise(run_of(replace(run, **change))))
        assert complaints, key


def test_what_a_bare_pi_4_loses() -> None:
    """By the published figures: 80 degrees within one to five and a half minutes, and a sustained speed of 0.5 to 0.9."""
    scenario = replace(HOT, ambient_c=25.0, duration_s=1200.0)
    run = simulate(scenario)
    summary = summarise(run_of(run))
    main = summary.thermal.throttling.main
    assert main is not None and main.cause == "thermal"
    assert 60.0 <= main.onset_s <= 330.0
    assert summary.sustained is not None and summary.sustained.retention is not None
    assert 0.5 <= summary.sustained.retention <= 0.9
    assert main.clock_floor_mhz is not None and main.clock_floor_mhz < 1400.0


@pytest.mark.parametrize(
    ("profile", "setup"), [("raspberry-pi-4", "fan"), ("raspberry-pi-5", "cooler"), ("jetson-orin-nano", "fan")]
)
def test_a_cool_board_is_never_called_throttled(profile: str, setup: str) -> None:
    for seed in range(4):
        scenario = Scenario(profile, setup, seed=seed, duration_s=180.0, noise=0.03, latency_ms=25.0)
        run = simulate(scenario)
        assert max(run.temperature_c) < (load_profile(profile).throttle_c or 0.0)
        assert summarise(run_of(run)).thermal.throttling.verdict == "not_throttled"


def test_low_voltage_at_a_cool_temperature_is_the_supply() -> None:
    scenario = replace(HOT, setup="fan", duration_s=180.0, sags=((60.0, 80.0),))
    summary = summarise(run_of(simulate(scenario)))
    main = summary.thermal.throttling.main
    assert main is not None and main.cause == "under_voltage"
    assert main.clock_floor_mhz == 600.0
    assert main.slowdown == pytest.approx(1500 / 600, rel=0.02)
    assert not summary.validity.valid
    assert "supply was too low" in summary.validity.reasons[0]


def test_heat_without_a_readable_firmware_is_seen_by_latency_and_temperature() -> None:
    run = simulate(replace(HOT, duration_s=900.0, sensors_lost_s=0.0))
    found = summarise(run_of(run)).thermal.throttling
    assert found.verdict == "throttled"
    assert found.main is not None and found.main.cause == "thermal"
    assert "no sensor shows it" in found.main.evidence[0]


def test_sensors_that_fall_silent_leave_the_cause_standing() -> None:
    run = simulate(replace(HOT, duration_s=600.0, sensors_lost_s=300.0, temperature_lost=True))
    found = summarise(run_of(run)).thermal.throttling
    assert found.main is not None and found.main.cause == "thermal"
    assert any("fell silent" in said for said in found.main.evidence)
    assert found.share == pytest.approx(1.0 - run.onset_s("thermal") / 600.0, abs=0.05)
