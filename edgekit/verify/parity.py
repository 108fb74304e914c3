"""Parity: the float TFLite against the source in its own runtime, on real inputs, output by output and slice by slice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import ParityError
from edgekit.intake.layout import delivered, permuted, require_shape
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.floor import LEAST_DB, WITHIN_DB, Floor, FloorResult, Recomputed
from edgekit.verify.measures import (
    Comparison,
    WorstSlice,
    equal_non_finite_cleared,
    json_db,
    json_number,
    slice_axis,
    words_db,
)

SAMPLES = 16
"""Inputs that parity is judged on, as far as there are that many."""
NEAR_ZERO_LIMIT = 1e-4
"""Largest error of a slice near zero, relative to the output's largest value: 80 dB, in amplitude."""
NEARLY_DB = 60.0
"""A result that misses the limit but not this much: a thousandth of the signal, which the user may accept by a recipe."""

Sample = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class SliceResult:
    """The worst slice of an output. ``sqnr_db`` None means exact, ``max_abs_error`` None that it is no finite number."""

    axis: int
    index: int
    sqnr_db: float | None
    max_abs_error: float | None

    @classmethod
    def of(cls, worst: WorstSlice | None) -> SliceResult | None:
        """What the measure found, in JSON's numbers."""
        if worst is None:
            return None
        return cls(worst.axis, worst.index, json_db(worst.sqnr_db), json_number(worst.max_abs_error))


@dataclass(frozen=True)
class OutputParity:
    """One output: largest absolute and relative error, SQNR over all values and of the worst slice (dB; None means exact).

    ``floor`` is the source against itself, where it was asked for because the limit was missed.
    """

    name: str
    max_abs_error: float
    max_rel_error: float
    sqnr_db: float | None
    worst_slice: SliceResult | None
    near_zero_slices: int
    passed: bool
    floor: FloorResult | None = None


@dataclass(frozen=True)
class Parity:
    """The verdict over all outputs. ``limit_db`` is what the worst slice must reach."""

    reference: str
    samples: int
    passed: bool
    limit_db: float
    outputs: tuple[OutputParity, ...]

    @property
    def remark(self) -> str:
        """What to say of a verdict that was reached by the noise floor; empty where the limit itself was."""
        excused = [output for output in self.outputs if output.passed and output.floor is not None]
        if not excused:
            return ""
        named = "; ".join(f"output {output.name!r}: {output.floor.words}" for output in excused if output.floor)
        return f"below {self.limit_db:g} dB and within {WITHIN_DB:g} dB of the source's own noise floor: {named}"


def parity(
    model: FloatModel,
    samples: Sequence[Sample],
    references: Sequence[Sample],
    *,
    reference: str,
    limit_db: float,
    again: Recomputed | None = None,
) -> Parity:
    """Compare on all ``samples``; ``references`` are the source's outputs for them, in source layout.

    Where an output misses ``limit_db``, the source is held against itself in the ways that ``again`` knows: a slice passes too within
    :data:`edgekit.verify.floor.WITHIN_DB` of what that gives for it.
    """
    comparisons = _compared(model, samples, references)
    outputs = _verdicts(model, comparisons, limit_db, {})
    if again is not None and not all(output.passed for output in outputs):
        for floors in again.floors(model.outputs):
            outputs = _verdicts(model, comparisons, limit_db, floors)
            if all(output.passed for output in outputs):
                break
    return Parity(reference, len(samples), all(o.passed for o in outputs), limit_db, outputs)


def _compared(model: FloatModel, samples: Sequence[Sample], references: Sequence[Sample]) -> list[Comparison]:
    comparisons = [Comparison(spec.name, slice_axis(spec)) for spec in model.outputs]
    with open_backend(model.path) as backend:
        for sample, truth in zip(samples, references, strict=True):
            for position, spec in enumerate(model.inputs):
                backend.set_input(position, delivered(sample[spec.name], spec))
            backend.invoke()
            for position, (spec, comparison) in enumerate(zip(model.outputs, comparisons, strict=True)):
                got = backend.get_output(position)
                require_shape(got, spec)
                wanted = permuted(truth[spec.name], spec.permutation, got.shape)
                comparison.add(*equal_non_finite_cleared(wanted, got))
    return comparisons


