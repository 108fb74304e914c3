"""A worker of the conformance run: edgekit's probe of a delivered file, without a new process for each (a crash still costs only one answer).

Request: ``{"model": PATH, "inputs": PATH or null}``; answer as :mod:`edgekit.intake.probe` gives it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from conformance_resident import serve

from edgekit.errors import EdgekitError
from edgekit.intake.probe import look
from edgekit.runtime.backend import open_backend


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The model loaded and run once."""
    try:
        with open_backend(request["model"], threads=1) as backend:
            return look(backend, invoke=True, inputs=request["inputs"])
    except EdgekitError as error:
        return {"ok": False, "failure": error.message, "code": error.code}
    except Exception as error:  # the interpreter raises anything
        return {"ok": False, "failure": f"the interpreter failed: {type(error).__name__}: {error}"[:300]}


if __name__ == "__main__":
    serve(answer)
