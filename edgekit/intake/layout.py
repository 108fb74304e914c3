"""Which axes went where: the permutation between the source's inputs and outputs and the delivered ones, decided by running both.

Shapes alone cannot decide: where channels, height and width are equal every order fits. So each order that the shapes allow is
tried on the same real inputs, and the one whose results equal the source's is taken.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import DataError, ParityError
from edgekit.runtime.backend import Backend
from edgekit.values import IoSpec
from edgekit.verify.measures import equal_non_finite_cleared, sqnr_db

Sample = Mapping[str, NDArray[Any]]
Permutation = tuple[int, ...] | None


def permutations(source: Sequence[int], delivered: Sequence[int]) -> list[Permutation]:
    """The orders a converter may have chosen and that fit the shapes: as it was (None), channels to the end, channels to the front.

    A single value fits whatever the number of axes: converters make a scalar a list of one.
    """
    rank = len(source)
    if all(size == 1 for size in (*source, *delivered)):
        return [None]
    if rank != len(delivered):
        return []
    orders: list[tuple[int, ...]] = [tuple(range(rank))]
    if rank >= 3:
        orders += [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    fitting = [order for order in dict.fromkeys(orders) if tuple(source[axis] for axis in order) == tuple(delivered)]
    return [None if order == tuple(range(rank)) else order for order in fitting]


def permuted(array: NDArray[Any], permutation: Permutation, shape: Sequence[int] | None = None) -> NDArray[Any]:
    """``array`` in the delivered order, contiguous. ``shape`` is the delivered one: a single value gets its number of axes."""
    ordered = np.ascontiguousarray(array if permutation is None else array.transpose(permutation))
    return ordered.reshape(shape) if shape is not None and array.size == 1 else ordered


def delivered(array: NDArray[Any], spec: IoSpec) -> NDArray[Any]:
    """A source array as the delivered tensor takes it: in its order of axes and its dtype.

    Converters store float16 and float64 inputs as float32, and wide integers as int32. Raises DataError for an integer that does not
    fit into the narrower type.
    """
    ordered = permuted(array, spec.permutation, spec.shape)
    if ordered.dtype.name == spec.dtype:
        return ordered
    converted = ordered.astype(spec.dtype)
    if ordered.dtype.kind in "iu" and not np.array_equal(converted, ordered):
        raise DataError(
            f"input {spec.name!r} holds {int(np.abs(ordered).max())}, which does not fit into the {spec.dtype} of the converted model"
        )
    return converted


def match(
    backend: Backend,
    inputs: Sequence[IoSpec],
    outputs: Sequence[IoSpec],
    samples: Sequence[Sample],
    references: Sequence[Sample],
) -> tuple[tuple[IoSpec, ...], tuple[IoSpec, ...]]:
    """``inputs`` and ``outputs`` with their permutations filled in.

    ``samples`` and ``references`` are the source's inputs and outputs by name, in source layout. Raises ParityError when a shape
    fits no known order; whether the best order is good enough is judged by the parity stage, not here.
    """
    choices = [_choices("input", spec) for spec in inputs]
    output_choices = [_choices("output", spec) for spec in outputs]
    combinations = list(itertools.product(*choices))
    scored = [
        _score(backend, inputs, outputs, combination, output_choices, samples, references)
        for combination in combinations
    ]
    best = max(range(len(combinations)), key=lambda i: (scored[i][0], -i))
    return (
        tuple(dataclasses.replace(s, permutation=p) for s, p in zip(inputs, combinations[best], strict=True)),
        tuple(dataclasses.replace(s, permutation=p) for s, p in zip(outputs, scored[best][1], strict=True)),
    )


def _choices(what: str, spec: IoSpec) -> list[Permutation]:
    kinds = [np.dtype(word).kind.replace("u", "i") for word in (spec.source_dtype, spec.dtype)]
    if kinds[0] != kinds[1]:
        raise ParityError(
            f"{what} {spec.name!r} is {spec.source_dtype} in the source and {spec.dtype} in the converted model"
        )
    found = permutations(spec.source_shape, spec.shape)
    if not found:
        raise ParityError(
            f"{what} {spec.name!r} has shape {list(spec.source_shape)} in the source and {list(spec.shape)} in the converted model: "
            "no order of axes leads from one to the other",
            details={"name": spec.name, "source": list(spec.source_shape), "converted": list(spec.shape)},
        )
    return found


def require_shape(got: NDArray[Any], spec: IoSpec) -> None:
    """Raises ParityError when an output has another shape once the model has run than its file says."""
    if got.shape != tuple(spec.shape) and not got.size == math.prod(spec.shape) == 1:
        raise ParityError(
            f"output {spec.name!r} of the converted model says that its shape is {list(spec.shape)}, and it gives {list(got.shape)}",
            details={"name": spec.name, "source": list(spec.source_shape), "converted": list(got.shape)},
        )


def _score(
    backend: Backend,
    inputs: Sequence[IoSpec],
    outputs: Sequence[IoSpec],
    combination: Sequence[Permutation],
    output_choices: Sequence[Sequence[Permutation]],
    samples: Sequence[Sample],
    references: Sequence[Sample],
) -> tuple[float, list[Permutation]]:
    """The worst SQNR over all outputs with their best orders, and those orders."""
    totals = [np.zeros(len(choices)) for choices in output_choices]
    for sample, reference in zip(samples, references, strict=True):
        for position, (spec, order) in enumerate(zip(inputs, combination, strict=True)):
            backend.set_input(position, delivered(sample[spec.name], dataclasses.replace(spec, permutation=order)))
        backend.invoke()
        for position, (spec, orders) in enumerate(zip(outputs, output_choices, strict=True)):
            got = backend.get_output(position)
            require_shape(got, spec)
            ratios = [
                sqnr_db(*equal_non_finite_cleared(permuted(reference[spec.name], order, got.shape), got))
                for order in orders
            ]
            totals[position] += np.clip(ratios, -300.0, 300.0)  # one exact sample must not outweigh all others
    best = [int(np.argmax(total)) for total in totals]
    chosen = [choices[i] for choices, i in zip(output_choices, best, strict=True)]
    return min((float(total[i]) for total, i in zip(totals, best, strict=True)), default=0.0), chosen
