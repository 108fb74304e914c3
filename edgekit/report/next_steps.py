"""What is worth trying next, derived from the facts of a run or of a bundle: each advice names the fact it rests on.

A pure function, one rule a function, in the order of what would change most. No rule fires on an unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.report import metric as metrics
from edgekit.report.kernels import PLAIN_RATE, macs_per_cycle, set_up_text
from edgekit.report.quantity import cause_text, counted, digits, latency_text, share_text
from edgekit.report.summary import FLOAT, CauseFinding, NotEnough, RunSummary
from edgekit.report.table import finding_text, is_float_bundle, main_label

NOISY_COV = 0.03
"""A quiet board stays below 1 %; above 3 % the run was disturbed or throttled."""
BUSY_OTHER = 0.05
"""Share of the processor that other programs may take before they are part of the measurement."""
LOW_SLICE_DB = 10.0
"""A slice whose error is a third of its signal carries little of it."""
FOREIGN = ("x86_64", "amd64", "AMD64", "i686")
"""Processors with other integer kernels than the boards that edgekit is for."""
SLOW_FIRST = 3.0
"""A first inference this many medians long is felt by whoever waits for it."""


@dataclass(frozen=True)
class Advice:
    """One next step: a stable ``key``, what to do, the measured ``reason``, and the ``command`` to type (if there is
    one).
    """

    key: str
    title: str
    reason: str
    command: str = ""


def advise_run(summary: RunSummary) -> tuple[Advice, ...]:
    """What this run suggests, most important first. Of an invalid run only how to get a valid one."""
    if not summary.validity.valid:
        throttling = summary.thermal.throttling
        remedies = [_remedy(summary, item) for item in throttling.causes] if throttling.invalid else []
        return (*remedies, _rerun(summary))
    found = [rule(summary) for rule in RUN_RULES]
    return (*(advice for advice in found if advice is not None), *advise_manifest(summary.manifest or {}))


def advise_manifest(manifest: Mapping[str, Any]) -> tuple[Advice, ...]:
    """What a bundle's manifest suggests, before or after any run."""
    if not manifest:
        return ()
    verification = manifest.get("verification") or {}
    rules = (_gate, _not_quantised) if is_float_bundle(manifest) else MANIFEST_RULES
    found = [rule(verification) for rule in rules]
    return tuple(advice for advice in found if advice is not None)


def advise_bundle(manifest: Mapping[str, Any]) -> tuple[Advice, ...]:
    """:func:`advise_manifest`, and when nothing stands in the way: measure it on the board."""
    found = advise_manifest(manifest)
    verification = manifest.get("verification") or {}
    if verification.get("passed") is False:
        return found or (Advice("gate_failed", "Read the failed gate above", "a gate did not pass", ""),)
    bench = Advice(
        "bench",
        "Measure it on the board",
        "speed, memory and heat are not known until the board has run it",
        "edgekit bench BUNDLE" if is_float_bundle(manifest) else "edgekit bench BUNDLE --with-float",
    )
    return (*found, bench)


def _rerun(summary: RunSummary) -> Advice:
    return Advice("rerun", "Measure again", "; ".join(summary.validity.reasons), "edgekit bench BUNDLE")


_REMEDIES = {
    "thermal": ("throttled", "Cool the board or pace the inferences"),
    "under_voltage": ("under_voltage", "Give the board a stronger supply and a shorter, thicker cable"),
    "power_cap": ("power_cap", "Choose a lower power mode that holds, or a stronger supply"),
    "mode_change": ("mode_change", "Fix the clock setting and the power mode before you measure"),
    "other_load": ("other_load", "Stop the other processes and measure again"),
    "unknown": ("slow_unknown", "Find out what slowed it down: measure again with more sensors readable"),
}
"""By the cause of throttling: the advice's key, and what to do."""


def _throttled(summary: RunSummary) -> Advice | None:
    main = summary.thermal.throttling.main
    return None if main is None else _remedy(summary, main)


def _remedy(summary: RunSummary, item: CauseFinding) -> Advice:
    key, title = _REMEDIES[item.cause]
    word = "throttled" if summary.thermal.throttling.verdict == "throttled" else "was slowed down"
    return Advice(key, title, f"the board {word} by {cause_text(item.cause)}: {finding_text(item)}")


def _unseen(summary: RunSummary) -> Advice | None:
    """Throttling that nothing showed, with the way to see it where the board knows one."""
    reason = summary.thermal.throttling.unknown
    _, mark, fix = reason.partition("(fix: ")
    if not mark:
        return None
    return Advice(
        "throttling_unknown", f"Let edgekit see the throttling: {fix.rstrip(')')}", reason.partition(" (fix: ")[0]
    )


def _slowed(summary: RunSummary) -> Advice | None:
    sustained = summary.sustained
    if sustained is None or sustained.ratio <= 1.0 + NOISY_COV or summary.thermal.throttling.verdict == "throttled":
        return None
    return Advice(
        "slowed",
        "Plan with the sustained speed, not with the first seconds",
        f"the last half minute is {digits((sustained.ratio - 1) * 100)} % slower than the first: "
        f"{latency_text(sustained.sustained_median_ns)} after {latency_text(sustained.burst_median_ns)}",
    )


