"""A worker of the conformance run: one model through edgekit's own import, by front ends' workers that stay.

Request: ``{"model": PATH, "data": PATH, "work": FOLDER, "timeout_s": SECONDS}``. Answer: ``{"tflite": PATH, "io": {...}, "route": NAME, "notes": [...],
"seconds": S}``, or ``{"refused": MESSAGE, "code": CODE, "exit_code": N, "hint": TEXT, "notes": [...]}``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from conformance_resident import Resident, serve

from edgekit.errors import ConversionError, DataError, EdgekitError, FrontendMissingError
from edgekit.intake import frontends
from edgekit.intake import onnx as onnx_door
from edgekit.intake.choose import Truth, choose
from edgekit.intake.door import DoorOptions
from edgekit.intake.onnx import OnnxSource, open_model
from edgekit.intake.probe import ProbeResult
from edgekit.intake.session import Session
from edgekit.stages import Silent, Stages

LIMIT_DB = 80.0
VARIANTS = 3
"""Inputs beside the test's own: its float values and lists of conditions, shuffled within each tensor, so that they stay in the operator's
domain (not so masks of several axes, where a row without any member has no result)."""

Sample = dict[str, np.ndarray[Any, Any]]


class Importer:
    """Holds a worker of each front end."""

    def __init__(self, names: list[str], work: Path) -> None:
        found = [front for name in names if (front := frontends.find(frontends.kind_named(name))) is not None]
        if len(found) < len(names):
            raise FrontendMissingError(f"not all of {', '.join(names)} are installed", hint="edgekit frontend list")
        self._sessions = {front.name: Session(front, work) for front in found}
        self._served = 0
        probing = [sys.executable, str(Path(__file__).with_name("conformance_probe.py"))]
        self._probe = Resident(probing, log=work / "probe.log", env=dict(os.environ))
        onnx_door.require_runs = (
            self._require_runs
        )  # the same probe in a process that stays: its start takes longer than all else

    def _require_runs(
        self, path: Path, *, what: str, timeout_s: float = 60.0, inputs: Path | None = None
    ) -> ProbeResult:
        request = {"model": str(path), "inputs": None if inputs is None else str(inputs)}
        said = self._probe.ask(request, timeout_s=timeout_s)
        failure = said.get("failure", "") or (f"the interpreter {said['died']}" if "died" in said else "")
        if failure:
            raise ConversionError(f"{what} was written and does not run: {failure}", code="delivered_dead")
        return ProbeResult(True, "read", invoked=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One model, imported or refused."""
        started = time.monotonic()
        self._renew()
        try:
            made = self._imported(request)
        except EdgekitError as error:
            made = {
                "refused": error.message,
                "code": error.code,
                "exit_code": error.exit_code,
                "hint": error.hint,
                "notes": error.details.get("routes", []),
            }
        return {**made, "seconds": round(time.monotonic() - started, 3)}

    def _imported(self, request: dict[str, Any]) -> dict[str, Any]:
        work = Path(request["work"])
        work.mkdir(parents=True)
        door = open_model(Path(request["model"]), DoorOptions(work))
        truth = _truth(door, Path(request["data"]))
        routes = [route for route in door.routes(self._sessions) if route.frontend.name in self._sessions]
        timeout_s = request["timeout_s"]
        stages = Stages(Silent())
        model, _, notes = choose(
            door,
            routes,
            truth,
            limit_db=LIMIT_DB,
            work=work,
            timeout_s=timeout_s,
            stages=stages,
            locate_s=0,
        )
        io = {
            "inputs": {spec.name: spec.permutation for spec in model.inputs},
            "outputs": {spec.name: spec.permutation for spec in model.outputs},
        }
        return {"tflite": str(model.path), "io": io, "route": notes[-1].split(":")[0], "notes": list(notes)}

    def _renew(self, every: int = 150) -> None:
        """Converters leak: each gets a new process now and then."""
        self._served += 1
        if self._served % every == 0:
            for session in self._sessions.values():
                session.close()


def _truth(door: OnnxSource, data: Path) -> Truth:
    """The test's own inputs and shuffled ones, with what ONNX Runtime makes of them."""
    stored = np.load(data, allow_pickle=False)
    own = {str(name): stored[f"i{k}"] for k, name in enumerate(stored["in"])}
    reference = door.reference(threads=1, finite_only=False)
    samples, outputs = [own], [reference.run(own, name="the test's input")]
    rng = np.random.default_rng(0)
    for _ in range(VARIANTS):
        shuffled = {name: _shuffled(value, rng) for name, value in own.items()}
        try:
            results = reference.run(shuffled)
        except DataError:
            continue
        if all(results[name].shape == value.shape for name, value in outputs[0].items()):
            samples.append(shuffled)
            outputs.append(results)
    return Truth(reference.name, samples, outputs)


def _shuffled(value: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    moves = value.dtype.kind == "f" or (value.dtype.kind == "b" and value.ndim == 1)
    if not moves or value.size < 2:
        return value
    return rng.permutation(value.reshape(-1)).reshape(value.shape)


if __name__ == "__main__":
    importer = Importer(sys.argv[1].split(","), Path(sys.argv[2]))
    serve(importer.answer)
