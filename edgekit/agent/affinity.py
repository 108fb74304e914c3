"""Which core the sampling runs on, so that it does not disturb what is measured. Standard library only."""

from __future__ import annotations

import os
from typing import FrozenSet, Optional, Tuple

from edgekit.agent.readings import Roots, Unreadable, read_int


def split_cores(roots: Roots, threads: int) -> Optional[Tuple[int, FrozenSet[int]]]:
    """``(core for the sampling, cores for the worker)``; None when the worker's ``threads`` need all cores (0 is all).

    The sampling gets the weakest core, so that on a board with large and small ones the worker keeps the large ones.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    if threads <= 0 or threads >= len(allowed):
        return None
    weakest = min(sorted(allowed, reverse=True), key=lambda core: _strength(roots, core))
    return weakest, frozenset(allowed - {weakest})


def _strength(roots: Roots, core: int) -> int:
    """What the kernel says of how much the core can do: its capacity, else its highest clock."""
    folder = os.path.join(roots.sys, "devices", "system", "cpu", f"cpu{core}")
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        try:
            return read_int(os.path.join(folder, name))
        except Unreadable:
            continue
    return 0
