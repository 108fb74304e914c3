"""The environment for child processes that run a module of edgekit itself."""

from __future__ import annotations

import os
from pathlib import Path


def environment() -> dict[str, str]:
    """This process's environment, with the place of this very edgekit first on the module path and repeatable hashing.

    A child started with ``sys.executable -m edgekit...`` then finds the same edgekit from a checkout, a wheel or another folder.
    """
    place = str(Path(__file__).resolve().parent.parent)
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != place]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([place, *others]), "PYTHONHASHSEED": "0"}
