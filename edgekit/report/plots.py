"""The figures of a run report, as plain plotly descriptions: built here, drawn in the reader's browser, no network.

Colours are of a palette that colour-blind readers can tell apart. Text that comes from a model or a board is escaped:
plotly reads a little HTML in its labels.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.report import metric as metrics
from edgekit.report.downsample import Envelope, envelope_of
from edgekit.report.folder import RunFolder, mapping, number
from edgekit.report.histogram import distribution_of
from edgekit.report.quantity import BYTES_PER_MB, cause_text, latency_unit
from edgekit.report.scheme import scheme_name
from edgekit.report.summary import FLOAT, MAIN, NotEnough, RunSummary, ThrottleVerdict
from edgekit.report.table import variant_label
from edgekit.report.thermal import SensorSeries, series_of
from edgekit.report.timeline import blocks_of

BLUE, ORANGE, RED, GREEN, GRAY = "#0072b2", "#d55e00", "#b5325e", "#009e73", "#7f7f7f"
COLOURS = {MAIN: BLUE, FLOAT: ORANGE}
MORE_COLOURS = (GREEN, RED, "#56b4e9", "#cc79a7", GRAY)
CAUSE_COLOURS = {
    "thermal": RED,
    "under_voltage": "#e69f00",
    "power_cap": "#e69f00",
    "mode_change": GREEN,
    "other_load": GRAY,
    "unknown": GRAY,
}
HISTOGRAM_BINS = 60
LONGEST_LABEL = 40

LOGARITHMIC_FROM = 10.0
"""Slowest over fastest inference from which latency over time has a logarithmic axis: below, a rare spike leaves room for the rest."""


@dataclass(frozen=True)
class Figure:
    """One drawing: plotly's ``data`` and ``layout``, a title and a caption for the page, and its height in pixels."""

    key: str
    title: str
    caption: str
    data: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]
    height: int


def figures_of(run: RunFolder, summary: RunSummary) -> tuple[Figure, ...]:
    """The figures that the run has facts for, in reading order."""
    found = (
        latency_over_time(run, summary),
        distribution(run, summary),
        memory_by_stage(summary),
        accuracy(summary.manifest or {}),
        operators(summary.manifest or {}),
    )
    return tuple(figure for figure in found if figure is not None)


def plot_text(text: object) -> str:
    """``text`` as plotly shows it literally, cut to a label's length."""
    plain = str(text)
    return html.escape(plain if len(plain) <= LONGEST_LABEL else plain[: LONGEST_LABEL - 1] + "…")


def latency_over_time(run: RunFolder, summary: RunSummary) -> Figure | None:
    """Latency of each variant over the run, with temperature and clock under it on the same time axis."""
    envelopes = {
        name: envelope_of(blocks_of(run, name)) for name in _order(run) if run.latencies_ns.get(name) is not None
    }
    envelopes = {name: envelope for name, envelope in envelopes.items() if envelope.times_s}
    if not envelopes:
        return None
    series = series_of(run)
    panels = ["latency"]
    panels += ["temperature"] if any(value is not None for value in series.temperature_c) else []
    panels += ["clock"] if any(value is not None for value in series.clock_mhz) else []
    factor, unit = latency_unit(min(min(envelope.median_ns) for envelope in envelopes.values()))
    data: list[Mapping[str, Any]] = []
    for name, envelope in envelopes.items():
        data += _envelope_traces(_name(name, summary), envelope, factor, _colour(name, summary))
    data += _sensor_traces(series, panels)
    layout = {**_time_axes(panels, f"latency, {unit}"), "showlegend": True}
    layout["shapes"] = _throttle_shapes(summary.thermal.throttling)
    layout["annotations"] = _throttle_words(summary.thermal.throttling)
    extremes = np.array(
        [min(min(e.min_ns) for e in envelopes.values()), max(max(e.max_ns) for e in envelopes.values())]
    )
    if extremes[1] > LOGARITHMIC_FROM * extremes[0] > 0:
        layout["yaxis"] = {**layout["yaxis"], **_log_ticks(extremes / factor)}
    sizes = sorted({size for envelope in envelopes.values() for size in envelope.group_size})
    span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    caption = (
        f"Each point is the median of {span} inferences in a row; the band reaches to their p95, "
        "the thin line is their fastest, the dots are their slowest."
    )
    missing = [
        f"{what} is unknown: {summary.thermal.unknown.get(what, 'not recorded')}"
        for what in ("temperature", "clock")
        if what not in panels
    ]
    return Figure(
        "latency",
        "Latency over time",
        " ".join([caption, *(f"The {item}." for item in missing)]),
        tuple(data),
        layout,
        300 + 130 * (len(panels) - 1),
    )


