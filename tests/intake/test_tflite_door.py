"""The door for .tflite: files of every age and kind come in as clean float32, or are refused by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import TinyTflite, endless_tflite, float_conv_tflite, partly_quantized_tflite, shared

from edgekit.errors import ConversionError, DataError, EdgekitError, UnsupportedModelError, UsageError
from edgekit.intake import tflite
from edgekit.intake.door import Delivered, DoorOptions, open_door
from edgekit.runtime.backend import open_backend

Sample = dict[str, NDArray[Any]]


def saved(model: Any, folder: Path) -> Path:
    """The model in a file."""
    path = folder / "net.tflite"
    tflite.write(model, path)
    return path


def opened(path: Path, folder: Path, **options: Any) -> Any:
    """The door, working in ``folder``."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return open_door(path, DoorOptions(work=work, **options))


def delivered(door: Any, folder: Path, samples: list[Sample]) -> tuple[Delivered, list[Sample]]:
    """What the only route gives, and the reference's outputs."""
    reference = door.reference(threads=1)
    outputs = [reference.run(sample) for sample in samples]
    (route,) = door.routes()
    made = route.convert(samples, outputs, work=folder / "work", timeout_s=60, tick=lambda: None)
    return made, outputs


def run(path: Path, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    with open_backend(path, threads=1) as backend:
        for position, value in enumerate(inputs):
            backend.set_input(position, value)
        backend.invoke()
        return [backend.get_output(position) for position in range(len(backend.outputs))]


def noise(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def refused(make: Callable[[], Any], folder: Path, **options: Any) -> EdgekitError:
    """The error that the door raises for the model that ``make`` gives."""
    with pytest.raises(EdgekitError) as caught:
        opened(saved(make(), folder), folder, **options)
    return caught.value


def test_a_float_file_without_signature_gets_one_in_its_own_names(tmp_path: Path) -> None:
    path = saved(float_conv_tflite(), tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    door = opened(path, tmp_path)
    assert [spec.name for spec in door.inputs] == ["x"] and door.output_names == ("y",)
    assert (door.source.format, door.source.sha256) == ("tflite", digest)
    x = noise(1, 8, 8, 3)
    made, outputs = delivered(door, tmp_path, [{"x": x}])
    np.testing.assert_array_equal(run(made.model.path, x)[0], run(path, x)[0])
    np.testing.assert_array_equal(outputs[0]["y"], run(path, x)[0])
    (signature,) = tflite.graph(tflite.read(made.model.path)).signatures
    assert (list(signature.inputs), list(signature.outputs)) == (["x"], ["y"])
    assert made.model.inputs[0].permutation is None and made.model.inputs[0].layout == "nhwc"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


def test_operators_that_only_the_old_field_names_are_understood(tmp_path: Path) -> None:
    from ai_edge_litert import schema_py_generated as schema

    model = float_conv_tflite()
    x = noise(1, 8, 8, 3)
    modern = run(saved(model, tmp_path), x)[0]
    builder = __import__("flatbuffers").Builder(4096)
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode, code.builtinCode = code.builtinCode, 0
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path = tmp_path / "old.tflite"
    path.write_bytes(bytes(builder.Output()))
    assert all(code.builtinCode == 0 for code in schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0).operatorCodes)
    made, _ = delivered(opened(path, tmp_path), tmp_path, [{"x": x}])
    np.testing.assert_array_equal(run(made.model.path, x)[0], modern)
    codes = schema.ModelT.InitFromPackedBuf(made.model.path.read_bytes(), 0).operatorCodes
    assert sorted(code.builtinCode for code in codes) == sorted(
        getattr(schema.BuiltinOperator, kind) for kind in ("CONV_2D", "RESHAPE", "FULLY_CONNECTED")
    )


def signed(
    model: Any, inputs: dict[str, int], outputs: dict[str, int], *, key: str = "serve", subgraph: int = 0
) -> Any:
    """``model`` with one more signature."""
    from ai_edge_litert import schema_py_generated as schema

    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = key, subgraph
    for side, names in (("inputs", inputs), ("outputs", outputs)):
        entries = []
        for name, index in names.items():
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = name, index
            entries.append(entry)
        setattr(signature, side, entries)
    model.signatureDefs = [*(model.signatureDefs or []), signature]
    return model


def two_of_each() -> tuple[Any, list[int]]:
    """``sum`` = a + b and ``difference`` = a - b on tensors with odd names; inputs and outputs of equal shape."""
    tiny = TinyTflite()
    a, b, plus, minus = (tiny.tensor(name, (1, 3)) for name in ("t/0:0", "t/0:0", "", ""))
    tiny.operator("ADD", [a, b], [plus])
    tiny.operator("SUB", [a, b], [minus])
    return tiny.model(tiny.graph([a, b], [minus, plus])), [a, b, plus, minus]


def test_names_and_order_of_the_signature_survive(tmp_path: Path) -> None:
    model, (a, b, plus, minus) = two_of_each()
    signed(model, {"zeta": a, "alpha": b}, {"sum": plus, "difference": minus})
    door = opened(saved(model, tmp_path), tmp_path)
    assert [spec.name for spec in door.inputs] == ["zeta", "alpha"] and door.output_names == ("difference", "sum")
    sample = {"zeta": np.float32([[5, 6, 7]]), "alpha": np.float32([[1, 2, 4]])}
    made, outputs = delivered(door, tmp_path, [sample])
    np.testing.assert_array_equal(outputs[0]["difference"], [[4, 4, 3]])
    np.testing.assert_array_equal(outputs[0]["sum"], [[6, 8, 11]])
    assert [spec.name for spec in made.model.outputs] == ["difference", "sum"]
    with open_backend(made.model.path) as backend:
        inputs, results = backend.signatures["serving_default"]
        assert inputs == {"zeta": 0, "alpha": 1} and results == {"difference": 0, "sum": 1}


def test_empty_and_repeated_names_without_signature_are_told_apart(tmp_path: Path) -> None:
    model, _ = two_of_each()
    door = opened(saved(model, tmp_path), tmp_path)
    assert [spec.name for spec in door.inputs] == ["t/0:0", "t/0:0_2"] and door.output_names == ("output_0", "output_1")
    made, outputs = delivered(door, tmp_path, [{"t/0:0": np.float32([[5, 6, 7]]), "t/0:0_2": np.float32([[1, 2, 4]])}])
    np.testing.assert_array_equal(outputs[0]["output_0"], [[4, 4, 3]])
    names = [tensor.name for tensor in tflite.graph(tflite.read(made.model.path)).tensors]
    assert len(set(names)) == len(names) and all(names)


def test_one_of_several_signatures_has_to_be_chosen(tmp_path: Path) -> None:
    tiny = TinyTflite()

    def graph(kind: str) -> Any:
        x, y = tiny.tensor("x", (1, 2)), tiny.tensor("y", (1, 2))
        tiny.operator(kind, [x], [y])
        return tiny.graph([x], [y], kind)

    model = tiny.model(graph("NEG"), graph("ABS"))
    signed(model, {"x": 0}, {"y": 1}, key="negate")
    signed(model, {"value": 0}, {"size": 1}, key="absolute", subgraph=1)
    path = saved(model, tmp_path)
    with pytest.raises(UsageError, match="2 signatures: negate, absolute") as caught:
        opened(path, tmp_path)
    assert caught.value.code == "signature_open" and "--signature" in caught.value.hint
    with pytest.raises(UsageError, match="no signature 'negatee'") as caught:
        opened(path, tmp_path, signature="negatee")
    assert "negate" in caught.value.hint
    door = opened(path, tmp_path, signature="absolute")
    made, outputs = delivered(door, tmp_path, [{"value": np.float32([[-3, 2]])}])
    np.testing.assert_array_equal(outputs[0]["size"], [[3, 2]])
    assert len(tflite.read(made.model.path).subgraphs) == 1


def dynamic_range(scale: Any = 0.01) -> tuple[Any, NDArray[np.float32]]:
    """A dense layer with int8 weights and the real weights that they stand for."""
    integers = np.random.default_rng(7).integers(-127, 128, (5, 32)).astype(np.int8)
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 32)), tiny.tensor("y", (1, 5))
    weights = tiny.tensor("w", (5, 32), "int8", data=integers, scale=scale)
    tiny.operator("FULLY_CONNECTED", [x, weights, -1], [y], asymmetricQuantizeInputs=True)
    return tiny.model(tiny.graph([x], [y])), np.float32(np.resize(scale, 5))[:, None] * integers.astype(np.float32)


