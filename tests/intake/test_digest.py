"""Every digest pass leaves what ONNX Runtime computes as it was, and takes away what it is for."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper
from tiny_models import onnx_model

from edgekit.intake.digest.run import PASSES, digest

Arrays = dict[str, NDArray[Any]]


def run(model: Any, inputs: Arrays) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def random(*shape: int, seed: int = 0, mean: float = 0.0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(mean, 1, shape).astype(np.float32)


def applied(name: str, model: Any, inputs: Arrays) -> Any:
    """``model`` after the pass ``name``, which changed it and left its outputs as they were."""
    after = onnx.ModelProto()
    after.CopyFrom(model)
    assert importlib.import_module(f"edgekit.intake.digest.{name}").apply(after)
    for expected, got in zip(run(model, inputs), run(after, inputs), strict=True):
        assert expected.dtype == got.dtype and expected.shape == got.shape
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(got, expected)
    return after


def kinds(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def unchanged(name: str, model: Any) -> bool:
    before = model.SerializeToString()
    return not importlib.import_module(f"edgekit.intake.digest.{name}").apply(model) and (
        model.SerializeToString() == before
    )


PLAIN = onnx_model(
    [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])],
    {"x": [1, 3, 8, 8]},
    {"y": [1, 4, 8, 8]},
    {"w": random(4, 3, 3, 3)},
)


@pytest.mark.parametrize("name", PASSES)
def test_a_plain_network_is_left_alone(name: str) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(PLAIN)
    assert unchanged(name, model)


@pytest.mark.parametrize(
    "given", [{"value_float": 2.5}, {"value_floats": [1.0, 2.0, 3.0]}, {"value_int": 2}, {"value_ints": [1, 2, 3]}]
)
def test_constants(given: dict[str, Any]) -> None:
    cast = helper.make_node("Cast", ["k"], ["f"], to=1)
    nodes = [helper.make_node("Constant", [], ["k"], **given), cast, helper.make_node("Mul", ["x", "f"], ["y"])]
    after = applied("constants", onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3]}), {"x": random(2, 3)})
    assert [item.name for item in after.graph.node[0].attribute] == ["value"]


def test_functions() -> None:
    """Attention, from opset 23, is defined by products and a softmax."""
    shape = [2, 3, 4, 8]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    model = onnx_model([node], dict.fromkeys("qkv", shape), {"y": shape}, opset=23, ir=11)
    after = applied("functions", model, {name: random(*shape, seed=i) for i, name in enumerate("qkv")})
    assert "Attention" not in kinds(after) and "MatMul" in kinds(after)


def test_functions_keeps_what_converters_know() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"])
    assert unchanged("functions", onnx_model([node], {"x": [2, 3]}, {"y": [2, 3]}, opset=20))


def test_opset() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], axes=[1], keepdims=1),
        helper.make_node("Unsqueeze", ["s"], ["u"], axes=[0]),
        helper.make_node("Softmax", ["u"], ["y"], axis=2),
    ]
    after = applied("opset", onnx_model(nodes, {"x": [3, 4, 2]}, {"y": None}, opset=11), {"x": random(3, 4, 2)})
    assert after.opset_import[0].version == 17


def test_folding() -> None:
    """A shape that is computed, and a weight that is prepared in the graph."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "wt"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "rest": np.array([-1]), "w": random(5, 12)}
    after = applied("folding", onnx_model(nodes, {"x": [2, 3, 4]}, {"y": None}, constants), {"x": random(2, 3, 4)})
    assert kinds(after) == ["Reshape", "MatMul"]


def test_folding_leaves_randomness_and_keeps_constant_outputs() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    model = onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3], "s": [2]}, dtypes={"s": "int64"})
    after = applied("folding", model, {"x": random(2, 3)})
    assert sorted(kinds(after)) == ["Constant", "Relu"]
    noise = helper.make_node("RandomNormalLike", ["k"], ["n"])
    add = helper.make_node("Add", ["x", "n"], ["y"])
    assert unchanged("folding", onnx_model([noise, add], {"x": [2, 3]}, {"y": [2, 3]}, {"k": random(2, 3)}))


