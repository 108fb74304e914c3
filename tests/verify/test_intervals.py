"""Intervals of shares against their closed forms, and gates that pass, fail or say that the data do not decide."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from edgekit.errors import DataError
from edgekit.quantize.audit import Audit, FloatOperator, IoType, OperatorCount
from edgekit.quantize.contract import contract
from edgekit.quantize.recipe import Gates, Quantization
from edgekit.quantize.soundness import Unsound
from edgekit.values import FloatModel, GateResult, IoSpec, SourceModel, Verdict
from edgekit.verify import gates
from edgekit.verify.accuracy import Evaluation, Int8Result, OutputInt8, check_classes, labelled_output
from edgekit.verify.intervals import Accuracy, Right, paired_difference, share, wilson

Z = 1.959963984540054
"""The 97.5 % point of the standard normal distribution."""


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (10, 10), (9, 10), (917, 1000), (1, 1)])
def test_wilson_is_the_closed_form(hits: int, count: int) -> None:
    p, n = hits / count, count
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    low, high = wilson(hits, count)
    assert (low, high) == (
        pytest.approx(max(centre - half, 0), abs=1e-12),
        pytest.approx(min(centre + half, 1), abs=1e-12),
    )


def test_share_of_ten_in_ten_is_not_certainty() -> None:
    found = share(10, 10)
    assert (found.same, found.count, found.value) == (10, 10, 1.0)
    assert found.low == pytest.approx(0.7225, abs=1e-4)  # n / (n + z^2)
    assert found.high == 1.0


@pytest.mark.parametrize(("lost", "gained", "count"), [(0, 0, 100), (4, 5, 1000), (20, 3, 300), (1, 0, 10)])
def test_paired_difference_is_walds_interval_with_half_a_case_added_to_each_cell(
    lost: int, gained: int, count: int
) -> None:
    # the four cells: both right, lost, gained, both wrong; only lost and gained matter beside the total
    b, c, n = lost + 0.5, gained + 0.5, count + 4 * 0.5
    p10, p01 = b / n, c / n
    difference = p01 - p10
    half = Z * math.sqrt((p10 + p01 - difference**2) / n)
    found = paired_difference(lost, gained, count)
    assert found.value == pytest.approx(100 * (gained - lost) / count)
    assert (found.low, found.high) == (
        pytest.approx(100 * (difference - half)),
        pytest.approx(100 * (difference + half)),
    )


def test_paired_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Drawn 2,000 times from a known truth: 3 % lost, 1 % gained, so a difference of -2 points."""
    generator = np.random.default_rng(7)
    draws = generator.multinomial(400, [0.03, 0.01, 0.96], size=2000)
    inside = sum(found.low <= -2.0 <= found.high for found in (paired_difference(a, b, 400) for a, b, _ in draws))
    assert 0.93 <= inside / 2000 <= 0.975


def output(
    *, sqnr_db: float | None = 30.0, same: int | None = None, of: int = 100, dead: int = 0, name: str = "y"
) -> OutputInt8:
    agreement = None if same is None else share(same, of)
    return OutputInt8(name, sqnr_db, 30.0, None, 20.0, dead, agreement)


def accuracy(lost: int, gained: int, count: int) -> Accuracy:
    right = round(0.9 * count)
    float_right = Right(right, right / count, *wilson(right, count))
    after = right - lost + gained
    int8_right = Right(after, after / count, *wilson(after, count))
    points = paired_difference(lost, gained, count)
    return Accuracy("top1", count, float_right, int8_right, points, lost, gained, "test")


def sound_audit() -> Audit:
    return Audit(3, (OperatorCount("CONV_2D", 3, 0),), (), (IoType("x", "int8"), IoType("y", "int8")), True, 0)


def judged(
    audit: Audit,
    outputs: list[OutputInt8],
    found: Accuracy | None = None,
    unsound: tuple[Unsound, ...] = (),
    **limits: float,
) -> dict[str, GateResult]:
    chosen = Gates(**{**Gates().__dict__, **limits})
    wanted = contract(Quantization())
    results = gates.judge(chosen, audit, Evaluation(Int8Result(100, tuple(outputs)), found), wanted, Counter(), unsound)
    return {result.name: result for result in results}


def test_agreement_passes_fails_or_is_undecided() -> None:
    verdicts = [judged(sound_audit(), [output(same=n, of=100)])["agreement"].verdict for n in (95, 80, 60)]
    assert verdicts == [Verdict.PASSED, Verdict.UNDECIDED, Verdict.FAILED]
    # the same share is decided by more data
    assert judged(sound_audit(), [output(same=8500, of=10_000)])["agreement"].verdict is Verdict.PASSED
    assert judged(sound_audit(), [output(same=85, of=100)])["agreement"].verdict is Verdict.UNDECIDED


