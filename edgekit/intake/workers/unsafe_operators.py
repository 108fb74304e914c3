"""Operators of a TensorFlow graph that touch files, the network or Python: found before anything is executed."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Set

from refusal import Refused

_UNSAFE = re.compile(
    r"PyFunc|ReadFile|WriteFile|MatchingFiles|^Save|Restore|MergeV2Checkpoints|Reader|Writer|TextFile|Dataset|Rpc|^Debug|"
    r"Summary|^Xla(Host|Send|Recv)"
)
_RUN_BY_LOADING = ("_create_resource", "_initialize", "_destroy_resource")
"""Functions of the objects in a SavedModel that TensorFlow calls when it loads or lets go of them."""
_INITIALISERS = ("saved_model_init_op", "saved_model_main_op", "legacy_init_op")


def refuse(operators: Iterable[str]) -> None:
    """Raises Refused when one of these kinds of operators reaches out of the graph."""
    unsafe = sorted({kind for kind in operators if _UNSAFE.search(kind)})
    if unsafe:
        raise Refused(
            "unsupported",
            f"its graph reads or writes files, or calls Python: {', '.join(unsafe)}",
            "export the network without them; edgekit does not run them",
            "model_unsafe",
            operators=unsafe,
        )


def of_graph(graph: Any) -> Set[str]:
    """Every kind of operator in a GraphDef and the functions that it brings."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    return {node.op for body in bodies for node in body}


def run_by_loading(meta: Any) -> Set[str]:
    """Every kind of operator that is executed while this MetaGraphDef is loaded, before any signature is called.

    The functions that save and restore checkpoints are in the file too, and are not called: TensorFlow restores variables itself.
    """
    wanted = [name for key in _INITIALISERS if key in meta.collection_def for name in _names(meta.collection_def[key])]
    wanted += [info.name for key, info in meta.signature_def.items() if key.startswith("__") for info in _outputs(info)]
    nodes = {node.name: node for node in meta.graph_def.node}
    found: Set[str] = set()
    called = list(_functions_of_objects(meta.object_graph_def.nodes))
    seen: Set[str] = set()
    while wanted:
        name = wanted.pop().lstrip("^").split(":")[0]
        if name in nodes and name not in seen:
            seen.add(name)
            found.add(nodes[name].op)
            wanted.extend(nodes[name].input)
            called.extend(_called(nodes[name]))
    return found | _of_functions(meta, called)


def _names(collection: Any) -> List[str]:
    return [*collection.node_list.value, *(value.decode(errors="replace") for value in collection.bytes_list.value)]


def _outputs(signature: Any) -> List[Any]:
    return list(signature.outputs.values())


def _functions_of_objects(objects: Sequence[Any]) -> Iterator[str]:
    chosen = {child.node_id for item in objects for child in item.children if child.local_name in _RUN_BY_LOADING}
    chosen |= {saveable.restore_function for item in objects for saveable in item.saveable_objects.values()}
    for number in chosen:
        if 0 <= number < len(objects):
            yield from objects[number].function.concrete_functions
            yield objects[number].bare_concrete_function.concrete_function_name


def _of_functions(meta: Any, called: List[str]) -> Set[str]:
    functions: Dict[str, Any] = {one.signature.name: one.node_def for one in meta.graph_def.library.function}
    found: Set[str] = set()
    seen: Set[str] = set()
    while called:
        name = called.pop()
        if name in functions and name not in seen:
            seen.add(name)
            for node in functions[name]:
                found.add(node.op)
                called.extend(_called(node))
    return found


def _called(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
