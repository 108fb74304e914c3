"""A board that heats, in virtual time: die and heat sink as two thermal masses, the firmware or kernel that slows the clock, and what goes wrong.

The model: ``Cj dTj/dt = P - (Tj - Tb)/Rjb`` and ``Cb dTb/dt = (Tj - Tb)/Rjb - (Tb - Ta)/Rba``, with the board's power as P (R absorbs what
does not come from the die) and ``P = idle + (load - idle) * utilisation * (f/f_max)^1.6``. The constants are those of the device profiles.
A scenario gives the samples that the agent would have written, latencies that the clock makes, and the truth beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.bench.profiles import DeviceProfile, ThermalSetup, load_profile
from edgekit.report.timeline import Block, Timeline, timeline_of

STEP_S = 0.05
POWER_OF_CLOCK = 1.6
RECOVERS_K = 1.5
"""The firmware lets the clock rise again this far below the level at which it lowers it."""
FLOOR = 0.6
"""The lowest clock as a share of the highest, on boards whose profile does not know it."""
SAG_KHZ = 600_000.0
"""Where a Pi's firmware puts the clock while the supply is too low."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scenario:
    """What happens to a board in one run. Stretches are ``(start, end)`` in seconds; ``ambient_steps`` are ``(from, kelvin more)``."""

    profile: str
    setup: str
    seed: int = 0
    duration_s: float = 600.0
    ambient_c: float = 25.0
    resistance: float = 1.0
    capacity: float = 1.0
    power: float = 1.0
    ambient_steps: tuple[tuple[float, float], ...] = ()
    latency_ms: float = 60.0
    noise: float = 0.004
    sample_hz: float = 2.0
    warm: bool = False
    fan_fails_s: float | None = None
    sags: tuple[tuple[float, float], ...] = ()
    other_load: tuple[tuple[float, float], ...] = ()
    governor_changes_s: float | None = None
    sensors_lost_s: float | None = None
    temperature_lost: bool = False
    sticky_before: int = 0
    overcurrent: tuple[tuple[float, float], ...] = ()


@dataclass
class Simulated:
    """What the board wrote, and the truth: clock share and cause over time."""

    samples: list[dict[str, Any]]
    blocks: list[Block]
    facts: dict[str, Any]
    request: dict[str, Any]
    times_s: Floats
    speed: Floats
    cause: list[str | None]
    temperature_c: Floats

    @property
    def timeline(self) -> Timeline:
        return timeline_of(self.blocks)

    def onset_s(self, cause: str) -> float:
        """When this cause first lowered the speed."""
        return float(self.times_s[self.cause.index(cause)])

    def lost(self, cause: str) -> float:
        """The share of the run's work that this cause cost."""
        mine = np.array([name == cause for name in self.cause])
        return float(np.mean((1.0 - self.speed) * mine))

    def retention(self, window_s: float) -> float:
        """Work in the last window by work in the first."""
        first = self.times_s < window_s
        last = self.times_s >= self.times_s[-1] + STEP_S - window_s
        return float(self.speed[last].mean() / self.speed[first].mean())


@dataclass
class _Board:
    """State of the virtual board."""

    profile: DeviceProfile
    setup: ThermalSetup
    scenario: Scenario
    die_c: float
    body_c: float
    khz: float
    top_khz: float
    floor_khz: float
    cooling: int = 0
    sticky: int = 0
    events: float = 0.0
    live: int = 0
    since_poll_s: float = field(default=0.0)

    def step(self, t_s: float) -> tuple[float, str | None]:
        """One time step; returns the speed of inference (1 is full) and what lowers it."""
        scenario = self.scenario
        sag, busy = _within(t_s, scenario.sags), _within(t_s, scenario.other_load)
        self._heat(t_s)
        heat_khz = self._throttle()
        changed = scenario.governor_changes_s is not None and t_s >= scenario.governor_changes_s
        over = _within(t_s, scenario.overcurrent)
        khz = heat_khz
        if changed:
            khz = min(khz, self.floor_khz)
        if sag:
            khz = min(khz, SAG_KHZ)
        self._bits(sag, heat_khz)
        self.khz = khz
        speed = khz / self.top_khz * (0.6 if busy else 1.0) * (0.75 if over else 1.0)
        if over:
            self.events += 500 * STEP_S  # each a millisecond at half the clock
        cause = None
        if sag:
            cause = "under_voltage"
        elif over:
            cause = "power_cap"
        elif heat_khz < self.top_khz:
            cause = "thermal"
        elif changed and self.floor_khz < self.top_khz:
            cause = "mode_change"
        elif busy:
            cause = "other_load"
        return speed, cause

    def _heat(self, t_s: float) -> None:
        scenario, setup = self.scenario, self.setup
        rba = setup.body_to_air_k_w * scenario.resistance
        if scenario.fan_fails_s is not None and t_s >= scenario.fan_fails_s:
            rba *= 3.0
        load_w = (setup.load_w - setup.idle_w) * scenario.power
        power = setup.idle_w + load_w * (self.khz / self.top_khz) ** POWER_OF_CLOCK
        ambient = scenario.ambient_c + sum(more for since, more in scenario.ambient_steps if t_s >= since)
        across = (self.die_c - self.body_c) / setup.die_to_body_k_w
        self.die_c += STEP_S * (power - across) / (setup.die_j_k * scenario.capacity)
        self.body_c += STEP_S * (across - (self.body_c - ambient) / rba) / (setup.body_j_k * scenario.capacity)

    def _throttle(self) -> float:
        """The clock that heat allows."""
        hot = self.profile.throttle_c
        assert hot is not None
        if self.profile.throttled_by == "kernel":
            # step_wise: one state of the cooling device more in each poll above the trip point, one less below it.
            self.since_poll_s += STEP_S
            if self.since_poll_s >= 1.0:
                self.since_poll_s = 0.0
                self.cooling = min(6, self.cooling + 1) if self.die_c >= hot else max(0, self.cooling - 1)
            return self.top_khz * (1.0 - 0.08 * self.cooling)
        allowed = getattr(self, "_allowed_khz", self.top_khz)
        if self.die_c >= hot:
            factor = 3.0 if self.die_c >= (self.profile.limit_c or 1e9) else 1.0
            allowed = max(self.floor_khz, allowed - 50_000 * factor * STEP_S)
        elif self.die_c < hot - RECOVERS_K:
            allowed = min(self.top_khz, allowed + 25_000 * STEP_S)
        self._allowed_khz = allowed
        return allowed

    def _bits(self, sag: bool, heat_khz: float) -> None:
        hot = heat_khz < self.top_khz
        self.live = (0b111 if sag else 0) | (0b110 if hot else 0)
        self.sticky |= self.live


