"""The float truth: the source model in its own runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edgekit.errors import DataError, ModelFileError


class OnnxReference:
    """An ONNX model in ONNX Runtime on the CPU; :meth:`run` takes and gives arrays by name in the source's layout."""

    def __init__(self, path: Path, outputs: Sequence[str], *, threads: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ModelFileError(
                f"ONNX Runtime {onnxruntime.__version__} cannot load the model: {str(error).splitlines()[0][:300]}",
                hint="check the model with: python -m onnx.checker (it needs to run in its own runtime before it is converted)",
                code="reference_unloadable",
            ) from error
        self._outputs = list(outputs)
        self.name = f"onnxruntime {onnxruntime.__version__}"

    def run(self, sample: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """All outputs for one sample. Raises DataError when the runtime refuses the sample."""
        try:
            results = self._session.run(self._outputs, dict(sample))
        except Exception as error:
            raise DataError(f"the source model refuses a sample: {str(error).splitlines()[0][:300]}") from error
        return dict(zip(self._outputs, results, strict=True))