def test_a_dynamic_range_file_is_the_network_of_its_weights(tmp_path: Path) -> None:
    model, weights = dynamic_range()
    path = saved(model, tmp_path)
    samples = [{"x": noise(1, 32, seed=k)} for k in range(4)]
    door = opened(path, tmp_path)
    assert "dequantised by the interpreter" in door.reference(threads=1).name
    made, outputs = delivered(door, tmp_path, samples)
    for sample, output in zip(samples, outputs, strict=True):
        truth = sample["x"] @ weights.T
        np.testing.assert_allclose(output["y"], truth, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(run(made.model.path, sample["x"])[0], truth, rtol=1e-4, atol=1e-5)
        # the file itself does not compute that: it rounds x to eight bits first
        assert np.abs(run(path, sample["x"])[0] - truth).max() > 1e-3
    assert any("rounds its activations" in remark and "dB with XNNPACK" in remark for remark in made.remarks)
    assert not any(tensor.quant for tensor in tflite.graph(tflite.read(made.model.path)).tensors)


def test_dynamic_range_weights_that_say_something_else_are_refused(tmp_path: Path) -> None:
    """The file as it runs has the last word: should dequantisation go wrong, the two have nothing in common."""
    model, _ = dynamic_range()
    door = opened(saved(model, tmp_path), tmp_path)
    samples = [{"x": noise(1, 32, seed=k)} for k in range(4)]
    outputs = [{"y": -door.reference(threads=1).run(sample)["y"]} for sample in samples]
    (route,) = door.routes()
    with pytest.raises(ConversionError, match="little in common"):
        route.convert(samples, outputs, work=tmp_path / "work", timeout_s=60, tick=lambda: None)


def open_batch() -> Any:
    """``y`` = 2 ``x``, (-1, 4), with a placeholder of 1."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 4), signature=(-1, 4)), tiny.tensor("y", (1, 4), signature=(-1, 4))
    tiny.operator("ADD", [x, x], [y])
    return tiny.model(tiny.graph([x], [y]))


def test_an_open_size_is_asked_for_and_fixed(tmp_path: Path) -> None:
    error = refused(open_batch, tmp_path)
    assert error.code == "input_shape_open" and error.hint == "fix it: --input-shape x=1x4"
    for name, shape, code in (
        ("x", (2, 5), "input_shape_invalid"),
        ("x", (4,), "input_shape_invalid"),
        ("z", (2, 4), "input_unknown"),
    ):
        assert refused(open_batch, tmp_path, input_shapes={name: shape}).code == code
    assert refused(open_batch, tmp_path, input_shapes={"x": (0, 4)}).code == "input_shape_invalid"
    door = opened(saved(open_batch(), tmp_path), tmp_path, input_shapes={"x": (3, 4)})
    assert door.inputs[0].source_shape == (3, 4)
    made, _ = delivered(door, tmp_path, [{"x": noise(3, 4)}])
    assert made.model.outputs[0].shape == (3, 4)
    graph = tflite.graph(tflite.read(made.model.path))
    assert not any(tensor.has_open_size for tensor in graph.tensors)


def test_a_size_that_the_network_does_not_take_is_refused(tmp_path: Path) -> None:
    def fixed_inside() -> Any:
        tiny = TinyTflite()
        x, y = tiny.tensor("x", (1, 4), signature=(-1, 4)), tiny.tensor("y", (4,))
        shape = tiny.tensor("shape", (1,), "int32", data=np.int32([4]))
        tiny.operator("RESHAPE", [x, shape], [y], newShape=[4])
        return tiny.model(tiny.graph([x], [y]))

    assert opened(saved(fixed_inside(), tmp_path), tmp_path, input_shapes={"x": (1, 4)}).inputs[0].shape == (1, 4)
    error = refused(fixed_inside, tmp_path, input_shapes={"x": (3, 4)})
    assert isinstance(error, UnsupportedModelError) and "with x=3x4" in error.message


def test_a_size_that_depends_on_values_is_refused(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 4)), tiny.tensor("y", (1, 2), "int64")
    zero, mask = tiny.tensor("zero", (1,), data=np.zeros(1, np.float32)), tiny.tensor("mask", (1, 4), "bool")
    tiny.operator("GREATER", [x, zero], [mask])
    tiny.operator("WHERE", [mask], [y])
    door = opened(saved(tiny.model(tiny.graph([x], [y])), tmp_path), tmp_path)
    with pytest.raises(UnsupportedModelError, match="'y' depends on the input's values"):
        delivered(door, tmp_path, [{"x": np.float32([[1, -1, 1, 1]])}, {"x": np.float32([[1, -1, -1, 1]])}])


def test_integers_and_booleans_stay_what_they_are(tmp_path: Path) -> None:
    tiny = TinyTflite()
    ids, mask = tiny.tensor("ids", (1, 3), "int32"), tiny.tensor("mask", (1, 3), "bool")
    table = tiny.tensor("table", (10, 4), data=noise(10, 4, seed=3))
    rows, nothing = tiny.tensor("rows", (1, 3, 4)), tiny.tensor("not", (1, 3), "bool")
    tiny.operator("GATHER", [table, ids], [rows])
    tiny.operator("LOGICAL_NOT", [mask], [nothing])
    door = opened(saved(tiny.model(tiny.graph([ids, mask], [rows, nothing])), tmp_path), tmp_path)
    sample = {"ids": np.int32([[9, 0, 4]]), "mask": np.array([[True, False, True]])}
    made, outputs = delivered(door, tmp_path, [sample])
    assert [spec.dtype for spec in (*made.model.inputs, *made.model.outputs)] == ["int32", "bool", "float32", "bool"]
    np.testing.assert_array_equal(outputs[0]["rows"][0], noise(10, 4, seed=3)[[9, 0, 4]])


def custom(code: str) -> Callable[[], Any]:
    def make() -> Any:
        tiny = TinyTflite()
        x, y = tiny.tensor("x", (1, 2)), tiny.tensor("made/here", (1, 2))
        tiny.operator(f"CUSTOM:{code}", [x], [y])
        return tiny.model(tiny.graph([x], [y]))

    return make


def variable() -> Any:
    tiny = TinyTflite()
    x, handle, y = tiny.tensor("x", (1, 2)), tiny.tensor("state", (), "resource"), tiny.tensor("y", (1, 2))
    tiny.operator("VAR_HANDLE", [], [handle])
    tiny.operator("ASSIGN_VARIABLE", [handle, x], [])
    tiny.operator("READ_VARIABLE", [handle], [y])
    return tiny.model(tiny.graph([x], [y]))


def whole_integer() -> Any:
    tiny = TinyTflite()
    x, y = (tiny.tensor(name, (1, 2), "int8", scale=0.1) for name in ("x", "y"))
    tiny.operator("ABS", [x], [y])
    return tiny.model(tiny.graph([x], [y]))


def float_ends() -> Any:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 2)), tiny.tensor("y", (1, 2))
    a, b = (tiny.tensor(name, (1, 2), "int8", scale=0.1) for name in ("a", "b"))
    tiny.operator("QUANTIZE", [x], [a])
    tiny.operator("ABS", [a], [b])
    tiny.operator("DEQUANTIZE", [b], [y])
    return tiny.model(tiny.graph([x], [y]))


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (custom("FlexErf"), "custom_operators", "Flex.*FlexErf .*'made/here'"),
        (custom("Mystery"), "custom_operators", "Mystery .*'made/here'"),
        (endless_tflite, "control_flow", "WHILE .*'y'"),
        (variable, "variables", "VAR_HANDLE .*'state'"),
        (whole_integer, "already_integer", "is already integer"),
        (float_ends, "already_integer", "is already integer"),
        (partly_quantized_tflite, "already_integer", "is already partly integer"),
    ],
)
def test_what_cannot_come_in_is_refused_by_name(make: Callable[[], Any], code: str, said: str, tmp_path: Path) -> None:
    import re

    error = refused(make, tmp_path)
    assert isinstance(error, UnsupportedModelError) and error.exit_code == 3
    assert error.code == code and error.hint and re.search(said, error.message), error.message
    assert not list((tmp_path / "work").iterdir())


def test_a_front_end_makes_no_sense_here(tmp_path: Path) -> None:
    error = refused(float_conv_tflite, tmp_path, frontend="onnx2tf")
    assert isinstance(error, UsageError) and "needs no front end" in error.message


def test_a_source_that_gives_nan_is_blamed_with_the_sample(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 2)), tiny.tensor("y", (1, 2))
    tiny.operator("LOG", [x], [y])
    reference = opened(saved(tiny.model(tiny.graph([x], [y])), tmp_path), tmp_path).reference(threads=1)
    with pytest.raises(DataError, match="'y' for b.jpg") as caught:
        reference.run({"x": np.float32([[1, -1]])}, name="b.jpg")
    assert caught.value.code == "source_not_finite"


def test_a_real_float16_file(tmp_path: Path) -> None:
    path = shared("models/face_detection_short_range.tflite")
    door = opened(path, tmp_path)
    samples = [
        {"input": np.random.default_rng(k).uniform(-1, 1, (1, 128, 128, 3)).astype(np.float32)} for k in range(3)
    ]
    made, outputs = delivered(door, tmp_path, samples)
    graph = tflite.graph(tflite.read(made.model.path))
    assert not any(operator.name == "DEQUANTIZE" for operator in graph.operators)
    assert not any(tensor.dtype == "float16" for tensor in graph.tensors)
    for sample, output in zip(samples, outputs, strict=True):
        for name, value in zip(door.output_names, run(made.model.path, sample["input"]), strict=True):
            np.testing.assert_allclose(value, output[name], rtol=1e-5, atol=1e-5)
    assert door.output_names == ("regressors", "classificators")


def test_a_real_model_equals_its_own_onnx_form(tmp_path: Path) -> None:
    """The ONNX file of the same network, run by another runtime, is the independent truth."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path, other = shared("models/basic_pitch_nmp.tflite"), shared("models/basic_pitch_nmp.onnx")
    door = opened(path, tmp_path, input_shapes={"input_2": (1, 43844, 1)})
    seconds = np.arange(43844) / 22050
    tone = (0.4 * np.sin(2 * np.pi * 440 * seconds) + 0.2 * np.sin(2 * np.pi * 660 * seconds)).astype(np.float32)
    sample = {"input_2": tone[None, :, None]}
    made, _ = delivered(door, tmp_path, [sample])
    assert [spec.name for spec in made.model.outputs] == ["onset", "note", "contour"]
    session = onnxruntime.InferenceSession(str(other), providers=["CPUExecutionProvider"])
    contour, note, onset = session.run(
        ["StatefulPartitionedCall:0", "StatefulPartitionedCall:1", "StatefulPartitionedCall:2"],
        {session.get_inputs()[0].name: sample["input_2"]},
    )
    for value, truth in zip(run(made.model.path, sample["input_2"]), (onset, note, contour), strict=True):
        np.testing.assert_allclose(value, truth, atol=2e-5)
