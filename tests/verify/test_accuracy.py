"""The evaluation of the sample network against loops that use nothing of edgekit: ONNX Runtime, and the bare interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import Bundle
from numpy.typing import NDArray

from edgekit.calibrate.split import spread
from edgekit.errors import DataError, ModelFileError
from edgekit.verify.reference import OnnxReference


def test_accuracy_agreement_and_noise(fashion: Callable[[str], Bundle], frontend: str, samples: Path) -> None:
    bundle = fashion(frontend)
    data = np.load(samples / "test.npz")
    chosen = list(spread(range(1000), 300, seed=0))
    inputs = (data["image"][chosen].astype(np.float32) - np.float32(127.5)) / np.float32(127.5)
    labels = data["label"][chosen]
    float_scores = np.concatenate([scores(samples / "fashion_relu6.onnx", x[None]) for x in inputs])
    int8_scores = np.concatenate(list(by_integers(bundle.delivered, inputs)))
    float_right, int8_right = float_scores.argmax(1) == labels, int8_scores.argmax(1) == labels

    accuracy = bundle.manifest["verification"]["accuracy"]
    assert (accuracy["count"], accuracy["metric"], accuracy["source"]) == (300, "top1", "test.npz")
    assert accuracy["float"]["right"] == np.count_nonzero(float_right)
    assert accuracy["int8"]["right"] == np.count_nonzero(int8_right)
    assert accuracy["lost"] == np.count_nonzero(float_right & ~int8_right)
    assert accuracy["gained"] == np.count_nonzero(~float_right & int8_right)
    assert accuracy["float"]["right"] > 250  # a real network, rightly fed

    output = bundle.manifest["verification"]["int8"]["outputs"][0]
    assert output["agreement"]["same"] == np.count_nonzero(float_scores.argmax(1) == int8_scores.argmax(1))
    noise = (float_scores - int8_scores).astype(np.float64) ** 2
    signal = float_scores.astype(np.float64) ** 2
    assert output["sqnr_db"] == pytest.approx(10 * math.log10(signal.sum() / noise.sum()), abs=0.01)
    by_class = 10 * np.log10(signal.sum(0) / noise.sum(0))
    assert output["worst_slice"]["index"] == by_class.argmin()
    assert output["worst_slice"]["sqnr_db"] == pytest.approx(by_class.min(), abs=0.01)
    assert output["mean_slice_db"] == pytest.approx(by_class.mean(), abs=0.01)
    assert output["worst_sample_db"] == pytest.approx((10 * np.log10(signal.sum(1) / noise.sum(1))).min(), abs=0.01)


def scores(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    if path not in SESSIONS:
        import onnxruntime

        SESSIONS[path] = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: NDArray[Any] = SESSIONS[path].run(None, {"image": x})[0]
    return found


SESSIONS: dict[Path, Any] = {}


def by_integers(path: Path, inputs: Iterable[NDArray[Any]]) -> Iterable[NDArray[Any]]:
    interpreter = networks.Interpreter(path)
    for x in inputs:
        channels_last = x[None].transpose(0, 2, 3, 1)
        integers = networks.to_integers(channels_last, interpreter.inputs[0])
        yield networks.to_real(interpreter.run(integers)[0], interpreter.outputs[0])


def test_the_reference_is_the_source_in_its_own_runtime(tmp_path: Path) -> None:
    path = networks.save(networks.three_outputs(), tmp_path / "m.onnx")
    reference = OnnxReference(path, ["mid", "zeta"])
    found = reference.run({"x": np.float32([[2, 2, 2, 2]])})
    assert {name: float(value[0, 0]) for name, value in found.items()} == {"mid": -1.0, "zeta": 3.0}
    assert reference.name.startswith("onnxruntime 1.")


def test_a_sample_that_the_source_refuses_or_that_makes_it_infinite_is_named(tmp_path: Path) -> None:
    reference = OnnxReference(networks.save(networks.three_outputs(), tmp_path / "m.onnx"), ["zeta", "alpha", "mid"])
    with pytest.raises(DataError, match="the source model refuses b/7.png"):
        reference.run({"x": np.zeros((1, 5), np.float32)}, name="b/7.png")
    with pytest.raises(DataError, match="itself gives NaN or infinite values in output 'alpha' for b/7.png") as caught:
        reference.run({"x": np.full((1, 4), 3e38, np.float32)}, name="b/7.png")
    assert caught.value.code == "source_not_finite"


def test_a_model_that_its_own_runtime_refuses(tmp_path: Path) -> None:
    model = networks.three_outputs()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelFileError, match="ONNX Runtime .* cannot load the model") as caught:
        OnnxReference(networks.save(model, tmp_path / "m.onnx"), ["zeta"])
    assert caught.value.code == "reference_unloadable"


def test_nothing_is_sent_or_kept_about_the_models_that_are_run(tmp_path: Path) -> None:
    """ONNX Runtime keeps a device id and a queue for its maker in the user's cache, unless it is told not to."""
    import subprocess
    import sys

    from command_line import environment

    path = networks.save(networks.three_outputs(), tmp_path / "m.onnx")
    script = f"from pathlib import Path; from edgekit.verify.reference import OnnxReference as R; R(Path({str(path)!r}), ['mid'])"
    env = environment(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")})
    env.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", script], check=True, env=env)
    assert not (tmp_path / "cache").exists() and not (tmp_path / "home").exists()
