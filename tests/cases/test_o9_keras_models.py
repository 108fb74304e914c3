"""O9: a Keras 3 model, saved by the process that made it, becomes full integer in another one: every form, paths with a space, batch 1."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_files as files
from bundles import Bundle, convert
from numpy.typing import NDArray
from open_cases import normal, run_bundle

CALIBRATION = 5
MAKER = """
import sys
from pathlib import Path
import keras, numpy as np
from keras import layers
out = Path(sys.argv[1])
keras.utils.set_random_seed(9)
parts = [layers.Conv2D(4, 3), layers.GlobalAveragePooling2D(), layers.Dense(2, activation="softmax")]
model = keras.Sequential([keras.Input((8, 8, 3)), *parts])
model.layers[-1].set_weights([w * 6 for w in model.layers[-1].get_weights()])  # rows that differ
picture = value = keras.Input((8, 8, 3), name="picture")
for part in model.layers:
    value = part(value)
functional = keras.Model(picture, value)
for place in ("plain", "with a space"):
    (out / place).mkdir()
    model.save(out / place / "my m.keras" if " " in place else out / place / "m.keras")
model.save(out / "m.h5")
model.export(out / "exported model", verbose=False)
functional.save(out / "functional.keras")
np.savez(out / "weights.npz", *[weight for layer in model.layers for weight in layer.get_weights()])
"""
FORMS = ("plain/m.keras", "with a space/my m.keras", "m.h5", "exported model", "functional.keras")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with every form of the network, and data of as many samples as the case has, and some to judge."""
    folder = tmp_path_factory.mktemp("made here")
    done = subprocess.run(
        [files.python(), "-c", MAKER, folder], capture_output=True, text=True, env=files.environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def truth(folder: Path, pictures: NDArray[Any]) -> NDArray[Any]:
    """The network in numpy: a valid 3x3 convolution, the mean over places, a dense layer and softmax."""
    with np.load(folder / "weights.npz") as stored:
        kernel, bias, dense, offset = (stored[f"arr_{i}"].astype(np.float64) for i in range(4))
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (3, 3), axis=(1, 2))  # n, 6, 6, c, 3, 3
    scores = (np.einsum("nijcab,abco->nijo", windows, kernel) + bias).mean((1, 2)) @ dense + offset
    shares: NDArray[Any] = np.exp(scores - scores.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


@functools.cache
def bundle_of(folder: Path, form: str) -> Bundle:
    name = "picture" if form == "functional.keras" else None
    place = folder / f"bundle of {form.replace('/', ' ')}"
    data = place.with_suffix(".npy")
    np.save(data, normal(CALIBRATION + 16, 8, 8, 3, seed=1))
    bundle = convert(folder / form, data, place, calibration_limit=CALIBRATION, allow_undecided=True)
    assert name is None or bundle.manifest["inputs"][0]["name"] == name
    return bundle


@pytest.mark.parametrize("form", FORMS)
def test_full_integer_with_a_batch_of_one(made: Path, form: str) -> None:
    manifest = bundle_of(made, form).manifest
    ends = [(item["dtype"], item["shape"]) for item in (*manifest["inputs"], *manifest["outputs"])]
    assert ends == [("int8", [1, 8, 8, 3]), ("int8", [1, 2])]
    assert manifest["verification"]["audit"]["full_integer"]
    assert manifest["calibration"]["count"] == CALIBRATION
    assert any("batch fixed to 1" in note for note in manifest["frontend"]["route_notes"])


@pytest.mark.parametrize("form", FORMS)
def test_rows_sum_to_one_and_are_those_of_the_network(made: Path, form: str) -> None:
    bundle = bundle_of(made, form)
    pictures = normal(20, 8, 8, 3, seed=2)
    (given,), (asked,) = ([item["name"] for item in bundle.manifest[end]] for end in ("inputs", "outputs"))
    rows = np.concatenate([run_bundle(bundle, {given: picture[np.newaxis]})[asked] for picture in pictures])
    np.testing.assert_allclose(rows.sum(1), 1.0, atol=0.02)
    expected = truth(made, pictures)
    assert np.ptp(expected[:, 0]) > 0.3  # the rows differ, so that a constant answer would be seen
    np.testing.assert_allclose(rows, expected, atol=0.1)  # five samples do not span the ranges of twenty others


def test_the_command_line_in_a_process_of_its_own(made: Path, tmp_path: Path) -> None:
    data = tmp_path / "some data.npy"
    np.save(data, normal(CALIBRATION + 16, 8, 8, 3, seed=3))
    words = [
        "convert",
        str(made / FORMS[1]),
        "--data",
        str(data),
        "--calibration",
        str(CALIBRATION),
        "--allow-undecided",
    ]
    command = [sys.executable, "-m", "edgekit", *words, "--out", str(tmp_path / "a bundle"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"], answer["passed"]) == (0, True, True), done.stdout + done.stderr
    assert (tmp_path / "a bundle" / "model.tflite").is_file()
