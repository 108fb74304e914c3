"""Parity: the float TFLite against the source in its own runtime, on real inputs, output by output and slice by slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import ParityError
from edgekit.intake.layout import delivered, permuted, require_shape
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
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
    """One output: largest absolute and relative error, SQNR over all values and of the worst slice (dB; None means exact)."""

    name: str
    max_abs_error: float
    max_rel_error: float
    sqnr_db: float | None
    worst_slice: SliceResult | None
    near_zero_slices: int
    passed: bool


@dataclass(frozen=True)
class Parity:
    """The verdict over all outputs. ``limit_db`` is what the worst slice must reach."""

    reference: str
    samples: int
    passed: bool
    limit_db: float
    outputs: tuple[OutputParity, ...]


def parity(
    model: FloatModel, samples: Sequence[Sample], references: Sequence[Sample], *, reference: str, limit_db: float
) -> Parity:
    """Compare on all ``samples``; ``references`` are the source's outputs for them, in source layout."""
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
    outputs = tuple(
        _judged(comparison, limit_db, exact=np.dtype(spec.source_dtype).kind in "iub")
        for spec, comparison in zip(model.outputs, comparisons, strict=True)
    )
    return Parity(reference, len(samples), all(o.passed for o in outputs), limit_db, outputs)


def _judged(comparison: Comparison, limit_db: float, *, exact: bool) -> OutputParity:
    """The verdict on one output. ``exact``: integers and booleans are equal or wrong, an index that is off by one has no decibels."""
    worst = comparison.worst_slice
    lowest = min(comparison.sqnr_db, worst.sqnr_db if worst else comparison.sqnr_db)
    enough = lowest >= limit_db and not exact
    passed = (enough or comparison.max_abs_error == 0.0) and comparison.near_zero_error <= NEAR_ZERO_LIMIT
    return OutputParity(
        name=comparison.name,
        max_abs_error=comparison.max_abs_error,
        max_rel_error=comparison.relative_error,
        sqnr_db=json_db(comparison.sqnr_db),
        worst_slice=SliceResult.of(worst),
        near_zero_slices=comparison.near_zero_slices,
        passed=passed,
    )


def require(result: Parity, model: FloatModel) -> None:
    """Raises ParityError that names the worst output when the float model does not equal the source."""
    if result.passed:
        return
    failed = [output for output in result.outputs if not output.passed]
    worst = min(failed, key=lambda o: (o.worst_slice.sqnr_db if o.worst_slice else o.sqnr_db) or 0.0)
    where = f", {words_db(worst.worst_slice.sqnr_db)} in slice {worst.worst_slice.index}" if worst.worst_slice else ""
    hint = "simplify the export (static shapes, another opset) and try again; nothing was delivered"
    if any(spec.source_dtype == "float16" for spec in model.outputs):
        hint = "the source computes in float16, whose rounding alone is such a difference: export it in float32"
    raise ParityError(
        f"the float model from {model.frontend} does not equal the source: output {worst.name!r} differs by up to "
        f"{worst.max_abs_error:.3g} ({words_db(worst.sqnr_db)}{where}; {result.limit_db:g} dB are required) over "
        f"{result.samples} inputs",
        hint=hint,
        details={"frontend": model.frontend, "outputs": [o.name for o in failed]},
    )
