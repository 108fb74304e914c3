"""Equalised forms of a float model: made from what its channels reach on calibration samples, and proven to compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite
from edgekit.quantize.layers import layers
from edgekit.rewrite import equalise, prune
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.accuracy import run
from edgekit.verify.measures import sqnr_db

EXPONENTS = (0.5, 1.0)
"""Half-way to equal ranges, and the whole way: which is better depends on the layers behind."""
EQUAL_DB = 100.0
"""What float arithmetic leaves between two orders of the same multiplications; a function that changed is far below."""
PROMISING_SHARE = 0.1
"""Where fewer of the layers have channels to equalise behind them (RELU6 forbids it), nothing comes of it that pays for the trial."""

Array = NDArray[Any]


def promising(path: Path) -> bool:
    """Whether enough of the float model at ``path`` can be equalised for it to matter."""
    model = tflite.read(path)
    return len(equalise.junctions(model)) >= PROMISING_SHARE * len(layers(model)) > 0


def largest_by_channel(model: FloatModel, inputs: Sequence[Sequence[Array]]) -> dict[str, Array]:
    """The largest magnitude of each channel over ``inputs`` (delivered layout), for each tensor that can be equalised."""
    found: dict[str, Array] = {}
    wanted = equalise.junctions(tflite.read(model.path))
    if not wanted:
        return found
    with open_backend(model.path, preserve_all_tensors=True) as backend:
        for sample in inputs:
            run(backend, sample)
            for junction in wanted:
                values = np.abs(backend.read_tensor(junction.tensor))
                reach = values.max(axis=tuple(range(values.ndim - 1)))
                found[junction.name] = np.maximum(found.get(junction.name, reach), reach)
    return found


def equalised(
    model: FloatModel, largest: dict[str, Array], inputs: Sequence[Sequence[Array]], *, exponent: float, to: Path
) -> tuple[FloatModel, tuple[str, ...]] | None:
    """The equalised model at ``to``, with what was changed; None where nothing was or the outputs are not the same."""
    graph = tflite.read(model.path)
    changes = equalise.apply(graph, largest, exponent=exponent)
    if not changes:
        return None
    prune.apply(graph)  # the weights as they were: the engine would carry them on
    tflite.write(graph, to)
    with open_backend(model.path) as before, open_backend(to) as after:
        for sample in inputs:
            for one, other in zip(run(before, sample), run(after, sample), strict=True):
                if sqnr_db(one, other) < EQUAL_DB:
                    return None
    return replace(model, path=to), changes
