"""Do the parts of an ONNX model fit together? The contradictions that a damaged file shows.

Not ``onnx.checker``: that one also refuses models that every runtime accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.intake.onnx_external import all_tensors

_BITS = {  # onnx.TensorProto.DataType: bits of one item in raw_data
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
    17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2,
}  # fmt: skip
_STRING = 8


def first_problem(model: Any) -> str:
    """The first contradiction in ``model`` (a ``ModelProto``) in words, or "" when there is none."""
    for tensor in all_tensors(model):
        problem = _tensor_problem(tensor)
        if problem:
            return problem
    for strings in _all_strings(model):
        for item in strings:
            if isinstance(item, bytes):  # protobuf hands out bytes where a text is no UTF-8
                return f"a name is no UTF-8 text: {item[:60]!r}"
    return next(_graph_problems(model.graph, frozenset()), "")


def stored_bytes(tensor: Any) -> int:
    """The size of a tensor's values: elements times bits, in whole bytes; the characters of strings."""
    if tensor.data_type == _STRING:
        return sum(len(item) for item in tensor.string_data)
    count = 1
    for size in tensor.dims:
        count *= size
    return (count * _BITS.get(tensor.data_type, 0) + 7) // 8


def bits_of_word(word: str) -> int:
    """Bits of one item of the type that :func:`edgekit.intake.onnx_reader.dtype_word` calls ``word``; 0 where that is not fixed."""
    import onnx

    spelled = {"float32": "float", "float64": "double"}.get(word, word).upper()
    return (
        _BITS.get(int(onnx.TensorProto.DataType.Value(spelled)), 0)
        if spelled in list(onnx.TensorProto.DataType.keys())
        else 0
    )


def _tensor_problem(tensor: Any) -> str:
    if any(size < 0 for size in tensor.dims):
        return f"tensor {tensor.name!r} has the impossible shape {list(tensor.dims)}"
    if tensor.data_type == _STRING or tensor.data_location == tensor.EXTERNAL:
        return ""
    bits = _BITS.get(tensor.data_type)
    if bits is None:
        return f"tensor {tensor.name!r} has the unknown type number {tensor.data_type}"
    count = 1
    for size in tensor.dims:
        count *= size
    if tensor.HasField("raw_data"):
        needed = (count * bits + 7) // 8
        if len(tensor.raw_data) != needed:
            return f"tensor {tensor.name!r} of shape {list(tensor.dims)} needs {needed:,} bytes, but has {len(tensor.raw_data):,}"
    elif count and not _typed_items(tensor):
        return f"tensor {tensor.name!r} of shape {list(tensor.dims)} has no values"
    return ""


def _typed_items(tensor: Any) -> int:
    return sum(
        len(values)
        for values in (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    )


def _all_strings(model: Any) -> Iterator[tuple[Any, ...]]:
    """The texts that programs look at: names, kinds, domains, symbols."""
    yield from ((item.domain,) for item in model.opset_import)
    yield model.producer_name, model.producer_version, model.graph.name
    for function in model.functions:
        yield function.name, function.domain, *function.input, *function.output, *function.attribute
        for node in function.node:
            yield from _node_strings(node)
    yield from _graph_strings(model.graph)


def _graph_strings(graph: Any) -> Iterator[tuple[Any, ...]]:
    yield from ((tensor.name,) for tensor in graph.initializer)
    for info in [*graph.input, *graph.output, *graph.value_info]:
        yield info.name, *(dim.dim_param for dim in info.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from _node_strings(node)


def _node_strings(node: Any) -> Iterator[tuple[Any, ...]]:
    yield node.op_type, node.name, node.domain, *node.input, *node.output
    for attribute in node.attribute:
        yield attribute.name, attribute.ref_attr_name
        for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            yield from _graph_strings(body)


def _graph_problems(graph: Any, outer: frozenset[str]) -> Iterator[str]:
    """Values that are read before they exist or are written twice: ONNX lists nodes in execution order."""
    known = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    for index, node in enumerate(graph.node):
        where = f"operator {index} ({node.op_type or 'without a kind'})"
        if not node.op_type:
            yield f"{where} at {node.name!r}"
        for name in node.input:
            if name and name not in known and name not in outer:
                yield f"{where} reads {name!r}, which nothing before it writes"
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _graph_problems(inner, outer | known)
        for name in node.output:
            if name and name in known:
                yield f"{where} writes {name!r}, which exists already"
            known.add(name)
    for info in graph.output:
        if info.name not in known and info.name not in outer:
            yield f"nothing writes the output {info.name!r}"
