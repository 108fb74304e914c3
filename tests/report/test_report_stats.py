"""Summaries of runs against the raw files, recomputed apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.report.distribution import independent_count
from edgekit.report.histogram import distribution_of
from edgekit.report.speedup import judge, speedup_of
from edgekit.report.stats import RunFolder, summarise
from edgekit.report.summary import NotEnough, Percentile, RunSummary
from edgekit.report.timeline import Block
from edgekit.values import to_json

MakeRun = Callable[..., Path]


def summary_of(path: Path) -> RunSummary:
    return summarise(RunFolder.load(path))


def test_an_undisturbed_run(make_run: MakeRun) -> None:
    path = make_run()
    summary = summary_of(path)
    raw = np.fromfile(path / "latencies.bin", dtype="<i8")
    main = summary.main
    assert main is not None
    assert summary.validity.valid and summary.state == "done"
    assert main.count == raw.size
    p50 = main.percentile(50)
    assert isinstance(p50, Percentile)
    assert main.median_ns == p50.value_ns == np.percentile(raw, 50, method="inverted_cdf")
    assert main.cov == pytest.approx(raw.std(ddof=1) / raw.mean())
    assert main.throughput_per_s == pytest.approx(raw.size / (raw.sum() * 1.001 / 1e9), rel=1e-6)
    assert isinstance(main.percentile(99), Percentile)
    assert isinstance(main.percentile(99.9), NotEnough)
    assert main.first_inference_ns == 41_000_000
    assert main.warmup_count == 12
    assert main.peak_rss_bytes == max(stage.peak_rss_bytes or 0 for stage in main.memory)
    assert [stage.stage for stage in main.memory] == ["import", "load", "allocate", "first_invoke", "sustained"]
    assert summary.duration_s == pytest.approx(30, abs=0.2)
    assert summary.speedup is None
    assert summary.sustained is None and "needs 120 s" in summary.sustained_missing


def test_a_summary_is_plain_json(make_run: MakeRun) -> None:
    text = json.dumps(to_json(summary_of(make_run(seconds=5, float_ms=20.0))), allow_nan=False)
    assert json.loads(text)["variants"][0]["name"] == "model"


def test_the_same_folder_gives_the_same_summary(make_run: MakeRun) -> None:
    path = make_run(seconds=30, float_ms=20.0, spikes=0.01)
    assert to_json(summary_of(path)) == to_json(summary_of(path))


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_run_that_did_not_end_well_supports_no_verdict(make_run: MakeRun, state: str) -> None:
    error = {"code": "crash", "message": "the worker died of signal 11"} if state == "failed" else None
    summary = summary_of(make_run(seconds=20, float_ms=20.0, state=state, error=error))
    assert summary.validity.verdict == "invalid"
    assert f"ended as {state}" in summary.validity.reasons[0]
    if error:
        assert "signal 11" in summary.validity.reasons[0]
    assert summary.speedup is not None
    assert summary.speedup.verdict == "undecided"
    assert "invalid" in summary.speedup.reason


def test_the_agents_word_for_the_state_is_not_said_twice(make_run: MakeRun) -> None:
    summary = summary_of(make_run(seconds=5, state="cancelled", valid=False, invalid_reasons=("the run is cancelled",)))
    assert summary.validity.reasons == ("the run ended as cancelled",)


@pytest.mark.parametrize(
    "histogram",
    [
        {},
        {"lower_ns": [1], "width_ns": [1], "counts": []},
        {"lower_ns": [1.5], "width_ns": [1], "counts": [1]},
        {"lower_ns": [-1], "width_ns": [1], "counts": [1]},
        {"lower_ns": [1], "width_ns": [0], "counts": [1]},
        {"lower_ns": [1], "width_ns": [1], "counts": [0]},
        {"lower_ns": [True], "width_ns": [1], "counts": [1]},
    ],
)
def test_what_is_no_histogram_is_refused(histogram: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        distribution_of(histogram)


def test_ten_inferences_are_too_few_and_eleven_are_not(make_run: MakeRun) -> None:
    few = summary_of(make_run("few", seconds=0.0851, median_ms=8.0, noise=0.0))
    assert few.main is not None and few.main.count == 10
    assert few.validity.reasons == ("model: 10 steady inferences, a median needs 11; run longer",)
    enough = summary_of(make_run("enough", seconds=0.0901, median_ms=8.0, noise=0.0))
    assert enough.main is not None and enough.main.count == 11
    assert enough.validity.valid


def test_the_agents_own_reasons_are_kept(make_run: MakeRun) -> None:
    summary = summary_of(make_run(seconds=5, valid=False, invalid_reasons=("under-voltage for 3 s",)))
    assert summary.validity.reasons == ("under-voltage for 3 s",)
    assert not summary_of(make_run("silent", seconds=5, valid=False)).validity.valid


def test_a_histogram_counts_what_was_not_kept(make_run: MakeRun) -> None:
    whole = summary_of(make_run("all", seconds=80, seed=5)).main
    thin = summary_of(make_run("thin", seconds=80, seed=5, kept_every=16)).main
    assert whole is not None and thin is not None
    assert thin.from_histogram and thin.kept_every == 16
    assert thin.count == whole.count
    for percent in (50, 90, 99, 99.9):
        exact, binned = whole.percentile(percent), thin.percentile(percent)
        assert isinstance(exact, Percentile) and isinstance(binned, Percentile)
        assert binned.value_ns == pytest.approx(exact.value_ns, abs=512)  # half a bin


def test_a_histogram_that_cannot_be_read_is_told(make_run: MakeRun) -> None:
    path = make_run(seconds=10, kept_every=4)
    result = json.loads((path / "result.json").read_text())
    result["variants"]["model"]["histogram"] = {"lower_ns": [1], "width_ns": [1], "counts": ["a"]}
    (path / "result.json").write_text(json.dumps(result))
    summary = summary_of(path)
    assert any("histogram cannot be read" in warning for warning in summary.warnings)
    assert summary.main is not None and not summary.main.from_histogram


def test_memory_that_cannot_be_read_says_why(make_run: MakeRun) -> None:
    main = summary_of(make_run(seconds=5, memory=False)).main
    assert main is not None
    assert main.peak_rss_bytes is None
    assert {stage.unknown for stage in main.memory} == {"clear_refs: permission denied"}


def test_a_board_without_a_sensor_is_unknown_with_the_reason(make_run: MakeRun) -> None:
    thermal = summary_of(make_run(seconds=20, temperature=False)).thermal
    assert thermal.max_c is None and not thermal.rising
    assert thermal.unknown == {"temperature": "no thermal zone under /sys/class/thermal"}


def test_throttling_that_nothing_could_have_shown_is_unknown(make_run: MakeRun) -> None:
    assert "throttling" not in summary_of(make_run("seen", seconds=5)).thermal.unknown
    path = make_run("unseen", seconds=5, word=False)
    found = summary_of(path).thermal
    assert found.throttling.verdict == "unknown"  # the kernel's own limits say nothing on a Pi
    assert "does not show it" in found.unknown["throttling"]
    facts = json.loads((path / "facts.json").read_text())
    (path / "facts.json").write_text(json.dumps({**facts, "board_model": "Radxa ROCK 5B"}))
    assert summary_of(path).thermal.throttling.verdict == "not_throttled"  # there they do


def test_company_counts_only_while_it_was_measured(make_run: MakeRun) -> None:
    path = make_run(seconds=20, busy_other=0.01)
    result = json.loads((path / "result.json").read_text())
    for block in result["variants"]["model"]["blocks"]:
        block["start_s"] += 10.0
    (path / "result.json").write_text(json.dumps(result))
    lines = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
    lines = [{**line, "cpu_busy_other": 0.9 if line["t_s"] < 10.0 else 0.02} for line in lines]
    (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert summary_of(path).thermal.busy_other_mean == pytest.approx(0.02)


def test_no_samples_at_all_is_unknown_too(make_run: MakeRun) -> None:
    path = make_run(seconds=20)
    (path / "samples.jsonl").write_text("")
    assert summary_of(path).thermal.unknown["temperature"] == "the run has no sensor samples"


def test_heat_and_throttling(make_run: MakeRun) -> None:
    thermal = summary_of(make_run(seconds=120, rise_c=40.0, tau_s=60.0, throttle=((60.0, 90.0),))).thermal
    assert thermal.rising
    assert thermal.slope_k_per_min is not None and thermal.slope_k_per_min > 2
    assert thermal.throttling.verdict == "throttled"
    assert thermal.throttling.share == pytest.approx(0.25, abs=0.01)
    main = thermal.throttling.main
    assert main is not None and main.cause == "thermal"
    assert main.onset_s == pytest.approx(60.0)
    assert main.clock_floor_mhz == 1000.0
    assert main.slowdown == pytest.approx(1.5, rel=0.01)
    assert main.lost_share == pytest.approx(0.25 / 3, abs=0.005)
    assert (thermal.clock_min_mhz, thermal.clock_max_mhz) == (1000.0, 1500.0)
    assert thermal.start_c == pytest.approx(45, abs=0.5)


def test_a_board_at_rest_is_not_rising(make_run: MakeRun) -> None:
    thermal = summary_of(make_run(seconds=60, rise_c=0.0)).thermal
    assert not thermal.rising
    assert thermal.slope_k_per_min == pytest.approx(0, abs=0.3)


def test_throttling_that_never_ended_counts_to_the_end(make_run: MakeRun) -> None:
    path = make_run(seconds=40)
    (path / "events.jsonl").write_text('{"t_s": 10.0, "kind": "throttle_on", "message": ""}\n')
    assert summary_of(path).thermal.throttling.share == pytest.approx(0.75, abs=0.01)


def test_burst_against_sustained(make_run: MakeRun) -> None:
    path = make_run(seconds=240, throttle=((120.0, 240.0),), noise=0.003)
    summary = summary_of(path)
    sustained = summary.sustained
    assert sustained is not None
    assert sustained.burst_median_ns == pytest.approx(8e6, rel=0.01)
    assert sustained.ratio == pytest.approx(1.5, rel=0.01)
    assert sustained.retention == pytest.approx(1 / 1.5, rel=0.02)
    assert sustained.steady
    assert sustained.time_to_throttle_s == pytest.approx(120, abs=1)
    assert any("of the last 120 s alone" in warning for warning in summary.warnings)
    regime, main = summary.regime, summary.main
    assert regime is not None and main is not None
    assert regime.name == "steady state" and regime.start_s == pytest.approx(120, abs=1)
    raw = np.fromfile(path / "latencies.bin", "<i8")
    slow = raw[raw > 10e6]
    assert main.count == raw.size  # of the whole run, while the numbers are of one regime
    p99 = main.percentile(99)
    assert isinstance(p99, Percentile) and p99.has == slow.size
    assert p99.value_ns == np.percentile(slow, 99, method="inverted_cdf")
    assert main.min_ns == slow.min()


def test_a_speed_that_still_falls_is_not_steady(make_run: MakeRun) -> None:
    summary = summary_of(make_run(seconds=240, slow_down=0.5))
    sustained = summary.sustained
    assert sustained is not None and not sustained.steady
    assert "half minutes differ" in sustained.unsteady[0]
    assert summary.regime is not None and summary.regime.name == "last stretch"
    assert summary.validity.valid  # nobody asked for a steady end


def test_a_board_that_still_warms_up_is_not_steady(make_run: MakeRun) -> None:
    sustained = summary_of(make_run(seconds=240, rise_c=40.0, tau_s=200.0)).sustained
    assert sustained is not None and not sustained.steady
    assert "K a minute" in sustained.unsteady[0]


def amended(path: Path, name: str, **changes: object) -> Path:
    document = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**document, **changes}))
    return path


def test_a_run_that_was_to_become_steady_and_did_not_is_invalid(make_run: MakeRun) -> None:
    path = amended(make_run(seconds=240, slow_down=0.5), "request.json", until_steady={"window_s": 30.0})
    amended(path, "result.json", protocol={"ended_by": "cap"})
    assert "not steady when its time was over" in summary_of(path).validity.reasons[0]
    even = amended(make_run("even", seconds=150), "request.json", until_steady={"window_s": 30.0})
    assert summary_of(even).validity.valid


def test_a_run_without_the_percentile_that_it_was_for_is_invalid(make_run: MakeRun) -> None:
    path = amended(make_run(seconds=4.0), "request.json", percentile=99.0)  # 500 inferences
    assert "p99 needs 662 independent inferences" in summary_of(path).validity.reasons[0]
    assert summary_of(amended(make_run("long", seconds=30), "request.json", percentile=99.0)).validity.valid


def test_company_beyond_the_limit_makes_a_run_invalid(make_run: MakeRun) -> None:
    path = amended(make_run(seconds=20, busy_other=0.05), "request.json", max_other_load=0.1)
    assert "kept 20 % of a core busy" in summary_of(path).validity.reasons[0]  # 5 % of four cores
    assert summary_of(amended(path, "request.json", max_other_load=0.3)).validity.valid
    assert summary_of(amended(path, "request.json", max_other_load=None)).validity.valid


def test_a_warm_start_and_late_inputs_are_told(make_run: MakeRun) -> None:
    path = amended(make_run(seconds=5), "request.json", pace={"rate_per_s": 100.0, "arrivals": "fixed"})
    cooldown = {"waited_s": 120.0, "warm_start": True, "said": "the board rests at 62.0 °C"}
    result = json.loads((path / "result.json").read_text())
    result["variants"]["model"]["late"] = 25
    (path / "result.json").write_text(json.dumps({**result, "protocol": {"cooldown": cooldown}}))
    words = " ".join(summary_of(path).warnings)
    assert "warm start: the board rests at 62.0" in words and "25 of " in words


def test_the_temperature_of_the_cool_down_is_not_the_runs(make_run: MakeRun) -> None:
    path = make_run(seconds=20, rise_c=-30.0, start_c=80.0)
    (path / "events.jsonl").write_text('{"t_s": 15.0, "kind": "stage", "message": "open"}\n')
    thermal = summary_of(path).thermal
    assert thermal.max_c is not None and thermal.max_c < 60


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_correlated_latencies_are_worth(share: float) -> None:
    """An autoregressive series, alone and under noise: the variance of its mean is known in closed form."""
    signal = pytest.importorskip("scipy.signal")
    rho, n = 0.9, 20_000
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        slow = signal.lfilter([np.sqrt(1 - rho**2)], [1, -rho], rng.normal(size=n + 500))[500:]
        values = np.sqrt(share) * slow + np.sqrt(1 - share) * rng.normal(size=n)
        found.append(independent_count((1e7 + 1e5 * values).astype(np.int64)))
    assert np.median(found) == pytest.approx(n / (1 + 2 * share * rho / (1 - rho)), rel=0.15)
    white = np.random.default_rng(1).normal(1e7, 1e5, n).astype(np.int64)
    assert independent_count(white) > 0.97 * n


def test_neighbours_that_resemble_each_other_are_told(make_run: MakeRun) -> None:
    summary = summary_of(make_run(seconds=60, slow_down=0.3))
    main = summary.main
    assert main is not None and main.effective_count < 662
    assert any("independent ones" in warning for warning in summary.warnings)
    p99 = main.percentile(99)
    assert p99 == NotEnough(99.0, 662, main.count, main.effective_count)


def blocks_of_medians(medians_ms: list[float], start_s: float) -> list[Block]:
    return [
        Block(start_s + 2.0 * index, 1.0, 101, np.full(101, round(median * 1e6), dtype=np.int64))
        for index, median in enumerate(medians_ms)
    ]


def test_the_speedup_is_the_ratio_of_medians_with_a_resampled_interval() -> None:
    rng = np.random.default_rng(1)
    mine = [8.0 * (1 + rng.normal(0, 0.02)) for _ in range(20)]
    theirs = [16.0 * (1 + rng.normal(0, 0.02)) for _ in range(20)]
    found = speedup_of(blocks_of_medians(mine, 0.0), blocks_of_medians(theirs, 1.0))
    assert found is not None and found.low is not None and found.high is not None
    assert found.ratio == pytest.approx(np.median(theirs) / np.median(mine), rel=1e-5)
    ratios = []
    for _ in range(4000):  # resampled by hand
        chosen = rng.integers(0, 20, 20)
        ratios.append(np.median(np.array(theirs)[chosen]) / np.median(np.array(mine)[chosen]))
    assert (found.low, found.high) == pytest.approx(np.percentile(ratios, [2.5, 97.5]), rel=0.01)
    assert found.verdict == "faster" and found.pairs == 20


@pytest.mark.parametrize(("factor", "verdict"), [(2.0, "faster"), (0.5, "slower"), (1.0, "same"), (1.03, "undecided")])
def test_the_four_words(factor: float, verdict: str) -> None:
    rng = np.random.default_rng(2)
    mine = [8.0 * (1 + rng.normal(0, 0.005)) for _ in range(30)]
    theirs = [8.0 * factor * (1 + rng.normal(0, 0.005)) for _ in range(30)]
    found = speedup_of(blocks_of_medians(mine, 0.0), blocks_of_medians(theirs, 1.0))
    assert found is not None and found.verdict == verdict


def test_equal_blocks_are_the_same_and_do_not_divide_by_zero() -> None:
    found = speedup_of(blocks_of_medians([8.0] * 12, 0.0), blocks_of_medians([8.0] * 12, 1.0))
    assert found is not None
    assert (found.low, found.high, found.verdict) == (1.0, 1.0, "same")


def test_eight_pairs_are_undecided_and_none_are_nothing() -> None:
    found = speedup_of(blocks_of_medians([8.0] * 8, 0.0), blocks_of_medians([20.0] * 9, 1.0))
    assert found is not None
    assert (found.verdict, found.low, found.pairs) == ("undecided", None, 8)
    assert "needs 9" in found.reason
    assert speedup_of([], blocks_of_medians([8.0], 0.0)) is None


def test_common_heat_does_not_blur_the_ratio() -> None:
    heat = np.linspace(1.0, 2.0, 30)
    mine, theirs = list(8.0 * heat), list(16.0 * heat)
    found = speedup_of(blocks_of_medians(mine, 0.0), blocks_of_medians(theirs, 1.0))
    assert found is not None and found.low is not None and found.high is not None
    assert found.high - found.low < 0.001  # unpaired, the interval would be about half as wide as the ratio


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.04, 1.2, "faster"),
        (0.8, 0.95, "slower"),
        (0.98, 1.02, "same"),
        (0.9, 1.1, "undecided"),
        (1.01, 1.05, "undecided"),
    ],
)
def test_the_judgement_of_an_interval(low: float, high: float, word: str) -> None:
    assert judge(low, high, margin=0.03)[0] == word


def test_a_run_with_float_is_judged(make_run: MakeRun) -> None:
    summary = summary_of(make_run(seconds=30, float_ms=21.0))
    assert summary.speedup is not None
    assert summary.speedup.verdict == "faster"
    assert summary.speedup.ratio == pytest.approx(21 / 8, rel=0.01)
    assert summary.speedup.pairs == 15
