"""The kind of a model is told by its content, and what is no model is called what it is."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from tiny_models import conv_onnx, float_conv_tflite, shared

from edgekit.errors import ModelFileError, UnsupportedModelError
from edgekit.intake import tflite
from edgekit.intake.formats import FORMATS, detect_format
from edgekit.intake.inspect import inspect_model


def zipped(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return path


@pytest.mark.parametrize("name", ["model.onnx", "model.tflite", "model.bin", "model"])
def test_content_decides_not_the_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(conv_onnx().SerializeToString())
    assert detect_format(path) == "onnx"
    path.write_bytes(tflite.serialize(float_conv_tflite()))
    assert detect_format(path) == "tflite"


# The entries are those that Keras 3.15, torch 2.13 (export.save, save, jit.save) and torch 2.4 (export.save) write.
@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("metadata.json", "config.json", "model.weights.h5"), "keras"),
        (("m/data/weights/weight_0", "m/models/model.json", "m/archive_format", "m/byteorder"), "pt2"),
        (("serialized_exported_program.json", "serialized_state_dict.pt", "version"), "pt2"),
        (("m/data.pkl", "m/byteorder", "m/data/0", "m/version"), "torch-pickle"),
        (("ts/data/0", "ts/data.pkl", "ts/code/__torch__/linear.py", "ts/constants.pkl"), "torch-pickle"),
    ],
)
def test_zip_archives_of_the_frameworks(names: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    assert detect_format(zipped(tmp_path / "model.onnx", *names)) == kind


def test_hdf5_with_and_without_user_block(tmp_path: Path) -> None:
    for offset in (0, 512, 2048):
        (tmp_path / "m.h5").write_bytes(bytes(offset) + b"\x89HDF\r\n\x1a\n" + bytes(100))
        assert detect_format(tmp_path / "m.h5") == "h5"
    assert detect_format(shared("models/fer_emotion_mini_xception.hdf5")) == "h5"


def test_saved_model_folder(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"x")
    with pytest.raises(ModelFileError, match=r"without saved_model.pb") as caught:
        detect_format(tmp_path)
    assert "net.onnx" in caught.value.hint
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    assert detect_format(tmp_path) == "savedmodel"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello, I am a text file with an ending that lies\n" * 9, "but text"),
        (b"2024-01-01 12:00 log started\n", "but text"),  # its first bytes are those of a doc_string field
        (b"Bonjour", "but text"),  # ... of an opset_import field that is cut off
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", "Git LFS pointer"),
        (b"\n<!DOCTYPE html><html><body>404</body></html>", "a web page"),
        (b"\x1f\x8b\x08\0\0\0", "gzip data"),
        (bytes(5000), "nothing but zero bytes"),
        (bytes(range(200, 256)) * 3, "other binary data"),
        (b"\x08\x07", "other binary data"),
    ],
)
def test_what_is_no_model_is_called_what_it_is(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=words) as caught:
        detect_format(path)
    assert caught.value.code == "not_a_model"
    assert caught.value.details.get("size_bytes") == len(content)


def test_damaged_archives(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "m.keras", "config.json", "model.weights.h5").read_bytes()
    (tmp_path / "m.keras").write_bytes(whole[:-30])
    with pytest.raises(ModelFileError, match="begins as a Keras 3 archive") as caught:
        detect_format(tmp_path / "m.keras")
    assert caught.value.code == "model_truncated"
    with pytest.raises(ModelFileError, match=r"holds no model of a known kind \(first entries: readme.txt"):
        detect_format(zipped(tmp_path / "a.zip", "readme.txt"))


def test_missing_path_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "efficientnet.onnx").write_bytes(b"")
    with pytest.raises(ModelFileError) as caught:
        detect_format(tmp_path / "eficientnet.onx")
    assert (caught.value.code, "efficientnet.onnx" in caught.value.hint) == ("model_file_missing", True)
    with pytest.raises(ModelFileError) as caught:
        detect_format(tmp_path / "nowhere" / "x.onnx")
    assert "does not exist either" in caught.value.hint


def test_odd_paths(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelFileError, match="no regular file"):
        detect_format(tmp_path / "pipe.onnx")
    (tmp_path / "loop.onnx").symlink_to(tmp_path / "loop.onnx")
    with pytest.raises(ModelFileError):
        detect_format(tmp_path / "loop.onnx")
    with pytest.raises(ModelFileError):
        detect_format("nul\0byte.onnx")


@pytest.mark.parametrize("kind", sorted(set(FORMATS) - {"onnx", "tflite"}))
def test_other_formats_are_refused_by_name(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.intake.inspect.detect_format", lambda _: kind)
    with pytest.raises(UnsupportedModelError, match=f"{FORMATS[kind]}.* reads .onnx and .tflite only"):
        inspect_model(tmp_path / "m")
