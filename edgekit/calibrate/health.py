"""The health of calibration data, before anything is quantised: what is wrong with them, how sure that is, and what to do.

What can be known: how the samples are distributed; whether calibration and verification data lie in the same range; whether the
preprocessing makes numbers that networks are fed with; with labels, whether the float network answers better to another way of feeding.
What cannot: without labels, whether a scale is the one of the training, and where both data sets were prepared in the same wrong way,
whether they were. Batch normalisation would tell what its inputs were in training, but it is folded into the weights by then.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.calibrate.families import RAW, TWICE, WIDE, WORDS, Span, family, normalised_twice, of_preprocessing
from edgekit.calibrate.feeding import Alternative, describe
from edgekit.calibrate.profile import Profile
from edgekit.calibrate.ranges import Ranges
from edgekit.calibrate.stability import SETTLED, Beyond, ByTensor, Growth, beyond, widths
from edgekit.errors import DataError
from edgekit.values import FloatModel, Preprocessing

FEW_CODES = 1 / 16
"""Verification data that use less than this share of the calibrated range keep fewer than 4 of 8 bits."""
APART = 0.1
"""A share of verification values beyond the calibrated range that no sampling explains."""
FAR = 0.5
"""Tensors that leave their range by more than half of its width are named one by one."""
LEAST_COVERAGE = 0.5
NAMED = 5


class Severity(enum.Enum):
    """``refuse``: the result would be wrong. ``warn``: it may be worse than it need be. ``fine``: looked at, and in order."""

    REFUSE = "refuse"
    WARN = "warn"
    FINE = "fine"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, with the numbers behind the sentence and, unless fine, what to do."""

    name: str
    severity: Severity
    message: str
    hint: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What was collected. ``verification`` and ``seen`` (ranges of tensors on held-out data) are empty where there are no such data."""

    calibration: tuple[Profile, ...]
    verification: tuple[Profile, ...]
    ranges: Ranges
    seen: ByTensor
    growth: Growth | None
    alternatives: tuple[Alternative, ...] = ()
    out_of_order: Mapping[str, str] = field(default_factory=dict)
    """Inputs whose numbers lie in the other layout, with the layout that they should have."""
    feeding_tried: str = ""
    """What decided about ways of feeding: "labels", "certainty" or "" where nothing could."""


@dataclass(frozen=True)
class Health:
    """All findings, the worst first, and the estimated number of further samples worth having (0: enough, None: cannot be told)."""

    findings: tuple[Finding, ...]
    more_samples: int | None

    @property
    def severity(self) -> Severity:
        """The worst of all findings."""
        return self.findings[0].severity if self.findings else Severity.FINE


def judge(model: FloatModel, preprocessing: Preprocessing | None, evidence: Evidence) -> Health:
    """What ``evidence`` says about the data that calibrate ``model``."""
    names = {spec.name: spec.tensor for spec in model.inputs}
    found: list[Finding] = []
    verification = {profile.name: profile for profile in evidence.verification}
    for profile in evidence.calibration:
        found += _order(profile.name, evidence)
        found += _scale(profile, verification.get(profile.name), preprocessing)
        found += [_count(profile, evidence.growth), *_content(profile), *_coverage(profile, preprocessing)]
    found += _tensors(evidence, set(names.values()))
    found += _stability(evidence.growth)
    found += _feeding(evidence)
    order = list(Severity)
    more = evidence.growth.more if evidence.growth is not None else None
    return Health(tuple(sorted(found, key=lambda finding: order.index(finding.severity))), more)


def require(health: Health) -> None:
    """Raises DataError with the first finding that refuses; the others are in its details."""
    refused = [finding for finding in health.findings if finding.severity is Severity.REFUSE]
    if refused:
        first = refused[0]
        listed = [{"name": f.name, "severity": f.severity.value, "message": f.message} for f in health.findings]
        details = {"finding": first.name, "numbers": dict(first.numbers), "findings": listed}
        raise DataError(first.message, hint=first.hint, code="data_unhealthy", details=details)


def _order(name: str, evidence: Evidence) -> list[Finding]:
    layout = evidence.out_of_order.get(name)
    if layout is None:
        return []
    other = "NHWC" if layout == "nchw" else "NCHW"
    steps = "(0, 3, 1, 2)" if layout == "nchw" else "(0, 2, 3, 1)"
    message = f"input {name!r} takes {layout.upper()}, and its calibration pictures hold their numbers in the order of {other}"
    hint = f"the arrays were reshaped where their axes have to be turned: use transpose{steps}, not reshape"
    return [Finding("layout", Severity.REFUSE, message, hint, {"expected": layout.upper(), "found": other})]


def _scale(profile: Profile, other: Profile | None, preprocessing: Preprocessing | None) -> list[Finding]:
    """The range of an input against what the preprocessing can give, and against the data that judge."""
    found = []
    if preprocessing is not None:
        possible, word = of_preprocessing(preprocessing)
        if word in (WIDE, TWICE):
            hint = (
                "give --mean and --std in units of the raw pixel: 0.485 becomes 123.7, 0.229 becomes 58.4"
                if word == WIDE
                else "give --mean and --std as in training, once: x = (pixel - mean) / std with pixels from 0 to 255"
            )
            message = f"the preprocessing makes {possible} of pixels from 0 to 255: {WORDS[word]}"
            numbers = {"possible": [possible.low, possible.high], "looks_like": word}
            found.append(Finding("preprocessing", Severity.REFUSE, message, hint, numbers))
    if other is None:
        return found
    return [*found, _against(profile, other)]


def _against(profile: Profile, other: Profile) -> Finding:
    mine, theirs = profile.span, other.span
    saturated = _outside(other, mine)
    used = min(mine.high, theirs.high) - max(mine.low, theirs.low)
    used = max(used, 0.0) / mine.width if mine.width > 0 else 0.0
    numbers = {
        "calibration": [mine.low, mine.high],
        "verification": [theirs.low, theirs.high],
        "saturated_share": round(saturated, 6),
        "used_share": round(used, 6),
    }
    said = (
        f"input {profile.name!r}: calibration data range from {mine}, verification data from {theirs}; {saturated:.1%} of the "
        f"verification values lie outside and would saturate, the others use {used:.1%} of the calibrated range"
    )
    name, reason = _mistake(mine, theirs)
    ruined = saturated > APART or used < FEW_CODES
    if name:
        hint = "prepare both in the same way: the board will get what the verification data show"
        return Finding(name, Severity.REFUSE if ruined else Severity.WARN, f"{said}: {reason}", hint, numbers)
    if ruined:
        hint = "calibrate on data like those that judge, and like those that the board will get"
        return Finding("ranges-differ", Severity.WARN, said, hint, numbers)
    return Finding("ranges-agree", Severity.FINE, said, "", numbers)


def _outside(profile: Profile, span: Span) -> float:
    """The share of values outside of ``span``."""
    total = outside = 0
    for channel in profile.channels:
        centres, counts = channel.histogram.centres, channel.histogram.counts
        outside += int(counts[(centres < span.low) | (centres > span.high)].sum())
        total += int(counts.sum())
    return outside / max(total, 1)


def _mistake(mine: Span, theirs: Span) -> tuple[str, str]:
    """The finding's name, and what was probably done to one of both and not to the other."""
    first, second = family(mine), family(theirs)
    words = f"calibration looks like {WORDS.get(first, 'something else')}, verification like {WORDS.get(second, 'something else')}"
    if (first == RAW) != (second == RAW):
        where = "calibrate" if first == RAW else "verify"
        return "raw-pixels", f"raw pixels {where} where the other data are normalised ({words})"
    if (first == TWICE) != (second == TWICE):
        which = "calibration" if first == TWICE else "verification"
        return "scaled-twice", f"the {which} data were scaled twice ({words})"
    for which, one, again in (("calibration", theirs, mine), ("verification", mine, theirs)):
        step = normalised_twice(one, again)
        if step:
            return "normalised-twice", f"the {which} data went through {step} once more than the others"
    if first and second and first != second:
        return "scales-differ", words
    return "", ""


