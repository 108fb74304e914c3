"""The PyTorch door: an exported program (``.pt2``) or a function that returns a module, brought to ONNX in an interpreter of its own.

The truth that the float model is held against is PyTorch itself, not the ONNX file on the way.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import ConversionError, UnsupportedModelError, UsageError
from edgekit.intake import frontends, onnx
from edgekit.intake.door import DoorOptions, Sample
from edgekit.intake.formats import is_function
from edgekit.intake.preflight_torch import require_program
from edgekit.intake.session import Session
from edgekit.values import IoSpec, SourceModel

FRONTEND = "torch"


@dataclasses.dataclass(frozen=True)
class TorchSource:
    """A PyTorch program in a worker that stays, and the ONNX model that was exported from it."""

    source: SourceModel
    exported: onnx.OnnxSource
    session: Session
    torch_version: str
    work: Path
    frontends: tuple[str, ...] = onnx.ROUTES

    @property
    def inputs(self) -> tuple[IoSpec, ...]:
        """As ``forward`` names them."""
        return self.exported.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """The keys of a dictionary of results, or the program's own names."""
        return self.exported.output_names

    def __enter__(self) -> TorchSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()

    def reference(self, *, threads: int) -> TorchReference:
        """The program in PyTorch."""
        return TorchReference(self)

    def recompute(self, samples: Sequence[Sample]) -> Iterator[tuple[str, Sequence[Sample]]]:
        """The program in float64, for the noise floor (:data:`edgekit.verify.floor.Recompute`)."""
        wide = TorchReference(self, float64=True)
        yield f"{wide.name} in float64", [wide.run(sample) for sample in samples]

    def routes(self) -> Sequence[onnx.OnnxRoute]:
        """Those of the exported ONNX model."""
        return self.exported.routes()


class TorchReference:
    """The program in the worker's PyTorch, sample by sample."""

    def __init__(self, door: TorchSource, *, float64: bool = False) -> None:
        self.name = f"torch {door.torch_version}"
        self._door = door
        self._float64 = float64
        self._count = 0

    def run(self, sample: Sample, *, name: str = "a sample") -> dict[str, NDArray[Any]]:
        """All outputs for one sample. Raises ConversionError, in PyTorch's words, when it refuses the sample."""
        self._count += 1
        folder = self._door.work / f"torch-run-{'float64-' if self._float64 else ''}{self._count}"
        folder.mkdir()
        given, results = folder / "given.npz", folder / "results.npz"
        arrays_given: dict[str, Any] = {f"a{i}": sample[spec.name] for i, spec in enumerate(self._door.inputs)}
        np.savez(given, **arrays_given)
        request = {"task": "torch run", "samples": str(given), "results": str(results), "float64": self._float64}
        self._door.session.ask(request, folder, timeout_s=600.0)
        with np.load(results, allow_pickle=False) as arrays:
            found = {output: arrays[f"a{i}"] for i, output in enumerate(self._door.output_names)}
        shutil.rmtree(folder)
        return found


def open_model(path: Path, options: DoorOptions) -> TorchSource:
    """The door for :func:`edgekit.intake.door.open_door`.

    Raises FrontendMissingError without the front end, UsageError where a module's input shapes are not given, UnsupportedModelError
    for what PyTorch cannot export, in its own words.
    """
    if not is_function(path):
        require_program(path)
    (frontend,) = frontends.require([FRONTEND])
    folder = options.work / "torch-describe"
    folder.mkdir()
    target = folder / "exported.onnx"
    session = Session(frontend, options.work, tick=options.tick)
    try:
        described = _describe(session, path, options, folder, target)
        shapes = {} if is_function(path) else options.input_shapes
        exported = onnx.prepare(target, input_shapes=shapes, work=options.work)
    except BaseException:
        session.close()
        raise
    kept = path if is_function(path) else target
    source = SourceModel(
        Path(path.name.replace(":", ".")),
        "torch-module" if is_function(path) else "pt2",
        hashlib.sha256((target if is_function(path) else path).read_bytes()).hexdigest(),
        kept.stat().st_size if kept.exists() else 0,
    )
    exported = dataclasses.replace(exported, source=source, wanted=options.frontend)
    return TorchSource(source, exported, session, described["torch"], options.work)


def _describe(session: Session, path: Path, options: DoorOptions, folder: Path, target: Path) -> dict[str, Any]:
    request: dict[str, Any] = {"task": "torch describe", "onnx": str(target)}
    if is_function(path):
        shapes = {name: list(shape) for name, shape in options.input_shapes.items()}
        request.update(module=str(path), path=os.getcwd(), shapes=shapes)
    else:
        private = folder / "program.pt2"
        shutil.copyfile(path, private)
        request.update(program=str(private))
    try:
        return session.ask(request, folder, timeout_s=options.timeout_s)
    except ConversionError as error:
        raise _in_our_words(error, path) from error


def _in_our_words(error: ConversionError, path: Path) -> Exception:
    """A refusal of the task is a wrong call; anything else is what PyTorch said about the model."""
    _, _, said = error.message.partition(" failed: ")
    kind, _, rest = said.partition(": ")
    if kind == "Refused":
        if "--input-shape" in rest:
            sentence, _, hint = rest.partition(": give ")
            return UsageError(sentence, hint=f"give {hint}", code="input_shape_open")
        return UnsupportedModelError(rest if is_function(path) else f"{path.name}: {rest}")
    if kind in ("ModuleNotFoundError", "ImportError", "AttributeError") and is_function(path):
        return UsageError(
            f"{path}: {said}", hint="the module must be importable from the current folder in the front end torch"
        )
    if not error.details.get("trace"):
        return error
    return UnsupportedModelError(
        f"PyTorch cannot load or export {path.name}: {said or error.message}",
        hint="export it yourself with torch.onnx.export and convert the .onnx; the trace is in the details (--json)",
        details=error.details,
    )
