"""What runs inside a front end's own interpreter: ``python -I worker.py REQUEST.json``, and further requests on standard input.

A script on its own: it must not import edgekit, which is not installed there. It reads a request, converts the private copy of the
model that the request names, and writes ``result.json`` beside the request. Everything that a converter prints goes to the log
file that the parent made its standard output.

Request: ``{"task": one of TASKS, "folder": FOLDER, ...}`` with what the task needs. Result: ``{"ok": bool, "versions": {...}, "error": {"type",
"message", "trace"}, ...}`` with what the task gives.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Dict

VERSIONED = ("onnx2tf", "onnx", "onnxsim", "tensorflow", "tf_keras", "keras", "numpy", "ai_edge_litert", "torch")


def refuse_network() -> None:
    """Make every attempt to leave the machine fail at once: converters fetch sample images and schemas when they can."""
    import socket

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("the conversion runs offline")

    class Local(socket.socket):
        """Pipes within the machine stay open to those who use processes."""

        def connect(self, address: Any) -> None:
            if self.family != socket.AF_UNIX:
                refused()
            super().connect(address)

        def connect_ex(self, address: Any) -> int:
            if self.family != socket.AF_UNIX:
                refused()
            return super().connect_ex(address)

    socket.getaddrinfo = refused
    socket.create_connection = refused
    socket.socket = Local  # type: ignore[misc]


def versions() -> Dict[str, str]:
    """Versions of the converter's packages, as far as they are installed here."""
    from importlib import metadata

    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name.replace("_", "-"))
        except metadata.PackageNotFoundError:
            continue
    return found


TASKS = {
    "onnx by onnx2tf": ("onnx_by_onnx2tf", "convert_direct"),
    "onnx by onnx2tf, to come": ("onnx_by_onnx2tf", "get_ready"),
    "onnx by tensorflow": ("onnx_by_onnx2tf", "convert_by_tensorflow"),
    "onnx by tensorflow, to come": ("onnx_by_onnx2tf", "get_ready"),
    "tensorflow look": ("tensorflow_models", "look"),
    "tensorflow describe": ("tensorflow_models", "describe"),
    "tensorflow run": ("tensorflow_models", "run"),
    "tensorflow inside": ("tensorflow_models", "inside"),
    "tensorflow convert": ("tensorflow_models", "convert"),
    "torch describe": ("torch_models", "describe"),
    "torch run": ("torch_models", "run"),
}
"""What a request may ask for: the script beside this one, and the function there that takes the request and gives the result."""


def carry_out(request_path: str) -> None:
    """One request, in its own folder; ``result.json`` appears there in one step, whatever happens to the converter."""
    request = json.loads(Path(request_path).read_text())
    os.chdir(request["folder"])
    result: Dict[str, Any] = {"ok": False, "versions": {}}
    try:
        result["versions"] = versions()
        module, function = TASKS[request["task"]]
        result.update(getattr(importlib.import_module(module), function)(request))
        result["ok"] = True
    except BaseException as error:
        result["error"] = {
            "type": type(error).__name__,
            "message": str(error)[:4000],
            "trace": traceback.format_exc()[-8000:],
        }
    target = Path(request_path).with_name("result.json")
    target.with_suffix(".tmp").write_text(json.dumps(result))
    os.replace(target.with_suffix(".tmp"), target)


def main(request_path: str) -> None:
    """The request on the command line, then one for each line of standard input, until it ends."""
    refuse_network()
    sys.path.insert(0, str(Path(__file__).parent))  # the scripts beside this one; nothing else lies there
    # Requests are read from a private copy of the descriptor: a converter that asks its user something finds an empty input.
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    carry_out(request_path)
    for line in requests:
        carry_out(line.rstrip("\n"))


if __name__ == "__main__":
    main(sys.argv[1])
