"""What goes on beside the measurement: sensor samples, events, the status file, and the wish to cancel. Standard library only."""

from __future__ import annotations

import collections
import os
import select
import time
from typing import Any, Deque, Dict, Mapping, Optional

from edgekit.agent.readings import Roots
from edgekit.agent.run_folder import RunFolder
from edgekit.agent.sensors.board import BoardSensors
from edgekit.agent.sensors.generic import SensorSample, governors, sample_as_json
from edgekit.agent.steadiness import Moment
from edgekit.agent.throttle import ThrottleWatch
from edgekit.values import SCHEMA

STATUS_EVERY_S = 1.0

REMEMBERED_S = 900.0
"""How far back the latest samples are kept in memory, for the start condition and the steady state."""


class Monitor:
    """Keeps ``status.json``, ``samples.jsonl`` and ``events.jsonl`` up to date while the supervisor waits for a worker."""

    def __init__(self, folder: RunFolder, request: Mapping[str, Any], roots: Roots) -> None:
        self._folder = folder
        self.sensors = BoardSensors(roots, zone_types=request.get("zone_types", ()))
        self._throttle = ThrottleWatch(roots)
        self._sample_every_s = 1.0 / request["sample_hz"]
        self._duration_s = float(request["duration_s"])
        self.recent: Deque[Moment] = collections.deque(maxlen=int(REMEMBERED_S * request["sample_hz"]))
        self._pids: Dict[str, int] = {}
        self._state, self._stage, self._message = "starting", "", ""
        self._inferences, self._measured_s = 0, 0.0
        self._last: Optional[SensorSample] = None
        self._next_sample = self._next_status = 0.0
        self._other_load: list[float] = []
        self.started_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self._roots = roots
        self.governors_at_start = governors(roots)
        self.throttled = False
        self.swapped_bytes = 0
        self._cancelled_by = ""
        self._cancelled_at = 0.0
        for said in self._throttle.limited_before():
            self.event("warning", said)

    def elapsed_s(self) -> float:
        """Seconds since the run began, on the clock that the latencies are measured with."""
        return (time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - self.started_ns) / 1e9

    def watch(self, variant: str, pid: int) -> None:
        """From now on this process is one of the measured ones."""
        self._pids[variant] = pid

    def stage(self, name: str, variant: str = "") -> None:
        """The run enters a stage."""
        self._state, self._stage = "starting" if name in ("cooldown", "open") else "running", name
        self._message = variant
        self.event("stage", name, **({"variant": variant} if variant else {}))
        self._write_status()

    def expect(self, seconds: float) -> None:
        """The sustained part will take so many seconds, all variants together."""
        self._duration_s = round(seconds, 3)

    def measured(self, inferences: int, seconds: float) -> None:
        """So many more inferences in so many seconds."""
        self._inferences += inferences
        self._measured_s += seconds

    def event(self, kind: str, message: str, **facts: Any) -> None:
        """One line in ``events.jsonl``."""
        self._folder.append(
            "events.jsonl", {"t_s": round(self.elapsed_s(), 3), "kind": kind, "message": message, **facts}
        )

    def cancel(self, why: str) -> None:
        """The run is to end early; also called from a signal handler."""
        if not self._cancelled_by:
            self._cancelled_by, self._cancelled_at = why, time.monotonic()

    def cancelled_for_s(self) -> Optional[float]:
        """Seconds since the run was asked to end early; None when nobody asked."""
        return time.monotonic() - self._cancelled_at if self._cancelled_by else None

    def wait(self, descriptor: Optional[int] = None) -> bool:
        """Looks after everything that is due, then waits for ``descriptor`` or the next due time; True when it can be read."""
        now = time.monotonic()
        self.sensors.tend()
        if now >= self._next_sample:
            self._sample()
            if self._folder.cancel_asked():
                self.cancel("a cancel file")
            self._next_sample = max(self._next_sample + self._sample_every_s, now)
        if now >= self._next_status:
            self._write_status()
            self._next_status = max(self._next_status + STATUS_EVERY_S, now)
        due = min(self._next_sample, self._next_status) - time.monotonic()
        watched = [] if descriptor is None else [descriptor]
        readable, _, _ = select.select([*watched, *self.sensors.descriptors()], [], [], max(due, 0.0))
        return descriptor in readable

    def status(self, state: str, *, stage: str = "", message: str = "") -> None:
        """Sets the state and writes it at once."""
        self._state, self._stage, self._message = state, stage or self._stage, message
        self._write_status()

    def close(self, state: str, message: str) -> None:
        """The run has ended; ``result.json`` is there."""
        self.sensors.close()
        if state == "cancelled":
            message = f"cancelled by {self._cancelled_by}"
            self.event("cancel", message)
        self.status(state, message=message)

    def governors_now(self) -> Dict[str, str]:
        """The cpufreq governor of each policy."""
        return governors(self._roots)

    def mean_other_load(self) -> Optional[float]:
        """Mean share of all cores that other processes kept busy; None when it is unknown."""
        return sum(self._other_load) / len(self._other_load) if self._other_load else None

    def _sample(self) -> None:
        sample = self.sensors.sample(self._pids)
        self._last = sample
        self.swapped_bytes = max(self.swapped_bytes, sample.swapped_bytes)
        # The wall clock beside the run's own shows a board that slept, and a clock that was set.
        line = {**sample_as_json(sample, self.elapsed_s()), "wall_s": round(time.time(), 3)}
        self._folder.append("samples.jsonl", line)
        if sample.cpu_busy_other is not None and self._stage == "sustained":
            self._other_load.append(sample.cpu_busy_other)
        for kind, message, facts in self._throttle.changes(sample):
            self.throttled = self.throttled or kind == "throttle_on"
            self.event(kind, message, **facts)
        throttled = self._throttle.cause is not None if self._throttle.observable else None
        self.recent.append((self.elapsed_s(), sample.temperature_c, throttled))

    def _write_status(self) -> None:
        sample = self._last
        fastest_khz = max(sample.cpu_khz.values()) if sample is not None and sample.cpu_khz else None
        self._folder.write(
            "status.json",
            {
                "schema": SCHEMA,
                "state": self._state,
                "stage": self._stage,
                "elapsed_s": round(self._measured_s, 3),
                "duration_s": self._duration_s,
                "inferences": self._inferences,
                "temperature_c": sample.temperature_c if sample is not None else None,
                "cpu_mhz": None if fastest_khz is None else round(fastest_khz / 1000),
                "throttled": None if not self._throttle.observable else self._throttle.cause is not None,
                "throttle_cause": self._throttle.cause,
                "message": self._message,
                "pid": os.getpid(),
                "t_s": round(self.elapsed_s(), 3),
            },
        )
