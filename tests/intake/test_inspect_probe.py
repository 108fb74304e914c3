"""The interpreter is asked in a child, and whatever happens to it is a fact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import TinyTflite, endless_tflite, float_conv_tflite, recursive_tflite, shared

import edgekit
from edgekit import child
from edgekit.errors import ConversionError
from edgekit.intake import probe as probing
from edgekit.intake import tflite
from edgekit.intake.inspect import inspect_model
from edgekit.intake.probe import probe


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(model: Any) -> Path:
        path = tmp_path / "model.tflite"
        tflite.write(model, path)
        return path

    return write


def test_a_good_model_is_loaded_and_run(written: Any) -> None:
    result = probe(written(float_conv_tflite()), invoke=True)
    assert (result.ok, result.failure, result.invoked, result.stage) == (True, "", True, "read")
    assert result.delegation is not None and result.delegation.total_operators == 3
    assert [(item.name, item.shape, item.dtype, item.non_finite) for item in result.outputs] == [
        ("y", (1, 10), "float32", 0)
    ]
    assert result.interpreter and result.version


def test_without_invoke_it_is_only_loaded(written: Any) -> None:
    result = probe(written(endless_tflite()), invoke=False)
    assert (result.ok, result.invoked, result.stage) == (True, False, "load")


def test_a_model_that_never_ends(written: Any) -> None:
    result = probe(written(endless_tflite()), invoke=True, timeout_s=5)
    assert (result.ok, result.code, result.stage) == (False, "timeout", "invoke")
    assert result.failure == "the interpreter did not end within 5 s while running the model"


def test_a_model_that_kills_the_interpreter(written: Any) -> None:
    path = written(recursive_tflite())
    result = probe(path, invoke=True)
    assert (result.ok, result.code, result.stage) == (False, "crashed", "load")
    assert (
        result.failure
        == f"the interpreter died with {result.died_of} while loading the model and allocating its tensors"
    )
    assert result.died_of in ("SIGSEGV", "SIGABRT", "SIGBUS")
    assert inspect_model(path).interpreter == result, "for inspect a crash is a fact"


def test_an_operator_that_does_not_exist(written: Any) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1,)), tiny.tensor("y", (1,))
    tiny.operator("CUSTOM:Nobody", [x], [y])
    result = probe(written(tiny.model(tiny.graph([x], [y]))), invoke=True)
    assert (result.ok, result.died_of) == (False, "")
    assert "Nobody" in result.failure and result.code


def test_not_a_number_in_the_output_is_counted(written: Any) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (64,)), tiny.tensor("y", (64,))
    tiny.operator("LOG", [x], [y])  # of noise in -1..1: about half are NaN
    result = probe(written(tiny.model(tiny.graph([x], [y]))), invoke=True)
    assert result.ok and 10 < result.outputs[0].non_finite < 54


def test_what_the_child_cannot_name_is_told_with_its_status(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_START", "import sys; print('noise'); sys.stderr.write('last words'); sys.exit(3)")
    result = probe(written(float_conv_tflite()), invoke=True)
    assert (result.ok, result.code, result.log) == (False, "child_failed", "last words")
    assert "ended with status 3 while starting" in result.failure
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert probe(written(float_conv_tflite()), invoke=True).code == "child_failed"


def test_lines_of_native_code_do_not_disturb() -> None:
    stage, result = probing._read_lines(
        b'INFO: x\n{"edgekit_probe": "load"}\n[1]\n{bad\n{"edgekit_probe": "result", "ok": true}\n'
    )
    assert (stage, result) == ("load", {"edgekit_probe": "result", "ok": True})


def test_modules_in_the_current_folder_are_not_picked_up(
    written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(float_conv_tflite())
    for name in ("json.py", "numpy.py", "argparse.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    assert probe(path, invoke=True).ok


def test_the_child_can_be_called_by_hand(written: Any) -> None:
    root = str(Path(edgekit.__path__[0]).parent)
    command = [sys.executable, "-m", "edgekit.intake.probe", str(written(float_conv_tflite())), "--invoke"]
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["edgekit_probe"], last["ok"], last["invoked"]) == ("result", True, True)


def test_a_delivered_file_that_does_not_run_is_a_conversion_error(written: Any) -> None:
    assert probing.require_runs(written(float_conv_tflite()), what="the float model").ok
    with pytest.raises(
        ConversionError, match="the float model was written and does not run: the interpreter died"
    ) as caught:
        probing.require_runs(written(recursive_tflite()), what="the float model")
    assert caught.value.details["stage"] == "load"


@pytest.mark.parametrize("name", ["kws_ref_model.tflite", "okay_nabu_streaming_int8.tflite"])
def test_real_int8_models(name: str) -> None:
    result = probe(shared(f"models/{name}"), invoke=True)
    assert result.ok and result.invoked and result.delegation is not None
    assert 0 < result.delegation.delegated_operators <= result.delegation.total_operators
