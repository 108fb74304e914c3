"""The border to the interpreter: what it loads, what it refuses, and in whose words."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest

from edgekit.errors import DataError, ModelFileError, UsageError
from edgekit.runtime import backend as backend_module
from edgekit.runtime.backend import Delegation, available_backends, open_backend


def test_tensors_signatures_and_values(models: Path) -> None:
    with open_backend(models / "two_by_two.tflite", threads=1) as backend:
        assert [detail.name for detail in backend.inputs] == ["tensor_a", "tensor_b"]
        assert [detail.name for detail in backend.outputs] == ["tensor_d", "tensor_c"]
        assert backend.signatures == {"serving_default": ({"left": 0, "right": 1}, {"sum": 1, "product": 0})}
        assert backend.inputs[0].shape == (1, 4)
        assert backend.inputs[0].dtype == "float32"
        assert not backend.inputs[0].is_quantized
        backend.set_input(0, np.array([[1, 2, 3, 4]], np.float32))
        backend.set_input(1, np.array([[10, 20, 30, 40]], np.float32))
        backend.invoke()
        assert backend.get_output(0).tolist() == [[10, 40, 90, 160]]
        assert backend.get_output(1).tolist() == [[11, 22, 33, 44]]
        assert backend.name == available_backends()[0]
        assert backend.version[0].isdigit()


def test_quantisation_is_told(models: Path) -> None:
    backend = open_backend(models / "dense_int8.tflite")
    x, y = backend.inputs[0], backend.outputs[0]
    assert (x.dtype, x.scale, x.zero_point, x.is_quantized) == ("int8", 0.5, -1, True)
    assert (y.dtype, y.scale, y.zero_point, y.is_quantized) == ("int8", 1.0, 3, True)
    by_name = {detail.name: detail for detail in backend.tensor_details()}
    assert by_name["w"].scale == 0.25
    assert backend.read_tensor(by_name["w"].index).tolist() == [[4, 8, -4, 0], [2, 0, 0, 12], [-8, 1, 4, 4]]


def test_outputs_are_copies(models: Path) -> None:
    backend = open_backend(models / "islands.tflite")
    backend.set_input(0, np.array([[0, 1, 2, 3]], np.float32))
    backend.invoke()
    first = backend.get_output(0)
    kept = first.copy()
    backend.set_input(0, np.array([[9, 9, 9, 9]], np.float32))
    backend.invoke()  # a living view would make this raise
    assert np.array_equal(first, kept)


def test_delegation_is_counted(models: Path) -> None:
    # ADD and MUL go to XNNPACK, the GATHER between them does not: two partitions of one operator.
    assert open_backend(models / "islands.tflite").delegation() == Delegation("XNNPACK", 2, 2, 3)
    assert open_backend(models / "islands.tflite", delegate=False).delegation() == Delegation(None, 0, 0, 3)
    assert open_backend(models / "lookup.tflite").delegation() == Delegation(None, 0, 0, 1)


def test_intermediate_tensors_can_be_kept(models: Path) -> None:
    backend = open_backend(models / "islands.tflite", preserve_all_tensors=True)
    by_name = {detail.name: detail.index for detail in backend.tensor_details()}
    backend.set_input(0, np.array([[0, 1, 2, 3]], np.float32))
    backend.invoke()
    assert backend.read_tensor(by_name["added"]).tolist() == [[1, 2, 3, 4]]
    assert backend.read_tensor(by_name["turned"]).tolist() == [[4, 3, 2, 1]]
    assert backend.get_output(0).tolist() == [[8, 6, 4, 2]]


def test_a_model_from_bytes(models: Path) -> None:
    backend = open_backend((models / "islands.tflite").read_bytes())
    assert backend.inputs[0].name == "x"


def test_on_loaded_comes_before_the_tensors(models: Path) -> None:
    called: List[int] = []
    open_backend(models / "islands.tflite", on_loaded=lambda: called.append(1))
    assert called == [1]


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused_and_the_process_lives(models: Path, tmp_path: Path, kept: float) -> None:
    data = (models / "convs.tflite").read_bytes()
    file = tmp_path / "cut.tflite"
    file.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(ModelFileError, match="cut.tflite"):
        open_backend(file)
    with pytest.raises(ModelFileError):
        open_backend(file.read_bytes())


def test_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        open_backend(tmp_path / "none.tflite")
    with pytest.raises(ModelFileError, match="is a folder"):
        open_backend(tmp_path)
    empty = tmp_path / "empty.tflite"
    empty.write_bytes(b"")
    with pytest.raises(ModelFileError, match="is empty"):
        open_backend(empty)
    text = tmp_path / "text.tflite"
    text.write_text("this is no model, only a text that is long enough")
    with pytest.raises(ModelFileError, match="text.tflite"):
        open_backend(text)


def test_an_operator_that_is_too_new_is_named_with_both_versions(models: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        open_backend(models / "future.tflite")
    assert caught.value.code == "operator_unknown"
    backend = open_backend(models / "islands.tflite")
    for fact in ("ADD", "99", backend.name, backend.version):
        assert fact in caught.value.message


def test_wrong_input_names_both_sides(models: Path) -> None:
    backend = open_backend(models / "dense_int8.tflite")
    with pytest.raises(DataError, match=r"int8 of shape \[1, 4\], not float32 of shape \[1, 4\]"):
        backend.set_input(0, np.zeros((1, 4), np.float32))
    with pytest.raises(DataError, match=r"not int8 of shape \[1, 5\]"):
        backend.set_input(0, np.zeros((1, 5), np.int8))


def test_input_that_an_operator_refuses_and_life_goes_on(models: Path) -> None:
    backend = open_backend(models / "lookup.tflite")
    backend.set_input(0, np.array([[0, 7, 1]], np.int32))
    with pytest.raises(DataError) as caught:
        backend.invoke()
    assert caught.value.code == "inference_failed"
    backend.set_input(0, np.array([[4, 0, 1]], np.int32))
    backend.invoke()
    assert backend.get_output(0).tolist() == [[[4, 14], [0, 10], [1, 11]]]


def test_closed_means_closed(models: Path) -> None:
    backend = open_backend(models / "islands.tflite")
    backend.close()
    backend.close()
    with pytest.raises(UsageError, match="closed"):
        backend.invoke()


def test_without_any_interpreter_the_error_says_what_to_install(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def refuse(name: str, *rest: Any) -> Any:
        if name.split(".")[0] in backend_module.BACKENDS:
            raise ImportError(f"no {name} here")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(UsageError) as caught:
        open_backend(models / "islands.tflite")
    assert caught.value.code == "interpreter_missing"
    assert "pip install ai-edge-litert" in caught.value.hint
    assert set(caught.value.details["refused"]) == set(backend_module.BACKENDS)


def test_a_broken_package_is_passed_over(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tflite-runtime beside numpy 2 raises AttributeError while it is imported; the next one is to be tried."""
    works = available_backends()[0]
    real = importlib.import_module

    def first_is_broken(name: str, *rest: Any) -> Any:
        if name == "broken.interpreter":
            raise AttributeError("_ARRAY_API not found")
        return real(name, *rest)

    monkeypatch.setattr(backend_module, "BACKENDS", ("broken", works))
    monkeypatch.setattr(importlib, "import_module", first_is_broken)
    assert open_backend(models / "islands.tflite").name == works


def test_unknown_backend_and_thread_count(models: Path) -> None:
    with pytest.raises(UsageError, match="no interpreter backend"):
        open_backend(models / "islands.tflite", backend="onnx")
    with pytest.raises(UsageError, match="threads"):
        open_backend(models / "islands.tflite", threads=-1)
