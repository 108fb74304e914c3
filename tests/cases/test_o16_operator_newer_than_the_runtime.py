"""O16: an operator in a version that a runtime lacks is said in one sentence with operator, version and runtime, before anything is
copied to a board; the runtime itself says it too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import float_conv_tflite

from edgekit.errors import EdgekitError, ModelFileError, UnsupportedModelError
from edgekit.intake import preflight, tflite
from edgekit.intake.inspect import inspect_model
from edgekit.intake.runtimes import requirements, runtime_operators
from edgekit.runtime import Model
from edgekit.runtime.backend import import_interpreter


def file_with(folder: Path, **code: Any) -> Path:
    model = tflite.read(tflite.serialize(float_conv_tflite()))
    for name, value in code.items():
        setattr(model.operatorCodes[0], name, value)
    path = folder / "newer.tflite"
    tflite.write(model, path)
    return path


def test_the_preflight_refuses_what_no_runtime_has(tmp_path: Path) -> None:
    path = file_with(tmp_path, version=99)
    with pytest.raises(UnsupportedModelError) as caught:
        preflight.require(preflight.preflight(path), path)
    newest = list(runtime_operators())[-1]
    assert "CONV_2D: version 99" in caught.value.message and newest in caught.value.message


def test_inspect_tells_which_runtimes_are_too_old(tmp_path: Path) -> None:
    found = inspect_model(file_with(tmp_path, version=8), run_interpreter=False).runtimes
    assert found is not None
    too_old = [fit.sentence for fit in found.runtimes if not fit.runs]
    assert too_old and all("CONV_2D version 8 (it has up to 7)" in sentence for sentence in too_old)
    assert found.oldest is not None


def test_the_runtime_says_it_in_one_sentence(tmp_path: Path) -> None:
    path = file_with(tmp_path, version=99)
    name, version, _ = import_interpreter()
    with pytest.raises(ModelFileError) as caught:
        Model.open(path)
    assert caught.value.code == "operator_unknown"
    for word in ("CONV_2D", "99", name, version):
        assert word in caught.value.message
    assert "\n" not in caught.value.message


def test_an_operator_above_the_schema(tmp_path: Path) -> None:
    path = file_with(tmp_path, builtinCode=9999)
    findings = {item.code: item for item in preflight.preflight(path)}
    assert findings["operator_unknown"].operator == "BUILTIN_9999"
    with pytest.raises(EdgekitError) as caught:
        Model.open(path)
    assert caught.value.exit_code == 2
    assert requirements(tflite.read(path)).oldest is None


@pytest.mark.parametrize(
    "operator", ["CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "PAD", "TRANSPOSE", "GATHER", "SOFTMAX"]
)
def test_every_runtime_has_what_older_ones_have(operator: str) -> None:
    """The table is a measurement; a version that went down would be a mistake in it."""
    highest = [table[operator] for table in runtime_operators().values()]
    assert highest == sorted(highest)
