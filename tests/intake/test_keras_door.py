"""The door for Keras files: names, order, types and values against numpy and against Keras itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow_files as files
from bundles import SAMPLES, convert
from tiny_models import shared

from edgekit.calibrate.sources import DataOptions
from edgekit.errors import DataError, FrontendMissingError, UnsupportedModelError, UsageError
from edgekit.values import Preprocessing


@pytest.mark.parametrize("name", ["two.keras", "two.h5"])
def test_inputs_and_outputs_keep_name_order_and_type(name: str, tmp_path: Path) -> None:
    passed = files.through(files.model(name), tmp_path)
    assert [(s.name, s.shape, s.dtype) for s in passed.model.inputs] == [
        ("zeta", (1, 5), "float32"),
        ("alpha", (1, 3), "int32"),
    ]
    assert [(s.name, s.shape) for s in passed.model.outputs] == [("out_z", (1, 3)), ("out_a", (1, 2))]
    held = files.weights()
    for sample, result in zip(passed.samples, passed.delivered(), strict=True):
        joined = np.concatenate([sample["zeta"], held["table"][sample["alpha"][0]].reshape(1, 9)], axis=1)
        for output in ("out_z", "out_a"):
            np.testing.assert_allclose(result[output], joined @ held[output], rtol=1e-5, atol=1e-5)
    assert any("batch fixed to 1" in note for note in passed.notes)


def test_a_model_of_dictionaries_is_matched_by_name(tmp_path: Path) -> None:
    passed = files.through(files.model("dictionary.keras"), tmp_path)
    assert {s.name: s.dtype for s in passed.model.inputs} == {"zeta": "float32", "alpha": "int32"}
    held = files.weights()
    for sample, result in zip(passed.samples, passed.delivered(), strict=True):
        joined = np.concatenate([sample["zeta"], held["table"][sample["alpha"][0]].reshape(1, 9)], axis=1)
        np.testing.assert_allclose(result["late"], joined @ held["out_z"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(result["early"], joined @ held["out_a"], rtol=1e-5, atol=1e-5)


def test_a_path_with_a_space_and_a_source_that_is_only_read(tmp_path: Path) -> None:
    source = tmp_path / "a folder" / "my model.keras"
    source.parent.mkdir()
    source.write_bytes(files.model("with a space.keras").read_bytes())
    before = (source.read_bytes(), source.stat().st_mtime_ns)
    source.chmod(0o444)
    passed = files.through(source, tmp_path / "work")
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert [path.name for path in source.parent.iterdir()] == [source.name]
    assert passed.model.source.sha256 == hashlib.sha256(before[0]).hexdigest()
    assert passed.model.inputs[0].layout == "nhwc"
    assert passed.model.inputs[0].permutation is None
    for result in passed.delivered():
        (row,) = result.values()
        assert row.sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "remark"),
    [("recurrent.keras", "unrolled"), ("silu.keras", ""), ("mixed.keras", "mixed precision"), ("keras2.h5", "")],
)
def test_it_converts_and_equals_its_source(name: str, remark: str, tmp_path: Path) -> None:
    passed = files.through(files.model(name), tmp_path)
    assert passed.parity.passed
    assert remark in passed.notes[-1]


def test_a_file_of_keras_2_is_run_by_keras_2(tmp_path: Path) -> None:
    assert files.through(files.model("keras2.h5"), tmp_path, count=1).reference.startswith("Keras 2.")


def test_open_sizes_are_asked_for_in_a_form_to_paste(tmp_path: Path) -> None:
    error = files.refusal(files.model("open.keras"), tmp_path / "open")
    assert error.code == "input_shape_open"
    assert "--input-shape picture=1x224x224x3" in error.hint
    passed = files.through(files.model("open.keras"), tmp_path / "fixed", input_shapes={"picture": (1, 12, 9, 3)})
    assert passed.model.inputs[0].shape == (1, 12, 9, 3)


def test_operators_without_a_kernel_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="FFT2D") as caught:
        files.through(files.model("fourier.keras"), tmp_path)
    assert caught.value.code == "operators_unsupported"
    assert caught.value.hint


def test_a_sample_that_keras_refuses_is_wrong_data(tmp_path: Path) -> None:
    with files.opened(files.model("two.keras"), tmp_path) as door, pytest.raises(DataError, match="sample 7"):
        door.reference(threads=1).run(
            {"zeta": np.zeros((1, 5), np.float32), "alpha": np.full((1, 3), 99, np.int32)}, name="sample 7"
        )


def test_mini_xception_of_keras_2_0_equals_its_source(tmp_path: Path) -> None:
    passed = files.through(shared("models/fer_emotion_mini_xception.hdf5"), tmp_path)
    assert [(s.name, s.shape, s.layout) for s in passed.model.inputs] == [("input_1", (1, 64, 64, 1), "nhwc")]
    assert [s.name for s in passed.model.outputs] == ["predictions"]
    worst = passed.parity.outputs[0].worst_slice
    assert worst is not None and worst.sqnr_db is not None and worst.sqnr_db >= 80


@pytest.mark.parametrize("name", ["fashion_relu6.keras", "fashion_relu6_savedmodel"])
def test_the_sample_network_becomes_a_full_integer_bundle(name: str, tmp_path: Path) -> None:
    files.python()
    bundle = convert(
        SAMPLES / name,
        str(SAMPLES / "calibration"),
        tmp_path / "fashion.bundle",
        eval_data=str(SAMPLES / "test"),
        eval_labels=str(SAMPLES / "test" / "labels.csv"),
        evaluation_limit=300,
        options=DataOptions(preprocessing=Preprocessing(color="gray", mean=(127.5,), std=(127.5,))),
        threads=1,
    )
    said = bundle.manifest["verification"]
    assert said["passed"] and said["audit"]["full_integer"]
    (parity,) = said["parity"]["outputs"]
    assert parity["name"] == "logits"
    assert parity["worst_slice"]["sqnr_db"] >= 80
    assert said["accuracy"]["float"]["value"] >= 0.9  # 91.7 % over all shipped pictures
    assert abs(said["accuracy"]["int8"]["value"] - said["accuracy"]["float"]["value"]) <= 0.01
    assert bundle.manifest["inputs"][0]["shape"] == [1, 28, 28, 1]
    assert bundle.manifest["inputs"][0]["permutation"] is None


def test_another_front_end_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="onnx2tf does not read"),
        files.opened(files.model("two.keras"), tmp_path, frontend="onnx2tf"),
    ):
        pass


def test_without_the_front_end_it_says_which_to_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = files.model("two.keras")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr("edgekit.intake.frontends._importable_here", lambda kind: False)
    with pytest.raises(FrontendMissingError) as caught, files.opened(model, tmp_path / "work"):
        pass
    assert "edgekit frontend add tensorflow" in caught.value.hint
