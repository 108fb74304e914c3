"""Sensors that are commands: started when they are due, collected when they have answered, and never waited for.

A command costs a process. What each one costs is measured, and one that would take more than its share of a core is asked less often.
Standard library only.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import time
from typing import Any, Dict, List, Sequence, Tuple

from edgekit.agent.readings import COMMAND_TIMEOUT_S, Unreadable
from edgekit.agent.sensors.sensor import CommandSensor

RETRY_S = 10.0
"""A command that failed is asked again after this long: it may have been the firmware's bad moment, or for good."""

_MOST_BYTES = 1 << 16


@dataclasses.dataclass
class _Running:
    process: subprocess.Popen[bytes]
    since: float
    own_s: float
    text: bytes = b""
    ended: bool = False


class CommandPoller:
    """Asks ``sensors`` again and again beside other work: :meth:`tend` it whenever :meth:`descriptors` can be read, or once a second."""

    def __init__(self, sensors: Sequence[CommandSensor]) -> None:
        self._sensors = list(sensors)
        self._due = [0.0] * len(self._sensors)
        self._cost_s = [0.0] * len(self._sensors)
        self._running: Dict[int, _Running] = {}
        self._values: List[Tuple[CommandSensor, Any]] = []
        self._unknown: Dict[str, str] = {}

    def descriptors(self) -> List[int]:
        """What becomes readable when a command has something to say."""
        return [run.process.stdout.fileno() for run in self._running.values() if run.process.stdout and not run.ended]

    def tend(self) -> None:
        """Collects what has been said and starts what is due."""
        now = time.monotonic()
        for index, run in list(self._running.items()):
            self._collect(index, run, now)
        for index, due in enumerate(self._due):
            if now >= due and index not in self._running:
                self._start(index, now)

    def fresh(self) -> Tuple[List[Tuple[CommandSensor, Any]], Dict[str, str]]:
        """The values that came since the last call, and why others (by key) did not."""
        values, self._values = self._values, []
        return values, dict(self._unknown)

    def close(self) -> None:
        """Ends the commands that still run."""
        for run in self._running.values():
            run.process.kill()
            run.process.communicate()
        self._running.clear()

    def _start(self, index: int, now: float) -> None:
        sensor = self._sensors[index]
        cpu = time.process_time()
        try:
            process = subprocess.Popen(
                sensor.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            self._failed(index, Unreadable(f"{_name(sensor)}: {error.strerror}"), now)
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._running[index] = _Running(process, now, time.process_time() - cpu)

    def _collect(self, index: int, run: _Running, now: float) -> None:
        cpu, children = time.process_time(), _children_s()
        assert run.process.stdout is not None
        while not run.ended:
            try:
                data = os.read(run.process.stdout.fileno(), 4096)
            except BlockingIOError:
                break
            run.text += data
            run.ended = not data or len(run.text) > _MOST_BYTES
        code = run.process.poll() if run.ended else None
        sensor = self._sensors[index]
        if code is None:
            if now - run.since > COMMAND_TIMEOUT_S:
                self._drop(index, run)
                self._failed(index, Unreadable(f"{_name(sensor)}: no answer within {COMMAND_TIMEOUT_S:g} s"), now)
            return
        self._drop(index, run)
        text = run.text.decode("utf-8", "replace").strip()
        try:
            value = sensor.parse(text)  # what it says tells more than its exit code
            if code != 0:
                raise Unreadable(f"{_name(sensor)}: exit code {code}, says {text[:80]!r}")
        except Unreadable as error:
            self._failed(index, error, now)
            return
        self._values.append((sensor, value))
        self._unknown.pop(_key(sensor), None)
        spent = run.own_s + (time.process_time() - cpu) + (_children_s() - children)
        # The mean forgets slowly, and the first one, with its cold caches, counts for little.
        self._cost_s[index] += (spent - self._cost_s[index]) / 4
        self._due[index] = run.since + max(sensor.every_s, self._cost_s[index] / sensor.cpu_share)

    def _drop(self, index: int, run: _Running) -> None:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate()
        del self._running[index]

    def _failed(self, index: int, error: Unreadable, now: float) -> None:
        self._unknown[_key(self._sensors[index])] = str(error)
        self._due[index] = now + max(RETRY_S, self._sensors[index].every_s)


def _key(sensor: CommandSensor) -> str:
    return sensor.key.partition(".")[0] or "power_w"


def _name(sensor: CommandSensor) -> str:
    return " ".join([os.path.basename(sensor.argv[0]), *sensor.argv[1:]])


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
