"""The workstation's side of a benchmark: what to measure, the job on the board, the run folder it becomes."""

from __future__ import annotations

from edgekit.bench.jobs import Status
from edgekit.bench.run import BenchInterrupted, run_benchmark

__all__ = ["BenchInterrupted", "Status", "run_benchmark"]
