"""Is this file a whole ``.tflite`` model? Asked before an interpreter that does not ask itself maps it.

``tflite-runtime`` does not verify what it opens: a model that an upload cut short ends the process with SIGSEGV or SIGBUS, and a
model whose tail is missing may even run. So every offset of the file is followed here once, and every cross reference looked at,
with the standard library only. The layout is that of the TFLite schema (``schema.fbs``, file identifier ``TFL3``) in the encoding
of FlatBuffers: little-endian; offsets to tables, vectors and strings are unsigned 32 bit, counted from the place they stand in.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Dict, List, Optional, Tuple, Union

from edgekit.errors import ModelFileError

Data = Union[bytes, mmap.mmap]

IDENTIFIER = b"TFL3"

# Field numbers of the tables, from schema.fbs: scalar vectors with the size of one element, strings (size 1), tables, table vectors.
_SCALARS: Dict[str, Dict[int, int]] = {
    "Model": {3: 1, 5: 4},
    "OperatorCode": {1: 1},
    "SubGraph": {1: 4, 2: 4, 4: 1},
    "Tensor": {0: 4, 3: 1, 7: 4},
    "QuantizationParameters": {0: 4, 1: 4, 2: 4, 3: 8},
    "Operator": {1: 4, 2: 4, 5: 1, 7: 1, 8: 4},
    "Options": {},
    "Buffer": {0: 1},
    "Metadata": {0: 1},
    "SignatureDef": {2: 1},
    "TensorMap": {0: 1},
}
_TABLES: Dict[str, Dict[int, str]] = {"Tensor": {4: "QuantizationParameters"}, "Operator": {4: "Options"}}
_TABLE_VECTORS: Dict[str, Dict[int, str]] = {
    "Model": {1: "OperatorCode", 2: "SubGraph", 4: "Buffer", 6: "Metadata", 7: "SignatureDef"},
    "SubGraph": {0: "Tensor", 3: "Operator"},
    "SignatureDef": {0: "TensorMap", 1: "TensorMap"},
}


def check_model(data: Data) -> None:
    """Returns when ``data`` is a complete TFLite model; raises :class:`ModelFileError` that names the first thing out of place."""
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise ModelFileError(
            f"this is not a .tflite file: its bytes 4 to 7 are {bytes(data[4:8])!r}, not {IDENTIFIER!r}",
            hint="convert the model first: edgekit convert MODEL",
        )
    reader = _Reader(data)
    try:
        model = reader.table(reader.offset(0), "Model")
        _check_references(reader, model)
    except (struct.error, IndexError) as error:
        raise _truncated(f"a field lies outside the file's {len(data)} bytes") from error


def check_model_file(path: Union[str, os.PathLike[str]]) -> None:
    """:func:`check_model` for a file, mapped and not read into memory."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        check_model(data)


def _truncated(what: str) -> ModelFileError:
    return ModelFileError(
        f"the .tflite file is truncated or damaged: {what}", hint="copy or convert it again", details={"what": what}
    )


class _Reader:
    """Follows offsets and refuses any that leave the file."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self.size = len(data)
        self._seen: Dict[int, str] = {}

    def number(self, position: int, code: str) -> int:
        if position < 0:
            raise IndexError(position)
        value: int = struct.unpack_from("<" + code, self._data, position)[0]
        return value

    def offset(self, position: int) -> int:
        """Where the offset that stands at ``position`` leads to."""
        target = position + self.number(position, "I")
        if target >= self.size:
            raise _truncated(f"byte {position} points to byte {target} of {self.size}")
        return target

    def field(self, table: int, number: int) -> Optional[int]:
        """Position of a field of the table at ``table``; None when it is left out."""
        vtable = table - self.number(table, "i")
        entry = 4 + 2 * number
        if entry + 2 > self.number(vtable, "H"):
            return None
        within = self.number(vtable + entry, "H")
        return table + within if within else None

    def vector(self, position: int, element_bytes: int) -> Tuple[int, int]:
        """Position of the first element and count of the vector that the field at ``position`` points to."""
        start = self.offset(position)
        count = self.number(start, "I")
        end = start + 4 + count * element_bytes
        if end > self.size:
            raise _truncated(f"data of {count} x {element_bytes} bytes end at byte {end} of {self.size}")
        return start + 4, count

    def tables(self, table: int, number: int) -> List[int]:
        """Positions of the tables in the vector that field ``number`` of ``table`` points to."""
        position = self.field(table, number)
        if position is None:
            return []
        first, count = self.vector(position, 4)
        return [self.offset(first + 4 * item) for item in range(count)]

    def integers(self, table: int, number: int) -> List[int]:
        """The 32-bit integers in the vector that field ``number`` of ``table`` points to."""
        position = self.field(table, number)
        if position is None:
            return []
        first, count = self.vector(position, 4)
        return list(struct.unpack_from(f"<{count}i", self._data, first))

    def table(self, position: int, kind: str) -> int:
        """Checks the table at ``position`` and everything below it; returns ``position``."""
        if self._seen.get(position) == kind:
            return position
        self._seen[position] = kind
        vtable = position - self.number(position, "i")
        for end in (vtable + self.number(vtable, "H"), position + self.number(vtable + 2, "H")):
            if end > self.size:
                raise _truncated(f"table {kind} ends at byte {end} of {self.size}")
        for number, element_bytes in _SCALARS[kind].items():
            found = self.field(position, number)
            if found is not None:
                self.vector(found, element_bytes)
        for number, below in _TABLES.get(kind, {}).items():
            found = self.field(position, number)
            if found is not None:
                self.table(self.offset(found), below)
        for number, below in _TABLE_VECTORS.get(kind, {}).items():
            for item in self.tables(position, number):
                self.table(item, below)
        return position


def _check_references(reader: _Reader, model: int) -> None:
    """Every index from one table into another lies in range."""
    buffers = reader.tables(model, 4)
    codes = len(reader.tables(model, 1))
    graphs = reader.tables(model, 2)
    if not graphs:
        raise _truncated("there is no graph in it")
    _check_far_buffers(reader, buffers)
    for graph in graphs:
        tensors = reader.tables(graph, 0)
        operators = reader.tables(graph, 3)
        _in_range(reader, tensors, field=2, limit=len(buffers), what="buffer")
        _in_range(reader, operators, field=0, limit=codes, what="operator code")
        used = reader.integers(graph, 1) + reader.integers(graph, 2)
        for operator in operators:
            used += reader.integers(operator, 1) + reader.integers(operator, 2)
        if used and not (min(used) >= -1 and max(used) < len(tensors)):  # -1 stands for an input that is left out
            raise _truncated(f"tensors {min(used)} to {max(used)} are used, {len(tensors)} exist")


def _in_range(reader: _Reader, tables: List[int], *, field: int, limit: int, what: str) -> None:
    for table in tables:
        position = reader.field(table, field)
        index = 0 if position is None else reader.number(position, "I")
        if index >= limit:
            raise _truncated(f"{what} {index} is used, {limit} exist")


def _check_far_buffers(reader: _Reader, buffers: List[int]) -> None:
    """Buffers of models beyond 2 GB lie behind the FlatBuffer: offset (field 1) and size (field 2) in bytes of the file."""
    for buffer in buffers:
        offset_at, size_at = reader.field(buffer, 1), reader.field(buffer, 2)
        if offset_at is None or size_at is None:
            continue
        offset, size = reader.number(offset_at, "Q"), reader.number(size_at, "Q")
        if offset > 1 and offset + size > reader.size:  # 0 and 1 say that the data are inside
            raise _truncated(f"a weight buffer ends at byte {offset + size} of {reader.size}")
