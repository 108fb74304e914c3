"""Measures the link over SSH against OpenSSH's own tools, on one loopback sshd and in one run.

    python tools/measure_link.py [--size-mb 20] [--rounds 5] [--delay-ms 0] [--json]

Prints, best and median of the rounds: ``scp`` of the file (a process, its connection included), ``edgekit`` doing the same (a process, its
connection, and the hash on the board included), ``put`` over an open link, and the round trip of one command. With ``--delay-ms`` all of
it goes through a proxy that delays each direction by half of that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lab")]

from lab_proxy import Proxy  # noqa: E402
from lab_sshd import LabBoard, why_not  # noqa: E402

from edgekit.link.boards import Board, add_board, open_link  # noqa: E402

PUT = """
import sys
from pathlib import Path
from edgekit.link.boards import open_link
with open_link("board") as link:
    link.put(Path(sys.argv[1]), sys.argv[2])
"""


def main() -> None:
    """Sets the board up, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="round trip of the link")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    with tempfile.TemporaryDirectory() as folder, LabBoard() as board:
        home = Path(folder)
        os.environ.update(HOME=folder, XDG_CONFIG_HOME=f"{folder}/config", PYTHONPATH=str(ROOT))
        proxy = Proxy((board.host, board.port)) if options.delay_ms else None
        port = proxy.port if proxy else board.port
        if proxy:
            proxy.delay_s = options.delay_ms / 2000
        (home / ".ssh").mkdir()
        (home / ".ssh" / "known_hosts").write_text(board.host_key_line(port=port))
        add_board(Board("board", board.host, user=board.user, port=port, key=str(board.key)))
        times = measure(board, port, home, size_mb=options.size_mb, rounds=options.rounds)
        if proxy:
            proxy.close()
    show(times, options.size_mb, as_json=options.json)


def measure(board: LabBoard, port: int, home: Path, *, size_mb: int, rounds: int) -> dict[str, list[float]]:
    """Seconds by name; what is compared is done in turns, so that other load falls on all alike."""
    file = home / "file"
    scp = [
        "scp",
        "-q",
        "-F",
        "none",
        "-P",
        str(port),
        "-i",
        str(board.key),
        "-o",
        f"UserKnownHostsFile={home}/.ssh/known_hosts",
    ]
    times: dict[str, list[float]] = {}

    def timed(name: str, action: Callable[[], object]) -> None:
        began = time.perf_counter()
        action()
        times.setdefault(name, []).append(time.perf_counter() - began)

    with open_link("board") as link:
        link.run(["true"], timeout_s=60)
        for number in range(rounds):
            file.write_bytes(os.urandom(size_mb << 20))
            target = f"{board.user}@{board.host}:scp{number}"
            timed("scp", lambda target=target: subprocess.run([*scp, str(file), target], check=True))
            command = [sys.executable, "-c", PUT, str(file), f"edgekit{number}"]
            timed("edgekit", lambda command=command: subprocess.run(command, check=True))
            timed("put", lambda number=number: link.put(file, f"put{number}"))
            timed("append", lambda number=number: link.append(file, f"append{number}", offset_bytes=0))
            timed("get", lambda number=number: link.get(f"put{number}", home / "back"))
        for _ in range(10 * rounds):
            timed("run", lambda: link.run(["true"], timeout_s=60))
            timed("size", lambda: link.size_bytes("put0"))
    return times


def show(times: dict[str, list[float]], size_mb: int, *, as_json: bool) -> None:
    """One line a figure."""
    best = {name: min(found) for name, found in times.items()}
    middle = {name: statistics.median(found) for name, found in times.items()}
    ratios = {name: best["scp"] / best[name] for name in ("edgekit", "put", "append", "get")}
    if as_json:
        print(json.dumps({"best_s": best, "median_s": middle, "speed_against_scp": ratios, "size_mb": size_mb}))
        return
    for name in ("scp", "edgekit", "put", "append", "get"):
        speed = f"{size_mb * 1.048576 / best[name]:6.1f} MB/s"
        ratio = f"{ratios[name]:5.0%} of scp's speed" if name in ratios else ""
        print(f"{name:8} best {best[name]:6.3f} s  median {middle[name]:6.3f} s  {speed}  {ratio}")
    for name in ("run", "size"):
        print(f"{name:8} best {best[name] * 1e3:6.1f} ms median {middle[name] * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()
