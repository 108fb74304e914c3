"""The wrapper in an app: names, shapes, types, threads."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from edgekit.errors import DataError, ModelFileError, UsageError
from edgekit.runtime import Model
from edgekit.values import IoSpec, Preprocessing, QuantParams, to_json

# dense_int8: y = W x + b, see make_models.py.
W = np.array([[1, 2, -1, 0], [0.5, 0, 0, 3], [-2, 0.25, 1, 1]])
B = np.array([1, -2, 0.5])


def make_bundle(folder: Path, model: Path, inputs: List[IoSpec], outputs: List[IoSpec], **more: Any) -> Path:
    folder.mkdir()
    shutil.copy(model, folder / "model.tflite")
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    manifest: Dict[str, Any] = {
        "schema": 1,
        "files": {"model.tflite": {"sha256": digest, "size_bytes": model.stat().st_size}},
        "inputs": to_json(inputs),
        "outputs": to_json(outputs),
        "preprocessing": None,
        **more,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


DENSE_IN = IoSpec("image:0", (1, 4), "float32", "x", (1, 4), "int8", quant=QuantParams(0.5, -1))
DENSE_OUT = IoSpec("scores/y", (1, 3), "float32", "y", (1, 3), "int8", quant=QuantParams(1.0, 3))


@pytest.fixture
def dense(models: Path) -> Model:
    return Model.open(models / "dense_int8.tflite", threads=1)


def test_float_in_float_out(dense: Model) -> None:
    x = np.array([[1.0, 2.0, 3.0, -4.5]])  # W x + b = 3, -15, -2.5 -> whole numbers: the tie goes either way
    y = dense(x)
    assert y.dtype == np.float32
    assert y.shape == (1, 3)
    assert np.all(np.abs(y - (W @ x[0] + B)) <= 0.5)


def test_raw_passes_integers_as_they_are(dense: Model) -> None:
    # x = (1, 2, 3, -4) is x / 0.5 - 1 in integers; y = 3, -13.5, -2 is y + 3.
    y = dense(np.array([[1, 3, 5, -9]], np.int8), raw=True)
    assert y.dtype == np.int8
    assert y[0, 0] == 6
    assert y[0, 2] == 1
    assert y[0, 1] in (-10, -11)
    with pytest.raises(DataError, match="raw input 'x' is int8, the array is int32"):
        dense(np.array([[1, 3, 5, -9]], np.int32), raw=True)


def test_input_beyond_the_range_is_clipped_and_does_not_wrap(dense: Model) -> None:
    largest = dense(np.full((1, 4), 64.0))  # 64 = 0.5 * (127 + 1)
    assert np.array_equal(dense(np.full((1, 4), 90.0)), largest)


def test_what_is_no_real_number_is_refused(dense: Model) -> None:
    for wrong in (np.zeros((1, 4), np.uint8), np.zeros((1, 4), np.int8), np.zeros((1, 4), bool)):
        with pytest.raises(DataError, match="takes real numbers") as caught:
            dense(wrong)
        assert "raw=True" in caught.value.hint
    with pytest.raises(DataError, match="takes real numbers"):
        dense(np.array([["a", "b", "c", "d"]]))
    with pytest.raises(DataError, match="input 'x': 1 of 4 input values are NaN"):
        dense(np.array([[0, np.nan, 0, 0]]))


def test_all_float_types_give_the_same(dense: Model) -> None:
    x = np.array([[0.5, 1.0, -2.0, 3.0]])
    expected = dense(x)
    for dtype in ("float16", "float32", "float64", ">f4"):
        assert np.array_equal(dense(x.astype(dtype)), expected)
    assert np.array_equal(dense(np.repeat(x, 2, axis=1)[:, ::2]), expected)  # not contiguous
    assert np.array_equal(dense([[0.5, 1.0, -2.0, 3.0]]), expected)


def test_the_batch_axis_may_be_left_out(dense: Model) -> None:
    x = np.array([0.5, 1.0, -2.0, 3.0])
    assert dense(x).shape == (3,)
    assert np.array_equal(dense(x), dense(x[np.newaxis])[0])
    with pytest.raises(DataError, match=r"has shape \[1, 4\], the array has \[2, 4\]"):
        dense(np.zeros((2, 4)))
    with pytest.raises(DataError, match=r"the array has \[1, 1, 4\]"):
        dense(np.zeros((1, 1, 4)))


def test_several_inputs_and_outputs_by_name(models: Path) -> None:
    model = Model.open(models / "two_by_two.tflite")
    left, right = np.array([[1.0, 2, 3, 4]]), np.array([[10.0, 20, 30, 40]])
    result = model({"right": right, "left": left - right})
    assert result["sum"].tolist() == left.tolist()
    assert result["product"].tolist() == ((left - right) * right).tolist()
    assert model({"left": left[0], "right": right[0]})["sum"].shape == (4,)
    assert model({"left": left, "right": right[0]})["sum"].shape == (1, 4)  # one came with its batch axis


def test_wrong_names_list_the_right_ones(models: Path) -> None:
    model = Model.open(models / "two_by_two.tflite")
    x = np.zeros((1, 4))
    with pytest.raises(DataError, match="missing: 'right'; unknown: 'rihgt'") as caught:
        model({"left": x, "rihgt": x})
    assert caught.value.hint == "its inputs are 'left', 'right'"
    with pytest.raises(DataError, match="2 inputs, one array was given") as caught:
        model(x)
    assert "'left', 'right'" in caught.value.hint


def test_integer_inputs_stay_integers(models: Path) -> None:
    model = Model.open(models / "lookup.tflite")
    assert model(np.array([4, 0, 1])).tolist() == [[4, 14], [0, 10], [1, 11]]
    assert model(np.array([[4, 0, 1]], np.uint8)).shape == (1, 3, 2)
    with pytest.raises(DataError, match="takes int32, the array is float64"):
        model(np.array([4.0, 0, 1]))
    with pytest.raises(DataError, match="from 0 to 4294967296"):
        model(np.array([4, 0, 1 << 32]))
    with pytest.raises(DataError, match="GATHER"):
        model(np.array([0, 1, 5]))
    assert model(np.array([2, 2, 2])).tolist() == [[2, 12]] * 3


def test_results_are_the_caller_s_for_ever(models: Path) -> None:
    model = Model.open(models / "islands.tflite")
    first = model(np.array([0.0, 1, 2, 3]))
    part, kept = first[1:3], first.copy()
    try:
        model(np.zeros(9))
    except DataError as error:
        trace = error  # its traceback keeps the frames, and with them every array in them
    for value in range(200):
        model(np.full(4, float(value)))
    assert np.array_equal(first, kept)
    assert np.array_equal(part, kept[1:3])
    assert trace is not None


def test_a_second_thread_waits_for_its_turn(dense: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also closing does: the interpreter is not taken away from a call that is running."""
    inside, go_on = threading.Event(), threading.Event()
    invoke = dense._backend.invoke

    def slow() -> None:
        inside.set()
        assert go_on.wait(60)
        invoke()

    monkeypatch.setattr(dense._backend, "invoke", slow)
    results: List[Any] = []
    first = threading.Thread(target=lambda: results.append(dense(np.zeros(4))))
    first.start()
    assert inside.wait(60)
    closing = threading.Thread(target=dense.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go_on.set()
    first.join()
    closing.join()
    assert results[0].tolist() == [1, -2, 0] or results[0].tolist() == [1, -2, 1]
    with pytest.raises(UsageError, match="closed"):
        dense(np.zeros(4))


def test_a_refused_call_leaves_the_model_free(dense: Model) -> None:
    with pytest.raises(DataError):
        dense(np.zeros(9))
    assert dense(np.zeros(4)).shape == (3,)


def test_info_and_context_manager(models: Path) -> None:
    path = models / "dense_int8.tflite"
    with Model.open(path, threads=1) as model:
        info = model.info
        assert info.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert info.size_bytes == path.stat().st_size
        assert info.threads == 1
        assert not info.float_io
        assert info.delegation.total_operators == 1
    with pytest.raises(UsageError, match="closed"):
        model(np.zeros(4))
    assert Model.open((models / "islands.tflite").read_bytes()).info.float_io


def test_a_bundle_brings_the_source_s_names(models: Path, tmp_path: Path) -> None:
    bundle = make_bundle(
        tmp_path / "b",
        models / "dense_int8.tflite",
        [DENSE_IN],
        [DENSE_OUT],
        preprocessing=to_json(Preprocessing(mean=(3.0,))),
    )
    model = Model.open(bundle)
    assert model.inputs[0].name == "image:0"
    assert model.preprocessing == Preprocessing(mean=(3.0,))
    assert model({"image:0": np.zeros(4)}).shape == (3,)
    with pytest.raises(DataError, match="unknown: 'x'"):
        model({"x": np.zeros(4)})


def test_a_bundle_s_outputs_are_paired_by_tensor(models: Path, tmp_path: Path) -> None:
    """Two outputs of one shape, listed in the source's order, which is not the interpreter's."""

    def spec(name: str, tensor: str) -> IoSpec:
        return IoSpec(name, (1, 4), "float32", tensor, (1, 4), "float32")

    bundle = make_bundle(
        tmp_path / "b",
        models / "two_by_two.tflite",
        [spec("zeta", "tensor_b"), spec("alpha", "tensor_a")],
        [spec("mid/sum", "tensor_c"), spec("prod", "tensor_d")],
    )
    result = Model.open(bundle)({"alpha": np.full(4, 2.0), "zeta": np.full(4, 5.0)})
    assert result["mid/sum"].tolist() == [7.0] * 4
    assert result["prod"].tolist() == [10.0] * 4


def test_the_source_s_layout_is_recognised_in_the_hint(models: Path, tmp_path: Path) -> None:
    x = IoSpec("image", (1, 8, 32, 32), "float32", "x", (1, 32, 32, 8), "float32", permutation=(0, 2, 3, 1))
    y = IoSpec("features", (1, 8, 32, 32), "float32", "y3", (1, 32, 32, 8), "float32", permutation=(0, 2, 3, 1))
    model = Model.open(make_bundle(tmp_path / "b", models / "convs.tflite", [x], [y]))
    with pytest.raises(DataError) as caught:
        model(np.zeros((1, 8, 32, 32), np.float32))
    assert "transpose it by (0, 2, 3, 1)" in caught.value.hint
    assert model(np.zeros((32, 32, 8), np.float32)).shape == (32, 32, 8)


def test_a_bundle_whose_model_was_replaced_is_refused(models: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", models / "dense_int8.tflite", [DENSE_IN], [DENSE_OUT])
    shutil.copy(models / "islands.tflite", bundle / "model.tflite")
    with pytest.raises(ModelFileError, match="sha256") as caught:
        Model.open(bundle)
    assert caught.value.code == "bundle_damaged"


def test_a_rejected_model_is_not_opened_by_mistake(models: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", models / "dense_int8.tflite", [DENSE_IN], [DENSE_OUT])
    (bundle / "model.tflite").rename(bundle / "rejected.tflite")
    with pytest.raises(ModelFileError, match="failed a gate") as caught:
        Model.open(bundle)
    assert caught.value.code == "model_rejected"
    assert "report.html" in caught.value.hint
    assert Model.open(bundle / "rejected.tflite")(np.zeros(4)).shape == (3,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema 2"),
        ({"files": {}}, "lacks a part"),
        ({"inputs": []}, "does not describe input tensor 'x'"),
        ({"inputs": to_json([dataclasses.replace(DENSE_IN, dtype="uint8")])}, "uint8"),
        ({"outputs": to_json([DENSE_OUT, dataclasses.replace(DENSE_OUT, tensor="z", name="z")])}, "no output 'z'"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    models: Path, tmp_path: Path, change: Dict[str, Any], said: str
) -> None:
    bundle = make_bundle(tmp_path / "b", models / "dense_int8.tflite", [DENSE_IN], [DENSE_OUT])
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ModelFileError, match=said):
        Model.open(bundle)


def test_folders_that_are_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no bundle"):
        Model.open(tmp_path)
    (tmp_path / "manifest.json").write_text("{not json")
    with pytest.raises(ModelFileError, match="not JSON"):
        Model.open(tmp_path)


def test_importing_the_package_loads_no_numpy() -> None:
    import subprocess
    import sys

    code = "import sys, edgekit.runtime; assert 'numpy' not in sys.modules; edgekit.runtime.Model; assert 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
