"""What ``inspect`` says of a model, against models whose every number is known."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tiny_models import TinyTflite, conv_onnx, float_conv_tflite, onnx_model, partly_quantized_tflite, shared

from edgekit.errors import EdgekitError, UsageError
from edgekit.intake import tflite
from edgekit.intake.arena import arena_peak
from edgekit.intake.inspect import Inspection, QuantInfo, inspect_model
from edgekit.intake.preflight import Level
from edgekit.values import to_json


def inspect_tiny(model: Any, folder: Path, **options: Any) -> Inspection:
    path = folder / "tiny.tflite"
    tflite.write(model, path)
    return inspect_model(path, **{"run_interpreter": False, **options})


def counts(inspection: Inspection) -> dict[tuple[str, str], int]:
    return {(item.operator, item.dtype): item.count for item in inspection.operators}


def test_float_tflite(tmp_path: Path) -> None:
    found = inspect_tiny(float_conv_tflite(), tmp_path, run_interpreter=True)
    content = (tmp_path / "tiny.tflite").read_bytes()
    assert (found.format, found.size_bytes) == ("tflite", len(content))
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert [(item.name, item.shape, item.dtype, item.quant) for item in found.inputs] == [
        ("x", (1, 8, 8, 3), "float32", None)
    ]
    assert counts(found) == {("CONV_2D", "float32"): 1, ("FULLY_CONNECTED", "float32"): 1, ("RESHAPE", "float32"): 1}
    assert (found.weights.parameters, dict(found.weights.bytes_by_dtype)) == (762, {"float32": 3048, "int32": 8})
    assert (found.full_integer, found.float_islands, found.custom_operators) == (False, (), ())
    assert found.macs.total == 2368
    # the input's 768 bytes throughout; convolution and its reshaped copy, 256 each, overlap; the output's 40 come later
    assert found.activation_peak_bytes == 768 + 256 + 256
    interpreter = found.interpreter
    assert interpreter is not None and interpreter.ok and interpreter.invoked
    assert interpreter.delegation is not None and interpreter.delegation.total_operators == 3
    assert [(item.name, item.shape) for item in interpreter.outputs] == [("y", (1, 10))]


def test_float_islands_of_a_partly_quantised_graph(tmp_path: Path) -> None:
    found = inspect_tiny(partly_quantized_tflite(), tmp_path)
    assert found.full_integer is False
    assert [(item.names, item.operators, item.inputs, item.outputs) for item in found.float_islands] == [
        (("EXP", "ADD", "NEG"), (1, 2, 3), ("x",), ("q/neg",)),
        (("SQRT",), (7,), ("q/abs",), ("q/sqrt",)),
    ]
    assert counts(found)["ABS", "int8"] == 1
    assert counts(found)["DEQUANTIZE", "dequantize"] == counts(found)["QUANTIZE", "quantize"] == 2


def test_two_readers_of_one_dequantize_are_two_islands(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x = tiny.tensor("x", (4,), "int8", scale=0.1)
    shared_float, e, s = (tiny.tensor(name, (4,)) for name in ("d", "e", "s"))
    a, b = tiny.tensor("a", (4,), "int8", scale=0.1), tiny.tensor("b", (4,), "int8", scale=0.1)
    tiny.operator("DEQUANTIZE", [x], [shared_float])
    tiny.operator("EXP", [shared_float], [e])
    tiny.operator("SQRT", [shared_float], [s])
    tiny.operator("QUANTIZE", [e], [a])
    tiny.operator("QUANTIZE", [s], [b])
    found = inspect_tiny(tiny.model(tiny.graph([x], [a, b])), tmp_path)
    assert [(item.names, item.outputs) for item in found.float_islands] == [(("EXP",), ("a",)), (("SQRT",), ("b",))]


def test_float_inputs_and_outputs_around_integers(tmp_path: Path) -> None:
    """QUANTIZE, ABS, DEQUANTIZE: not full integer, and no island."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (4,)), tiny.tensor("y", (4,))
    a, b = tiny.tensor("a", (4,), "int8", scale=0.1), tiny.tensor("b", (4,), "int8", scale=0.1)
    tiny.operator("QUANTIZE", [x], [a])
    tiny.operator("ABS", [a], [b])
    tiny.operator("DEQUANTIZE", [b], [y])
    found = inspect_tiny(tiny.model(tiny.graph([x], [y])), tmp_path)
    assert (found.full_integer, found.float_islands) == (False, ())
    # a float output without DEQUANTIZE behind it belongs to the island that writes it
    tiny = TinyTflite()
    x, f, y = tiny.tensor("x", (4,), "int8", scale=0.1), tiny.tensor("f", (4,)), tiny.tensor("y", (4,))
    tiny.operator("DEQUANTIZE", [x], [f])
    tiny.operator("EXP", [f], [y])
    found = inspect_tiny(tiny.model(tiny.graph([x], [y])), tmp_path)
    assert found.float_islands == (), "nothing computes in integers here, so there is nothing to be an island in"


