"""The real command line in a process of its own, and what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Said:
    """Exit code and both streams of one call."""

    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as its one JSON document."""
        found = json.loads(self.out)
        assert isinstance(found, dict) and self.out.count("\n") == 1
        assert found["schema"] == 1 and isinstance(found["ok"], bool)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error object of the document."""
        document = self.document
        assert document["ok"] is False and set(document["error"]) == {"code", "message", "hint", "details"}
        error: dict[str, Any] = document["error"]
        return error


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with this checkout's edgekit, and traces going to ``home``."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state"), **(extra or {})}


def command(*arguments: str | Path) -> list[str]:
    """The command line of ``edgekit`` with these arguments."""
    return [sys.executable, "-m", "edgekit", *map(str, arguments)]


def run(
    *arguments: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    start: Sequence[str] | None = None,
    timeout_s: float = 240,
) -> Said:
    """``edgekit ARGUMENTS`` in ``cwd``; never a traceback on either stream."""
    line = [*start, *map(str, arguments)] if start else command(*arguments)
    done = subprocess.run(
        line,
        cwd=cwd,
        env=environment(cwd, env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    said = Said(done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in said.out + said.err, said.err
    return said
