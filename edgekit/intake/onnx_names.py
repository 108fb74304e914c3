"""Names that every converter keeps: in the private copy, values and nodes whose names hold other characters get plain ones.

TensorFlow refuses node names such as ``Softmax@0`` as scopes, and converters replace characters such as ``:`` in their own ways, after
which an input cannot be found by its name. So edgekit renames before, and knows the way back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_OTHER = re.compile(r"[^A-Za-z0-9_./-]")


def is_plain(model: Any) -> bool:
    """Whether nothing in ``model`` (a ``ModelProto``) needs another name."""
    graphs = list(_graphs(model.graph))
    names = [name for graph in graphs for name in _value_names(graph)] + [n.name for g in graphs for n in g.node]
    return not any(_OTHER.search(name) for name in names)


def make_plain(model: Any) -> dict[str, str]:
    """Renames in ``model`` (changed in place) what needs it; returns the new name of each input and output.

    Two names never become one. Names without special characters stay, so that a report speaks of the author's own tensors.
    """
    values = dict.fromkeys(name for graph in _graphs(model.graph) for name in _value_names(graph))
    renamed = _plain(values)
    for graph in _graphs(model.graph):
        _rename_values(graph, renamed)
    nodes = [node for graph in _graphs(model.graph) for node in graph.node]
    node_names = _plain(dict.fromkeys(node.name for node in nodes))
    for node in nodes:
        if node.name:
            node.name = node_names[node.name]
    ends = {after: before for before, after in renamed.items()}
    return {ends[info.name]: info.name for info in (*model.graph.input, *model.graph.output)}


def _plain(names: dict[str, None]) -> dict[str, str]:
    taken = {name for name in names if not _OTHER.search(name)}
    renamed = {name: name for name in taken}
    for name in names:
        if name in renamed:
            continue
        wanted = candidate = _OTHER.sub("_", name)
        count = 1
        while candidate in taken:
            count += 1
            candidate = f"{wanted}_{count}"
        taken.add(candidate)
        renamed[name] = candidate
    return renamed


def _graphs(graph: Any) -> Iterator[Any]:
    """``graph`` and the bodies of its If, Loop and Scan nodes, which share its values."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _graphs(body)


def _value_names(graph: Any) -> Iterator[str]:
    for info in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield info.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name
    for node in graph.node:
        yield from node.input
        yield from node.output


def _rename_values(graph: Any, renamed: dict[str, str]) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        info.name = renamed[info.name]
    for sparse in graph.sparse_initializer:
        sparse.values.name = renamed[sparse.values.name]
    for node in graph.node:
        node.input[:] = [renamed[name] for name in node.input]
        node.output[:] = [renamed[name] for name in node.output]
