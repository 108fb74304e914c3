"""Reading an ONNX file, checked before anything is built on it; its inputs and outputs; fixing open input shapes.

``onnx`` is imported inside the functions. No value of an external data file is read from outside of the model's own folder.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError, ModelFileError, UnsupportedModelError, UsageError
from edgekit.intake import onnx_wire
from edgekit.intake.fixed_shapes import example, examples
from edgekit.intake.formats import require_file
from edgekit.intake.onnx_check import first_problem
from edgekit.intake.onnx_external import check_external_data

if TYPE_CHECKING:
    import onnx

Dim = int | str
"""One size of a shape: a number, a symbol ("batch"), or "?" for an open size without a name."""

_PROTOBUF_LIMIT = 2**31 - 1
_NO_TENSORS = ("sequence", "optional", "map", "sparse_tensor", "opaque", "unknown")
_LONGEST_SHAPE = 100_000
_AGAIN = "copy or download the file again and compare its size and sha256 with the original"


@dataclasses.dataclass(frozen=True)
class OnnxValue:
    """An input or output. ``shape`` is None when not even the number of axes is known. ``dtype`` is numpy's word for it, or
    "sequence", "optional", "map" for what is no tensor."""

    name: str
    shape: tuple[Dim, ...] | None
    dtype: str

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)


def read_onnx(path: str | Path, *, external_data: bool = True) -> onnx.ModelProto:
    """The model in ``path``, with the data from its external files loaded unless ``external_data`` is False (they are checked anyway).

    Raises :class:`ModelFileError` with code ``not_a_model``, ``model_truncated``, ``model_corrupt``, ``external_data_missing`` or
    ``external_data_outside``, and :class:`UnsupportedModelError` (``onnx_too_new``) when its opset or IR version is above what the
    installed onnx knows.
    """
    import onnx

    path = require_file(path)
    size = path.stat().st_size
    if size > _PROTOBUF_LIMIT:
        raise ModelFileError(
            f"{path}: {size:,} bytes; an ONNX file holds at most 2 GB, larger weights lie in external data files",
            code="not_a_model",
            details={"size_bytes": size},
        )
    data = path.read_bytes()
    model = _parse(path, data)
    try:
        _check_content(path, model, data)
        _check_versions(path, model)
        problem = first_problem(model)
    except EdgekitError:
        raise
    except Exception as error:  # names that are no UTF-8 and the like come up when they are looked at
        raise _corrupt(path, f"{type(error).__name__}: {error}") from error
    if problem:
        raise _corrupt(path, problem)
    references = check_external_data(model, path)
    if references and external_data:
        try:
            onnx.load_external_data_for_model(model, str(path.parent))
        except Exception as error:
            raise ModelFileError(
                f"{path}: its external data cannot be read: {error}", code="external_data_missing"
            ) from error
    return model


def onnx_io(model: onnx.ModelProto) -> tuple[tuple[OnnxValue, ...], tuple[OnnxValue, ...]]:
    """The inputs that a caller has to feed, and the outputs, in the model's order.

    Up to IR version 3 every initializer is listed among the inputs too; those have values and are left out.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    stored.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    inputs = tuple(_value(info) for info in model.graph.input if info.name not in stored)
    return inputs, tuple(_value(info) for info in model.graph.output)


def dynamic_inputs(model: onnx.ModelProto) -> tuple[OnnxValue, ...]:
    """The inputs whose shape is not fully fixed."""
    return tuple(value for value in onnx_io(model)[0] if not value.is_static)


def require_static_inputs(model: onnx.ModelProto) -> None:
    """Raises :class:`UsageError` (``input_shape_open``) when an input has an open size; the hint is the option to type."""
    open_inputs = dynamic_inputs(model)
    if not open_inputs:
        return
    words = "; ".join(f"{value.name} is {shape_words(value.shape)}" for value in open_inputs)
    raise UsageError(
        f"the model leaves the shape of its input open: {words}",
        hint=examples({value.name: value.shape for value in open_inputs}),
        code="input_shape_open",
        details={"inputs": {value.name: None if value.shape is None else list(value.shape) for value in open_inputs}},
    )


