"""Two models against each other on one board, in one call: measured in turns, judged block by block."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bench.run import run_benchmark

if TYPE_CHECKING:
    from edgekit.report.comparing import Comparison

SHORT_S = 20.0
"""Twenty pairs of blocks of a second: differences of some percent show, where the board is quiet."""


def compare_models(
    a: Path, b: Path, *, duration_s: float = SHORT_S, margin: float = 0.03, **options: Any
) -> tuple[Path, Comparison]:
    """Measures ``a`` and ``b`` (bundles or ``.tflite`` files) in turns for ``duration_s`` each; the run folder, and B against A.

    ``margin`` is the share below which a difference does not matter. ``options`` and errors are those of :func:`run_benchmark`. A run that
    supports no verdict gives an undecided comparison that says why.
    """
    from edgekit.report.comparing import compare_in_turns

    run = run_benchmark(a, other=b, duration_s=duration_s, **options)
    return run, compare_in_turns(run, margin=margin)
