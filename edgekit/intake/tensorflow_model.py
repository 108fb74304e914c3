"""What the doors for Keras files and SavedModels share: one worker with TensorFlow, kept from the description to the conversion."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import (
    ConversionError,
    DataError,
    EdgekitError,
    ModelFileError,
    ParityError,
    UnsupportedModelError,
    UsageError,
)
from edgekit.intake import fixed_shapes, frontends, tflite
from edgekit.intake.adopt import adopt
from edgekit.intake.convert import Converted
from edgekit.intake.door import Delivered, DoorOptions, Sample
from edgekit.intake.probe import require_runs
from edgekit.intake.session import Session
from edgekit.values import FloatModel, IoSpec, SourceModel
from edgekit.verify.reference import require_finite

FRONTEND = "tensorflow"
LOOK_S = 60.0
"""For reading the structure of a Keras file, of which a second is needed."""
_NUMBERS = ("float", "int", "uint", "bool")
_REFUSALS: dict[str, type[EdgekitError]] = {
    "file": ModelFileError,
    "unsupported": UnsupportedModelError,
    "usage": UsageError,
}


class Conversation:
    """Requests about one model to the front end's worker, each in a folder of its own that is removed when it was answered."""

    def __init__(self, session: Session, model: dict[str, Any], name: str, work: Path) -> None:
        self.session = session
        self.name = name
        self._model = model
        self._work = work
        self._count = 0

    def ask(self, task: str, *, timeout_s: float, **asked: Any) -> dict[str, Any]:
        """The answer. A refusal becomes the error that it names; ConversionError as :meth:`Session.ask` says."""
        folder = self.new_folder()
        try:
            request = {"task": f"tensorflow {task}", **self._model, **asked}
            answer = self.session.ask(request, folder, timeout_s=timeout_s)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if "refused" in answer:
            refused = answer["refused"]
            raise _REFUSALS[refused["kind"]](
                f"{self.name}: {refused['message']}",
                hint=refused["hint"],
                code=refused["code"] or None,
                details=refused["details"],
            )
        return answer

    def new_folder(self) -> Path:
        """An empty folder of this conversation."""
        self._count += 1
        folder = self._work / f"request-{self._count}"
        folder.mkdir()
        return folder


@dataclasses.dataclass(frozen=True)
class TensorflowSource:
    """A checked Keras or SavedModel network with static inputs, open in a worker."""

    source: SourceModel
    inputs: tuple[IoSpec, ...]
    output_names: tuple[str, ...]
    runtime: str
    remarks: tuple[str, ...]
    conversation: Conversation
    frontend: frontends.Frontend
    timeout_s: float
    frontends: tuple[str, ...] = (FRONTEND,)

    def __enter__(self) -> TensorflowSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.conversation.session.close()

    @property
    def shapes(self) -> list[list[int]]:
        """Of the inputs, in order."""
        return [list(spec.source_shape) for spec in self.inputs]

    def reference(self, *, threads: int) -> TensorflowReference:
        """The network in TensorFlow's own kernels, on all cores: the worker runs already."""
        return TensorflowReference(self)

    def recompute(self, samples: Sequence[Sample]) -> Iterator[tuple[str, Sequence[Sample]]]:
        """The network in float64, and compiled as a whole, for the noise floor (:data:`edgekit.verify.floor.Recompute`)."""
        for way, words in (("float64", "in float64"), ("compiled", "compiled by XLA")):
            with suppress(EdgekitError):  # an operator that has no such kernel
                other = TensorflowReference(self, way=way)
                yield f"{self.runtime} {words}", [other.run(sample) for sample in samples]

    def inside(self, sample: Sample) -> list[dict[str, Any]]:
        """The nodes of the frozen graph in order (see ``workers/inner_values.py``), ``array`` being the value for ``sample``, or None."""
        folder = self.conversation.new_folder()
        try:
            given, results = folder / "given.npz", folder / "results.npz"
            arrays: dict[str, Any] = {f"a{i}": sample[spec.name] for i, spec in enumerate(self.inputs)}
            np.savez(given, **arrays)
            files = {"samples": str(given), "results": str(results)}
            answer = self.conversation.ask("inside", timeout_s=self.timeout_s, shapes=self.shapes, **files)
            with np.load(results, allow_pickle=False) as loaded:
                return [{**node, "array": loaded[node["array"]] if node["array"] else None} for node in answer["nodes"]]
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def routes(self) -> Sequence[TensorflowRoute]:
        """The format's own converter."""
        return [TensorflowRoute(self)]


