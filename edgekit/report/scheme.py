"""What a bundle's delivered model is called: by what its recipe made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FLOAT = "float"
QUANTISED = ("int8", "int16x8", "dynamic", "float16")
"""Every name of a model that has a float model to stand against."""


def scheme_name(manifest: Mapping[str, Any] | None) -> str:
    """``float`` where nothing was quantised, ``float16`` and ``dynamic`` for those recipes, ``int16x8`` for activations of 16 bits,
    else ``int8``, whatever the ends are.
    """
    recipe = (manifest or {}).get("recipe")
    if not isinstance(recipe, Mapping) or "quantize" not in recipe:
        return "int8"
    quantize = recipe["quantize"]
    if not isinstance(quantize, Mapping):
        return FLOAT
    if quantize.get("weights") == "float16":
        return "float16"
    return {"dynamic": "dynamic", "int16": "int16x8"}.get(str(quantize.get("activations")), "int8")
