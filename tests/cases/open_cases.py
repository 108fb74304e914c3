"""What the tests of the open cases share: a model through edgekit's own routes, run again by an interpreter that knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bundles import ONNX_FRONTENDS, Bundle, convert, require_frontend
from numpy.typing import NDArray

from edgekit.errors import ConversionError
from edgekit.intake import frontends
from edgekit.intake.choose import Truth, choose
from edgekit.intake.door import DoorOptions
from edgekit.intake.onnx import open_model
from edgekit.intake.session import Session
from edgekit.stages import Silent, Stages
from edgekit.values import FloatModel, IoSpec

Arrays = dict[str, NDArray[Any]]
LIMIT_DB = 80.0


@dataclass(frozen=True)
class Imported:
    """A float model from one front end, and what was said on the way."""

    model: FloatModel
    notes: tuple[str, ...]

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Outputs by source name in source layout, by the names in the file."""
        return run_file(self.model.path, self.model.inputs, self.model.outputs, inputs)


@dataclass
class Front:
    """What is installed, or one front end of it, with workers that serve all tests. ``only`` is the only front end to use, if any."""

    only: str | None
    sessions: dict[str, Session]
    folder: Callable[[str], Path]

    def settled(self, model: Any, samples: list[Arrays]) -> Imported | None:
        """As :meth:`imported`; with one front end alone, None where that is refused by the name of the output or of the node."""
        try:
            return self.imported(model, samples)
        except ConversionError as refused:
            assert self.only is not None, refused.message
            assert refused.exit_code == 3 and refused.hint
            names = [value.name for value in (*model.graph.output, *model.graph.node)]
            assert any(name and f"'{name}'" in refused.message for name in names), refused.message
            return None

    def imported(self, model: Any, samples: list[Arrays]) -> Imported:
        """``model`` as edgekit imports it; raises what edgekit raises. ``samples`` judge parity."""
        work = self.folder("import")
        path = work / "net.onnx"
        onnx.save(model, str(path))
        door = open_model(path, DoorOptions(work, frontend=self.only))
        outputs = [truth(model, sample) for sample in samples]
        routes = door.routes(self.sessions)
        judged = Truth("onnxruntime", samples, outputs)
        made, _, notes = choose(
            door, routes, judged, limit_db=LIMIT_DB, work=work, timeout_s=120, stages=Stages(Silent())
        )
        return Imported(made, notes)

    def bundle(self, model: Any, data: Mapping[str, NDArray[Any]], *, evaluation: int = 16) -> Bundle:
        """``model`` as an int8 bundle, calibrated and judged on ``data`` (samples along the first axis)."""
        work = self.folder("bundle")
        onnx.save(model, str(work / "net.onnx"))
        np.savez(work / "data.npz", **data)
        return convert(
            work / "net.onnx", work / "data.npz", work / "out", frontend=self.only, evaluation_limit=evaluation
        )


def front(only: str | None, folder: Callable[[str], Path]) -> Front:
    """The front end ``only``, or every one that reads ONNX; a skip where one is not installed."""
    names = [only] if only else list(ONNX_FRONTENDS)
    sessions = {}
    for name in names:
        require_frontend(name)
        found = frontends.find(frontends.kind_named(name))
        assert found is not None
        sessions[name] = Session(found, folder("session"))
    return Front(only, sessions, folder)


def truth(model: Any, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
    """What ONNX Runtime makes of ``inputs``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def run_file(
    path: Path, inputs: tuple[IoSpec, ...], outputs: tuple[IoSpec, ...], values: Mapping[str, NDArray[Any]]
) -> Arrays:
    """A float or int8 file in the interpreter, fed and read by the names of its signature, in real numbers and source layout."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(path), num_threads=1).get_signature_runner()
    details = runner.get_input_details()
    fed = {}
    for spec in inputs:
        value = values[spec.name]
        value = value if spec.permutation is None else value.transpose(spec.permutation)
        fed[spec.name] = _quantized(np.ascontiguousarray(value), details[spec.name])
    results = runner(**fed)
    out_details = runner.get_output_details()
    found = {}
    for spec in outputs:
        value = _real(results[spec.name], out_details[spec.name])
        found[spec.name] = value if spec.permutation is None else value.transpose(np.argsort(spec.permutation))
    return found


def _quantized(value: NDArray[Any], detail: Mapping[str, Any]) -> NDArray[Any]:
    scale, zero_point = detail["quantization"]
    if not scale:
        return value.astype(detail["dtype"])
    limits = np.iinfo(detail["dtype"])
    return np.clip(np.round(value / scale) + zero_point, limits.min, limits.max).astype(detail["dtype"])


def _real(value: NDArray[Any], detail: Mapping[str, Any]) -> NDArray[Any]:
    scale, zero_point = detail["quantization"]
    return (value.astype(np.float64) - zero_point) * scale if scale else value


def run_bundle(bundle: Bundle, values: Mapping[str, NDArray[Any]]) -> Arrays:
    """The delivered int8 file of a bundle, as :func:`run_file` runs it."""
    specs = [tuple(IoSpec.from_json(item) for item in bundle.manifest[key]) for key in ("inputs", "outputs")]
    return run_file(bundle.delivered, specs[0], specs[1], values)


def sqnr_db(reference: NDArray[Any], output: NDArray[Any]) -> float:
    """10 log10(sum(r^2) / sum((r - y)^2))."""
    noise = float(np.sum((reference.astype(np.float64) - output) ** 2))
    return float("inf") if noise == 0 else 10 * np.log10(float(np.sum(reference.astype(np.float64) ** 2)) / noise)


def largest_error(expected: Mapping[str, NDArray[Any]], got: Mapping[str, NDArray[Any]]) -> float:
    """Over all outputs; names and shapes must be the same."""
    assert set(expected) == set(got)
    assert all(expected[name].shape == got[name].shape for name in expected)
    return max(float(np.abs(expected[name].astype(np.float64) - got[name]).max()) for name in expected)


def normal(*shape: int, seed: int = 0, mean: float = 0.0) -> NDArray[np.float32]:
    """Normal random numbers, float32."""
    return np.random.default_rng(seed).normal(mean, 1.0, shape).astype(np.float32)
