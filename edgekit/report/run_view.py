"""A run folder as the chapter of a page: banner, table, figures and the facts to read them by."""

from __future__ import annotations

from edgekit.report.bundle_view import float_operator_grids, operators_text
from edgekit.report.folder import RunFolder, mapping
from edgekit.report.kernels import set_up_text
from edgekit.report.next_steps import advise_run
from edgekit.report.offline_plotly import figure_json
from edgekit.report.page import Banner, Chapter, Drawing, Grid, Section, facts_grid
from edgekit.report.plots import Figure, figures_of
from edgekit.report.quantity import (
    cause_text,
    counted,
    digits,
    duration_text,
    latency_text,
    share_text,
    size_text,
    temperature_text,
)
from edgekit.report.summary import DelegateFacts, NotEnough, RunSummary, VariantSummary
from edgekit.report.table import (
    finding_text,
    main_label,
    needs_text,
    percentile_cell,
    run_table,
    throttling_cell,
    variant_label,
)

UNKNOWN = "unknown"


def run_chapter(run: RunFolder, summary: RunSummary, *, number: int) -> Chapter:
    """The chapter of one run; ``number`` keeps the element ids of several runs on one page apart."""
    prefix = f"run{number}"
    figures = {figure.key: _section(prefix, figure) for figure in figures_of(run, summary)}
    sections = [
        _error(prefix, summary),
        figures.get("latency"),
        _sustained(prefix, summary),
        figures.get("distribution"),
        _latency_numbers(prefix, summary),
    ]
    sections += [figures.get("memory") or _memory_unknown(prefix, summary), figures.get("accuracy")]
    sections += [
        _operators(prefix, figures.get("operators"), summary),
        _board(prefix, summary),
        _warnings(prefix, summary),
    ]
    return Chapter(
        id=prefix,
        title=f"{summary.model} on {summary.device}",
        subtitle=_subtitle(summary),
        banner=_banner(summary),
        table=run_table(summary),
        sections=tuple(section for section in sections if section is not None),
        advice=advise_run(summary),
    )


def _section(prefix: str, figure: Figure) -> Section:
    drawing = Drawing(f"{prefix}-{figure.key}-plot", figure.height, figure.caption, figure_json(figure))
    return Section(f"{prefix}-{figure.key}", figure.title, drawing=drawing)


def _subtitle(summary: RunSummary) -> str:
    facts = summary.facts
    board = facts.get("board_model") or facts.get("cpu_model") or facts.get("machine")
    interpreter = mapping(facts.get("interpreter"))
    parts = [
        summary.id,
        str(board) if board else "",
        f"{interpreter['name']} {interpreter.get('version', '')}".strip() if interpreter.get("name") else "",
        counted(summary.main.threads, "thread") if summary.main is not None and summary.main.threads else "",
        f"measured for {duration_text(summary.duration_s)}" if summary.duration_s else "",
    ]
    return " · ".join(part for part in parts if part)


def _banner(summary: RunSummary) -> Banner:
    if not summary.validity.valid:
        return Banner("bad", "This run supports no verdict", summary.validity.reasons)
    label = main_label(summary.kind, summary.manifest)
    speedup, main = summary.speedup, summary.main
    if speedup is not None:
        words = {"faster": "is faster than", "slower": "is slower than", "same": "is as fast as"}
        said = words.get(speedup.verdict)
        title = f"{label} {said} float: {digits(speedup.ratio)}x" if said else f"{label} against float: undecided"
        tone = {"faster": "good", "slower": "bad"}.get(speedup.verdict, "warn")
        return Banner(tone, title, (speedup.reason + ".",))
    median = latency_text(main.median_ns) if main is not None and main.median_ns is not None else UNKNOWN
    return Banner("good", f"Valid run: the median inference takes {median}")


