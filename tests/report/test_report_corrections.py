"""The page says what was tried on the integers, what stayed, and why nothing was where nothing was."""

from __future__ import annotations

from typing import Any

from edgekit.report.corrections_view import corrections_section

RATIOS = {"ordinary_db": 19.3, "rare_db": 20.7, "peaks_db": 26.6}
RECORD: dict[str, Any] = {
    "judged": 24,
    "rare": 10,
    "before": RATIOS,
    "after": {"ordinary_db": 24.4, "rare_db": 25.4, "peaks_db": 32.1},
    "weights": "error feedback",
    "equalised": [],
    "methods": {"mse": ["a"], "percentile": ["b", "c", "d", "e", "f"]},
    "trials": [{"what": "plain weights, min-max ranges", "ratios": RATIOS}],
    "note": "",
}


def test_what_stayed_and_what_was_tried() -> None:
    section = corrections_section(RECORD)
    assert (
        section is not None
        and "24 calibration samples" in section.paragraphs[0]
        and "10 of them" in section.paragraphs[0]
    )
    figures, stayed, tried = (grid.rows for grid in section.grids)
    assert [row[0] for row in figures] == ["as the engine makes it, true extremes", "delivered"]
    assert "24.4" in figures[1][1] and "32.1" in figures[1][3]
    assert ("weights", "error feedback") in stayed and ("equalised tensors", "none") in stayed
    assert ("ranges by percentile", "5: b, c, d and 2 more") in stayed
    assert tried[0][0] == "plain weights, min-max ranges" and "19.3" in tried[0][1]


def test_nothing_done_and_nothing_asked_for() -> None:
    said = corrections_section({**RECORD, "note": "3 calibration samples: below 5 none can be held out"})
    assert said is not None and said.grids == () and "below 5" in said.paragraphs[0]
    assert corrections_section({}) is None
