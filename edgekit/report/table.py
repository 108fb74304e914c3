"""The one table: float against the quantised model, every row measured or saying how to measure it.

Plain rows, so that the page, the terminal and ``--json`` show the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.report import metric as metrics
from edgekit.report.quantity import (
    BYTES_PER_MB,
    cause_text,
    counted,
    digits,
    digits_that_show,
    duration_text,
    interval_text,
    latency_text,
    latency_unit,
    share_text,
    size_text,
)
from edgekit.report.scheme import FLOAT, QUANTISED, scheme_name
from edgekit.report.summary import (
    MAIN,
    CauseFinding,
    NotEnough,
    Percentile,
    RunSummary,
    VariantSummary,
    percentile_name,
)

MEASURED = "measured"
NOT_ENOUGH = "not enough"
NOT_MEASURED = "not measured"
UNKNOWN = "unknown"
EMPTY = "empty"

RUN_NOTES = (
    "Intervals are of 95 %.",
    "A percentile is shown once the run has the inferences to support it with 99 % confidence.",
    "Peak memory is of the whole worker process: Python, interpreter and model.",
)

HOW_SPEED = "edgekit bench BUNDLE"
HOW_AGREEMENT = "edgekit convert MODEL --data DATA"
HOW_ACCURACY = f"{HOW_AGREEMENT} --labels LABELS"

TABLE_PERCENTS = (50.0, 95.0, 99.0)


@dataclass(frozen=True)
class Cell:
    """One number of the table: ``text`` to show, ``detail`` its interval, or the reason and the command that would
    measure it.

    ``value``, ``low``, ``high`` are in ``unit``; None where there is nothing or no bound. ``state`` is one of the words
    above.
    """

    text: str
    detail: str = ""
    state: str = MEASURED
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Row:
    """One quantity: a stable ``key`` for programs, a ``label`` for people, and a cell for each column."""

    key: str
    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """``columns`` names the cells of every row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


BLANK = Cell("", state=EMPTY)


def not_measured(how: str, *, text: str = "not measured") -> Cell:
    """A cell that says how its number would come to be."""
    return Cell(text, how, state=NOT_MEASURED)


def is_float_bundle(manifest: Mapping[str, Any] | None) -> bool:
    """Whether the bundle's recipe quantised nothing: its only model is the float one."""
    return scheme_name(manifest) == FLOAT


def main_label(kind: str, manifest: Mapping[str, Any] | None) -> str:
    """What the main column is called: of a bundle what its recipe made (:func:`scheme_name`), else ``model``."""
    return scheme_name(manifest) if kind == "bundle" or manifest is not None else "model"


def variant_label(name: str, summary: RunSummary) -> str:
    """What a variant is called: as :func:`main_label` has it, ``float``, ``2 threads``, or the second model's name with ``(other)``."""
    if name == FLOAT:
        return FLOAT
    if name == MAIN:
        return main_label(summary.kind, summary.manifest)
    if name.startswith("threads-"):
        return counted(int(name.removeprefix("threads-")), "thread")
    more = [item for item in summary.request.get("more_variants") or () if item.get("name") == name]
    return f"{more[0]['model'].get('name', name)} ({name})" if more and isinstance(more[0].get("model"), dict) else name


def run_table(summary: RunSummary) -> Table:
    """Float against the main model as this run measured them, with size, accuracy and agreement from the bundle's
    manifest.

    A lone model file, or a float bundle, has no float model to stand against: its table is one column.
    """
    label = main_label(summary.kind, summary.manifest)
    board = str(summary.request.get("board_note") or "")
    notes = (*((f"{board}.",) if board else ()), *RUN_NOTES)
    rows = [_size_row(summary), *([] if label == FLOAT else _quality_rows(summary.manifest))]
    rows += [_percentile_row(summary, percent) for percent in TABLE_PERCENTS]
    rows += [_throughput_row(summary), _memory_row(summary)]
    rows.append(Row("throttling", "throttling", (BLANK, throttling_cell(summary), BLANK)))
    if label not in QUANTISED and summary.float_variant is None:
        alone = tuple(Row(row.key, row.label, row.cells[1:2]) for row in rows)
        return Table(summary.model, (label,), alone, notes)
    return Table(f"Float against {label}", (FLOAT, label, "change"), tuple(rows), notes)


