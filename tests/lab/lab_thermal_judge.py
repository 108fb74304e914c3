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
    if (own & before & (run.times_s < run.times_s[-1] - 1.0)).any():
        return {"throttled"}
    blind = scenario.temperature_lost
    if plain(run, own):
        return {"slowed", "unknown", "throttled"} if blind else {"throttled"}
    if plain(run, np.array([cause is not None for cause in run.cause])):
        return {"slowed"}
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


def _onsets(scenario: Scenario, run: Simulated, summary: RunSummary) -> list[str]:
    """Each cause that is there from a moment on must be found within two sampling periods of it."""
    wrong = []
    period_s = 1.0 if "throttle_word" in run.samples[0] else 1.0 / scenario.sample_hz
    for item in summary.thermal.throttling.causes:
        if item.cause not in run.cause:
            if item.cause != "unknown":
                wrong.append(f"finds {item.cause}, which was not there")
            continue
        truth = run.onset_s(item.cause)
        if scenario.sensors_lost_s is not None and truth >= scenario.sensors_lost_s:
            continue  # only latency is left to see it by
        if abs(item.onset_s - truth) > 2.0 * period_s + 1e-6:
            wrong.append(f"{item.cause} from {item.onset_s:.2f} s, the truth is {truth:.2f} s")
    return wrong


def _retention(run: Simulated, summary: RunSummary) -> list[str]:
    sustained = summary.sustained
    if sustained is None or sustained.retention is None:
        return [f"no retention: {summary.sustained_missing}"]
    truth = run.retention(sustained.window_s)
    return (
        []
        if abs(sustained.retention - truth) <= 0.03
        else [f"retention {sustained.retention:.3f}, the truth is {truth:.3f}"]
    )
