"""A sensor is where to read and how to understand what stands there. Standard library only."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Mapping, Tuple

from edgekit.agent.readings import Unreadable, read_text, whole_number


@dataclasses.dataclass(frozen=True)
class FileSensor:
    """One value of a sample, from one file or several: ``parse`` gets the text of each.

    ``key`` is where the value goes, ``group.name`` for a value of a group. ``every_s`` 0 is with each sample.
    """

    key: str
    where: Tuple[str, ...]
    parse: Callable[..., Any]
    every_s: float = 0.0

    def read(self) -> Any:
        """The value in the unit that ``key`` names. Raises :class:`Unreadable`."""
        return self.parse(*(read_text(path) for path in self.where))


@dataclasses.dataclass(frozen=True)
class CommandSensor:
    """One value of a sample, from what a command prints.

    ``every_s`` is how often it is asked; less often when the command costs more than ``cpu_share`` of one core.
    """

    key: str
    argv: Tuple[str, ...]
    parse: Callable[[str], Any]
    every_s: float
    cpu_share: float


@dataclasses.dataclass
class SensorSet:
    """The sensors that a maker's boards have beside the generic ones.

    ``settings`` are not measured but set (modes, floors): a change of them during a run spoils it. ``unknown`` says what cannot be
    read on this board at all, and why. ``facts`` goes to ``facts.json``.
    """

    kind: str
    files: List[FileSensor] = dataclasses.field(default_factory=list)
    commands: List[CommandSensor] = dataclasses.field(default_factory=list)
    settings: List[FileSensor] = dataclasses.field(default_factory=list)
    unknown: Dict[str, str] = dataclasses.field(default_factory=dict)
    facts: Dict[str, Any] = dataclasses.field(default_factory=dict)


def put(sample: Dict[str, Any], key: str, value: Any) -> None:
    """Puts ``value`` where ``key`` says: ``power_w`` into the sample itself, ``rails_w.VDD_IN`` into its group ``rails_w``."""
    group, dot, name = key.partition(".")
    if dot:
        sample.setdefault(group, {})[name] = value
    elif isinstance(value, Mapping):
        for inner, item in value.items():
            put(sample, inner, item)
    else:
        sample[key] = value


def bounded(low: float, high: float, *, scale: float = 1.0, unit: str = "") -> Callable[[str], float]:
    """A parser of a whole number times ``scale`` that refuses what lies beyond ``low`` and ``high``: no such thing can be there."""

    def parse(text: str) -> float:
        value = whole_number(text, "the sensor") * scale
        if not low <= value <= high:
            raise Unreadable(f"the sensor says {value:g} {unit}".rstrip() + ", which cannot be")
        return value

    return parse


def counter(text: str) -> int:
    """A count of events since the board started."""
    return int(bounded(0, float(1 << 64))(text))


def flag(text: str) -> bool:
    """An alarm that is off or on."""
    return bounded(0, 1)(text) == 1


def khz(text: str) -> int:
    """A clock in kHz, between 1 MHz and 10 GHz."""
    return int(bounded(1_000, 10_000_000, unit="kHz")(text))


def khz_of_hz(text: str) -> int:
    """A clock in kHz from one in Hz; 0 is a clock that is off."""
    return round(bounded(0, 10_000_000, scale=1e-3, unit="kHz")(text))
