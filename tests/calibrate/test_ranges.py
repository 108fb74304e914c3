"""Ranges are the true extremes of every tensor, whatever the order of the samples; padding constants and NaN are no values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import Bundle
from command_line import environment
from tiny_models import TinyTflite

from edgekit.calibrate.ranges import Ranges, observe, refuse_constant_input
from edgekit.errors import DataError
from edgekit.intake import tflite
from edgekit.values import FloatModel, IoSpec, SourceModel

LOWEST = float(np.finfo(np.float32).min)


def float_model(tiny: TinyTflite, x: int, y: int, shape: tuple[int, ...], folder: Path) -> FloatModel:
    """``tiny`` as a float model with input "x" and output "y"."""
    tflite.write(tiny.model(tiny.graph([x], [y])), folder / "float.tflite")
    spec = IoSpec("x", shape, "float32", "x", shape, "float32")
    source = SourceModel(folder / "none.onnx", "onnx", "", 0)
    return FloatModel(folder / "float.tflite", source, (spec,), (spec,), "none")


def chain(folder: Path) -> FloatModel:
    """x, d = x - 1, e = exp(d)."""
    tiny = TinyTflite()
    x, d, e = (tiny.tensor(name, (1, 4)) for name in "xde")
    one = tiny.tensor("one", (1,), data=np.ones(1, np.float32))
    tiny.operator("SUB", [x, one], [d])
    tiny.operator("EXP", [d], [e])
    return float_model(tiny, x, e, (1, 4), folder)


def test_ranges_equal_the_extremes_of_what_onnx_runtime_computes(fashion: Any, samples: Path) -> None:
    """Over all 200 calibration pictures of the sample network, for every tensor whose name tells which ONNX value it is."""
    from PIL import Image

    bundle: Bundle = fashion("onnx2tf")  # keeps ONNX names
    files = sorted((samples / "calibration").glob("*.png"))
    pictures = [((np.asarray(Image.open(file), np.float32) - 127.5) / 127.5)[None, None] for file in files]
    (spec,) = (IoSpec.from_json(item) for item in bundle.manifest["inputs"])
    spec = replace(spec, dtype="float32", quant=None)
    source = SourceModel(samples / "fashion_relu6.onnx", "onnx", "", 0)
    model = FloatModel(bundle.path / "float.tflite", source, (spec,), (), "onnx2tf")
    found = observe(model, ({"image": picture} for picture in pictures)).by_tensor
    everything = networks.EveryValue(samples / "fashion_relu6.onnx")
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for picture in pictures:
        for name, value in {**everything.run({"image": picture}), "image": picture}.items():
            low[name] = min(low.get(name, np.inf), float(value.min()))
            high[name] = max(high.get(name, -np.inf), float(value.max()))
    names = {name: name for name in low} | everything.channels_last_names
    shared = {name: names[name] for name in found if name in names}
    assert {"image", "logits"} <= set(shared) and len(shared) > 20, shared
    for name, value_name in shared.items():
        assert found[name] == pytest.approx((low[value_name], high[value_name]), rel=1e-4, abs=1e-4), name


def test_the_order_of_the_samples_does_not_matter(tmp_path: Path) -> None:
    model = chain(tmp_path)
    data = [{"x": networks.normal(1, 4, seed=seed)} for seed in range(20)]
    data[3]["x"][0, 0] = 5.0  # an outlier, seen early or late
    results = [observe(model, order) for order in (data, data[::-1], sorted(data, key=lambda s: -s["x"].max()))]
    assert results[0].by_tensor == results[1].by_tensor == results[2].by_tensor
    everything = np.concatenate([sample["x"] for sample in data])
    assert results[0].by_tensor["x"] == (everything.min(), everything.max())
    assert results[0].by_tensor["e"] == pytest.approx((np.exp(everything.min() - 1), np.exp(4.0)), rel=1e-6)
    assert results[0].count == 20 and results[0].ignored == {}


def test_padding_constants_are_no_values(tmp_path: Path) -> None:
    """A row of the lowest float there is around real values: counted and left out of the range."""
    tiny = TinyTflite()
    x, padded = tiny.tensor("x", (1, 4)), tiny.tensor("padded", (3, 4))
    paddings = tiny.tensor("paddings", (2, 2), "int32", data=np.array([[1, 1], [0, 0]], np.int32))
    constant = tiny.tensor("lowest", (1,), data=np.float32([LOWEST]))
    tiny.operator("PADV2", [x, paddings, constant], [padded])
    model = float_model(tiny, x, padded, (1, 4), tmp_path)
    found = observe(model, [{"x": np.float32([[-1, 0, 2, 3]])}, {"x": np.float32([[-2, 0, 0, 1]])}])
    assert found.by_tensor["padded"] == (-2.0, 3.0)
    assert found.ignored == {"padded": 16}


def test_a_sample_that_becomes_nan_is_named(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 4)), tiny.tensor("y", (1, 4))
    tiny.operator("LOG", [x], [y])
    model = float_model(tiny, x, y, (1, 4), tmp_path)
    data = [{"x": np.float32([[1, 2, 3, value]])} for value in (4, 5, -1, 6)]
    with pytest.raises(DataError, match="photo-2.png makes tensor 'y' not a number") as caught:
        observe(model, data, name_of="photo-{}.png".format)
    assert caught.value.code == "data_not_finite"
    # log(0) is an infinity: a constant to leave out, like the masks of a network
    found = observe(model, [{"x": np.float32([[0, 1, 1, np.e]])}])
    assert found.by_tensor["y"] == pytest.approx((0.0, 1.0)) and found.ignored == {"y": 1}


def test_no_sample_and_constant_inputs_are_refused(tmp_path: Path) -> None:
    model = chain(tmp_path)
    with pytest.raises(DataError, match="no sample to calibrate with"):
        observe(model, [])
    constant = observe(model, [{"x": np.full((1, 4), 0.5, np.float32)}] * 3)
    with pytest.raises(DataError, match="all 3 calibration samples hold the same single value, 0.5, for input 'x'"):
        refuse_constant_input(model, constant)
    refuse_constant_input(model, Ranges({"x": (0.0, 0.5)}, 1, {}))


MEASURE = """
import sys
import numpy as np
from pathlib import Path
from edgekit.calibrate.ranges import observe
from edgekit.calibrate.sources import DataOptions, open_dataset
from edgekit.values import FloatModel, IoSpec, SourceModel
folder, data = Path(sys.argv[1]), sys.argv[2]
spec = IoSpec("x", (1, 64, 64, 8), "float32", "x", (1, 64, 64, 8), "float32")
model = FloatModel(folder / "float.tflite", SourceModel(folder, "onnx", "", 0), (spec,), (spec,), "none")
found = observe(model, open_dataset(data, [spec], DataOptions()).iterate())
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(found.count, int(status["VmHWM"].split()[0]))
"""


@pytest.mark.parametrize("compressed", [False, True])
def test_ten_times_the_samples_take_no_more_memory(tmp_path: Path, compressed: bool) -> None:
    """20 and 200 samples of 128 kB: 3 and 26 MB of data; the peak of the whole process, measured by the kernel."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 64, 64, 8)), tiny.tensor("y", (1, 64, 64, 8))
    tiny.operator("ABS", [x], [y])
    float_model(tiny, x, y, (1, 64, 64, 8), tmp_path)
    peaks = []
    for count in (20, 200):
        write = np.savez_compressed if compressed else np.savez
        write(tmp_path / f"{count}.npz", x=np.arange(count * 32768, dtype=np.float32).reshape(count, 64, 64, 8) % 7)
        command = [sys.executable, "-c", MEASURE, str(tmp_path), str(tmp_path / f"{count}.npz")]
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(tmp_path))
        counted, peak_kb = said.stdout.split()
        assert int(counted) == count
        peaks.append(int(peak_kb))
    assert peaks[1] - peaks[0] < 4_000, f"{peaks[1] - peaks[0]} kB more"


def test_scales_follow_from_the_ranges(fashion: Any) -> None:
    """Asymmetric int8: the range widened to hold zero, in 255 steps; the zero point on the integer nearest to zero's place."""
    bundle: Bundle = fashion("onnx2tf")
    interpreter = networks.Interpreter(bundle.delivered)
    ranges = bundle.manifest["calibration"]["ranges"]
    for end in (*interpreter.inputs, *interpreter.outputs):
        low, high = min(ranges[end["name"]]["min"], 0.0), max(ranges[end["name"]]["max"], 0.0)
        scale, zero_point = end["quantization"]
        assert scale == pytest.approx((high - low) / 255, rel=1e-5), end["name"]
        assert abs(zero_point - (-128 - low / scale)) <= 0.5 + 1e-3, end["name"]


def test_progress_is_told_sample_by_sample(tmp_path: Path) -> None:
    told: list[int] = []

    def stream() -> Iterator[Any]:
        for seed in range(3):
            assert told == list(range(1, seed + 1))  # nothing is drawn ahead
            yield {"x": networks.normal(1, 4, seed=seed)}

    observe(chain(tmp_path), stream(), progress=told.append)
    assert told == [1, 2, 3]