def test_inference() -> None:
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    constants = {"ratio": np.float32(0.5), "training": np.array(False)}
    after = applied("inference", onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, constants), {"x": random(2, 3)})
    assert "Dropout" not in kinds(after)
    constants["training"] = np.array(True)
    assert unchanged("inference", onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, constants))


def test_negative_axes() -> None:
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"], axis=-2),
        helper.make_node("Softmax", ["g"], ["s"], axis=-1),
        helper.make_node("ReduceSum", ["s", "axes"], ["r"], keepdims=0),
        helper.make_node("Unsqueeze", ["r", "last"], ["y"]),
    ]
    constants = {"i": np.array([0, -1, -3]), "axes": np.array([-3]), "last": np.array([-1])}
    after = applied(
        "negative_axes", onnx_model(nodes, {"x": [2, 4, 5]}, {"y": None}, constants), {"x": random(2, 4, 5)}
    )
    assert [item.i for node in after.graph.node for item in node.attribute if item.name == "axis"] == [1, 2]
    read = {name for node in after.graph.node for name in node.input}
    values = [onnx.numpy_helper.to_array(item) for item in after.graph.initializer if item.name in read]
    assert all((value >= 0).all() for value in values)


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_padding(op: str, how: str) -> None:
    options: dict[str, Any] = {"strides": [2, 3], "auto_pad": how, "kernel_shape": [3, 2]}
    inputs = ["x", "w"] if op == "Conv" else ["x"]
    constants = {"w": random(4, 3, 3, 2)} if op == "Conv" else {}
    model = onnx_model([helper.make_node(op, inputs, ["y"], **options)], {"x": [1, 3, 10, 11]}, {"y": None}, constants)
    after = applied("padding", model, {"x": random(1, 3, 10, 11, mean=-3)})
    assert "auto_pad" not in [item.name for item in after.graph.node[0].attribute]


POOLS = [
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [0, 1, 1, 0]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "dilations": [2, 2]},
    {"kernel_shape": [3, 3], "dilations": [2, 3], "pads": [2, 2, 2, 2], "strides": [2, 1]},
    {"kernel_shape": [3, 3], "pads": [2, 0, 1, 1]},
]


@pytest.mark.parametrize("options", POOLS, ids=str)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "AveragePool counting"])
@pytest.mark.parametrize("size", [(15, 20), (7, 8)])
def test_pools(op: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    """All values are negative, so that a border of zeros would win the maximum."""
    counting = {"count_include_pad": 1} if op.endswith("counting") else {}
    opset = 19 if "Average" in op else 17
    node = helper.make_node(op.split()[0], ["x"], ["y"], **options, **counting)
    model = onnx_model([node], {"x": [1, 4, *size]}, {"y": None}, opset=opset)
    after = applied("pools", model, {"x": random(1, 4, *size, mean=-5)})
    assert op.split()[0] not in kinds(after)


@pytest.mark.parametrize("length", [9, 12])
def test_pools_in_one_and_three_dimensions(length: int) -> None:
    for shape, options in (
        ([1, 3, length], {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
        ([1, 3, 5, 6, length], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1}),
    ):
        model = onnx_model([helper.make_node("MaxPool", ["x"], ["y"], **options)], {"x": shape}, {"y": None})
        applied("pools", model, {"x": random(*shape, mean=-5)})


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{"strides": [1, 1]}, {"strides": [2, 2], "pads": [0, 1, 1, 0]}, {"ceil_mode": 1, "strides": [2, 2]}],
    ids=str,
)
def test_pools_by_a_norm(power: int, options: dict[str, Any]) -> None:
    node = helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[3, 2], p=power, **options)
    model = onnx_model([node], {"x": [1, 2, 8, 9]}, {"y": None}, opset=18)
    applied("pools", model, {"x": random(1, 2, 8, 9)})


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
def test_simple_one_input(op: str) -> None:
    model = onnx_model([helper.make_node(op, ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]})
    assert kinds(applied("simple", model, {"x": random(2, 3)})) == ["Identity"]


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_simple_norm_and_a_row_of_zeros(power: int, axis: int) -> None:
    values = random(3, 4, 5)
    values[0] = 0
    values[:, :, 2] = 0
    model = onnx_model(
        [helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=power)], {"x": [3, 4, 5]}, {"y": [3, 4, 5]}
    )
    assert "LpNormalization" not in kinds(applied("simple", model, {"x": values}))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_simple_hardmax_takes_the_first_of_equals(axis: int) -> None:
    model = onnx_model([helper.make_node("Hardmax", ["x"], ["y"], axis=axis)], {"x": [3, 4, 5]}, {"y": [3, 4, 5]})
    values = np.random.default_rng(0).integers(0, 3, (3, 4, 5)).astype(np.float32)
    assert "Hardmax" not in kinds(applied("simple", model, {"x": values}))