def test_full_integer_hybrid_and_int16(tmp_path: Path) -> None:
    def dense(activation: str, weights_scale: float | None = 0.1) -> Any:
        tiny = TinyTflite()
        scale = None if activation == "float32" else 0.1
        x = tiny.tensor("x", (1, 8), activation, scale=scale)
        weights = tiny.tensor("w", (3, 8), "int8", data=np.ones((3, 8), np.int8), scale=weights_scale)
        y = tiny.tensor("y", (1, 3), activation, scale=scale)
        tiny.operator("FULLY_CONNECTED", [x, weights, -1], [y])
        return tiny.model(tiny.graph([x], [y]))

    for activation, word, full in [("int8", "int8", True), ("int16", "int16x8", True), ("float32", "hybrid", False)]:
        found = inspect_tiny(dense(activation), tmp_path)
        assert (counts(found), found.full_integer) == ({("FULLY_CONNECTED", word): 1}, full)
    found = inspect_tiny(dense("int8"), tmp_path)
    assert found.inputs[0].quant == QuantInfo(scale=float(np.float32(0.1)), zero_point=0)
    assert found.weights.parameters == 24


def test_flex_and_custom_operators_are_flagged(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1,)), tiny.tensor("y", (1,))
    tiny.operator("CUSTOM:FlexErf", [x], [y])
    found = inspect_tiny(tiny.model(tiny.graph([x], [y])), tmp_path, run_interpreter=True)
    assert found.custom_operators == ("CUSTOM:FlexErf",)
    assert any("Flex delegate" in item.reason and item.level is Level.REFUSE for item in found.findings)
    assert found.macs.total is None
    assert found.interpreter is not None and not found.interpreter.ok
    assert "FlexErf" in found.interpreter.failure or "flex" in found.interpreter.failure.lower()


def test_shared_weights_count_once(tmp_path: Path) -> None:
    model = float_conv_tflite()
    model.subgraphs[0].tensors[7].buffer = model.subgraphs[0].tensors[2].buffer  # another bias: 10 floats are not 4
    model.subgraphs[0].tensors[7].shape = [4]
    assert inspect_tiny(model, tmp_path).weights.parameters == 762 - 10


def test_peak_of_activations_is_unknown_where_a_size_depends_on_the_data() -> None:
    tiny = TinyTflite()
    x, picked = tiny.tensor("x", (4, 8)), tiny.tensor("picked", (1, 8), signature=(-1, 8))
    tiny.operator("WHERE", [x], [picked])
    assert arena_peak(tflite.graph(tflite.read(tflite.serialize(tiny.model(tiny.graph([x], [picked])))))) is None


def test_onnx_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(conv_onnx().SerializeToString())
    found = inspect_model(path)
    assert (found.format, found.facts["opset"], found.facts["ir_version"], found.facts["producer"]) == (
        "onnx",
        17,
        9,
        "tiny",
    )
    assert [(item.name, item.shape, item.dtype) for item in (*found.inputs, *found.outputs)] == [
        ("x", (1, 3, 8, 8), "float32"),
        ("y", (1, 10), "float32"),
    ]
    assert counts(found) == {(kind, "float32"): 1 for kind in ("Conv", "Flatten", "Gemm", "GlobalAveragePool", "Relu")}
    assert (found.weights.parameters, dict(found.weights.bytes_by_dtype)) == (162, {"float32": 648})
    assert found.macs.total == 6952
    assert (found.interpreter, found.full_integer, found.notes) == (None, None, ())


def test_onnx_open_batch_and_input_shapes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(conv_onnx("batch").SerializeToString())
    found = inspect_model(path)
    assert found.inputs[0].shape == ("batch", 3, 8, 8) and found.macs.total is None
    assert found.notes == ("input x leaves sizes open: batchx3x8x8",)
    fixed = inspect_model(path, input_shapes={"x": (2, 3, 8, 8)})
    assert (fixed.outputs[0].shape, fixed.macs.total, fixed.notes) == ((2, 10), 2 * 6952, ())
    with pytest.raises(UsageError, match="no input 'z'"):
        inspect_model(path, input_shapes={"z": (1,)})