def turns_table(summary: RunSummary) -> Table | None:
    """One column for each variant of a run with more of them than the model and its float form; None for other runs."""
    shown = [item for item in summary.variants if item.name != FLOAT]
    if len(shown) < 2:
        return None
    threads = any(item.name.startswith("threads-") for item in shown)
    labels = [
        counted(item.threads, "thread")
        if threads and item.name == MAIN and item.threads
        else variant_label(item.name, summary)
        for item in shown
    ]
    rows = [
        Row(percentile_name(p), _latency_label(p), tuple(percentile_cell(item.percentile(p)) for item in shown))
        for p in TABLE_PERCENTS
    ]
    rows.append(Row("throughput", "throughput", tuple(throughput_cell(item, item.name) for item in shown)))
    rows.append(Row("peak_memory", "peak memory", tuple(memory_cell(item, item.name) for item in shown)))
    return Table("In turns", tuple(labels), tuple(rows))


def bundle_table(manifest: Mapping[str, Any]) -> Table:
    """Float against the quantised model as far as the workstation knows it: speed and memory are the board's to measure.

    One column where nothing was quantised.
    """
    if is_float_bundle(manifest):
        return _float_table(manifest)
    rows = [_manifest_size_row(manifest), *_quality_rows(manifest)]
    if _file_bytes(manifest, "rejected.tflite") is not None:
        float_pending = pending = not_measured("a rejected model is not taken to a board")
    else:
        pending = not_measured(HOW_SPEED, text="not measured yet")
        float_pending = not_measured(f"{HOW_SPEED} --with-float", text="not measured yet")
    for percent in TABLE_PERCENTS:
        rows.append(Row(percentile_name(percent), _latency_label(percent), (float_pending, pending, BLANK)))
    rows.append(Row("throughput", "throughput", (float_pending, pending, BLANK)))
    rows.append(Row("peak_memory", "peak memory", (float_pending, pending, BLANK)))
    label = scheme_name(manifest)
    return Table(f"Float against {label}", (FLOAT, label, "change"), tuple(rows), RUN_NOTES[:1])


def _float_table(manifest: Mapping[str, Any]) -> Table:
    pending = (not_measured(HOW_SPEED, text="not measured yet"),)
    rows = [Row("size", "file size", (_size_cell(_file_bytes(manifest, "model.tflite")),))]
    rows += [Row(percentile_name(percent), _latency_label(percent), pending) for percent in TABLE_PERCENTS]
    rows += [Row("throughput", "throughput", pending), Row("peak_memory", "peak memory", pending)]
    return Table("The float model", (FLOAT,), tuple(rows))


def _latency_label(percent: float) -> str:
    return f"{percentile_name(percent)} latency"


def _size_row(summary: RunSummary) -> Row:
    manifest = summary.manifest or {}
    main, other = summary.main, summary.float_variant
    requested = summary.request.get("model") or {}
    main_bytes = (main.size_bytes if main else None) or requested.get("size_bytes")
    float_bytes = (other.size_bytes if other else None) or _file_bytes(manifest, "float.tflite")
    return _sizes(float_bytes, main_bytes)


def _manifest_size_row(manifest: Mapping[str, Any]) -> Row:
    main = _file_bytes(manifest, "model.tflite") or _file_bytes(manifest, "rejected.tflite")
    return _sizes(_file_bytes(manifest, "float.tflite"), main)


def _file_bytes(manifest: Mapping[str, Any], name: str) -> int | None:
    entry = (manifest.get("files") or {}).get(name) or {}
    size = entry.get("size_bytes")
    return int(size) if isinstance(size, int) else None


def _sizes(float_bytes: int | None, main_bytes: int | None) -> Row:
    change = BLANK
    if float_bytes and main_bytes:
        ratio = float_bytes / main_bytes
        word = "smaller" if ratio >= 1 else "larger"
        factor = ratio if ratio >= 1 else 1 / ratio
        change = Cell(f"{digits(factor)}x {word}", value=ratio, unit="x")
    return Row("size", "file size", (_size_cell(float_bytes), _size_cell(main_bytes), change))


def _size_cell(size_bytes: int | None) -> Cell:
    if size_bytes is None:
        return not_measured(f"{HOW_SPEED} --with-float")
    return Cell(size_text(size_bytes), value=float(size_bytes), unit="bytes")


