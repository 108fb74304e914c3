"""How a run begins, is paced and ends: the rules on made-up boards, and real runs by a real agent."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import numpy as np
import pytest

from edgekit.agent.arrivals import gaps_ns
from edgekit.agent.cooldown import CooldownRule, judge
from edgekit.agent.steadiness import SteadyRule, is_steady, slope_k_per_min


def cooling(start_c: float, rest_c: float, tau_s: float, seconds: float) -> Any:
    """Samples of a board that cools by Newton's law, at 2 Hz."""
    times = np.arange(0.0, seconds, 0.5)
    return [(float(t), float(rest_c + (start_c - rest_c) * math.exp(-t / tau_s)), False) for t in times]


def first_start(samples: Any, rule: CooldownRule) -> Any:
    for k in range(1, len(samples) + 1):
        found = judge(samples[:k], samples[k - 1][0], rule)
        if found is not None:
            return samples[k - 1], found
    return None, None


def test_a_hot_board_starts_when_it_has_cooled_and_come_to_rest() -> None:
    (at_s, celsius, _), found = first_start(cooling(80.0, 45.0, 60.0, 600.0), CooldownRule())
    # Newton's law: the slope is (T0 - Tr) / tau * exp(-t / tau); it falls below 0.5 K/min at 60 ln(70) = 255 s, seen 15 s late.
    assert at_s == pytest.approx(60.0 * math.log(35.0 / 60.0 * 60.0 / 0.5) + 15.0, abs=3.0)
    assert (celsius < 55.0, found.warm, found.said) == (True, False, "")


def test_a_cool_board_starts_after_one_look() -> None:
    (at_s, _, _), found = first_start(cooling(45.0, 45.0, 60.0, 100.0), CooldownRule())
    assert (at_s, found.warm) == (30.0, False)


def test_a_board_that_rests_hot_starts_warm_and_says_so() -> None:
    (at_s, _, _), found = first_start(cooling(62.0, 62.0, 60.0, 300.0), CooldownRule())
    assert (at_s, found.warm) == (120.0, True)
    assert "rests at 62.0" in found.said


def test_a_board_that_goes_on_changing_starts_after_the_time_out() -> None:
    drifting = [(k / 2, 70.0 - k * 0.01, False) for k in range(1400)]
    (at_s, _, _), found = first_start(drifting, CooldownRule())
    assert (at_s, found.warm) == (600.0, True)


def test_a_cool_board_that_throttles_waits() -> None:
    samples = [(t, c, True) for t, c, _ in cooling(45.0, 45.0, 60.0, 200.0)]
    assert first_start(samples, CooldownRule()) == (None, None)


def test_without_a_thermometer_nobody_waits() -> None:
    found = judge([(0.0, None, None)], 0.5, CooldownRule())
    assert found is not None and not found.warm and "no sensor" in found.said


def test_the_slope_is_that_of_theil_and_sen() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = random.Random(1)
    points = [(k * 0.5, 50.0 + k * 0.01 + generator.gauss(0, 0.2)) for k in range(60)]
    points[7] = (3.5, 90.0)
    fit = stats.theilslopes([c for _, c in points], [t for t, _ in points])
    assert slope_k_per_min(points) == pytest.approx(60.0 * fit[0], rel=1e-9)
    assert slope_k_per_min(points[:2]) is None


def blocks(seconds: int, latency: Any) -> Any:
    return [(float(t + 1), float(latency(t))) for t in range(seconds)]


RULE = SteadyRule()


@pytest.mark.parametrize(
    ("latency", "celsius", "throttled", "steady"),
    [
        (lambda t: 8e6, lambda t: 60.0, lambda t: False, True),
        (lambda t: 8e6 * (1 + 0.0005 * t), lambda t: 60.0, lambda t: False, False),  # 3 % from window to window
        (lambda t: 8e6, lambda t: 60.0 + 0.02 * t, lambda t: False, False),  # 1.2 K a minute
        (lambda t: 8e6, lambda t: 60.0, lambda t: t > 90, False),  # throttled in the last window only
        (lambda t: 8e6, lambda t: None, lambda t: None, True),  # nothing but latency tells
    ],
)
def test_the_criterion_of_steady(latency: Any, celsius: Any, throttled: Any, steady: bool) -> None:
    samples = [(k / 2, celsius(k / 2), throttled(k / 2)) for k in range(240)]
    assert is_steady([blocks(120, latency)], samples, RULE) is steady


def test_steady_needs_a_burst_and_three_windows_of_every_variant() -> None:
    even = blocks(120, lambda t: 8e6)
    assert not is_steady([even[:100]], [], RULE)
    assert is_steady([even], [], RULE)
    assert not is_steady([even, []], [], RULE)
    assert not is_steady([even, blocks(120, lambda t: 8e6 * (1 + t / 500))], [], RULE)


