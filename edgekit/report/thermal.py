"""Temperature, clocks, throttling and company on the board, from the samples and events of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.report.folder import RunFolder, mapping, number
from edgekit.report.signs import Clocks
from edgekit.report.summary import Thermal, ThrottleVerdict
from edgekit.report.throttling import throttle_verdict
from edgekit.report.timeline import blocks_of, timeline_of

RISING_K_PER_MIN = 0.5
"""A board that still warms up faster than this has not shown its steady speed."""
MIN_SLOPE_SAMPLES = 10
MIN_SLOPE_S = 10.0
"""A slope over fewer samples or less time is the resolution of the sensor, not the board."""


@dataclass(frozen=True)
class SensorSeries:
    """One line for the plots: seconds, and the temperature in C and clock in MHz at each (None where unknown)."""

    times_s: tuple[float, ...]
    temperature_c: tuple[float | None, ...]
    clock_mhz: tuple[float | None, ...]


def series_of(run: RunFolder) -> SensorSeries:
    """The sensor samples of the run in time order. The clock is the fastest policy's: the cores that inference runs on."""
    rows, clocks = [], Clocks()
    for sample in run.samples:
        t_s = number(sample.get("t_s"))
        if t_s is not None:
            rows.append((t_s, number(sample.get("temperature_c")), clocks.mhz(sample)))
    rows.sort(key=lambda row: row[0])
    return SensorSeries(tuple(row[0] for row in rows), tuple(row[1] for row in rows), tuple(row[2] for row in rows))


def thermal_of(run: RunFolder) -> Thermal:
    """The run's thermal summary; what no sensor could tell is None, with the reason under ``unknown``."""
    opened = _opened_s(run)
    series = series_of(run)
    warm = [(t, c) for t, c in zip(series.times_s, series.temperature_c, strict=True) if c is not None and t >= opened]
    clocks = [mhz for mhz in series.clock_mhz if mhz is not None]
    since = min((block.start_s for name in run.variants for block in blocks_of(run, name)), default=0.0)
    busy = [
        share
        for sample in run.samples
        if (share := number(sample.get("cpu_busy_other"))) is not None and (number(sample.get("t_s")) or 0.0) >= since
    ]
    slope, rising = _slope(warm)
    throttling = throttle_verdict(
        run.samples,
        [timeline_of(blocks_of(run, name)) for name in run.variants],
        facts=run.facts,
        request=run.request,
        events=run.events,
    )
    return Thermal(
        start_c=warm[0][1] if warm else None,
        end_c=warm[-1][1] if warm else None,
        max_c=max(c for _, c in warm) if warm else None,
        slope_k_per_min=slope,
        rising=rising,
        clock_min_mhz=min(clocks) if clocks else None,
        clock_max_mhz=max(clocks) if clocks else None,
        throttling=throttling,
        busy_other_mean=float(np.mean(busy)) if busy else None,
        busy_other_max=max(busy) if busy else None,
        unknown=_unknown(run, warm=bool(warm), clocks=bool(clocks), busy=bool(busy), throttling=throttling),
    )


def _opened_s(run: RunFolder) -> float:
    """When the cool-down was over and the run proper began: a board's temperature before is not the run's."""
    stages = [(event.get("message"), number(event.get("t_s"))) for event in run.events if event.get("kind") == "stage"]
    return next((t_s for name, t_s in stages if name == "open" and t_s is not None), 0.0)


def _slope(warm: Sequence[tuple[float, float]]) -> tuple[float | None, bool]:
    """K/min over the second half of the run (Theil-Sen, robust against single readings), and whether it is surely
    rising.

    Surely: the lower end of its 95 % interval lies above 0.5 K/min.
    """
    if not warm:
        return None, False
    middle = (warm[0][0] + warm[-1][0]) / 2.0
    late = [(t, c) for t, c in warm if t >= middle]
    if len(late) < MIN_SLOPE_SAMPLES or late[-1][0] - late[0][0] < MIN_SLOPE_S:
        return None, False
    from scipy.stats import theilslopes

    # Theil-Sen compares every pair; 400 evenly chosen samples keep that to 80,000 of them.
    chosen = [late[index] for index in np.linspace(0, len(late) - 1, min(len(late), 400)).astype(int)]
    fit = theilslopes([c for _, c in chosen], [t for t, _ in chosen], alpha=0.95)
    return float(fit[0]) * 60.0, float(fit[2]) * 60.0 > RISING_K_PER_MIN


def _unknown(run: RunFolder, *, warm: bool, clocks: bool, busy: bool, throttling: ThrottleVerdict) -> dict[str, str]:
    """Why a sensor said nothing in the whole run: the board's own reason, else the plain fact that no sample has it."""
    silence = "no sample has it" if run.samples else "the run has no sensor samples"
    missing = {}
    for what, key, known in (
        ("temperature", "temperature", warm),
        ("clock", "cpu_khz", clocks),
        ("other programs", "cpu_busy_other", busy),
    ):
        if not known:
            sources = [mapping(source.get("unknown")).get(key) for source in (*run.samples, run.facts)]
            missing[what] = str(next((reason for reason in reversed(sources) if reason), silence))
    if throttling.unknown:
        missing["throttling"] = throttling.unknown
    return missing
