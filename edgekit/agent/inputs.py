"""What the model is fed while it is timed: the bundle's golden inputs, or seeded random values that are valid for its tensors."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from edgekit.errors import DataError
from edgekit.runtime.backend import Backend, TensorDetail
from edgekit.runtime.golden import golden_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANDOM_SAMPLES = 4


@dataclasses.dataclass(frozen=True)
class Feed:
    """``samples[k][position]`` is an array in the tensor's own dtype and shape; ``kind`` is "golden" or "random".

    ``note`` says why random values were taken where golden ones were asked for.
    """

    kind: str
    samples: Tuple[Tuple[NDArray[Any], ...], ...]
    note: str = ""


def choose_feed(backend: Backend, *, golden: Optional[str], names: Mapping[str, str], seed: int) -> Feed:
    """Golden inputs from the ``.npz`` at ``golden`` where they fit this model, else random ones.

    ``names`` maps tensor names to the names that the golden file uses.
    """
    if golden is None:
        return random_feed(backend, seed=seed)
    try:
        return golden_feed(backend, golden=golden, names=names)
    except DataError as error:
        random = random_feed(backend, seed=seed)
        return dataclasses.replace(random, note=f"golden inputs do not fit: {error.message}")


def golden_feed(backend: Backend, *, golden: str, names: Mapping[str, str]) -> Feed:
    """The ``input/NAME`` arrays of a bundle's ``golden.npz``: real numbers in the delivered layout, first axis the pairs."""
    return Feed("golden", golden_samples(backend, golden=golden, names=names))


def random_feed(backend: Backend, *, seed: int) -> Feed:
    """Seeded values that are valid for any model of these tensors.

    Quantised tensors get every integer of their type, real ones numbers from -1 to 1. Plain integers get zeros: they are indices or
    codes, and zero is the one that every table has.
    """
    generator = np.random.RandomState(seed)
    samples = [tuple(_random(detail, generator) for detail in backend.inputs) for _ in range(RANDOM_SAMPLES)]
    return Feed("random", tuple(samples))


def _random(detail: TensorDetail, generator: np.random.RandomState) -> NDArray[Any]:
    dtype = np.dtype(detail.dtype)
    if detail.is_quantized:
        limits = np.iinfo(dtype)
        return generator.randint(limits.min, limits.max + 1, size=detail.shape, dtype=np.int64).astype(dtype)
    if dtype.kind == "f":
        return generator.uniform(-1.0, 1.0, size=detail.shape).astype(dtype)
    return np.zeros(detail.shape, dtype)


def describe_io(backend: Backend) -> Dict[str, Any]:
    """The ``io`` object of ``result.json``."""

    def tensors(details: Sequence[TensorDetail]) -> List[Dict[str, Any]]:
        return [
            {"name": d.name, "dtype": d.dtype, "shape": list(d.shape), "scale": d.scale, "zero_point": d.zero_point}
            for d in details
        ]

    return {"inputs": tensors(backend.inputs), "outputs": tensors(backend.outputs)}
