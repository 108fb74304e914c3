"""The outermost layer of an ONNX file, read by hand: which fields it has and how long each one says it is.

protobuf itself only answers "cannot parse": it cannot tell a text file from a model whose download stopped half way, and accepts many
files that are no ONNX at all. The outermost layer is a handful of fields (``ModelProto`` in onnx.proto), each with its length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_FIELDS = {  # number: wire type, from onnx.proto
    1: _VARINT,  # ir_version
    2: _LENGTH,  # producer_name
    3: _LENGTH,  # producer_version
    4: _LENGTH,  # domain
    5: _VARINT,  # model_version
    6: _LENGTH,  # doc_string
    7: _LENGTH,  # graph
    8: _LENGTH,  # opset_import
    14: _LENGTH,  # metadata_props
    20: _LENGTH,  # training_info
    25: _LENGTH,  # functions
    26: _LENGTH,  # configuration
}
GRAPH = 7


@dataclasses.dataclass(frozen=True)
class Field:
    """One outermost field: its number, wire type, and first byte and size of its value."""

    number: int
    wire_type: int
    start: int
    size_bytes: int


def looks_like_onnx(head: bytes) -> bool:
    """Whether the first bytes of a file can be those of an ONNX model: two known fields, or one large graph that comes first."""
    for index, field in enumerate(fields(head)):
        if _MODEL_FIELDS.get(field.number) != field.wire_type:
            return False
        if field.number == 1 and not 0 < _varint(head, field.start)[0] < 1000:
            return False
        if index >= 1:
            return True
        if field.number == GRAPH and field.start + field.size_bytes > len(head):
            return head[field.start : field.start + 1] in (b"\n", b"\x12")  # a graph begins with its nodes or its name
    return False


def fields(data: bytes | memoryview) -> Iterator[Field]:
    """The fields of one message in order, the last of them possibly reaching beyond ``data``; stops at what is no field."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == _LENGTH:
            size, position = _varint(data, position)
        elif wire_type == _VARINT:
            size = _varint(data, position)[1] - position
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            return
        if number == 0 or size < 0:
            return
        yield Field(number, wire_type, position, size)
        position += size


def missing_bytes(data: bytes) -> int:
    """How many bytes the last outermost field misses at the end of ``data``; 0 when none do."""
    end = 0
    for field in fields(data):
        end = field.start + field.size_bytes
    return max(0, end - len(data))


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number at ``position`` and the position behind it; a number that is cut off or too long counts as one byte beyond the end."""
    value = 0
    for index in range(10):
        if position + index >= len(data):
            return value, len(data) + 1
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value, position + index + 1
    return -1, len(data) + 1
