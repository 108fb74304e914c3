"""Measures what the agent's sampling costs, as a share of one core: the recorded boards' sensors, read for a while at the usual rate.

    python tools/measure_sampling.py [--seconds 20] [--hz 2]

Commands of a board (vcgencmd, nvpmodel) are shell scripts here, which start slower than the real, compiled ones. The load of this
machine's own processes is what ``/proc`` shows in place of the board's.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "boards"))

from board_files import Board, board_names, recorded

from edgekit.agent.readings import Roots
from edgekit.agent.sensors.board import BoardSensors
from edgekit.agent.sensors.generic import sample_as_json


def main() -> int:
    """One line for each board, and one for this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--hz", type=float, default=2.0)
    options = parser.parse_args()
    print("| board | sensors | samples | share of one core |\n|---|---|---|---|")
    for name in [*board_names(), "this machine"]:
        with tempfile.TemporaryDirectory() as folder:
            roots = Roots() if name == "this machine" else Board(Path(folder), *recorded(name)).roots
            kind, samples, share = cost(roots, options.seconds, options.hz)
        print(f"| {name} | {kind} | {samples} | {100 * share:.2f} % |", flush=True)
    return 0


def cost(roots: Roots, seconds: float, hz: float) -> tuple[str, int, float]:
    """Which sensors they are, how many samples were taken, and the CPU time of all that by the time it took."""
    sensors = BoardSensors(roots)
    before, began, count = used_s(), time.monotonic(), 0
    next_sample = began
    while time.monotonic() - began < seconds:
        sensors.tend()
        if time.monotonic() >= next_sample:
            sample_as_json(sensors.sample({"model": os.getpid()}), time.monotonic() - began)
            count += 1
            next_sample += 1.0 / hz
        select.select(sensors.descriptors(), [], [], max(0.0, next_sample - time.monotonic()))
    sensors.close()
    return sensors.describe()["set"], count, (used_s() - before) / (time.monotonic() - began)


def used_s() -> float:
    """CPU seconds of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
