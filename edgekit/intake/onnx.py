"""The ONNX front door: a model file becomes a private, static copy; a front end's result becomes a :class:`FloatModel`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgekit.errors import ConversionError, ModelFileError, OutputError, UnsupportedModelError
from edgekit.intake import frontends, layout, tflite
from edgekit.intake.adopt import adopt
from edgekit.intake.convert import ConversionRequest, convert
from edgekit.intake.door import Delivered, DoorOptions, Sample
from edgekit.intake.formats import require_file
from edgekit.intake.onnx_names import is_plain, make_plain
from edgekit.intake.onnx_reader import OnnxValue, apply_input_shapes, onnx_io, read_onnx, require_static_inputs
from edgekit.intake.placeholders import refuse_placeholders
from edgekit.intake.probe import require_runs
from edgekit.intake.session import Session
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel, IoSpec, SourceModel
from edgekit.verify.reference import OnnxReference

if TYPE_CHECKING:
    import onnx

ROUTES = ("onnx2tf", "tensorflow")
"""Front ends that read ONNX, in the order in which they are tried."""
NOTHING_TO_REWRITE = "nothing_to_rewrite"
"""Code of the error of a second attempt that would be the first again."""
MATCHING_SAMPLES = 2
"""Samples that decide the order of axes; the parity stage then judges on more."""
_SMALL_GRAPH_OPERATORS = frozenset((
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "Div", "Clip", "Relu", "LeakyRelu", "PRelu",
    "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Softmax", "Gelu", "Erf", "GlobalAveragePool", "AveragePool",
    "MaxPool", "Flatten", "Reshape", "Transpose", "Concat", "Pad", "Constant",
))  # fmt: skip
"""A graph of these alone has nothing that simplification would fold (no batch normalisation, no computed shapes)."""


@dataclasses.dataclass(frozen=True)
class OnnxSource:
    """A checked ONNX model with static inputs. ``copy`` is edgekit's own file; the user's is never opened for writing.

    ``plain`` is the file for front ends, ``plain_names`` the name that each input and output has in it. The delivered fields of
    ``inputs`` are those of the source until a front end has run.
    """

    source: SourceModel
    copy: Path
    plain: Path
    plain_names: Mapping[str, str]
    inputs: tuple[IoSpec, ...]
    output_names: tuple[str, ...]
    simplify: bool
    wanted: str | None = None
    """The only front end to use, or None for all that are installed."""
    frontends: tuple[str, ...] = ROUTES

    def __enter__(self) -> OnnxSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""

    def reference(self, *, threads: int, finite_only: bool = True) -> OnnxReference:
        """The model in ONNX Runtime; where that lacks a composed operator, with the operator as ONNX defines it by simpler ones; where it
        lacks the last version of one, with the version before, if that is the same but for the types.

        Raises ModelFileError when it cannot load the model in any of these forms.
        """
        try:
            return OnnxReference(self.copy, self.output_names, threads=threads, finite_only=finite_only)
        except ModelFileError:
            for form, words in _other_forms(self.copy):
                try:
                    found = OnnxReference(form, self.output_names, threads=threads, finite_only=finite_only)
                except ModelFileError:
                    continue
                found.name += words
                return found
            raise

    def recompute(self, samples: Sequence[Sample]) -> Iterator[tuple[str, Sequence[Sample]]]:
        """The model's outputs computed in other ways, for the noise floor (:data:`edgekit.verify.floor.Recompute`)."""
        from edgekit.intake.onnx_again import recompute

        return recompute(self.copy, self.output_names, samples)

    def routes(self, sessions: Mapping[str, Session] | None = None) -> list[OnnxRoute]:
        """One for each installed front end; ``sessions`` are workers by front end that serve several models."""
        found = frontends.require([self.wanted] if self.wanted else ROUTES)
        return [OnnxRoute(self, frontend, (sessions or {}).get(frontend.name)) for frontend in found]


@dataclasses.dataclass(frozen=True)
class OnnxRoute:
    """An ONNX model by one front end. ``session`` is a worker that others use too; without one the route starts its own.

    ``digested``: not the graph as it is, but what :mod:`edgekit.intake.digest` makes of it.
    """

    onnx: OnnxSource
    frontend: frontends.Frontend
    session: Session | None = None
    digested: bool = False

    @property
    def name(self) -> str:
        """The front end's, with a word for the second attempt."""
        return f"{self.frontend.name}, graph rewritten" if self.digested else self.frontend.name

    @property
    def second_attempt(self) -> OnnxRoute | None:
        """The same front end on a graph that was made digestible: for when the graph as it is failed or is not equal."""
        return None if self.digested else dataclasses.replace(self, digested=True)

    @contextmanager
    def at_work(self, work: Path, tick: Callable[[], None], *, at_once: bool) -> Iterator[OnnxRoute]:
        """The route with a worker of its own, which ends with the block; ``at_once``: it starts now, not with the first conversion."""
        with ExitStack() as started:
            session = self.session or started.enter_context(Session(self.frontend, work, tick=tick))
            if at_once:
                folder = work / f"{self.frontend.name}-start"
                folder.mkdir()
                with suppress(ConversionError):  # the conversion will say it again
                    session.begin({"task": f"onnx by {self.frontend.name}, to come"}, folder)
            yield dataclasses.replace(self, session=session)

    def convert(
        self,
        samples: Sequence[Sample],
        references: Sequence[Sample],
        *,
        work: Path,
        timeout_s: float,
        tick: Callable[[], None],
    ) -> Delivered:
        """As :meth:`edgekit.intake.door.Route.convert` says."""
        with ExitStack() as started:
            source, done = _digested(self.onnx, samples, references, work) if self.digested else (self.onnx, ())
            session = self.session or started.enter_context(Session(self.frontend, work, tick=tick))
            made = to_float(source, session, samples=samples, references=references, work=work, timeout_s=timeout_s)
            return dataclasses.replace(made, remarks=(*done, *made.remarks))


