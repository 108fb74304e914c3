"""Open sizes fixed in the file: inputs get the sizes asked for, and every tensor behind them the size that it then has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.intake import tflite
from edgekit.runtime.backend import open_backend


def set_inputs(model: tflite.ModelT, shapes: Mapping[int, Sequence[int]]) -> None:
    """Writes ``shapes`` (by tensor index) into the inputs and takes the mark of an open size from every tensor.

    An interpreter derives the sizes behind the inputs itself when it loads the file; whether the network works with these sizes
    has to be found out by running it.
    """
    for index, shape in shapes.items():
        model.subgraphs[0].tensors[index].shape = [int(size) for size in shape]
    for tensor in model.subgraphs[0].tensors:
        tensor.shapeSignature = None


def record(model: tflite.ModelT, path: Path) -> tuple[str, ...]:
    """Gives every computed tensor of ``model`` the shape that it really has; ``path`` is the same model as a file that runs.

    The interpreter is asked after one inference on zeros: it knows the sizes that are computed only then.
    """
    import numpy as np

    graph = tflite.graph(model)
    with open_backend(path, threads=1, delegate=False, preserve_all_tensors=True) as backend:
        for position, detail in enumerate(backend.inputs):
            backend.set_input(position, np.zeros(detail.shape, detail.dtype))
        backend.invoke()
        shapes = {detail.index: detail.shape for detail in backend.tensor_details()}
    changed = 0
    for operator in graph.operators:
        for index in operator.outputs:
            shape = shapes.get(index)
            if shape is not None and shape != graph.tensors[index].shape:
                model.subgraphs[0].tensors[index].shape = list(shape)
                changed += 1
    return (f"{changed} tensors behind the inputs have their own size now",) if changed else ()
