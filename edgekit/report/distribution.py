"""The latencies of one model as a sorted distribution, whether every one was kept or only a histogram of them.

Also what time order adds: how much neighbours resemble each other, and so how many independent inferences they are
worth.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OUTLIER_MADS = 5.0
"""An outlier lies farther than this many scaled MADs from the median."""
MAD_TO_SIGMA = 1.4826
"""Scales the median absolute deviation to the standard deviation of a normal distribution."""

LONGEST = 1 << 19
"""Latencies that correlations are computed of at most."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """Sorted latencies ``values_ns`` [k] with multiplicities ``counts`` [k]."""

    values_ns: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def from_samples(cls, samples_ns: NDArray[np.int64]) -> Distribution:
        """Of raw latencies in any order."""
        ordered = np.sort(np.asarray(samples_ns)).astype(np.float64)
        return cls(ordered, np.ones(ordered.size, dtype=np.int64))

    @classmethod
    def from_bins(cls, values_ns: NDArray[np.float64], counts: NDArray[np.int64]) -> Distribution:
        """Of a histogram: one representative latency and one count a bin, in any order. Empty bins are dropped."""
        keep = counts > 0
        values, kept = values_ns[keep].astype(np.float64), counts[keep].astype(np.int64)
        order = np.argsort(values, kind="stable")
        return cls(values[order], kept[order])

    @functools.cached_property
    def _upto(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts)

    @property
    def count(self) -> int:
        """Number of inferences."""
        return int(self._upto[-1]) if self._upto.size else 0

    def at_rank(self, rank: int) -> float:
        """The ``rank``-th smallest latency (1-based) in ns; IndexError outside 1..count."""
        if not 1 <= rank <= self.count:
            raise IndexError(f"rank {rank} of {self.count} latencies")
        return float(self.values_ns[int(np.searchsorted(self._upto, rank, side="left"))])

    @property
    def median_ns(self) -> float:
        """The middle latency, the lower one of two: the same number as p50."""
        return self.at_rank((self.count + 1) // 2)

    @property
    def mean_ns(self) -> float:
        """The arithmetic mean."""
        return float(np.average(self.values_ns, weights=self.counts))

    @property
    def std_ns(self) -> float:
        """The sample standard deviation (n - 1)."""
        if self.count < 2:
            return 0.0
        squares = float(np.sum(self.counts * (self.values_ns - self.mean_ns) ** 2))
        return float(np.sqrt(squares / (self.count - 1)))

    @property
    def mad_ns(self) -> float:
        """The median absolute deviation from the median."""
        return Distribution.from_bins(np.abs(self.values_ns - self.median_ns), self.counts).median_ns

    @property
    def outliers(self) -> int:
        """How many latencies lie farther than 5 * 1.4826 * MAD from the median. Counted, never removed."""
        limit = OUTLIER_MADS * MAD_TO_SIGMA * self.mad_ns
        if limit == 0.0:  # more than half of them are equal to the clock's last digit: the rule says nothing
            return 0
        return int(self.counts[np.abs(self.values_ns - self.median_ns) > limit].sum())


def lag1_correlation(samples_ns: NDArray[np.int64]) -> float | None:
    """How much each latency resembles the one before it, -1 to 1; None below 3 samples or when all are equal.

    Of the ranks, not the values: one slow inference of a hundred times the median would otherwise hide the drift of all
    others.
    """
    from scipy.stats import rankdata

    if samples_ns.size < 3:
        return None
    ranks = rankdata(samples_ns)
    centred = ranks - ranks.mean()
    power = float(np.dot(centred, centred))
    if power == 0.0:
        return None
    return float(np.dot(centred[1:], centred[:-1])) / power


def effective_count(n: int, lag1: float | None) -> int:
    """What ``n`` samples of lag-1 correlation ``lag1`` are worth as independent ones: ``n (1 - r) / (1 + r)``, at most
    n, at least 1.

    The formula holds for a first-order autoregressive series. A negative correlation is not taken as a bonus.
    """
    if lag1 is None or lag1 <= 0.0 or n == 0:
        return n
    return max(1, int(n * (1.0 - lag1) / (1.0 + lag1)))


def independent_count(samples_ns: NDArray[np.int64]) -> int:
    """What latencies in time order are worth as independent ones: ``n / (1 + 2 sum of correlations)``, at most :func:`effective_count`.

    The sum runs over pairs of lags up to the first whose correlations together are no longer positive beyond chance (the initial positive
    sequence of Geyer, Practical Markov Chain Monte Carlo, 1992, with two standard errors in place of zero), so slow drift under fast noise
    counts too, which lag 1 alone does not see. Of the ranks, as in :func:`lag1_correlation`; of a very long run, its middle speaks for it.
    """
    n = samples_ns.size
    lag1 = lag1_correlation(samples_ns)
    if n < 8 or lag1 is None:
        return n
    capped = effective_count(n, lag1 if lag1 > 2.0 / np.sqrt(n) else None)
    from scipy.signal import fftconvolve
    from scipy.stats import rankdata

    first = max(0, (n - LONGEST) // 2)
    ranks = rankdata(samples_ns[first : first + LONGEST])
    centred = ranks - ranks.mean()
    power = float(np.dot(centred, centred))
    if power == 0.0:
        return capped
    correlations = fftconvolve(centred, centred[::-1])[centred.size - 1 :] / power
    pairs = correlations[: centred.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    # The first pair holds lag 0, which is 1; the others scatter around 0 with a variance of 2 / n where nothing correlates.
    ends = np.flatnonzero(pairs - (np.arange(pairs.size) == 0) <= 2.0 * np.sqrt(2.0 / centred.size))
    total = 2.0 * float(pairs[: max(1, ends[0]) if ends.size else pairs.size].sum()) - 1.0
    return max(1, min(capped, int(n / max(1.0, total))))
