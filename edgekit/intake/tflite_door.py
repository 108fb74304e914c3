"""The ``.tflite`` front door: a float, float16 or dynamic-range file of any age becomes a clean float32 file with a signature."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
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
    OutputError,
    UnsupportedModelError,
    UsageError,
)
from edgekit.intake import tflite, tflite_names, tflite_refusals
from edgekit.intake.door import Delivered, DoorOptions, Sample
from edgekit.intake.formats import require_file
from edgekit.intake.probe import probe, require_runs
from edgekit.intake.tflite_names import Ends
from edgekit.rewrite import dequantise_weights, fold_dequantize, prune, static_shapes, unique_names
from edgekit.runtime.backend import Backend, open_backend
from edgekit.values import FloatModel, IoSpec, SourceModel
from edgekit.verify.measures import Comparison, json_db, words_db

ROUTE = "tflite"
LEAST_LIKENESS_DB = 10.0
"""How near a dynamic-range file itself must be to the network of its weights; rounding of activations alone leaves more than twice that."""


class TfliteReference:
    """A ``.tflite`` in the interpreter, as an app runs it; :meth:`run` takes and gives arrays by name.

    For a dynamic-range file ``path`` is the file with its weights dequantised by the interpreter.
    """

    def __init__(self, path: Path, ends: Ends, *, threads: int, spelled_out: bool) -> None:
        try:
            self._backend = open_backend(path, threads=threads)
        except ModelFileError as error:
            raise UnsupportedModelError(
                f"the interpreter does not take the model with its weights dequantised, so nothing could be verified: {error.message}",
                hint="convert the model again from its source, as float32",
                details=error.details,
            ) from error
        self._ends = ends
        how = ", its weights dequantised by the interpreter" if spelled_out else ""
        self.name = f"{self._backend.name} {self._backend.version}{how}"

    def run(self, sample: Mapping[str, NDArray[Any]], *, name: str = "a sample") -> dict[str, NDArray[Any]]:
        """All outputs for one sample, which is called ``name`` in messages.

        Raises DataError when the interpreter refuses the sample, or when an output is no finite number: no int8 stands for that.
        """
        try:
            results = run(self._backend, self._ends, sample)
        except DataError as error:
            raise DataError(f"the source model refuses {name}: {error.message}", details=error.details) from error
        for output, values in results.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise DataError(
                    f"the source model itself gives NaN or infinite values in output {output!r} for {name}",
                    hint="no integer stands for those: look at that sample, or end the model before the operator that makes them",
                    code="source_not_finite",
                )
        return results


@dataclasses.dataclass(frozen=True)
class TfliteSource:
    """A checked float ``.tflite`` of one graph with static shapes. All files are copies; the user's is never opened for writing.

    ``original`` computes what the user's file computes, ``truth`` the network of its weights: one file unless ``dynamic_range``.
    """

    source: SourceModel
    ends: Ends
    original: Path
    truth: Path
    dynamic_range: bool
    inputs: tuple[IoSpec, ...]
    output_names: tuple[str, ...]
    frontends: tuple[str, ...] = ()

    def __enter__(self) -> TfliteSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""

    def reference(self, *, threads: int) -> TfliteReference:
        """The model in the interpreter."""
        return TfliteReference(self.truth, self.ends, threads=threads, spelled_out=self.dynamic_range)

    def routes(self) -> list[TfliteRoute]:
        """The only way: no front end is needed."""
        return [TfliteRoute(self)]


@dataclasses.dataclass(frozen=True)
class TfliteRoute:
    """The file made plain float32."""

    door: TfliteSource
    name: str = ROUTE

    def convert(
        self,
        samples: Sequence[Sample],
        references: Sequence[Sample],
        *,
        work: Path,
        timeout_s: float,
        tick: Callable[[], None],
    ) -> Delivered:
        """As :meth:`edgekit.intake.door.Route.convert` says. Axes stay where they are."""
        folder = work / ROUTE
        folder.mkdir()
        path = folder / "float.tflite"
        model = tflite.read(self.door.original)
        remarks = [*unique_names.apply(model), *fold_dequantize.apply(model), *dequantise_weights.apply(model)]
        self.door.ends.sign(model)
        prune.apply(model)
        tflite.write(model, path)
        tick()
        require_runs(path, what="the float model", timeout_s=timeout_s)
        tick()
        inputs, outputs = self._described(model, references)
        remarks.append(self._noise(samples, references))
        return Delivered(FloatModel(path, self.door.source, inputs, outputs, ROUTE), None, tuple(remarks))

    def _described(
        self, model: tflite.ModelT, references: Sequence[Sample]
    ) -> tuple[tuple[IoSpec, ...], tuple[IoSpec, ...]]:
        graph = tflite.graph(model)
        outputs = []
        for name, index in zip(self.door.output_names, graph.outputs, strict=True):
            tensor = graph.tensors[index]
            shapes = {tuple(reference[name].shape) for reference in references}
            if shapes != {tensor.shape}:
                raise UnsupportedModelError(
                    f"the size of output {name!r} depends on the input's values: {' and '.join(str(list(s)) for s in sorted(shapes))} "
                    "were seen",
                    hint="end the model before the operator that makes it so (non-maximum suppression, WHERE, UNIQUE), and do that in the app",
                )
            outputs.append(_spec(name, tensor))
        inputs = [
            _spec(spec.name, graph.tensors[index]) for spec, index in zip(self.door.inputs, graph.inputs, strict=True)
        ]
        return tuple(inputs), tuple(outputs)

    def _noise(self, samples: Sequence[Sample], references: Sequence[Sample]) -> str:
        """How far the file as it is stands from the network of its weights: rounding of kernels, and of activations in dynamic range.

        Raises ConversionError when that is more than rounding explains.
        """
        plain = _worst_db(self.door, samples, references, delegate=False)
        if not self.door.dynamic_range:
            return f"the file without XNNPACK differs from itself: {words_db(json_db(plain))}"
        usual = _worst_db(self.door, samples, references, delegate=True)
        said = f"{words_db(json_db(usual))} with XNNPACK, {words_db(json_db(plain))} without"
        if max(plain, usual) < LEAST_LIKENESS_DB:
            raise ConversionError(
                f"the dynamic-range file and the network of its weights have little in common: {said}",
                hint="convert the model again from its source, as float32",
                code="parity_failed",
            )
        return f"the file itself rounds its activations anew for each input, so it differs from the network of its weights: {said}"


def _worst_db(door: TfliteSource, samples: Sequence[Sample], references: Sequence[Sample], *, delegate: bool) -> float:
    """The SQNR of the file as it is against ``references``, of its worst output."""
    comparisons = [Comparison(name, 0) for name in door.output_names]
    with open_backend(door.original, delegate=delegate) as backend:
        for sample, truth in zip(samples, references, strict=True):
            got = run(backend, door.ends, sample)
            for comparison in comparisons:
                comparison.add(truth[comparison.name], got[comparison.name])
    return min(comparison.sqnr_db for comparison in comparisons)


def open_model(path: Path, options: DoorOptions) -> TfliteSource:
    """The door for :func:`edgekit.intake.door.open_door`.

    Raises ModelFileError for what is no usable file, UsageError where a shape or the signature is open, UnsupportedModelError for
    what cannot be made float32: integer files, custom operators, control flow, variables.
    """
    if options.frontend is not None:
        raise UsageError(
            f"a .tflite needs no front end, and --frontend {options.frontend} was given", hint="leave it out"
        )
    path = require_file(path)
    data = path.read_bytes()
    source = SourceModel(path, "tflite", hashlib.sha256(data).hexdigest(), len(data))
    model = tflite.read(data)
    ends = tflite_names.choose_ends(model, options.signature)
    model.subgraphs = [model.subgraphs[ends.subgraph]]
    model.signatureDefs = None
    tflite_refusals.refuse(model, path.name)
    original = _made_static(model, ends, options)
    graph = tflite.graph(model)
    dynamic_range = bool(dequantise_weights.weights(graph))
    truth = original
    if dynamic_range:
        spelled_out = copy.deepcopy(model)
        dequantise_weights.spell_out(spelled_out)
        truth = _written(spelled_out, options.work / "dequantized.tflite")
        _require_reference(truth, "with its weights dequantised ", options.timeout_s)
    inputs = tuple(_spec(name, graph.tensors[i]) for name, i in zip(ends.inputs, graph.inputs, strict=True))
    return TfliteSource(source, ends, original, truth, dynamic_range, inputs, ends.outputs)


def run(backend: Backend, ends: Ends, sample: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs by name."""
    for position, name in enumerate(ends.inputs):
        backend.set_input(position, np.ascontiguousarray(sample[name]))
    backend.invoke()
    return {name: backend.get_output(position) for position, name in enumerate(ends.outputs)}


