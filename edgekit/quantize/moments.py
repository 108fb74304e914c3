"""What the inputs of each layer are like: their second moments, from random positions of some samples of the float model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.quantize.layers import Layer
from edgekit.runtime.backend import Backend

POSITIONS = 24
"""Output positions of a layer whose inputs are multiplied out in each sample; the mean is over all positions."""
_PENDING = 200_000
"""Values gathered before they are multiplied out: matrices of some height multiply fast."""
BUDGET_BYTES = 32_000_000
"""Memory for moments at a time; larger models take several rounds over the samples."""
LARGEST = 2600
"""Columns from which on a layer has too large a matrix: it keeps its plainly rounded weights, and a corrected bias."""

Array = NDArray[Any]


class Moments:
    """Mean and second moments of a layer's input vectors; of more than :data:`LARGEST` columns only the mean."""

    def __init__(self, layer: Layer, *, seed: int) -> None:
        self.layer = layer
        self.whole = layer.columns <= LARGEST
        self._products = np.zeros((layer.blocks, layer.columns, layer.columns) if self.whole else 0, np.float32)
        self._sums = np.zeros((layer.blocks, layer.columns))
        self._count = 0
        self._means = np.zeros((layer.blocks, layer.columns))
        self._samples = 0
        self._random = np.random.default_rng(seed)
        self._pending: list[Array] = []

    def look(self, values: Array) -> None:
        """Take in the layer's input for one sample."""
        self._means += self.layer.mean_input(values)
        self._samples += 1
        if not self.whole:
            return
        count = self.layer.positions(values)
        chosen = None if count <= POSITIONS else np.sort(self._random.choice(count, POSITIONS, replace=False))
        self._pending.append(self.layer.inputs(values, chosen))
        if sum(part.size for part in self._pending) >= _PENDING:
            self.finish()

    def finish(self) -> None:
        """Multiply out what is waiting."""
        if self._pending:
            x = np.concatenate(self._pending, axis=1)  # float32: the damping is far above what it loses
            self._products += x.transpose(0, 2, 1) @ x
            self._sums += x.sum(axis=1, dtype=np.float64)
            self._count += x.shape[1]
            self._pending = []

    @property
    def mean(self) -> Array:
        """The mean input vector over all positions, (blocks, columns)."""
        mean: Array = self._means / max(self._samples, 1)
        return mean

    @property
    def matrix(self) -> Array:
        """``E[x x^T]`` of input vectors with a 1 behind them, (blocks, columns + 1, columns + 1).

        The covariance is that of the random positions, the mean that of all.
        """
        size, some, mean = self.layer.columns, self._sums / self._count, self.mean
        matrix = np.ones((self.layer.blocks, size + 1, size + 1))
        matrix[:, :size, :size] = self._products / self._count
        matrix[:, :size, :size] += mean[:, :, None] * mean[:, None, :] - some[:, :, None] * some[:, None, :]
        matrix[:, :size, size] = matrix[:, size, :size] = mean
        return matrix


def rounds(layers: Sequence[Layer]) -> Iterator[tuple[Layer, ...]]:
    """The layers in parts whose moments fit into :data:`BUDGET_BYTES` together."""
    part: list[Layer] = []
    used = 0
    for layer in layers:
        size = 4 * layer.blocks * layer.columns * (layer.columns if layer.columns <= LARGEST else 1)
        if part and used + size > BUDGET_BYTES:
            yield tuple(part)
            part, used = [], 0
        part.append(layer)
        used += size
    if part:
        yield tuple(part)


def gather(
    backend: Backend, layers: Sequence[Layer], samples: Iterable[Sequence[Array]], *, seed: int
) -> list[Moments]:
    """The moments of ``layers`` over ``samples`` (inputs in delivered layout); ``backend`` keeps all its tensors."""
    found = [Moments(layer, seed=seed + layer.output) for layer in layers]
    for inputs in samples:
        for position, value in enumerate(inputs):
            backend.set_input(position, value)
        backend.invoke()
        read: dict[int, Array] = {}
        for moments in found:
            index = moments.layer.data
            if index not in read:
                read[index] = backend.read_tensor(index)
            moments.look(read[index])
    for moments in found:
        moments.finish()
    return found
