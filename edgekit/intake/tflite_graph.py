"""A TFLite model as plain frozen values: tensors, operators, inputs, outputs, signatures.

Reading only. Whoever changes a model works on the ``ModelT`` of :mod:`edgekit.intake.tflite` and uses the indices found here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import UnsupportedModelError
from edgekit.intake.tflite_types import FLOAT_DTYPES, item_bits, type_word

if TYPE_CHECKING:
    import numpy as np

_CUSTOM = 32  # BuiltinOperator.CUSTOM
_QUANT_DETAILS = {1: "custom", 2: "blockwise", 3: "multi-axis"}  # union QuantizationDetails


@dataclasses.dataclass(frozen=True, eq=False)
class Quant:
    """``real = scale * (integer - zero_point)``. ``scales`` float32 and ``zero_points`` int64 of one length: 1, or the size of ``axis``.

    ``axis`` is None for one scale for the whole tensor. ``details`` names a scheme that scales and zero points alone do not describe
    ("blockwise", "custom", "multi-axis"), otherwise "".
    """

    scales: np.ndarray
    zero_points: np.ndarray
    axis: int | None
    details: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor. ``shape`` is that in the file; ``shape_signature`` has -1 where the size is open (None: nothing is).

    ``size_bytes`` is the size of the data in that shape (of the stored data for constants), or None where the type has no fixed size.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    quant: Quant | None
    is_constant: bool
    size_bytes: int | None
    is_variable: bool = False
    shape_signature: tuple[int, ...] | None = None

    @property
    def has_open_size(self) -> bool:
        """Whether the file leaves a size open; ``shape`` then has a placeholder (mostly 1) there."""
        return self.shape_signature is not None and any(size < 0 for size in self.shape_signature)

    @property
    def is_float(self) -> bool:
        """Whether the values are floating point numbers."""
        return self.dtype in FLOAT_DTYPES


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """One operator. ``name`` is the schema's word (``"CONV_2D"``), or ``"CUSTOM:<its code>"``; Flex operators are ``"CUSTOM:Flex..."``.

    ``inputs`` holds -1 where an optional input is not given. ``options`` is the schema's options object of this kind
    (``Conv2DOptionsT``, ...), None where the kind has none or the file gives none, and raw bytes for custom operators.
    """

    index: int
    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any = None

    @property
    def is_custom(self) -> bool:
        """Whether the plain interpreter lacks this operator (custom and Flex)."""
        return self.name.startswith("CUSTOM:")


@dataclasses.dataclass(frozen=True)
class Signature:
    """A named entry: its key, and which tensor of which graph each argument and result is."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """One subgraph of a model, operators in execution order. ``inputs`` and ``outputs`` are tensor indices."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    signatures: tuple[Signature, ...]

    def producers(self) -> dict[int, int]:
        """Tensor index to the index of the operator that writes it; constants and graph inputs are not in it."""
        return {tensor: operator.index for operator in self.operators for tensor in operator.outputs}

    def consumers(self) -> dict[int, list[int]]:
        """Tensor index to the indices of the operators that read it, in order, each once."""
        readers: dict[int, list[int]] = {}
        for operator in self.operators:
            for tensor in dict.fromkeys(operator.inputs):
                if tensor >= 0:
                    readers.setdefault(tensor, []).append(operator.index)
        return readers


def graph(model: Any, *, subgraph: int = 0) -> Graph:
    """Subgraph number ``subgraph`` of a ``ModelT`` as values; a snapshot, later changes of ``model`` do not show in it."""
    part = model.subgraphs[subgraph]
    operators = tuple(_operator(model, index, item) for index, item in enumerate(part.operators or []))
    inputs, outputs = _ints(part.inputs), _ints(part.outputs)
    written = {tensor for operator in operators for tensor in operator.outputs} | set(inputs)
    tensors = tuple(_tensor(model, index, item, index in written) for index, item in enumerate(part.tensors or []))
    return Graph(_text(part.name), tensors, operators, inputs, outputs, _signatures(model, subgraph))