def _slower_than_float(summary: RunSummary) -> Advice | None:
    speedup = summary.speedup
    if speedup is None or speedup.verdict not in ("slower", "same"):
        return None
    ran = f"; it ran with {set_up_text(summary, summary.main)}" if summary.main is not None else ""
    return Advice(
        f"int8_{speedup.verdict}",
        f"Find out where the {main_label(summary.kind, summary.manifest)} model loses its time",
        f"it runs at {digits(speedup.ratio)}x the speed of the float one; {speedup.reason}{ran}",
        "edgekit inspect BUNDLE",
    )


def _plain_kernels(summary: RunSummary) -> Advice | None:
    """An interpreter whose kernels do no more than plain code would, told by what they do in a clock cycle."""
    for variant in summary.variants:
        computes_float = main_label(summary.kind, summary.manifest) in (FLOAT, "float16")
        kind = "float" if variant.name == FLOAT or computes_float else "int8"
        rate = macs_per_cycle(summary, variant)
        if rate is not None and rate < PLAIN_RATE[kind]:
            return Advice(
                "plain_kernels",
                "Use an interpreter that was built for this processor",
                f"{variant.name}: {rate:.2g} multiply-accumulates a clock cycle is what kernels without SIMD do, others do several; "
                f"it ran with {set_up_text(summary, variant)}",
            )
    return None


def _foreign(summary: RunSummary) -> Advice | None:
    machine = summary.facts.get("machine")
    if summary.speedup is None or machine not in FOREIGN:
        return None
    return Advice(
        "foreign",
        "Measure on the board before you decide about speed",
        f"this run was made on {machine}: how its integer kernels compare with float says nothing about an ARM board",
    )


def _undecided(summary: RunSummary) -> Advice | None:
    speedup = summary.speedup
    if speedup is None or speedup.verdict != "undecided":
        return None
    return Advice("undecided", "Run longer to decide about the speed", speedup.reason, _longer(summary, 2.0))


def _islands(summary: RunSummary) -> Advice | None:
    main = summary.main
    if main is None or not main.delegate.partitions or main.delegate.partitions < 2:
        return None
    delegate = main.delegate
    left = ""
    if delegate.total_operators is not None and delegate.delegated_operators is not None:
        left = f"; {delegate.total_operators - delegate.delegated_operators} operators stay outside it"
    return Advice(
        "islands",
        "Remove the operators that cut the model into islands",
        f"{delegate.name or 'the delegate'} got {delegate.partitions} partitions instead of one{left}",
        "edgekit inspect BUNDLE",
    )


def _no_delegate(summary: RunSummary) -> Advice | None:
    main = summary.main
    if main is None or main.delegate.delegated_operators != 0:
        return None
    return Advice(
        "no_delegate",
        "Try an interpreter with accelerated kernels",
        f"no operator was handed to a delegate; it ran with {set_up_text(summary, main)}",
    )


def _rising(summary: RunSummary) -> Advice | None:
    thermal = summary.thermal
    if not thermal.rising or thermal.slope_k_per_min is None or thermal.end_c is None:
        return None
    return Advice(
        "rising",
        "Run until the temperature stands still",
        f"at the end it was {thermal.end_c:.1f} °C and still rising by {digits(thermal.slope_k_per_min)} K a minute, "
        "so the sustained speed is not known yet",
        _longer(summary, 10.0),
    )


def _busy(summary: RunSummary) -> Advice | None:
    mean = summary.thermal.busy_other_mean
    if mean is None or mean <= BUSY_OTHER:
        return None
    return Advice(
        "busy",
        "Stop the other programs and measure again",
        f"other programs used {share_text(mean)} of the processor while it ran",
    )


def _noisy(summary: RunSummary) -> Advice | None:
    main = summary.main
    if main is None or main.cov is None or main.cov <= NOISY_COV:
        return None
    if main.body_cov is not None and main.body_cov <= NOISY_COV:
        kind = (
            f"{counted(main.outliers, 'single outlier')} among otherwise even ones "
            f"(without them {share_text(main.body_cov)})"
        )
    else:
        kind = "all through the run, not from single slow inferences"
    governor = summary.facts.get("governor")
    clock = f"; the clock governor is {governor}" if governor and governor != "performance" else ""
    return Advice(
        "noisy",
        "Find what disturbs the run before trusting small differences",
        f"latency varies by {share_text(main.cov)}, {kind}{clock}",
    )


def _short_tail(summary: RunSummary) -> Advice | None:
    main = summary.main
    if main is None or not main.count:
        return None
    item = main.percentile(99.0)
    if not isinstance(item, NotEnough):
        return None
    return Advice(
        "short_tail",
        "Run longer to know p99",
        f"p99 needs {item.needs} inferences, this run has {item.has}",
        _longer(summary, item.needs / item.has),
    )


