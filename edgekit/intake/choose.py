"""Routes judged by result: each way to float TFLite is tried in turn until one equals the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import ConversionError, EdgekitError, ParityError
from edgekit.intake import frontends
from edgekit.intake.door import Door, Route, Sample
from edgekit.stages import Stages
from edgekit.values import FloatModel
from edgekit.verify.parity import Parity, parity
from edgekit.verify.parity import require as require_parity


@dataclass(frozen=True)
class Truth:
    """Inputs and what the source, in the runtime called ``reference``, made of them; by source name, in source layout."""

    reference: str
    samples: Sequence[Sample]
    outputs: Sequence[Sample]


def choose(
    door: Door,
    routes: Sequence[Route],
    truth: Truth,
    *,
    limit_db: float,
    work: Path,
    timeout_s: float,
    stages: Stages,
) -> tuple[FloatModel, Parity, tuple[str, ...]]:
    """The float model of the first of ``routes`` whose result equals the source, its parity, and a note on every route tried.

    Raises the ConversionError of the route that came furthest when none does; the others' messages are in ``details``.
    """
    notes: list[str] = []
    failures: list[ConversionError] = []
    for route in routes:
        try:
            with stages(f"convert to float ({route.name})"):
                made = route.convert(truth.samples, truth.outputs, work=work, timeout_s=timeout_s, tick=stages.alive)
            stages.child_peak(made.peak_rss_bytes)
            with stages("check parity"):
                equal = parity(made.model, truth.samples, truth.outputs, reference=truth.reference, limit_db=limit_db)
                require_parity(equal, made.model)
        except ConversionError as error:
            notes.append(f"{route.name}: {error.message}")
            failures.append(error)
            continue
        remarks = f" ({', '.join(made.remarks)})" if made.remarks else ""
        notes.append(f"{route.name}: equals the source{remarks}")
        return made.model, equal, tuple(notes)
    raise _no_route(door, failures, routes)


def _no_route(door: Door, failures: Sequence[ConversionError], routes: Sequence[Route]) -> EdgekitError:
    """The worst failure, with all of them in its details and the route that was not tried in its hint."""
    wrong = [error for error in failures if isinstance(error, ParityError)]
    worst = wrong[0] if wrong else failures[-1]
    hints = [worst.hint] if worst.hint else []
    for name in door.frontends:
        if name not in {route.name for route in routes}:
            kind = frontends.KINDS[name]
            way = "leave out --frontend" if frontends.find(kind) else f"edgekit frontend add {name} ({kind.size_mb} MB)"
            hints.append(f"the front end {name} may do better: {way}")
    return type(worst)(
        worst.message,
        hint="; ".join(hints),
        code=worst.code,
        details={**worst.details, "routes": [error.message for error in failures]},
    )
