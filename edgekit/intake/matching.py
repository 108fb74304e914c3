"""Tensors of a float model recognised by what they hold: equal to a value of the source on several samples, in the order of both graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.intake import tflite
from edgekit.intake.layout import delivered, permutations, permuted
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.measures import sqnr_db

Array = NDArray[Any]
MATCHING_SAMPLES = 2
EQUAL_DB = 60.0
"""Rounding in float32 stays above it, another value does not reach it."""
_LIKE = 1e-2
"""Relative difference of norms beyond which values are not looked at closely."""


def inner_tensors(made: FloatModel, sample: Mapping[str, Array], only: Iterable[int] | None = None) -> dict[int, Array]:
    """What each tensor that an operator of ``made`` writes holds for ``sample``, by tensor index, in the operators' order."""
    graph = tflite.graph_of(made.path)
    wanted = set(graph.producers() if only is None else only)
    # Without the delegate, since with it intermediate results are never written.
    with open_backend(made.path, delegate=False, preserve_all_tensors=True) as backend:
        for position, spec in enumerate(made.inputs):
            backend.set_input(position, delivered(sample[spec.name], spec))
        backend.invoke()
        order = [tensor for operator in graph.operators for tensor in operator.outputs if tensor in wanted]
        return {tensor: np.array(backend.read_tensor(tensor)) for tensor in order}


def by_value(
    tensors: Sequence[Mapping[int, Array]], values: Sequence[Mapping[str, Array]], *, known: Mapping[int, str]
) -> dict[int, str]:
    """Tensor index to the name of the source's value that it holds, beside those ``known`` already.

    Both are given for the same samples, in the order of their graphs. Equal on every sample with one order of axes; of several equal
    values (an Identity, a ReLU that changes nothing) the first in order that no earlier tensor has. Values that are the same in every place or for every sample say nothing and are left out.
    """
    if not tensors or len(tensors) != len(values):
        return {}
    shelves: dict[tuple[int, ...], list[tuple[str, float]]] = defaultdict(list)
    for name, value in values[0].items():
        if _telling(value, [sample.get(name) for sample in values[1:]]):
            shelves[_kind(value)].append((name, _norm(value)))
    found, taken = {}, set(known.values())
    for tensor, value in tensors[0].items():
        if tensor in known:
            continue
        norm = _norm(value)
        for name, other in shelves.get(_kind(value), ()):
            near = abs(norm - other) <= _LIKE * max(norm, other)
            if (
                near
                and name not in taken
                and _same([(v[name], t[tensor]) for v, t in zip(values, tensors, strict=True)])
            ):
                found[tensor] = name
                taken.add(name)
                break
    return found


def equal_values(
    tensors: Sequence[Mapping[int, Array]], values: Sequence[Mapping[str, Array]], limit_db: float
) -> set[str]:
    """The source's values that some tensor holds on every sample, to ``limit_db``."""
    shelves: dict[tuple[int, ...], list[tuple[int, float]]] = defaultdict(list)
    for tensor, value in tensors[0].items():
        shelves[_kind(value)].append((tensor, _norm(value)))
    found = set()
    for name, value in values[0].items():
        norm = _norm(value)
        for tensor, other in shelves.get(_kind(value), ()):
            near = abs(norm - other) <= _LIKE * max(norm, other)
            pairs = [(v[name], t[tensor]) for v, t in zip(values, tensors, strict=True)]
            if near and _same(pairs, limit_db):
                found.add(name)
                break
    return found


def _kind(value: Array) -> tuple[int, ...]:
    return tuple(sorted(value.shape))


def _norm(value: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.sum(np.square(value.astype(np.float64)))))


def _telling(value: Array, others: Sequence[Array | None]) -> bool:
    varies = value.size > 1 and bool(np.any(value != value.flat[0]))
    return varies and all(other is not None and not np.array_equal(value, other) for other in others)


def _same(pairs: Sequence[tuple[Array, Array]], limit_db: float = EQUAL_DB) -> bool:
    wanted, got = pairs[0]
    return any(
        all(sqnr_db(permuted(one, order, other.shape), other) >= limit_db for one, other in pairs)
        for order in permutations(wanted.shape, got.shape)
    )
