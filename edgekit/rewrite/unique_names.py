"""Every tensor has a name of its own: the int8 engine, the ranges and the report find tensors by name."""

from __future__ import annotations

from edgekit.intake.tflite import ModelT
from edgekit.rewrite.edit import text, unused_name


def apply(model: ModelT) -> tuple[str, ...]:
    """Empty names become ``tensor_7`` (its number), repeated ones get ``_2``, ``_3``, ... behind them.

    Inputs and outputs choose first, so they keep the names that the user knows.
    """
    graph = model.subgraphs[0]
    ends = [*(graph.inputs or []), *(graph.outputs or [])]
    order = dict.fromkeys([*(int(index) for index in ends), *range(len(graph.tensors))])
    given = {text(tensor.name) for tensor in graph.tensors}
    taken: set[str] = set()
    changes = []
    for index in order:
        tensor = graph.tensors[index]
        before = text(tensor.name)
        name = before
        if not before or before in taken:
            # A name made up here must not be one that another tensor brings along.
            name = unused_name(before or f"tensor_{index}", taken | given)
            changes.append(
                f"tensor {index}, named {before!r} like others, is {name!r}"
                if before
                else f"tensor {index} had no name and is {name!r}"
            )
        taken.add(name)
        tensor.name = name
    return tuple(changes)
