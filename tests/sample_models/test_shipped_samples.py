"""What is shipped in ``sample_models``: the networks compute what is documented, the data are what they claim to be."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "sample_models"
ACTIVATIONS = ("relu6", "silu")
STRIDES = (1, 2, 1, 2, 1)
PARAMETERS = 40_090
FOLDED_PARAMETERS = 38_906
"""Batch normalisation folded: 1,184 normalised channels have an offset each instead of a scale and an offset."""

Floats = npt.NDArray[np.float32]


def load_shipped() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    with np.load(FOLDER / "test.npz", allow_pickle=False) as arrays:
        return arrays["image"], arrays["label"]


def as_input(pixels: npt.NDArray[np.uint8]) -> Floats:
    return ((pixels.astype(np.float32) - 127.5) / 127.5).astype(np.float32)


def run_onnx(path: Path, images: Floats) -> Floats:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["logits"], {"image": image[None]})[0] for image in images])


def read_png(path: Path) -> npt.NDArray[np.uint8]:
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as picture:
        assert picture.format == "PNG" and picture.mode == "L" and picture.size == (28, 28)
        return np.asarray(picture)


def labels_csv() -> list[tuple[str, int]]:
    with (FOLDER / "test" / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["file"], int(row["label"])) for row in rows]


# A second implementation of the network, in numpy, straight from the checkpoint's arrays.


def convolve(x: Floats, kernel: Floats, *, stride: int, groups: int) -> Floats:
    size = kernel.shape[2]
    pad = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    y: Floats
    if groups == 1:
        y = np.einsum("nchwij,ocij->nohw", windows, kernel, optimize=True)
    else:
        y = np.einsum("nchwij,cij->nchw", windows, kernel[:, 0], optimize=True)
    return y


def layer(x: Floats, w: dict[str, Floats], name: str, *, activation: str | None, stride: int = 1) -> Floats:
    kernel = w[f"{name}.0.weight"]
    y = convolve(x, kernel, stride=stride, groups=1 if kernel.shape[1] == x.shape[1] else x.shape[1])
    scale = w[f"{name}.1.weight"] / np.sqrt(w[f"{name}.1.running_var"] + np.float32(1e-5))
    offset = w[f"{name}.1.bias"] - w[f"{name}.1.running_mean"] * scale
    y = (y * scale[:, None, None] + offset[:, None, None]).astype(np.float32)
    if activation == "relu6":
        return np.clip(y, 0, 6)
    return y / (1 + np.exp(-y)) if activation == "silu" else y


def network(images: Floats, w: dict[str, Floats], activation: str) -> Floats:
    x = layer(images, w, "stem", activation=activation, stride=2)
    for index, stride in enumerate(STRIDES):
        y = layer(x, w, f"blocks.{index}.expand", activation=activation)
        y = layer(y, w, f"blocks.{index}.depthwise", activation=activation, stride=stride)
        y = layer(y, w, f"blocks.{index}.project", activation=None)
        x = x + y if y.shape == x.shape else y
    x = layer(x, w, "head", activation=activation).mean(axis=(2, 3))
    return x @ w["classifier.weight"].T + w["classifier.bias"]


def load_checkpoint(activation: str) -> dict[str, Floats]:
    with np.load(FOLDER / f"fashion_{activation}.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnx_names_and_shapes(activation: str) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(FOLDER / f"fashion_{activation}.onnx", load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    described = [
        (value.name, [d.dim_value for d in value.type.tensor_type.shape.dim], value.type.tensor_type.elem_type)
        for value in (*model.graph.input, *model.graph.output)
    ]
    assert described == [("image", [1, 1, 28, 28], 1), ("logits", [1, 10], 1)]  # 1 is float32
    assert model.opset_import[0].version == 17
    assert all(not tensor.external_data for tensor in model.graph.initializer)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_parameter_counts(activation: str) -> None:
    onnx = pytest.importorskip("onnx")
    arrays = load_checkpoint(activation)
    assert sum(v.size for k, v in arrays.items() if "running" not in k) == PARAMETERS
    assert all(value.dtype == np.float32 for value in arrays.values())
    model = onnx.load(FOLDER / f"fashion_{activation}.onnx")
    floats = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert sum(int(np.prod(t.dims)) for t in floats) == FOLDED_PARAMETERS


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_the_promised_ones(activation: str) -> None:
    onnx = pytest.importorskip("onnx")
    operators = [node.op_type for node in onnx.load(FOLDER / f"fashion_{activation}.onnx").graph.node]
    assert operators.count("Conv") == 17
    assert operators.count("Clip") == (12 if activation == "relu6" else 0)
    assert operators.count("Sigmoid") == (12 if activation == "silu" else 0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnx_equals_a_numpy_forward_pass_of_the_checkpoint(activation: str) -> None:
    images = as_input(load_shipped()[0][:20])
    expected = network(images, load_checkpoint(activation), activation)
    assert np.abs(expected).max() > 3  # a network that says something
    assert np.abs(run_onnx(FOLDER / f"fashion_{activation}.onnx", images) - expected).max() < 1e-4


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_documented_accuracy_is_reached_on_the_shipped_images(activation: str) -> None:
    pixels, labels = load_shipped()
    name = f"fashion_{activation}.onnx"
    right = int((run_onnx(FOLDER / name, as_input(pixels)).argmax(axis=1) == labels).sum())
    documented = json.loads((FOLDER / "accuracy.json").read_text())[name]
    assert right >= 880
    # Another processor may round a tie the other way.
    assert abs(right - documented["shipped"]["right"]) <= 2
    assert documented["all"]["right"] / documented["all"]["count"] >= 0.90


def test_all_forms_of_a_network_answer_alike() -> None:
    documented = json.loads((FOLDER / "accuracy.json").read_text())
    for activation in ACTIVATIONS:
        names = [f"fashion_{activation}{ending}" for ending in (".onnx", ".keras", "_savedmodel")]
        rights = [documented[name]["all"]["right"] for name in names]
        assert max(rights) - min(rights) <= 2
        assert all((FOLDER / name).exists() for name in names)


def test_readme_says_what_was_measured() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name, counts in json.loads((FOLDER / "accuracy.json").read_text()).items():
        row = re.search(rf"^\| `{re.escape(name)}/?` .*$", readme, re.MULTILINE)
        assert row is not None, name
        for part in ("all", "shipped"):
            assert f"{counts[part]['right'] / counts[part]['count']:.2%}".replace("%", " %") in row.group(), (
                name,
                part,
            )


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_keras_file_pads_as_pytorch_does(activation: str) -> None:
    with zipfile.ZipFile(FOLDER / f"fashion_{activation}.keras") as archive:
        config = json.loads(archive.read("config.json"))["config"]
    layers: list[dict[str, Any]] = config["layers"]
    kinds = [item["class_name"] for item in layers]
    assert kinds.count("ZeroPadding2D") == 6  # the stem and five depthwise convolutions
    convolutions = [item["config"] for item in layers if item["class_name"] in ("Conv2D", "DepthwiseConv2D")]
    assert len(convolutions) == 17
    assert all(item["padding"] == "valid" for item in convolutions)
    assert layers[0]["config"]["name"] == "image"
    assert layers[0]["config"]["batch_shape"] == [None, 28, 28, 1]
    assert layers[-1]["config"]["name"] == "logits"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_keras_and_saved_model_equal_onnx(activation: str) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed here")
    pytest.importorskip("keras", reason="Keras is not installed here")
    import forms  # type: ignore[import-not-found, unused-ignore]

    images = as_input(load_shipped()[0][:100])
    expected = run_onnx(FOLDER / f"fashion_{activation}.onnx", images)
    for ending in (".keras", "_savedmodel"):
        assert np.abs(forms.logits(FOLDER / f"fashion_{activation}{ending}", images) - expected).max() < 1e-4


def test_png_files_equal_the_npz() -> None:
    pixels, labels = load_shipped()
    assert pixels.shape == (1000, 1, 28, 28) and pixels.dtype == np.uint8
    assert labels.shape == (1000,) and labels.dtype == np.int64
    rows = labels_csv()
    assert [name for name, _ in rows] == sorted(path.name for path in (FOLDER / "test").glob("*.png"))
    assert [label for _, label in rows] == labels.tolist()
    for (name, _), picture in zip(rows, pixels, strict=True):
        assert np.array_equal(read_png(FOLDER / "test" / name), picture[0]), name


def test_classes_are_balanced_from_the_first_file_on() -> None:
    labels = [label for _, label in labels_csv()]
    names = (FOLDER / "class_names.txt").read_text().splitlines()
    assert len(names) == 10
    assert [labels.count(k) for k in range(10)] == [100] * 10
    assert all(sorted(labels[start : start + 10]) == list(range(10)) for start in range(0, 1000, 10))


def test_calibration_pictures_are_not_in_the_test_set() -> None:
    calibration = sorted((FOLDER / "calibration").glob("*.png"))
    assert len(calibration) == 200
    digests = [hashlib.sha256(read_png(path).tobytes()).hexdigest() for path in calibration]
    assert len(set(digests)) == 200
    test = {hashlib.sha256(picture.tobytes()).hexdigest() for picture in load_shipped()[0]}
    assert not test & set(digests)


def test_shipped_files_are_small() -> None:
    sizes = {
        path: path.stat().st_size for path in FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert max(sizes.values()) < 1_000_000
    assert sum(sizes.values()) < 4_500_000


@pytest.mark.parametrize("fault", ["off by 2e-4", "not a number", "other shape"])
def test_a_form_that_disagrees_is_refused(fault: str) -> None:
    import forms

    expected = np.zeros((4, 10), np.float32)
    assert forms.check("net", expected + np.float32(5e-5), expected) < 1e-4
    found = expected.copy()
    if fault == "other shape":
        found = found[:3]
    else:
        found[2, 7] = 2e-4 if fault == "off by 2e-4" else np.nan
    with pytest.raises(forms.DisagreementError, match=r"^net: .*not written$"):
        forms.check("net", found, expected)
