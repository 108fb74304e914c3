"""A bundle verified on a board, without releasing it: the kernels there may round otherwise than those here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from edgekit.push.contact import Agent
from edgekit.push.release import shipped_files
from edgekit.push.store import Progress, as_request, ask_with_files, send_missing


@dataclasses.dataclass(frozen=True)
class OnBoard:
    """What a bundle's golden pairs gave on a board.

    Each of ``outputs`` has ``name``, ``passed``, ``reason``, ``agreement`` (same largest value, of so many), and for integers
    ``worst_steps`` and ``equal`` (the share of values that are the same). ``latency_ms`` is of a few inferences: no benchmark.
    """

    device: str
    passed: bool
    reasons: tuple[str, ...]
    pairs: int
    outputs: tuple[dict[str, Any], ...]
    latency_ms: float
    interpreter: str


def verify_on_board(agent: Agent, bundle: Path, *, threads: int = 0, progress: Progress | None = None) -> OnBoard:
    """Runs the golden pairs of ``bundle`` on the board; what is sent stays in its store, for a push or a benchmark.

    Raises as :func:`edgekit.push.release.push_bundle` does.
    """
    files = shipped_files(bundle)
    there = agent.ask("contact", {"wanted": [file.as_json() for file in files]})
    send_missing(agent, files, there["missing"], free_bytes=there["free_bytes"], progress=progress)
    answer, _ = ask_with_files(agent, "health", {"files": as_request(files), "threads": threads}, files)
    report = answer["health"]
    return OnBoard(
        device=agent.link.name,
        passed=report["passed"],
        reasons=tuple(report["reasons"]),
        pairs=report["pairs"],
        outputs=tuple(report["outputs"]),
        latency_ms=report["latency_ms"],
        interpreter=f"{report['interpreter']['name']} {report['interpreter']['version']}",
    )
