"""From a run folder's raw files to its summary: every number that edgekit prints about a run is derived here, and only
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.report.distribution import (
    MAD_TO_SIGMA,
    Distribution,
    effective_count,
    lag1_correlation,
)
from edgekit.report.folder import RunFolder, mapping, number
from edgekit.report.histogram import distribution_of
from edgekit.report.percentiles import MEDIAN_NEEDS, percentile, percentile_of, required_count
from edgekit.report.speedup import speedup_of
from edgekit.report.summary import (
    FLOAT,
    MAIN,
    DelegateFacts,
    NotEnough,
    Percentile,
    RunSummary,
    Speedup,
    StageMemory,
    Sustained,
    Thermal,
    Validity,
    VariantSummary,
)
from edgekit.report.thermal import thermal_of
from edgekit.report.timeline import Block, Timeline, blocks_of, timeline_of

__all__ = [
    "PERCENTS",
    "NotEnough",
    "Percentile",
    "RunFolder",
    "RunSummary",
    "percentile",
    "required_count",
    "summarise",
]

PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
"""The percentiles of every report, in the order of every table."""
MEMORY_STAGES = ("import", "load", "allocate", "first_invoke", "sustained")
WINDOW_S = 30.0
"""Length of the windows that burst and sustained speed are compared over."""
SUSTAINED_NEEDS_S = 4 * WINDOW_S
"""One window for the burst and three that must agree before the run is called steady."""
REGIME_CHANGE = 0.03
"""A change of the median over the run beyond this share is told to whoever reads the percentiles."""
STEADY_CHANGE = 0.02
"""Three windows whose medians lie within this share of each other are steady."""


def summarise(run: RunFolder) -> RunSummary:
    """Everything that the run's raw files support; what they do not support is absent and says why.

    The run is ``invalid`` (no verdict may rest on it) when it did not end as ``done``, when the agent says so, when
    the supply was too low, a mode changed or the board restarted meanwhile, or when a variant has fewer than 11 steady inferences.
    """
    warnings = [*(str(item) for item in run.result.get("warnings") or ()), *run.notes]
    blocks = {name: blocks_of(run, name) for name in run.variants}
    variants = tuple(
        _variant(run, name, blocks[name], warnings)
        for name in run.variants
        if name in run.latencies_ns or run.variant(name)
    )
    sustained, missing = _sustained(blocks[MAIN])
    thermal = thermal_of(run)
    validity = _validity(run, variants, thermal)
    warnings.extend(thermal.throttling.notes)
    warnings.extend(_regime_warnings(sustained, thermal))
    model = mapping(run.request.get("model"))
    return RunSummary(
        id=str(run.request.get("id") or run.path.name),
        model=str(model.get("name") or "model"),
        kind=str(model.get("kind") or "tflite"),
        device=str(run.request.get("device") or "unknown"),
        state=run.state,
        validity=validity,
        error=mapping(run.result.get("error")) or None,
        warnings=tuple(dict.fromkeys(warnings)),
        duration_s=_duration_s(run, blocks),
        variants=variants,
        speedup=_speedup(run, blocks, validity),
        sustained=sustained,
        sustained_missing=missing,
        thermal=thermal,
        facts=run.facts,
        request=run.request,
        manifest=run.manifest,
    )


def _speedup(run: RunFolder, blocks: Mapping[str, Sequence[Block]], validity: Validity) -> Speedup | None:
    """The speed-up with its verdict; an invalid run keeps the ratio and loses the verdict."""
    seed = int(number(run.request.get("seed")) or 0)
    found = speedup_of(blocks[MAIN], blocks[FLOAT], seed=seed)
    if found is None or validity.valid:
        return found
    return replace(found, verdict="undecided", reason=f"the run is invalid: {validity.reasons[0]}")


def _variant(run: RunFolder, name: str, blocks: Sequence[Block], warnings: list[str]) -> VariantSummary:
    facts = run.variant(name)
    latencies = run.latencies_ns.get(name, np.empty(0, dtype=np.int64))
    warmup = run.warmup_ns.get(name, np.empty(0, dtype=np.int64))
    every = max(1, int(number(facts.get("kept_every")) or 1))
    distribution, from_histogram = _distribution(name, facts, latencies, warnings)
    n = distribution.count
    lag1 = lag1_correlation(latencies)
    worth = effective_count(n, lag1)
    percentiles = tuple(percentile_of(distribution, percent, effective_count=worth) for percent in PERCENTS)
    warnings.extend(_count_warnings(name, facts, n, worth, percentiles))
    memory = _memory(facts)
    peaks = [stage.peak_rss_bytes for stage in memory if stage.peak_rss_bytes is not None]
    first = number(facts.get("first_inference_ns"))
    size = number(facts.get("size_bytes"))
    return VariantSummary(
        name=name,
        size_bytes=None if size is None else int(size),
        sha256=None if facts.get("file_sha256") is None else str(facts["file_sha256"]),
        count=n,
        kept_every=every,
        from_histogram=from_histogram,
        **_moments(distribution),
        throughput_per_s=_throughput(facts, blocks, n),
        lag1_correlation=lag1,
        effective_count=worth,
        percentiles=percentiles,
        first_inference_ns=int(first) if first is not None else (int(warmup[0]) if warmup.size else None),
        warmup_count=int(number(mapping(facts.get("warmup")).get("count")) or warmup.size),
        threads=None if (threads := number(facts.get("threads"))) is None else int(threads),
        inputs=_inputs(mapping(facts.get("input"))),
        memory=memory,
        peak_rss_bytes=max(peaks) if peaks else None,
        delegate=_delegate(facts.get("delegate") or (run.facts.get("delegate") if name == MAIN else None)),
    )


def _distribution(
    name: str, facts: Mapping[str, Any], latencies: np.ndarray, warnings: list[str]
) -> tuple[Distribution, bool]:
    """The variant's distribution, and whether it is the exact histogram of a run that kept only every n-th latency."""
    histogram = facts.get("histogram")
    if isinstance(histogram, Mapping):
        try:
            return distribution_of(histogram), True
        except ValueError as error:
            warnings.append(f"{name}: the histogram cannot be read ({error}); numbers are of the kept latencies only")
    return Distribution.from_samples(latencies), False


