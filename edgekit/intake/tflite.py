"""Reading and writing ``.tflite`` files: the schema's object API behind a border that lets nothing but edgekit's own errors through.

``ai_edge_litert.schema_py_generated`` (300 ms, no TensorFlow) is imported inside the functions.
:mod:`edgekit.intake.tflite_graph` (names re-exported here) gives the same model as plain frozen values.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

from edgekit.errors import EdgekitError, ModelFileError, OutputError, UnsupportedModelError
from edgekit.intake.formats import require_file
from edgekit.intake.tflite_graph import Graph, Operator, Quant, Signature, Tensor, constant_value, graph, operator_name

__all__ = [
    "Graph",
    "ModelT",
    "Operator",
    "Quant",
    "Signature",
    "Tensor",
    "constant_value",
    "graph",
    "operator_name",
    "read",
    "serialize",
    "write",
]

ModelT: TypeAlias = Any
"""``ai_edge_litert.schema_py_generated.ModelT``: the object form of a whole file."""

IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3
_LARGEST_FLATBUFFER = 2**31 - 1
_LAST_DEPRECATED_CODE = 127  # BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
_BUFFER_ALIGNMENT = 16  # schema: "table Buffer { data:[ubyte] (force_align: 16); }"


def graph_of(path: Path) -> Graph:
    """The main graph of the file at ``path``; read once as long as the file stays the same. Raises as :func:`read`."""
    status = require_file(path).stat()
    return _graph_of(path, status.st_mtime_ns, status.st_size, status.st_ino)


@functools.lru_cache(maxsize=4)
def _graph_of(path: Path, *_: int) -> Graph:
    return graph(read(path))


def read(source: str | Path | bytes | bytearray) -> ModelT:
    """The ``.tflite`` file (or its bytes) as a ``ModelT``, checked so far that its parts refer to one another without a hole.

    Weight buffers are writable views into one private copy of the file; integer vectors (``shape``, ``inputs``, ...) are lists.

    Operator codes are repaired: ``builtinCode = max(builtinCode, deprecatedBuiltinCode)``. Files from before schema 3a have only the one
    byte field ``deprecated_builtin_code``; read as they stand, each of their operators would be number 0, an ADD.

    Raises :class:`ModelFileError` with code ``not_a_model`` (no identifier), ``model_truncated`` (a part lies outside of the file) or
    ``model_corrupt`` (parts contradict one another), and :class:`UnsupportedModelError` for another schema version and for weights
    outside of a file of more than 2 GB.
    """
    if isinstance(source, (bytes, bytearray)):
        name, raw = "the model", bytearray(source)
    else:
        path = require_file(source)
        _refuse_huge(path)
        name, raw = str(path), bytearray(path.read_bytes())
    _check_identifier(name, raw)
    try:
        _check_table_budget(name, raw)
        model = _unpack(raw)
        _resolve_offsets(name, model, raw)
        _repair_operator_codes(model)
        _lists_for_integers(model)
        _check_references(name, model)
    except EdgekitError:
        raise
    # The generated reader trusts every offset: a damaged file gives struct.error, IndexError, ValueError, TypeError, MemoryError, ...
    except Exception as error:
        raise ModelFileError(
            f"{name}: a part of the model lies outside of the file ({len(raw):,} bytes): cut short or damaged "
            f"({type(error).__name__}: {error})",
            hint="copy or download the file again and compare its size and sha256 with the original",
            code="model_truncated",
            details={"size_bytes": len(raw)},
        ) from error
    return model


def serialize(model: ModelT) -> bytes:
    """The bytes of a ``.tflite`` file for ``model``; the same model gives the same bytes.

    Weight data lie on 16-byte boundaries, as the schema demands; the generated Python packer alone does not see to it. Operator codes
    get the old one byte field as well, for interpreters from before 2021. Raises :class:`UnsupportedModelError` above 2 GB.
    """
    import flatbuffers.builder

    for code in model.operatorCodes or []:
        code.deprecatedBuiltinCode = min(code.builtinCode, _LAST_DEPRECATED_CODE)
    _arrays_for_buffers(model)
    builder = _aligned_builder()(_weight_bytes(model) + 65536)
    try:
        builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    except flatbuffers.builder.BuilderSizeError as error:
        raise UnsupportedModelError(
            "the model is larger than the 2 GB that one .tflite file can hold",
            hint="split the model, or use smaller weights",
        ) from error
    return bytes(builder.Output())


def write(model: ModelT, path: str | Path) -> None:
    """Writes ``model`` to ``path`` in one step: whoever opens ``path`` sees the old file or the whole new one.

    Raises :class:`OutputError` when the folder is missing, full or read-only.
    """
    data = serialize(model)
    path = Path(path)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it 0600
        os.replace(temporary, path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot write {len(data):,} bytes: {error.strerror or error}",
            hint="choose another place with --out",
        ) from error
    finally:
        if temporary is not None:
            _remove_quietly(temporary)


def _sync_folder(folder: Path) -> None:
    """Makes a rename in ``folder`` survive a power cut, where the file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network file systems refuse; the rename itself has happened
    finally:
        os.close(handle)


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _refuse_huge(path: Path) -> None:
    size = path.stat().st_size
    if size > _LARGEST_FLATBUFFER:
        raise UnsupportedModelError(
            f"{path}: {size:,} bytes; a .tflite above 2 GB keeps its weights outside of the flatbuffer, which this version does not read",
            hint="convert a smaller or quantised variant of the model",
            details={"size_bytes": size},
        )


