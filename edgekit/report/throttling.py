"""The verdict on throttling, with its cause: a pure function of a run's samples and latencies, which can be computed again at any time.

Moments with a sign (a bit, a cap, an alarm, a counter) are the board's own word. Beside them, latency itself is a sensor: a stretch
that is slower than the run's fast part without any sign is put down to what can explain it - a changed mode, the heat of a board that
does not show its throttling, other processes - or stays ``unknown``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.report.folder import mapping, number
from edgekit.report.signs import PRECEDENCE, Moment, Reading, read_signs
from edgekit.report.summary import CauseFinding, Spell, ThrottleVerdict
from edgekit.report.timeline import Timeline

Floats = NDArray[np.float64]

SLOW = 0.05
"""A stretch without a sign counts as slow from this share above the fast part of the run on."""
SLOW_FOR_S = 3.0
"""Shorter than this, it is noise."""
SMOOTHED = 5
"""Samples whose median latency is looked at together."""
NOISE = 6.0
"""And it must rise above the run's own noise by this factor."""
NEAR_K = 2.0
"""This close to the level at which the board throttles, a slowness that no sign explains is heat."""
FAST_PERCENT = 10.0
"""The fast part of a run: this percentile of its samples' medians."""

OWN_DOING = ("thermal", "under_voltage", "power_cap")
"""Causes for which the board lowers its own clock."""


def throttle_verdict(
    samples: Sequence[Mapping[str, Any]],
    latencies: Sequence[Timeline],
    *,
    facts: Mapping[str, Any] | None = None,
    request: Mapping[str, Any] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
) -> ThrottleVerdict:
    """Whether the board was slowed down, by what, from when, for how long, and what that cost.

    ``samples`` and ``events`` are lines of ``samples.jsonl`` and ``events.jsonl``, ``latencies`` one timeline for each variant, on the
    same clock. ``facts`` and ``request`` are the run's; what they lack is not known.
    """
    facts, request = facts or {}, request or {}
    reading = read_signs(samples, facts, request)
    moments = _measured(reading.moments, latencies)
    if not moments:
        return ThrottleVerdict(
            notes=tuple(reading.notes), invalid=tuple(reading.invalid), unknown="the run has no sensor samples"
        )
    _signs_from_events(moments, events)
    signed = [moment.cause is not None for moment in moments]
    pace = _pace(moments, latencies)
    _explain_slowness(reading, moments, pace)
    causes = _findings(moments, pace, _begin_s(latencies, moments[0].start_s))
    verdict, unknown = _word(moments, signed, pace, facts, samples, reading.hot_c)
    return ThrottleVerdict(
        verdict=verdict,
        causes=causes,
        spells=_spells(moments),
        share=_share(moments, lambda moment: moment.cause is not None),
        notes=tuple(reading.notes),
        invalid=(*reading.invalid, *_spoiled(causes)),
        unknown=unknown,
    )


def _measured(moments: Sequence[Moment], latencies: Sequence[Timeline]) -> list[Moment]:
    """The moments of the steady part; all of them in a run without latencies."""
    if not any(line.times_s.size for line in latencies):
        return list(moments)
    first = _begin_s(latencies, 0.0)
    last = max(float(line.times_s[-1]) + float(line.latencies_ns[-1]) / 1e9 for line in latencies if line.times_s.size)
    return [moment for moment in moments if moment.end_s > first and moment.start_s < last]


def _begin_s(latencies: Sequence[Timeline], otherwise: float) -> float:
    """When the first steady inference began."""
    return min((float(line.times_s[0]) for line in latencies if line.times_s.size), default=otherwise)


def _signs_from_events(moments: Sequence[Moment], events: Sequence[Mapping[str, Any]]) -> None:
    """What the agent saw at once, where the samples do not tell it too."""
    since: float | None = None
    cause, said = "unknown", ""
    for event in (*events, {"kind": "throttle_off", "t_s": float("1e18")}):
        t_s = number(event.get("t_s"))
        if t_s is None:
            continue
        if event.get("kind") == "throttle_on" and since is None:
            since, said = t_s, str(event.get("message") or "the agent saw it")
            told = str(event.get("cause") or "thermal")
            cause = told if told in PRECEDENCE else "unknown"
        elif event.get("kind") == "throttle_off" and since is not None:
            for moment in moments:
                if moment.cause is None and since <= (moment.start_s + moment.end_s) / 2 < t_s:
                    moment.signs[cause] = said
                    moment.observed = True
            since = None


