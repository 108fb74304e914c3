"""A ``.tflite`` goes in and out unharmed, and nothing that is no model gets past the reader."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import TinyTflite, float_conv_tflite, shared

from edgekit.errors import EdgekitError, ModelFileError, OutputError, UnsupportedModelError
from edgekit.intake import tflite
from edgekit.runtime.backend import open_backend

SHARED_MODELS = [
    "basic_pitch_nmp.tflite",
    "face_detection_short_range.tflite",
    "kws_ref_model.tflite",
    "kws_ref_model_float32.tflite",
    "okay_nabu_streaming_int8.tflite",
]


def packed(model: Any) -> bytes:
    """The bytes as the generated packer alone writes them, with whatever operator codes the model has."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def run(content: bytes) -> list[np.ndarray]:
    with open_backend(content, threads=1) as backend:
        rng = np.random.default_rng(0)
        for position, tensor in enumerate(backend.inputs):
            backend.set_input(position, (rng.uniform(-1, 1, tensor.shape) * 20).astype(tensor.dtype))
        backend.invoke()
        return [backend.get_output(position) for position in range(len(backend.outputs))]


def buffer_starts(content: bytes) -> list[int]:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(content, 0)
    buffers = [model.Buffers(index) for index in range(model.BuffersLength())]
    return [buffer._tab.Vector(buffer._tab.Offset(4)) for buffer in buffers if buffer.DataLength()]


def test_written_model_computes_the_same() -> None:
    content = packed(float_conv_tflite())
    rewritten = tflite.serialize(tflite.read(content))
    for before, after in zip(run(content), run(rewritten), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_real_models_survive_a_round_trip(name: str, tmp_path: Path) -> None:
    path = shared(f"models/{name}")
    model = tflite.read(path)
    tflite.write(model, tmp_path / "copy.tflite")
    written = (tmp_path / "copy.tflite").read_bytes()
    for before, after in zip(run(path.read_bytes()), run(written), strict=True):
        np.testing.assert_array_equal(before, after)
    assert tflite.serialize(tflite.read(written)) == written
    assert all(start % 16 == 0 for start in buffer_starts(written))


def test_weights_lie_on_16_byte_boundaries() -> None:
    model = float_conv_tflite()
    assert any(start % 16 for start in buffer_starts(packed(model))), "the plain packer has learnt it: this can go"
    assert all(start % 16 == 0 for start in buffer_starts(tflite.serialize(model)))


def test_bytes_and_lists_as_buffers_are_written_too() -> None:
    model = float_conv_tflite()
    expected = tflite.serialize(model)
    model.buffers[1].data = model.buffers[1].data.tobytes()
    model.buffers[2].data = model.buffers[2].data.tolist()
    model.buffers[4].data = model.buffers[4].data.view(np.float32)
    assert tflite.serialize(model) == expected


def test_read_model_can_be_changed() -> None:
    model = tflite.read(tflite.serialize(float_conv_tflite()))
    model.buffers[2].data.view(np.float32)[:] = 7
    model.subgraphs[0].operators[0].inputs.append(-1)
    again = tflite.read(tflite.serialize(model))
    graph = tflite.graph(again)
    bias = next(tensor for tensor in graph.tensors if tensor.name == "conv/b")
    np.testing.assert_array_equal(tflite.constant_value(again, bias), [7, 7, 7, 7])
    assert graph.operators[0].inputs[-1] == -1


def test_operator_codes_of_old_files_are_repaired() -> None:
    model = float_conv_tflite()
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode, code.builtinCode = code.builtinCode, 0
    read = tflite.read(packed(model))
    assert [item.name for item in tflite.graph(read).operators] == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]
    assert [code.builtinCode for code in read.operatorCodes] == [3, 22, 9]


def test_old_interpreters_find_their_operator_codes() -> None:
    tiny = TinyTflite()
    x, y, z = tiny.tensor("x", (1,)), tiny.tensor("y", (1,)), tiny.tensor("z", (1,))
    tiny.operator("ABS", [x], [y])
    tiny.operator("GELU", [y], [z])  # 150: beyond one byte of the old field
    model = tflite.read(tflite.serialize(tiny.model(tiny.graph([x], [z]))))
    assert [(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes] == [(101, 101), (150, 127)]


@pytest.mark.parametrize(
    "content", [b"", b"TFL3", b"not a model at all, but some text", bytes(64), b"\x1c\0\0\0TFL2" + bytes(40)]
)
def test_what_is_no_model_is_named_with_size_and_first_bytes(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        tflite.read(path)
    assert caught.value.code == "not_a_model"
    assert caught.value.details == {"size_bytes": len(content), "first_bytes": content[:16].hex()}
    assert str(path) in caught.value.message and caught.value.hint


def test_every_truncation_is_noticed() -> None:
    content = tflite.serialize(float_conv_tflite())
    for size in range(8, len(content)):
        with pytest.raises(ModelFileError) as caught:
            tflite.read(content[:size])
        assert caught.value.code in ("model_truncated", "model_corrupt"), size
        assert caught.value.code == "model_truncated" or size < 200


@pytest.mark.parametrize("seed", range(4))
def test_damage_gives_a_model_or_an_edgekit_error(seed: int) -> None:
    content = tflite.serialize(float_conv_tflite())
    rng = random.Random(seed)
    structure = len(content) - 3000  # what is not weights lies in front
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 12)):
            damaged[rng.randrange(len(damaged) if rng.random() < 0.3 else structure)] = rng.choice(
                (0, 1, 2, 4, 255, rng.randrange(256))
            )
        try:
            model = tflite.read(bytes(damaged))
            for number in range(len(model.subgraphs)):
                graph = tflite.graph(model, subgraph=number)
                for tensor in graph.tensors:
                    tflite.constant_value(model, tensor, subgraph=number)
                graph.producers(), graph.consumers()
        except EdgekitError as error:
            assert error.code != "internal"


