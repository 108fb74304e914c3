"""From an int8 file as the engine makes it to the one that is delivered: ranges, weights and biases, each judged on held-out samples.

Nothing is kept because it usually helps. The corrections are computed on one part of the calibration data and judged on another;
evaluation data play no part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edgekit.calibrate.clipping import METHODS, Range
from edgekit.calibrate.histogram import Histogram
from edgekit.calibrate.ranges import Ranges, observe
from edgekit.calibrate.sources import Sample
from edgekit.intake import tflite
from edgekit.intake.layout import delivered
from edgekit.quantize import weights
from edgekit.quantize.groups import Group, groups, histogram
from edgekit.quantize.holdout import FEWEST, Holdout, hold_out
from edgekit.quantize.int8_file import Int8File
from edgekit.quantize.judge import Judge, Score, before_the_last
from edgekit.quantize.recipe import Corrections as Wanted
from edgekit.quantize.search import MIN_MAX, Choice, Search, spares_the_rare
from edgekit.values import FloatModel

Array = NDArray[Any]
FIRST_METHODS = (MIN_MAX, "percentile")
"""With these ranges the weights are chosen; the other methods are tried with the best weights only."""
NO_CORRECTIONS = Wanted(bias="off", rounding="off")


@dataclass(frozen=True)
class Ratios:
    """Int8 against float on the held-out samples, in dB: the ordinary ones and the rare ones."""

    ordinary_db: float
    rare_db: float

    @classmethod
    def of(cls, score: Score) -> Ratios:
        """Rounded, for the record."""
        return cls(round(score.ordinary_db, 2), round(score.rare_db, 2))


@dataclass(frozen=True)
class Trial:
    """One thing that was tried, what came of it, and whether it stayed."""

    what: str
    ratios: Ratios
    kept: bool


@dataclass(frozen=True)
class Corrections:
    """What was tried on the int8 file and what became of it. ``methods``: for each method the tensors that have their range by it.

    ``before`` is the file as the engine makes it from true extremes, ``after`` the one delivered, on ``judged`` held-out calibration
    samples, of which ``rare`` are rare; None where nothing was judged, with the reason in ``note``.
    """

    judged: int = 0
    rare: int = 0
    before: Ratios | None = None
    after: Ratios | None = None
    weights: str = weights.PLAIN
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Corrected:
    """What was done (None where nothing was to be), and the ranges that the file has now."""

    corrections: Corrections | None
    ranges: Ranges


Reader = Callable[[Sequence[int]], Sequence[Sample]]
"""The calibration samples at ascending positions."""


def correct(
    model: FloatModel,
    int8_path: Path,
    ranges: Ranges,
    read: Reader,
    wanted: Wanted,
    *,
    ranges_by: str,
    seed: int,
    threads: int,
    alive: Callable[[], None] = lambda: None,
) -> Corrected:
    """Makes ``int8_path`` (rewritten in place), which has the true extremes as ranges, as good as ``wanted`` allows.

    ``ranges_by`` is "search", or one of :data:`edgekit.calibrate.clipping.METHODS` for every tensor.
    """
    held = hold_out(ranges.extents, seed=seed)
    if held is None:
        note = (
            f"{len(ranges.extents)} calibration samples: below {FEWEST} none can be held out, so nothing was corrected"
        )
        return Corrected(Corrections(note=note), ranges)
    work = _Work.open(model, int8_path, ranges, read, held, threads=threads)
    trials = _Trials(work.judge)
    files = _weighted(work, model, wanted, seed, alive)
    best, choice = _weights_and_method(work, files, wanted, ranges_by, trials)
    if ranges_by == "search":
        found = work.search.each(files[best], choice, trials.floor, alive=alive)
        trials.note("ranges, tensor by tensor", found.score, kept=found.methods != choice.methods)
        choice = found
    final = _final(work, files[best], choice, ranges)
    final.write(int8_path)
    methods: dict[str, list[str]] = {}
    for group in work.search.groups:
        methods.setdefault(choice.methods[group.name], []).append(group.name)
    corrections = Corrections(
        judged=len(held.judging),
        rare=sum(held.rare),
        before=Ratios.of(trials.floor),
        after=Ratios.of(work.judge.score(final.content)),
        weights=best,
        methods={method: tuple(names) for method, names in sorted(methods.items())},
        trials=tuple(trials.made),
    )
    return Corrected(corrections, _ranges_of(work, choice, ranges))


@dataclass(frozen=True)
class _Work:
    """The parts that every step needs."""

    plain: Int8File
    groups: tuple[Group, ...]
    judge: Judge
    search: Search
    whole: Mapping[str, Histogram]
    fitting: Sequence[Sequence[Array]]

    @classmethod
    def open(
        cls, model: FloatModel, int8_path: Path, ranges: Ranges, read: Reader, held: Holdout, *, threads: int
    ) -> _Work:
        wanted = sorted({*held.judging, *held.correcting})
        samples = dict(zip(wanted, read(wanted), strict=True))
        inputs = {i: [delivered(s[spec.name], spec) for spec in model.inputs] for i, s in samples.items()}
        unseen = observe(model, (samples[i] for i in held.unseen), threads=threads)
        rest = {
            name: whole.minus(unseen.histograms[name]) if name in unseen.histograms else whole
            for name, whole in ranges.histograms.items()
        }
        int8 = tflite.read(int8_path)
        names = {tensor.name for tensor in tflite.graph(int8).tensors}
        watched = {position: name for position, name in before_the_last(model.path).items() if name in names}
        found = groups(int8, ranges.by_tensor)
        judge = Judge(model, [inputs[i] for i in held.judging], held.rare, watched=watched, threads=threads)
        return cls(
            Int8File.open(int8_path, watched=tuple(watched.values())),
            found,
            judge,
            Search(judge, found, _by_group(found, rest)),
            _by_group(found, ranges.histograms),
            [inputs[i] for i in held.correcting],
        )


class _Trials:
    """What was tried so far; ``floor`` is the score of the file as it came."""

    def __init__(self, judge: Judge) -> None:
        self.made: list[Trial] = []
        self.floor: Score = Score(0.0, 0.0)
        self._judge = judge

    def note(self, what: str, score: Score, *, kept: bool = False) -> None:
        self.made.append(Trial(what, Ratios.of(score), kept))


def _by_group(found: Sequence[Group], histograms: Mapping[str, Histogram]) -> dict[str, Histogram]:
    merged = {group.name: histogram(group, histograms) for group in found}
    return {name: h for name, h in merged.items() if h is not None}


def _weighted(
    work: _Work, model: FloatModel, wanted: Wanted, seed: int, alive: Callable[[], None]
) -> dict[str, Int8File]:
    asked = [(weights.BIAS, wanted.bias), (weights.FEEDBACK, wanted.rounding)]
    names = [name for name, how in asked if how != "off"]
    if not names:
        return {weights.PLAIN: work.plain}
    return weights.variants(work.plain, model.path, work.fitting, wanted=names, seed=seed, alive=alive)


def _weights_and_method(
    work: _Work, files: Mapping[str, Int8File], wanted: Wanted, ranges_by: str, trials: _Trials
) -> tuple[str, Choice]:
    """The weights, with one method of ranges for all, that score best."""
    trials.floor = work.search.whole(files[weights.PLAIN], MIN_MAX).score
    forced = weights.FEEDBACK if wanted.rounding == "on" else weights.BIAS if wanted.bias == "on" else None
    tried: dict[tuple[str, str], Choice] = {}

    def attempt(names: Sequence[str], methods: Sequence[str]) -> tuple[str, str]:
        for name, method in itertools.product(names, methods):
            tried.setdefault((name, method), work.search.whole(files[name], method))
        allowed = {key: c for key, c in tried.items() if spares_the_rare(c.score, trials.floor)} or tried
        return max(allowed, key=lambda key: allowed[key].score.value)

    first = FIRST_METHODS if ranges_by == "search" else (ranges_by,)
    best = attempt([forced] if forced else list(files), first)
    if ranges_by == "search":
        best = attempt([best[0]], [method for method in METHODS if method not in first])
    for (name, method), choice in tried.items():
        trials.note(f"{name} weights, {method} ranges", choice.score, kept=(name, method) == best)
    return best[0], tried[best]


def _final(work: _Work, file: Int8File, choice: Choice, ranges: Ranges) -> Int8File:
    """The chosen methods, with ranges from all calibration samples."""
    final = file.copy()
    for group in work.search.groups:
        limits = METHODS[choice.methods[group.name]](work.whole[group.name])
        if final.takes_range(group, limits):
            final.set_range(group, limits)
    return final


def _ranges_of(work: _Work, choice: Choice, ranges: Ranges) -> Ranges:
    by_tensor: dict[str, Range] = dict(ranges.by_tensor)
    for group in work.search.groups:
        limits = METHODS[choice.methods[group.name]](work.whole[group.name])
        by_tensor.update({name: limits for name in group.names if name in by_tensor})
    return replace(ranges, by_tensor=by_tensor)
