"""What each sensor sample of a run says about being slowed down: signs of a cause, and suspects for a slowness that has no sign.

Pure functions of the samples, as they stand in ``samples.jsonl``. The firmware's word has live bits, which count while they are read,
and remembered ones, which count only when they appear: what was remembered before the run did not happen in it. Low voltage (bit 0)
lowers the clock by itself, so the other bits beside it say nothing about heat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.report.folder import mapping, number
from edgekit.values import ThrottleWord

PRECEDENCE = ("under_voltage", "power_cap", "thermal", "mode_change", "other_load", "unknown")
"""Which cause a moment counts for when several show: a supply that is too low also sets the marks of heat."""

FIRMWARE_C = 80.0
"""Where a Raspberry Pi's firmware begins (raspberrypi/documentation, frequency-management.adoc), for runs that do not say it."""

COOL_K = 5.0
"""This far below the board's level it is not heat that lowers the clock."""

WORD_STANDS = 3.0
"""A word stands for this many of its own periods; older, it says nothing about now."""

MOMENTARY_S = 0.0005
"""What one OC3 event of a Jetson costs: about a millisecond at half the clock (a published capture of an Orin Nano)."""

MOMENTARY_SHARE = 0.05
"""A sample whose OC3 events cost this share of its time is one of a capped board."""

BUSY_CORES = 0.25
"""Load of other processes, in cores, from which they may be the reason of a slowness."""


@dataclass
class Moment:
    """One sample and the time until the next. ``signs`` are by cause, with what shows it; ``suspects`` count only for a slowness.

    ``observed``: whether something that could show throttling was read. Times in seconds since the run began.
    """

    start_s: float
    end_s: float
    temperature_c: float | None
    clock_mhz: float | None
    observed: bool
    signs: dict[str, str] = field(default_factory=dict)
    suspects: dict[str, str] = field(default_factory=dict)

    @property
    def cause(self) -> str | None:
        """The sign that counts."""
        return next((cause for cause in PRECEDENCE if cause in self.signs), None)

    @property
    def length_s(self) -> float:
        """How long the sample stands."""
        return self.end_s - self.start_s


@dataclass
class Reading:
    """The moments of a run in order, with what was found on the way."""

    moments: list[Moment]
    notes: list[str]
    invalid: list[str]
    hot_c: float | None
    """Where this board begins to slow down for heat, if known."""


def read_signs(samples: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], request: Mapping[str, Any]) -> Reading:
    """The moments of one boot of the board: samples after a restart, or after a clock that went back, are left out and told."""
    notes: list[str] = []
    invalid: list[str] = []
    kept = _one_boot(samples, invalid)
    pi = _is_pi(facts)
    reading = Reading([], notes, invalid, _hot_c(facts, request, pi))
    state = _State(facts=facts, pi=pi, word_for_s=_word_period_s(kept) * WORD_STANDS)
    period_s = _period_s(kept)
    for index, sample in enumerate(kept):
        start = float(sample["t_s"])
        following = float(kept[index + 1]["t_s"]) if index + 1 < len(kept) else start + period_s
        gap = following - start > max(5.0, 5.0 * period_s)
        if gap:
            notes.append(f"no sensor was read from {start:.1f} to {following:.1f} s")
        _add(reading, state, sample, start, start + period_s if gap else following)
        _wall_clock(state, sample, start, notes)
    _momentary(state, notes)
    if state.overdrawn:
        invalid.append(f"the board drew too high an average current {state.overdrawn:.0f} times (oc2)")
    return reading


class Clocks:
    """The clock of a run's samples, one after the other: the fastest policy's, which is that of the cores that inference runs on."""

    def __init__(self) -> None:
        self._real_mhz: float | None = None

    def mhz(self, sample: Mapping[str, Any]) -> float | None:
        """What the hardware gives where the board tells it (it stands until it is told again), else what the kernel wishes."""
        self._real_mhz = _fastest(sample.get("real_khz")) or self._real_mhz
        return self._real_mhz or _fastest(sample.get("cpu_khz"))


@dataclass
class _State:
    """What is remembered from sample to sample."""

    facts: Mapping[str, Any]
    pi: bool
    word_for_s: float
    word: ThrottleWord | None = None
    word_s: float = 0.0
    low_voltage_seen: bool = False
    clocks: Clocks = field(default_factory=Clocks)
    settings: dict[str, Any] = field(default_factory=dict)
    first_settings: dict[str, Any] = field(default_factory=dict)
    changed: str = ""
    first_max_khz: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    momentary: float = 0.0
    overdrawn: float = 0.0
    measured_s: float = 0.0
    wall_ahead_s: float | None = None