def _quality_rows(manifest: Mapping[str, Any] | None) -> list[Row]:
    verification = (manifest or {}).get("verification") or {}
    int8 = verification.get("int8") or {}
    return [_accuracy_row(verification.get("accuracy")), _agreement_row(int8.get("outputs"))]


def _accuracy_row(accuracy: Mapping[str, Any] | None) -> Row:
    if not accuracy:
        return Row("accuracy", "accuracy", (not_measured(HOW_ACCURACY), not_measured(HOW_ACCURACY), BLANK))
    count, unit = accuracy.get("count"), "points" if metrics.is_share(accuracy) else ""
    difference = accuracy.get("difference_points") or {}
    change = BLANK
    if isinstance(difference.get("value"), (int, float)):
        value, low, high = difference["value"], difference.get("low"), difference.get("high")
        ends = (None if end is None else metrics.change_text(accuracy, end) for end in (low, high))
        said = f"{metrics.change_text(accuracy, value)} {unit}".strip()
        change = Cell(said, interval_text(*ends), value=value, low=low, high=high, unit=unit)
    label = metrics.title(accuracy) + (f", {count} samples" if count is not None else "")
    return Row("accuracy", label, (*(_figure_cell(accuracy, side) for side in ("float", "int8")), change))


def _figure_cell(accuracy: Mapping[str, Any], side: str) -> Cell:
    """One model's figure, in percent where it is a share."""
    estimate = accuracy.get(side)
    if not estimate or estimate.get("value") is None or metrics.is_share(accuracy):
        return _share_cell(estimate)
    text, detail = metrics.figure_text(accuracy, estimate["value"]), metrics.figure_interval(accuracy, estimate)
    return Cell(text, detail, value=estimate["value"], low=estimate.get("low"), high=estimate.get("high"))


def _agreement_row(outputs: Sequence[Mapping[str, Any]] | None) -> Row:
    """The worst output's agreement: how often both models give the same answer."""
    if outputs is None:
        return Row("agreement", "same answer as float", (BLANK, not_measured(HOW_AGREEMENT), BLANK))
    known = [item["agreement"] for item in outputs if item.get("agreement")]
    if not known:
        cell = Cell("does not apply", "no output is a choice between classes", state=UNKNOWN)
        return Row("agreement", "same answer as float", (BLANK, cell, BLANK))
    worst = min(known, key=lambda item: item["value"])
    label = f"same answer as float, {worst['count']} samples"
    return Row("agreement", label, (BLANK, _share_cell(worst), BLANK))


def _share_cell(estimate: Mapping[str, Any] | None) -> Cell:
    if not estimate or estimate.get("value") is None:
        return Cell("unknown", state=UNKNOWN)
    low, high = estimate.get("low"), estimate.get("high")
    detail = interval_text(None if low is None else share_text(low), None if high is None else share_text(high))
    return Cell(share_text(estimate["value"]), detail, value=estimate["value"], low=low, high=high, unit="share")


def _percentile_row(summary: RunSummary, percent: float) -> Row:
    change = _speedup_cell(summary) if percent == 50.0 else BLANK
    cells = tuple(_percentile_cell(summary.variant(name), percent, name) for name in (FLOAT, MAIN))
    return Row(percentile_name(percent), _latency_label(percent), (*cells, change))


def _how_speed(name: str) -> Cell:
    return not_measured(HOW_SPEED + (" --with-float" if name == FLOAT else ""))


def _percentile_cell(variant: VariantSummary | None, percent: float, name: str) -> Cell:
    if variant is None:
        return _how_speed(name)
    return percentile_cell(variant.percentile(percent))


def percentile_cell(item: Percentile | NotEnough) -> Cell:
    """The latency with its interval, or how many inferences are missing."""
    if isinstance(item, NotEnough):
        return Cell("not enough inferences", needs_text(item), state=NOT_ENOUGH)
    factor, unit = latency_unit(item.value_ns)
    low, high = item.low_ns or item.value_ns, item.high_ns or item.value_ns
    significant = digits_that_show(high - low, item.value_ns)
    ends = [
        None if end is None else digits(end / factor, significant=significant) for end in (item.low_ns, item.high_ns)
    ]
    return Cell(
        latency_text(item.value_ns, significant=significant),
        interval_text(ends[0], ends[1]),
        value=item.value_ns / factor,
        low=None if item.low_ns is None else item.low_ns / factor,
        high=None if item.high_ns is None else item.high_ns / factor,
        unit=unit,
    )