def _check_identifier(name: str, raw: bytearray) -> None:
    if len(raw) >= 8 and bytes(raw[4:8]) == IDENTIFIER:
        return
    head = bytes(raw[:16])
    what = "is empty" if not raw else f"is no TFLite model: {len(raw):,} bytes that begin with {head!r}"
    raise ModelFileError(
        f"{name} {what} (a TFLite file has {IDENTIFIER.decode()!r} at byte 4)",
        hint="check that the path names the model itself and that its download is complete",
        code="not_a_model",
        details={"size_bytes": len(raw), "first_bytes": head.hex()},
    )


def _check_table_budget(name: str, raw: bytearray) -> None:
    """Refuses a file whose vectors of tables claim more entries than the file has room for.

    Each entry takes four bytes. Without this check a few flipped bytes can make the reader walk the same tables over and over.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(raw, 0)
    entries = model.OperatorCodesLength() + model.BuffersLength() + model.MetadataLength() + model.SubgraphsLength()
    room = len(raw) // 4
    for index in range(min(model.SubgraphsLength(), room)):
        subgraph = model.Subgraphs(index)
        entries += subgraph.TensorsLength() + subgraph.OperatorsLength()
        if entries > room:
            break
    if entries > room:
        raise ModelFileError(
            f"{name}: the model claims {entries:,} parts or more, but {len(raw):,} bytes have room for {room:,}: cut short or damaged",
            hint="copy or download the file again and compare its size and sha256 with the original",
            code="model_truncated",
            details={"size_bytes": len(raw)},
        )


def _unpack(raw: bytearray) -> ModelT:
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(raw, 0))


def _resolve_offsets(name: str, model: ModelT, raw: bytearray) -> None:
    """Brings weights and custom options that lie behind the flatbuffer (in the same file) into the objects."""
    import numpy as np

    def inside(offset: int, size: int) -> Any:
        if offset + size > len(raw):
            raise IndexError(f"data at byte {offset:,} to {offset + size:,}")
        return np.frombuffer(raw, np.uint8, count=size, offset=offset)

    # In the schema an offset of 0 or 1 is a placeholder for "no data outside".
    for buffer in model.buffers or []:
        if buffer.offset > 1:
            buffer.data = inside(buffer.offset, buffer.size)
        buffer.offset = buffer.size = 0
    for subgraph in model.subgraphs or []:
        for operator in subgraph.operators or []:
            if operator.largeCustomOptionsOffset > 1:
                operator.customOptions = inside(operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize)
            operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
        if any(tensor.externalBuffer for tensor in subgraph.tensors or []):
            raise UnsupportedModelError(
                f"{name}: its weights lie in other files (external buffers), which this version does not read",
                hint="convert the model again with the weights inside",
            )


def _repair_operator_codes(model: ModelT) -> None:
    for code in model.operatorCodes or []:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)


def _lists_for_integers(node: Any) -> None:
    """Turns int32 arrays (views of fixed length) into lists that a rewrite can grow; buffers and quantisation arrays stay arrays."""
    import numpy as np

    for key, value in vars(node).items():
        if isinstance(value, np.ndarray):
            if value.dtype == np.int32:
                setattr(node, key, value.tolist())
        elif isinstance(value, list):
            for item in value:
                if hasattr(item, "__dict__"):
                    _lists_for_integers(item)
        elif hasattr(value, "__dict__"):
            _lists_for_integers(value)


def _check_references(name: str, model: ModelT) -> None:
    from edgekit.intake import tflite_check

    if model.version != SCHEMA_VERSION:
        raise UnsupportedModelError(
            f"{name}: TFLite schema version {model.version}; this version reads {SCHEMA_VERSION}"
        )
    problem = tflite_check.first_problem(model)
    if problem:
        raise ModelFileError(
            f"{name}: damaged model: {problem}",
            hint="copy or download the file again and compare its size and sha256 with the original",
            code="model_corrupt",
        )


def _arrays_for_buffers(model: ModelT) -> None:
    """Buffers given as bytes or lists become arrays: the packer writes only those in one piece (and aligned)."""
    import numpy as np

    for buffer in model.buffers or []:
        if buffer.data is not None and not isinstance(buffer.data, np.ndarray):
            buffer.data = np.frombuffer(bytes(buffer.data), np.uint8)
        elif buffer.data is not None and buffer.data.dtype != np.uint8:
            buffer.data = np.frombuffer(buffer.data.tobytes(), np.uint8)


def _weight_bytes(model: ModelT) -> int:
    total = sum(buffer.data.size for buffer in model.buffers or [] if buffer.data is not None)
    return min(int(total), _LARGEST_FLATBUFFER - 65536)


@functools.cache
def _aligned_builder() -> Any:
    import flatbuffers
    import numpy as np

    class AlignedBuilder(flatbuffers.Builder):  # type: ignore[misc]
        """A builder that puts byte vectors (weights, custom options) on 16-byte boundaries."""

        def CreateNumpyVector(self, x: Any) -> Any:
            if x.dtype == np.uint8:
                self.Prep(_BUFFER_ALIGNMENT, x.nbytes)
            return super().CreateNumpyVector(x)

    return AlignedBuilder