def test_input_shapes_are_for_onnx_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ONNX models only"):
        inspect_tiny(float_conv_tflite(), tmp_path, input_shapes={"x": (1, 8, 8, 3)})


def test_quantised_onnx_is_noted_and_its_parameters_counted(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["dw"]),
        helper.make_node("DequantizeLinear", ["b", "s", "bz"], ["db"]),
        helper.make_node("Gemm", ["d", "dw", "db"], ["y"]),
    ]
    constants: dict[str, np.ndarray] = {
        "s": np.array(0.1, np.float32),
        "z": np.array(0, np.int8),
        "bz": np.array(0, np.int32),
        "w": np.ones((8, 3), np.int8),
        "b": np.ones(3, np.int32),
    }
    path = tmp_path / "qdq.onnx"
    path.write_bytes(onnx_model(nodes, {"x": [1, 8]}, {"y": [1, 3]}, constants).SerializeToString())
    found = inspect_model(path)
    assert found.weights.parameters == 24 + 3
    assert found.macs.total == 24
    assert counts(found)["QuantizeLinear", "quantize"] == 1 and counts(found)["Gemm", "float32"] == 1
    assert found.findings[0].reason.startswith("the model is quantised already (4 ")


def test_foreign_operators_and_functions(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Strange", ["x"], ["s"], domain="acme"),
        helper.make_node("Twice", ["s"], ["y"], domain="local"),
    ]
    model = onnx_model(nodes, {"x": [2, 2]}, {"y": [2, 2]})
    model.opset_import.extend([helper.make_opsetid("acme", 1), helper.make_opsetid("local", 1)])
    body = [helper.make_node("MatMul", ["a", "a"], ["b"])]
    model.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    path = tmp_path / "foreign.onnx"
    path.write_bytes(model.SerializeToString())
    found = inspect_model(path)
    assert found.custom_operators == ("acme::Strange",)
    assert ("MatMul" in {item.operator for item in found.operators}) and not any(
        "Twice" in i.operator for i in found.operators
    )
    assert found.facts["opset acme"] == 1


@pytest.mark.parametrize(
    ("name", "parameters", "operators"),
    [
        ("FastestDet.onnx", 240_305, 211),
        ("efficientnet_lite0.onnx", 4_631_002, 94),
        ("version-RFB-320_without_postprocessing.onnx", 281_100, 217),
        ("magika_standard_v3_3.onnx", None, 95),
        ("silero_vad_openvino_16k.onnx", None, 167),
        ("ch_ppocr_mobile_v2.0_cls_infer.onnx", None, 566),
    ],
)
def test_real_onnx_models(name: str, parameters: int | None, operators: int) -> None:
    """Parameter counts as the files' README gives them (240 k, 4.65 M before the batch normalisation was folded, 281 k)."""
    found = inspect_model(shared(f"models/{name}"))
    json.dumps(to_json(found))
    assert found.operators_total == operators
    assert parameters in (None, found.weights.parameters)
    assert all(item.dtype != "unknown" for item in found.operators)


def test_real_int8_model_with_state_is_full_integer() -> None:
    found = inspect_model(shared("models/okay_nabu_streaming_int8.tflite"), run_interpreter=False)
    assert found.full_integer and found.facts["graphs"] == 2
    assert (found.inputs[0].dtype, found.outputs[0].dtype) == ("int8", "uint8")
    assert found.signatures[0].outputs == {"dense_1": "StatefulPartitionedCall:0"}


def test_half_float_weights_do_not_make_islands() -> None:
    found = inspect_model(shared("models/face_detection_short_range.tflite"), run_interpreter=False)
    assert (found.full_integer, found.float_islands) == (False, ())
    assert dict(found.weights.bytes_by_dtype)["float16"] == 2 * found.weights.parameters


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_damage_gives_an_inspection_or_an_edgekit_error(kind: str, seed: int, tmp_path: Path) -> None:
    content = conv_onnx().SerializeToString() if kind == "onnx" else tflite.serialize(partly_quantized_tflite())
    rng = random.Random(seed)
    path = tmp_path / f"damaged.{kind}"
    for trial in range(100):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 8)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 8, 255, rng.randrange(256)))
        if trial % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            json.dumps(to_json(inspect_model(path, run_interpreter=False)))
        except EdgekitError as error:
            assert error.code != "internal"
