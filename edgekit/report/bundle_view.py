"""A bundle's ``report.json`` as the sections of its page. Quick on purpose: no plotly, no scipy, no numpy.

A field that is missing reads as "not recorded": the page of a half-written bundle is still a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report import metric as metrics
from edgekit.report.corrections_view import corrections_section
from edgekit.report.islands_view import islands_section
from edgekit.report.next_steps import advise_bundle
from edgekit.report.page import Banner, Bar, Chapter, Grid, Section, facts_grid
from edgekit.report.quantity import decibel_text, digits, duration_text, interval_text, share_text, size_text
from edgekit.report.scheme import scheme_name
from edgekit.report.table import bundle_table, is_float_bundle

MARKS = {"failed": "bad", "undecided": "warn"}
NOT_RECORDED = "not recorded"
NOTHING_QUANTISED = "nothing was quantised"
"""The reason that every operator of a float bundle has."""
LONGEST_LIST = 200
"""Rows of a list that a page shows; the rest is counted and stays in report.json."""


def bundle_chapter(report: Mapping[str, Any]) -> Chapter:
    """The page of a bundle: gates, the table, then the evidence."""
    manifest = _object(report.get("manifest"))
    verification = _object(manifest.get("verification"))
    sections = (
        _gates(verification),
        _parity(_object(verification.get("parity"))),
        _int8(_object(verification.get("int8")), scheme_name(manifest)),
        None if is_float_bundle(manifest) else _accuracy(_object(verification.get("accuracy")), scheme_name(manifest)),
        operators_section(verification),
        islands_section(manifest),
        _io(manifest),
        _rewrites(_object(manifest.get("rewrites"))),
        _calibration(_object(manifest.get("calibration"))),
        _health(_object(manifest.get("health"))),
        corrections_section(_object(manifest.get("corrections"))),
        _preprocessing(manifest.get("preprocessing")),
        _stages(_objects(report.get("stages"))),
        _versions(manifest),
    )
    model = _object(manifest.get("model"))
    name = str(report.get("name") or model.get("name") or "bundle")
    made = f"bundle made {report['created_utc']}" if report.get("created_utc") else "bundle"
    return Chapter(
        id="bundle",
        title=name,
        subtitle=f"{made} by edgekit {manifest.get('edgekit', '?')} from {model.get('format', 'an unknown format')}",
        banner=_banner(verification),
        table=bundle_table(manifest),
        sections=tuple(section for section in sections if section is not None),
        advice=advise_bundle(manifest),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str:
    if value is None:
        return NOT_RECORDED
    return digits(value) if isinstance(value, float) else str(value)


def _banner(verification: Mapping[str, Any]) -> Banner:
    gates = _objects(verification.get("gates"))
    troubled = [gate for gate in gates if gate.get("verdict") != "passed"]
    lines = tuple(f"{gate.get('name')}: {gate.get('message')}" for gate in troubled)
    if any(gate.get("verdict") == "failed" for gate in troubled) or verification.get("passed") is False:
        return Banner("bad", "Rejected: a gate failed" if not _only_undecided(troubled) else "Not decided", lines)
    if troubled:
        return Banner("warn", "Not decided", lines)
    if not gates:
        return Banner("warn", "Not verified: no gate was judged")
    return Banner("good", f"All {len(gates)} gates passed" if len(gates) > 1 else "The gate passed")


def _only_undecided(troubled: Sequence[Mapping[str, Any]]) -> bool:
    return bool(troubled) and all(gate.get("verdict") == "undecided" for gate in troubled)


def _gates(verification: Mapping[str, Any]) -> Section | None:
    gates = _objects(verification.get("gates"))
    if not gates:
        return None
    rows, marks = [], []
    for gate in gates:
        verdict = str(gate.get("verdict"))
        rows.append(
            (
                str(gate.get("name")),
                verdict,
                _text(gate.get("measured")),
                _text(gate.get("limit")),
                str(gate.get("message") or ""),
            )
        )
        marks.append(MARKS.get(verdict, ""))
    grid = Grid(("gate", "verdict", "measured", "limit", "what it says"), tuple(rows), frozenset({2, 3}), tuple(marks))
    return Section("gates", "Gates", grids=(grid,))


def _slice_text(worst: Mapping[str, Any]) -> str:
    if not worst:
        return "none"
    return f"{decibel_text(worst.get('sqnr_db'))} at index {worst.get('index')} of axis {worst.get('axis')}"


def _parity(parity: Mapping[str, Any]) -> Section | None:
    if not parity:
        return None
    rows = tuple(
        (
            str(item.get("name")),
            _text(item.get("max_abs_error")),
            _text(item.get("max_rel_error")),
            decibel_text(item.get("sqnr_db")),
            _slice_text(_object(item.get("worst_slice"))),
        )
        for item in _objects(parity.get("outputs"))
    )
    headers = ("output", "largest error", "largest relative error", "SQNR", "worst slice")
    against = f"The float model against {parity.get('reference', 'the source')} on {parity.get('samples', '?')} inputs"
    limit = parity.get("limit_db")
    bound = "" if limit is None else f", limit {limit:g} dB"
    said = [f"{against}{bound}: {'passed' if parity.get('passed') else 'failed'}."]
    for item in _objects(parity.get("outputs")):
        if floor := _object(item.get("floor")):
            said.append(
                f"Output {item.get('name')} misses the limit; the source against itself ({floor.get('how')}) stands at "
                f"{decibel_text(floor.get('worst_slice_db'))} in its worst slice, and no conversion can be closer than that."
            )
    data = _object(parity.get("data"))
    if data.get("synthetic"):
        said.append(f"The inputs were made up ({data.get('source')}): equality on real data was not looked at.")
    return Section(
        "parity", "Parity with the source model", tuple(said), grids=(Grid(headers, rows, frozenset({1, 2, 3})),)
    )


def _rewrites(rewrites: Mapping[str, Any]) -> Section | None:
    """What the passes changed on the float model; parity was judged after them."""
    rows = tuple((str(name), str(said)) for name, changes in rewrites.items() for said in changes or ())
    if not rows:
        return None
    said = "Changed on the float model, and shown to leave it equal: to the source, or bit for bit to what it was."
    return Section("rewrites", "Rewrites", (said,), grids=(Grid(("pass", "what it changed"), rows[:LONGEST_LIST]),))


def _int8(int8: Mapping[str, Any], scheme: str) -> Section | None:
    if not int8:
        return None
    rows = []
    parts = _objects(int8.get("parts"))
    for item in (*_objects(int8.get("outputs")), *parts):
        agreement = _object(item.get("agreement"))
        same = "does not apply"
        if agreement.get("value") is not None:
            same = f"{share_text(agreement['value'])} {_shares(agreement)}"
        rows.append(
            (
                str(item.get("name")),
                decibel_text(item.get("sqnr_db")),
                decibel_text(item.get("mean_slice_db")),
                _slice_text(_object(item.get("worst_slice"))),
                decibel_text(item.get("worst_sample_db")),
                _text(item.get("constant_slices")),
                same,
            )
        )
    headers = ("output", "SQNR", "mean slice", "worst slice", "worst sample", "constant slices", "same answer as float")
    said = f"The {scheme} model against the float one on {int8.get('samples', '?')} inputs that did not calibrate it."
    if parts:
        said += " Outputs that are delivered in parts come first as they are once joined, then each part with its own slices."
    return Section(
        "int8", "What the quantisation costs", (said,), grids=(Grid(headers, tuple(rows), frozenset({1, 2, 4, 5})),)
    )


def _shares(estimate: Mapping[str, Any]) -> str:
    low, high = estimate.get("low"), estimate.get("high")
    return interval_text(None if low is None else share_text(low), None if high is None else share_text(high))


def _accuracy(accuracy: Mapping[str, Any], scheme: str) -> Section | None:
    if not accuracy:
        return Section("accuracy", "Accuracy", ("Not measured: no labelled data were given.",))
    sides = [(scheme if name == "int8" else name, _object(accuracy.get(name))) for name in ("float", "int8")]
    known = [(name, side, float(side["value"])) for name, side in sides if _number(side.get("value"))]
    most = 1.0 if metrics.is_share(accuracy) else max((abs(value) for _, _, value in known), default=1.0) or 1.0
    bars = [
        Bar(
            name,
            f"{metrics.figure_text(accuracy, value)} {metrics.figure_interval(accuracy, side)}",
            max(0.0, min(1.0, value / most)),
        )
        for name, side, value in known
    ]
    better = "" if accuracy.get("higher_is_better", True) else " Less is better."
    said = [f"{metrics.title(accuracy)} on {accuracy.get('count', '?')} labelled samples.{better}"]
    if accuracy.get("lost") is not None and accuracy.get("gained") is not None:
        said.append(f"{accuracy['lost']} right answers were lost and {accuracy['gained']} were gained.")
    if accuracy.get("source"):
        said.append(f"Labels: {accuracy['source']}.")
    return Section("accuracy", "Accuracy", (" ".join(said),), bars=tuple(bars))


def operators_section(verification: Mapping[str, Any]) -> Section | None:
    """The operators of the delivered model, and each one that stayed float with its reason; also on the page of a run."""
    audit = _object(verification.get("audit"))
    if not audit:
        return None
    operators = _objects(audit.get("operators"))
    most = max((_whole(item.get("count")) for item in operators), default=1) or 1
    bars = tuple(_operator_bar(item, most) for item in operators[:LONGEST_LIST])
    return Section("operators", "Operators", (operators_text(audit),), bars=bars, grids=float_operator_grids(audit))


def operators_text(audit: Mapping[str, Any]) -> str:
    """One sentence: how many operators, and whether all of them are integers."""
    total, floats = audit.get("operators_total", "?"), _objects(audit.get("float_operators"))
    stay = "stays" if len(floats) == 1 else "stay"
    kept = "all integer" if audit.get("full_integer") else f"{len(floats)} of them {stay} float"
    if floats and all(item.get("reason") == NOTHING_QUANTISED for item in floats):
        kept = NOTHING_QUANTISED
    return f"{total} operators, {kept}."


def float_operator_grids(audit: Mapping[str, Any]) -> tuple[Grid, ...]:
    """The operators that stayed float, by index and output, each with its reason."""
    floats = [item for item in _objects(audit.get("float_operators")) if item.get("reason") != NOTHING_QUANTISED]
    if not floats:
        return ()
    rows = [
        (
            _text(item.get("index")),
            str(item.get("op")),
            ", ".join(str(output) for output in item.get("outputs") or ()),
            str(item.get("reason") or NOT_RECORDED),
        )
        for item in floats[:LONGEST_LIST]
    ]
    if len(floats) > LONGEST_LIST:
        rows.append(("", f"and {len(floats) - LONGEST_LIST} more", "", "all of them are in report.json"))
    return (Grid(("index", "float operator", "outputs", "why it is not an integer"), tuple(rows), frozenset({0})),)


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _operator_bar(item: Mapping[str, Any], most: int) -> Bar:
    count, floats = _whole(item.get("count")), _whole(item.get("float_count"))
    text = f"{count}" + (f", {floats} float" if floats else "")
    return Bar(str(item.get("op")), text, (count - floats) / most, floats / most)


def _io(manifest: Mapping[str, Any]) -> Section | None:
    rows = []
    for direction in ("inputs", "outputs"):
        for spec in _objects(manifest.get(direction)):
            quant = _object(spec.get("quant"))
            rows.append(
                (
                    direction[:-1],
                    str(spec.get("name")),
                    f"{_shape(spec.get('source_shape'))} {spec.get('source_dtype', '')}",
                    f"{_shape(spec.get('shape'))} {spec.get('dtype', '')}",
                    f"{quant['scale']:.6g}, {quant.get('zero_point')}" if quant.get("scale") is not None else "none",
                )
            )
    headers = ("", "name", "in the source", "delivered", "scale, zero point")
    return Section("io", "Inputs and outputs", grids=(Grid(headers, tuple(rows)),)) if rows else None


def _shape(value: Any) -> str:
    return " × ".join(str(item) for item in value) if isinstance(value, (list, tuple)) and value else "scalar"


def _calibration(calibration: Mapping[str, Any]) -> Section | None:
    if not calibration:
        return None
    ranges = _object(calibration.get("ranges"))
    split = calibration.get("split_seed")
    pairs = [
        ("samples", _text(calibration.get("count"))),
        ("source", _text(calibration.get("source"))),
        ("digest of the data", _text(calibration.get("digest"))),
        ("split", "none" if split is None else f"seeded with {split}"),
        ("tensors with a range", str(len(ranges))),
    ]
    return Section("calibration", "Calibration", grids=(facts_grid(pairs),))


def _health(health: Mapping[str, Any]) -> Section | None:
    """What the check of the calibration data found, the worst first."""
    findings = _objects(health.get("findings"))
    if not findings:
        return None
    rows = tuple(
        (str(item.get("severity")), str(item.get("name")), str(item.get("message")), str(item.get("hint") or ""))
        for item in findings
    )
    marks = tuple({"refuse": "bad", "warn": "warn"}.get(row[0], "") for row in rows)
    more = health.get("more_samples")
    said = (f"About {more} more samples would settle the ranges.",) if more else ()
    grid = Grid(("", "finding", "what was found", "what to do"), rows, marks=marks)
    return Section("health", "Health of the calibration data", said, grids=(grid,))


def _preprocessing(value: Any) -> Section | None:
    if value is None:
        return Section("preprocessing", "Preprocessing", ("None: the model is fed with arrays as they are.",))
    pairs = [
        (str(key), ", ".join(map(str, item)) if isinstance(item, list) else str(item))
        for key, item in _object(value).items()
    ]
    return Section("preprocessing", "Preprocessing", grids=(facts_grid(pairs),)) if pairs else None


def _stages(stages: Sequence[Mapping[str, Any]]) -> Section | None:
    timed = [(stage, float(stage["seconds"])) for stage in stages if _number(stage.get("seconds"))]
    if not timed:
        return None
    most = max(seconds for _, seconds in timed) or 1.0
    bars = tuple(Bar(str(stage.get("name")), _stage_text(stage, seconds), seconds / most) for stage, seconds in timed)
    said = f"{duration_text(sum(seconds for _, seconds in timed))} in all."
    return Section("stages", "Where the time went", (said,), bars=bars)


def _stage_text(stage: Mapping[str, Any], seconds: float) -> str:
    peak = stage.get("peak_rss_bytes")
    return duration_text(seconds) + (
        f", {size_text(float(peak))} at its peak" if peak is not None and _number(peak) else ""
    )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _versions(manifest: Mapping[str, Any]) -> Section:
    frontend = _object(manifest.get("frontend"))
    model = _object(manifest.get("model"))
    pairs = [
        (
            "source model",
            f"{model.get('name', NOT_RECORDED)}, {model.get('format', '?')}, sha256 {model.get('sha256', '?')}",
        ),
        ("front end", f"{frontend.get('name', NOT_RECORDED)} {frontend.get('version', '')}".strip()),
        *(("route", str(note)) for note in frontend.get("route_notes") or ()),
        *((str(key), str(value)) for key, value in _object(manifest.get("versions")).items()),
    ]
    return Section("versions", "Versions", grids=(facts_grid(pairs),))