def _count(profile: Profile, growth: Growth | None) -> Finding:
    numbers = {"count": profile.count, "distinct": profile.distinct}
    if profile.count == 1:
        message = (
            "one calibration sample: every range is that of a single input, and what another one brings is clipped"
        )
        return Finding(
            "count", Severity.WARN, message, "calibrate on 100 samples and more, as various as the use", numbers
        )
    said = f"{profile.count} calibration samples for input {profile.name!r}"
    if growth is None:
        return Finding("count", Severity.WARN, f"{said}: too few to see whether the ranges hold", MORE_DATA, numbers)
    return Finding("count", Severity.FINE, said, "", numbers)


MORE_DATA = "calibrate on more samples, as various as the use; 100 to 200 do for most networks"


def _content(profile: Profile) -> list[Finding]:
    found = []
    if profile.constant:
        share = len(profile.constant) / profile.count
        black = {"constant": len(profile.constant), "count": profile.count, "first": profile.constant[0]}
        message = f"{len(profile.constant)} of {profile.count} samples of input {profile.name!r} are one single value throughout"
        severity = Severity.REFUSE if share == 1 and profile.count > 1 else Severity.WARN
        found.append(
            Finding("constant-samples", severity, message, "leave out black frames and empty recordings", black)
        )
    dead = [i for i, channel in enumerate(profile.channels) if channel.span.width == 0]
    if dead and len(profile.channels) > 1:
        message = f"channels {', '.join(map(str, dead))} of input {profile.name!r} never change"
        found.append(
            Finding("constant-channels", Severity.WARN, message, "look at how they were read", {"channels": dead})
        )
    if profile.grey:
        message = f"all {len(profile.channels)} channels of input {profile.name!r} are equal: grey pictures"
        found.append(Finding("grey", Severity.WARN, message, "calibrate on colour where the board has a colour camera"))
    repeated = len(profile.similar)
    numbers: dict[str, Any] = {
        "near_duplicates": repeated,
        "distinct": profile.distinct,
        "effective_directions": round(profile.diversity, 2),
        "first": list(profile.similar[0]) if profile.similar else None,
    }
    if repeated > profile.count / 2:
        index, original = profile.similar[0]
        message = (
            f"{repeated} of {profile.count} samples of input {profile.name!r} nearly repeat an earlier one (sample {index} is like "
            f"sample {original}): {profile.distinct} distinct ones"
        )
        hint = "frames of one scene count as one: take them further apart, or from other scenes"
        found.append(Finding("near-duplicates", Severity.WARN, message, hint, numbers))
    else:
        message = f"{profile.distinct} distinct samples, {repeated} near-duplicates"
        found.append(Finding("diversity", Severity.FINE, message, "", numbers))
    return found