def test_accuracy_drop_passes_fails_or_is_undecided() -> None:
    passed, undecided, failed = (
        judged(sound_audit(), [output()], accuracy(lost, 0, count))["accuracy-drop"]
        for lost, count in ((5, 1000), (1, 100), (80, 1000))
    )
    assert [passed.verdict, undecided.verdict, failed.verdict] == [Verdict.PASSED, Verdict.UNDECIDED, Verdict.FAILED]
    assert failed.measured == pytest.approx(8.0) and failed.limit == 2.0
    assert "undecided: " in undecided.message and "more samples needed" in undecided.message
    assert "on 1000 samples" in passed.message


def test_the_worst_output_decides() -> None:
    outputs = [output(sqnr_db=None, name="boxes"), output(sqnr_db=4.0, dead=2, name="scores")]
    found = judged(sound_audit(), outputs)
    assert (found["sqnr"].verdict, found["sqnr"].measured) == (Verdict.FAILED, 4.0)
    assert "'scores': 4.0 dB" in found["sqnr"].message
    assert found["no-dead-slices"].verdict is Verdict.FAILED
    assert "2 slices of output 'scores'" in found["no-dead-slices"].message
    assert judged(sound_audit(), [output(sqnr_db=-999.0)])["sqnr"].verdict is Verdict.FAILED
    assert judged(sound_audit(), [output(sqnr_db=None)])["sqnr"].verdict is Verdict.PASSED


def test_unsound_scales_and_operators_fail_by_name() -> None:
    found = (
        *(Unsound("scale", f"t{i}", f"t{i} has the scale 0") for i in range(5)),
        Unsound("operator", "Mine", "Mine is"),
    )
    gates_ = judged(sound_audit(), [output()], unsound=found)
    assert (gates_["sound-scales"].verdict, gates_["standard-operators"].verdict) == (Verdict.FAILED, Verdict.FAILED)
    assert gates_["sound-scales"].measured == 5 and "t2 has the scale 0; and 2 more" in gates_["sound-scales"].message
    accepted = judged(sound_audit(), [output()], unsound=found, contract=False)
    assert "standard-operators" not in accepted and accepted["sound-scales"].verdict is Verdict.FAILED
    fine = judged(sound_audit(), [output()])
    assert (fine["sound-scales"].verdict, fine["standard-operators"].verdict) == (Verdict.PASSED, Verdict.PASSED)


def test_full_integer_lists_operators_ends_and_reasons() -> None:
    floats = (FloatOperator(1, "LEAKY_RELU", ("r",), "the quantiser has no int8 form of LEAKY_RELU here"),)
    counts = (OperatorCount("CONV_2D", 2, 0), OperatorCount("LEAKY_RELU", 1, 1))
    audit = Audit(3, counts, floats, (IoType("x", "int8"), IoType("y", "float32")), False, 0)
    gate = judged(audit, [output()])["full-integer"]
    assert gate.verdict is Verdict.FAILED
    assert "LEAKY_RELU x1" in gate.message and "y is float32" in gate.message and "no int8 form" in gate.message
    assert "full-integer" not in judged(audit, [output()], contract=False)


def test_undecided_stops_unless_it_is_allowed_and_failed_always_does() -> None:
    undecided = GateResult("agreement", Verdict.UNDECIDED, 0.8, 0.8, "")
    failed = GateResult("sqnr", Verdict.FAILED, 1.0, 10.0, "")
    passed = GateResult("sqnr", Verdict.PASSED, 11.0, 10.0, "")
    assert not gates.all_passed([passed, undecided], allow_undecided=False)
    assert gates.all_passed([passed, undecided], allow_undecided=True)
    assert not gates.all_passed([failed], allow_undecided=True)


def model_with(*outputs: IoSpec) -> FloatModel:
    source = SourceModel(path=None, format="onnx", sha256="", size_bytes=0)  # type: ignore[arg-type]
    return FloatModel(path=None, source=source, inputs=(), outputs=outputs, frontend="none")  # type: ignore[arg-type]


def scores(name: str, *shape: int) -> IoSpec:
    return IoSpec(name, shape, "float32", name, shape, "float32")


def test_labels_need_exactly_one_output_of_class_scores() -> None:
    assert labelled_output(model_with(scores("boxes", 1, 100, 4), scores("logits", 1, 10))) == 1
    for outputs in ([scores("boxes", 1, 100, 4)], [scores("a", 1, 10), scores("b", 1, 10)]):
        with pytest.raises(DataError, match="labels need one output of class scores"):
            labelled_output(model_with(*outputs))


def test_a_label_that_is_no_class_is_refused_before_anything_runs() -> None:
    with pytest.raises(DataError, match=r"label 10 \(sample 2\) is no class of output 'logits', which has 10"):
        check_classes(np.array([0, 9, 10]), scores("logits", 1, 10))