def _made_static(model: tflite.ModelT, ends: Ends, options: DoorOptions) -> Path:
    """``model`` as a file with fixed shapes that runs; ``model`` itself has them afterwards too."""
    path = options.work / "source.tflite"
    shapes = tflite_names.static_shapes(model, ends, options.input_shapes)
    static_shapes.set_inputs(model, shapes)
    _written(model, path)
    _require_reference(path, f"with {_words(options.input_shapes)} " if options.input_shapes else "", options.timeout_s)
    if static_shapes.record(model, path):
        _written(model, path)
    return path


def _require_reference(path: Path, with_what: str, timeout_s: float) -> None:
    """The first meeting of the interpreter with this model: in a child process."""
    found = probe(path, invoke=True, timeout_s=min(timeout_s, 120.0))
    if not found.ok:
        kind: type[EdgekitError] = UnsupportedModelError if with_what else ModelFileError
        raise kind(
            f"the model {with_what}does not run in its own interpreter: {found.failure}",
            hint="edgekit inspect MODEL shows its operators and shapes",
            code="reference_unloadable",
            details={"stage": found.stage, "probe_code": found.code, "log_tail": found.log.splitlines()[-5:]},
        )


def _words(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())


def _written(model: tflite.ModelT, path: Path) -> Path:
    try:
        tflite.write(model, path)
    except OutputError as error:
        raise OutputError(f"the working copy cannot be written to {path.parent}: {error.message}") from error
    return path


def _spec(name: str, tensor: tflite.Tensor) -> IoSpec:
    # TFLite's own convolutions and pools are channels-last.
    layout = "nhwc" if len(tensor.shape) == 4 else ""
    return IoSpec(
        name, tensor.shape, tensor.dtype, tensor=tensor.name, shape=tensor.shape, dtype=tensor.dtype, layout=layout
    )
