"""Runs randomised scenarios of a board that heats, in virtual time, and compares every report with what the simulator knows.

    python tools/thermal_scenarios.py [--count 200] [--first 0] [--table]

Exit code 1 when a report is wrong. ``--table`` prints the result for the documentation.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "lab"))

from lab_thermal import random_scenario, simulate
from lab_thermal_judge import judged, onset_errors_s, retention_error, run_of

from edgekit.report.stats import summarise


def main() -> int:
    """The scenarios one after the other; says each that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    words: collections.Counter[tuple[str, str, str]] = collections.Counter()
    wrong = cool = 0
    onsets: list[float] = []
    retentions: list[float] = []
    began = time.monotonic()
    for seed in range(options.first, options.first + options.count):
        scenario = random_scenario(seed)
        run = simulate(scenario)
        summary = summarise(run_of(run))
        found = summary.thermal.throttling
        words[(f"{scenario.profile}, {scenario.setup}", found.verdict, found.main.cause if found.main else "")] += 1
        cool += all(cause is None for cause in run.cause)
        onsets += [abs(error) for error in onset_errors_s(scenario, run, summary).values()]
        retentions.append(abs(retention_error(run, summary) or 0.0))
        complaints = judged(scenario, run, summary)
        if complaints:
            wrong += 1
            print(f"{seed}: {'; '.join(complaints)}\n    {scenario}", flush=True)
    print(
        f"{options.count} scenarios, {cool} of them never slowed down; {wrong} wrong; {time.monotonic() - began:.0f} s"
    )
    print(
        f"{len(onsets)} onsets, largest error {max(onsets, default=0.0):.2f} s, median {statistics.median(onsets or [0.0]):.2f} s; "
        f"largest error of retention {100 * max(retentions):.2f} points"
    )
    if options.table:
        print("\n| board | verdict | cause | scenarios |\n|---|---|---|---|")
        for (board, verdict, cause), count in sorted(words.items()):
            print(f"| {board} | {verdict} | {cause or '–'} | {count} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
