"""Routes judged by result: each way to float TFLite is tried in turn until one equals the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.errors import ConversionError, EdgekitError, ParityError
from edgekit.intake import frontends, locate, locate_values
from edgekit.intake.door import Door, Route, Sample
from edgekit.intake.layers import tensor_sources
from edgekit.intake.onnx import NOTHING_TO_REWRITE, OnnxRoute
from edgekit.intake.tensorflow_model import TensorflowRoute
from edgekit.stages import Stages
from edgekit.values import FloatModel
from edgekit.verify.floor import Recompute, Recomputed
from edgekit.verify.parity import Parity, parity
from edgekit.verify.parity import require as require_parity


@dataclass(frozen=True)
class Truth:
    """Inputs and what the source, in the runtime called ``reference``, made of them; by source name, in source layout.

    ``made_up`` says that the inputs were drawn; ``again`` holds the source against itself, where its door can compute it otherwise.
    """

    reference: str
    samples: Sequence[Sample]
    outputs: Sequence[Sample]
    made_up: bool = False
    again: Recomputed | None = None

    def judged(self, model: FloatModel, *, limit_db: float) -> Parity:
        """The parity of ``model``. Raises ParityError where it does not equal the source."""
        found = parity(model, self.samples, self.outputs, reference=self.reference, limit_db=limit_db, again=self.again)
        require_parity(found, model, made_up=self.made_up)
        return found


def recomputed(door: Door, samples: Sequence[Sample], outputs: Sequence[Sample]) -> Recomputed | None:
    """The source of ``door`` against itself; None where there is no second way of computing it."""
    recompute: Recompute | None = getattr(door, "recompute", None)
    return None if recompute is None else Recomputed(recompute, samples, outputs)


def choose(
    door: Door,
    routes: Sequence[Route],
    truth: Truth,
    *,
    limit_db: float,
    work: Path,
    timeout_s: float,
    stages: Stages,
    locate_s: float = locate.SECONDS,
) -> tuple[FloatModel, Parity, tuple[str, ...]]:
    """The float model of the first of ``routes`` whose result equals the source, its parity, and a note on every route tried.

    Raises the ConversionError of the route that came furthest when none does; the others' messages are in ``details``, and the layer
    where that route goes wrong, as far as it is found within ``locate_s`` seconds.
    """
    notes: list[str] = []
    failures: list[_Failure] = []
    for route in _attempts(routes):
        made = None
        try:
            with stages(f"convert to float ({route.name})"):
                made = route.convert(truth.samples, truth.outputs, work=work, timeout_s=timeout_s, tick=stages.alive)
            stages.child_peak(made.peak_rss_bytes)
            with stages("check parity"):
                equal = truth.judged(made.model, limit_db=limit_db)
        except ConversionError as error:
            if error.code == NOTHING_TO_REWRITE:
                continue
            notes.append(f"{route.name}: {error.message}")
            failures.append(_Failure(route, error, made.model if made else None))
            continue
        said = [*made.remarks, *([equal.remark] if equal.remark else [])]
        remarks = f" ({', '.join(said)})" if said else ""
        notes.append(f"{route.name}: equals the source{remarks}")
        return _with_sources(route, made.model, truth, work), equal, tuple(notes)
    worst = max(failures, key=lambda failure: _telling(failure.error))
    with stages("find the layer"):
        parting = _located(worst, truth, limit_db=limit_db, work=work, stages=stages, seconds=locate_s)
    raise _no_route(door, worst.error, parting, failures)


def _attempts(routes: Sequence[Route]) -> Iterator[Route]:
    """Each route, and after it its second attempt where it has one."""
    for route in routes:
        yield route
        second: Route | None = getattr(route, "second_attempt", None)
        if second is not None:
            yield second


def _telling(error: ConversionError) -> int:
    """How much a failure says: a result that is not equal, then an operator by name, then anything else."""
    return 2 if isinstance(error, ParityError) else int(error.code == "operator_unsupported")


def _with_sources(route: Route, model: FloatModel, truth: Truth, work: Path) -> FloatModel:
    """``model`` with the table of tensors that are a value of the source."""
    if isinstance(route, OnnxRoute):
        return replace(model, tensor_sources=tensor_sources(route.onnx, model, truth.samples, work))
    if isinstance(route, TensorflowRoute):
        return replace(model, tensor_sources=locate_values.tensor_sources(route, model, truth.samples))
    return model


@dataclass(frozen=True)
class _Failure:
    route: Route
    error: ConversionError
    made: FloatModel | None


def _located(
    failure: _Failure, truth: Truth, *, limit_db: float, work: Path, stages: Stages, seconds: float
) -> locate.Parting | None:
    if isinstance(failure.route, TensorflowRoute):
        found = (
            None if failure.made is None or not isinstance(failure.error, ParityError) or seconds <= 0 else failure.made
        )
        return locate_values.locate(failure.route, found, truth.samples, limit_db=limit_db) if found else None
    if not isinstance(failure.route, OnnxRoute):
        return None
    return locate.locate(
        failure.route,
        failure.error,
        failure.made,
        truth.samples,
        limit_db=limit_db,
        work=work,
        tick=stages.alive,
        seconds=seconds,
    )


def _no_route(
    door: Door, worst: ConversionError, parting: locate.Parting | None, failures: Sequence[_Failure]
) -> EdgekitError:
    """The worst failure with the layer where it happens, all of them in its details, and the route that was not tried in its hint."""
    hints = [parting.advice] if parting is not None else []
    hints += [worst.hint] if worst.hint else []
    for name in door.frontends:
        if name not in {failure.route.name for failure in failures}:
            kind = frontends.KINDS[name]
            way = "leave out --frontend" if frontends.find(kind) else f"edgekit frontend add {name} ({kind.size_mb} MB)"
            hints.append(f"the front end {name} may do better: {way}")
    located = {"located": parting.as_details()} if parting is not None else {}
    return type(worst)(
        f"{worst.message}; {parting.sentence}" if parting is not None else worst.message,
        hint="; ".join(hints),
        code=worst.code,
        details={**worst.details, **located, "routes": [failure.error.message for failure in failures]},
    )
