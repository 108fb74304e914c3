"""Ctrl-C, a polite kill and a hang-up: each ends the command as a KeyboardInterrupt, and none is lost.

A signal that arrives while a native module is being imported, or in a callback of native code, raises its exception where nobody passes
it on. It is remembered here, and raised again at the next sign of progress.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_told: list[int] = []


def listen() -> None:
    """Takes over the signals whose handling nobody has changed: under nohup a hang-up is ignored, and stays so."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is usual:
            signal.signal(number, _stop)


def check() -> None:
    """Raises KeyboardInterrupt once more where the command was told to end and goes on nevertheless."""
    if _told:
        _end(_told[0])


def _stop(number: int, _: FrameType | None) -> NoReturn:
    _told.append(number)
    _end(number)


def _end(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}; nothing half-written was left behind")
