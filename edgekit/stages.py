"""The stages of a long run: announced to whoever listens, and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Who wants to know how far a long run is. The library itself never prints."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins; ``total`` is its number of steps where that is known."""

    def step(self, done: int) -> None:
        """So many steps of the stage are done; also called without an advance, as a sign of life."""


class Silent:
    """Nobody wants to know."""

    def stage(self, name: str, total: int | None) -> None:
        """Nothing."""

    def step(self, done: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class StageRecord:
    """How long a stage took, and the peak memory of the child process that did its work, where there was one."""

    name: str
    seconds: float
    peak_rss_bytes: int | None = None


class Stages:
    """Announces each stage to the listener and keeps its time: ``with stages("calibrate", total): ...``."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.records: list[StageRecord] = []

    @contextmanager
    def __call__(self, name: str, total: int | None = None) -> Iterator[None]:
        self._progress.stage(name, total)
        started = time.monotonic()
        yield
        self.records.append(StageRecord(name, round(time.monotonic() - started, 3)))

    def step(self, done: int) -> None:
        """So many steps of the running stage are done."""
        self._progress.step(done)

    def alive(self) -> None:
        """A sign of life from a stage whose steps cannot be counted."""
        self._progress.step(0)

    def child_peak(self, peak_rss_bytes: int | None) -> None:
        """The stage that just ended was done by a child process of this peak memory."""
        last = self.records[-1]
        self.records[-1] = StageRecord(last.name, last.seconds, peak_rss_bytes)