def apply_input_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy of ``model`` with the inputs in ``shapes`` fixed, and with the shapes behind them inferred again.

    A symbol ("batch") that gets a size has it everywhere in the graph. Raises :class:`UsageError` with code ``input_unknown``, or
    ``input_shape_invalid`` (another number of axes, another size where the model fixes one, one symbol with two sizes).
    """
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    known = {value.name: value for value in onnx_io(model)[0]}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in known:
            raise _unknown_input(name, list(known))
        _check_shape(known[name], shape, symbols)
        info = next(item for item in fixed.graph.input if item.name == name)
        _set_shape(info, shape)
    if not shapes:
        return fixed
    _bind_symbols(fixed.graph.input, symbols)
    _bind_symbols(fixed.graph.output, symbols, clear_open=True)
    del fixed.graph.value_info[:]  # stale: inferred for the open shape
    fixed = infer_shapes(fixed)
    _fill_outputs(fixed)
    return fixed


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with the shapes of its intermediate values filled in as far as onnx can tell; unchanged where it cannot.

    Models above 2 GB are returned as they are: inference works on their serialised form, which cannot be that large.
    """
    import onnx

    if model.ByteSize() > _PROTOBUF_LIMIT:
        return model
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False)
        if _has_long_vector(inferred):
            return inferred
        return onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, MemoryError):
        return model  # contradicting shapes, an operator of a foreign domain: the caller sees "unknown" where he looks


def _has_long_vector(model: onnx.ModelProto) -> bool:
    """Whether onnx's propagation of values would write out millions: it takes every vector of known length for a shape."""
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    shapes = [value_shape(info) for info in infos] + [tuple(tensor.dims) for tensor in model.graph.initializer]
    return any(
        shape and len(shape) == 1 and isinstance(shape[0], int) and shape[0] > _LONGEST_SHAPE for shape in shapes
    )


def shape_words(shape: Sequence[Dim] | None) -> str:
    """``"Nx3x48x?"`` for people; "of unknown rank" for None, "scalar" for no axes."""
    if shape is None:
        return "of unknown rank"
    return "x".join(str(size) for size in shape) or "scalar"