def needs_text(item: NotEnough) -> str:
    """``needs 662, has 300``, and what those are worth where they resemble each other."""
    worth = f" that are worth {item.worth}" if item.worth < item.has else ""
    return f"needs {item.needs}, has {item.has}{worth}"


def _speedup_cell(summary: RunSummary) -> Cell:
    speedup = summary.speedup
    if speedup is None:
        return BLANK
    if speedup.low is None or speedup.high is None:
        return Cell(speedup.verdict, speedup.reason, state=NOT_ENOUGH)
    detail = interval_text(f"{digits(speedup.low)}x", f"{digits(speedup.high)}x")
    text = f"{digits(speedup.ratio)}x speed: {speedup.verdict}"
    return Cell(text, detail, value=speedup.ratio, low=speedup.low, high=speedup.high, unit="x")


def _throughput_row(summary: RunSummary) -> Row:
    cells = tuple(throughput_cell(summary.variant(name), name) for name in (FLOAT, MAIN))
    return Row("throughput", "throughput", (*cells, BLANK))


def throughput_cell(variant: VariantSummary | None, name: str) -> Cell:
    """Inferences by second of the time spent on them, back to back."""
    if variant is None or variant.throughput_per_s is None:
        return _how_speed(name)
    text = f"{digits(variant.throughput_per_s)} /s"
    return Cell(text, f"{variant.count} inferences", value=variant.throughput_per_s, unit="1/s")


def _memory_row(summary: RunSummary) -> Row:
    cells = [memory_cell(summary.variant(name), name) for name in (FLOAT, MAIN)]
    change, (first, second) = BLANK, (cells[0].value, cells[1].value)
    if first is not None and second is not None:
        change = Cell(f"{(second - first) / BYTES_PER_MB:+.1f} MB", value=second - first, unit="bytes")
    return Row("peak_memory", "peak memory", (*cells, change))


def memory_cell(variant: VariantSummary | None, name: str) -> Cell:
    """The highest resident memory of any stage, or why it is not known."""
    if variant is None:
        return _how_speed(name)
    if variant.peak_rss_bytes is None:
        reasons = [stage.unknown for stage in variant.memory if stage.unknown]
        return Cell("unknown", reasons[0] if reasons else "not recorded", state=UNKNOWN)
    return Cell(size_text(variant.peak_rss_bytes), value=float(variant.peak_rss_bytes), unit="bytes")


_VERDICTS = {
    "throttled": "throttled by",
    "slowed": "slowed down by",
    "not_throttled": "none",
    "unknown": "unknown",
}


def throttling_cell(summary: RunSummary) -> Cell:
    """Whether the board was slowed down, by what, and how much of the run that was."""
    verdict = summary.thermal.throttling
    text, main = _VERDICTS[verdict.verdict], verdict.main
    if verdict.verdict == "unknown":
        return Cell(text, verdict.unknown, state=UNKNOWN)
    if main is None:
        return Cell(text, value=0.0, unit="share")
    also = [cause_text(item.cause) for item in verdict.causes[1:]]
    detail = finding_text(main) + (f"; also {', '.join(also)}" if also else "")
    return Cell(f"{text} {cause_text(main.cause)}", detail, value=verdict.share, unit="share")


def finding_text(item: CauseFinding) -> str:
    """``after 167 s, 41.2 % of the run, down to 900 MHz, latency 1.42x, cost 12.1 % of the speed``."""
    parts = [
        f"after {duration_text(item.onset_s)}" if item.onset_s > 0 else "from the start",
        f"{share_text(item.share)} of the run",
    ]
    if item.clock_floor_mhz is not None:
        parts.append(f"down to {item.clock_floor_mhz:.0f} MHz")
    if item.slowdown is not None:
        parts.append(f"latency {digits(item.slowdown)}x")
    if item.lost_share is not None and item.lost_share > 0:
        parts.append(f"cost {share_text(item.lost_share)} of the speed")
    return ", ".join(parts)