def _error(prefix: str, summary: RunSummary) -> Section | None:
    """What the board said when the run failed, with the last lines of its log."""
    error = summary.error or {}
    said = tuple(str(error[key]) for key in ("message", "hint") if error.get(key))
    tail = error.get("log_tail")
    log = "\n".join(str(line) for line in tail) if isinstance(tail, list) else ""
    return Section(f"{prefix}-error", "What went wrong", said, log=log) if said or log else None


def _sustained(prefix: str, summary: RunSummary) -> Section:
    sustained = summary.sustained
    if sustained is None:
        said = f"Not known: {summary.sustained_missing}."
        return Section(f"{prefix}-sustained", "Burst and sustained speed", (said,))
    pairs = [
        (f"median, first {sustained.window_s:.0f} s", latency_text(sustained.burst_median_ns)),
        (f"median, last {sustained.window_s:.0f} s", latency_text(sustained.sustained_median_ns)),
        ("last by first", f"{sustained.ratio:.3f}"),
        ("throughput kept", UNKNOWN if sustained.retention is None else share_text(sustained.retention)),
        (
            "steady at the end",
            "yes: latency, temperature and throttling stayed what they were"
            if sustained.steady
            else f"no: {'; '.join(sustained.unsteady)}",
        ),
    ]
    if sustained.time_to_throttle_s is not None:
        pairs.append(("time to throttle", duration_text(sustained.time_to_throttle_s)))
    return Section(f"{prefix}-sustained", "Burst and sustained speed", grids=(facts_grid(pairs),))


def _latency_numbers(prefix: str, summary: RunSummary) -> Section | None:
    """Every percentile with its interval, and how even the run was: one column a variant."""
    if not summary.variants:
        return None
    shown = sorted(summary.variants, key=lambda item: item.name)
    headers = ("", *(variant_label(item.name, summary) for item in shown))
    rows: list[tuple[str, ...]] = []
    for index, item in enumerate(shown[0].percentiles):
        rows.append((item.name, *(_percentile_text(variant, index) for variant in shown)))
    for label, text in _LINES:
        rows.append((label, *(text(variant) for variant in shown)))
    grid = Grid(headers, tuple(rows), frozenset(range(1, len(headers))))
    return Section(f"{prefix}-numbers", "Latency in numbers", grids=(grid,))


def _percentile_text(variant: VariantSummary, index: int) -> str:
    item = variant.percentiles[index]
    cell = percentile_cell(item)
    return needs_text(item) if isinstance(item, NotEnough) else f"{cell.text} {cell.detail}"


def _latency(value_ns: float | None) -> str:
    return UNKNOWN if value_ns is None else latency_text(value_ns)


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else share_text(value)


def _counted(variant: VariantSummary) -> str:
    if variant.from_histogram:
        return f"{variant.count}, counted exactly; 1 in {variant.kept_every} latencies is kept"
    return str(variant.count)


_LINES = (
    ("mean", lambda v: _latency(v.mean_ns)),
    ("fastest", lambda v: _latency(v.min_ns)),
    ("slowest", lambda v: _latency(v.max_ns)),
    ("first inference", lambda v: _latency(v.first_inference_ns)),
    ("coefficient of variation", lambda v: _share(v.cov)),
    ("without outliers", lambda v: _share(v.body_cov)),
    ("outliers (5 scaled MADs)", lambda v: str(v.outliers)),
    ("inferences", _counted),
    ("worth as independent ones", lambda v: str(v.effective_count)),
    ("warm-up inferences", lambda v: str(v.warmup_count)),
    ("fed with", lambda v: f"{v.inputs} inputs" if v.inputs else UNKNOWN),
)


def _memory_unknown(prefix: str, summary: RunSummary) -> Section | None:
    reasons = {stage.unknown for variant in summary.variants for stage in variant.memory if stage.unknown}
    if not reasons:
        return None
    return Section(f"{prefix}-memory", "Memory by stage", (f"Unknown: {'; '.join(sorted(reasons))}.",))