def _moments(distribution: Distribution) -> dict[str, Any]:
    """The single numbers of a distribution, None for an empty one."""
    if distribution.count == 0:
        return dict.fromkeys(("median_ns", "mean_ns", "min_ns", "max_ns", "cov", "body_cov")) | {"outliers": 0}
    return {
        "median_ns": distribution.median_ns,
        "mean_ns": distribution.mean_ns,
        "min_ns": float(distribution.values_ns[0]),
        "max_ns": float(distribution.values_ns[-1]),
        "cov": distribution.std_ns / distribution.mean_ns,
        "body_cov": MAD_TO_SIGMA * distribution.mad_ns / distribution.median_ns,
        "outliers": distribution.outliers,
    }


def _count_warnings(
    name: str, facts: Mapping[str, Any], n: int, worth: int, percentiles: Sequence[Percentile | NotEnough]
) -> list[str]:
    found = []
    stated = number(facts.get("count"))
    if stated is not None and int(stated) != n:
        found.append(f"{name}: the result counts {int(stated)} inferences, the raw files hold {n}")
    weak = [item.name for item in percentiles if isinstance(item, Percentile) and worth < item.needs]
    if weak:
        found.append(
            f"{name}: neighbouring inferences resemble each other, so {n} of them are worth {worth} independent ones; "
            f"fewer than {', '.join(weak)} needs, and the intervals are that much wider"
        )
    return found


def _throughput(facts: Mapping[str, Any], blocks: Sequence[Block], n: int) -> float | None:
    """Inferences by busy wall time: the agent's sum of block walls, else that of the blocks."""
    busy_ns = number(facts.get("busy_ns"))
    if busy_ns is None:
        busy_ns = sum(block.wall_s for block in blocks) * 1e9
    return n / (busy_ns / 1e9) if n and busy_ns > 0 else None


def _memory(facts: Mapping[str, Any]) -> tuple[StageMemory, ...]:
    stages = mapping(facts.get("memory"))
    reason = str(facts.get("memory_unknown") or stages.get("memory_unknown") or "not recorded")
    found = []
    for stage in MEMORY_STAGES:
        entry = mapping(stages.get(stage))
        peak, rss = number(entry.get("peak_rss_bytes")), number(entry.get("rss_bytes"))
        found.append(
            StageMemory(
                stage=stage,
                peak_rss_bytes=None if peak is None else int(peak),
                rss_bytes=None if rss is None else int(rss),
                unknown="" if peak is not None else str(entry.get("memory_unknown") or reason),
            )
        )
    return tuple(found)


def _inputs(fed: Mapping[str, Any]) -> str:
    """``4 golden``, ``1 random``: how many inputs of which kind; empty when it was not recorded."""
    return f"{fed.get('samples', '?')} {fed['kind']}" if fed.get("kind") else ""


