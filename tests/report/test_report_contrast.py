"""Verdicts between two: against tests worked by scipy, in simulation, and never from a run that supports none."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edgekit.cli.compare import compare as compare_verb
from edgekit.errors import RunInvalidError, UsageError
from edgekit.report.comparing import compare_in_turns, compare_runs
from edgekit.report.contrast import contrast_apart, contrast_pairs, contrast_runs, judge

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from compare_coverage import trial

MakeRun = Callable[..., Path]


def test_equal_models_are_seldom_told_apart() -> None:
    rng = np.random.default_rng(11)
    words = [trial(rng, margin=0.0)[0] for _ in range(60)]
    assert sum(word in ("faster", "slower") for word in words) <= 3
    rng = np.random.default_rng(11)
    assert not {trial(rng)[0] for _ in range(60)} & {"faster", "slower"}


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.8])
def test_intervals_hold_the_truth_as_often_as_they_say(rho: float) -> None:
    rng = np.random.default_rng(5)
    held = [trial(rng, shift=0.05, rho=rho)[1] for _ in range(200)]
    offered = [item for item in held if item is not None]
    assert len(offered) > 120
    assert np.mean(offered) >= 0.91  # 95 % less two standard errors of this sample and the bias of short series


def test_the_shift_is_that_of_hodges_and_lehmann() -> None:
    rng = np.random.default_rng(3)
    a, b = 8e6 * np.exp(rng.normal(0, 0.01, 21)), 7e6 * np.exp(rng.normal(0, 0.01, 21))
    walsh = [(x + y) / 2 for k, x in enumerate(np.log(b / a)) for y in np.log(b / a)[k:]]
    assert contrast_pairs(list(a), list(b)).ratio == pytest.approx(math.exp(np.median(walsh)))
    pairwise = [math.log(y / x) for x in a for y in b]
    assert contrast_apart(list(a), list(b)).ratio == pytest.approx(math.exp(np.median(pairwise)))


@pytest.mark.parametrize(("n_a", "n_b"), [(4, 4), (5, 5), (6, 9)])
def test_the_interval_of_runs_is_what_the_exact_test_does_not_reject(n_a: int, n_b: int) -> None:
    from scipy.stats import mannwhitneyu

    rng = np.random.default_rng(n_a)
    a, b = np.exp(rng.normal(16, 0.02, n_a)), np.exp(rng.normal(16.1, 0.02, n_b))
    found = contrast_runs(list(a), list(b))
    assert found.low is not None and found.high is not None

    def p(ratio: float) -> float:
        return float(mannwhitneyu(np.log(b) - math.log(ratio), np.log(a), method="exact").pvalue)

    assert p(found.low * 1.000001) > 0.05 and p(found.high / 1.000001) > 0.05
    assert p(found.low / 1.000001) <= 0.05 and p(found.high * 1.000001) <= 0.05


def test_three_runs_of_each_can_never_tell() -> None:
    found = contrast_runs([8e6, 8.1e6, 8.2e6], [1e6, 1.1e6, 1.2e6])
    assert (found.verdict, found.low) == ("undecided", None)
    assert "four" in found.reason


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.8, 0.95, "faster"), (1.04, 1.2, "slower"), (0.98, 1.02, "no difference"), (0.95, 1.01, "undecided")],
)
def test_the_four_words(low: float, high: float, word: str) -> None:
    assert judge(low, high, margin=0.03)[0] == word


@pytest.mark.parametrize(("factor", "word"), [(0.9, "faster"), (1.1, "slower"), (1.0, "no difference")])
def test_a_clear_case_in_turns(factor: float, word: str) -> None:
    rng = np.random.default_rng(1)
    heat = np.linspace(1.0, 2.0, 30)  # common to both
    a = 8e6 * heat * np.exp(rng.normal(0, 0.003, 30))
    b = 8e6 * factor * heat * np.exp(rng.normal(0, 0.003, 30))
    assert contrast_pairs(list(a), list(b)).verdict == word


def test_few_blocks_and_blocks_that_resemble_each_other_are_undecided() -> None:
    assert "needs 12" in contrast_pairs([8e6] * 11, [4e6] * 11).reason
    drifting = [8e6 * (1 + k / 20) for k in range(14)]
    found = contrast_pairs([8e6] * 14, drifting)
    assert found.verdict == "undecided"
    with pytest.raises(ValueError):
        contrast_pairs([], [])
    with pytest.raises(ValueError):
        contrast_apart([0.0] * 20, [1.0] * 20)


def test_runs_are_compared_and_what_differs_is_told(make_run: MakeRun) -> None:
    slow, fast = make_run("slow", seconds=30, seed=1), make_run("fast", seconds=30, seed=2, median_ms=6.0)
    found = compare_runs([slow], [fast])
    assert found.contrast.verdict == "faster" and found.how == "one run each"
    assert found.contrast.ratio == pytest.approx(0.75, rel=0.01)
    assert found.notes == ()
    other = make_run("other", seconds=30, governor="ondemand")
    assert compare_runs([slow], [other]).notes == ("clock governor: performance against ondemand",)


def test_several_runs_are_resampled_as_runs(make_run: MakeRun) -> None:
    sides = [
        [make_run(f"{side}{k}", seconds=4, seed=k, median_ms=ms + 0.02 * k) for k in range(4)]
        for side, ms in (("a", 8.0), ("b", 9.0))
    ]
    found = compare_runs(*sides)
    assert (found.how, found.contrast.verdict, found.contrast.units) == ("runs", "slower", 4)


def test_an_invalid_run_is_never_compared_silently(make_run: MakeRun) -> None:
    good, bad = make_run("good"), make_run("bad", median_ms=4.0, valid=False, invalid_reasons=("under-voltage",))
    found = compare_runs([good], [bad])
    assert found.contrast.verdict == "undecided" and found.invalid == ("bad: under-voltage",)
    result = CliRunner().invoke(compare_verb, [str(good), str(bad)])
    assert isinstance(result.exception, RunInvalidError) and result.exception.exit_code == 6


def test_a_run_of_one_model_has_nothing_to_compare(make_run: MakeRun) -> None:
    with pytest.raises(UsageError) as caught:
        compare_in_turns(make_run())
    assert caught.value.code == "nothing_to_compare"


def test_the_verb_says_it_in_words_and_in_json(make_run: MakeRun) -> None:
    slow, fast = make_run("slow", seed=1), make_run("fast", seed=2, median_ms=6.0)
    said = CliRunner().invoke(compare_verb, [str(slow), str(fast)], standalone_mode=False)
    assert said.return_value == 0 and "fast is faster than slow" in said.output
    said = CliRunner().invoke(compare_verb, [str(slow), str(fast), "--json"], standalone_mode=False)
    document = json.loads(said.output)
    assert document["passed"] and document["comparison"]["contrast"]["verdict"] == "faster"
    short = make_run("short", seconds=5)
    assert CliRunner().invoke(compare_verb, [str(slow), str(short)], standalone_mode=False).return_value == 1
    words = [str(slow), str(short), "--allow-undecided"]
    assert CliRunner().invoke(compare_verb, words, standalone_mode=False).return_value == 0
