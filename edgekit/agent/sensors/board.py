"""All sensors of the board at hand: the generic ones, and those of its maker. Standard library only."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from edgekit.agent.readings import Roots, Unreadable, read_text
from edgekit.agent.sensors import jetson, kernel, pi
from edgekit.agent.sensors.generic import GenericSensors, SensorSample
from edgekit.agent.sensors.poller import CommandPoller
from edgekit.agent.sensors.sensor import FileSensor, SensorSet, put


def board_kind(roots: Roots) -> str:
    """``raspberry-pi``, ``jetson`` or ``generic``, by what the device tree calls the board."""
    for folder in (os.path.join(roots.proc, "device-tree"), os.path.join(roots.sys, "firmware/devicetree/base")):
        for name, marks in (
            ("compatible", {"raspberrypi,": "raspberry-pi", "nvidia,tegra": "jetson"}),
            ("model", _MODELS),
        ):
            try:
                text = read_text(os.path.join(folder, name))
            except Unreadable:
                continue
            for mark, kind in marks.items():
                if mark in text:
                    return kind
    return "generic"


_MODELS = {"Raspberry Pi": "raspberry-pi", "NVIDIA Jetson": "jetson"}


class BoardSensors:
    """Reads the board again and again; ``zone_types`` are thermal zones to prefer (see :class:`GenericSensors`).

    Making one asks the board's tools once, which takes some seconds where they hang.
    """

    def __init__(self, roots: Roots, *, zone_types: Sequence[str] = ()) -> None:
        self._generic = GenericSensors(roots, zone_types=zone_types)
        self._set = _joined(kernel.sensor_set(roots), _maker_set(roots))
        self._poller = CommandPoller(self._set.commands)
        self._read_at: Dict[str, float] = {}
        self._settings: Dict[str, Any] = {}

    @property
    def zone(self) -> Optional[str]:
        """The zone that stands for the board's temperature, once one could be read."""
        return self._generic.zone

    def describe(self) -> Dict[str, Any]:
        """For ``facts.json``: which set it is, what it cannot read and why."""
        return {"set": self._set.kind, "unknown": dict(self._set.unknown), **self._set.facts}

    def descriptors(self) -> List[int]:
        """What to wait for beside other things; :meth:`tend` when one of them can be read."""
        return self._poller.descriptors()

    def tend(self) -> None:
        """Looks after the commands that run beside."""
        self._poller.tend()

    def close(self) -> None:
        """Ends the commands that still run."""
        self._poller.close()

    def sample(self, processes: Mapping[str, int]) -> SensorSample:
        """One reading. Values of commands are in the first sample after they came, and not repeated."""
        plain = self._generic.sample(processes)
        unknown = dict(plain.unknown)
        more: Dict[str, Any] = {}
        settings: Dict[str, Any] = {}
        self._read_files(self._set.files, more, unknown)
        self._read_files(self._set.settings, settings, unknown)
        values, reasons = self._poller.fresh()
        unknown.update(reasons)
        for sensor, value in values:
            put(more, sensor.key, value)
        settings = {**self._settings, **settings, **more.pop("settings", {})}
        if settings != self._settings:
            self._settings = more["settings"] = settings
        return dataclasses.replace(plain, more=more, unknown=unknown)

    def start_over(self) -> None:
        """The next sample says everything, as the first one does."""
        self._settings = {}
        self._read_at = {}

    def _read_files(self, sensors: Sequence[FileSensor], into: Dict[str, Any], unknown: Dict[str, str]) -> None:
        now = time.monotonic()
        for sensor in sensors:
            if sensor.every_s and now - self._read_at.get(sensor.key, -sensor.every_s) < sensor.every_s:
                continue
            self._read_at[sensor.key] = now
            try:
                put(into, sensor.key, sensor.read())
            except Unreadable as error:
                unknown[sensor.key.partition(".")[0]] = str(error)


def _maker_set(roots: Roots) -> SensorSet:
    makers = {"raspberry-pi": pi.sensor_set, "jetson": jetson.sensor_set}
    kind = board_kind(roots)
    return makers[kind](roots) if kind in makers else SensorSet(kind)


def _joined(general: SensorSet, maker: SensorSet) -> SensorSet:
    """One set; the maker's real clock stands for the kernel's, which only root may read on most boards."""
    keys = {sensor.key.partition(".")[0] for sensor in maker.files} | {
        sensor.key.partition(".")[0] for sensor in maker.commands
    }
    files = [sensor for sensor in general.files if sensor.key.partition(".")[0] not in keys]
    unknown = {key: reason for key, reason in {**general.unknown, **maker.unknown}.items() if key not in keys}
    if any(sensor.key.startswith("real_khz.") for sensor in files):
        unknown.pop("real_khz", None)
    return SensorSet(
        kind=maker.kind,
        files=[*files, *maker.files],
        commands=list(maker.commands),
        settings=[*general.settings, *maker.settings],
        unknown=unknown,
        facts={**general.facts, **maker.facts},
    )