@pytest.mark.parametrize(("op", "options"), [("Elu", {"alpha": 2.0}), ("Gelu", {"approximate": "tanh"})])
def test_functions_spells_out_uncommon_activations(op: str, options: dict[str, Any]) -> None:
    model = onnx_model([helper.make_node(op, ["x"], ["y"], **options)], {"x": [2, 3]}, {"y": [2, 3]}, opset=20)
    assert op not in kinds(applied("functions", model, {"x": random(2, 3)}))


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_last_index(op: str, keepdims: int, axis: int) -> None:
    """Values repeat, so that first and last differ."""
    node = helper.make_node(op, ["x"], ["y"], axis=axis, keepdims=keepdims, select_last_index=1)
    model = onnx_model([node], {"x": [3, 4, 5]}, {"y": None}, dtypes={"y": "int64"})
    values = np.random.default_rng(0).integers(0, 2, (3, 4, 5)).astype(np.float32)
    after = applied("last_index", model, {"x": values})
    assert all(item.name != "select_last_index" for node in after.graph.node for item in node.attribute)


TRANSPOSED = [
    {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"strides": [3, 3], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "pads": [0, 1, 1, 0]},
    {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"strides": [2, 2], "output_padding": [1, 1]},
    {"strides": [2, 3], "output_shape": [20, 25]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [2, 2], "pads": [1, 1, 1, 1], "dilations": [2, 2]},
]


@pytest.mark.parametrize("options", TRANSPOSED, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_transposed(options: dict[str, Any], bias: bool) -> None:
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    node = helper.make_node("ConvTranspose", inputs, ["y"], **options)
    constants = {"w": random(3, 8, 3, 3, seed=1), "b": random(8, seed=2)}
    model = onnx_model([node], {"x": [1, 3, 9, 8]}, {"y": None}, constants)
    after = applied("transposed", model, {"x": random(1, 3, 9, 8)})
    kept = {item.name for node in after.graph.node if node.op_type == "ConvTranspose" for item in node.attribute}
    assert not kept & {"pads", "auto_pad", "output_padding", "output_shape"}


RESIZES = [
    {"mode": mode, "coordinate_transformation_mode": place, **more}
    for mode, more in (
        ("linear", {}),
        ("cubic", {}),
        ("nearest", {"nearest_mode": "ceil"}),
        ("linear", {"antialias": 1}),
    )
    for place in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
]


@pytest.mark.parametrize("options", RESIZES, ids=str)
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_resize(options: dict[str, Any], by: str) -> None:
    if by == "scales":
        inputs, constants = ["x", "", "p"], {"p": np.float32([1, 1, 2.5, 0.6])}
    else:
        inputs, constants = ["x", "", "", "p"], {"p": np.array([1, 2, 9, 5])}
    model = onnx_model(
        [helper.make_node("Resize", inputs, ["y"], **options)], {"x": [1, 2, 4, 7]}, {"y": None}, constants, opset=18
    )
    after = applied("resize", model, {"x": random(1, 2, 4, 7)})
    assert "Resize" not in kinds(after)


def test_digest_reports_what_it_did_and_drops_a_pass_that_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.intake.digest import last_index

    node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, select_last_index=1)
    model = onnx_model([node], {"x": [2, 5]}, {"y": [2, 1]}, dtypes={"y": "int64"})
    inputs = {"x": np.float32([[1, 3, 3, 0, 3], [2, 2, 0, 0, 0]])}
    outputs = [{"y": run(model, inputs)[0]}]
    rewritten, done = digest(model, [inputs], outputs)
    assert done == (PASSES["last_index"],)
    np.testing.assert_array_equal(run(rewritten, inputs)[0], outputs[0]["y"])

    def wrong(broken: Any) -> bool:
        broken.graph.node[0].attribute[-1].i = 0  # the first of equal values
        return True

    monkeypatch.setattr(last_index, "apply", wrong)
    same, done = digest(model, [inputs], outputs)
    assert done == () and kinds(same) == ["ArgMax"]


