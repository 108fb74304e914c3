"""The range of every tensor over the calibration data: true minimum and maximum, and a histogram of its values, streamed.

A moving average of each sample's extremes, as converters use it, depends on the order of the samples and clips the rare ones. A
padding constant such as the lowest float in front of a max-pool is no value: taken for one it makes the scale so wide that every
real value becomes zero, so values beyond :data:`NOT_A_VALUE` are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.histogram import Histogram
from edgekit.calibrate.sources import Sample
from edgekit.errors import DataError
from edgekit.intake import tflite
from edgekit.intake.layout import delivered
from edgekit.runtime.backend import Backend, open_backend
from edgekit.values import FloatModel

COUNTED = 32768
"""So many values of a tensor go into its histogram for each sample, evenly spread; its extremes are always those of all values."""
NOT_A_VALUE = 1e30
"""Magnitudes from here on are padding constants (-FLT_MAX is 3.4e38); activations of a working float network stay far below."""


_NOTHING = -100.0
"""The logarithm that stands for the extent of a tensor of zeros."""


@dataclass(frozen=True)
class Ranges:
    """Lowest and highest value of each tensor by name, over ``count`` samples; ``ignored`` counts the values left out as padding.

    ``histograms`` holds the distribution of each tensor, ``extents`` how far each sample reaches: the mean logarithm of the largest
    magnitudes in it, so that the samples that excite the network most are known.
    """

    by_tensor: Mapping[str, tuple[float, float]]
    count: int
    ignored: Mapping[str, int]
    histograms: Mapping[str, Histogram] = field(default_factory=dict, repr=False, compare=False)
    extents: tuple[float, ...] = field(default=(), repr=False, compare=False)


def observe(
    model: FloatModel,
    samples: Iterable[Sample],
    *,
    threads: int = 0,
    progress: Callable[[int], None] = lambda _: None,
    name_of: Callable[[int], str] = "sample {}".format,
) -> Ranges:
    """Run the float model over ``samples`` and keep the extremes of every float tensor that is computed.

    Memory does not grow with the number of samples. Infinities inside of the network are constants (masks, padding) and are left
    out like other padding. Raises DataError for a sample that makes a tensor NaN, with ``name_of`` its position, and where no
    sample came.
    """
    graph = tflite.graph(tflite.read(model.path))
    constants = {tensor.index for tensor in graph.tensors if tensor.is_constant}
    with open_backend(model.path, threads=threads, preserve_all_tensors=True) as backend:
        observer = _Observer(backend, constants)
        count = 0
        for sample in samples:
            for position, spec in enumerate(model.inputs):
                backend.set_input(position, delivered(sample[spec.name], spec))
            backend.invoke()
            observer.look(name_of, count)
            count += 1
            progress(count)
    if not count:
        raise DataError("there is no sample to calibrate with", hint="give data with --data")
    return Ranges(observer.ranges(), count, observer.ignored, observer.histograms(), tuple(observer.extents))


class _Observer:
    def __init__(self, backend: Backend, constants: Collection[int]) -> None:
        self._backend = backend
        self._tensors = [d for d in backend.tensor_details() if d.dtype == "float32" and d.index not in constants]
        self._histograms: dict[int, Histogram] = {}
        self.ignored: dict[str, int] = {}
        self.extents: list[float] = []

    def look(self, name_of: Callable[[int], str], sample: int) -> None:
        reach = []
        for detail in list(self._tensors):
            try:
                values = self._backend.read_tensor(detail.index)
            except DataError:  # a scratch tensor of a delegate: nothing to read now, nothing later
                self._tensors.remove(detail)
                continue
            if not values.size:
                continue
            extent = self._widen(detail.index, detail.name, values)
            if math.isnan(extent):
                raise DataError(
                    f"{name_of(sample)} makes tensor {detail.name!r} not a number",
                    hint="look at that sample: values outside of what the network was trained on, or a division by zero",
                    code="data_not_finite",
                )
            reach.append(math.log(extent) if extent > 0.0 else _NOTHING)
        self.extents.append(sum(reach) / max(len(reach), 1))

    def _widen(self, index: int, name: str, values: NDArray[Any]) -> float:
        """Takes ``values`` into the histogram; the largest magnitude, NaN when one value is."""
        low, high = float(values.min()), float(values.max())
        if math.isnan(low):  # as soon as one value is
            return math.nan
        if abs(low) >= NOT_A_VALUE or abs(high) >= NOT_A_VALUE:
            kept = values[np.abs(values) < NOT_A_VALUE]
            self.ignored[name] = self.ignored.get(name, 0) + int(values.size - kept.size)
            if not kept.size:
                return 0.0
            low, high, values = float(kept.min()), float(kept.max()), kept
        self._histograms.setdefault(index, Histogram()).add(_spread(values), low=low, high=high)
        return max(abs(low), abs(high))

    def histograms(self) -> dict[str, Histogram]:
        names = {detail.index: detail.name for detail in self._tensors}
        return {names[index]: histogram for index, histogram in self._histograms.items() if index in names}

    def ranges(self) -> dict[str, tuple[float, float]]:
        return {name: (histogram.low, histogram.high) for name, histogram in self.histograms().items()}


def _spread(values: NDArray[Any]) -> NDArray[Any]:
    """At most :data:`COUNTED` of the values, at a stride that falls in with no axis, so that every channel has its share."""
    if values.size <= COUNTED:
        return values
    stride = -(-values.size // COUNTED)
    while any(math.gcd(stride, size) > 1 for size in values.shape):
        stride += 1
    return values.reshape(-1)[::stride]


def refuse_constant_input(model: FloatModel, ranges: Ranges) -> None:
    """Raises DataError when an input never varied: nothing can be learned from such data."""
    tensors = {spec.tensor: spec.name for spec in model.inputs}
    for tensor, (low, high) in ranges.by_tensor.items():
        if tensor in tensors and low == high:
            raise DataError(
                f"all {ranges.count} calibration samples hold the same single value, {low:g}, for input {tensors[tensor]!r}",
                hint="calibrate with real inputs: photos, recordings or readings as the model will meet them",
                code="data_constant",
            )
