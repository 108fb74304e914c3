"""What kind of model is it? Told by the content; the name only helps to word the complaint when the content is no model."""

from __future__ import annotations

import difflib
import re
import zipfile
from pathlib import Path
from typing import BinaryIO

from edgekit.errors import ModelFileError
from edgekit.intake import onnx_wire

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

FORMATS = {
    "onnx": "ONNX model",
    "tflite": "TFLite model",
    "keras": "Keras 3 archive",
    "h5": "Keras HDF5 file",
    "savedmodel": "TensorFlow SavedModel folder",
    "pt2": "exported PyTorch program",
    "torch-pickle": "PyTorch pickle or TorchScript file",
}
"""Every word that :func:`detect_format` returns, with its name for people."""

_SUFFIXES = {
    ".onnx": "onnx",
    ".tflite": "tflite",
    ".lite": "tflite",
    ".keras": "keras",
    ".h5": "h5",
    ".hdf5": "h5",
    ".pt2": "pt2",
    ".pt": "torch-pickle",
    ".pth": "torch-pickle",
}
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HDF5_STARTS = (0, 512, 1024, 2048)  # a user block may come first; its size is 0 or a power of two from 512
_OTHERS = (  # things that are often found under a model's name
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the model itself",
        "run `git lfs pull` in the repository it came from",
    ),
    (b"<!DOCTYPE", "a web page", "the download gave a page instead of the model: download it again"),
    (b"<html", "a web page", "the download gave a page instead of the model: download it again"),
    (b"\x1f\x8b", "gzip data", "unpack it first"),
    (b"BZh", "bzip2 data", "unpack it first"),
    (b"\xfd7zXZ", "xz data", "unpack it first"),
    (b"Rar!", "a rar archive", "unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it first"),
    (b"GGUF", "a GGUF language model", ""),
    (
        b"TRTE",
        "a TensorRT engine, which only runs on the kind of board that built it",
        "start from the ONNX file it was built from",
    ),
    (
        b"ptrt",
        "a TensorRT engine, which only runs on the kind of board that built it",
        "start from the ONNX file it was built from",
    ),
)


def detect_format(path: str | Path) -> str:
    """One word of :data:`FORMATS`. A recognised but damaged model gives its word too: its reader then says what is missing.

    Raises :class:`ModelFileError`: ``model_file_missing`` (with near names), ``model_file_unreadable``, or ``not_a_model`` with the
    size and what the content looks like.
    """
    path = require_path(path)
    if path.is_dir():
        return _folder_format(path)
    path = require_file(path)
    with path.open("rb") as file:
        head = file.read(4096)
        if head[4:8] == b"TFL3":
            return "tflite"
        if _is_hdf5(file):
            return "h5"
        if head[:4] == b"PK\x03\x04":
            return _zip_format(path)
        if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            return "torch-pickle"
        if onnx_wire.looks_like_onnx(head):
            return "onnx"
    raise _no_model(path, head)


def require_path(path: str | Path) -> Path:
    """``path`` as a :class:`Path` to something that exists; raises :class:`ModelFileError` that names neighbours of a similar name."""
    path = Path(path)
    try:
        path.stat()
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file", hint=_near(path), code="model_file_missing") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path}: cannot be opened: {reason}", code="model_file_unreadable") from error
    return path


def require_file(path: str | Path) -> Path:
    """Like :func:`require_path`, for a readable regular file."""
    path = require_path(path)
    if path.is_dir():
        raise ModelFileError(f"{path}: is a folder, not a model file", hint=_models_inside(path), code="not_a_model")
    if not path.is_file():  # a pipe or a device would block or never end
        raise ModelFileError(f"{path}: is no regular file", code="not_a_model")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be read: {error.strerror or error}", code="model_file_unreadable"
        ) from error
    return path


def _folder_format(path: Path) -> str:
    if (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file():
        return "savedmodel"
    raise ModelFileError(
        f"{path}: a folder without saved_model.pb is no TensorFlow SavedModel, and no other kind of model is a folder",
        hint=_models_inside(path),
        code="not_a_model",
    )


def _is_hdf5(file: BinaryIO) -> bool:
    for start in _HDF5_STARTS:
        file.seek(start)
        if file.read(len(_HDF5)) == _HDF5:
            return True
    return False


def _zip_format(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        kind = FORMATS.get(_SUFFIXES.get(path.suffix.lower(), ""), "zip archive")
        raise ModelFileError(
            f"{path}: begins as a {kind}, but its table of contents is missing ({path.stat().st_size:,} bytes): cut short or damaged",
            hint="copy or download the file again and compare its size with the original",
            code="model_truncated",
            details={"size_bytes": path.stat().st_size},
        ) from error
    inner = {name.partition("/")[2] for name in names}
    if "config.json" in names and any(name.startswith("model.weights") for name in names):
        return "keras"
    if "models/model.json" in inner or any(name.endswith("serialized_exported_program.json") for name in names):
        return "pt2"
    if "data.pkl" in inner:
        return "torch-pickle"
    raise ModelFileError(
        f"{path}: a zip archive that holds no model of a known kind (first entries: {', '.join(names[:3]) or 'none'})",
        hint="unpack it and give the model inside",
        code="not_a_model",
    )


def _no_model(path: Path, head: bytes) -> ModelFileError:
    size = path.stat().st_size
    wanted = _SUFFIXES.get(path.suffix.lower())
    expected = f" no {FORMATS[wanted]}" if wanted else " no model of a known kind"
    looks, hint = _looks_like(head)
    return ModelFileError(
        f"{path}: is{expected}, but {looks} ({size:,} bytes that begin with {head[:16]!r})"
        if head
        else f"{path}: is empty (0 bytes)",
        hint=hint or f"the kinds that are known: {', '.join(FORMATS.values())}",
        code="not_a_model",
        details={"size_bytes": size, "first_bytes": head[:16].hex()},
    )


def _looks_like(head: bytes) -> tuple[str, str]:
    for magic, words, hint in _OTHERS:
        if head.lstrip().lower().startswith(magic.lower()):
            return words, hint
    if not head.strip(b"\0"):
        return ("nothing but zero bytes", "copy or download the file again: this is what an unfinished transfer leaves")
    try:
        text = head.decode("utf-8") if len(head) < 4096 else head[:4000].decode("utf-8", errors="ignore")
    except UnicodeDecodeError:
        return "other binary data", ""
    printable = sum(character.isprintable() or character.isspace() for character in text)
    return (
        ("text", "")
        if printable >= 0.95 * len(text) and len(text) > 0.9 * min(len(head), 4000)
        else ("other binary data", "")
    )


def is_function(path: Path) -> bool:
    """Whether this is ``module:function`` rather than a file."""
    return _FUNCTION.fullmatch(str(path)) is not None and not path.exists()


def size_bytes(path: Path) -> int:
    """The size of a model: of the file, or of everything in the folder; 0 for what a function will make."""
    if is_function(path):
        return 0
    path = require_path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def _near(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"the folder {path.parent} does not exist either"
    close = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    return (
        f"did you mean {' or '.join(str(path.parent / name) for name in close)}?"
        if close
        else f"look into {path.parent}"
    )


def _models_inside(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in _SUFFIXES)[:3]
    except OSError:
        return ""
    return (
        f"did you mean {' or '.join(str(folder / name) for name in names)}?"
        if names
        else "give the path of the model file itself"
    )