def _delegate(data: Any) -> DelegateFacts:
    facts = mapping(data)

    def whole(key: str) -> int | None:
        value = number(facts.get(key))
        return None if value is None else int(value)

    return DelegateFacts(
        name=None if facts.get("name") is None else str(facts["name"]),
        partitions=whole("partitions"),
        delegated_operators=whole("delegated_operators"),
        total_operators=whole("total_operators"),
        kernels=None if facts.get("kernels") is None else str(facts["kernels"]),
    )


def _validity(run: RunFolder, variants: Sequence[VariantSummary], thermal: Thermal) -> Validity:
    reasons = []
    if run.state != "done":
        error = mapping(run.result.get("error"))
        said = f": {error['message']}" if error.get("message") else ""
        reasons.append(f"the run ended as {run.state}{said}")
    told = [str(reason) for reason in run.result.get("invalid_reasons") or ()]
    reasons += [reason for reason in told if reason != f"the run is {run.state}"]
    reasons += thermal.throttling.invalid
    for variant in variants:
        if variant.count < MEDIAN_NEEDS:
            reasons.append(
                f"{variant.name}: {variant.count} steady inferences, a median needs {MEDIAN_NEEDS}; run longer"
            )
    if not variants:
        reasons.append("no inference was timed")
    if run.result.get("valid") is False and not reasons:
        reasons.append("the agent marked the run invalid without a reason")
    return Validity("invalid" if reasons else "valid", tuple(dict.fromkeys(reasons)))


def _duration_s(run: RunFolder, blocks: Mapping[str, Sequence[Block]]) -> float | None:
    """From the first steady inference to the end of the last, else what the status last said."""
    every = [block for group in blocks.values() for block in group]
    if every:
        return max(block.start_s + block.wall_s for block in every) - min(block.start_s for block in every)
    return number(run.status.get("elapsed_s"))


def _sustained(blocks: Sequence[Block]) -> tuple[Sustained | None, str]:
    """Burst against sustained speed when the run is long enough for it, else None and the reason."""
    if not blocks:
        return None, "no inference was timed"
    start = blocks[0].start_s
    length = max(block.start_s + block.wall_s for block in blocks) - start
    if length < SUSTAINED_NEEDS_S:
        return None, f"needs {SUSTAINED_NEEDS_S:.0f} s of measuring, this run has {length:.0f} s"
    end = start + length
    line = timeline_of(blocks)
    first = _median_between(line, start, start + WINDOW_S)
    last = [_median_between(line, end - k * WINDOW_S, end - (k - 1) * WINDOW_S + 1e-6) for k in (3, 2, 1)]
    if first is None or None in last:
        return None, "a window of half a minute holds no inference"
    medians = [median for median in last if median is not None]
    burst_rate = _rate_between(blocks, start, start + WINDOW_S)
    final_rate = _rate_between(blocks, end - WINDOW_S, end)
    return (
        Sustained(
            window_s=WINDOW_S,
            burst_median_ns=first,
            sustained_median_ns=medians[-1],
            ratio=medians[-1] / first,
            retention=None if burst_rate is None or final_rate is None else final_rate / burst_rate,
            steady=max(medians) / min(medians) - 1.0 <= STEADY_CHANGE,
        ),
        "",
    )


def _regime_warnings(sustained: Sustained | None, thermal: Thermal) -> list[str]:
    """A percentile of a run whose speed changed on the way describes neither of its halves."""
    changed = sustained is not None and abs(sustained.ratio - 1.0) > REGIME_CHANGE
    throttled = thermal.throttling.verdict == "throttled"
    if not changed and not throttled:
        return []
    why = "the board throttled" if throttled else "the last half minute differs from the first"
    return [f"the percentiles mix faster and slower stretches, because {why}: read the sustained speed beside them"]


def _median_between(line: Timeline, start_s: float, end_s: float) -> float | None:
    inside = line.latencies_ns[(line.times_s >= start_s) & (line.times_s < end_s)]
    return float(np.median(inside)) if inside.size else None


def _rate_between(blocks: Sequence[Block], start_s: float, end_s: float) -> float | None:
    """Inferences by busy second of the blocks that lie in the window; None when the blocks are longer than it."""
    inside = [block for block in blocks if block.start_s >= start_s and block.start_s + block.wall_s <= end_s + 1e-6]
    wall_s = sum(block.wall_s for block in inside)
    return sum(block.count for block in inside) / wall_s if wall_s > 0 else None