def dtype_word(elem_type: int) -> str:
    """numpy's word for a number of ``onnx.TensorProto.DataType``; "unknown" for 0 or a number that onnx does not have."""
    import onnx

    try:
        word = str(onnx.TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return "unknown"
    return {"undefined": "unknown", "float": "float32", "double": "float64"}.get(word, word)


def value_shape(info: onnx.ValueInfoProto, *, smallest: int = 0) -> tuple[Dim, ...] | None:
    """The shape in a ``ValueInfoProto``, None when it has none. Sizes below ``smallest`` count as open."""
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    return tuple(
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= smallest else str(dim.dim_param) or "?"
        for dim in tensor.shape.dim
    )


def _value(info: Any) -> OnnxValue:
    kind = info.type.WhichOneof("value")
    if kind == "tensor_type":
        # Exporters write 0 or -1 for an open size of an input; 0 is a real size only inside of a graph.
        return OnnxValue(info.name, value_shape(info, smallest=1), dtype_word(info.type.tensor_type.elem_type))
    return OnnxValue(info.name, None, (kind or "unknown").replace("_type", ""))


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    details = {"size_bytes": len(data), "first_bytes": data[:16].hex()}
    if not onnx_wire.looks_like_onnx(data[:4096]):
        what = "is empty" if not data else f"is no ONNX model: {len(data):,} bytes that begin with {data[:16]!r}"
        raise ModelFileError(
            f"{path}: {what}",
            hint="check the path, and that its download is complete",
            code="not_a_model",
            details=details,
        )
    missing = onnx_wire.missing_bytes(data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        if missing:
            raise ModelFileError(
                f"{path}: the model is cut short: it has {len(data):,} bytes, and its graph goes on for at least {missing:,} more",
                hint=_AGAIN,
                code="model_truncated",
                details={**details, "missing_bytes": missing},
            ) from error
        raise _corrupt(path, f"protobuf cannot decode it ({error})") from error
    return model


def _check_content(path: Path, model: onnx.ModelProto, data: bytes) -> None:
    if not model.HasField("graph") or not model.graph.node:
        what = "no graph" if not model.HasField("graph") else "a graph without operators"
        raise ModelFileError(
            f"{path}: no ONNX model, or one that is cut short: it holds {what} ({len(data):,} bytes)",
            hint=_AGAIN,
            code="not_a_model",
            details={"size_bytes": len(data)},
        )
    if not model.graph.output:
        raise _corrupt(path, "its graph has no output")
    if not model.opset_import:
        # It is written behind the graph, so a cut between the two leaves a file that parses.
        raise ModelFileError(
            f"{path}: the model names no opset, so the part behind its graph is missing ({len(data):,} bytes)",
            hint=_AGAIN,
            code="model_truncated",
            details={"size_bytes": len(data)},
        )


def _check_versions(path: Path, model: onnx.ModelProto) -> None:
    import onnx

    checks = [("IR version", model.ir_version, int(onnx.IR_VERSION))]
    newest = int(onnx.defs.onnx_opset_version())
    checks += [("opset", item.version, newest) for item in model.opset_import if item.domain in ("", "ai.onnx")]
    for what, found, supported in checks:
        if found > supported:
            raise UnsupportedModelError(
                f"{path}: {what} {found}, but the installed onnx {onnx.__version__} knows {what}s up to {supported}",
                hint="export the model with a lower opset_version, or install a newer onnx",
                code="onnx_too_new",
                details={"what": what, "found": int(found), "supported": supported},
            )


def _corrupt(path: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{path}: damaged ONNX model: {why}", hint=_AGAIN, code="model_corrupt")


def _unknown_input(name: str, known: list[str]) -> UsageError:
    lowered = {item.lower(): item for item in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.4)
    hint = f"did you mean {lowered[close[0]]}?" if close else f"its inputs: {', '.join(known)}"
    return UsageError(f"the model has no input {name!r}", hint=hint, code="input_unknown", details={"inputs": known})


def _check_shape(value: OnnxValue, shape: Sequence[int], symbols: dict[str, int]) -> None:
    """Whether ``shape`` fits what the model says of this input; notes the size that each symbol gets in ``symbols``."""
    typed = "x".join(str(size) for size in shape)
    where = f"input {value.name}, {shape_words(value.shape)} in the model, cannot be {typed}"

    def refuse(why: str) -> UsageError:
        hint = f"for example --input-shape {value.name}={example(value.shape)}"
        return UsageError(f"{where}: {why}", hint=hint, code="input_shape_invalid")

    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in shape):
        raise refuse("each size is a whole number above 0")
    if value.dtype in _NO_TENSORS:
        raise refuse(f"it is a {value.dtype}, not a tensor")
    if value.shape is None:
        return
    if len(shape) != len(value.shape):
        raise refuse(f"it has {len(value.shape)} axes, not {len(shape)}")
    for axis, (size, wanted) in enumerate(zip(value.shape, shape, strict=True)):
        if isinstance(size, int) and size != wanted:
            raise refuse(f"axis {axis} is {size}, not {wanted}")
        if isinstance(size, str) and size != "?" and symbols.setdefault(size, wanted) != wanted:
            raise refuse(f"{size!r} is {symbols[size]} elsewhere, not {wanted}")


def _set_shape(info: Any, shape: Sequence[int]) -> None:
    target = info.type.tensor_type.shape
    del target.dim[:]
    for size in shape:
        target.dim.add().dim_value = size


def _bind_symbols(values: Sequence[Any], symbols: Mapping[str, int], *, clear_open: bool = False) -> None:
    """Gives symbols their sizes; ``clear_open`` makes other open sizes nameless, so that inference may fill them (it keeps a -1)."""
    for info in values:
        if not info.type.HasField("tensor_type"):
            continue
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]  # a oneof: clears dim_param
            elif clear_open and dim.dim_value <= 0:
                dim.Clear()


def _fill_outputs(model: onnx.ModelProto) -> None:
    """Sizes of outputs that plain inference leaves open because they are computed in the graph."""
    from edgekit.intake.onnx_shapes import UNKNOWN, value_infos

    if all(value.is_static for value in onnx_io(model)[1]):
        return
    infos = value_infos(model)
    for info in model.graph.output:
        shape = infos.get(info.name, UNKNOWN).static_shape
        if shape is not None and info.type.HasField("tensor_type"):
            _set_shape(info, shape)
