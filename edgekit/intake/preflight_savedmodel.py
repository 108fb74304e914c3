"""The SavedModel part of :mod:`edgekit.intake.preflight`: ``saved_model.pb`` is whole, its variables are there, what its graph holds.

The file is read by hand, field by field (``saved_model.proto``, ``meta_graph.proto``, ``graph.proto``): TensorFlow takes seconds to start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import ModelFileError
from edgekit.intake import onnx_wire
from edgekit.intake.preflight import Finding, Level, found

_META_GRAPHS, _GRAPH, _SIGNATURES = 2, 2, 5  # of SavedModel, MetaGraphDef
_NODES, _LIBRARY = 1, 2  # of GraphDef
_FUNCTIONS, _FUNCTION_NODES = 1, 3  # of FunctionDefLibrary, FunctionDef
_NAME, _OPERATOR = 1, 2  # of NodeDef
_WHOLE = "copy the whole folder again: saved_model.pb and variables/"
_LOOPS = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "LoopCond", "TensorListReserve")
_VOLUMES = ("Conv3D", "Conv3DBackpropInputV2", "MaxPool3D", "AvgPool3D")
_VARIABLES = ("VarHandleOp", "VariableV2")


def savedmodel_findings(folder: Path) -> Iterator[Finding]:
    """Findings for the SavedModel in ``folder``. Raises ModelFileError where its graph is damaged or its weights are missing."""
    path = folder / "saved_model.pb"
    if not path.is_file():
        return  # the text form, which TensorFlow reads
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror}", code="model_file_unreadable") from error
    operators: dict[str, list[str]] = {}
    for kind, name in _operators(folder, data):
        operators.setdefault(kind, []).append(name)
    if any(kind in operators for kind in _VARIABLES):
        _require_variables(folder)
    for kind, names in operators.items():
        if kind in _LOOPS:
            reason = "control flow: no integer kernels, and boards' delegates stop there"
            advice = "export with unrolled loops (Keras: unroll=True for layers of few steps)"
            yield found(Level.WARN, "operator_difficult", reason, advice, operator=kind, nodes=names)
        elif kind in _VOLUMES:
            reason = "volumes have five axes: TFLite's kernels for them are float only, and delegates leave them out"
            yield found(Level.WARN, "rank_high", reason, "work on slices", operator=kind, nodes=names)


def _operators(folder: Path, data: memoryview) -> Iterator[tuple[str, str]]:
    graphs = [part for number, part in _parts(folder, data, "the file") if number == _META_GRAPHS]
    if not graphs:
        raise _damaged(folder, "it holds no graph")
    for meta in graphs:
        for number, part in _parts(folder, meta, "a graph's description"):
            if number == _GRAPH:
                yield from _of_graph(folder, part)


def _of_graph(folder: Path, graph: memoryview) -> Iterator[tuple[str, str]]:
    for number, part in _parts(folder, graph, "a graph"):
        if number == _NODES:
            yield _node(folder, part)
        elif number == _LIBRARY:
            functions = [inner for n, inner in _parts(folder, part, "the functions") if n == _FUNCTIONS]
            for function in functions:
                for inner_number, node in _parts(folder, function, "a function"):
                    if inner_number == _FUNCTION_NODES:
                        yield _node(folder, node)


def _node(folder: Path, node: memoryview) -> tuple[str, str]:
    texts = {n: bytes(part).decode("utf-8", errors="replace") for n, part in _parts(folder, node, "a node") if n < 3}
    return texts.get(_OPERATOR, ""), texts.get(_NAME, "")


def _parts(folder: Path, data: memoryview, what: str) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each field with a length. Raises ModelFileError when the fields do not end where ``data`` ends."""
    end = 0
    for field in onnx_wire.fields(data):
        end = field.start + field.size_bytes
        if end > len(data):
            break
        if field.wire_type == 2:
            yield field.number, data[field.start : end]
    if end != len(data):
        raise _damaged(folder, f"{what} of {len(data):,} bytes breaks off at byte {min(end, len(data)):,}")


def _damaged(folder: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{folder.name}: its saved_model.pb is damaged: {why}", hint=_WHOLE, code="model_corrupt")


def _require_variables(folder: Path) -> None:
    place = folder / "variables"
    missing = "variables.index" if not (place / "variables.index").is_file() else ""
    if not missing and not any(place.glob("variables.data-*")):
        missing = "variables.data-00000-of-00001"
    if missing:
        raise ModelFileError(
            f"{folder.name}: its weights are missing: there is no variables/{missing}",
            hint="copy the whole folder: saved_model.pb and variables/ belong together",
            code="model_incomplete",
        )