def _pace(moments: Sequence[Moment], latencies: Sequence[Timeline]) -> Floats:
    """The median latency of each moment by that of the run's fast part; NaN where nothing ran or there is no fast part."""
    free = np.array([moment.cause is None for moment in moments])
    edges = np.array([moment.start_s for moment in moments] + [moments[-1].end_s])
    per_variant = []
    for line in latencies:
        if not line.times_s.size:
            continue
        medians = _medians(line, edges)
        reference = medians[free & np.isfinite(medians)]
        if reference.size:
            per_variant.append(medians / np.percentile(reference, FAST_PERCENT))
    if not per_variant:
        return np.full(len(moments), np.nan)
    stacked = np.vstack(per_variant)
    present = np.isfinite(stacked)
    counts = present.sum(axis=0)
    total = np.where(present, stacked, 0.0).sum(axis=0)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def _medians(line: Timeline, edges: Floats) -> Floats:
    """The median latency of the inferences that began in each moment, or the latency of the one that ran through it."""
    found = np.full(edges.size - 1, np.nan)
    places = np.searchsorted(line.times_s, edges)
    for index, (first, end) in enumerate(zip(places[:-1], places[1:], strict=True)):
        if end > first:
            found[index] = float(np.median(line.latencies_ns[first:end]))
        elif first > 0 and line.times_s[first - 1] + line.latencies_ns[first - 1] / 1e9 > edges[index]:
            found[index] = float(line.latencies_ns[first - 1])
    return found


def _explain_slowness(reading: Reading, moments: Sequence[Moment], pace: Floats) -> None:
    """Gives slow stretches without a sign the cause that explains them."""
    limit = 1.0 + _threshold(pace)
    slow = _smoothed(pace) > limit
    for first, end in _stretches(slow & np.array([moment.cause is None for moment in moments])):
        if moments[end - 1].end_s - moments[first].start_s < SLOW_FOR_S:
            continue
        # The median of several samples rises late on a slope: the stretch began where latency began to rise.
        while first > 0 and moments[first - 1].cause is None and pace[first - 1] > 1.0 + (limit - 1.0) * 0.4:
            first -= 1
        stretch = moments[first:end]
        cause, said = _continued(moments, first, end) or _explanation(reading, stretch)
        for moment in stretch:
            moment.signs[cause] = said


def _continued(moments: Sequence[Moment], first: int, end: int) -> tuple[str, str] | None:
    """Where the sensors fell silent in the middle of a cause, and the slowness goes on, so does the cause."""
    before = moments[first - 1].cause if first > 0 else None
    if before not in OWN_DOING or any(moment.observed for moment in moments[first:end]):
        return None
    return before, f"the slowness goes on after {moments[first].start_s:.0f} s, when the sensors fell silent"


def _explanation(reading: Reading, stretch: Sequence[Moment]) -> tuple[str, str]:
    def common(name: str) -> str | None:
        found = [moment.suspects[name] for moment in stretch if name in moment.suspects]
        return found[0] if 2 * len(found) > len(stretch) else None

    changed = common("mode_change")
    if changed is not None:
        return "mode_change", changed
    known = [moment.temperature_c for moment in stretch if moment.temperature_c is not None]
    observed = sum(moment.observed for moment in stretch)
    hot = reading.hot_c
    if known and hot is not None and 2 * observed <= len(stretch) and max(known) >= hot - NEAR_K:
        return "thermal", f"latency grew at {max(known):.0f} °C, where this board throttles; no sensor shows it"
    busy = common("other_load")
    if busy is not None:
        return "other_load", busy
    return "unknown", "latency grew, and no sensor says why"


def _threshold(pace: Floats) -> float:
    """How far above the fast part a stretch must lie: at least ``SLOW``, and beyond the noise from sample to sample."""
    known = pace[np.isfinite(pace)]
    if known.size < 3:
        return SLOW
    return max(SLOW, NOISE * float(np.median(np.abs(np.diff(known)))))


def _smoothed(pace: Floats) -> Floats:
    """The median of ``SMOOTHED`` neighbours; steps stay where they are."""
    half = SMOOTHED // 2
    smooth = np.full(pace.size, np.nan)
    for index in range(pace.size):
        near = pace[max(0, index - half) : index + half + 1]
        near = near[np.isfinite(near)]
        if near.size:
            smooth[index] = float(np.median(near))
    smooth[~np.isfinite(smooth)] = 1.0
    return smooth


