"""What the calibration samples were, in one number, and whether they were more than one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

from edgekit.calibrate.sources import Sample
from edgekit.errors import DataError


class Fingerprint:
    """Counts and hashes the samples that pass through :meth:`over`."""

    def __init__(self) -> None:
        self._everything = hashlib.sha256()
        self._distinct: set[bytes] = set()
        self._count = 0

    def over(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """``samples``, one by one, unchanged."""
        for sample in samples:
            content = b"".join(name.encode() + np.ascontiguousarray(sample[name]).tobytes() for name in sorted(sample))
            self._everything.update(content)
            self._distinct.add(hashlib.blake2b(content, digest_size=16).digest())
            self._count += 1
            yield sample

    @property
    def digest(self) -> str:
        """sha256 over all samples in order, the inputs of each in name order, each as its name and its bytes."""
        return self._everything.hexdigest()

    def refuse_repetition(self) -> None:
        """Raises DataError when there were several samples and all of them the same: a camera that hangs, a copied file."""
        if self._count > 1 and len(self._distinct) == 1:
            raise DataError(
                f"all {self._count} calibration samples are the same one",
                hint="calibrate with real inputs: photos, recordings or readings as the model will meet them",
                code="data_constant",
            )
