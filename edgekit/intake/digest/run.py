"""The passes in their order, each kept only if ONNX Runtime computes the same after it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgekit.verify.measures import equal_non_finite_cleared, sqnr_db

if TYPE_CHECKING:
    import onnx

Sample = Mapping[str, NDArray[Any]]

PASSES: Mapping[str, str] = {
    "constants": "constants written as tensors",
    "functions": "composed operators spelled out",
    "opset": "opset raised",
    "folding": "constant parts computed",
    "inference": "training parts taken out",
    "negative_axes": "negative axes and indices made explicit",
    "padding": "automatic padding made explicit",
    "pools": "pools in ceil mode or dilated spelled out",
    "last_index": "last index of a maximum spelled out",
    "simple": "odd forms of simple operators replaced by their common ones",
    "transposed": "transposed convolutions padded by slices",
    "resize": "resizing spelled out as products",
    "ranks": "constants given all axes of what they are combined with",
    "shapes": "output shapes declared",
    "declared_outputs": "outputs given the shape that the file declares",
}
"""Modules of this package, in the order in which they run, and what each does in the words of a report."""
LEAST_DB = 110.0
"""What a rewritten graph must reach against the graph before; the same sums in another order give about 130 dB."""


def digest(
    model: onnx.ModelProto, samples: Sequence[Sample], references: Sequence[Sample]
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """A rewritten copy of ``model`` and what was done to it, in words; nothing done gives ().

    ``samples`` and ``references`` are inputs and outputs of ``model`` by its own names. A pass that fails, or after which ONNX
    Runtime refuses the model or computes something else, is left out.
    """
    done = []
    for name, words in PASSES.items():
        candidate = _copy(model)
        try:
            changed = importlib.import_module(f"{__package__}.{name}").apply(candidate)
        except Exception:  # a graph that a pass did not expect: the pass is left out, the graph stays as it was
            continue
        if changed and _equal(candidate, samples, references):
            model = candidate
            done.append(words)
    return model, tuple(done)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _equal(model: onnx.ModelProto, samples: Sequence[Sample], references: Sequence[Sample]) -> bool:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [info.name for info in model.graph.output]
        for sample, reference in zip(samples, references, strict=True):
            results = session.run(names, dict(sample))
            if not all(_same(reference[name], value) for name, value in zip(names, results, strict=True)):
                return False
    except Exception:  # onnxruntime raises a family of classes without a common base
        return False
    return True


def _same(reference: NDArray[Any], value: NDArray[Any]) -> bool:
    if reference.shape != value.shape or reference.dtype != value.dtype:
        return False
    if reference.dtype.kind != "f":
        return bool(np.array_equal(reference, value))
    return sqnr_db(*equal_non_finite_cleared(reference, value)) >= LEAST_DB
