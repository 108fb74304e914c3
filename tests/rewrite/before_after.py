"""Running a model in the interpreter before and after a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite
from edgekit.runtime.backend import open_backend


def outputs_of(model: Any, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """What the interpreter computes, without delegates."""
    with open_backend(tflite.serialize(model), threads=1, delegate=False) as backend:
        for position, value in enumerate(inputs):
            backend.set_input(position, np.asarray(value))
        backend.invoke()
        return [backend.get_output(position) for position in range(len(backend.outputs))]


def reread(model: Any) -> Any:
    """The model as a file would give it back."""
    return tflite.read(tflite.serialize(model))


def kinds(model: Any) -> list[str]:
    """The operators in order."""
    return [operator.name for operator in tflite.graph(model).operators]
