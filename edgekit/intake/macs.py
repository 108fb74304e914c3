"""Multiply-accumulates of one run of a model: what is counted, and what the answer looks like.

Conventions. One multiplication with its addition is one MAC (half of a FLOP count that counts both).

* Convolution: every output element times the kernel elements that feed it, padding included (as in the usual tables of networks);
  biases and activations are not counted. Grouped and depthwise kernels count their own inputs only.
* Transposed convolution: every *input* element times the kernel elements that it feeds.
* Matrix product, fully connected: M x N x K, times the batch.
* LSTM, GRU, RNN: the elements of all weight matrices, times steps, times batch; the element-wise rest of a cell is not counted.
* Everything element-wise, pooling, softmax, normalisation, data movement: 0.

The batch of the model counts. An operator whose shapes are not in the file, or for which there is no rule, makes the total unknown,
with the reason; it is never counted as 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

MacResult = int | str
"""A count, or the reason why there is none."""


@dataclasses.dataclass(frozen=True)
class UncountedOperator:
    """One operator that has no count, with the reason."""

    operator: str
    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class MacCount:
    """``total`` is None when there is any operator in ``uncounted``; ``counted`` is the sum without those."""

    total: int | None
    counted: int
    by_operator: Mapping[str, int]
    uncounted: tuple[UncountedOperator, ...]


def sum_up(results: Iterable[tuple[str, str, MacResult]]) -> MacCount:
    """The count from (operator kind, its name, result) of each operator."""
    by_operator: dict[str, int] = {}
    uncounted = []
    for operator, name, result in results:
        if isinstance(result, str):
            uncounted.append(UncountedOperator(operator, name, result))
        elif result:
            by_operator[operator] = by_operator.get(operator, 0) + result
    counted = sum(by_operator.values())
    ordered = dict(sorted(by_operator.items(), key=lambda item: -item[1]))
    return MacCount(None if uncounted else counted, counted, ordered, tuple(uncounted))


def product(sizes: Sequence[int]) -> int:
    """The number of elements of a shape; 1 for a scalar."""
    total = 1
    for size in sizes:
        total *= size
    return total
