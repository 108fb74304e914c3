"""What kind of model is it? By its content first, then by its name."""

from __future__ import annotations

import difflib
from pathlib import Path

from edgekit.errors import ModelFileError

FORMATS = {
    "onnx": "ONNX model",
    "tflite": "TFLite model",
    "keras": "Keras 3 archive",
    "h5": "Keras HDF5 file",
    "savedmodel": "TensorFlow SavedModel folder",
    "pt2": "exported PyTorch program",
    "torch-pickle": "PyTorch pickle",
}
"""Every word that :func:`detect_format` returns, with its name for people."""


def require_path(path: str | Path) -> Path:
    """``path`` as a :class:`Path` to something that exists; raises :class:`ModelFileError` that names neighbours of a similar name."""
    path = Path(path)
    try:
        path.stat()
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file", hint=_near(path), code="model_not_found") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path}: cannot be opened: {reason}", code="model_unreadable") from error
    return path


def require_file(path: str | Path) -> Path:
    """Like :func:`require_path`, for a readable regular file."""
    path = require_path(path)
    if path.is_dir():
        raise ModelFileError(f"{path}: is a folder, not a model file", hint=_models_inside(path), code="not_a_model")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}", code="model_unreadable") from error
    return path


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
    suffixes = (".onnx", ".tflite", ".keras", ".h5", ".hdf5", ".pt2")
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in suffixes)[:3]
    except OSError:
        return ""
    return (
        f"did you mean {' or '.join(str(folder / name) for name in names)}?"
        if names
        else "give the path of the model file itself"
    )
