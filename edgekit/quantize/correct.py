"""From an int8 file as the engine makes it to the one that is delivered: ranges, weights and biases, each judged on held-out samples.

Nothing is kept because it usually helps. The corrections are computed on one part of the calibration data and judged on another;
evaluation data play no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.calibrate.clipping import METHODS
from edgekit.calibrate.ranges import Ranges, observe
from edgekit.calibrate.sources import Sample
from edgekit.intake.layout import delivered
from edgekit.quantize import weights
from edgekit.quantize.bias import Repair
from edgekit.quantize.candidate import Candidate, Held, candidate, with_best_weights
from edgekit.quantize.equalised import EXPONENTS, equalised, largest_by_channel, promising
from edgekit.quantize.holdout import FEWEST, hold_out
from edgekit.quantize.int8_file import Int8File
from edgekit.quantize.judge import Score
from edgekit.quantize.recipe import Corrections as Wanted
from edgekit.quantize.search import MIN_MAX, better
from edgekit.values import FloatModel

NO_CORRECTIONS = Wanted(bias="off", rounding="off", equalise="off")

Reader = Callable[[Sequence[int]], Iterable[Sample]]
"""The calibration samples at ascending positions, one after the other."""
Engine = Callable[[Path, Ranges], tuple[Path, tuple[Repair, ...]]]
"""Makes an int8 file of a float file and ranges."""


@dataclass(frozen=True)
class Ratios:
    """Int8 against float on the held-out samples, in dB: the ordinary ones, the rare ones, and the highest values of each channel."""

    ordinary_db: float
    rare_db: float
    peaks_db: float

    @classmethod
    def of(cls, score: Score) -> Ratios:
        """Rounded, for the record."""
        return cls(round(score.ordinary_db, 2), round(score.rare_db, 2), round(score.peaks_db, 2))


@dataclass(frozen=True)
class Trial:
    """One thing that was tried, and what came of it."""

    what: str
    ratios: Ratios


@dataclass(frozen=True)
class Corrections:
    """What was tried on the int8 file and what became of it. ``methods``: for each method the tensors that have their range by it.

    ``before`` is the file as the engine makes it from true extremes, ``after`` the one delivered, on ``judged`` held-out calibration
    samples, of which ``rare`` are rare; None where nothing was judged, with the reason in ``note``. ``equalised`` says what
    was equalised.
    """

    judged: int = 0
    rare: int = 0
    before: Ratios | None = None
    after: Ratios | None = None
    weights: str = weights.PLAIN
    equalised: tuple[str, ...] = ()
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Corrected:
    """What was done (None where nothing was to be), and the ranges that the file has now."""

    corrections: Corrections | None
    ranges: Ranges


def correct(
    model: FloatModel,
    int8_path: Path,
    ranges: Ranges,
    read: Reader,
    engine: Engine,
    wanted: Wanted,
    *,
    ranges_by: str,
    seed: int,
    threads: int,
    work: Path,
    alive: Callable[[], None] = lambda: None,
) -> Corrected:
    """Makes ``int8_path`` (rewritten in place), which has the true extremes as ranges, as good as ``wanted`` allows.

    ``ranges_by`` is "search", or one of :data:`edgekit.calibrate.clipping.METHODS` for every tensor.
    """
    parts = hold_out(ranges.extents, seed=seed)
    if parts is None:
        note = (
            f"{len(ranges.extents)} calibration samples: below {FEWEST} none can be held out, so nothing was corrected"
        )
        return Corrected(Corrections(note=note), ranges)
    positions = sorted({*parts.judging, *parts.correcting})
    samples = dict(zip(positions, read(positions), strict=True))
    inputs = {i: [delivered(s[spec.name], spec) for spec in model.inputs] for i, s in samples.items()}
    run = _Run(model, Held(parts, samples, inputs), read, engine, wanted, ranges_by, seed, threads, work, alive)
    start = candidate(model, int8_path, ranges, run.held, threads=threads)
    return run.to_the_best(start, int8_path)


@dataclass
class _Run:
    """The steps, and what they noted down."""

    model: FloatModel
    held: Held
    read: Reader
    engine: Engine
    wanted: Wanted
    ranges_by: str
    seed: int
    threads: int
    work: Path
    alive: Callable[[], None]
    trials: list[Trial] = field(default_factory=list)
    floor: Score = Score(0.0, 0.0, 0.0)
    changes: tuple[str, ...] = ()

    def to_the_best(self, start: Candidate, int8_path: Path) -> Corrected:
        """All steps in turn, each from the best so far; the result is at ``int8_path``."""
        first = start.search.whole(start.plain, MIN_MAX)
        self.floor = first.score
        best = self._weights_chosen(start, "")
        if self.wanted.equalise == "on" or (self.wanted.equalise == "auto" and promising(self.model.path)):
            best = self._equalised(best)
        if self.ranges_by == "search" and best.search.tries:
            floor = best.search.whole(best.file, MIN_MAX).score
            choice = best.search.each(best.file, best.choice, floor, alive=self.alive)
            self._note("ranges, tensor by tensor", choice.score)
            best = replace(best, choice=choice)
        final, by_tensor = best.final
        final.write(int8_path)
        return Corrected(self._record(best, final), replace(best.ranges, by_tensor=by_tensor))

    def _note(self, what: str, score: Score) -> None:
        self.trials.append(Trial(what, Ratios.of(score)))
        self.alive()

    def _weights_chosen(self, start: Candidate, prefix: str) -> Candidate:
        methods = list(METHODS) if self.ranges_by == "search" else [self.ranges_by]
        return with_best_weights(
            start,
            self._weight_files(start),
            self.floor,
            methods=methods,
            note=lambda what, score: self._note(prefix + what, score),
        )

    def _weight_files(self, start: Candidate) -> dict[str, Int8File]:
        """The file with each kind of weights that may be tried: the one alone that was asked for with "on"."""
        asked = {weights.FEEDBACK: self.wanted.rounding, weights.BIAS: self.wanted.bias}
        names = [name for name, how in asked.items() if how != "off"]
        if not names:
            return {weights.PLAIN: start.plain}
        made = weights.variants(
            start.plain, start.model.path, self.held.correcting, wanted=names, seed=self.seed, alive=self.alive
        )
        forced = next((name for name, how in asked.items() if how == "on"), None)
        return made if forced is None else {forced: made[forced]}

    def _equalised(self, best: Candidate) -> Candidate:
        """The best of the equalised forms where one is better than ``best``, which is not equalised."""
        inputs = self.held.correcting
        largest = largest_by_channel(self.model, inputs)
        forced = self.wanted.equalise == "on"
        for exponent in EXPONENTS if largest else ():
            path = self.work / f"equalised-{exponent}.tflite"
            made = equalised(self.model, largest, inputs[:4], exponent=exponent, to=path)
            if made is None:
                continue
            ranges = observe(
                made[0], self.read(range(best.ranges.count)), threads=self.threads, progress=lambda _: self.alive()
            )
            int8_path, _ = self.engine(path, ranges)
            other = candidate(made[0], int8_path, ranges, self.held, threads=self.threads)
            other = self._weights_chosen(other, f"equalised by {exponent}, ")
            if better(other.choice.score, best.choice.score, self.floor) or (forced and not self.changes):
                best, self.changes = other, made[1]
        return best

    def _record(self, best: Candidate, final: Int8File) -> Corrections:
        methods: dict[str, list[str]] = {}
        for group in best.search.groups:
            methods.setdefault(best.choice.methods[group.name], []).append(group.name)
        return Corrections(
            judged=len(self.held.parts.judging),
            rare=sum(self.held.parts.rare),
            before=Ratios.of(self.floor),
            after=Ratios.of(best.judge.score(final.content)),
            weights=best.weights,
            equalised=self.changes,
            methods={method: tuple(names) for method, names in sorted(methods.items())},
            trials=tuple(self.trials),
        )
