"""A concrete TensorFlow function computed in another way than by its own kernels: in float64, or compiled as a whole by XLA."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

_MADE: Dict[Tuple[int, str], Any] = {}


def run(function: Any, tensors: Sequence[Any], way: str) -> List[Any]:
    """The results of ``function`` (a concrete function, kept by its caller) for ``tensors``, ``way`` being "float64" or "compiled".

    Raises what TensorFlow raises where an operator has no such kernel.
    """
    import tensorflow as tf

    key = (id(function), way)
    if way == "compiled":
        if key not in _MADE:
            _MADE[key] = tf.function(lambda *given: function(*given), jit_compile=True, autograph=False)
        return list(_MADE[key](*tensors))
    if key not in _MADE:
        _MADE[key] = in_float64(function)
    wide = [tf.cast(tensor, tf.float64) if tensor.dtype.is_floating else tensor for tensor in tensors]
    results = _MADE[key](*wide)
    return list(results if isinstance(results, (list, tuple)) else [results])


def in_float64(function: Any) -> Any:
    """The frozen graph of ``function`` with float64 wherever it has float32, as a concrete function."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(function)
    graph = frozen.graph.as_graph_def()
    if graph.library.function:
        raise ValueError("control flow and functions of its own are not widened")
    for node in graph.node:
        for item in node.attr.values():
            if item.type == tf.float32.as_datatype_enum:
                item.type = tf.float64.as_datatype_enum
            if item.HasField("tensor") and item.tensor.dtype == tf.float32.as_datatype_enum:
                values = tf.make_ndarray(item.tensor).astype("float64")
                item.tensor.CopyFrom(tf.make_tensor_proto(values))
    names = [[tensor.name for tensor in ends] for ends in (frozen.inputs, frozen.outputs)]

    def imported() -> None:
        tf.import_graph_def(graph, name="")

    wrapped = tf.compat.v1.wrap_function(imported, [])
    return wrapped.prune(*([wrapped.graph.get_tensor_by_name(name) for name in named] for named in names))