def _add(reading: Reading, state: _State, sample: Mapping[str, Any], start_s: float, end_s: float) -> None:
    moment = Moment(start_s, end_s, number(sample.get("temperature_c")), state.clocks.mhz(sample), False)
    reading.moments.append(moment)
    _settings(state, mapping(sample.get("settings")), start_s, reading.invalid)
    _word(reading, state, sample, moment)
    _kernel(reading, state, sample, moment)
    for name, on in mapping(sample.get("alarms")).items():
        if on:
            cause = "under_voltage" if name == "under_voltage" else "power_cap"
            moment.signs.setdefault(cause, f"the alarm {name}")
    _counters(state, mapping(sample.get("counters")), moment, reading.moments)
    if state.changed:
        moment.suspects["mode_change"] = state.changed
    busy = number(sample.get("cpu_busy_other"))
    cores = (busy or 0.0) * (number(state.facts.get("cpu_count")) or 1.0)
    if cores > BUSY_CORES:
        moment.suspects["other_load"] = f"other processes keep {cores:.1f} cores busy"


def _word(reading: Reading, state: _State, sample: Mapping[str, Any], moment: Moment) -> None:
    value = number(sample.get("throttle_word"))
    if value is not None:
        word, before, before_s = ThrottleWord(int(value)), state.word, state.word_s
        state.word, state.word_s = word, moment.start_s
        if before is not None:
            # What is remembered and still so began just now; only what is over again happened between the two looks.
            over = [name for name in word.new_since(before) if name not in word.live]
            _remembered(reading.moments, over, before_s, state)
    if state.word is None or moment.start_s - state.word_s > state.word_for_s:
        return
    moment.observed = True
    live = state.word.live
    if state.word.under_voltage:
        state.low_voltage_seen = True
        moment.signs["under_voltage"] = "the firmware says " + ", ".join(live)
    elif live:
        cool = (
            moment.temperature_c is not None
            and reading.hot_c is not None
            and moment.temperature_c < reading.hot_c - COOL_K
            and "soft temperature limit" not in live
        )
        cause = "thermal" if not cool else "under_voltage" if state.low_voltage_seen else "unknown"
        at = f" at {moment.temperature_c:.0f} °C" if cool else ""
        moment.signs.setdefault(cause, f"the firmware says {', '.join(live)}{at}")


def _remembered(moments: Sequence[Moment], news: Sequence[str], since_s: float, state: _State) -> None:
    """What the firmware remembers since the last look, and is over, happened between the two looks."""
    if not news:
        return
    low = "under-voltage" in news
    state.low_voltage_seen = state.low_voltage_seen or low
    cause = "under_voltage" if low else "thermal"
    for moment in moments[:-1]:
        if moment.start_s >= since_s and moment.cause is None:
            moment.signs[cause] = "the firmware remembers " + ", ".join(news)
            moment.observed = True


def _kernel(reading: Reading, state: _State, sample: Mapping[str, Any], moment: Moment) -> None:
    """Cooling devices and limits of the clock."""
    cooling = mapping(sample.get("cooling_state"))
    limits = mapping(sample.get("max_khz"))
    if not state.pi and (cooling or limits or _knows_limits(state.facts)):
        moment.observed = True
    capped = [
        f"{name} {int(level)}" for name, item in cooling.items() if (level := number(item)) is not None and level > 0
    ]
    if capped:
        moment.signs.setdefault("thermal", "the kernel caps the CPU: " + ", ".join(capped))
    for policy, item in limits.items():
        khz = number(item)
        if khz is None:
            continue
        first = state.first_max_khz.setdefault(policy, khz)
        if khz >= first:
            continue
        said = f"{policy} may run at {khz / 1000:.0f} of {first / 1000:.0f} MHz"
        cool = (
            moment.temperature_c is not None
            and reading.hot_c is not None
            and moment.temperature_c < reading.hot_c - 2 * COOL_K
        )
        moment.signs.setdefault("mode_change" if not capped and (cool or state.changed) else "thermal", said)


def _counters(state: _State, now: Mapping[str, Any], moment: Moment, moments: Sequence[Moment]) -> None:
    """A Jetson's events since the sample before: they happened in its time."""
    length_s = moments[-2].length_s if len(moments) > 1 else 0.0
    for name, item in now.items():
        count = number(item)
        if count is None:
            continue
        more = count - state.counters.get(name, count)
        state.counters[name] = count
        if more <= 0 or len(moments) < 2:
            continue
        where, said = moments[-2], f"{more:.0f} {name} events"
        if name == "oc1":
            where.signs.setdefault("under_voltage", said)
        elif name == "oc2":
            where.signs.setdefault("power_cap", said)
            state.overdrawn += more
        else:
            state.momentary += more
            if length_s > 0 and more * MOMENTARY_S / length_s >= MOMENTARY_SHARE:
                where.signs.setdefault("power_cap", said)
    state.measured_s = moment.end_s - moments[0].start_s