def _verdicts(
    model: FloatModel, comparisons: Sequence[Comparison], limit_db: float, floors: Mapping[str, Floor]
) -> tuple[OutputParity, ...]:
    return tuple(
        _judged(comparison, limit_db, floors.get(spec.name), exact=np.dtype(spec.source_dtype).kind in "iub")
        for spec, comparison in zip(model.outputs, comparisons, strict=True)
    )


def _judged(comparison: Comparison, limit_db: float, floor: Floor | None, *, exact: bool) -> OutputParity:
    """The verdict on one output. ``exact``: integers and booleans are equal or wrong, an index that is off by one has no decibels."""
    plainly = _reached(comparison, limit_db, None, exact=exact)
    floor = None if plainly or exact else floor
    return OutputParity(
        name=comparison.name,
        max_abs_error=comparison.max_abs_error,
        max_rel_error=comparison.relative_error,
        sqnr_db=json_db(comparison.sqnr_db),
        worst_slice=SliceResult.of(comparison.worst_slice),
        near_zero_slices=comparison.near_zero_slices,
        passed=plainly
        or (floor is not None and floor.is_credible and _reached(comparison, limit_db, floor, exact=exact)),
        floor=FloorResult.of(floor),
    )


def _reached(comparison: Comparison, limit_db: float, floor: Floor | None, *, exact: bool) -> bool:
    whole_db = limit_db if floor is None else floor.limit_db(limit_db)
    slices_db: Any = limit_db if floor is None else floor.slice_limits_db(limit_db)
    near_zero = NEAR_ZERO_LIMIT if floor is None else floor.near_zero_limit(NEAR_ZERO_LIMIT)
    enough = not exact and comparison.sqnr_db >= whole_db and bool(np.all(comparison.slices_db >= slices_db))
    return (enough or comparison.max_abs_error == 0.0) and comparison.near_zero_error <= near_zero


def require(result: Parity, model: FloatModel, *, made_up: bool = False) -> None:
    """Raises ParityError that names the worst output when the float model does not equal the source. ``made_up``: inputs were drawn."""
    if result.passed:
        return
    failed = [output for output in result.outputs if not output.passed]
    worst = min(failed, key=lambda o: (o.worst_slice.sqnr_db if o.worst_slice else o.sqnr_db) or 0.0)
    limit_db, slice_ = result.limit_db, worst.worst_slice
    where = f", {_beside(slice_.sqnr_db, limit_db)} in slice {slice_.index}" if slice_ else ""
    floor = "" if worst.floor is None else f"; {worst.floor.words}"
    inputs = "made-up inputs, which may lie outside of what the network was made for" if made_up else "inputs"
    raise ParityError(
        f"the float model from {model.frontend} does not equal the source: output {worst.name!r} differs by up to "
        f"{worst.max_abs_error:.3g} ({_beside(worst.sqnr_db, limit_db)}{where}; {limit_db:g} dB are required{floor}) over "
        f"{result.samples} {inputs}",
        hint=_hint(worst, model, made_up=made_up),
        details={"frontend": model.frontend, "outputs": [o.name for o in failed]},
    )


def _beside(value: float | None, limit_db: float) -> str:
    """A ratio in a sentence that names ``limit_db`` too: with as many digits as it takes to tell them apart."""
    if value is None or value > limit_db or value == -999.0:
        return words_db(value)
    for digits in (1, 2, 3):
        if round(value, digits) < limit_db:
            return f"{value:.{digits}f} dB"
    return f"within 0.001 dB of {limit_db:g} dB"


def _hint(worst: OutputParity, model: FloatModel, *, made_up: bool) -> str:
    lowest = worst.worst_slice.sqnr_db if worst.worst_slice else worst.sqnr_db
    near = lowest is not None and lowest >= LEAST_DB
    if made_up and near:
        return "real data may decide otherwise: give some with --data; nothing was delivered"
    if near and any(spec.source_dtype == "float16" for spec in model.outputs):
        return "the source computes in float16, whose rounding alone is such a difference: export it in float32"
    if lowest is not None and lowest >= NEARLY_DB:
        least = math.floor(lowest)
        return (
            f"it is near: if that is equal enough for you, say parity_min_db = {least} under [gates] in a recipe of your own "
            "(--recipe FILE.toml); else export it again (static shapes, another opset)"
        )
    return "simplify the export (static shapes, another opset) and try again; nothing was delivered"
