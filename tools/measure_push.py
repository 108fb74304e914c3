"""What a push costs: a first one, an unchanged one, and sixteen boards behind slow links against one.

    python tools/measure_push.py [--boards 16] [--megabytes 4]

Boards are real sshds on loopback with homes of their own (root and an OpenSSH server are needed). Slow links delay by 25 ms each way and
carry 2 MB/s. Each board is prepared first, which is not counted. Ratios hold on this machine; seconds do not elsewhere.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
for place in (ROOT, ROOT / "tests" / "lab"):
    sys.path.insert(0, str(place))

from lab_proxy import Proxy  # noqa: E402
from lab_sshd import LabBoard  # noqa: E402

from edgekit.bundle.manifest import file_entry  # noqa: E402
from edgekit.link.boards import Board, add_board, open_link  # noqa: E402
from edgekit.push.bootstrap import prepare  # noqa: E402
from edgekit.push.contact import Agent  # noqa: E402
from edgekit.push.fleet import on_each  # noqa: E402
from edgekit.push.release import push_bundle  # noqa: E402

PROOF = ROOT / "edgekit" / "push" / "proof"


def make_bundle(folder: Path, *, megabytes: float, seed: int) -> Path:
    """The proving bundle with so many bytes more behind the model."""
    import json

    bundle = folder / f"{seed}.bundle"
    shutil.copytree(PROOF, bundle)
    with open(bundle / "model.tflite", "ab") as file:
        file.write(np.random.default_rng(seed).bytes(int(megabytes * 1e6)))
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"]["model.tflite"] = file_entry(bundle / "model.tflite")
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return bundle


def seconds(words: Sequence[str], env: dict[str, str]) -> float:
    """The time of a command; it has to succeed."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", *words], env=env, check=True, capture_output=True)
    return time.perf_counter() - began


def on_all(names: list[str], bundle: Path) -> float:
    """Pushes to these boards at once."""
    began = time.perf_counter()
    outcomes = on_each(names, lambda link: push_bundle(Agent(link), bundle, app="measured"))
    for one in outcomes:
        if one.error is not None:
            raise one.error
    return time.perf_counter() - began


def measure(folder: Path, boards: list[LabBoard], megabytes: float) -> None:
    """Prints the figures."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    bundle = make_bundle(folder, megabytes=megabytes, seed=1)
    words = ["edgekit", "push", str(bundle), "--device", "fast", "--app", "measured"]
    first = seconds(words, env)
    with open_link("fast") as link:
        unchanged = push_bundle(Agent(link), bundle, app="measured")
    again = min(seconds(words, env) for _ in range(5))
    start = min(seconds(["edgekit", "push", "--help"], env) for _ in range(5))
    print(f"first push of {megabytes:g} MB: {first:.2f} s")
    print(
        f"unchanged push: {again:.2f} s, of which process start {start:.2f} s; {unchanged.sent_bytes} bytes of files sent"
    )
    names = [f"slow{number}" for number in range(len(boards))]
    one = on_all(names[:1], make_bundle(folder, megabytes=megabytes, seed=2))
    every = on_all(names, make_bundle(folder, megabytes=megabytes, seed=3))
    print(
        f"one board behind 50 ms and 2 MB/s: {one:.2f} s; {len(names)} of them: {every:.2f} s, {every / one:.2f} times as long"
    )


def main() -> None:
    """Starts the boards, prepares them, measures, and takes all away."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boards", type=int, default=16)
    parser.add_argument("--megabytes", type=float, default=4.0)
    options = parser.parse_args()
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    with tempfile.TemporaryDirectory(prefix="edgekit-measure-") as name:
        folder = Path(name)
        (folder / ".ssh").mkdir()
        os.environ.update(HOME=name, XDG_CONFIG_HOME=f"{name}/config")
        boards = [LabBoard() for _ in range(options.boards)]
        proxies = []
        try:
            for number, board in enumerate(boards):
                board.start()
                proxy = Proxy((board.host, board.port))
                proxies.append(proxy)
                for label, port in ((f"slow{number}", proxy.port), ("fast", board.port) if number == 0 else ("", 0)):
                    if label:
                        with open(folder / ".ssh/known_hosts", "a") as file:
                            file.write(board.host_key_line(port=port))
                        add_board(Board(label, board.host, user=board.user, port=port, key=str(board.key)))
            for outcome in on_each([f"slow{n}" for n in range(len(boards))], lambda link: prepare(Agent(link))):
                if outcome.error is not None:
                    raise outcome.error
            for proxy in proxies:
                proxy.delay_s, proxy.bytes_per_s = 0.025, 2e6
            measure(folder, boards, options.megabytes)
        finally:
            for proxy in proxies:
                proxy.close()
            for board in boards:
                board.close()


if __name__ == "__main__":
    main()
