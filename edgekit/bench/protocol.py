"""How a run begins, is paced and ends, and whether it can give the percentile that is asked of it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from edgekit.agent.arrivals import KINDS
from edgekit.agent.cooldown import CooldownRule
from edgekit.agent.steadiness import SteadyRule
from edgekit.errors import UsageError

MAX_OTHER_LOAD = 0.1
"""Cores that others may keep busy on a board before its numbers are no longer its own; what asks for its progress over SSH needs a part."""

CAP_S = 1800.0
"""How long a run until a count, or until steady, may take when nothing else is said."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """``count`` inferences of each variant, or ``until_steady``, end the run early; its duration is then the cap.

    ``cooldown`` and ``until_steady`` are the rules that the agent follows, None is neither. ``rate_per_s`` paces the inputs, None runs
    them back to back. ``percentile`` (in percent) is one that the run is made for: without it the run counts as invalid. So it does when
    other processes kept more than ``max_other_load`` cores busy; None only warns.
    """

    count: int | None = None
    until_steady: SteadyRule | None = None
    cooldown: CooldownRule | None = None
    rate_per_s: float | None = None
    arrivals: str = "fixed"
    percentile: float | None = None
    max_other_load: float | None = None

    def check(self, duration_s: float) -> None:
        """Raises :class:`UsageError` for what makes no sense, and for a percentile that this run can surely not give."""
        if self.count is not None and self.count < 1:
            raise UsageError(f"a count of {self.count} measures nothing", hint="for example --count 1000")
        if self.rate_per_s is not None and not 0 < self.rate_per_s < 1e6:
            raise UsageError(f"a rate of {self.rate_per_s:g} a second makes no sense", hint="for example --rate 15/s")
        if self.arrivals not in KINDS:
            raise UsageError(f"arrivals are {' or '.join(KINDS)}, not {self.arrivals!r}")
        if self.until_steady is not None:
            needs_s = (self.until_steady.windows + 1) * self.until_steady.window_s
            if duration_s < needs_s:
                raise UsageError(
                    f"steady cannot be judged within {duration_s:g} s: it takes {needs_s:g} s at least",
                    hint=f"--cap {needs_s:g}s or more",
                )
        self._check_count(duration_s)

    def _check_count(self, duration_s: float) -> None:
        if self.percentile is None:
            return
        from edgekit.report.percentiles import required_count

        if not 50.0 <= self.percentile < 100.0:
            raise UsageError(f"p{self.percentile:g} is no percentile from p50 to below p100", hint="for example p99")
        needs = required_count(self.percentile)
        at_rate = None if self.rate_per_s is None else int(self.rate_per_s * duration_s)
        has = min((number for number in (self.count, at_rate) if number is not None), default=None)
        if has is not None and has < needs:
            said = f"p{self.percentile:g} needs {needs} inferences, this run makes {has}"
            longer = f" and --duration {needs / self.rate_per_s:.0f}s" if self.rate_per_s else ""
            raise UsageError(said, code="count_too_small", hint=f"--count {needs} or more{longer}")

    def request(self) -> dict[str, Any]:
        """Its part of ``request.json``."""
        pace = None if self.rate_per_s is None else {"rate_per_s": self.rate_per_s, "arrivals": self.arrivals}
        return {
            "count": self.count,
            "until_steady": None if self.until_steady is None else dataclasses.asdict(self.until_steady),
            "cooldown": None if self.cooldown is None else dataclasses.asdict(self.cooldown),
            "pace": pace,
            "percentile": self.percentile,
            "max_other_load": self.max_other_load,
        }


def parse_rate(text: str) -> float:
    """Arrivals a second from ``15/s``, ``900/min`` or a bare number a second. Raises :class:`UsageError`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:/\s*(s|min|m|h))?\s*", text)
    if found is None or float(found[1]) == 0:
        raise UsageError(f"{text!r} is no rate", hint="for example 15/s")
    return float(found[1]) / {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}[found[2] or "s"]


def parse_percentile(text: str) -> float:
    """99.0 from ``p99`` or ``99``. Raises :class:`UsageError`."""
    found = re.fullmatch(r"\s*p?(\d+(?:\.\d+)?)\s*", text)
    if found is None or not 50.0 <= float(found[1]) < 100.0:
        raise UsageError(f"{text!r} is no percentile from p50 to below p100", hint="for example p99")
    return float(found[1])


def parse_load(text: str) -> float:
    """0.1 cores from ``10%``. Raises :class:`UsageError`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if found is None:
        raise UsageError(f"{text!r} is no share of a core", hint="for example 10%")
    return float(found[1]) / 100.0


def parse_threads(text: str) -> tuple[int, ...]:
    """``(1, 2, 4)`` from ``1,2,4``. Raises :class:`UsageError`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        raise UsageError(f"{text!r} is no number of threads", hint="for example 4, or 1,2,4 to run each in turns")
    numbers = tuple(int(word) for word in words)
    if len(numbers) > 1 and 0 in numbers or len(set(numbers)) < len(numbers):
        raise UsageError(f"{text!r}: with several, each is a different number above 0", hint="for example 1,2,4")
    return numbers
