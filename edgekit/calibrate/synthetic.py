"""Made-up inputs, for where only equality with the source is judged and no data were given. They calibrate nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.sources import Sample
from edgekit.calibrate.truths import Truth
from edgekit.values import IoSpec

COUNT = 16


class SyntheticData:
    """:data:`COUNT` samples from a seed: standard normal numbers for floats, zeros and ones for integers and booleans.

    Zeros and ones are valid where integers are indices or masks. A :class:`edgekit.calibrate.sources.Dataset`; sample ``k`` is the
    same whichever others are asked for.
    """

    def __init__(self, inputs: Sequence[IoSpec], *, seed: int) -> None:
        self.source = f"synthetic inputs, seed {seed}"
        self.labels: NDArray[np.int64] | None = None
        self.truth: Truth | None = None
        self.names: Sequence[str] | None = None
        self._inputs = tuple(inputs)
        self._seed = seed

    def __len__(self) -> int:
        return COUNT

    def iterate(self, indices: Sequence[int] | None = None) -> Iterator[Sample]:
        """The samples at ``indices``, or all."""
        for index in range(COUNT) if indices is None else indices:
            generator = np.random.default_rng((self._seed, index))
            yield {spec.name: _values(generator, spec) for spec in self._inputs}


def _values(generator: np.random.Generator, spec: IoSpec) -> NDArray[np.generic]:
    dtype = np.dtype(spec.source_dtype)
    if dtype == np.float32:
        return np.asarray(generator.standard_normal(spec.source_shape, np.float32), np.float32)
    if dtype.kind == "f":
        return np.asarray(generator.standard_normal(spec.source_shape)).astype(dtype)
    return np.asarray(generator.integers(0, 2, spec.source_shape)).astype(dtype)
