"""What was tried on an int8 file, and what stayed, as a section of a bundle's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report.page import Grid, Section
from edgekit.report.quantity import decibel_text

KINDS = (("ordinary", "ordinary_db"), ("rare", "rare_db"), ("peaks", "peaks_db"))


def corrections_section(corrections: Mapping[str, Any]) -> Section | None:
    """None where the recipe corrects nothing. A record with a note alone says why nothing was done."""
    if not corrections:
        return None
    if corrections.get("note"):
        return Section("corrections", "Corrections", (str(corrections["note"]),))
    said = (
        f"Each was tried on {corrections.get('judged')} calibration samples that it was not made from, {corrections.get('rare')} of them "
        "rare (those that excite the network most). The evaluation data played no part. Peaks are the highest values of each channel."
    )
    rows = []
    for name, key in (("as the engine makes it, true extremes", "before"), ("delivered", "after")):
        rows.append((name, *_ratios(corrections.get(key))))
    tried = tuple((str(t.get("what")), *_ratios(t.get("ratios"))) for t in corrections.get("trials") or ())
    heads = tuple(head for head, _ in KINDS)
    grids = (
        Grid(("int8 file", *heads), tuple(rows), frozenset({1, 2, 3})),
        Grid(("stayed", "what"), tuple(_stayed(corrections))),
        Grid(("tried", *heads), tried, frozenset({1, 2, 3})),
    )
    return Section("corrections", "Corrections", (said,), grids=grids)


def _ratios(ratios: Any) -> tuple[str, ...]:
    if not isinstance(ratios, Mapping):
        return tuple("not recorded" for _ in KINDS)
    return tuple(decibel_text(ratios.get(key)) for _, key in KINDS)


def _stayed(corrections: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("weights", str(corrections.get("weights")))]
    equalised = corrections.get("equalised") or ()
    rows.append(("equalised tensors", str(len(equalised)) if equalised else "none"))
    for method, tensors in (corrections.get("methods") or {}).items():
        few = ", ".join(str(name) for name in tensors[:3])
        more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
        rows.append((f"ranges by {method}", f"{len(tensors)}: {few}{more}"))
    return rows
