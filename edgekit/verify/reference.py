"""The float truth: the source model in its own runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import DataError, ModelFileError


class OnnxReference:
    """An ONNX model in ONNX Runtime on the CPU; :meth:`run` takes and gives arrays by name in the source's layout."""

    def __init__(
        self,
        path: Path,
        outputs: Sequence[str],
        *,
        threads: int = 0,
        finite_only: bool = True,
        optimised: bool = True,
    ) -> None:
        # From 1.29 on it sends what models it runs to its maker, unless it is told before it is imported.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ModelFileError(
                f"ONNX Runtime {onnxruntime.__version__} cannot load the model: {str(error).splitlines()[0][:300]}",
                hint="check the model with: python -m onnx.checker (it needs to run in its own runtime before it is converted)",
                code="reference_unloadable",
            ) from error
        self._outputs = list(outputs)
        self._finite_only = finite_only
        self.name = f"onnxruntime {onnxruntime.__version__}"

    def run(self, sample: Mapping[str, NDArray[Any]], *, name: str = "a sample") -> dict[str, NDArray[Any]]:
        """All outputs for one sample, which is called ``name`` in messages.

        Raises DataError when the runtime refuses the sample, or, with ``finite_only``, when an output is no finite number: no int8
        stands for that.
        """
        try:
            results = self._session.run(self._outputs, dict(sample))
        except Exception as error:  # onnxruntime raises a family of classes without a common base
            raise DataError(
                f"the source model refuses {name}: {str(error).splitlines()[0][:300]}",
                hint="compare its shape, type and values with what the model was trained on",
            ) from error
        found = dict(zip(self._outputs, results, strict=True))
        if self._finite_only:
            require_finite(found, name)
        return found


def require_finite(outputs: Mapping[str, NDArray[Any]], name: str) -> None:
    """Raises DataError when an output for the sample ``name`` holds NaN or infinite values."""
    for output, values in outputs.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(
                f"the source model itself gives NaN or infinite values in output {output!r} for {name}",
                hint="no integer stands for those: look at that sample, or end the model before the operator that makes them",
                code="source_not_finite",
            )
