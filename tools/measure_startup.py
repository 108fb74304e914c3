#!/usr/bin/env python3
"""How long `edgekit --help` takes, against a click program that does nothing, in turns in one run.

usage: .venv/bin/python tools/measure_startup.py [--turns N]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

EMPTY = "import click\n@click.group()\ndef cli(): pass\ncli()"


def took_ms(command: list[str]) -> float:
    """Wall milliseconds of one run of ``command``."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30)
    turns = parser.parse_args().turns
    ours, empty = [sys.executable, "-m", "edgekit", "--help"], [sys.executable, "-c", EMPTY, "--help"]
    took_ms(ours), took_ms(empty)  # compiles and caches
    pairs = [(took_ms(ours), took_ms(empty)) for _ in range(turns)]
    difference = statistics.median(a - b for a, b in pairs)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {turns} turns, medians:")
    print(f"edgekit --help {statistics.median(a for a, _ in pairs):.0f} ms, empty click program ", end="")
    print(f"{statistics.median(b for _, b in pairs):.0f} ms, difference {difference:.0f} ms")


if __name__ == "__main__":
    main()
