"""Parity at the noise floor: what float32 itself cannot hold is no fault of the conversion, and a fault is no noise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from tiny_models import onnx_model

from edgekit.errors import ParityError
from edgekit.intake import frontends
from edgekit.intake.choose import Truth, recomputed
from edgekit.intake.door import Delivered, DoorOptions
from edgekit.intake.onnx import OnnxRoute, OnnxSource, open_model
from edgekit.intake.onnx_again import recompute, widened
from edgekit.values import FloatModel, SourceModel
from edgekit.verify.floor import Recomputed
from edgekit.verify.parity import OutputParity, Parity, SliceResult, require

HALF, OUT, LIMIT_DB = 256, 8, 80.0
WEIGHTS = networks.normal(HALF, OUT, seed=1)


def cancelling() -> Any:
    """``y = x1 A - x2 A`` in one product of 512 terms."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "zero"], ["y"])]
    constants = {"w": np.concatenate([WEIGHTS, -WEIGHTS]), "zero": np.zeros(OUT, np.float32)}
    return onnx_model(nodes, {"x": [1, 2 * HALF]}, {"y": [1, OUT]}, constants)


def nearly_equal_halves(seed: int, *, apart: float) -> NDArray[np.float32]:
    """Halves that differ by ``apart``: what is left of the terms is so much smaller than they are."""
    one = networks.normal(1, HALF, seed=seed)
    return np.concatenate([one, one + apart * networks.normal(1, HALF, seed=seed + 100)], axis=1)


def through(folder: Path, front: str, *, apart: float, scale: float = 1.0) -> tuple[Delivered, Truth, OnnxSource]:
    """The network converted from weights that are off by ``scale``, and the truth about the right ones."""
    door = open_model(networks.save(cancelling(), folder / "net.onnx"), DoorOptions(folder))
    samples = [{"x": nearly_equal_halves(seed, apart=apart)} for seed in range(6)]
    reference = door.reference(threads=1)
    outputs = [reference.run(sample) for sample in samples]
    truth = Truth(reference.name, samples, outputs, again=recomputed(door, samples, outputs))
    model = cancelling()
    if scale != 1.0:
        weights = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
        weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(scale), "w"))
    wrong = dataclasses.replace(door, plain=networks.save(model, folder / "given.onnx"))
    found = frontends.find(frontends.kind_named(front))
    assert found is not None
    ways = {"work": folder, "timeout_s": 120.0, "tick": lambda: None}
    return OnnxRoute(wrong, found).convert(samples, outputs, **ways), truth, door  # type: ignore[arg-type]


def test_cancellation_in_float32_is_no_fault(tmp_path: Path, any_frontend: str) -> None:
    made, truth, _ = through(tmp_path, any_frontend, apart=5e-4)
    found = truth.judged(made.model, limit_db=LIMIT_DB)
    (output,) = found.outputs
    assert output.sqnr_db is not None and output.sqnr_db < LIMIT_DB
    exact = [
        (s["x"][:, :HALF].astype(np.float64) - s["x"][:, HALF:].astype(np.float64)) @ WEIGHTS.astype(np.float64)
        for s in truth.samples
    ]
    noise = sum(float(np.sum((e - o["y"]) ** 2)) for e, o in zip(exact, truth.outputs, strict=True))
    floor_db = 10 * np.log10(sum(float(np.sum(o["y"].astype(np.float64) ** 2)) for o in truth.outputs) / noise)
    assert 40 < floor_db < 80
    assert output.floor is not None and output.floor.sqnr_db == pytest.approx(floor_db, abs=0.1)
    assert output.floor.how.endswith("float64")
    assert "within 10 dB of the source's own noise floor: output 'y'" in found.remark


def test_a_fault_below_the_noise_is_refused(tmp_path: Path, any_frontend: str) -> None:
    made, truth, _ = through(tmp_path, any_frontend, apart=5e-4, scale=1.05)  # 26 dB
    with pytest.raises(ParityError, match=r"80 dB are required; the source against itself \(.*\) stands at [4-7]"):
        truth.judged(made.model, limit_db=LIMIT_DB)


def test_without_noise_a_small_fault_is_a_fault(tmp_path: Path, any_frontend: str) -> None:
    """One thousandth: 60 dB, which passed in the test above but has no excuse here."""
    made, truth, _ = through(tmp_path, any_frontend, apart=1.0, scale=1.001)
    with pytest.raises(ParityError, match="does not equal the source: output 'y'"):
        truth.judged(made.model, limit_db=LIMIT_DB)


def test_noise_that_drowns_the_signal_proves_nothing(tmp_path: Path, any_frontend: str) -> None:
    """Halves so near that even the source keeps no digit: whatever came out would be 'within the noise'."""
    made, truth, _ = through(tmp_path, any_frontend, apart=1e-7)
    with pytest.raises(ParityError, match="stands at .* dB, which is no rounding"):
        truth.judged(made.model, limit_db=LIMIT_DB)