def _operators(prefix: str, drawn: Section | None, summary: RunSummary) -> Section | None:
    audit = mapping(mapping((summary.manifest or {}).get("verification")).get("audit"))
    said = " ".join(text for text in (operators_text(audit) if audit else "", _delegate_text(summary)) if text)
    if not said and drawn is None:
        return None
    return Section(
        f"{prefix}-operators",
        "Operators",
        (said,) if said else (),
        drawing=None if drawn is None else drawn.drawing,
        grids=float_operator_grids(audit),
    )


def _delegate_text(summary: RunSummary) -> str:
    delegate = summary.main.delegate if summary.main is not None else DelegateFacts()
    total, taken, partitions = delegate.total_operators, delegate.delegated_operators, delegate.partitions
    if total is None or taken is None:
        return ""
    parts = "" if partitions is None else f", in {counted(partitions, 'partition')}"
    return f"{delegate.name or 'The delegate'} took {taken} of {counted(total, 'operator')}{parts}."


def _fact(value: object, reason: object) -> str:
    if value is not None:
        return str(value)
    return UNKNOWN if reason is None else f"{UNKNOWN}: {reason}"


def _board(prefix: str, summary: RunSummary) -> Section:
    facts, thermal = summary.facts, summary.thermal
    reasons = mapping(facts.get("unknown"))
    pairs = [(label, _fact(facts.get(key), reasons.get(key))) for key, label in _FACTS]
    memory = facts.get("memory_total_bytes")
    pairs.append(("memory", size_text(memory) if isinstance(memory, (int, float)) else UNKNOWN))
    pairs.append(("temperature, start / end / highest", _temperatures(summary)))
    if thermal.slope_k_per_min is not None:
        pairs.append(("temperature, second half", f"{thermal.slope_k_per_min:+.2f} K a minute"))
    if thermal.clock_max_mhz is not None and thermal.clock_min_mhz is not None:
        pairs.append(("clock, lowest / highest", f"{thermal.clock_min_mhz:.0f} / {thermal.clock_max_mhz:.0f} MHz"))
    pairs += _throttling(summary)
    if thermal.busy_other_mean is not None:
        pairs.append(("other programs", f"{share_text(thermal.busy_other_mean)} of the processor"))
    for what in ("clock", "other programs"):
        if what in thermal.unknown:
            pairs.append((what, f"{UNKNOWN}: {thermal.unknown[what]}"))
    pairs += [(f"{item.name} ran with", set_up_text(summary, item)) for item in summary.variants]
    return Section(f"{prefix}-board", "The board while it ran", grids=(facts_grid(pairs),))


_FACTS = (
    ("hostname", "host"),
    ("board_model", "board"),
    ("cpu_model", "processor"),
    ("cpu_count", "processors"),
    ("machine", "machine"),
    ("userland_bits", "bits of the userland"),
    ("kernel", "kernel"),
    ("python", "Python"),
    ("governor", "clock governor"),
)


def _temperatures(summary: RunSummary) -> str:
    thermal = summary.thermal
    if thermal.start_c is None or thermal.end_c is None or thermal.max_c is None:
        return f"{UNKNOWN}: {thermal.unknown.get('temperature', 'not recorded')}"
    return " / ".join(temperature_text(value) for value in (thermal.start_c, thermal.end_c, thermal.max_c))


def _throttling(summary: RunSummary) -> list[tuple[str, str]]:
    """The verdict, and a line for each cause."""
    verdict = summary.thermal.throttling
    cell = throttling_cell(summary)
    pairs = [("throttling", f"{cell.text}: {cell.detail}" if cell.detail and not verdict.causes else cell.text)]
    for item in verdict.causes:
        pairs.append((cause_text(item.cause), f"{finding_text(item)}; {'; '.join(item.evidence)}"))
    return pairs


def _warnings(prefix: str, summary: RunSummary) -> Section | None:
    if not summary.warnings:
        return None
    return Section(f"{prefix}-warnings", "What to know about this run", summary.warnings)