def test_a_pass_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.intake.digest import functions

    def broken(_: Any) -> bool:
        raise ValueError("a graph that was not expected")

    monkeypatch.setattr(functions, "apply", broken)
    inputs = {"x": random(1, 3, 8, 8)}
    _, done = digest(PLAIN, [inputs], [{"y": run(PLAIN, inputs)[0]}])
    assert done == ()


def test_functions_with_inputs_left_out() -> None:
    """Attention with a past but no mask: an empty name in the middle of its inputs."""
    heads, past = [1, 2, 4, 8], [1, 2, 3, 8]
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "k2", "v2"], is_causal=1)
    inputs = {"q": heads, "k": heads, "v": heads, "pk": past, "pv": past}
    outputs = {"y": heads, "k2": [1, 2, 7, 8], "v2": [1, 2, 7, 8]}
    model = onnx_model([node], inputs, outputs, opset=23, ir=11)
    values = {name: random(*shape, seed=i) for i, (name, shape) in enumerate(inputs.items())}
    after = applied("functions", model, values)
    assert "Attention" not in kinds(after) and not after.functions


def test_pools_over_three_axes_are_always_spelled_out() -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2, 2])
    model = onnx_model([node], {"x": [1, 2, 5, 6, 7]}, {"y": None})
    assert "AveragePool" not in kinds(applied("pools", model, {"x": random(1, 2, 5, 6, 7)}))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("constant_first", [False, True])
def test_ranks(op: str, constant_first: bool) -> None:
    node = helper.make_node(op, ["g", "x"] if constant_first else ["x", "g"], ["y"])
    constants = {"g": np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)}
    model = onnx_model([node], {"x": [1, 4, 4, 4]}, {"y": [1, 4, 4, 4]}, constants)
    after = applied("ranks", model, {"x": random(1, 4, 4, 4, mean=5)})
    read = after.graph.node[0].input[0 if constant_first else 1]
    assert [list(item.dims) for item in after.graph.initializer if item.name == read] == [[1, 4, 1, 1]]


def test_shapes() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2])]
    model = onnx_model(nodes, {"x": [1, 3, 8, 8]}, {"y": None}, {"w": random(4, 3, 3, 3)})
    after = applied("shapes", model, {"x": random(1, 3, 8, 8)})
    assert [size.dim_value for size in after.graph.output[0].type.tensor_type.shape.dim] == [1, 4, 3, 3]


def test_declared_outputs() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1)
    relu = helper.make_node("Relu", ["v"], ["r"])
    outputs = {"v": [2, 3], "r": [2, 3]}
    model = onnx_model([node, relu], {"x": [2, 5], "k": [1]}, outputs, dtypes={"k": "int64", "i": "int64"})
    after = applied("declared_outputs", model, {"x": random(2, 5), "k": np.array([3])})
    assert kinds(after) == ["TopK", "Relu", "Reshape", "Reshape"]
    assert unchanged("declared_outputs", after)
    inputs = {"x": random(2, 5), "k": np.array([2])}
    with pytest.raises(Exception, match="eshape"):
        run(after, inputs)


def test_declared_outputs_that_follow_from_the_graph_are_left_alone() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1)
    model = onnx_model([node], {"x": [2, 5]}, {"v": [2, 3]}, {"k": np.array([3])})
    assert unchanged("declared_outputs", model)
    open_size = onnx_model([node], {"x": [2, 5], "k": [1]}, {"v": [2, 3]}, dtypes={"k": "int64"})
    open_size.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "k"
    assert unchanged("declared_outputs", open_size)