def _order(run: RunFolder) -> tuple[str, ...]:
    """The variants as they are drawn: the float model first, so that the others lie over it."""
    return (FLOAT, *(name for name in run.variants if name != FLOAT))


def _name(variant: str, summary: RunSummary) -> str:
    return variant_label(variant, summary)


def _colour(variant: str, summary: RunSummary) -> str:
    """Blue and orange for the model and its float form; the others in the order of the run."""
    if variant in COLOURS:
        return COLOURS[variant]
    others = [item.name for item in summary.variants if item.name not in COLOURS]
    return MORE_COLOURS[others.index(variant) % len(MORE_COLOURS)] if variant in others else GRAY


def _rgba(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def _envelope_traces(name: str, envelope: Envelope, factor: float, colour: str) -> list[Mapping[str, Any]]:
    times = _rounded(envelope.times_s)

    def line(values_ns: Sequence[float], label: str, **style: Any) -> dict[str, Any]:
        scaled = _rounded([value / factor for value in values_ns])
        return {
            "type": "scatter",
            "mode": "lines",
            "x": times,
            "y": scaled,
            "name": label,
            "legendgroup": name,
            **style,
        }

    thin = {"color": _rgba(colour, 0.45), "width": 0.7}
    dots = {"color": _rgba(colour, 0.45), "size": 3}  # a line between two rare events would draw what never happened
    traces: list[Mapping[str, Any]] = [
        {**line(envelope.max_ns, f"{name} slowest", marker=dots, showlegend=False), "mode": "markers"},
        line(envelope.min_ns, f"{name} fastest", line=thin, showlegend=False),
    ]
    if envelope.p95_ns:
        none = {"color": colour, "width": 0}
        band = {"fill": "tonexty", "fillcolor": _rgba(colour, 0.25)}
        traces.append(line(envelope.median_ns, "", line=none, showlegend=False, hoverinfo="skip"))
        traces.append(line(envelope.p95_ns, f"{name} p95", line=none, showlegend=False, **band))
    traces.append(line(envelope.median_ns, f"{name} median", line={"color": colour, "width": 2}))
    return traces


def _sensor_traces(series: SensorSeries, panels: Sequence[str]) -> list[Mapping[str, Any]]:
    lines = {"temperature": (series.temperature_c, RED, "temperature"), "clock": (series.clock_mhz, GREEN, "clock")}
    traces: list[Mapping[str, Any]] = []
    for index, panel in enumerate(panels[1:], start=2):
        values, colour, name = lines[panel]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": _rounded(series.times_s),
                "y": list(values),
                "name": name,
                "yaxis": f"y{index}",
                "connectgaps": False,
                "line": {"color": colour, "width": 1.5},
                "showlegend": False,
            }
        )
    return traces


def _time_axes(panels: Sequence[str], latency_title: str) -> dict[str, Any]:
    """One time axis under all panels; the latency panel gets the larger part of the height."""
    titles = {"latency": latency_title, "temperature": "°C", "clock": "MHz"}
    heights = {1: [1.0], 2: [0.68, 0.27], 3: [0.52, 0.2, 0.2]}[len(panels)]
    gap = 0.0 if len(panels) == 1 else (1.0 - sum(heights)) / (len(panels) - 1)
    layout: dict[str, Any] = {}
    top = 1.0
    for index, (panel, height) in enumerate(zip(panels, heights, strict=True), start=1):
        key = "yaxis" if index == 1 else f"yaxis{index}"
        layout[key] = {
            "title": {"text": titles[panel]},
            "domain": [max(0.0, top - height), top],
            "anchor": "x",
            **({} if panel == "temperature" else {"rangemode": "tozero"}),
        }
        top -= height + gap
    layout["xaxis"] = {"title": {"text": "time, s"}, "anchor": "y" if len(panels) == 1 else f"y{len(panels)}"}
    return layout


