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
    independent_count,
    lag1_correlation,
)
from edgekit.report.folder import RunFolder, mapping, number
from edgekit.report.histogram import distribution_of
from edgekit.report.percentiles import percentile, percentile_of, required_count
from edgekit.report.promises import broken_promises
from edgekit.report.regimes import regime_of, sustained_of, within
from edgekit.report.speedup import speedup_of
from edgekit.report.summary import (
    FLOAT,
    MAIN,
    DelegateFacts,
    NotEnough,
    Percentile,
    Regime,
    RunSummary,
    Speedup,
    StageMemory,
    Sustained,
    Thermal,
    Validity,
    VariantSummary,
)
from edgekit.report.thermal import thermal_of
from edgekit.report.timeline import Block, blocks_of

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


def summarise(run: RunFolder) -> RunSummary:
    """Everything that the run's raw files support; what they do not support is absent and says why.

    The run is ``invalid`` (no verdict may rest on it) when it did not end as ``done``, when the agent says so, when
    the supply was too low, a mode changed or the board restarted meanwhile, or when it did not keep what was asked of it
    (:mod:`edgekit.report.promises`). Latencies and percentiles are of one regime (:mod:`edgekit.report.regimes`).
    """
    warnings = [*(str(item) for item in run.result.get("warnings") or ()), *run.notes]
    blocks = {name: blocks_of(run, name) for name in run.variants}
    thermal = thermal_of(run)
    sustained, missing = sustained_of(blocks[MAIN], run.samples, thermal, paced=bool(run.request.get("pace")))
    regime = regime_of(blocks[MAIN], sustained)
    variants = tuple(
        _variant(run, name, blocks[name], regime, warnings)
        for name in run.variants
        if name in run.latencies_ns or run.variant(name)
    )
    validity = _validity(run, variants, thermal, sustained)
    warnings.extend(thermal.throttling.notes)
    warnings.extend(_regime_warnings(regime, sustained))
    warnings.extend(_protocol_warnings(run, variants))
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
        regime=regime,
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


def _variant(
    run: RunFolder, name: str, blocks: Sequence[Block], regime: Regime | None, warnings: list[str]
) -> VariantSummary:
    facts = run.variant(name)
    latencies = run.latencies_ns.get(name, np.empty(0, dtype=np.int64))
    warmup = run.warmup_ns.get(name, np.empty(0, dtype=np.int64))
    every = max(1, int(number(facts.get("kept_every")) or 1))
    distribution, from_histogram = _distribution(name, facts, latencies, warnings)
    total = n = distribution.count
    if regime is not None and not regime.whole:
        # A histogram is of the whole run: of a part of it there are the kept latencies.
        blocks = within(blocks, regime)
        latencies = np.concatenate([block.latencies_ns for block in blocks]) if blocks else latencies[:0]
        distribution, from_histogram = Distribution.from_samples(latencies), False
        n = distribution.count
    lag1 = lag1_correlation(latencies)
    worth = int(n * independent_count(latencies) / latencies.size) if latencies.size else 0
    percentiles = tuple(percentile_of(distribution, percent, effective_count=worth) for percent in PERCENTS)
    warnings.extend(_count_warnings(name, facts, total, n, percentiles))
    memory = _memory(facts)
    peaks = [stage.peak_rss_bytes for stage in memory if stage.peak_rss_bytes is not None]
    first = number(facts.get("first_inference_ns"))
    size = number(facts.get("size_bytes"))
    return VariantSummary(
        name=name,
        size_bytes=None if size is None else int(size),
        sha256=None if facts.get("file_sha256") is None else str(facts["file_sha256"]),
        count=total,
        kept_every=every,
        from_histogram=from_histogram,
        **_moments(distribution),
        throughput_per_s=_throughput(facts, blocks, total, whole=regime is None or regime.whole),
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
        late=int(number(facts.get("late")) or 0),
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
    name: str, facts: Mapping[str, Any], total: int, n: int, percentiles: Sequence[Percentile | NotEnough]
) -> list[str]:
    found = []
    stated = number(facts.get("count"))
    if stated is not None and int(stated) != total:
        found.append(f"{name}: the result counts {int(stated)} inferences, the raw files hold {total}")
    weak = [item for item in percentiles if isinstance(item, NotEnough) and item.has >= item.needs]
    if weak:
        found.append(
            f"{name}: neighbouring inferences resemble each other, so {n} of them are worth {weak[0].worth} independent ones, "
            f"fewer than {', '.join(item.name for item in weak)} needs"
        )
    return found


def _throughput(facts: Mapping[str, Any], blocks: Sequence[Block], total: int, *, whole: bool) -> float | None:
    """Inferences by busy wall time: the agent's sum of block walls, else that of the blocks; of a part of the run, its blocks'."""
    busy_ns = number(facts.get("busy_ns")) if whole else None
    count = total if whole else sum(block.count for block in blocks)
    if busy_ns is None:
        busy_ns = sum(block.wall_s for block in blocks) * 1e9
    return count / (busy_ns / 1e9) if count and busy_ns > 0 else None


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


def _validity(
    run: RunFolder, variants: Sequence[VariantSummary], thermal: Thermal, sustained: Sustained | None
) -> Validity:
    reasons = []
    if run.state != "done":
        error = mapping(run.result.get("error"))
        said = f": {error['message']}" if error.get("message") else ""
        reasons.append(f"the run ended as {run.state}{said}")
    told = [str(reason) for reason in run.result.get("invalid_reasons") or ()]
    reasons += [reason for reason in told if reason != f"the run is {run.state}"]
    reasons += thermal.throttling.invalid
    reasons += broken_promises(run, variants, thermal, sustained)
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


def _regime_warnings(regime: Regime | None, sustained: Sustained | None) -> list[str]:
    """Where the numbers are not of the whole run, or of a speed that was still changing."""
    found = []
    if regime is not None and not regime.whole:
        length = regime.end_s - regime.start_s
        found.append(f"the speed changed on the way: latencies and percentiles are of the last {length:.0f} s alone")
    if sustained is not None and not sustained.steady:
        found.append(f"not steady at the end: {'; '.join(sustained.unsteady)}")
    return found


def _protocol_warnings(run: RunFolder, variants: Sequence[VariantSummary]) -> list[str]:
    """A start that was not cool, and inputs that had to wait."""
    cooldown = mapping(mapping(run.result.get("protocol")).get("cooldown"))
    found = [f"warm start: {cooldown.get('said')}"] if cooldown.get("warm_start") else []
    for item in variants:
        if item.late:
            share = f"{100 * item.late / max(item.count, 1):.2g} %"
            found.append(
                f"{item.name}: {item.late} of {item.count} inputs ({share}) came while the one before was at work"
            )
    return found
