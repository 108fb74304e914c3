"""Whether a report says about a simulated run what the simulator knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from lab_thermal import STEP_S, Scenario, Simulated

from edgekit.report.folder import RunFolder
from edgekit.report.stats import summarise
from edgekit.report.summary import RunSummary

OWN = ("thermal", "under_voltage", "power_cap")
PLAIN_SHARE = 0.05
"""A loss of speed of this share, for ``PLAIN_S``, is plain to see in the latencies alone."""
PLAIN_S = 5.0
MISSED_SHARE = 0.003
"""A cause that cost less of the run's work may be missed."""
CLOSE = 0.8
"""Causes whose costs are this close may stand in either order."""


def run_of(run: Simulated) -> RunFolder:
    """The run folder that the agent would have left."""
    latencies = np.concatenate([block.latencies_ns for block in run.blocks])
    described: list[dict[str, Any]] = []
    first = 0
    for block in run.blocks:
        described.append(
            {"start_s": block.start_s, "first": first, "count": block.count, "wall_ns": round(block.wall_s * 1e9)}
        )
        first += block.count
    variant = {
        "count": first,
        "busy_ns": sum(item["wall_ns"] for item in described),
        "kept_every": 1,
        "blocks": described,
    }
    return RunFolder(
        path=Path("simulated"),
        request={"schema": 1, "id": "simulated", "seed": 0, **run.request},
        facts=run.facts,
        status={},
        result={"schema": 1, "state": "done", "valid": True, "variants": {"model": variant}},
        manifest=None,
        samples=tuple(run.samples),
        events=(),
        latencies_ns={"model": latencies},
        warmup_ns={"model": np.empty(0, dtype=np.int64)},
        notes=(),
    )


def judged(scenario: Scenario, run: Simulated, summary: RunSummary | None = None) -> list[str]:
    """What the report got wrong; empty when all is right."""
    summary = summary or summarise(run_of(run))
    wrong = _word(scenario, run, summary)
    wrong += _cause(scenario, run, summary)
    wrong += _onsets(scenario, run, summary)
    wrong += _retention(run, summary)
    return wrong


def _word(scenario: Scenario, run: Simulated, summary: RunSummary) -> list[str]:
    found = summary.thermal.throttling.verdict
    allowed = allowed_words(scenario, run)
    return [] if found in allowed else [f"says {found}, the truth allows {' or '.join(sorted(allowed))}"]


def allowed_words(scenario: Scenario, run: Simulated) -> set[str]:
    """The verdicts that the truth, as far as it could be seen, allows."""
    lost_s = scenario.sensors_lost_s
    before = np.full(run.times_s.size, True) if lost_s is None else run.times_s < lost_s
    own = np.array([cause in OWN for cause in run.cause])
    late = {"throttled"} if own.any() else set()  # begun in the last second, it may be seen or not
    if (own & before & (run.times_s < run.times_s[-1] - 1.0)).any():
        return {"throttled"}
    blind = scenario.temperature_lost
    if plain(run, own):
        # Throttled from the beginning to the end, with no sensor: there is no faster part to compare with.
        never_fast = lost_s == 0.0 and scenario.warm
        return {"slowed", "unknown", "throttled"} if blind or never_fast else {"throttled"}
    if plain(run, np.array([cause is not None for cause in run.cause])):
        return {"slowed"} | late
    if lost_s == 0.0:
        return {"unknown", "slowed", "throttled"} if own.any() else {"unknown"}  # nothing was ever seen
    hidden = {"unknown"} if lost_s is not None else set()
    if own.any():
        return {"not_throttled", "throttled", "slowed"} | hidden
    return {"not_throttled"} | hidden


def plain(run: Simulated, mask: np.ndarray) -> bool:
    """Whether these moments are a loss of speed that latencies show by themselves."""
    return bool(((run.speed <= 1.0 - PLAIN_SHARE) & mask).sum() * STEP_S >= PLAIN_S)


def _cause(scenario: Scenario, run: Simulated, summary: RunSummary) -> list[str]:
    main = summary.thermal.throttling.main
    if main is None:
        return []
    truths = {cause: run.lost(cause) for cause in set(run.cause) if cause is not None}
    if not truths:
        return [f"names {main.cause}, there is none"]
    most = max(truths.values())
    allowed = {cause for cause, lost in truths.items() if lost >= CLOSE * most - 0.002}
    if scenario.temperature_lost:
        allowed.add("unknown")
    return [] if main.cause in allowed else [f"names {main.cause}, the truth is {sorted(truths.items())}"]


def onset_errors_s(scenario: Scenario, run: Simulated, summary: RunSummary) -> dict[str, float]:
    """By cause, how far the report's onset is from the truth; without causes that only latency is left to show."""
    return {
        item.cause: item.onset_s - run.onset_s(item.cause)
        for item in summary.thermal.throttling.causes
        if item.cause in run.cause
        and (scenario.sensors_lost_s is None or run.onset_s(item.cause) < scenario.sensors_lost_s)
    }


def retention_error(run: Simulated, summary: RunSummary) -> float | None:
    """How far the report's retention is from the truth; None when it has none."""
    sustained = summary.sustained
    if sustained is None or sustained.retention is None:
        return None
    return sustained.retention - run.retention(sustained.window_s)


def _onsets(scenario: Scenario, run: Simulated, summary: RunSummary) -> list[str]:
    """Each cause that is there must be found, within two sampling periods of when it began; and none that is not."""
    found = {item.cause for item in summary.thermal.throttling.causes}
    wrong = [f"finds {cause}, which was not there" for cause in sorted(found - set(run.cause) - {None, "unknown"})]
    period_s = 1.0 if "throttle_word" in run.samples[0] else 1.0 / scenario.sample_hz
    for cause, error_s in onset_errors_s(scenario, run, summary).items():
        if abs(error_s) > 2.0 * period_s + 1e-6:
            wrong.append(f"{cause} begins {error_s:+.2f} s off the truth")
    if scenario.sensors_lost_s is None:
        wrong += [
            f"misses {cause}, which cost {100 * run.lost(cause):.1f} %"
            for cause in sorted({name for name in run.cause if name is not None} - found)
            if run.lost(cause) >= MISSED_SHARE
        ]
    return wrong


def _retention(run: Simulated, summary: RunSummary) -> list[str]:
    error = retention_error(run, summary)
    if error is None:
        return [f"no retention: {summary.sustained_missing}"]
    return [] if abs(error) <= 0.03 else [f"retention is {error:+.3f} off the truth"]
