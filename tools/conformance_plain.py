"""A worker of the conformance run in a front end's interpreter: plain onnx2tf as its manual shows it, one model after another.

Request: ``{"model": PATH, "out": FOLDER}``; answer ``{"tflite": PATH}`` or ``{"error": TEXT}``. onnx2tf 2.x converts with its direct backend,
1.x through TensorFlow; the only options are those against printing and against three processes of onnxsim for each model.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict

sys.path.insert(0, str(Path(__file__).parent))
from conformance_resident import serve


def convert(request: Dict[str, Any]) -> Dict[str, Any]:
    """One model, from a copy: onnx2tf overwrites its input."""
    import onnx2tf

    out = Path(request["out"])
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(out)
    sample_picture = out.parent / "calibration_image_sample_data_20x128x128x3_float32.npy"
    if not sample_picture.exists():
        import numpy as np

        np.save(sample_picture, np.zeros((20, 128, 128, 3), np.float32))
    os.symlink(sample_picture, out / sample_picture.name)  # 1.x would fetch it from the network
    copy = out / "model.onnx"
    shutil.copyfile(request["model"], copy)
    options = {"tflite_backend": "flatbuffer_direct"} if onnx2tf.__version__.startswith("2.") else {}
    try:
        onnx2tf.convert(
            input_onnx_file_path=str(copy),
            output_folder_path=str(out / "o"),
            not_use_onnxsim=True,
            non_verbose=True,
            **options,
        )
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {str(error).strip()[:300]}"}
    written = out / "o" / "model_float32.tflite"
    return {"tflite": str(written)} if written.exists() else {"error": "no error, and no file was written"}


def _refuse_network() -> None:
    import socket

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("offline")

    socket.getaddrinfo = refused  # type: ignore[assignment]
    socket.create_connection = refused  # type: ignore[assignment]


if __name__ == "__main__":
    _refuse_network()
    serve(convert)
