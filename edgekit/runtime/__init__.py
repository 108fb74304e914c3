"""The wrapper that lives inside edge apps: float in, float out, on whichever TFLite interpreter is installed.

``from edgekit.runtime import Model``. The class is loaded at first use, so importing the package costs no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.runtime.model import Model

__all__ = ["Model"]


def __getattr__(name: str) -> Any:
    if name == "Model":
        from edgekit.runtime.model import Model

        return Model
    raise AttributeError(f"module 'edgekit.runtime' has no attribute {name!r}")
