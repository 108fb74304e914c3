"""The tensor types of the TFLite schema, as words that numpy users know."""

from __future__ import annotations

_TYPES: tuple[tuple[str, int], ...] = (  # index = TensorType number in schema.fbs; bits of one item, 0 = no fixed size
    ("float32", 32),
    ("float16", 16),
    ("int32", 32),
    ("uint8", 8),
    ("int64", 64),
    ("string", 0),
    ("bool", 8),
    ("int16", 16),
    ("complex64", 64),
    ("int8", 8),
    ("float64", 64),
    ("complex128", 128),
    ("uint64", 64),
    ("resource", 0),
    ("variant", 0),
    ("uint32", 32),
    ("uint16", 16),
    ("int4", 4),
    ("bfloat16", 16),
    ("int2", 2),
    ("uint4", 4),
    ("float8_e4m3fn", 8),
    ("float8_e5m2", 8),
)

FLOAT_DTYPES = frozenset(
    ("float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
)
"""Types that an integer-only processor cannot take."""


def type_word(number: int) -> str:
    """``"float32"`` for 0, ``"int8"`` for 9, ...; ``"type 99"`` for a number that the schema does not have."""
    return _TYPES[number][0] if 0 <= number < len(_TYPES) else f"type {number}"


def type_number(word: str) -> int:
    """The inverse of :func:`type_word`; raises :class:`KeyError` for an unknown word."""
    for number, (name, _) in enumerate(_TYPES):
        if name == word:
            return number
    raise KeyError(word)


def item_bits(number: int) -> int | None:
    """Bits of one item (4 for int4, 0 for strings and resources), or None for an unknown type number."""
    return _TYPES[number][1] if 0 <= number < len(_TYPES) else None
