"""What a file asks of a runtime, against what the runtimes were found to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import TinyTflite, float_conv_tflite

from edgekit.errors import ModelFileError
from edgekit.intake import tflite
from edgekit.intake.inspect import inspect_model
from edgekit.intake.runtimes import has_weights_outside, requirements, runtime_operators
from edgekit.runtime.backend import import_interpreter, open_backend


def with_version(version: int) -> Any:
    model = tflite.read(tflite.serialize(float_conv_tflite()))
    model.operatorCodes[0].version = version
    return model


def test_an_old_network_runs_everywhere() -> None:
    found = requirements(with_version(1))
    assert all(fit.runs for fit in found.runtimes)
    assert found.oldest == "tflite-runtime 2.13.0"
    assert found.operators == {"CONV_2D": 1, "FULLY_CONNECTED": 1, "RESHAPE": 1}


def test_what_is_too_new_is_said_in_one_sentence() -> None:
    found = requirements(with_version(8))
    old = found.runtimes[0]
    assert old.sentence == "tflite-runtime 2.13.0 lacks CONV_2D version 8 (it has up to 7)"
    assert found.oldest is not None and found.oldest.startswith("ai-edge-litert")
    assert requirements(with_version(99)).oldest is None


def test_the_table_agrees_with_the_interpreter_that_is_installed(tmp_path: Path) -> None:
    """The highest version in the table loads, and the next one does not."""
    name, version, _ = import_interpreter()
    table = runtime_operators().get(f"{name.replace('_', '-')} {version}")
    if table is None:
        pytest.skip(f"{name} {version} is not in the table")
    for wanted, loads in ((table["CONV_2D"], True), (table["CONV_2D"] + 1, False)):
        path = tmp_path / f"{wanted}.tflite"
        tflite.write(with_version(wanted), path)
        try:
            open_backend(path).close()
            loaded = True
        except ModelFileError as error:
            loaded = error.code != "operator_unknown"
        assert loaded == loads


def test_custom_operators_of_the_ordinary_resolver() -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (4,)), tiny.tensor("y", (4,))
    tiny.operator("CUSTOM:TFLite_Detection_PostProcess", [x], [y])
    model = tflite.read(tflite.serialize(tiny.model(tiny.graph([x], [y]))))
    assert requirements(model).oldest == "tflite-runtime 2.13.0"


def test_the_version_that_the_file_itself_declares(tmp_path: Path) -> None:
    tiny = TinyTflite()
    model = tflite.read(tflite.serialize(float_conv_tflite()))
    entry, buffer = tiny.schema.MetadataT(), tiny.schema.BufferT()
    entry.name, entry.buffer = "min_runtime_version", len(model.buffers)
    buffer.data = np.frombuffer(b"2.11.0".ljust(16, b"\0"), np.uint8)
    model.buffers.append(buffer)
    model.metadata = [entry]
    path = tmp_path / "declared.tflite"
    tflite.write(model, path)
    found = inspect_model(path, run_interpreter=False).runtimes
    assert found is not None and found.declared == "2.11.0"


def test_weights_behind_the_flatbuffer_are_an_obstacle_for_the_oldest_runtime() -> None:
    raw = tflite.serialize(float_conv_tflite())
    assert not has_weights_outside(raw)
    found = requirements(with_version(1), weights_outside=True)
    assert [fit.name for fit in found.runtimes if not fit.runs] == ["tflite-runtime 2.13.0"]
    assert "behind the flatbuffer" in found.runtimes[0].sentence


def test_rewritten_files_keep_their_weights_inside(tmp_path: Path) -> None:
    """A writer that puts them behind (as the int8 engine does above some size) is undone when edgekit writes the file."""
    raw = bytearray(tflite.serialize(float_conv_tflite()))
    model = tflite.read(raw)
    data = bytes(model.buffers[-1].data)
    outside = _moved_outside(model, len(model.buffers) - 1, data)
    assert has_weights_outside(outside)
    again = tflite.read(outside)
    assert bytes(again.buffers[-1].data) == data
    assert not has_weights_outside(tflite.serialize(again))


def _moved_outside(model: Any, index: int, data: bytes) -> bytes:
    model.buffers[index].data = None
    model.buffers[index].offset, model.buffers[index].size = 2**31, len(data)
    size = len(tflite.serialize(model))  # an offset of any size takes eight bytes
    model.buffers[index].offset = size
    return tflite.serialize(model) + data
