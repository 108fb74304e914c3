"""Reading the kernel's small text files, where every failure has a reason worth keeping.

Standard library only: the supervisor imports it.
"""

from __future__ import annotations

import dataclasses
import os


class Unreadable(Exception):
    """The value cannot be known; the text says why, for people."""


@dataclasses.dataclass(frozen=True)
class Roots:
    """Where ``/sys`` and ``/proc`` are: recorded trees of other boards in the tests."""

    sys: str = "/sys"
    proc: str = "/proc"


def read_text(path: str) -> str:
    """The file's text without blanks and NULs around it. Raises :class:`Unreadable`: a sensor may vanish and return at any time."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").strip(" \t\r\n\0")
    except OSError as error:
        # Sensors fail with EAGAIN, EINVAL, ENODATA and others while their hardware is off.
        raise Unreadable(f"{path}: {os.strerror(error.errno) if error.errno else error}") from error


def read_int(path: str) -> int:
    """The file's whole number. Raises :class:`Unreadable`."""
    text = read_text(path)
    try:
        return int(text)
    except ValueError as error:
        raise Unreadable(f"{path}: says {text[:40]!r}, which is no number") from error


def numbered(folder: str, prefix: str) -> list[str]:
    """The entries of ``folder`` called ``prefix`` and a number, in the order of the numbers."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [name for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
    return sorted(found, key=lambda name: int(name[len(prefix) :]))
