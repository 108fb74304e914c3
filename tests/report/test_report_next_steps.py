"""Every advice with the run or bundle that calls for it, and the one that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.report.next_steps import Advice, advise_bundle, advise_manifest, advise_run
from edgekit.report.stats import RunFolder, summarise

MakeRun = Callable[..., Path]
MakeManifest = Callable[..., dict[str, Any]]


def advice_of(path: Path) -> dict[str, Advice]:
    return {advice.key: advice for advice in advise_run(summarise(RunFolder.load(path)))}


QUIET: dict[str, Any] = {"seconds": 60, "float_ms": 21.0, "median_ms": 15.0, "rise_c": 0.0}


def test_a_quiet_run_asks_for_nothing(make_run: MakeRun) -> None:
    assert advice_of(make_run(**QUIET)) == {}


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        ("throttled", {"throttle": ((40.0, 50.0),)}, "throttled by heat: after 40 s"),
        ("slow_unknown", {"seconds": 180, "slow_down": 0.2}, "slowed down by an unknown cause"),
        ("int8_slower", {"float_ms": 10.0}, "0.667x"),
        ("int8_same", {"float_ms": 15.0}, "within 3 %"),
        ("islands", {"partitions": 5}, "5 partitions instead of one; 6 operators stay outside"),
        ("no_delegate", {"delegated": 0}, "0 of 66 operators delegated"),
        ("slowed", {"seconds": 180, "slow_down": 0.2}, "slower than the first"),
        ("rising", {"rise_c": 40.0, "tau_s": 60.0}, "still rising"),
        ("busy", {"busy_other": 0.2}, "20.0 %"),
        (
            "noisy",
            {"noise": 0.08, "governor": "ondemand"},
            "all through the run, not from single slow inferences; the clock governor is ondemand",
        ),
        ("noisy", {"spikes": 0.01}, "outliers among otherwise even ones"),
        ("foreign", {"machine": "x86_64"}, "made on x86_64"),
        ("undecided", {"seconds": 10}, "only 5 pairs of blocks"),
        ("short_tail", {"seconds": 12}, "p99 needs 662 inferences, this run has"),
        ("slow_first", {"median_ms": 8.0}, "times the median"),
        ("no_float", {"float_ms": None}, "what the integers gained"),
    ],
)
def test_each_rule(make_run: MakeRun, key: str, change: dict[str, Any], said: str) -> None:
    found = advice_of(make_run(**{**QUIET, **change}))
    assert key in found
    assert said in found[key].reason


def test_throttling_that_may_not_be_read_asks_for_the_right_to(make_run: MakeRun) -> None:
    path = make_run(**{**QUIET, "word": False})
    facts = json.loads((path / "facts.json").read_text())
    reason = "vcgencmd says 'VCHI initialization failed' (fix: sudo usermod -aG video $USER, then log in again)"
    facts["sensors"] = {"set": "raspberry-pi", "unknown": {"throttle_word": reason}}
    (path / "facts.json").write_text(json.dumps(facts))
    found = advice_of(path)["throttling_unknown"]
    assert "usermod -aG video" in found.title
    assert "VCHI" in found.reason


def test_a_weak_supply_is_named_before_the_next_run(make_run: MakeRun) -> None:
    path = make_run(**QUIET)
    lines = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
    for line in lines[20:30]:
        line["throttle_word"] = 0x50005
    (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = advice_of(path)
    assert list(found) == ["under_voltage", "rerun"]
    assert "supply was too low" in found["rerun"].reason


def test_unknown_sensors_call_for_nothing(make_run: MakeRun) -> None:
    found = advice_of(make_run(**{**QUIET, "temperature": False, "memory": False}))
    assert found == {}


def test_an_invalid_run_only_asks_for_a_valid_one(make_run: MakeRun) -> None:
    found = advice_of(make_run(**{**QUIET, "state": "failed", "partitions": 5}))
    assert list(found) == ["rerun"]
    assert "failed" in found["rerun"].reason


def test_longer_runs_are_long_enough(make_run: MakeRun) -> None:
    found = advice_of(make_run(seconds=3, median_ms=8.0, rise_c=0.0))
    asked = int(found["short_tail"].command.split()[-1].removesuffix("s"))
    assert 375 / 3 * asked >= 662


def test_a_bundle_that_passed_is_to_be_measured(make_manifest: MakeManifest) -> None:
    assert [advice.key for advice in advise_bundle(make_manifest())] == ["bench"]


def test_a_significant_drop(make_manifest: MakeManifest) -> None:
    manifest = make_manifest()
    assert "accuracy_drop" not in {advice.key for advice in advise_manifest(manifest)}  # its interval reaches zero
    manifest["verification"]["accuracy"]["difference_points"] = {"value": -4.0, "low": -6.1, "high": -1.9}
    found = {advice.key: advice for advice in advise_manifest(manifest)}
    assert "costs 4.00 points, and at least 1.90" in found["accuracy_drop"].reason


def test_float_operators_and_missing_labels(make_manifest: MakeManifest) -> None:
    found = {advice.key: advice for advice in advise_manifest(make_manifest(accuracy=False, floats=True))}
    assert "1 of 65 operators stay float, the first is SOFTMAX" in found["float_operators"].reason
    assert "accuracy_unknown" in found


def test_a_dead_slice_behind_a_fine_mean(make_manifest: MakeManifest) -> None:
    manifest = make_manifest()
    manifest["verification"]["int8"]["outputs"][0]["worst_slice"]["sqnr_db"] = 0.4
    found = {advice.key: advice for advice in advise_manifest(manifest)}
    assert "index 412 of axis 1" in found["weak_slice"].title


@pytest.mark.parametrize(("verdict", "key"), [("failed", "gate_failed"), ("undecided", "gate_undecided")])
def test_gates_that_did_not_pass(make_manifest: MakeManifest, verdict: str, key: str) -> None:
    manifest = make_manifest()
    manifest["verification"]["gates"][1].update(verdict=verdict, message="loses 9 points, at most 3")
    manifest["verification"]["passed"] = False
    found = advise_bundle(manifest)
    assert found[0].key == key
    assert "loses 9 points" in found[0].reason
    assert "bench" not in {advice.key for advice in found}


def test_nothing_known_nothing_advised() -> None:
    assert advise_manifest({}) == ()