class TensorflowReference:
    """The network in the worker, sample by sample."""

    def __init__(self, door: TensorflowSource, *, way: str = "") -> None:
        self.name = door.runtime
        self._door = door
        self._way = way

    def run(self, sample: Sample, *, name: str = "a sample") -> dict[str, NDArray[Any]]:
        """All outputs for one sample, called ``name`` in messages.

        Raises DataError when TensorFlow refuses the sample or an output is no finite number.
        """
        door = self._door
        folder = door.conversation.new_folder()
        try:
            given, results = folder / "given.npz", folder / "results.npz"
            arrays: dict[str, Any] = {f"a{i}": sample[spec.name] for i, spec in enumerate(door.inputs)}
            np.savez(given, **arrays)
            door.conversation.ask(
                "run",
                timeout_s=door.timeout_s,
                shapes=door.shapes,
                samples=str(given),
                results=str(results),
                way=self._way,
            )
            with np.load(results, allow_pickle=False) as loaded:
                found = {output: loaded[f"a{i}"] for i, output in enumerate(door.output_names)}
        except ConversionError as error:
            if "trace" not in error.details:
                raise
            _, _, said = error.message.partition(" failed: ")
            raise DataError(f"the source model refuses {name}: {said}", details=error.details) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        require_finite(found, name)
        return found


@dataclasses.dataclass(frozen=True)
class TensorflowRoute:
    """The network frozen and converted by TensorFlow's own converter, in the worker that described it."""

    door: TensorflowSource

    @property
    def name(self) -> str:
        """The front end's."""
        return FRONTEND

    def convert(
        self,
        samples: Sequence[Sample],
        references: Sequence[Sample],
        *,
        work: Path,
        timeout_s: float,
        tick: Callable[[], None],
    ) -> Delivered:
        """As :meth:`edgekit.intake.door.Route.convert` says; the axes stay as they are in the source."""
        door = self.door
        folder = work / "converted"
        folder.mkdir()
        started = time.monotonic()
        answer = door.conversation.ask("convert", timeout_s=timeout_s, shapes=door.shapes, out=str(folder))
        made = Path(answer["tflite"])
        if not made.is_file() or made.stat().st_size == 0:
            raise ConversionError(f"the front end {FRONTEND} reported success but wrote no model")
        peak = door.conversation.session.peak_rss_bytes
        seconds = time.monotonic() - started
        converted = Converted(made, answer["names"], answer["versions"], False, seconds, peak)
        float_path = folder / "float.tflite"
        inputs = {spec.name: spec.name for spec in door.inputs}
        adopt(converted, inputs=inputs, outputs={name: name for name in door.output_names}, to=float_path)
        require_runs(float_path, what="the float model", timeout_s=timeout_s)
        ends = _ends(door, float_path, references[0])
        model = FloatModel(float_path, door.source, *ends, FRONTEND, converted.versions)
        return Delivered(model, peak, door.remarks)


def _ends(door: TensorflowSource, path: Path, reference: Sample) -> tuple[tuple[IoSpec, ...], tuple[IoSpec, ...]]:
    """Inputs and outputs with what was delivered. Raises ParityError where shapes or kinds of numbers do not correspond."""
    graph = tflite.graph_of(path)
    outputs = [_spec(name, reference[name].shape, reference[name].dtype.name) for name in door.output_names]
    found: list[tuple[IoSpec, ...]] = []
    for what, specs, tensors in (("input", door.inputs, graph.inputs), ("output", outputs, graph.outputs)):
        delivered = [graph.tensors[index] for index in tensors]
        for spec, tensor in zip(specs, delivered, strict=True):
            kinds = [np.dtype(word).kind.replace("u", "i") for word in (spec.source_dtype, tensor.dtype)]
            if tuple(tensor.shape) != tuple(spec.source_shape) or kinds[0] != kinds[1]:
                raise ParityError(
                    f"{what} {spec.name!r} is {spec.source_dtype} {list(spec.source_shape)} in the source and {tensor.dtype} "
                    f"{list(tensor.shape)} in the converted model",
                    details={"name": spec.name, "source": list(spec.source_shape), "converted": list(tensor.shape)},
                )
        found.append(
            tuple(
                dataclasses.replace(spec, tensor=tensor.name, shape=tuple(tensor.shape), dtype=tensor.dtype)
                for spec, tensor in zip(specs, delivered, strict=True)
            )
        )
    return found[0], found[1]


