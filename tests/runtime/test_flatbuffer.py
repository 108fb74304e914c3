"""A model that is cut short must be refused before an interpreter maps it: tflite-runtime dies of it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edgekit.errors import ModelFileError
from edgekit.runtime.flatbuffer import check_model, check_model_file


def test_whole_models_pass(models: Path) -> None:
    files = sorted(models.glob("*.tflite"))
    assert files
    for file in files:
        check_model_file(file)
        check_model(file.read_bytes())


@pytest.mark.parametrize("name", ["islands", "two_by_two", "dense_int8"])
def test_every_shorter_file_is_refused(models: Path, name: str) -> None:
    data = (models / f"{name}.tflite").read_bytes()
    for length in range(len(data)):
        with pytest.raises(ModelFileError):
            check_model(data[:length])


def test_what_is_no_tflite_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\x08\x07\x12\x07pytorch" * 20)
    with pytest.raises(ModelFileError, match="not a .tflite file") as caught:
        check_model_file(file)
    assert "edgekit convert" in caught.value.hint


def test_an_offset_that_leaves_the_file_is_refused(models: Path) -> None:
    data = bytearray((models / "islands.tflite").read_bytes())
    data[0:4] = struct.pack("<I", 0xFFFFFF00)
    with pytest.raises(ModelFileError, match="truncated or damaged"):
        check_model(bytes(data))


def test_no_single_changed_byte_escapes_as_another_error(models: Path) -> None:
    """Whatever a byte becomes, the answer is yes or :class:`ModelFileError`, never another exception or an endless walk."""
    data = (models / "two_by_two.tflite").read_bytes()
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0xFF):
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                check_model(changed)
            except ModelFileError:
                pass
