"""Peak memory of this process, stage by stage.

The kernel keeps the peak of the resident set as VmHWM in ``/proc/self/status``; writing 5 to ``/proc/self/clear_refs`` sets it back to the
present size (man 5 proc, Linux 4.0), so each stage gets a peak of its own. ``getrusage`` is not used: its ``ru_maxrss`` is inherited
through exec from a larger parent. Standard library only.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from edgekit.agent.readings import Unreadable, read_text


class StageMemory:
    """Measures one stage after the other; ``proc`` is this process's folder in /proc."""

    def __init__(self, proc: str = "/proc/self") -> None:
        self._proc = proc
        self._reset_failed: Optional[str] = None
        self._peak_before = 0

    def begin(self) -> None:
        """A stage begins: the peak is set back, where the kernel lets us."""
        try:
            with open(os.path.join(self._proc, "clear_refs"), "w") as file:
                file.write("5\n")
            self._reset_failed = None
        except OSError as error:
            self._reset_failed = f"{self._proc}/clear_refs: {error.strerror or error}"
        try:
            self._peak_before = self._status()["VmHWM"]
        except Unreadable:
            self._peak_before = 0

    def end(self) -> Dict[str, Any]:
        """``peak_rss_bytes`` and ``rss_bytes`` of the stage, null with ``memory_unknown`` where they cannot be known."""
        try:
            status = self._status()
        except Unreadable as error:
            return {"peak_rss_bytes": None, "rss_bytes": None, "memory_unknown": str(error)}
        if self._reset_failed is not None and status["VmHWM"] <= self._peak_before:
            # An earlier stage was higher and its mark could not be wiped: this stage's own peak left no trace.
            return {"peak_rss_bytes": None, "rss_bytes": status["VmRSS"], "memory_unknown": self._reset_failed}
        return {"peak_rss_bytes": status["VmHWM"], "rss_bytes": status["VmRSS"]}

    def _status(self) -> Dict[str, int]:
        """VmHWM and VmRSS in bytes (the file has kB)."""
        path = os.path.join(self._proc, "status")
        found = {}
        for line in read_text(path).splitlines():
            name, _, value = line.partition(":")
            if name in ("VmHWM", "VmRSS"):
                found[name] = int(value.split()[0]) * 1024
        if len(found) != 2:
            raise Unreadable(f"{path} has no VmHWM and VmRSS")
        return found
