"""The float32 noise floor: how far a source model is from itself when it is computed in another way. Closer than that nothing can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import EdgekitError
from edgekit.intake.layout import permuted
from edgekit.values import IoSpec
from edgekit.verify.measures import Comparison, equal_non_finite_cleared, json_db, slice_axis, words_db

Sample = Mapping[str, NDArray[Any]]
Recompute = Callable[[Sequence[Sample]], Iterable[tuple[str, Sequence[Sample]]]]
"""Ways of computing the source's outputs once more for samples: what each is called, and its outputs (for all or the first samples)."""

WITHIN_DB = 10.0
"""How far below the floor a result may be."""
LEAST_DB = 40.0
"""What no rounding excuses: a hundredth of the signal. A floor that is lower in any slice excuses nothing anywhere: then the two ways do not
compute the same network, or nothing can be proven."""


@dataclass(frozen=True)
class Floor:
    """The source against itself for one output. Ratios in dB, infinity where equal; ``slices_db`` has one for each channel slice.

    ``near_zero_error``: of slices too small for a ratio, the largest error relative to the output's largest value.
    """

    how: str
    sqnr_db: float
    slices_db: NDArray[np.float64]
    near_zero_error: float

    @property
    def is_credible(self) -> bool:
        """Whether it is rounding that parts the two ways."""
        return self.sqnr_db >= LEAST_DB and bool(np.all(self.slices_db >= LEAST_DB))

    def limit_db(self, limit_db: float) -> float:
        """What all values together must reach where ``limit_db`` was asked."""
        return allowed_db(limit_db, self.sqnr_db)

    def slice_limits_db(self, limit_db: float) -> NDArray[np.float64]:
        """What each slice must reach."""
        return np.array([allowed_db(limit_db, float(ratio)) for ratio in self.slices_db])

    def near_zero_limit(self, limit: float) -> float:
        """What slices near zero may be off by, relative to the output's largest value."""
        allowed = self.near_zero_error * 10 ** (WITHIN_DB / 20)
        return max(limit, min(allowed, 10 ** (-LEAST_DB / 20)))


@dataclass(frozen=True)
class FloorResult:
    """The floor of an output for the manifest: of all values and of the worst slice, in dB (None: exact)."""

    how: str
    sqnr_db: float | None
    worst_slice_db: float | None

    @classmethod
    def of(cls, floor: Floor | None) -> FloorResult | None:
        """In JSON's numbers."""
        if floor is None:
            return None
        return cls(floor.how, json_db(floor.sqnr_db), json_db(float(np.min(floor.slices_db))))

    @property
    def words(self) -> str:
        """``the source itself (onnxruntime without optimisations) stands at 61.3 dB``"""
        lowest = [ratio for ratio in (self.sqnr_db, self.worst_slice_db) if ratio is not None]
        least = min(lowest) if lowest else None
        beyond = ", which is no rounding" if least is not None and least < LEAST_DB else ""
        return f"the source against itself ({self.how}) stands at {words_db(least)}{beyond}"


def allowed_db(limit_db: float, floor_db: float) -> float:
    """``limit_db``, or less where the floor is near it or below: :data:`WITHIN_DB` under the floor, :data:`LEAST_DB` at least."""
    return min(limit_db, max(floor_db - WITHIN_DB, LEAST_DB)) if math.isfinite(floor_db) else limit_db


class Recomputed:
    """The floors of a source on its samples, measured when they are first asked for, one way of computing after the other."""

    def __init__(self, recompute: Recompute, samples: Sequence[Sample], references: Sequence[Sample]) -> None:
        self._ways = self._outputs(recompute, samples)
        self._references = references
        self._known: list[tuple[str, Sequence[Sample]]] = []

    @staticmethod
    def _outputs(recompute: Recompute, samples: Sequence[Sample]) -> Iterable[tuple[str, Sequence[Sample]]]:
        try:
            yield from recompute(samples)
        except (EdgekitError, OSError, ValueError, RuntimeError, TypeError, KeyError, MemoryError):
            return  # another way of computing is a courtesy of the runtime: without it the limit stands

    def floors(self, outputs: Sequence[IoSpec]) -> Iterable[dict[str, Floor]]:
        """By output name, once for each way, for outputs delivered as ``outputs`` say."""
        for way in self._known:
            yield self._measured(way, outputs)
        for way in self._ways:
            self._known.append(way)
            yield self._measured(way, outputs)

    def _measured(self, way: tuple[str, Sequence[Sample]], outputs: Sequence[IoSpec]) -> dict[str, Floor]:
        how, again = way
        found = {}
        for spec in outputs:
            comparison = Comparison(spec.name, slice_axis(spec))
            for truth, other in zip(self._references, again, strict=False):
                wanted = permuted(truth[spec.name], spec.permutation, spec.shape)
                got = permuted(np.asarray(other[spec.name]), spec.permutation, spec.shape)
                comparison.add(*equal_non_finite_cleared(wanted, got))
            if comparison.samples:
                found[spec.name] = Floor(how, comparison.sqnr_db, comparison.slices_db, comparison.near_zero_error)
        return found