def test_a_claim_of_a_million_tensors_is_refused_before_they_are_walked() -> None:
    from ai_edge_litert import schema_py_generated as schema

    content = bytearray(tflite.serialize(float_conv_tflite()))
    graph = schema.Model.GetRootAs(content, 0).Subgraphs(0)
    length = graph._tab.Vector(graph._tab.Offset(4)) - 4
    content[length : length + 4] = (1_000_000).to_bytes(4, "little")
    with pytest.raises(ModelFileError, match=r"claims 1,000,\d+ parts") as caught:
        tflite.read(bytes(content))
    assert caught.value.code == "model_truncated"


def broken(change: Any) -> bytes:
    model = float_conv_tflite()
    change(model)
    return packed(model)


def _drop_a_weight(model: Any) -> None:
    model.buffers[1].data = model.buffers[1].data[:-4]


def _scales_of_another_length(model: Any) -> None:
    quant = type(model.subgraphs[0].tensors[0].quantization or _schema().QuantizationParametersT())()
    quant.scale, quant.zeroPoint, quant.quantizedDimension = np.ones(3, np.float32), np.zeros(3, np.int64), 0
    model.subgraphs[0].tensors[1].quantization = quant


def _schema() -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.subgraphs[0].operators[0].inputs.__setitem__(0, 99), "refers to tensor 99, but there are 9"),
        (lambda m: m.subgraphs[0].operators[0].outputs.__setitem__(0, -1), "refers to tensor -1"),
        (lambda m: setattr(m.subgraphs[0].operators[1], "opcodeIndex", 7), "of kind 7, but 3 kinds"),
        (lambda m: setattr(m.subgraphs[0].tensors[1], "buffer", 77), "in buffer 77"),
        (lambda m: setattr(m.subgraphs[0].tensors[1], "type", 99), "unknown type number 99"),
        (lambda m: setattr(m.subgraphs[0].tensors[1], "shape", [4, 3, -3, 3]), "impossible shape"),
        (lambda m: setattr(m.subgraphs[0], "outputs", [9]), "refers to tensor 9"),
        (lambda m: setattr(m, "subgraphs", []), "no graph"),
        (lambda m: setattr(m, "buffers", None), "no list of buffers"),
        (_drop_a_weight, "needs 432 bytes, but its buffer has 428"),
        (_scales_of_another_length, "has 3 scales along axis 0"),
    ],
)
def test_parts_that_contradict_one_another(change: Any, words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        tflite.read(broken(change))
    assert caught.value.code == "model_corrupt"


def test_another_schema_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedModelError, match="schema version 4"):
        tflite.read(broken(lambda model: setattr(model, "version", 4)))


def test_weights_behind_the_flatbuffer_are_found() -> None:
    model = float_conv_tflite()
    weights = model.buffers[1].data.tobytes()
    model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, 2, len(weights)
    model.buffers[1].offset = len(packed(model))
    content = packed(model)
    assert len(content) == model.buffers[1].offset
    assert tflite.serialize(tflite.read(content + weights)) == tflite.serialize(float_conv_tflite())
    with pytest.raises(ModelFileError) as caught:
        tflite.read(content + weights[:-1])
    assert caught.value.code == "model_truncated"


def test_weights_in_other_files_are_unsupported() -> None:
    with pytest.raises(UnsupportedModelError, match="external buffers"):
        tflite.read(broken(lambda model: setattr(model.subgraphs[0].tensors[1], "externalBuffer", 1)))


def test_files_above_2_gb_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.tflite"
    with path.open("wb") as file:
        file.write(b"\x1c\0\0\0TFL3")
        file.truncate(2**31 + 16)  # a hole: takes no space
    with pytest.raises(UnsupportedModelError, match="above 2 GB"):
        tflite.read(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "model.tflite"
    target.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        tflite.write(float_conv_tflite(), target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_writing_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        tflite.write(float_conv_tflite(), tmp_path / "nowhere" / "model.tflite")


def test_missing_path_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "mobilenet.tflite").write_bytes(b"x")
    with pytest.raises(ModelFileError) as caught:
        tflite.read(tmp_path / "mobilnet.tflite")
    assert caught.value.code == "model_file_missing"
    assert "mobilenet.tflite" in caught.value.hint
    with pytest.raises(ModelFileError, match="is a folder"):
        tflite.read(tmp_path)


def test_a_graph_is_read_again_when_its_file_changed(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    tflite.write(float_conv_tflite(), path)
    first = tflite.graph_of(path)
    assert tflite.graph_of(path) is first
    model = tflite.read(path)
    model.subgraphs[0].tensors[0].name = b"another"
    tflite.write(model, path)
    assert tflite.graph_of(path).tensors[0].name == "another" != first.tensors[0].name
