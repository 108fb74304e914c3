"""A fixed sample of ONNX's own node tests through the import: nothing that is delivered is wrong, and every refusal says why."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import conformance
import pytest
from bundles import require_frontend

COUNT = 40
LEAST_DELIVERED = 24
"""Of the sample; a converter that refuses everything is never wrong."""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> argparse.Namespace:
    require_frontend("onnx2tf")
    return argparse.Namespace(
        judge="edgekit",
        frontends="onnx2tf",
        sample=COUNT,
        seed=11,
        only="",
        again="",
        run="",
        jobs=1,
        results=tmp_path_factory.mktemp("conformance"),
    )


@pytest.fixture(scope="module")
def records(options: argparse.Namespace) -> list[dict[str, Any]]:
    return conformance.run(options)


@pytest.mark.timeout(600)
def test_nothing_delivered_is_wrong(records: list[dict[str, Any]]) -> None:
    assert [record for record in records if record["verdict"] in ("wrong", "dead")] == []
    assert sum(record["verdict"] == "delivered" for record in records) >= LEAST_DELIVERED


def test_refusals_say_what_and_why(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["verdict"] == "refused":
            assert record["exit_code"] in (2, 3), record
            assert record["why"] and record["hint"] and record["code"] not in ("internal", "died"), record


def test_results_are_kept_case_by_case(records: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """A second run makes nothing again."""
    file = Path(options.results, "edgekit.jsonl")
    before = file.read_text()
    assert {json.loads(line)["name"] for line in before.splitlines()} == {record["name"] for record in records}
    assert conformance.run(options) == records
    assert file.read_text() == before
