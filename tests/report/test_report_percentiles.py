"""Counts and intervals of percentiles against hand-worked numbers, numpy, and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgekit.report.distribution import Distribution, effective_count, lag1_correlation
from edgekit.report.percentiles import interval_ranks, nearest_rank, percentile, percentile_of, required_count
from edgekit.report.summary import NotEnough, Percentile


@pytest.mark.parametrize(("percent", "count"), [(50, 11), (90, 64), (95, 130), (99, 662), (99.9, 6636)])
def test_counts_are_those_of_loadgen_with_one_query_over(percent: float, count: int) -> None:
    assert required_count(percent) == count


@pytest.mark.parametrize(
    ("percent", "confidence", "over", "count"),
    [
        (50, 0.99, 0, 7),
        (90, 0.99, 0, 44),
        (95, 0.99, 2, 165),
        (99, 0.99, 0, 459),
        (99, 0.99, 10, 2010),
        (99.9, 0.99, 5, 13105),
        (99, 0.95, 1, 473),
        (99.9, 0.95, 2, 6294),
    ],
)
def test_counts_of_other_confidences_and_allowances(percent: float, confidence: float, over: int, count: int) -> None:
    assert required_count(percent, confidence=confidence, over=over) == count


def test_p50_needs_eleven_by_hand() -> None:
    # P[Binomial(n, 1/2) <= 1] = (n + 1) / 2**n: 12/2048 is below one in a hundred, 11/1024 is not.
    assert 12 / 2048 <= 0.01 < 11 / 1024
    assert required_count(50) == 11


@pytest.mark.parametrize("percent", [0.5, 49.9, 100.0, -1.0, 0.99])
def test_a_percentile_outside_the_upper_half_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="given in percent"):
        percentile(np.arange(1, 1000), percent)


@pytest.mark.parametrize(
    ("n", "percent", "ranks"),
    [
        (1000, 50, (469, 532)),
        (1000, 90, (881, 919)),
        (1000, 95, (936, 964)),
        (1000, 99, (983, 997)),
        (200, 99, (195, None)),
        (0, 50, (None, None)),
        (3, 50, (None, None)),
    ],
)
def test_ranks_of_the_interval(n: int, percent: float, ranks: tuple[int | None, int | None]) -> None:
    assert interval_ranks(n, percent) == ranks


def test_a_percentile_carries_value_and_interval_of_its_ranks() -> None:
    samples = np.random.default_rng(1).permutation(np.arange(1, 1001)) * 1000
    found = percentile(samples, 99)
    assert found == Percentile(99, 990_000.0, 983_000.0, 997_000.0, 0.95, 662, 1000)
    assert found.name == "p99"


@pytest.mark.parametrize(("percent", "needs"), [(50, 11), (90, 64), (95, 130), (99, 662)])
def test_one_inference_too_few_and_there_is_no_number(percent: float, needs: int) -> None:
    assert percentile(np.arange(1, needs), percent) == NotEnough(percent, needs, needs - 1, needs - 1)
    assert isinstance(percentile(np.arange(1, needs + 1), percent), Percentile)


def test_the_value_is_the_nearest_rank_of_numpy() -> None:
    samples = np.random.default_rng(2).lognormal(15, 0.3, 7001).astype(np.int64)
    for percent in (50, 90, 95, 99, 99.9):
        found = percentile(samples, percent)
        assert isinstance(found, Percentile)
        assert found.value_ns == np.percentile(samples, percent, method="inverted_cdf")


@pytest.mark.parametrize("n", [1, 10, 999, 1000, 1001, 100_000])
def test_ranks_survive_numbers_that_are_not_binary(n: int) -> None:
    # In exact arithmetic: the smallest rank r with 1000 * r >= 999 * n.
    assert nearest_rank(n, 99.9) == -(-999 * n // 1000)


def test_the_interval_covers_the_true_percentile_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    truth = -np.log(0.1) * 1e6  # the p90 of an exponential distribution of mean 1e6
    inside = 0
    for _ in range(1000):
        found = percentile(np.ceil(rng.exponential(1e6, 300)).astype(np.int64), 90)
        assert isinstance(found, Percentile)
        assert found.low_ns is not None and found.high_ns is not None
        inside += found.low_ns <= truth <= found.high_ns
    assert inside >= 940  # 95 % nominal; binomial spread of 1000 trials is 0.7 %


def test_the_interval_of_correlated_samples_covers_too() -> None:
    rng = np.random.default_rng(4)
    inside = {True: 0, False: 0}
    for _ in range(300):
        noise = rng.normal(size=1000)
        series = np.empty(1000)
        series[0] = noise[0]
        for i in range(1, 1000):
            series[i] = 0.8 * series[i - 1] + 0.6 * noise[i]  # unit variance, so the median is 0
        samples = np.round(1e9 + series * 1e6).astype(np.int64)
        for adjusted in (True, False):
            worth = effective_count(1000, lag1_correlation(samples)) if adjusted else None
            found = percentile(samples, 50, effective_count=worth)
            assert isinstance(found, Percentile)
            inside[adjusted] += (found.low_ns or 0) <= 1e9 <= (found.high_ns or np.inf)
    assert inside[True] >= 270
    assert inside[False] < 220  # what counting them as independent would have promised as 95 %


def test_effective_count_by_hand() -> None:
    assert effective_count(1000, 0.5) == 333
    assert effective_count(1000, -0.4) == 1000
    assert effective_count(1000, None) == 1000
    assert effective_count(10, 0.999) == 1
    assert effective_count(0, 0.5) == 0


def test_lag1_of_known_series() -> None:
    rng = np.random.default_rng(5)
    white = np.round(rng.normal(1e7, 1e5, 20_000)).astype(np.int64)
    assert abs(lag1_correlation(white) or 0.0) < 0.03
    assert (lag1_correlation(np.arange(1, 1001)) or 0.0) > 0.99
    assert lag1_correlation(np.array([1, 9] * 500)) == pytest.approx(-1.0, abs=0.01)
    assert lag1_correlation(np.full(100, 7)) is None
    assert lag1_correlation(np.array([1, 2])) is None


def test_one_huge_outlier_does_not_hide_the_drift() -> None:
    drifting = np.arange(10_000_000, 10_001_000)
    drifting[500] = 10_000_000_000
    assert (lag1_correlation(drifting) or 0.0) > 0.95


def test_a_distribution_agrees_with_numpy() -> None:
    samples = np.random.default_rng(6).lognormal(15, 0.5, 1001).astype(np.int64)
    found = Distribution.from_samples(samples)
    assert found.count == 1001
    assert found.median_ns == np.median(samples)
    assert found.mean_ns == pytest.approx(samples.mean(), rel=1e-12)
    assert found.std_ns == pytest.approx(samples.std(ddof=1), rel=1e-12)
    deviations = np.abs(samples - np.median(samples))
    assert found.mad_ns == np.median(deviations)
    assert found.outliers == np.count_nonzero(deviations > 5 * 1.4826 * np.median(deviations))
    assert found.outliers > 0


def test_a_histogram_is_the_same_distribution() -> None:
    values = np.random.default_rng(7).integers(100, 140, 5000)
    bins, counts = np.unique(values, return_counts=True)
    shuffled = np.random.default_rng(8).permutation(bins.size)
    packed = Distribution.from_bins(bins[shuffled].astype(float), counts[shuffled])
    raw = Distribution.from_samples(values)
    for percent in (50, 90, 99):
        assert percentile_of(packed, percent) == percentile_of(raw, percent)
    assert (packed.mad_ns, packed.outliers) == (raw.mad_ns, raw.outliers)
    assert packed.mean_ns == pytest.approx(raw.mean_ns)
    assert packed.std_ns == pytest.approx(raw.std_ns)


def test_ranks_outside_a_distribution_are_an_error() -> None:
    found = Distribution.from_samples(np.array([3, 1, 2]))
    assert [found.at_rank(rank) for rank in (1, 2, 3)] == [1, 2, 3]
    for rank in (0, 4):
        with pytest.raises(IndexError):
            found.at_rank(rank)


def test_counts_grow_with_the_percentile() -> None:
    counts = [required_count(percent) for percent in (50, 60, 75, 90, 95, 97, 99, 99.5, 99.9)]
    assert all(a < b for a, b in itertools.pairwise(counts))
