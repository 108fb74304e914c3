"""The few moves that every pass makes: a constant added, a kind of operator found or listed, a name that nobody has yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from edgekit.intake.tflite import ModelT
from edgekit.intake.tflite_types import type_number


def add_tensor(model: ModelT, name: str, shape: Sequence[int], dtype: str, *, data: Any = None) -> int:
    """The index of a new tensor in the main graph; ``data`` (an array of that dtype) makes it a constant."""
    from ai_edge_litert import schema_py_generated as schema

    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type = name, [int(size) for size in shape], type_number(dtype)
    tensor.buffer = 0 if data is None else add_buffer(model, data)
    tensors = model.subgraphs[0].tensors
    tensors.append(tensor)
    return len(tensors) - 1


def add_buffer(model: ModelT, data: Any) -> int:
    """The index of a new buffer with the bytes of the array ``data``."""
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    buffer = schema.BufferT()
    # No sharing with the file that was read: a pass may change the values later.
    buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def operator_code(model: ModelT, kind: str, version: int = 1) -> int:
    """The index of the entry for operators of ``kind`` (the schema's word) of at least ``version``; added where there is none."""
    from ai_edge_litert import schema_py_generated as schema

    number = getattr(schema.BuiltinOperator, kind)
    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == number and code.version >= version:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.version = number, version
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def new_operator(model: ModelT, kind: str, inputs: Sequence[int], outputs: Sequence[int], *, version: int = 1) -> Any:
    """An operator without options, for the caller to put where it belongs."""
    from ai_edge_litert import schema_py_generated as schema

    operator = schema.OperatorT()
    operator.opcodeIndex = operator_code(model, kind, version)
    operator.inputs, operator.outputs = list(inputs), list(outputs)
    return operator


def text(name: bytes | str | None) -> str:
    """A name of the file as text; "" for none."""
    return name.decode("utf-8", errors="replace") if isinstance(name, bytes) else name or ""


def unused_name(wanted: str, taken: Collection[str]) -> str:
    """``wanted``, or ``wanted_2``, ``wanted_3``, ...: the first that is not ``taken``."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name
