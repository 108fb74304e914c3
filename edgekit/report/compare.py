"""Several runs beside each other: the numbers of each run's own table, one column a run. It does not judge."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.report.quantity import digits, duration_text, temperature_text
from edgekit.report.summary import MAIN, RunSummary, percentile_name
from edgekit.report.table import (
    TABLE_PERCENTS,
    UNKNOWN,
    Cell,
    Row,
    Table,
    memory_cell,
    not_measured,
    percentile_cell,
    throughput_cell,
)


def side_by_side(summaries: Sequence[RunSummary]) -> Table:
    """One column for each run, named by its id; rows for what was run, where, and how fast."""
    rows = [
        Row("model", "model", tuple(Cell(summary.model) for summary in summaries)),
        Row("device", "device", tuple(Cell(summary.device, _board(summary)) for summary in summaries)),
        Row("state", "state", tuple(_state(summary) for summary in summaries)),
        Row("duration", "measured for", tuple(_duration(summary) for summary in summaries)),
    ]
    for percent in TABLE_PERCENTS:
        cells = tuple(
            percentile_cell(summary.main.percentile(percent)) if summary.main else not_measured("run failed")
            for summary in summaries
        )
        rows.append(Row(percentile_name(percent), f"{percentile_name(percent)} latency", cells))
    rows.append(Row("throughput", "throughput", tuple(throughput_cell(s.main, MAIN) for s in summaries)))
    rows.append(Row("peak_memory", "peak memory", tuple(memory_cell(s.main, MAIN) for s in summaries)))
    rows.append(Row("speedup", "speed against float", tuple(_speedup(summary) for summary in summaries)))
    rows.append(Row("temperature", "highest temperature", tuple(_temperature(summary) for summary in summaries)))
    notes = ("Runs of different boards, interpreters or thread counts differ for that reason first.",)
    return Table("The runs side by side", tuple(summary.id for summary in summaries), tuple(rows), notes)


def _board(summary: RunSummary) -> str:
    return str(summary.facts.get("board_model") or summary.facts.get("cpu_model") or summary.facts.get("machine") or "")


def _state(summary: RunSummary) -> Cell:
    return Cell(f"{summary.state}, {summary.validity.verdict}", "; ".join(summary.validity.reasons))


def _duration(summary: RunSummary) -> Cell:
    if summary.duration_s is None:
        return Cell("unknown", state=UNKNOWN)
    return Cell(duration_text(summary.duration_s), value=summary.duration_s, unit="s")


def _speedup(summary: RunSummary) -> Cell:
    speedup = summary.speedup
    if speedup is None:
        return not_measured("edgekit bench BUNDLE --with-float")
    return Cell(f"{digits(speedup.ratio)}x: {speedup.verdict}", speedup.reason, value=speedup.ratio, unit="x")


def _temperature(summary: RunSummary) -> Cell:
    highest = summary.thermal.max_c
    if highest is None:
        return Cell("unknown", summary.thermal.unknown.get("temperature", ""), state=UNKNOWN)
    return Cell(temperature_text(highest), value=highest, unit="C")
