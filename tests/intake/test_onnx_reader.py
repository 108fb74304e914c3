"""An ONNX file is checked before anything is built on it, and its open sizes can be fixed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_models import conv_onnx, onnx_model, shared

from edgekit.errors import EdgekitError, ModelFileError, UnsupportedModelError, UsageError
from edgekit.intake import onnx_wire
from edgekit.intake.onnx_reader import (
    OnnxValue,
    apply_input_shapes,
    dynamic_inputs,
    onnx_io,
    read_onnx,
    require_static_inputs,
)

SHARED_MODELS = [
    "FastestDet.onnx",
    "basic_pitch_nmp.onnx",
    "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "efficientnet_lite0.onnx",
    "magika_standard_v3_3.onnx",
    "silero_vad_openvino_16k.onnx",
    "version-RFB-320_without_postprocessing.onnx",
]


def saved(model: Any, folder: Path) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def refused(path: Path, code: str) -> EdgekitError:
    with pytest.raises(EdgekitError) as caught:
        read_onnx(path)
    assert caught.value.code == code, caught.value.message
    assert str(path.parent) in caught.value.message
    return caught.value


def test_a_good_model_is_read_as_it_is(tmp_path: Path) -> None:
    model = conv_onnx()
    assert read_onnx(saved(model, tmp_path)) == model


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_real_models_are_accepted(name: str) -> None:
    path = shared(f"models/{name}")
    assert read_onnx(path).SerializeToString() == path.read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"a text file", b"2024-01-01 12:00 log started\n", bytes(40), b"\x08\x07\x12\x04test", b"\x08\x07"]
)
def test_what_is_no_model(content: bytes, tmp_path: Path) -> None:
    error = refused(saved(content, tmp_path), "not_a_model")
    assert error.details["size_bytes"] == len(content)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    content = conv_onnx().SerializeToString()
    codes = set()
    for size in range(len(content)):
        with pytest.raises(ModelFileError) as caught:
            read_onnx(saved(content[:size], tmp_path))
        codes.add(caught.value.code)
    assert codes == {"not_a_model", "model_truncated"}


def test_a_truncated_model_says_how_much_is_missing(tmp_path: Path) -> None:
    content = conv_onnx().SerializeToString()
    error = refused(saved(content[:-100], tmp_path), "model_truncated")
    tail = (
        len(conv_onnx().opset_import[0].SerializeToString()) + 2
    )  # the part behind the graph, with its key and length
    assert error.details["missing_bytes"] == 100 - tail


def test_a_model_without_operators_is_none(tmp_path: Path) -> None:
    model = conv_onnx()
    del model.graph.node[:]
    assert "without operators" in refused(saved(model, tmp_path), "not_a_model").message
    model.ClearField("graph")
    assert "no graph" in refused(saved(model, tmp_path), "not_a_model").message


@pytest.mark.parametrize(("what", "change"), [("opset", 1000), ("IR version", 400)])
def test_newer_than_the_installed_onnx(what: str, change: int, tmp_path: Path) -> None:
    model = conv_onnx()
    if what == "opset":
        model.opset_import[0].version = change
        known = onnx.defs.onnx_opset_version()
    else:
        model.ir_version = change
        known = onnx.IR_VERSION
    with pytest.raises(UnsupportedModelError, match=f"{what} {change}, but .*{what}s up to {known}") as caught:
        read_onnx(saved(model, tmp_path))
    assert (caught.value.code, caught.value.exit_code) == ("onnx_too_new", 3)


def _rename_input(model: Any) -> None:
    model.graph.node[1].input[0] = "nobody"


def _write_twice(model: Any) -> None:
    model.graph.node[1].output[0] = "c"


def _cut_weights(model: Any) -> None:
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]


def _drop_weights(model: Any) -> None:
    model.graph.initializer[0].ClearField("raw_data")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_rename_input, r"operator 1 \(Relu\) reads 'nobody', which nothing before it writes"),
        (_write_twice, "writes 'c', which exists already"),
        (_cut_weights, "needs 432 bytes, but has 428"),
        (_drop_weights, "has no values"),
        (
            lambda model: model.graph.output.extend([onnx.ValueInfoProto(name="gone")]),
            "nothing writes the output 'gone'",
        ),
        (lambda model: setattr(model.graph.initializer[0], "data_type", 99), "unknown type number 99"),
        (lambda model: model.graph.ClearField("output"), "no output"),
    ],
)
def test_parts_that_contradict_one_another(change: Any, words: str, tmp_path: Path) -> None:
    model = conv_onnx()
    change(model)
    with pytest.raises(ModelFileError, match=words) as caught:
        read_onnx(saved(model, tmp_path))
    assert caught.value.code == "model_corrupt"


def test_names_that_are_no_text(tmp_path: Path) -> None:
    content = conv_onnx().SerializeToString().replace(b"GlobalAveragePool", b"Global\xff\xfeeragePool")
    assert "no UTF-8" in refused(saved(content, tmp_path), "model_corrupt").message


def test_values_of_the_outer_graph_are_known_in_branches(tmp_path: Path) -> None:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["o"])],
        "branch",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [4])],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = onnx_model([node], {"c": [], "x": [4]}, {"y": [4]}, dtypes={"c": "bool"})
    assert read_onnx(saved(model, tmp_path)) == model


@pytest.mark.parametrize("seed", range(3))
def test_damage_gives_a_model_or_an_edgekit_error(seed: int, tmp_path: Path) -> None:
    content = conv_onnx("n").SerializeToString()
    rng = random.Random(seed)
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 10)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            model = read_onnx(saved(bytes(damaged), tmp_path))
            inputs, _ = onnx_io(model)
            apply_input_shapes(model, {value.name: (1, 3, 8, 8) for value in inputs})
        except EdgekitError as error:
            assert error.code != "internal"


def external(folder: Path, location: str, *, size: int | None = None) -> Path:
    """The model with its first weights at byte 64 of ``location``; ``size`` cuts the file there."""
    model = conv_onnx()
    tensor = model.graph.initializer[0]
    data = bytes(64) + tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "64"), ("length", str(len(data) - 64))):
        tensor.external_data.add(key=key, value=value)
    if size != 0:
        target = folder / location
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data[:size])
    return saved(model, folder)


@pytest.mark.parametrize("location", ["net.data", "weights/net.data", "./net.data"])
def test_external_data_next_to_the_model_are_loaded(location: str, tmp_path: Path) -> None:
    path = external(tmp_path, location)
    loaded = read_onnx(path).graph.initializer[0]
    np.testing.assert_array_equal(
        numpy_helper.to_array(loaded), numpy_helper.to_array(conv_onnx().graph.initializer[0])
    )
    assert not read_onnx(path, external_data=False).graph.initializer[0].HasField("raw_data")


def test_missing_external_data_name_file_and_folder(tmp_path: Path) -> None:
    error = refused(external(tmp_path, "net.data", size=0), "external_data_missing")
    assert "'net.data'" in error.message and str(tmp_path) in error.hint
    assert error.details == {"location": "net.data", "folder": str(tmp_path)}


def test_external_data_that_end_early(tmp_path: Path) -> None:
    assert "go on to byte 496" in refused(external(tmp_path, "net.data", size=100), "model_truncated").message


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "a/../../secret", "C:\\secret", "..\\secret", ""])
def test_external_data_outside_of_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(4096))
    refused(external(folder, location, size=0), "external_data_outside")


def test_external_data_behind_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(4096))
    (folder / "net.data").symlink_to(tmp_path / "secret")
    assert "symbolic link" in refused(external(folder, "net.data", size=0), "external_data_outside").hint


def test_external_data_of_constants_in_branches_are_checked_too(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "t")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [4])
    branch = helper.make_graph([helper.make_node("Constant", [], ["o"], value=tensor)], "branch", [], [output])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    refused(saved(onnx_model([node], {"c": []}, {"y": [4]}, dtypes={"c": "bool"}), tmp_path), "external_data_outside")


@pytest.mark.parametrize(("key", "value"), [("offset", "-1"), ("length", "many")])
def test_external_data_at_an_impossible_place(key: str, value: str, tmp_path: Path) -> None:
    path = external(tmp_path, "net.data")
    model = onnx.load(path, load_external_data=False)
    next(entry for entry in model.graph.initializer[0].external_data if entry.key == key).value = value
    refused(saved(model, tmp_path), "model_corrupt")


def test_initializers_among_the_inputs_are_no_inputs() -> None:
    model = conv_onnx()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]))
    inputs, outputs = onnx_io(model)
    assert inputs == (OnnxValue("x", (1, 3, 8, 8), "float32"),)
    assert outputs == (OnnxValue("y", (1, 10), "float32"),)
    rfb = read_onnx(shared("models/version-RFB-320_without_postprocessing.onnx"))
    assert [value.name for value in onnx_io(rfb)[0]] == ["input"]


def test_open_sizes_ranks_and_other_types() -> None:
    model = onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", None, 3], "z": [1]}, {"y": None})
    model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = -1  # as PaddlePaddle writes it
    model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 0
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    inputs, outputs = onnx_io(model)
    assert inputs == (
        OnnxValue("x", ("batch", "?", 3, "?", "?"), "float32"),
        OnnxValue("z", (1,), "float32"),
        OnnxValue("s", None, "sequence"),
    )
    assert outputs[0].shape is None
    assert [value.name for value in dynamic_inputs(model)] == ["x", "s"]


def test_open_inputs_are_refused_with_the_option_to_type() -> None:
    require_static_inputs(conv_onnx())
    model = onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", 3, "height", None]}, {"y": None})
    with pytest.raises(UsageError, match=r"x is batchx3xheightx\?") as caught:
        require_static_inputs(model)
    assert caught.value.code == "input_shape_open"
    assert caught.value.hint == (
        "fix it, for example: --input-shape x=1x3x224x224 (sizes left open are examples there: put those of your data)"
    )


def test_input_shapes_are_carried_through_the_graph() -> None:
    model = conv_onnx("batch")
    fixed = apply_input_shapes(model, {"x": (4, 3, 8, 8)})
    inputs, outputs = onnx_io(fixed)
    assert (inputs[0].shape, outputs[0].shape) == ((4, 3, 8, 8), (4, 10))
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in fixed.graph.value_info}
    assert shapes["c"] == [4, 4, 8, 8]
    assert onnx_io(model)[0][0].shape == ("batch", 3, 8, 8), "the given model is not changed"


def test_stale_shapes_of_intermediate_values_are_replaced() -> None:
    model = onnx.shape_inference.infer_shapes(conv_onnx("batch"))
    assert any(dim.dim_param for info in model.graph.value_info for dim in info.type.tensor_type.shape.dim)
    fixed = apply_input_shapes(model, {"x": (2, 3, 8, 8)})
    assert not any(dim.dim_param for info in fixed.graph.value_info for dim in info.type.tensor_type.shape.dim)


def test_fixed_model_computes_what_the_open_one_does(tmp_path: Path) -> None:
    import onnxruntime

    model = conv_onnx("batch")
    feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)}
    results = [
        onnxruntime.InferenceSession(item.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)[0]
        for item in (model, apply_input_shapes(model, {"x": (2, 3, 8, 8)}))
    ]
    np.testing.assert_array_equal(results[0], results[1])


def test_real_model_with_open_height_and_width() -> None:
    model = read_onnx(shared("models/ch_ppocr_mobile_v2.0_cls_infer.onnx"))
    fixed = apply_input_shapes(model, {"x": (1, 3, 48, 192)})
    assert onnx_io(fixed)[1][0].shape == (1, 2)
    require_static_inputs(fixed)


@pytest.mark.parametrize(
    ("shapes", "words", "code"),
    [
        ({"X": (1, 3, 8, 8)}, "no input 'X'", "input_unknown"),
        ({"x": (1, 3, 8)}, "it has 4 axes, not 3", "input_shape_invalid"),
        ({"x": (1, 4, 8, 8)}, "axis 1 is 3, not 4", "input_shape_invalid"),
        ({"x": (0, 3, 8, 8)}, "above 0", "input_shape_invalid"),
        ({"s": (1,)}, "it is a sequence, not a tensor", "input_shape_invalid"),
        ({"x": (1, 3, 8, 8), "z": (2,)}, "'batch' is 1 elsewhere, not 2", "input_shape_invalid"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], words: str, code: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["z"], ["u"])]
    model = onnx_model(nodes, {"x": ["batch", 3, 8, 8], "z": ["batch"]}, {"y": None, "u": None})
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    with pytest.raises(UsageError, match=words) as caught:
        apply_input_shapes(model, shapes)
    assert caught.value.code == code
    if code == "input_unknown":
        assert caught.value.hint == "did you mean x?"
    else:
        assert "--input-shape" in caught.value.hint


def test_wire_fields_cover_the_file_and_match_the_schema() -> None:
    content = conv_onnx().SerializeToString()
    found = list(onnx_wire.fields(content))
    assert found[-1].start + found[-1].size_bytes == len(content)
    known = {field.number: 0 if field.type == field.TYPE_INT64 else 2 for field in onnx.ModelProto.DESCRIPTOR.fields}
    assert known == onnx_wire._MODEL_FIELDS, "onnx has a field that the reader does not know"
