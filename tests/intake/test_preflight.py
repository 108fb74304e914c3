"""The pre-flight: what it refuses cannot work, what it warns of is named, and it reads no weight to say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tiny_models import TinyTflite, conv_onnx, float_conv_tflite, onnx_model, partly_quantized_tflite, shared

from edgekit.errors import UnsupportedModelError
from edgekit.intake import preflight, tflite
from edgekit.intake.preflight import Finding, Level
from edgekit.intake.preflight_onnx import onnx_findings


def of_onnx(model: Any, folder: Path) -> dict[str, Finding]:
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return {item.code: item for item in preflight.preflight(path)}


def of_tflite(model: Any, folder: Path) -> dict[str, Finding]:
    path = folder / "net.tflite"
    tflite.write(model, path)
    return {item.code: item for item in preflight.preflight(path)}


def one(kind: str, *, domain: str = "", inputs: int = 1, **attributes: Any) -> Any:
    names = ["x"] * inputs
    node = helper.make_node(kind, names, ["y"], name=f"the {kind}", domain=domain, **attributes)
    model = onnx_model([node], {"x": [1, 4]}, {"y": None})
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def test_an_ordinary_network_has_no_findings(tmp_path: Path) -> None:
    assert of_onnx(conv_onnx(), tmp_path) == {}
    assert of_tflite(float_conv_tflite(), tmp_path) == {}


@pytest.mark.parametrize("kind", ["StringNormalizer", "TfIdfVectorizer", "ImageDecoder", "Scan", "Adam"])
def test_what_nothing_converts_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    found = of_onnx(one(kind, domain="ai.onnx.preview.training" if kind == "Adam" else ""), tmp_path)
    finding = found["operator_unsupported"]
    assert (finding.level, finding.operator, finding.nodes) == (Level.REFUSE, kind, (f"the {kind}",))
    assert finding.advice


@pytest.mark.parametrize(
    ("kind", "domain", "code", "operator"),
    [
        ("TreeEnsemble", "ai.onnx.ml", "operator_unsupported", "ai.onnx.ml::TreeEnsemble"),
        ("Fancy", "my.company", "operator_custom", "my.company::Fancy"),
        ("Sofmax", "", "operator_unknown", "Sofmax"),
    ],
)
def test_operators_of_elsewhere(kind: str, domain: str, code: str, operator: str, tmp_path: Path) -> None:
    finding = of_onnx(one(kind, domain=domain), tmp_path)[code]
    assert (finding.level, finding.operator) == (Level.REFUSE, operator)
    assert ("nearest is Softmax" in finding.reason) == (kind == "Sofmax")


def test_an_operator_that_the_model_defines_itself_is_no_custom_operator(tmp_path: Path) -> None:
    model = one("Twice", domain="my.company")
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    model.functions.append(
        helper.make_function("my.company", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    assert of_onnx(model, tmp_path) == {}


def test_a_constant_branch_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """What does not depend on an input is folded before anything is converted."""
    nodes = [
        helper.make_node(
            "TfIdfVectorizer", ["c"], ["t"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0
        ),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    found = of_onnx(onnx_model(nodes, {"x": [1]}, {"y": None}, {"c": np.zeros(1, np.int64)}), tmp_path)
    assert found["operator_unsupported"].level is Level.WARN


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("NonZero", "operator_difficult"),
        ("LSTM", "recurrent"),
        ("GRU", "recurrent"),
        ("RandomNormalLike", "operator_difficult"),
    ],
)
def test_what_often_goes_wrong_is_a_warning(kind: str, code: str, tmp_path: Path) -> None:
    finding = of_onnx(one(kind), tmp_path)[code]
    assert (finding.level, finding.operator) == (Level.WARN, kind)
    preflight.require([finding], tmp_path)
    assert preflight.remarks([finding])[0].startswith(f"pre-flight: {kind} at 'the {kind}': ")


def test_control_flow_inside_of_a_body_is_found(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["z"], name="deep")],
        "then",
        [],
        [helper.make_tensor_value_info("z", 7, None)],
    )
    branch = helper.make_node("If", ["c"], ["y"], name="fork", then_branch=inner, else_branch=inner)
    model = onnx_model([branch], {"x": [1, 4], "c": []}, {"y": None}, dtypes={"c": "bool"})
    path = tmp_path / "net.onnx"
    onnx.save(model, str(path))
    kinds = {item.operator: item.nodes for item in preflight.preflight(path)}
    assert kinds == {"If": ("fork",), "NonZero": ("deep", "deep")}


def test_a_quantised_onnx_model_is_recognised(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q1"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d1"),
    ]
    constants = {"s": np.float32(0.1).reshape(()), "z": np.int8(0).reshape(())}
    finding = of_onnx(onnx_model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, constants), tmp_path)["quantised_already"]
    assert finding.nodes == ("q1", "d1")
    assert "float model" in finding.advice


def test_five_axes_are_named_even_where_the_shape_is_inferred(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], name="fold"),
        helper.make_node("Transpose", ["r"], ["t"], name="turn", perm=[0, 2, 1, 3, 4]),
    ]
    model = onnx_model(nodes, {"x": [1, 8, 4, 4]}, {"t": None}, {"shape": np.array([1, 2, 4, 4, 4], np.int64)})
    finding = of_onnx(model, tmp_path)["rank_high"]
    assert (finding.operator, finding.nodes) == ("Reshape/Transpose", ("fold", "turn"))


@pytest.mark.parametrize(("dtype", "code"), [("float16", "weights_float16"), ("float64", "weights_float64")])
def test_types_of_weights(dtype: str, code: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["w"], ["v"], to=1), helper.make_node("Add", ["x", "v"], ["y"])]
    model = onnx_model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"w": np.ones(4, dtype)})
    assert of_onnx(model, tmp_path)[code].level is Level.NOTE


def test_more_than_two_gigabytes_are_refused() -> None:
    """Told from the sizes of the external files; none of them is read."""
    model = onnx_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, {"y": None})
    tensor = TensorProto(name="w", data_type=1, dims=[600_000_000], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    model.graph.initializer.append(tensor)
    found = {item.code: item for item in onnx_findings(model, external_bytes=2_400_000_000)}
    assert found["weights_too_large"].level is Level.REFUSE
    assert "2.40 GB" in found["weights_too_large"].reason
    assert "weights_too_large" not in {item.code for item in onnx_findings(model, external_bytes=2_000_000_000)}


def test_flex_and_custom_operators_of_a_tflite_file(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, a, b, c = (tiny.tensor(name, (4,)) for name in "xabc")
    tiny.operator("CUSTOM:FlexErf", [x], [a])
    tiny.operator("CUSTOM:Mine", [a], [b])
    tiny.operator("CUSTOM:TFLite_Detection_PostProcess", [b], [c])
    found = of_tflite(tiny.model(tiny.graph([x], [c])), tmp_path)
    assert (found["operator_flex"].operator, found["operator_flex"].nodes) == ("FlexErf", ("a",))
    assert "tf.Erf" in found["operator_flex"].advice
    assert found["operator_custom"].nodes == ("b",)
    with pytest.raises(UnsupportedModelError) as caught:
        preflight.require(list(found.values()), tmp_path / "net.tflite")
    assert caught.value.exit_code == 3
    assert "FlexErf at 'a'" in caught.value.message and "1 more" in caught.value.message
    json.dumps(caught.value.as_dict())


def test_an_integer_tflite_file_is_told(tmp_path: Path) -> None:
    assert of_tflite(partly_quantized_tflite(), tmp_path)["quantised_already"].level is Level.NOTE


@pytest.mark.parametrize(
    "name",
    [
        "FastestDet.onnx", "basic_pitch_nmp.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx", "efficientnet_lite0.onnx",
        "magika_standard_v3_3.onnx", "silero_vad_openvino_16k.onnx", "version-RFB-320_without_postprocessing.onnx",
        "basic_pitch_nmp.tflite", "face_detection_short_range.tflite", "kws_ref_model_float32.tflite",
    ],
)  # fmt: skip
def test_no_model_that_converts_is_refused(name: str) -> None:
    findings = preflight.preflight(shared(f"models/{name}"))
    assert [item for item in findings if item.level is Level.REFUSE] == []


def test_what_a_function_will_make_has_no_findings() -> None:
    assert preflight.preflight("module:function") == ()
