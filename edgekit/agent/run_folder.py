"""The files of one run as the board writes them. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping

from edgekit.errors import UsageError
from edgekit.values import SCHEMA

VARIANTS = ("model", "float")
"""``model`` is what is measured; ``float``, where asked for, the same network before it was quantised."""


class RunFolder:
    """One run folder on the board."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def file(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.path, name)

    def request(self) -> Dict[str, Any]:
        """What to run. Raises :class:`UsageError` when the folder has no request that this agent understands."""
        try:
            with open(self.file("request.json"), encoding="utf-8") as file:
                request: Dict[str, Any] = json.load(file)
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.file('request.json')} cannot be read: {error}") from error
        if request.get("schema") != SCHEMA:
            raise UsageError(f"the request has schema {request.get('schema')!r}, this agent reads {SCHEMA}")
        return request

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Replaces a JSON file as a whole: a reader sees the old one or the new one."""
        temporary = self.file(f".{name}.new")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
        os.replace(temporary, self.file(name))

    def append(self, name: str, value: Mapping[str, Any]) -> None:
        """Adds one line to a ``.jsonl`` file."""
        with open(self.file(name), "a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")

    def log_tail(self, lines: int = 10) -> List[str]:
        """The last lines of ``log.txt``."""
        try:
            with open(self.file("log.txt"), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 16384))
                return file.read().decode("utf-8", "replace").splitlines()[-lines:]
        except OSError:
            return []

    def free_bytes(self) -> int:
        """What this user may still write to the folder's disk."""
        stats = os.statvfs(self.path)
        return stats.f_bavail * stats.f_frsize

    def cancel_asked(self) -> bool:
        """Whether somebody put a ``cancel`` file into the folder."""
        return os.path.exists(self.file("cancel"))


def latency_file(variant: str) -> str:
    """``latencies.bin`` or ``latencies-float.bin``."""
    return "latencies.bin" if variant == "model" else f"latencies-{variant}.bin"


def warmup_file(variant: str) -> str:
    """``warmup.bin`` or ``warmup-float.bin``."""
    return "warmup.bin" if variant == "model" else f"warmup-{variant}.bin"