def _coverage(profile: Profile, preprocessing: Preprocessing | None) -> list[Finding]:
    """What part of the possible range each channel uses; possible is what the preprocessing says, else what all channels have."""
    over = profile.span if preprocessing is None else of_preprocessing(preprocessing)[0]
    shares = [channel.coverage(over) for channel in profile.channels]
    numbers = {
        "over": [over.low, over.high],
        "by_channel": [
            {"low": c.span.low, "high": c.span.high, "mean": c.mean, "std": c.std, "coverage": share}
            for c, share in zip(profile.channels, shares, strict=True)
        ],
    }
    least = min(shares, default=1.0)
    if preprocessing is not None and least < LEAST_COVERAGE:
        message = (
            f"channel {shares.index(least)} of input {profile.name!r} covers {least:.0%} of what pixels can be ({over}): dark or flat "
            "pictures"
        )
        hint = "add pictures with the light and contrast that the board will meet"
        return [Finding("coverage", Severity.WARN, message, hint, numbers)]
    message = f"input {profile.name!r} covers {least:.0%} of {over} in the channel that covers least"
    return [Finding("coverage", Severity.FINE, message, "", numbers)]


def _tensors(evidence: Evidence, inputs: set[str]) -> list[Finding]:
    """Ranges of nothing, and ranges that held-out data leave."""
    found = []
    flat = sorted(name for name, width in widths(evidence.ranges.by_tensor).items() if width == 0)
    alive = [name for name in flat if any(evidence.seen.get(name, (0.0, 0.0)))]
    if alive:
        message = (
            f"{_named(alive)} stayed zero in calibration and did not on the verification data: its branch would be dead"
        )
        hint = "add calibration samples that make it work"
        found.append(Finding("dead-tensors", Severity.WARN, message, hint, {"tensors": alive}))
    elif flat:
        message = f"{_named(flat)} stayed zero in calibration: whatever another input makes of it is lost"
        hint = "add calibration samples that make it work, unless it is never used"
        found.append(Finding("zero-ranges", Severity.WARN, message, hint, {"tensors": flat}))
    left = [item for item in beyond(evidence.ranges.by_tensor, evidence.seen, least=0.0) if item.tensor not in flat]
    if not evidence.seen:
        return found
    far = [item for item in left if item.share > FAR]
    numbers = {
        "tensors_left": len(left),
        "tensors": len(evidence.ranges.by_tensor),
        "furthest": [_beyond_json(item) for item in left[:NAMED]],
    }
    if far:
        worst = "; ".join(_beyond_words(item, inputs) for item in far[:NAMED])
        message = f"verification data leave the calibrated range of {len(far)} tensors by more than half of its width: {worst}"
        hint = "calibrate on more samples, and on those that make the network work hardest"
        found.append(Finding("ranges-left", Severity.WARN, message, hint, numbers))
    else:
        message = (
            f"verification data stay within 1.5 times the calibrated range of every tensor ({len(left)} go beyond it)"
        )
        found.append(Finding("ranges-hold", Severity.FINE, message, "", numbers))
    return found


