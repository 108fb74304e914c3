"""Comparing what was measured: two models in turns within one run, or runs with runs. Never silently one that is invalid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.report.contrast import MARGIN, UNDECIDED, Contrast, contrast_apart, contrast_pairs, contrast_runs
from edgekit.report.folder import RunFolder, mapping
from edgekit.report.regimes import within
from edgekit.report.stats import summarise
from edgekit.report.summary import MAIN, RunSummary
from edgekit.report.table import variant_label
from edgekit.report.timeline import blocks_of

OTHER = "other"
"""The second model of a run in turns."""
APART_MARGIN = 0.05
"""What two runs of the same may differ by from one time to the next: MLPerf Mobile asks that results repeat within 5 %."""


@dataclass(frozen=True)
class Comparison:
    """``b`` against ``a``. ``how`` is ``in turns``, ``runs`` or ``one run each``.

    ``invalid`` are reasons why a run supports no verdict: the contrast is then undecided. ``notes`` say in what else the two differ.
    """

    a: str
    b: str
    how: str
    contrast: Contrast
    invalid: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compare_in_turns(run: Path, *, margin: float = MARGIN) -> Comparison:
    """The second model of a run against the first, block by block.

    Raises :class:`UsageError` for what is no run, or one that holds no second model (``nothing_to_compare``).
    """
    folder = RunFolder.load(run)
    first, second = blocks_of(folder, MAIN), blocks_of(folder, OTHER)
    if not first or not second:
        raise UsageError(
            f"{run} holds one model alone",
            code="nothing_to_compare",
            hint="edgekit compare RUN RUN, or edgekit bench A B --interleave",
        )
    summary = summarise(folder)
    contrast = contrast_pairs(
        [block.median_ns for block in first], [block.median_ns for block in second], margin=margin
    )
    names = summary.model, variant_label(OTHER, summary).removesuffix(f" ({OTHER})")
    return _guarded(Comparison(*names, "in turns", contrast), [summary])


def compare_runs(a: Sequence[Path], b: Sequence[Path], *, margin: float | None = None) -> Comparison:
    """Runs of B against runs of A: with several of each the runs are resampled, with one of either their blocks.

    Then ``margin`` is 5 % unless it is given, since nothing tells how one run differs from the next; else 3 %.
    Raises :class:`UsageError` for what is no run, and for runs without a single inference (``nothing_to_compare``).
    """
    sides = [[RunFolder.load(path) for path in side] for side in (a, b)]
    summaries = [[summarise(run) for run in side] for side in sides]
    medians = [
        [
            [block.median_ns for block in within(blocks_of(run, MAIN), one.regime)]
            for run, one in zip(side, ones, strict=True)
        ]
        for side, ones in zip(sides, summaries, strict=True)
    ]
    if not all(side and all(side) for side in medians):
        raise UsageError("a run without any inference cannot be compared", code="nothing_to_compare")
    if min(len(side) for side in medians) > 1:
        each = [[one.main.median_ns for one in ones if one.main and one.main.median_ns] for ones in summaries]
        how, contrast = "runs", contrast_runs(each[0], each[1], margin=MARGIN if margin is None else margin)
    else:
        joined = [[value for run in side for value in run] for side in medians]
        how = "one run each"
        contrast = contrast_apart(joined[0], joined[1], margin=APART_MARGIN if margin is None else margin)
    flat = [one for ones in summaries for one in ones]
    first, second = (", ".join(one.id for one in ones) for ones in summaries)
    return _guarded(Comparison(first, second, how, contrast, notes=_differences(flat)), flat)


def _guarded(found: Comparison, summaries: Sequence[RunSummary]) -> Comparison:
    """Without a verdict where a run supports none."""
    invalid = tuple(f"{one.id}: {reason}" for one in summaries for reason in one.validity.reasons)
    if not invalid:
        return found
    undecided = replace(found.contrast, verdict=UNDECIDED, reason=f"an invalid run is compared: {invalid[0]}")
    return replace(found, contrast=undecided, invalid=invalid)


def _differences(summaries: Sequence[RunSummary]) -> tuple[str, ...]:
    """In what else than the model the runs differ."""

    def facts(one: RunSummary) -> dict[str, object]:
        main = one.main
        return {
            "board": one.facts.get("board_model") or one.facts.get("cpu_model") or one.device,
            "interpreter": " ".join(str(word) for word in mapping(one.facts.get("interpreter")).values()),
            "threads": None if main is None else main.threads,
            "clock governor": one.facts.get("governor"),
            "kernels": None if main is None else main.delegate.kernels,
            "pace": mapping(one.request.get("pace")).get("rate_per_s"),
            "regime": None if one.regime is None or one.regime.whole else one.regime.name,
        }

    all_facts = [facts(one) for one in summaries]
    found = []
    for key in all_facts[0]:
        values = list(dict.fromkeys(str(item[key]) for item in all_facts))
        if len(values) > 1:
            found.append(f"{key}: {' against '.join(values)}")
    return tuple(found)
