"""Errors and functions of the user's are no shares, and a recipe's result is called what it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from edgekit.report.bundle_view import bundle_chapter
from edgekit.report.next_steps import advise_manifest
from edgekit.report.plots import Figure, accuracy
from edgekit.report.table import Cell, bundle_table

MakeManifest = Callable[..., dict[str, Any]]
SCHEMES = {
    "int8": {"weights": "int8-per-channel", "activations": "int8", "io": "float32"},
    "int16x8": {"weights": "int8-per-channel", "activations": "int16", "io": "int16"},
    "dynamic": {"weights": "int8-per-channel", "activations": "dynamic", "io": "float32"},
    "float16": {"weights": "float16", "activations": "float32", "io": "float32"},
}


def judged(manifest: dict[str, Any], metric: str, *, unit: str, higher: bool, values: tuple[float, float]) -> None:
    """Replaces the accuracy: float and quantised at ``values``, each +-0.05, their difference +-0.02."""
    sides = [{"right": None, "value": value, "low": value - 0.05, "high": value + 0.05} for value in values]
    change = values[1] - values[0]
    factor = 100.0 if unit == "points" else 1.0
    manifest["verification"]["accuracy"] |= {
        "metric": metric,
        "float": sides[0],
        "int8": sides[1],
        "difference_points": {k: factor * (change + d) for k, d in (("value", 0), ("low", -0.02), ("high", 0.02))},
        "lost": None,
        "gained": None,
        "unit": unit,
        "higher_is_better": higher,
    }


def drawn(manifest: dict[str, Any]) -> Figure:
    figure = accuracy(manifest)
    assert figure is not None
    return figure


def accuracy_row(manifest: dict[str, Any]) -> tuple[str, tuple[Cell, ...]]:
    (row,) = [row for row in bundle_table(manifest).rows if row.key == "accuracy"]
    return row.label, row.cells


@pytest.mark.parametrize("metric", ["mae", "rmse", "judge:steering"])
def test_a_figure_that_is_no_share_stands_in_its_own_unit(metric: str, make_manifest: MakeManifest) -> None:
    manifest = make_manifest()
    judged(manifest, metric, unit="", higher=":" in metric, values=(2.5, 2.75))
    label, cells = accuracy_row(manifest)
    names = {"mae": "mean absolute error", "rmse": "root mean square error"}
    assert label == f"{names.get(metric, metric)}, 500 samples"
    assert [(cell.text, cell.unit) for cell in cells] == [("2.50", ""), ("2.75", ""), ("+0.250", "")]
    assert cells[1].detail == "[2.70, 2.80]" and cells[2].detail == "[+0.230, +0.270]"
    (section,) = [s for s in bundle_chapter({"manifest": manifest}).sections if s.id == "accuracy"]
    assert [(bar.text, round(bar.share, 3)) for bar in section.bars] == [
        ("2.50 [2.45, 2.55]", 0.909),
        ("2.75 [2.70, 2.80]", 1.0),
    ]
    assert ("Less is better" in section.paragraphs[0]) == (":" not in metric)
    figure = drawn(manifest)
    assert [trace["x"] for trace in figure.data] == [[2.5], [2.75]]
    assert "%" not in figure.layout["xaxis"]["title"]["text"]
    losses = [advice for advice in advise_manifest(manifest) if advice.key == "accuracy_drop"]
    if ":" in metric:
        assert not losses  # more is better, and it rose
    else:
        assert f"costs 0.250 of {names[metric]}, and at least 0.230" in losses[0].reason


@pytest.mark.parametrize(("metric", "label"), [("map", "mAP"), ("miou", "mean IoU"), ("top5", "top5 accuracy")])
def test_a_share_stays_in_percent(metric: str, label: str, make_manifest: MakeManifest) -> None:
    manifest = make_manifest()
    judged(manifest, metric, unit="points", higher=True, values=(0.6, 0.48))
    shown, cells = accuracy_row(manifest)
    assert shown == f"{label}, 500 samples"
    assert [cell.text for cell in cells] == ["60.0 %", "48.0 %", "-12.0 points"]
    assert [trace["x"] for trace in drawn(manifest).data] == [[60.0], [48.0]]
    assert drawn(manifest).layout["xaxis"]["title"]["text"] == f"{label}, %"
    (advice,) = [advice for advice in advise_manifest(manifest) if advice.key == "accuracy_drop"]
    assert "costs 12.0 points, and at least 10.0" in advice.reason


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_the_result_of_a_recipe_is_called_what_it_is(scheme: str, make_manifest: MakeManifest) -> None:
    manifest = make_manifest()
    manifest["recipe"] = {"name": "mine", "quantize": SCHEMES[scheme]}
    table = bundle_table(manifest)
    assert table.title == f"Float against {scheme}" and table.columns == ("float", scheme, "change")
    sections = {section.id: section for section in bundle_chapter({"manifest": manifest}).sections}
    assert [bar.label for bar in sections["accuracy"].bars] == ["float", scheme]
    assert sections["int8"].paragraphs[0].startswith(f"The {scheme} model against the float one")
    assert [trace["y"] for trace in drawn(manifest).data] == [["float"], [scheme]]
    shown = repr(
        (table, sections["accuracy"], sections["int8"].title, sections["int8"].paragraphs, drawn(manifest).data)
    )
    assert bool(re.search(r"int8(?!')", shown.replace("int16x8", ""))) == (scheme == "int8")