def constant_value(model: Any, tensor: Tensor, *, subgraph: int = 0) -> np.ndarray | None:
    """The stored values of a constant tensor, in its shape; None when the tensor is not constant.

    A view into the model where the type allows it: treat it as read-only and replace the buffer to change it. int4 and int2 come as
    int8, uint4 as uint8 (one value an item), bfloat16 as float32. Raises :class:`UnsupportedModelError` for strings, float8,
    sparse and otherwise encoded data.
    """
    import numpy as np

    if not tensor.is_constant:
        return None
    raw = model.subgraphs[subgraph].tensors[tensor.index]
    if raw.sparsity is not None or tensor.dtype in ("string", "resource", "variant", "float8_e4m3fn", "float8_e5m2"):
        kind = "sparse" if raw.sparsity is not None else tensor.dtype
        raise UnsupportedModelError(f"tensor {tensor.name!r}: cannot read constant data that are {kind}")
    stored = model.buffers[raw.buffer].data
    data = (
        np.frombuffer(bytes(stored), np.uint8)
        if isinstance(stored, (bytes, list))
        else np.asarray(stored if stored is not None else [], np.uint8)
    )
    if tensor.dtype in ("int4", "uint4", "int2"):
        values = _unpack_bits(data, tensor)
    elif tensor.dtype == "bfloat16":
        values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = data.view(np.dtype(tensor.dtype).newbyteorder("<"))
    return values.reshape(tensor.shape)


def _unpack_bits(data: np.ndarray, tensor: Tensor) -> np.ndarray:
    """Values of less than a byte, lowest bits first, as the kernels unpack them."""
    import numpy as np

    count = _count(tensor.shape)
    if data.size == count:  # one value a byte: older writers did not pack
        return data.view(np.uint8 if tensor.dtype == "uint4" else np.int8)
    bits = 2 if tensor.dtype == "int2" else 4
    parts = np.stack([(data >> shift) & (2**bits - 1) for shift in range(0, 8, bits)], axis=-1).reshape(-1)[:count]
    if tensor.dtype == "uint4":
        return parts
    sign = 1 << (bits - 1)
    return ((parts ^ sign).astype(np.int16) - sign).astype(np.int8)


@functools.cache
def _builtin_names() -> dict[int, str]:
    from ai_edge_litert import schema_py_generated as schema

    return {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}


def operator_name(code: Any) -> str:
    """The word for an ``OperatorCodeT``, as in :class:`Operator`."""
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    return (
        f"CUSTOM:{_text(code.customCode)}" if number == _CUSTOM else _builtin_names().get(number, f"BUILTIN_{number}")
    )


def _operator(model: Any, index: int, item: Any) -> Operator:
    code = model.operatorCodes[item.opcodeIndex]
    name = operator_name(code)
    if name.startswith("CUSTOM:"):
        options = None if item.customOptions is None else bytes(item.customOptions)
    else:
        options = item.builtinOptions if item.builtinOptions is not None else item.builtinOptions2
    return Operator(index, name, code.version, _ints(item.inputs), _ints(item.outputs), options)


def _tensor(model: Any, index: int, item: Any, written: bool) -> Tensor:
    data = model.buffers[item.buffer].data
    shape = _ints(item.shape)
    stored = 0 if data is None else len(data)
    # A constant without elements (the shape of a scalar, for one) has no data; it is told by nobody writing it.
    constant = stored > 0 or (not written and not item.isVariable and 0 in shape)
    return Tensor(
        index=index,
        name=_text(item.name),
        shape=shape,
        dtype=type_word(item.type),
        quant=_quant(item.quantization),
        is_constant=constant,
        size_bytes=stored if constant else _size_bytes(item, shape),
        is_variable=bool(item.isVariable),
        shape_signature=_ints(item.shapeSignature) if item.shapeSignature is not None else None,
    )


def _quant(item: Any) -> Quant | None:
    import numpy as np

    details = _QUANT_DETAILS.get(item.detailsType, "") if item is not None else ""
    if item is None or (not details and (item.scale is None or len(item.scale) == 0)):
        return None
    scales = np.array([] if item.scale is None else item.scale, dtype=np.float32)
    zero_points = np.array([] if item.zeroPoint is None else item.zeroPoint, dtype=np.int64)
    if zero_points.size != scales.size:
        zero_points = np.resize(zero_points, scales.size) if zero_points.size else np.zeros(scales.size, np.int64)
    return Quant(scales, zero_points, int(item.quantizedDimension) if scales.size > 1 else None, details)


def _size_bytes(item: Any, shape: tuple[int, ...]) -> int | None:
    bits = item_bits(item.type)
    if not bits or min(shape, default=0) < 0:
        return None
    return (_count(shape) * bits + 7) // 8


def _signatures(model: Any, subgraph: int) -> tuple[Signature, ...]:
    def names(entries: Any) -> dict[str, int]:
        return {_text(entry.name): int(entry.tensorIndex) for entry in entries or []}

    return tuple(
        Signature(_text(item.signatureKey), int(item.subgraphIndex), names(item.inputs), names(item.outputs))
        for item in model.signatureDefs or []
        if item.subgraphIndex == subgraph
    )


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _ints(values: Any) -> tuple[int, ...]:
    return () if values is None else tuple(int(value) for value in values)


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value or ""
