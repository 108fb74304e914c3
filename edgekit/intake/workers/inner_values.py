"""Every value inside a TensorFlow function on one sample, with the graph that connects them: what finding a faulty layer needs."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

MOST_BYTES = 400_000_000
"""Values beyond that are left out, the largest ones first."""
_KINDS = ("float", "int", "uint", "bool")


def describe(function: Any, tensors: Sequence[Any], results: str) -> List[Dict[str, Any]]:
    """The nodes of the frozen graph of ``function`` in order of computation: ``{"name", "operator", "reads": [names of nodes], "array": key
    or None}``; the arrays are written to ``results`` (NPZ). Inputs are nodes of operator "Placeholder" in order.
    """
    import numpy as np
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(function)
    live = {tensor.op.name for tensor in frozen.inputs}
    nodes, wanted = [], []
    for operation in frozen.graph.get_operations():
        reads = [tensor.op.name for tensor in operation.inputs]
        if operation.name not in live and not live.intersection(reads):
            continue
        live.add(operation.name)
        node = {"name": operation.name, "operator": operation.type, "reads": [r for r in reads if r in live]}
        nodes.append({**node, "array": None})
        if operation.outputs and operation.outputs[0].dtype.name.startswith(_KINDS):
            wanted.append((len(nodes) - 1, operation.outputs[0]))
    pruned = frozen.prune([tensor.name for tensor in frozen.inputs], [tensor.name for _, tensor in wanted])
    values = {position: value.numpy() for (position, _), value in zip(wanted, pruned(*tensors), strict=True)}
    room, kept = MOST_BYTES, {}
    for position, value in sorted(values.items(), key=lambda item: item[1].nbytes):
        room -= value.nbytes
        if room < 0:
            break
        nodes[position]["array"] = key = f"v{position}"
        kept[key] = value
    np.savez(results, **kept)
    return nodes