def test_another_network_in_one_slice_excuses_no_slice(tmp_path: Path, any_frontend: str) -> None:
    """A runtime with a fault of its own in one output column must not lower the limit of the others."""
    made, truth, door = through(tmp_path, any_frontend, apart=5e-4, scale=1.001)
    assert truth.judged(made.model, limit_db=45.0).passed  # near enough to be excused by an honest floor
    broken = [{"y": out["y"] * np.float32(1 - 1e-3) + np.eye(1, OUT, dtype=np.float32)} for out in truth.outputs]
    again = Recomputed(lambda _: [("a broken runtime", broken)], truth.samples, truth.outputs)
    with pytest.raises(ParityError, match="a broken runtime"):
        dataclasses.replace(truth, again=again).judged(made.model, limit_db=LIMIT_DB)
    honest = [{"y": out["y"] * np.float32(1 - 1e-3)} for out in truth.outputs]
    again = Recomputed(lambda _: [("another rounding", honest)], truth.samples, truth.outputs)
    assert dataclasses.replace(truth, again=again).judged(made.model, limit_db=LIMIT_DB).passed


def test_made_up_inputs_are_named_as_such(tmp_path: Path, any_frontend: str) -> None:
    made, truth, _ = through(tmp_path, any_frontend, apart=1.0, scale=1.001)
    with pytest.raises(ParityError, match="over 6 made-up inputs") as caught:
        dataclasses.replace(truth, made_up=True).judged(made.model, limit_db=LIMIT_DB)
    assert "--data" in (caught.value.hint or "")


def test_the_other_ways_compute_the_same_network(tmp_path: Path) -> None:
    """A convolution, for which ONNX Runtime has no kernel in float64, constants in nodes and a Resize with its float32 scales."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["c", "half"], ["m"]),
        helper.make_node("Resize", ["m", "", "scales"], ["y"], mode="nearest"),
    ]
    constants = {"w": networks.normal(4, 3, 3, 3, seed=1), "scales": np.float32([1, 1, 2, 2])}
    path = networks.save(
        onnx_model(nodes, {"x": [1, 3, 6, 6]}, {"y": [1, 4, 12, 12]}, constants), tmp_path / "net.onnx"
    )
    sample = {"x": networks.normal(1, 3, 6, 6, seed=4)}
    right = networks.run_onnx(path, sample)["y"]
    ways = dict(recompute(path, ["y"], [sample]))
    assert [how.split()[-1] for how in ways] == ["optimisations", "float64"]
    for how, (outputs, *_) in ways.items():
        np.testing.assert_allclose(outputs["y"], right, rtol=1e-4, atol=1e-5, err_msg=how)
    assert next(outputs for how, outputs in ways.items() if how.endswith("float64"))[0]["y"].dtype == np.float64


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_normalisation_is_that_of_a_trained_network(opset: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], momentum=0.9, epsilon=1e-3),
    ]
    constants = {"w": networks.normal(4, 3, 3, 3, seed=1)}
    constants |= {name: networks.normal(4, seed=seed) for seed, name in enumerate("sbm")}
    constants["v"] = np.abs(networks.normal(4, seed=8)) + np.float32(0.5)
    model = onnx_model(nodes, {"x": [1, 3, 6, 6]}, {"y": [1, 4, 6, 6]}, constants)
    model.opset_import[0].version = opset
    path = networks.save(model, tmp_path / "net.onnx")
    sample = {"x": networks.normal(1, 3, 6, 6, seed=4)}
    right = networks.run_onnx(path, sample)["y"]
    for how, outputs in recompute(path, ["y"], [sample]):
        np.testing.assert_allclose(outputs[0]["y"], right, rtol=1e-4, atol=1e-5, err_msg=how)


def test_widening_leaves_the_original_alone() -> None:
    model = cancelling()
    before = model.SerializeToString()
    wide = widened(model)
    assert model.SerializeToString() == before
    assert {numpy_helper.to_array(tensor).dtype for tensor in wide.graph.initializer} == {np.dtype(np.float64)}


def refusal(tmp_path: Path, worst_slice_db: float, sqnr_db: float = 95.4) -> str:
    """What is said of an output with these ratios where 80 dB are required."""
    source = SourceModel(tmp_path / "net.onnx", "onnx", "0" * 64, 1)
    model = FloatModel(tmp_path / "float.tflite", source, (), (), "onnx2tf", {})
    worst = SliceResult(1, 7, worst_slice_db, 1e-4)
    output = OutputParity("y", 1e-4, 1e-4, sqnr_db, worst, 0, False)
    with pytest.raises(ParityError) as refused:
        require(Parity("onnxruntime", 16, False, 80.0, (output,)), model)
    return refused.value.message


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(79.96, "79.96 dB in"), (80.0, "within 0.001 dB of 80 dB in"), (79.8, "79.8 dB in"), (12.0, "12.0 dB")],
)
def test_a_refusal_shows_that_less_was_reached_than_required(tmp_path: Path, ratio: float, words: str) -> None:
    said = refusal(tmp_path, ratio)
    assert words in said and "(95.4 dB, " in said and "80 dB are required" in said
    assert "80.0 dB" not in said