def simulate(scenario: Scenario) -> Simulated:
    """Runs the scenario; the same scenario gives the same run."""
    rng = np.random.default_rng(scenario.seed)
    board = _start(scenario)
    count = round(scenario.duration_s / STEP_S)
    times, speed, temperature = np.arange(count) * STEP_S, np.empty(count), np.empty(count)
    causes: list[str | None] = []
    samples: list[dict[str, Any]] = []
    next_sample, next_word = rng.uniform(0.0, 0.3), 0.0
    for index in range(count):
        t_s = float(times[index])
        speed[index], cause = board.step(t_s)
        causes.append(cause)
        temperature[index] = board.die_c
        if t_s >= next_sample:
            with_word = t_s >= next_word
            samples.append(_sample(board, scenario, t_s, rng, with_word=with_word, first=not samples))
            next_sample += 1.0 / scenario.sample_hz
            next_word += 1.0 if with_word else 0.0
    facts, request = _papers(board)
    return Simulated(samples, _blocks(scenario, speed, rng), facts, request, times, speed, causes, temperature)


def _start(scenario: Scenario) -> _Board:
    """A board at rest in its ambient, or hot already."""
    profile = load_profile(scenario.profile)
    setup = next(item for item in profile.setups if item.name == scenario.setup)
    top, floor = float(profile.max_khz[0]), float(profile.floor_khz or round(profile.max_khz[0] * FLOOR))
    power = setup.load_w if scenario.warm else setup.idle_w
    body = scenario.ambient_c + power * setup.body_to_air_k_w * scenario.resistance
    assert profile.throttle_c is not None
    die = min(body + power * setup.die_to_body_k_w, profile.throttle_c - 1.0)
    board = _Board(profile, setup, scenario, die, min(body, die), top, top, floor)
    board.sticky = scenario.sticky_before
    return board


def _sample(
    board: _Board, scenario: Scenario, t_s: float, rng: np.random.Generator, *, with_word: bool, first: bool
) -> dict[str, Any]:
    """One line of samples.jsonl."""
    lost = scenario.sensors_lost_s is not None and t_s >= scenario.sensors_lost_s
    celsius = round(float(np.round((board.die_c + rng.normal(0, 0.3)) / 0.487) * 0.487), 3)
    changed = scenario.governor_changes_s is not None and t_s >= scenario.governor_changes_s
    firmware = board.profile.throttled_by == "firmware"
    busy = 0.4 if _within(t_s, scenario.other_load) else abs(float(rng.normal(0.005, 0.004)))
    blind = lost and scenario.temperature_lost
    sample: dict[str, Any] = {
        "t_s": round(t_s, 3),
        "temperature_c": None if blind else celsius,
        "zones": {},
        "cpu_khz": {"policy0": board.floor_khz if changed else board.top_khz},  # what the kernel wishes
        "cpu_busy_other": busy,
        "cooling_state": {} if firmware or lost else {"cpufreq-cpu0:0": board.cooling},
        "wall_s": 1.79e9 + t_s,
        "unknown": {"temperature": "the zone vanished"} if blind else {},
    }
    settings = {"governor": {"policy0": "powersave" if changed else "ondemand"}, "boot_id": "a"}
    if first or (changed and t_s - 1.0 / scenario.sample_hz <= (scenario.governor_changes_s or 0.0) + STEP_S):
        sample["settings"] = settings
    if firmware and with_word:
        if lost:
            sample["unknown"]["throttle_word"] = "vcgencmd: no answer within 2 s"
        else:
            sample["throttle_word"] = board.live | board.sticky << 16
            sample["real_khz"] = {"arm": round(board.khz)}
    if not firmware and not lost:
        sample["counters"] = {"oc1": 0, "oc2": 0, "oc3": int(board.events)}
        sample["max_khz"] = {"policy0": round(board.top_khz * (1.0 - 0.08 * board.cooling))}
    return sample


