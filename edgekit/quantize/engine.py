"""A float model through the engine: quantised, islands closed where the interpreter takes the result, biases repaired."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.calibrate.ranges import Ranges
from edgekit.intake.probe import probe
from edgekit.quantize import bias, litert
from edgekit.quantize.close_islands import Closed, close_islands
from edgekit.quantize.recipe import Quantization


@dataclass(frozen=True)
class Closing:
    """The operators that compute on integers although the engine left them float.

    ``refused`` is what the interpreter said where it did not take the file with them: then they stayed float, and ``operators`` is empty.
    """

    operators: tuple[Closed, ...] = ()
    refused: str | None = None


@dataclass(frozen=True)
class Made:
    """The quantised file, and what was done to what the engine wrote."""

    path: Path
    repairs: tuple[bias.Repair, ...]
    closing: Closing

    @property
    def with_repairs(self) -> tuple[Path, tuple[bias.Repair, ...]]:
        """What :func:`edgekit.quantize.correct.correct` needs of a file that is made again."""
        return self.path, self.repairs


def make(float_path: Path, ranges: Ranges | None, *, work: Path, timeout_s: float, scheme: Quantization) -> Made:
    """The quantised model in ``work``. Raises what :func:`edgekit.quantize.litert.quantize` raises."""
    path = litert.quantize(float_path, ranges, work=work, timeout_s=timeout_s, scheme=scheme)
    closing = Closing()
    if ranges is not None and scheme.activations == "int8":
        closing = closed_where_it_runs(path, ranges, timeout_s=timeout_s, integer_ends=scheme.io != "float32")
    return Made(path, bias.repair(path, float_path), closing)


def closed_where_it_runs(path: Path, ranges: Ranges, *, timeout_s: float, integer_ends: bool = True) -> Closing:
    """Closes the islands of the file at ``path``; where the interpreter does not run the result, the file is as it was before."""
    before = path.read_bytes()
    closed = close_islands(path, ranges.by_tensor, integer_ends=integer_ends)
    if path.read_bytes() == before:
        return Closing()
    found = probe(path, invoke=True, timeout_s=timeout_s)
    if found.ok:
        return Closing(closed)
    path.write_bytes(before)
    return Closing(refused=found.failure)