def open_model(path: Path, options: DoorOptions) -> OnnxSource:
    """The door for :func:`edgekit.intake.door.open_door`."""
    prepared = prepare(path, input_shapes=options.input_shapes, work=options.work)
    return dataclasses.replace(prepared, wanted=options.frontend)


def prepare(path: Path, *, input_shapes: Mapping[str, Sequence[int]], work: Path) -> OnnxSource:
    """Read and check the model at ``path``, fix open sizes to ``input_shapes``, and write the private copy into ``work``.

    Raises ModelFileError for what is no usable ONNX file, UsageError where an input's shape is open, UnsupportedModelError for
    inputs that are not tensors or a newer opset.
    """
    path = require_file(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    source = SourceModel(path, "onnx", digest, path.stat().st_size)
    model = read_onnx(path)
    if input_shapes:
        model = apply_input_shapes(model, input_shapes)
    require_static_inputs(model)
    inputs, outputs = onnx_io(model)
    for value in (*inputs, *outputs):
        _refuse_what_is_no_tensor(value, "input" if value in inputs else "output")
    copy = plain = work / "source.onnx"
    _save(model, copy)
    plain_names = {value.name: value.name for value in (*inputs, *outputs)}
    if not is_plain(model):
        plain = work / "plain.onnx"
        plain_names = make_plain(model)
        _save(model, plain)
    specs = tuple(_spec(value.name, _static(value), value.dtype) for value in inputs)
    return OnnxSource(
        source, copy, plain, plain_names, specs, tuple(o.name for o in outputs), _needs_simplifying(model)
    )


def _save(model: onnx.ModelProto, path: Path) -> None:
    import onnx

    if model.ByteSize() > 2**31 - 1:
        raise UnsupportedModelError("the model's weights exceed 2 GB, the most that one .tflite file can hold")
    try:
        onnx.save(model, str(path))
    except OSError as error:
        raise OutputError(f"the working copy cannot be written to {path.parent}: {error.strerror}") from error


def _refuse_what_is_no_tensor(value: OnnxValue, what: str) -> None:
    if value.dtype in ("sequence", "optional", "map", "string"):
        raise UnsupportedModelError(
            f"{what} {value.name!r} is a {value.dtype}, and TFLite has tensors of numbers only",
            hint="take the operators that make it out of the export, and do their work in the app",
        )


def _static(value: OnnxValue) -> tuple[int, ...]:
    return tuple(int(size) for size in value.shape or ())


def _spec(name: str, shape: tuple[int, ...], dtype: str) -> IoSpec:
    # ONNX's own convolutions and pools are channels-first, so a map is "nchw" unless its author transposed it.
    return IoSpec(name, shape, dtype, tensor=name, shape=shape, dtype=dtype, layout="nchw" if len(shape) >= 4 else "")


def _needs_simplifying(model: onnx.ModelProto) -> bool:
    """Whether onnxsim has something to fold: batch normalisation, computed shapes, sub-graphs, symbolic sizes."""
    kinds = {node.op_type for node in model.graph.node}
    return bool(kinds - _SMALL_GRAPH_OPERATORS)


def _other_forms(path: Path) -> Iterator[tuple[Path, str]]:
    """Copies of the model that mean the same, and what to add to the runtime's name: without composed operators, of older opsets."""
    import onnx

    from edgekit.intake.digest import functions
    from edgekit.intake.onnx_opset import as_older

    model = onnx.load(str(path))
    form = path.with_name("other-form.onnx")
    for version, older in as_older(model):
        _save(older, form)
        yield form, f" (as opset {version})"
    try:
        changed = functions.apply(model)
    except Exception:  # onnx's inliner refuses contradictory models with errors of its own
        return
    if changed:
        _save(model, form)
        yield form, ""


def _digested(
    source: OnnxSource, samples: Sequence[Sample], references: Sequence[Sample], work: Path
) -> tuple[OnnxSource, tuple[str, ...]]:
    """The source with a rewritten graph for front ends, and what was rewritten; made once for all routes in ``work``.

    Raises ConversionError (``nothing_to_rewrite``) when there is nothing to rewrite.
    """
    import onnx

    from edgekit.intake.digest.run import PASSES, digest

    rewritten, said = work / "rewritten.onnx", work / "rewritten.json"
    if not said.is_file():
        model, done = digest(
            onnx.load(str(source.plain)),
            [_plainly(sample, source) for sample in samples[:MATCHING_SAMPLES]],
            [_plainly(reference, source) for reference in references[:MATCHING_SAMPLES]],
        )
        _save(model, rewritten)
        said.write_text(json.dumps(done))
    done = tuple(json.loads(said.read_text()))
    if not done:
        raise ConversionError("there is nothing in the graph to rewrite", code=NOTHING_TO_REWRITE)
    # Simplification would take a Reshape to the declared shape away again: by the declaration it does nothing.
    simplify = PASSES["declared_outputs"] not in done
    return dataclasses.replace(source, plain=rewritten, simplify=simplify), done


def _plainly(values: Sample, source: OnnxSource) -> Sample:
    return {source.plain_names[name]: value for name, value in values.items()}


def to_float(
    source: OnnxSource,
    session: Session,
    *,
    samples: Sequence[Sample],
    references: Sequence[Sample],
    work: Path,
    timeout_s: float,
) -> Delivered:
    """The float model as ``session``'s front end makes it, its inputs and outputs named, ordered and matched to the source's axes.

    Raises ConversionError when the front end fails or delivers something that does not load or run, ParityError when shapes do
    not correspond. That values correspond is for the parity stage to say.
    """
    frontend = session.frontend.name
    folder = work / (frontend if source.plain.name != "rewritten.onnx" else f"{frontend}-rewritten")
    folder.mkdir()
    private = folder / "model.onnx"
    private.write_bytes(source.plain.read_bytes())
    inputs = {spec.name: source.plain_names[spec.name] for spec in source.inputs}
    outputs = {name: source.plain_names[name] for name in source.output_names}
    asked = ConversionRequest(
        private, list(inputs.values()), list(outputs.values()), source.simplify, folder, timeout_s
    )
    converted = convert(session, asked)
    float_path = folder / "float.tflite"
    adopt(converted, inputs=inputs, outputs=outputs, to=float_path)
    refuse_placeholders(float_path, source.plain, frontend=frontend)
    real = _plain_inputs(float_path, source, samples[0])
    require_runs(float_path, what="the float model", timeout_s=timeout_s, inputs=real)
    matched = _matched(source, float_path, samples, references)
    model = FloatModel(float_path, source.source, *matched, frontend, converted.versions)
    remarks = ("simplified first",) if converted.simplified else ()
    return Delivered(model, converted.peak_rss_bytes, remarks)


def _plain_inputs(path: Path, source: OnnxSource, sample: Sample) -> Path | None:
    """A file with the real values of inputs whose order of axes is no question, for the probe: of integers, and of floats with one
    axis or none. A shape, an index, a count, a limit or a step is not just any number."""
    import numpy as np

    graph = tflite.graph_of(path)
    found = {}
    for position, (spec, index) in enumerate(zip(source.inputs, graph.inputs, strict=True)):
        tensor, value = graph.tensors[index], sample[spec.name]
        plain = value.dtype.kind in "iub" or (value.dtype.kind == "f" and value.ndim <= 1)
        if plain and value.size == math.prod(tensor.shape) and (tensor.dtype == "float32") == (value.dtype.kind == "f"):
            found[str(position)] = value.astype(tensor.dtype).reshape(tuple(tensor.shape))
    if not found:
        return None
    target = path.with_name("plain-inputs.npz")
    np.savez(target, **found)  # type: ignore[arg-type]
    return target


def _matched(
    source: OnnxSource, path: Path, samples: Sequence[Sample], references: Sequence[Sample]
) -> tuple[tuple[IoSpec, ...], tuple[IoSpec, ...]]:
    graph = tflite.graph_of(path)
    input_tensors = [graph.tensors[index] for index in graph.inputs]
    output_tensors = [graph.tensors[index] for index in graph.outputs]
    reference = references[0]
    outputs = [_spec(name, reference[name].shape, reference[name].dtype.name) for name in source.output_names]
    with open_backend(path) as backend:
        return layout.match(
            backend,
            [_delivered(spec, tensor) for spec, tensor in zip(source.inputs, input_tensors, strict=True)],
            [_delivered(spec, tensor) for spec, tensor in zip(outputs, output_tensors, strict=True)],
            samples[:MATCHING_SAMPLES],
            references[:MATCHING_SAMPLES],
        )


def _delivered(spec: IoSpec, tensor: Any) -> IoSpec:
    return dataclasses.replace(spec, tensor=tensor.name, shape=tuple(tensor.shape), dtype=tensor.dtype)