def _slow_first(summary: RunSummary) -> Advice | None:
    main = summary.main
    if main is None or main.first_inference_ns is None or main.median_ns is None:
        return None
    if main.first_inference_ns < SLOW_FIRST * main.median_ns:
        return None
    return Advice(
        "slow_first",
        "Let the app do one inference while it starts",
        f"the first one took {latency_text(main.first_inference_ns)}, "
        f"{digits(main.first_inference_ns / main.median_ns)} times the median",
    )


def _no_float(summary: RunSummary) -> Advice | None:
    if summary.float_variant is not None or summary.kind != "bundle" or is_float_bundle(summary.manifest):
        return None
    return Advice(
        "no_float",
        "Measure the float model beside it",
        "without it nobody knows what the integers gained on this board",
        "edgekit bench BUNDLE --with-float",
    )


def _longer(summary: RunSummary, factor: float) -> str:
    """The command for a run ``factor`` times as long, rounded up to half minutes."""
    asked = summary.request.get("duration_s") or 30.0  # of each variant
    seconds = math.ceil(asked * factor * 1.1 / 30.0) * 30
    return f"edgekit bench BUNDLE --duration {seconds}s" if seconds < 86400 else ""


def _gate(verification: Mapping[str, Any]) -> Advice | None:
    failed = [gate for gate in verification.get("gates") or () if gate.get("verdict") != "passed"]
    if not failed:
        return None
    gate = failed[0]
    return Advice(
        "gate_failed" if gate.get("verdict") == "failed" else "gate_undecided",
        f"Look at the {gate.get('name', 'first')} gate",
        str(gate.get("message", "it did not pass")),
        "edgekit inspect BUNDLE",
    )


def _not_quantised(verification: Mapping[str, Any]) -> Advice:
    synthetic = ((verification.get("parity") or {}).get("data") or {}).get("synthetic")
    made_up = ", and its equality with the source was seen on made-up inputs only" if synthetic else ""
    return Advice(
        "not_quantised",
        "Calibrate it to integers",
        f"this bundle is the float model{made_up}",
        "edgekit convert MODEL --data DATA --out BUNDLE",
    )


def _accuracy_drop(verification: Mapping[str, Any]) -> Advice | None:
    accuracy = verification.get("accuracy") or {}
    found = metrics.loss(accuracy)
    if found is None:
        return None
    unit = "points" if metrics.is_share(accuracy) else f"of {metrics.title(accuracy)}"
    return Advice(
        "accuracy_drop",
        "Find the operators that cost the accuracy",
        f"quantisation costs {digits(found[0])} {unit}, and at least {digits(found[1])} with 95 % confidence",
        "edgekit inspect BUNDLE",
    )


def _accuracy_unknown(verification: Mapping[str, Any]) -> Advice | None:
    if verification.get("accuracy"):
        return None
    return Advice(
        "accuracy_unknown",
        "Measure the accuracy on labelled data",
        "how many answers became wrong is not known, only how much the numbers changed",
        "edgekit convert MODEL --data DATA --labels LABELS",
    )


def _float_operators(verification: Mapping[str, Any]) -> Advice | None:
    audit = verification.get("audit") or {}
    operators = audit.get("float_operators") or ()
    if not operators:
        return None
    first = operators[0]
    return Advice(
        "float_operators",
        "Get rid of the float operators",
        f"{len(operators)} of {audit.get('operators_total', '?')} operators stay float, "
        f"the first is {first.get('op')}: {first.get('reason') or 'no reason recorded'}",
        "edgekit inspect BUNDLE",
    )


def _weak_slice(verification: Mapping[str, Any]) -> Advice | None:
    slices = []
    int8 = verification.get("int8") or {}
    for output in (*(int8.get("outputs") or ()), *(int8.get("parts") or ())):
        worst = output.get("worst_slice") or {}
        if worst.get("sqnr_db") is not None:
            slices.append((worst["sqnr_db"], output.get("name"), worst))
    if not slices or min(slices, key=lambda item: item[0])[0] >= LOW_SLICE_DB:
        return None
    decibels, name, worst = min(slices, key=lambda item: item[0])
    return Advice(
        "weak_slice",
        f"Look at output {name}, index {worst.get('index')} of axis {worst.get('axis')}",
        f"its error is {decibels:.1f} dB below its signal while the mean hides it; it may need a scale of its own",
    )


RUN_RULES: tuple[Callable[[RunSummary], Advice | None], ...] = (
    _foreign,
    _throttled,
    _unseen,
    _plain_kernels,
    _slower_than_float,
    _islands,
    _no_delegate,
    _slowed,
    _rising,
    _busy,
    _noisy,
    _undecided,
    _short_tail,
    _slow_first,
    _no_float,
)
MANIFEST_RULES: tuple[Callable[[Mapping[str, Any]], Advice | None], ...] = (
    _gate,
    _accuracy_drop,
    _weak_slice,
    _float_operators,
    _accuracy_unknown,
)