def _named(tensors: Sequence[str]) -> str:
    more = f" and {len(tensors) - NAMED} more" if len(tensors) > NAMED else ""
    word = "tensor" if len(tensors) == 1 else "tensors"
    return f"{word} {', '.join(repr(name) for name in tensors[:NAMED])}{more}"


def _beyond_words(item: Beyond, inputs: set[str]) -> str:
    kind = "input " if item.tensor in inputs else ""
    low, high = item.calibrated
    return f"{kind}{item.tensor!r} calibrated {low:.4g} to {high:.4g}, seen {item.seen[0]:.4g} to {item.seen[1]:.4g}"


def _beyond_json(item: Beyond) -> dict[str, Any]:
    return {"tensor": item.tensor, "calibrated": list(item.calibrated), "seen": list(item.seen), "share": item.share}


def _stability(growth: Growth | None) -> list[Finding]:
    if growth is None:
        return []
    numbers = {**growth.__dict__, "worst": [{"tensor": name, "growth": round(by, 4)} for name, by in growth.worst]}
    said = (
        f"ranges are the same in any order of the samples; from a quarter to a half of {growth.looked_at} samples they grow by "
        f"{growth.to_half:.1%} on average, from the half to the whole by {growth.to_whole:.1%} (most: {growth.worst[0][0]!r}, "
        f"{growth.worst[0][1]:.0%})"
    )
    if growth.to_whole <= SETTLED or growth.more == 0:
        return [Finding("stability", Severity.FINE, f"{said}: enough samples", "", numbers)]
    if growth.more is None:
        hint = "add samples, the most various ones first; the ranges do not settle on these, so no number can be given"
    else:
        hint = f"about {growth.more} more samples would settle them"
    return [Finding("stability", Severity.WARN, said, hint, numbers)]


def _feeding(evidence: Evidence) -> list[Finding]:
    if not evidence.feeding_tried:
        return []
    if not evidence.alternatives:
        judge = (
            "right answers on the labelled data"
            if evidence.feeding_tried == "labels"
            else "the float network's certainty"
        )
        return [Finding("feeding", Severity.FINE, f"no other way of feeding the float network does better, by {judge}")]
    best = evidence.alternatives[0]
    name = {"channels": "channel-order", "axes": "axes-swapped"}.get(best.name, f"scale-{best.name}")
    if best.labelled:
        message = (
            f"the float network is right on {best.other:.1%} of {best.samples} labelled samples with {best.words}, and on "
            f"{best.given:.1%} as it is fed now (chance of that by luck {best.p_value:.1g})"
        )
        severity = Severity.REFUSE if best.given < best.other / 2 else Severity.WARN
        hint = HINTS.get(best.name, "give --mean and --std as in training")
    else:
        message = (
            f"the float network is more certain with {best.words} in {best.better} of {best.samples} samples: perhaps that is how it "
            "was trained"
        )
        severity, hint = Severity.WARN, f"labels would settle it (--labels); {HINTS.get(best.name, '')}"
    return [Finding(name, severity, message, hint, describe(best))]


HINTS = {
    "channels": "give the other order: --color bgr for rgb, or rgb for bgr; in arrays, reverse the channel axis",
    "axes": "turn the pictures: height comes before width",
}
