"""When the graph as it is cannot be converted, a rewritten one is; and what cannot be converted either way is refused by node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, normal, truth
from tiny_models import onnx_model

from edgekit.errors import ConversionError


def test_second_attempt_is_noted_with_what_was_rewritten(route: Front) -> None:
    node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0, select_last_index=1)
    model = onnx_model([node], {"x": [2, 6]}, {"y": [2]}, dtypes={"y": "int64"})
    samples = [{"x": np.float32([[1, 3, 3, 0, 3, 2], [2, 2, 0, 0, 0, 0]])}]
    made = route.imported(model, samples)
    assert made.notes[0].startswith("onnx2tf: ") and "select_last_index" in made.notes[0]
    assert made.notes[1].startswith("onnx2tf, graph rewritten: equals the source")
    assert "last index of a maximum spelled out" in made.notes[1]
    np.testing.assert_array_equal(made.run(samples[0])["y"], truth(model, samples[0])["y"])


def test_a_graph_that_converts_is_not_rewritten(route: Front) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    made = route.imported(onnx_model([node], {"x": [2, 6]}, {"y": [2, 6]}), [{"x": normal(2, 6)}])
    assert made.notes == ("onnx2tf: equals the source",)


def test_refusal_names_node_attributes_and_inputs(route: Front) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="block/conv", strides=[2, 2])
    model = onnx_model([node], {"x": [1, 3, 8, 8], "w": [4, 3, 3, 3]}, {"y": [1, 4, 3, 3]})
    with pytest.raises(ConversionError) as caught:
        route.imported(model, [{"x": normal(1, 3, 8, 8), "w": normal(4, 3, 3, 3)}])
    assert "Conv block/conv with strides = [2, 2], whose inputs w are not constant" in caught.value.message
    assert caught.value.exit_code == 3 and caught.value.code == "operator_unsupported"
    assert "as constants" in caught.value.hint
    assert caught.value.details["nodes"][0]["name"] == "block/conv"


def test_scalars(route: Front) -> None:
    """Converters make a scalar a list of one; it is fed and read all the same."""
    model = onnx_model(
        [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0)],
        {"x": [2, 3], "k": []},
        {"y": []},
    )
    samples = [{"x": normal(2, 3, seed=seed), "k": np.array(seed + 1.5, np.float32)} for seed in range(2)]
    made = route.imported(model, samples)
    assert made.model.inputs[1].source_shape == () and made.model.outputs[0].source_shape == ()


def test_integers_are_equal_or_wrong(route: Front) -> None:
    """An index that is off by one is 80 dB beside large ones."""
    from dataclasses import replace

    from edgekit.verify.parity import parity

    node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)
    model = onnx_model([node], {"x": [1, 60000]}, {"y": [1]}, dtypes={"y": "int64"})
    sample = {"x": np.zeros((1, 60000), np.float32)}
    sample["x"][0, 59998] = 1
    made = route.imported(model, [sample])
    right, wrong = {"y": np.array([59998])}, {"y": np.array([59997])}
    assert parity(made.model, [sample], [right], reference="known", limit_db=80).passed
    result = parity(replace(made.model), [sample], [wrong], reference="known", limit_db=80)
    assert not result.passed and result.outputs[0].sqnr_db is not None and result.outputs[0].sqnr_db > 90


def test_infinities_and_nan_of_the_source_are_equal_or_wrong(route: Front) -> None:
    from edgekit.verify.parity import parity

    model = onnx_model([helper.make_node("Log", ["x"], ["y"])], {"x": [1, 4]}, {"y": [1, 4]})
    made = route.imported(model, [{"x": np.float32([[1, 2, 3, 4]])}])
    sample = {"x": np.float32([[0, -1, 1, 2]])}
    with np.errstate(all="ignore"):
        logs = np.log(sample["x"])
    assert parity(made.model, [sample], [{"y": logs}], reference="numpy", limit_db=80).passed
    other = logs.copy()
    other[0, 0] = np.inf
    assert not parity(made.model, [sample], [{"y": other}], reference="numpy", limit_db=80).passed


def test_a_shape_input_is_probed_with_its_real_value(route: Front) -> None:
    """Zeros for a target shape would let the interpreter refuse a right file."""
    model = onnx_model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        {"x": [3, 1], "shape": [3]},
        {"y": [2, 3, 6]},
        dtypes={"shape": "int64"},
    )
    sample = {"x": normal(3, 1), "shape": np.array([2, 1, 6])}
    made = route.imported(model, [sample])
    np.testing.assert_array_equal(made.run(sample)["y"], np.broadcast_to(sample["x"], (2, 3, 6)))