def test_fixed_arrivals_keep_the_rate_to_the_nanosecond() -> None:
    gaps = list(itertools.islice(gaps_ns(30.0, "fixed", 0), 30))
    assert sum(gaps) == 10**9 and max(gaps) - min(gaps) <= 1


def test_poisson_arrivals_have_exponential_gaps() -> None:
    stats = pytest.importorskip("scipy.stats")
    gaps = list(itertools.islice(gaps_ns(100.0, "poisson", 7), 5000))
    assert stats.kstest(np.array(gaps) / 1e7, "expon").pvalue > 0.01
    assert gaps == list(itertools.islice(gaps_ns(100.0, "poisson", 7), 5000))


def test_a_run_of_a_count_makes_exactly_that_many(job: Any) -> None:
    run = job("convs", "dense_int8", duration_s=600.0, count=137)
    result = run.run()
    assert result["state"] == "done", result
    assert [variant["count"] for variant in result["variants"].values()] == [137, 137]
    assert len(np.fromfile(run.folder / "latencies.bin", "<i8")) == 137
    assert result["protocol"]["ended_by"] == "count"


def test_a_cap_ends_a_run_that_does_not_reach_its_count(job: Any) -> None:
    result = job("islands", duration_s=0.3, count=10**9).run()
    assert (result["state"], result["protocol"]["ended_by"]) == ("done", "cap")


def span_s(variant: Any) -> float:
    """From the begin of the first block to the end of the last."""
    first, last = variant["blocks"][0], variant["blocks"][-1]
    return float(last["start_s"] + last["wall_ns"] / 1e9 - first["start_s"])


def test_until_steady_ends_by_itself(job: Any) -> None:
    rule = {"window_s": 0.4, "windows": 3, "change": 10.0, "slope_k_per_min": 1e9, "throttle_points": 100.0}
    result = job("convs", duration_s=600.0, until_steady=rule).run()
    assert result["protocol"]["ended_by"] == "steady"
    assert span_s(result["variants"]["model"]) >= 1.5  # four windows, less a tenth of one


@pytest.mark.parametrize("arrivals", ["fixed", "poisson"])
def test_a_paced_run_makes_what_arrives(job: Any, arrivals: str) -> None:
    pace = {"rate_per_s": 50.0, "arrivals": arrivals}
    run = job("dense_int8", duration_s=600.0, count=40, pace=pace)
    variant = run.run()["variants"]["model"]
    assert variant["count"] == 40
    # The last input is answered after it came: arrivals are never early, on however slow a machine.
    assert span_s(variant) >= sum(itertools.islice(gaps_ns(50.0, arrivals, 0), 40)) / 1e9


def test_more_than_the_board_can_do_queues_up_and_is_counted_late(job: Any) -> None:
    run = job("islands", duration_s=600.0, count=400, pace={"rate_per_s": 900000.0, "arrivals": "fixed"})
    variant = run.run()["variants"]["model"]
    times = np.fromfile(run.folder / "latencies.bin", "<i8")
    assert variant["late"] >= 390
    assert np.all(np.diff(times) > 0)  # each waits for all before it: latency from the intended arrival grows


def test_thread_settings_run_in_turns(job: Any) -> None:
    run = job("convs", duration_s=0.3)
    request = run.json("request.json")
    request["more_variants"] = [{"name": "threads-2", "model": request["model"], "threads": 2}]
    (run.folder / "request.json").write_text(json.dumps(request))
    variants = run.run()["variants"]
    assert [variant["threads"] for variant in variants.values()] == [1, 2]
    assert len(np.fromfile(run.folder / "latencies-threads-2.bin", "<i8")) == variants["threads-2"]["count"]


def test_a_run_without_a_thermometer_says_that_it_did_not_cool_down(job: Any, board: Any) -> None:
    nothing = board(files={"sys/empty": ""})
    run = job("convs", duration_s=0.2, cooldown={})
    result = run.run("--sys", nothing.roots.sys)
    assert result["protocol"]["cooldown"]["warm_start"] is False
    assert "no sensor" in result["protocol"]["cooldown"]["said"]
    stages = [event["message"] for event in run.lines("events.jsonl") if event["kind"] == "stage"]
    assert stages[0] == "cooldown"


def test_a_board_cools_before_the_model_is_opened(job: Any, board: Any) -> None:
    pi = board("raspberry-pi-4")
    run = job("convs", duration_s=0.2, cooldown={"look_s": 0.5})
    result = run.run("--sys", pi.roots.sys)
    assert result["protocol"]["cooldown"]["said"] == ""
    assert result["protocol"]["cooldown"]["waited_s"] >= 0.5
