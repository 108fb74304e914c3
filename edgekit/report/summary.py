"""What a run folder says, once its raw files have been counted: frozen, unit in every name, plain JSON through
``values.to_json``.

Only data classes: importing this module costs nothing. :func:`edgekit.report.stats.summarise` fills them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAIN = "model"
"""The variant that the run is about (the bundle's quantised model, or whatever file was given)."""
FLOAT = "float"
"""The float model that was interleaved with it, if any."""


@dataclass(frozen=True)
class Percentile:
    """A percentile that the run has enough inferences for.

    ``low_ns`` and ``high_ns`` bound it with ``confidence`` by order statistics, whatever the distribution; None is an
    end that the sample cannot bound.
    """

    percent: float
    value_ns: float
    low_ns: float | None
    high_ns: float | None
    confidence: float
    needs: int
    has: int

    @property
    def name(self) -> str:
        """``p50``, ``p99``, ``p99.9``."""
        return percentile_name(self.percent)


@dataclass(frozen=True)
class NotEnough:
    """A percentile that must not be printed: it needs ``needs`` independent inferences, and the ``has`` of the run are worth ``worth``."""

    percent: float
    needs: int
    has: int
    worth: int

    @property
    def name(self) -> str:
        """``p50``, ``p99``, ``p99.9``."""
        return percentile_name(self.percent)


def percentile_name(percent: float) -> str:
    """``p50`` of 50.0, ``p99.9`` of 99.9."""
    return f"p{percent:g}"


@dataclass(frozen=True)
class StageMemory:
    """Resident memory of the worker process in one stage; None with ``unknown`` saying why where it could not be read."""

    stage: str
    peak_rss_bytes: int | None
    rss_bytes: int | None
    unknown: str = ""


@dataclass(frozen=True)
class DelegateFacts:
    """How much of the model the interpreter handed to its accelerated kernels. None is unknown.

    ``kernels`` is what the run asked for: ``default``, ``builtin`` (no delegate) or ``reference`` (no SIMD either).
    """

    name: str | None = None
    partitions: int | None = None
    delegated_operators: int | None = None
    total_operators: int | None = None
    kernels: str | None = None


@dataclass(frozen=True)
class VariantSummary:
    """One model file of the run, in steady state (warm-up excluded).

    ``count`` is of the whole run; everything after it is of the run's regime. ``effective_count`` is what those inferences are worth as
    independent ones, at most n(1-r)/(1+r) with ``lag1_correlation`` r. ``late`` inputs of a run at a rate had to wait for the one before.
    ``outliers`` counts \\|x - median\\| > 5 * 1.4826 * MAD; none is ever removed. ``body_cov`` is 1.4826 * MAD /
    median, the spread without them. ``inputs`` says what the model was fed with. ``throughput_per_s`` is inferences by the wall time they took, pauses for the other
    variant excluded.
    """

    name: str
    size_bytes: int | None
    sha256: str | None
    count: int
    kept_every: int
    from_histogram: bool
    median_ns: float | None
    mean_ns: float | None
    min_ns: float | None
    max_ns: float | None
    cov: float | None
    body_cov: float | None
    outliers: int
    throughput_per_s: float | None
    lag1_correlation: float | None
    effective_count: int
    percentiles: tuple[Percentile | NotEnough, ...]
    first_inference_ns: int | None
    warmup_count: int
    threads: int | None
    inputs: str
    memory: tuple[StageMemory, ...]
    peak_rss_bytes: int | None
    delegate: DelegateFacts
    late: int = 0

    def percentile(self, percent: float) -> Percentile | NotEnough:
        """The percentile that was asked for; KeyError when it was not computed."""
        for item in self.percentiles:
            if item.percent == percent:
                return item
        raise KeyError(percent)


@dataclass(frozen=True)
class Sustained:
    """The first half minute against the last: what heat and clocks did to the speed.

    ``ratio`` is the last median latency by the first (above 1: it became slower), ``retention`` the last throughput by
    the first. ``steady`` says whether in the last three half minutes latency, temperature and throttling stayed what they were;
    ``unsteady`` says what did not. ``time_to_throttle_s`` counts from the first steady inference until the board lowered its clock.
    """

    window_s: float
    burst_median_ns: float
    sustained_median_ns: float
    ratio: float
    retention: float | None
    steady: bool
    unsteady: tuple[str, ...] = ()
    time_to_throttle_s: float | None = None


@dataclass(frozen=True)
class Regime:
    """The stretch of the run that its latencies and percentiles are of: ``whole run``, ``steady state`` or ``last stretch`` (one speed, but
    not steady).
    """

    name: str
    start_s: float
    end_s: float

    @property
    def whole(self) -> bool:
        """True when nothing of the run lies outside."""
        return self.name == "whole run"


@dataclass(frozen=True)
class Speedup:
    """The float model's median latency divided by the main model's, interleaved on the same board.

    ``verdict`` is of the main model: ``faster``, ``slower``, ``same`` (the interval lies within +-``margin``) or
    ``undecided``.
    """

    ratio: float
    low: float | None
    high: float | None
    confidence: float
    pairs: int
    margin: float
    verdict: str
    reason: str


@dataclass(frozen=True)
class Spell:
    """A stretch of the run in which one cause slowed the board down; seconds since the run began."""

    cause: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class CauseFinding:
    """What one cause did in the whole run.

    ``onset_s`` counts from the first steady inference, ``share`` is of the time measured, ``clock_floor_mhz`` the lowest clock seen
    meanwhile. ``slowdown`` is the median latency meanwhile by the median without any cause, ``lost_share`` the part of the measured
    time that it cost. ``evidence`` says what showed it.
    """

    cause: str
    onset_s: float
    share: float
    clock_floor_mhz: float | None
    slowdown: float | None
    lost_share: float | None
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class ThrottleVerdict:
    """Whether the board was slowed down, and by what.

    ``verdict``: ``throttled`` (the board lowered its own clock), ``slowed`` (latency grew for another or no visible reason),
    ``not_throttled`` or ``unknown`` (nothing on this board would have shown it; ``unknown`` says why). ``causes`` has the costliest
    first; a cause is ``thermal``, ``under_voltage``, ``power_cap``, ``mode_change``, ``other_load`` or ``unknown``. ``invalid`` are
    reasons why no number of this run may be compared, ``notes`` what else to know.
    """

    verdict: str = "unknown"
    causes: tuple[CauseFinding, ...] = ()
    spells: tuple[Spell, ...] = ()
    share: float | None = None
    notes: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def main(self) -> CauseFinding | None:
        """The cause that cost most; None when there is none."""
        return self.causes[0] if self.causes else None


@dataclass(frozen=True)
class Thermal:
    """Temperature, clock and company on the board while the run went. None is unknown, and ``unknown`` says why."""

    start_c: float | None = None
    end_c: float | None = None
    max_c: float | None = None
    slope_k_per_min: float | None = None
    rising: bool = False
    clock_min_mhz: float | None = None
    clock_max_mhz: float | None = None
    throttling: ThrottleVerdict = field(default_factory=ThrottleVerdict)
    busy_other_mean: float | None = None
    busy_other_max: float | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Validity:
    """Whether the run supports a verdict at all: ``verdict`` is ``valid`` or ``invalid``, with every reason."""

    verdict: str
    reasons: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """True when numbers of this run may be compared with a limit."""
        return self.verdict == "valid"


@dataclass(frozen=True)
class RunSummary:
    """Everything the report, the terminal and ``--json`` say about one run."""

    id: str
    model: str
    kind: str
    device: str
    state: str
    validity: Validity
    warnings: tuple[str, ...]
    error: Mapping[str, Any] | None
    duration_s: float | None
    variants: tuple[VariantSummary, ...]
    speedup: Speedup | None
    sustained: Sustained | None
    sustained_missing: str
    regime: Regime | None
    thermal: Thermal
    facts: Mapping[str, Any]
    request: Mapping[str, Any]
    manifest: Mapping[str, Any] | None

    @property
    def main(self) -> VariantSummary | None:
        """The model that the run is about, or None when it never got to run."""
        return self.variant(MAIN)

    @property
    def float_variant(self) -> VariantSummary | None:
        """The float model beside it, or None when the run had none."""
        return self.variant(FLOAT)

    def variant(self, name: str) -> VariantSummary | None:
        """The variant of that name, or None."""
        return next((item for item in self.variants if item.name == name), None)
