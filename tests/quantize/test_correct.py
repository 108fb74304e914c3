"""Ranges, weights and biases of an int8 file: what the engine would write, chosen by what the outputs lose, the same bytes again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Interpreter, to_integers, to_real
from numpy.typing import NDArray
from tiny_models import TinyTflite

from edgekit.calibrate.ranges import Ranges, observe
from edgekit.intake import tflite
from edgekit.quantize import bias, litert
from edgekit.quantize.correct import NO_CORRECTIONS, Corrected, correct
from edgekit.quantize.groups import Group, groups, parameters
from edgekit.quantize.holdout import FEWEST, hold_out
from edgekit.quantize.int8_file import Int8File
from edgekit.quantize.judge import Score
from edgekit.quantize.recipe import Corrections
from edgekit.quantize.search import spares_the_rare
from edgekit.values import FloatModel, IoSpec, SourceModel

Array = NDArray[Any]
SIZE = 8


class Network:
    """A float model under construction: ``x`` 1x8x8x3, convolutions with given weights, named outputs."""

    def __init__(self) -> None:
        self.tiny = TinyTflite()
        self.x = self.tiny.tensor("x", (1, SIZE, SIZE, 3))

    def conv(self, source: int, name: str, weights: Array, *, size: int = SIZE, activation: int = 0) -> int:
        shape = weights.shape
        w = self.tiny.tensor(f"{name}/w", shape, data=weights.astype(np.float32))
        b = self.tiny.tensor(f"{name}/b", (shape[0],), data=np.linspace(-0.3, 0.3, shape[0]).astype(np.float32))
        y = self.tiny.tensor(name, (1, size, size, shape[0]))
        options = {"padding": 0, "strideH": 1, "strideW": 1, "fusedActivationFunction": activation}
        self.tiny.operator("CONV_2D", [source, w, b], [y], **options)
        return y

    def saved(self, folder: Path, outputs: Sequence[int]) -> FloatModel:
        path = folder / "float.tflite"
        specs = [_spec(self.tiny.tensors[index]) for index in (self.x, *outputs)]
        model = self.tiny.model(self.tiny.graph([self.x], list(outputs)))
        model.signatureDefs = [_signature(self.x, outputs, specs)]
        tflite.write(model, path)
        return FloatModel(path, SourceModel(folder / "none.onnx", "onnx", "", 0), (specs[0],), tuple(specs[1:]), "none")


def _signature(x: int, outputs: Sequence[int], specs: Sequence[IoSpec]) -> Any:
    """The engine calls a model by its signature."""
    from ai_edge_litert import schema_py_generated as schema

    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex, made.inputs, made.outputs = "serving_default", 0, [], []
    for spec, index in zip(specs, (x, *outputs), strict=True):
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = spec.name, index
        (made.inputs if index == x else made.outputs).append(entry)
    return made


def _spec(tensor: Any) -> IoSpec:
    return IoSpec(tensor.name, tuple(tensor.shape), "float32", tensor.name, tuple(tensor.shape), "float32")


def normal(*shape: int, seed: int, scale: float = 1.0) -> Array:
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def samples(count: int, *, seed: int = 0) -> list[dict[str, Array]]:
    return [{"x": normal(1, SIZE, SIZE, 3, seed=1000 * seed + i)} for i in range(count)]


def quantized(model: FloatModel, ranges: Ranges, folder: Path) -> Path:
    path = litert.quantize(model.path, ranges, work=folder)
    bias.repair(path, model.path)
    return path


def corrected(
    model: FloatModel, data: list[dict[str, Array]], folder: Path, wanted: Corrections, ranges_by: str = "search"
) -> tuple[Path, Corrected]:
    ranges = observe(model, data)
    path = quantized(model, ranges, folder)
    again = folder / "again"
    again.mkdir(exist_ok=True)
    done = correct(
        model,
        path,
        ranges,
        lambda positions: [data[i] for i in positions],
        lambda file, found: (litert.quantize(file, found, work=again), ()),
        wanted,
        ranges_by=ranges_by,
        seed=0,
        threads=1,
        work=again,
    )
    return path, done


def sqnr_db(model: FloatModel, path: Path, data: list[dict[str, Array]], output: int = 0) -> float:
    """Of the file in the bare interpreter against the float file in it."""
    reference, tested = Interpreter(model.path), Interpreter(path)
    signal = noise = 0.0
    for sample in data:
        truth = reference.run(sample["x"])[output].astype(np.float64)
        got = to_real(tested.run(to_integers(sample["x"], tested.inputs[0]))[output], tested.outputs[output])
        signal, noise = signal + float((truth**2).sum()), noise + float(((truth - got) ** 2).sum())
    return 10 * float(np.log10(signal / noise))


def deep(folder: Path) -> FloatModel:
    """Four convolutions, ReLU between them, the channels of the second of unlike ranges."""
    net = Network()
    h = net.conv(net.x, "h1", normal(12, 3, 3, 3, seed=1, scale=0.3), activation=1)
    unlike = 10.0 ** np.linspace(-1.5, 0.5, 12)[:, None, None, None]
    h = net.conv(h, "h2", normal(12, 3, 3, 12, seed=2, scale=0.15) * unlike, activation=1)
    h = net.conv(h, "h3", normal(12, 3, 3, 12, seed=3, scale=0.15) / unlike.reshape(1, 1, 1, 12), activation=1)
    return net.saved(folder, [net.conv(h, "y", normal(6, 1, 1, 12, seed=4, scale=0.3))])


def test_ranges_set_in_place_are_those_that_the_engine_writes(tmp_path: Path) -> None:
    """Every scale, zero point and weight, and each bias to one unit (the engine divides in float32)."""
    model = deep(tmp_path)
    ranges = observe(model, samples(8))
    other = {name: (low * 0.7, high * 0.6) for name, (low, high) in ranges.by_tensor.items()}
    (tmp_path / "other").mkdir()
    expected = tflite.read(quantized(model, Ranges(other, 8, {}), tmp_path / "other"))
    path = quantized(model, ranges, tmp_path)
    file = Int8File.open(path)
    for group in groups(tflite.read(path), ranges.by_tensor):
        file.set_range(group, other[group.name])
    file.write(path)
    got = tflite.read(path)
    pairs = zip(tflite.graph(got).tensors, tflite.graph(expected).tensors, strict=True)
    for one, two in pairs:
        assert one.name == two.name and one.quant is not None and two.quant is not None
        assert np.allclose(one.quant.scales, two.quant.scales, rtol=1e-6, atol=0)
        assert np.array_equal(one.quant.zero_points, two.quant.zero_points)
        if one.is_constant:
            values = [tflite.constant_value(m, t) for m, t in ((got, one), (expected, two))]
            assert values[0] is not None and values[1] is not None
            assert np.abs(values[0].astype(np.int64) - values[1]).max() <= (one.dtype == "int32")


def branches() -> tuple[Network, int, int]:
    net = Network()
    wide = net.conv(net.x, "wide", normal(4, 1, 1, 3, seed=1) * 640)
    return net, wide, net.conv(net.x, "narrow", normal(4, 1, 1, 3, seed=2))


def test_branches_640_to_1_have_scales_of_their_own(tmp_path: Path) -> None:
    net, wide, narrow = branches()
    model = net.saved(tmp_path, [wide, narrow])
    path, _ = corrected(model, samples(20), tmp_path, Corrections())
    assert all(sqnr_db(model, path, samples(8, seed=9), output) > 30 for output in (0, 1))


def test_branches_behind_a_concat_and_a_pool_share_one(tmp_path: Path) -> None:
    net, wide, narrow = branches()
    joined = net.tiny.tensor("joined", (1, SIZE, SIZE, 8))
    net.tiny.operator("CONCATENATION", [wide, narrow], [joined], axis=3)
    pooled = net.tiny.tensor("pooled", (1, SIZE // 2, SIZE // 2, 8))
    window = {"strideH": 2, "strideW": 2, "filterHeight": 2, "filterWidth": 2}
    net.tiny.operator("MAX_POOL_2D", [joined], [pooled], padding=1, **window)
    model = net.saved(tmp_path, [net.conv(pooled, "y", normal(2, 1, 1, 8, seed=2), size=SIZE // 2)])
    ranges = observe(model, samples(8))
    found = groups(tflite.read(quantized(model, ranges, tmp_path)), ranges.by_tensor)
    assert {"wide", "narrow", "joined", "pooled"} in [set(group.names) for group in found]
    assert {group.name: (group.is_input, group.is_output) for group in found} == {
        "x": (True, False),
        "wide": (False, False),
        "y": (False, True),
    }


@pytest.mark.parametrize("carries", [True, False], ids=["the outlier is the signal", "nobody reads the outlier"])
def test_a_channel_of_outliers(tmp_path: Path, carries: bool) -> None:
    """One channel is silent but for a few values forty times as large as all others. As the signal it is kept whole; where nobody
    reads it, it must not cost the others their resolution, as it does with true extremes alone."""
    net = Network()
    h = net.conv(net.x, "h", np.diag([100.0, 1.0, 1.0]).reshape(3, 1, 1, 3))
    readers = np.array([[1.0, 0.02, 0.02], [1.0, -0.02, 0.02]] if carries else [[0.0, 1.0, 1.0], [0.0, 1.0, -1.0]])
    model = net.saved(tmp_path, [net.conv(h, "y", readers.reshape(2, 1, 1, 3))])
    data = samples(50)
    random = np.random.default_rng(3)
    for sample in data:
        sample["x"][..., 0] = 0.0
        for row, column in random.integers(0, SIZE, (2, 2)):
            sample["x"][0, row, column, 0] = random.uniform(0.8, 1.2)
    plain = quantized(model, observe(model, data[:40]), tmp_path)
    before = sqnr_db(model, plain, data[40:])
    path, done = corrected(model, data[:40], tmp_path, Corrections())
    after = sqnr_db(model, path, data[40:])
    if carries:
        assert done.ranges.by_tensor["h"][1] > 115 and after > 35
    else:
        assert before < 20 and after > 30


def test_corrections_help_on_data_that_took_no_part(tmp_path: Path) -> None:
    model, data = deep(tmp_path), samples(40)
    held_out = samples(16, seed=5)
    before = sqnr_db(model, quantized(model, observe(model, data), tmp_path), held_out)
    path, done = corrected(model, data, tmp_path, Corrections())
    record = done.corrections
    assert record is not None and record.before is not None and record.after is not None
    assert record.after.ordinary_db > record.before.ordinary_db + 1
    assert sqnr_db(model, path, held_out) > before + 1
    assert record.judged == 10 and record.rare == 4
    assert any(trial.what.startswith("equalised") for trial in record.trials)


@pytest.mark.parametrize("equalise", ["off", "on"])
def test_the_file_is_no_larger_than_that_of_the_engine(tmp_path: Path, equalise: str) -> None:
    model, data = deep(tmp_path), samples(20)
    size_bytes = quantized(model, observe(model, data), tmp_path).stat().st_size
    path, _ = corrected(model, data, tmp_path, Corrections(equalise=equalise))
    assert abs(path.stat().st_size - size_bytes) <= 64  # padding


def test_layers_that_share_stored_bytes_are_corrected_apart(tmp_path: Path) -> None:
    """The engine stores equal biases once; what is set for one layer must not reach the other."""
    net = Network()
    h = net.conv(net.x, "h", normal(3, 1, 1, 3, seed=1))
    model = net.saved(tmp_path, [net.conv(h, "y", normal(3, 1, 1, 3, seed=2))])
    path = quantized(model, observe(model, samples(6)), tmp_path)
    shared = tflite.read(path)
    first, second = (t for t in tflite.graph(shared).tensors if t.name.endswith("/b"))
    shared.subgraphs[0].tensors[second.index].buffer = shared.subgraphs[0].tensors[first.index].buffer
    tflite.write(shared, path)
    file = Int8File.open(path)
    file.set_bias(file.index["h/b"], np.zeros(3))
    file.write(path)
    got = tflite.read(path)
    values = {t.name: tflite.constant_value(got, t) for t in tflite.graph(got).tensors if t.name.endswith("/b")}
    assert not np.any(values["h/b"]) and np.any(values["y/b"])


def test_what_is_switched_off_is_not_done(tmp_path: Path) -> None:
    model, data = deep(tmp_path), samples(20)
    ranges = observe(model, data)
    plain = quantized(model, ranges, tmp_path).read_bytes()
    path, done = corrected(model, data, tmp_path, NO_CORRECTIONS, "min-max")
    assert done.ranges.by_tensor == ranges.by_tensor
    one, two = Interpreter(path), tflite.read(plain)
    weights = [t for t in tflite.graph(two).tensors if t.name.endswith("/w")]
    got = tflite.read(path)
    assert all(
        np.array_equal(tflite.constant_value(two, t), tflite.constant_value(got, tflite.graph(got).tensors[t.index]))
        for t in weights
    )
    assert one.outputs[0]["quantization"] == Interpreter(path).outputs[0]["quantization"]


def test_the_same_bytes_again_whatever_the_threads_of_the_linear_algebra(tmp_path: Path) -> None:
    script = (
        "import sys, hashlib; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from test_correct import corrected, deep, samples, Corrections\n"
        "folder = Path(sys.argv[1]); folder.mkdir()\n"
        "path, _ = corrected(deep(folder), samples(20), folder, Corrections())\n"
        "print(hashlib.sha256(path.read_bytes()).hexdigest())"
    )
    here = Path(__file__).parent
    places = [str(place) for place in (here, here.parent, here.parent / "intake", here.parents[1])]
    digests = []
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", script, str(tmp_path / threads), *places]
        digests.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert digests[0] == digests[1] and len(digests[0].strip()) == 64


def test_below_five_samples_nothing_is_corrected_and_that_is_said(tmp_path: Path) -> None:
    model, data = deep(tmp_path), samples(FEWEST - 1)
    path, done = corrected(model, data, tmp_path, Corrections())
    assert done.corrections is not None and "below 5 none can be held out" in done.corrections.note
    assert done.corrections.before is None and Interpreter(path).outputs


def test_a_rare_sample_judges_and_does_not_correct() -> None:
    extents = [0.0] * 50
    for position in (7, 23, 41):
        extents[position] = 3.0
    parts = hold_out(extents, seed=1)
    assert parts is not None
    rare = {i for i, is_rare in zip(parts.judging, parts.rare, strict=True) if is_rare}
    assert {7, 23, 41} <= rare and len(rare) == 5 and len(parts.judging) == 12
    assert not set(parts.correcting) & set(parts.judging)
    assert set(parts.unseen) == set(parts.judging) - rare
    assert hold_out(extents, seed=1) == parts and hold_out([0.0] * 4, seed=1) is None


@pytest.mark.parametrize(
    ("rare", "peaks", "spared"),
    [
        ([20.0, 21.0, 22.0, 20.5], 30.0, True),
        ([19.8, 20.8, 21.8, 20.3], 30.0, True),  # a fifth of a decibel
        ([17.0, 18.0, 19.0, 17.5], 30.0, False),  # all of them worse
        ([29.0, 12.0, 26.0, 14.0], 30.0, True),  # half of them much better, half much worse: chance
        ([20.0, 21.0, 22.0, 20.5], 28.0, False),  # what a detector answers with became worse
    ],
)
def test_the_rare_are_spared(rare: list[float], peaks: float, spared: bool) -> None:
    floor = Score(25.0, 21.0, 30.0, (25.0, 25.0), (20.0, 21.0, 22.0, 20.5))
    score = Score(40.0, float(np.mean(rare)), peaks, (40.0, 40.0), tuple(rare))
    assert spares_the_rare(score, floor) is spared


def test_a_finer_scale_that_a_bias_cannot_take_is_refused(tmp_path: Path) -> None:
    """A channel of tiny weights and a real bias stands at a quarter of the range after the repair; four times finer is too much."""
    net = Network()
    h = net.conv(net.x, "h", normal(3, 1, 1, 3, seed=1))
    model = net.saved(tmp_path, [net.conv(h, "y", normal(2, 1, 1, 3, seed=2) * np.float32([[[[1]]], [[[1e-9]]]]))])
    ranges = observe(model, samples(6))
    path = quantized(model, ranges, tmp_path)
    file = Int8File.open(path)
    group: Group = next(g for g in groups(tflite.read(path), ranges.by_tensor) if g.name == "h")
    low, high = ranges.by_tensor["h"]
    assert file.takes_range(group, (low, high)) and file.takes_range(group, (low / 1.5, high / 1.5))
    assert not file.takes_range(group, (low / 8, high / 8))
    assert parameters((low, high))[0] == pytest.approx((high - low) / 255)
