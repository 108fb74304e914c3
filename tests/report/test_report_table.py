"""The one table: every row a number or the way to it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.report.compare import side_by_side
from edgekit.report.quantity import (
    counted,
    decibel_text,
    digits,
    duration_text,
    interval_text,
    latency_text,
    share_text,
    size_text,
)
from edgekit.report.stats import RunFolder, summarise
from edgekit.report.table import EMPTY, NOT_ENOUGH, NOT_MEASURED, UNKNOWN, Row, Table, bundle_table, run_table
from edgekit.values import to_json

MakeRun = Callable[..., Path]
KEYS = ["size", "accuracy", "agreement", "p50", "p95", "p99", "throughput", "peak_memory"]


def rows_of(table: Table) -> dict[str, Row]:
    return {row.key: row for row in table.rows}


def table_of(path: Path) -> Table:
    return run_table(summarise(RunFolder.load(path)))


def test_float_against_int8_all_measured(make_run: MakeRun) -> None:
    table = table_of(make_run(seconds=60, float_ms=21.0))
    rows = rows_of(table)
    assert table.columns == ("float", "int8", "change")
    assert list(rows) == [*KEYS, "throttling"]
    assert [cell.text for cell in rows["size"].cells] == ["13.9 MB", "3.60 MB", "3.86x smaller"]
    assert rows["accuracy"].cells[1].text == "70.8 %"
    assert rows["accuracy"].cells[1].detail == "[66.8 %, 74.8 %]"
    assert rows["accuracy"].cells[2].text == "-1.4 points"
    assert rows["agreement"].cells[1].text == "93.8 %"
    float_p50, int8_p50, change = rows["p50"].cells
    assert float_p50.value == pytest.approx(21, rel=0.01) and float_p50.unit == "ms"
    assert int8_p50.low is not None and int8_p50.high is not None
    assert int8_p50.low <= (int8_p50.value or 0) <= int8_p50.high
    assert re.fullmatch(r"2\.6\dx speed: faster", change.text) and change.low is not None
    assert rows["throughput"].cells[1].value == pytest.approx(124, rel=0.02)
    assert rows["peak_memory"].cells[2].value is not None and rows["peak_memory"].cells[2].value < 0


def test_int8_alone_says_how_to_measure_float(make_run: MakeRun) -> None:
    rows = rows_of(table_of(make_run(seconds=10)))
    for key in ("p50", "p95", "p99", "throughput", "peak_memory"):
        assert rows[key].cells[0].state == NOT_MEASURED
        assert rows[key].cells[0].detail == "edgekit bench BUNDLE --with-float"
        assert rows[key].cells[2].state == EMPTY
    assert rows["size"].cells[0].text == "13.9 MB"  # the manifest knows it


def test_a_percentile_below_its_count_is_never_printed(make_run: MakeRun) -> None:
    rows = rows_of(table_of(make_run(seconds=3)))
    cell = rows["p99"].cells[1]
    assert cell.state == NOT_ENOUGH
    assert cell.value is None
    assert (cell.text, cell.detail) == ("not enough inferences", "needs 662, has 375")


def test_a_lone_model_file_has_one_column(make_run: MakeRun) -> None:
    table = table_of(make_run(seconds=5, kind="tflite", manifest=False))
    rows = rows_of(table)
    assert table.columns == ("model",)
    assert all(len(row.cells) == 1 for row in table.rows)
    assert rows["accuracy"].cells[0].state == NOT_MEASURED
    assert rows["agreement"].cells[0].state == NOT_MEASURED


def test_memory_that_is_unknown_says_why(make_run: MakeRun) -> None:
    cell = rows_of(table_of(make_run(seconds=5, memory=False)))["peak_memory"].cells[1]
    assert (cell.state, cell.detail) == (UNKNOWN, "clear_refs: permission denied")


def test_a_failed_run_has_no_verdict_in_the_table(make_run: MakeRun) -> None:
    rows = rows_of(table_of(make_run(seconds=30, float_ms=21.0, state="failed")))
    assert rows["p50"].cells[2].text.endswith("speed: undecided")


def test_a_bundle_knows_everything_but_speed(make_manifest: Callable[..., dict[str, Any]]) -> None:
    table = bundle_table(make_manifest())
    rows = rows_of(table)
    assert list(rows) == KEYS
    for key in ("p50", "p95", "p99", "throughput", "peak_memory"):
        assert rows[key].cells[1].text == "not measured yet"
        assert rows[key].cells[1].detail == "edgekit bench BUNDLE"
    assert rows["accuracy"].cells[0].text == "72.2 %"


def test_a_rejected_bundle_still_has_its_size(make_manifest: Callable[..., dict[str, Any]]) -> None:
    manifest = make_manifest()
    manifest["files"]["rejected.tflite"] = manifest["files"].pop("model.tflite")
    rows = rows_of(bundle_table(manifest))
    assert rows["size"].cells[1].text == "3.60 MB"
    assert rows["p50"].cells[1].detail == "a rejected model is not taken to a board"


def test_outputs_that_are_no_choice_have_no_agreement(make_manifest: Callable[..., dict[str, Any]]) -> None:
    manifest = make_manifest(accuracy=False)
    manifest["verification"]["int8"]["outputs"][0]["agreement"] = None
    rows = rows_of(bundle_table(manifest))
    assert rows["agreement"].cells[1].state == UNKNOWN
    assert rows["accuracy"].cells[1].detail.startswith("edgekit convert MODEL --data")


def test_the_worst_output_speaks_for_the_agreement(make_manifest: Callable[..., dict[str, Any]]) -> None:
    manifest = make_manifest()
    outputs = manifest["verification"]["int8"]["outputs"]
    outputs.append(
        {**outputs[0], "name": "other", "agreement": {"same": 32, "count": 64, "value": 0.5, "low": 0.38, "high": 0.62}}
    )
    assert rows_of(bundle_table(manifest))["agreement"].cells[1].text == "50.0 %"


def test_an_empty_manifest_is_all_unmeasured() -> None:
    table = bundle_table({})
    assert [row.key for row in table.rows] == KEYS
    assert all(cell.value is None for row in table.rows for cell in row.cells)


def test_tables_are_plain_json(make_run: MakeRun) -> None:
    json.dumps(to_json(table_of(make_run(seconds=5))), allow_nan=False)


def test_runs_side_by_side(make_run: MakeRun) -> None:
    paths = [
        make_run("one", seconds=10),
        make_run("two", seconds=10, float_ms=20.0, temperature=False),
        make_run("three", seconds=2, state="failed"),
    ]
    table = side_by_side([summarise(RunFolder.load(path)) for path in paths])
    rows = rows_of(table)
    assert table.columns == ("one", "two", "three")
    assert [cell.text for cell in rows["state"].cells] == ["done, valid", "done, valid", "failed, invalid"]
    assert rows["temperature"].cells[1].state == UNKNOWN
    assert rows["p99"].cells[2].state == NOT_ENOUGH
    assert rows["speedup"].cells[0].state == NOT_MEASURED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1234"),
        (123.45, "123"),
        (12.345, "12.3"),
        (1.2345, "1.23"),
        (0.12345, "0.123"),
        (0.0012345, "0.00123"),
        (-1.5, "-1.50"),
        (1.9e-5, "1.9e-05"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert digits(value) == text


def test_quantities() -> None:
    assert latency_text(850_000) == "850 µs"
    assert latency_text(3_210_000) == "3.21 ms"
    assert latency_text(2_300_000_000) == "2300 ms"
    assert size_text(40) == "40 B"
    assert size_text(812_345) == "812 kB"
    assert size_text(3_420_000) == "3.42 MB"
    assert share_text(0.712) == "71.2 %"
    assert share_text(0.0051) == "0.51 %"
    assert decibel_text(None) == "exact"
    assert interval_text(None, "3") == "at most 3"
    assert interval_text("3", None) == "at least 3"
    assert interval_text(None, None) == "no interval"
    assert [duration_text(seconds) for seconds in (0.42, 31, 725, 7320)] == [
        "0.420 s",
        "31 s",
        "12 min 05 s",
        "2 h 02 min",
    ]
    assert counted(1, "partition") == "1 partition" and counted(5, "partition") == "5 partitions"