def _momentary(state: _State, notes: list[str]) -> None:
    if state.momentary and state.measured_s > 0:
        lost = state.momentary * MOMENTARY_S / state.measured_s
        notes.append(
            f"{state.momentary:.0f} moments of too high a current, which cost about {100 * lost:.2g} % of the speed"
        )


def _settings(state: _State, told: Mapping[str, Any], at_s: float, invalid: list[str]) -> None:
    """Settings that differ from the first ones; one that is told for the first time is no change."""
    flat = _flat(told)
    for name, value in flat.items():
        state.first_settings.setdefault(name, value)
        before = state.settings.get(name, value)
        state.settings[name] = value
        if before != value and name != "boot_id":
            invalid.append(f"{name} changed from {before} to {value} at {at_s:.1f} s")
    differ = [
        name for name, value in state.settings.items() if value != state.first_settings[name] and name != "boot_id"
    ]
    state.changed = ", ".join(f"{name} is {state.settings[name]}, was {state.first_settings[name]}" for name in differ)


def _flat(told: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in told.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{name} of "))
        else:
            found[prefix + name] = value
    return found


def _one_boot(samples: Sequence[Mapping[str, Any]], invalid: list[str]) -> list[Mapping[str, Any]]:
    """Samples with a time, up to the moment in which the board restarted or its clock went back."""
    kept: list[Mapping[str, Any]] = []
    boot: Any = None
    for sample in samples:
        t_s = number(sample.get("t_s"))
        if t_s is None:
            continue
        told = mapping(sample.get("settings")).get("boot_id", boot)
        if boot is not None and told != boot:
            invalid.append(f"the board restarted after {float(kept[-1]['t_s']):.1f} s")
            break
        if kept and t_s < float(kept[-1]["t_s"]):
            invalid.append(f"the run's clock went back from {float(kept[-1]['t_s']):.1f} to {t_s:.1f} s")
            break
        boot = told
        if not kept or t_s > float(kept[-1]["t_s"]):
            kept.append(sample)
    return kept


def _wall_clock(state: _State, sample: Mapping[str, Any], at_s: float, notes: list[str]) -> None:
    """The wall clock against the run's own: they part when it is set, or when the board sleeps."""
    wall = number(sample.get("wall_s"))
    if wall is None:
        return
    ahead, state.wall_ahead_s = state.wall_ahead_s, wall - at_s
    if ahead is not None and abs(wall - at_s - ahead) > 2.0:
        notes.append(
            f"the board's wall clock jumped by {wall - at_s - ahead:+.0f} s at {at_s:.1f} s: it was set, or the board slept; "
            "latencies are of a clock that does not jump"
        )


def _fastest(clocks: Any) -> float | None:
    values = [khz for item in mapping(clocks).values() if (khz := number(item)) is not None]
    return max(values) / 1000.0 if values else None


def _period_s(samples: Sequence[Mapping[str, Any]]) -> float:
    return _median_step([float(sample["t_s"]) for sample in samples])


def _word_period_s(samples: Sequence[Mapping[str, Any]]) -> float:
    return _median_step([float(sample["t_s"]) for sample in samples if sample.get("throttle_word") is not None])


def _median_step(times: Sequence[float]) -> float:
    steps = sorted(after - before for before, after in zip(times, times[1:], strict=False))
    return steps[len(steps) // 2] if steps else 1.0


def _is_pi(facts: Mapping[str, Any]) -> bool:
    """Whether the firmware slows this board down, so that the kernel shows nothing of it."""
    kind = mapping(facts.get("sensors")).get("set")
    return kind == "raspberry-pi" or (kind is None and "Raspberry Pi" in str(facts.get("board_model")))


def _hot_c(facts: Mapping[str, Any], request: Mapping[str, Any], pi: bool) -> float | None:
    told = number(request.get("throttle_c"))
    if told is not None:
        return told
    if pi:
        return FIRMWARE_C
    trips = [
        celsius for item in mapping(mapping(facts.get("sensors")).get("trips_c")).values() if (celsius := number(item))
    ]
    return min(trips) if trips else None


def _knows_limits(facts: Mapping[str, Any]) -> bool:
    """Of a run from before the samples held the limits: the agent watched them where the board had any."""
    if facts.get("sensors"):
        return False
    return any("scaling_max_khz" in mapping(limit) for limit in mapping(facts.get("cpu_limits_khz")).values())