def _throttle_shapes(verdict: ThrottleVerdict) -> list[Mapping[str, Any]]:
    """A shaded stretch for each time that something slowed the board down, in the colour of its cause."""
    common = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}, "layer": "below"}
    return [
        {**common, "x0": spell.start_s, "x1": spell.end_s, "fillcolor": _rgba(CAUSE_COLOURS[spell.cause], 0.14)}
        for spell in verdict.spells
    ]


def _throttle_words(verdict: ThrottleVerdict) -> list[Mapping[str, Any]]:
    """The name of each cause at its first stretch, each a line lower than the one before, so that none covers another."""
    first = {spell.cause: spell for spell in reversed(verdict.spells)}
    common = {"xref": "x", "yref": "paper", "y": 1.0, "yanchor": "top", "xanchor": "left", "showarrow": False}
    return [
        {
            **common,
            "x": spell.start_s,
            "yshift": -14 * line,
            "text": cause_text(cause),
            "font": {"size": 11, "color": CAUSE_COLOURS[cause]},
        }
        for line, (cause, spell) in enumerate(reversed(first.items()))
    ]


def distribution(run: RunFolder, summary: RunSummary) -> Figure | None:
    """How often each latency happened, both variants over the same bins, on a logarithmic share so that the tail shows."""
    samples = {name: _values_and_counts(run, name) for name in _order(run) if run.latencies_ns.get(name) is not None}
    samples = {name: pair for name, pair in samples.items() if pair[0].size}
    if not samples:
        return None
    low = min(float(values.min()) for values, _ in samples.values())
    high = max(float(values.max()) for values, _ in samples.values())
    factor, unit = latency_unit(low)
    wide = high > 4.0 * low
    edges = (np.geomspace if wide else np.linspace)(low, max(high, low * 1.001) * 1.0001, HISTOGRAM_BINS + 1)
    data = []
    for name, (values, counts) in samples.items():
        held, _ = np.histogram(values, bins=edges, weights=counts)
        label = _name(name, summary)
        data.append(
            {
                "type": "bar",
                "x": _rounded((edges[:-1] + edges[1:]) / 2.0 / factor),
                "y": [float(f"{share:.4g}") if share else None for share in held / held.sum() * 100.0],
                "width": _rounded(np.diff(edges) / factor),
                "name": label,
                "marker": {"color": _rgba(_colour(name, summary), 0.65), "line": {"width": 0}},
                "hovertemplate": "%{x} " + unit + ": %{y} %<extra>" + label + "</extra>",
            }
        )
    layout = {
        "barmode": "overlay",
        "xaxis": {"title": {"text": f"latency, {unit}"}, **(_log_ticks(edges / factor) if wide else {})},
        "yaxis": {"title": {"text": "share of inferences, %"}, "type": "log", "dtick": 1},
        "shapes": _percentile_lines(summary, factor),
        "showlegend": len(data) > 1,
    }
    caption = (
        "The vertical scale is logarithmic, so that rare slow inferences can be seen. "
        "Dotted: p50, dashed: p99 where the run supports it."
    )
    return Figure("distribution", "Distribution of latency", caption, tuple(data), layout, 340)


def _log_ticks(edges: np.ndarray) -> dict[str, Any]:
    """A logarithmic axis labelled at 1, 2 and 5 of each decade: plotly's own labels of such an axis are hard to read."""
    low, high = int(np.floor(np.log10(edges[0]))), int(np.ceil(np.log10(edges[-1])))
    ticks = [digit * 10.0**decade for decade in range(low, high + 1) for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if edges[0] * 0.9 <= tick <= edges[-1] * 1.1]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}


def _values_and_counts(run: RunFolder, name: str) -> tuple[np.ndarray, np.ndarray]:
    histogram = run.variant(name).get("histogram")
    if isinstance(histogram, Mapping):
        try:
            exact = distribution_of(histogram)
        except ValueError:
            pass
        else:
            return exact.values_ns, exact.counts
    values = run.latencies_ns[name]
    return values, np.ones(values.size)


def _percentile_lines(summary: RunSummary, factor: float) -> list[Mapping[str, Any]]:
    lines: list[Mapping[str, Any]] = []
    for variant in summary.variants:
        for percent, dash in ((50.0, "dot"), (99.0, "dash")):
            item = variant.percentile(percent)
            if isinstance(item, NotEnough):
                continue
            where = float(f"{item.value_ns / factor:.5g}")
            style = {"color": _colour(variant.name, summary), "dash": dash, "width": 1.5}
            lines.append({"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": where, "x1": where, "line": style})
    return lines


