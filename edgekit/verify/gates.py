"""Gates: measures against the recipe's limits. A gate passes, fails, or cannot be decided with the data at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edgekit.quantize.audit import Audit
from edgekit.quantize.contract import Contract, breaches
from edgekit.quantize.recipe import Gates
from edgekit.quantize.soundness import Unsound
from edgekit.values import GateResult, Verdict
from edgekit.verify.accuracy import Evaluation, OutputInt8
from edgekit.verify.drop import limit_of, loss, more_samples
from edgekit.verify.intervals import Accuracy
from edgekit.verify.measures import words_db
from edgekit.verify.parity import Parity

NAMED = 3
"""So many findings of a gate are named; the rest is counted."""


def judge(
    limits: Gates,
    audit: Audit,
    evaluation: Evaluation,
    wanted: Contract,
    weights: Counter[str],
    unsound: Sequence[Unsound],
) -> tuple[GateResult, ...]:
    """Every gate of the recipe, the worst output deciding. ``wanted`` and ``weights`` as :mod:`edgekit.quantize.contract` has them,
    ``unsound`` as :func:`edgekit.quantize.soundness.unsound` finds it.
    """
    outputs, parts = evaluation.int8.outputs, evaluation.int8.parts
    results = [_contract(wanted, audit, weights)] if limits.contract else []
    if limits.contract:
        results.append(_sound("standard-operators", "operator", unsound, "no custom operator"))
    results += [
        _sound("sound-scales", "scale", unsound, "every scale is one that kernels can work with"),
        _biases(audit),
    ]
    results += [
        _constant_slices(parts or outputs, limits.constant_slices_max),
        _sqnr((*outputs, *parts), limits.sqnr_min_db),
    ]
    results += _agreement(outputs, limits.agreement_min)
    if evaluation.accuracy is not None:
        results.append(_accuracy(evaluation.accuracy, limits.accuracy_drop_max_points))
    return tuple(results)


def judge_float(found: Parity) -> tuple[GateResult, ...]:
    """The only gate of a model that is not quantised: it equals its source. ``measured`` is None for an exact result."""
    ratios = [output.sqnr_db for output in found.outputs]
    ratios += [output.worst_slice.sqnr_db for output in found.outputs if output.worst_slice is not None]
    worst = min((ratio for ratio in ratios if ratio is not None), default=None)
    message = f"equal to the source in {found.reference} on {found.samples} inputs: {words_db(worst)} in the worst output and slice"
    if not found.passed:
        message = f"not {message}"
    verdict = Verdict.PASSED if found.passed else Verdict.FAILED
    return (GateResult("parity", verdict, worst, found.limit_db, message),)


def all_passed(results: Sequence[GateResult], *, allow_undecided: bool) -> bool:
    """Whether nothing failed, and nothing is undecided unless that is allowed."""
    refused = {Verdict.FAILED} if allow_undecided else {Verdict.FAILED, Verdict.UNDECIDED}
    return not any(result.verdict in refused for result in results)


def _contract(wanted: Contract, audit: Audit, weights: Counter[str]) -> GateResult:
    said = breaches(wanted, audit, weights)
    reasons = {operator.op: operator.reason for operator in audit.float_operators}
    if not said:
        message = _kept(wanted, audit, weights)
    else:
        causes = "; ".join(f"{op}: {reason}" for op, reason in reasons.items() if op not in ("QUANTIZE", "DEQUANTIZE"))
        message = f"not {wanted.name}: {', '.join(said)}" + (f" ({causes})" if causes and wanted.integer else "")
    verdict = Verdict.FAILED if said else Verdict.PASSED
    return GateResult(wanted.name, verdict, float(len(audit.float_operators)), 0.0 if wanted.integer else None, message)


def _kept(wanted: Contract, audit: Audit, weights: Counter[str]) -> str:
    if wanted.weights:
        return f"{weights[wanted.weights]} constants are {wanted.weights}, both ends {wanted.end}"
    inside = f"all {audit.operators_total} operators" if not wanted.borders else "every operator between the ends"
    return (
        f"{inside} and both ends are integer"
        if not wanted.borders
        else f"{inside} is integer, both ends are {wanted.end}"
    )


def _sound(name: str, kind: str, unsound: Sequence[Unsound], fine: str) -> GateResult:
    said = [item.message for item in unsound if item.kind == kind]
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    message = "; ".join(said[:NAMED]) + more if said else fine
    return GateResult(name, Verdict.FAILED if said else Verdict.PASSED, float(len(said)), 0.0, message)


def _biases(audit: Audit) -> GateResult:
    count = audit.saturated_biases
    message = f"{count} biases do not fit into 32 bits" if count else "every bias fits into 32 bits"
    return GateResult("sound-biases", Verdict.FAILED if count else Verdict.PASSED, float(count), 0.0, message)


def _constant_slices(outputs: Sequence[OutputInt8], limit: int) -> GateResult:
    dead = sum(output.constant_slices for output in outputs)
    worst = max(outputs, key=lambda output: output.constant_slices)
    message = (
        f"{worst.constant_slices} slices of output {worst.name!r} never change once quantised, though they do in float"
        if dead
        else "every slice that varies in float varies once quantised"
    )
    return GateResult(
        "no-dead-slices", Verdict.PASSED if dead <= limit else Verdict.FAILED, float(dead), float(limit), message
    )


def _sqnr(outputs: Sequence[OutputInt8], limit_db: float) -> GateResult:
    worst = min(outputs, key=lambda output: float("inf") if output.sqnr_db is None else output.sqnr_db)
    passed = worst.sqnr_db is None or worst.sqnr_db >= limit_db
    message = f"output {worst.name!r}: {words_db(worst.sqnr_db)}"
    return GateResult("sqnr", Verdict.PASSED if passed else Verdict.FAILED, worst.sqnr_db, limit_db, message)


def _agreement(outputs: Sequence[OutputInt8], limit: float) -> list[GateResult]:
    judged = [(output, output.agreement) for output in outputs if output.agreement is not None]
    if not judged:
        return []
    output, found = min(judged, key=lambda pair: pair[1].low)
    verdict = Verdict.PASSED if found.low >= limit else Verdict.FAILED if found.high < limit else Verdict.UNDECIDED
    message = f"output {output.name!r}: same answer on {found.same} of {found.count} (95 % interval {found.low:.1%} to {found.high:.1%})"
    return [GateResult("agreement", verdict, found.value, limit, message)]


def _accuracy(accuracy: Accuracy, limit_points: float) -> GateResult:
    value, least, most = loss(accuracy)
    limit = limit_of(accuracy, limit_points)
    verdict = Verdict.PASSED if most <= limit else Verdict.FAILED if least > limit else Verdict.UNDECIDED
    drop, points = accuracy.difference_points, accuracy.unit == "points"
    figures = (f"{side.value:.2%}" if points else f"{side.value:.4g}" for side in (accuracy.int8, accuracy.float))
    number, unit = ("{:+.2f}", " points") if points else ("{:+.3g}", "")
    change, low, high = (number.format(end) for end in (drop.value, drop.low, drop.high))
    message = "{}: quantised {}, float {}: ".format(accuracy.metric, *figures)
    message += f"{change}{unit} (95 % interval {low} to {high}) on {accuracy.count} samples"
    if verdict is Verdict.UNDECIDED:
        more = more_samples(accuracy, limit)
        decide = "no number of samples like these would decide it" if more is None else f"{more} more samples needed"
        message += f"; undecided: {decide}"
    return GateResult("accuracy-drop", verdict, value, limit, message)