def _spec(name: str, shape: Sequence[int], dtype: str) -> IoSpec:
    # TensorFlow's kernels on the CPU and TFLite's are channels-last; a map that looks otherwise is left undecided.
    image = len(shape) == 4 and (shape[3] in (1, 3, 4) or shape[1] not in (1, 3, 4))
    return IoSpec(name, tuple(shape), dtype, name, tuple(shape), dtype, layout="nhwc" if image else "")


def require_frontend(options: DoorOptions, kind: str) -> frontends.Frontend:
    """The front end. Raises FrontendMissingError, or UsageError when the user wants another one, which does not read this."""
    if options.frontend is not None and frontends.kind_named(options.frontend).name != FRONTEND:
        raise UsageError(
            f"the front end {options.frontend} does not read a {kind}",
            hint=f"leave out --frontend, or give --frontend {FRONTEND}",
            code="frontend_unsuited",
        )
    return frontends.require([FRONTEND])[0]


def open_program(
    frontend: frontends.Frontend, source: SourceModel, model: dict[str, Any], folder: Path, options: DoorOptions
) -> TensorflowSource:
    """The door for ``model`` (the request of the worker that names the private copy), described and with fixed shapes.

    Raises ModelFileError for what TensorFlow cannot load, UnsupportedModelError for what holds code or no numbers, UsageError where
    a signature or a shape has to be said.
    """
    session = Session(frontend, folder, tick=options.tick)
    try:
        conversation = Conversation(session, model, source.path.name, folder)
        if model["kind"] == "keras":
            _look(conversation)
        described = _ask_about(conversation, "describe", options.timeout_s)
        for what in ("inputs", "outputs"):
            for end in described[what]:
                _require_numbers(source.path.name, what[:-1], end)
        ends = {end["name"]: end["shape"] for end in described["inputs"]}
        fixed = fixed_shapes.fix(ends, options.input_shapes)
    except BaseException:
        session.close()
        raise
    return TensorflowSource(
        source,
        tuple(_spec(end["name"], fixed.shapes[end["name"]], end["dtype"]) for end in described["inputs"]),
        tuple(end["name"] for end in described["outputs"]),
        described["runtime"],
        (*described["remarks"], *fixed.remarks),
        conversation,
        frontend,
        options.timeout_s,
    )


def _look(conversation: Conversation) -> None:
    """The file read without TensorFlow. Raises ModelFileError where that does not end: HDF5 runs in circles in some damaged files."""
    try:
        _ask_about(conversation, "look", LOOK_S)
    except ConversionError as error:
        if error.code != "conversion_timeout":
            raise
        raise ModelFileError(
            f"{conversation.name}: it is damaged: reading its structure came to no end within {LOOK_S:g} s",
            hint="copy or download the file again and compare its size with the original",
            code="model_corrupt",
        ) from error


def _ask_about(conversation: Conversation, task: str, timeout_s: float) -> dict[str, Any]:
    """The answer to a question about the file. A worker that dies of it died of the file: ModelFileError."""
    try:
        return conversation.ask(task, timeout_s=timeout_s)
    except ConversionError as error:
        if type(error) is not ConversionError or error.code != ConversionError.code or "trace" in error.details:
            raise
        raise ModelFileError(
            f"{conversation.name}: {error.message}: TensorFlow did not survive loading it",
            hint="the file may be damaged: copy it again, or save it again with the version that wrote it",
            code="model_corrupt",
            details=error.details,
        ) from error


def _require_numbers(name: str, what: str, end: dict[str, Any]) -> None:
    if not end["dtype"].startswith(_NUMBERS):
        raise UnsupportedModelError(
            f"{name}: {what} {end['name']!r} is a {end['dtype']}, and TFLite has tensors of numbers only",
            hint="take what makes or takes it out of the model, and do its work in the app",
        )
