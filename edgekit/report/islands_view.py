"""The island report on the page of a bundle: what stayed float in an integer model, and what was brought into the integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from edgekit.report.page import Grid, Section

LONGEST = 200
"""Rows that a page shows; all of them are in report.json."""


def islands_section(manifest: Mapping[str, Any]) -> Section | None:
    """None where nothing stayed float and nothing had to be closed, as far as the manifest says."""
    islands = _objects(_object(manifest.get("verification")).get("islands"))
    closing = _object(manifest.get("closed_islands"))
    said = tuple(text for text in (_closed(closing), _refused(closing)) if text)
    if not islands and not said:
        return None
    grids = (_grid(islands),) if islands else ()
    return Section("islands", "Float islands", said, grids=grids)


def _closed(closing: Mapping[str, Any]) -> str:
    counts = Counter(str(item.get("op")) for item in _objects(closing.get("operators")))
    listed = ", ".join(f"{op} × {count}" if count > 1 else op for op, count in counts.items())
    return f"The quantiser left these float; they compute on integers now: {listed}." if counts else ""


def _refused(closing: Mapping[str, Any]) -> str:
    reason = closing.get("refused")
    return (
        f"Islands were left as they were, since the interpreter did not take the file without them: {reason}."
        if reason
        else ""
    )


def _grid(islands: tuple[Mapping[str, Any], ...]) -> Grid:
    keys = ("op", "tensor", "layer", "reason", "fix")
    rows = [tuple("unknown" if item.get(key) is None else str(item[key]) for key in keys) for item in islands[:LONGEST]]
    if len(islands) > LONGEST:
        rows.append((f"and {len(islands) - LONGEST} more", "", "", "all of them are in report.json", ""))
    return Grid(("operator", "tensor", "layer of the source", "why it is float", "what to do"), tuple(rows))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, (list, tuple)) else ()