def memory_by_stage(summary: RunSummary) -> Figure | None:
    """The worker's highest resident memory in each stage, for each variant."""
    data = []
    for variant in sorted(summary.variants, key=lambda item: item.name):
        known = [(stage.stage, stage.peak_rss_bytes) for stage in variant.memory if stage.peak_rss_bytes is not None]
        if known:
            data.append(
                {
                    "type": "bar",
                    "x": [stage.replace("_", " ") for stage, _ in known],
                    "y": [round(peak / BYTES_PER_MB, 2) for _, peak in known],
                    "name": _name(variant.name, summary),
                    "marker": {"color": _colour(variant.name, summary)},
                    "texttemplate": "%{y:.0f}" if known[0][1] >= 10 * BYTES_PER_MB else "%{y:.1f}",
                    "textposition": "outside",
                    "cliponaxis": False,
                }
            )
    if not data:
        return None
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "peak memory, MB"}},
        "xaxis": {"type": "category"},
        "showlegend": len(data) > 1,
    }
    caption = (
        "Highest resident memory of the whole worker process in each stage; "
        "the import stage is Python and the interpreter without a model."
    )
    return Figure("memory", "Memory by stage", caption, tuple(data), layout, 320)


def accuracy(manifest: Mapping[str, Any]) -> Figure | None:
    """The metric of the float and the quantised model on the same labelled samples, with their intervals."""
    facts = mapping(mapping(manifest.get("verification")).get("accuracy"))
    factor, unit = (100.0, ", %") if metrics.is_share(facts) else (1.0, "")
    points = []
    for name, side, colour in (("float", "float", ORANGE), (scheme_name(manifest), "int8", BLUE)):
        estimate = mapping(facts.get(side))
        value, low, high = (number(estimate.get(key)) for key in ("value", "low", "high"))
        if value is not None:
            points.append((name, colour, value, low if low is not None else value, high if high is not None else value))
    if not points:
        return None
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": _rounded([value * factor]),
            "y": [name],
            "name": name,
            "marker": {"color": colour, "size": 11},
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": _rounded([(high - value) * factor]),
                "arrayminus": _rounded([(value - low) * factor]),
                "color": colour,
                "thickness": 2,
                "width": 6,
            },
        }
        for name, colour, value, low, high in points
    ]
    layout = {
        "xaxis": {"title": {"text": f"{plot_text(metrics.title(facts))}{unit}"}},
        "yaxis": {"type": "category", "autorange": "reversed"},
        "showlegend": False,
    }
    caption = f"On {facts.get('count', '?')} labelled samples; the bars are intervals of 95 %."
    return Figure("accuracy", "Accuracy before and after", caption, tuple(data), layout, 190)


def operators(manifest: Mapping[str, Any]) -> Figure | None:
    """How many operators of each kind the delivered model has, and how many of them stayed float."""
    audit = mapping(mapping(manifest.get("verification")).get("audit"))
    rows = []
    for item in audit.get("operators") or ():
        entry = mapping(item)
        count, floats = number(entry.get("count")), number(entry.get("float_count")) or 0.0
        if count:
            rows.append((plot_text(entry.get("op", "?")), int(count) - int(floats), int(floats)))
    if not rows:
        return None
    rows.sort(key=lambda row: row[1] + row[2])
    kinds = (("integer", 1, BLUE), ("float", 2, ORANGE))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [row[0] for row in rows],
            "x": [row[index] for row in rows],
            "name": name,
            "marker": {"color": colour},
        }
        for name, index, colour in kinds
        if index == 1 or any(row[index] for row in rows)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "operators"}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "automargin": True},
        "showlegend": len(data) > 1,
    }
    caption = f"{audit.get('operators_total', sum(row[1] + row[2] for row in rows))} operators in the delivered model."
    return Figure("operators", "Operators", caption, tuple(data), layout, 120 + 24 * len(rows))


def _rounded(values: Sequence[float] | np.ndarray) -> list[float]:
    """Five significant digits: what a screen can show, and a third of the page's bytes."""
    return [float(f"{value:.5g}") for value in values]