def _papers(board: _Board) -> tuple[dict[str, Any], dict[str, Any]]:
    firmware = board.profile.throttled_by == "firmware"
    facts: dict[str, Any] = {
        "cpu_count": 4,
        "sensors": {"set": "raspberry-pi" if firmware else "jetson", "unknown": {}},
        "cpu_limits_khz": {"policy0": {"scaling_max_khz": int(board.top_khz)}},
    }
    return facts, {"throttle_c": board.profile.throttle_c}


def _blocks(scenario: Scenario, speed: Floats, rng: np.random.Generator) -> list[Block]:
    """Inferences back to back, each as long as the clock makes it, in blocks of about a second."""
    # Work done until each moment, in inferences; each ends when another one is done.
    work = np.concatenate(([0.0], np.cumsum(speed) * STEP_S / (scenario.latency_ms / 1e3)))
    edges = np.arange(speed.size + 1) * STEP_S
    ends = np.interp(np.arange(1, int(work[-1]) + 1), work, edges)
    latencies = np.diff(np.concatenate(([0.0], ends)))
    latencies = latencies * np.exp(rng.normal(0.0, scenario.noise, latencies.size))
    starts = np.concatenate(([0.0], ends[:-1]))
    blocks = []
    for second in range(int(np.ceil(scenario.duration_s))):
        chosen = (starts >= second) & (starts < second + 1)
        if chosen.any():
            inside = np.round(latencies[chosen] * 1e9).astype(np.int64)
            blocks.append(Block(float(starts[chosen][0]), float(inside.sum()) / 1e9, int(chosen.sum()), inside))
    return blocks


def _within(t_s: float, stretches: tuple[tuple[float, float], ...]) -> bool:
    return any(start <= t_s < end for start, end in stretches)


BOARDS = (
    ("raspberry-pi-4", "bare"),
    ("raspberry-pi-4", "heatsink"),
    ("raspberry-pi-4", "fan"),
    ("raspberry-pi-5", "bare"),
    ("raspberry-pi-5", "cooler"),
    ("jetson-orin-nano", "fan"),
)


def random_scenario(seed: int) -> Scenario:
    """A board, an ambient, and with luck something that goes wrong."""
    rng = np.random.default_rng([17, seed])
    profile, setup = BOARDS[seed % len(BOARDS)]
    scenario = Scenario(
        profile,
        setup,
        seed=seed,
        duration_s=float(rng.choice([240.0, 420.0, 600.0])),
        ambient_c=float(rng.uniform(15.0, 40.0)),
        resistance=float(rng.uniform(0.8, 1.2)),
        capacity=float(rng.uniform(0.7, 1.3)),
        latency_ms=float(rng.choice([8.0, 60.0, 250.0])),
        noise=float(rng.choice([0.002, 0.005, 0.02])),
        power=float(rng.uniform(0.85, 1.15) if profile != "jetson-orin-nano" else rng.uniform(0.8, 2.0)),
        warm=bool(rng.random() < 0.15),
        sticky_before=int(rng.choice([0, 0, 0b101, 0b110])),
    )
    length = scenario.duration_s
    at = float(rng.uniform(0.25, 0.6)) * length
    stretch = ((at, at + float(rng.uniform(10.0, 40.0))),)
    pi = profile.startswith("raspberry")
    trouble = str(rng.choice(["none", "none", "fan", "sag", "load", "governor", "lost", "blind", "current", "ambient"]))
    if trouble == "fan":
        failing = at / 3 if setup in ("fan", "cooler") else None
        return replace(scenario, fan_fails_s=failing, duration_s=600.0, power=max(scenario.power, 1.0 if pi else 1.8))
    if trouble == "ambient":
        return replace(scenario, ambient_steps=((at, float(rng.uniform(-10.0, 10.0))),))
    if trouble == "sag":
        return replace(scenario, sags=stretch if pi else ())
    if trouble == "load":
        return replace(scenario, other_load=stretch)
    if trouble == "governor":
        return replace(scenario, governor_changes_s=at)
    if trouble in ("lost", "blind"):
        return replace(scenario, sensors_lost_s=at if rng.random() < 0.7 else 0.0, temperature_lost=trouble == "blind")
    if trouble == "current":
        return replace(scenario, overcurrent=() if pi else stretch)
    return scenario