def _stretches(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """``(first, end)`` of each run of True."""
    padded = np.concatenate(([False], mask, [False])).astype(int)
    changes = np.diff(padded)
    return list(zip(np.flatnonzero(changes == 1).tolist(), np.flatnonzero(changes == -1).tolist(), strict=True))


def _findings(moments: Sequence[Moment], pace: Floats, begin_s: float) -> tuple[CauseFinding, ...]:
    """One finding for each cause, the costliest first."""
    names = [moment.cause for moment in moments]
    clean = pace[[name is None for name in names]]
    clean = clean[np.isfinite(clean)]
    normal = float(np.median(clean)) if clean.size else None
    lengths = np.array([moment.length_s for moment in moments])
    found = []
    for cause in dict.fromkeys(name for name in names if name is not None):
        chosen = np.array([name == cause for name in names])
        inside = [moment for moment, name in zip(moments, names, strict=True) if name == cause]
        clocks = [moment.clock_mhz for moment in inside if moment.clock_mhz is not None]
        paces, held = pace[chosen], lengths[chosen]
        known = np.isfinite(paces)
        slowdown = lost = None
        if normal is not None and known.any():
            slowdown = float(np.median(paces[known])) / normal
            lost = float(np.sum((1.0 - normal / paces[known]) * held[known]) / lengths.sum())
        found.append(
            CauseFinding(
                cause=cause,
                onset_s=max(0.0, inside[0].start_s - begin_s),
                share=float(held.sum() / lengths.sum()),
                clock_floor_mhz=min(clocks) if clocks else None,
                slowdown=slowdown,
                lost_share=lost,
                evidence=tuple(dict.fromkeys(moment.signs[cause] for moment in inside))[:3],
            )
        )
    return tuple(sorted(found, key=lambda item: (-(item.lost_share or 0.0), -item.share, PRECEDENCE.index(item.cause))))


def _spells(moments: Sequence[Moment]) -> tuple[Spell, ...]:
    """Neighbouring moments of one cause as one stretch."""
    spells: list[Spell] = []
    for moment in moments:
        cause = moment.cause
        if cause is None:
            continue
        if spells and spells[-1].cause == cause and moment.start_s <= spells[-1].end_s + 1e-9:
            spells[-1] = Spell(cause, spells[-1].start_s, moment.end_s)
        else:
            spells.append(Spell(cause, moment.start_s, moment.end_s))
    return tuple(spells)


def _share(moments: Sequence[Moment], which: Any) -> float:
    total = sum(moment.length_s for moment in moments)
    return sum(moment.length_s for moment in moments if which(moment)) / total if total > 0 else 0.0


def _word(
    moments: Sequence[Moment],
    signed: Sequence[bool],
    pace: Floats,
    facts: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    hot_c: float | None,
) -> tuple[str, str]:
    """The verdict, and why it is unknown where it is."""
    causes = [moment.cause for moment in moments]
    own = any(cause in OWN_DOING for cause in causes)
    unexplained = any(cause == "unknown" and sign for cause, sign in zip(causes, signed, strict=True))
    if own or unexplained:
        return "throttled", ""
    if any(cause is not None for cause in causes):
        return "slowed", ""
    seen = np.array([moment.observed for moment in moments])
    if seen.all():
        return "not_throttled", ""
    reason = _silence(facts, samples) + _near(moments, hot_c)
    if not seen.any():
        return "unknown", reason
    # Where the sensors fell silent, latency bears witness: as fast as while they were read is as unthrottled as then.
    within, without = pace[seen], pace[~seen]
    within, without = within[np.isfinite(within)], without[np.isfinite(without)]
    silent_share = _share(moments, lambda moment: not moment.observed)
    if within.size and without.size and float(np.median(without)) <= float(np.median(within)) * (1.0 + SLOW):
        return "not_throttled", ""
    return "unknown", f"for {100 * silent_share:.0f} % of the run nothing would have shown it: {reason}"


def _near(moments: Sequence[Moment], hot_c: float | None) -> str:
    """What the temperature lets one fear."""
    warmest = max((moment.temperature_c for moment in moments if moment.temperature_c is not None), default=None)
    if hot_c is None or warmest is None or warmest < hot_c - NEAR_K:
        return ""
    return f"; it reached {warmest:.0f} °C, where this board throttles"


def _silence(facts: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing shows throttling, in the board's own words where it gave any."""
    sources = [mapping(sample.get("unknown")) for sample in samples] + [
        mapping(mapping(facts.get("sensors")).get("unknown"))
    ]
    for source in reversed(sources):
        if source.get("throttle_word"):
            return str(source["throttle_word"])
    return "the kernel of this board does not show it"


def _spoiled(causes: Sequence[CauseFinding]) -> tuple[str, ...]:
    """A supply that is too weak is none to measure with: the numbers are of another board."""
    low = [item for item in causes if item.cause == "under_voltage"]
    return tuple(f"the supply was too low for {100 * item.share:.2g} % of the run" for item in low)
