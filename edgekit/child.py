"""Child processes that run a module of edgekit itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# The child gets this process's import path, as multiprocessing does it, so it finds the same edgekit, from a checkout or a wheel.
_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs ``module`` as a program in a child of this interpreter, isolated from the environment (``-I``)."""
    return [sys.executable, "-I", "-c", _START, json.dumps(_import_path()), module, *arguments]


def _import_path() -> list[str]:
    """This process's, without "" (the folder that the user happens to be in), and with the place of this very edgekit."""
    place = str(Path(__file__).resolve().parents[1])
    entries = [os.path.abspath(entry) for entry in sys.path if entry]
    return entries if place in entries else [*entries, place]
