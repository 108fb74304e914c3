"""One way to the int8 file: a float form of the network, the file that the engine makes of it, and the best weights and ranges for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edgekit.calibrate.clipping import METHODS, Range
from edgekit.calibrate.histogram import Histogram
from edgekit.calibrate.ranges import Ranges, observe
from edgekit.calibrate.sources import Sample
from edgekit.intake import tflite
from edgekit.intake.macs_tflite import count_macs
from edgekit.quantize import weights
from edgekit.quantize.groups import Group, groups, histogram
from edgekit.quantize.holdout import Holdout
from edgekit.quantize.int8_file import Int8File
from edgekit.quantize.judge import Judge, Score, before_the_last
from edgekit.quantize.search import MIN_MAX, Choice, Search, affordable, spares_the_rare
from edgekit.values import FloatModel

SECOND = "percentile"
"""With true extremes all weights are judged, with these ranges the two best of them, with other methods the best only."""
FEW_METHODS = (MIN_MAX, SECOND, "mse")
"""What a network so large that no single range is searched for is tried with: the others were never the best for all tensors."""

Array = NDArray[Any]
Note = Callable[[str, Score], None]


@dataclass(frozen=True)
class Held:
    """The held-out samples of calibration data: as the source takes them and, in delivered layout, as the judge and the moments do."""

    parts: Holdout
    samples: Mapping[int, Sample]
    inputs: Mapping[int, Sequence[Array]]

    @property
    def correcting(self) -> list[Sequence[Array]]:
        """Inputs for weights and biases."""
        return [self.inputs[i] for i in self.parts.correcting]


@dataclass(frozen=True)
class Candidate:
    """A float form with its int8 file: plain, as the engine made it from the true extremes, and what was chosen for it so far."""

    model: FloatModel
    ranges: Ranges
    plain: Int8File
    judge: Judge
    search: Search
    whole: Mapping[str, Histogram]
    file: Int8File
    weights: str = weights.PLAIN
    choice: Choice = Choice({}, Score(0.0, 0.0, 0.0))

    @property
    def final(self) -> tuple[Int8File, dict[str, Range]]:
        """The file with the chosen methods applied to all samples, and the ranges by tensor."""
        final, by_tensor = self.file.copy(), dict(self.ranges.by_tensor)
        for group in self.search.groups:
            limits = METHODS[self.choice.methods[group.name]](self.whole[group.name])
            if final.takes_range(group, limits):
                final.set_range(group, limits)
                by_tensor.update({name: limits for name in group.names if name in by_tensor})
        return final, by_tensor


def candidate(model: FloatModel, int8_path: Path, ranges: Ranges, held: Held, *, threads: int) -> Candidate:
    """``int8_path`` as the engine made it from ``ranges``, ready for trials."""
    parts = held.parts
    unseen = observe(model, (held.samples[i] for i in parts.unseen), threads=threads)
    rest = {
        name: whole.minus(unseen.histograms[name]) if name in unseen.histograms else whole
        for name, whole in ranges.histograms.items()
    }
    int8 = tflite.read(int8_path)
    names = {tensor.name for tensor in tflite.graph(int8).tensors}
    watched = {position: name for position, name in before_the_last(model.path).items() if name in names}
    found = groups(int8, ranges.by_tensor)
    judge = Judge(model, [held.inputs[i] for i in parts.judging], parts.rare, watched=watched, threads=threads)
    plain = Int8File.open(int8_path, watched=tuple(watched.values()))
    tries = affordable(count_macs([tflite.graph(int8)]).total, len(parts.judging))
    search = Search(judge, found, _by_group(found, rest), tries=tries)
    return Candidate(model, ranges, plain, judge, search, _by_group(found, ranges.histograms), plain)


def _by_group(found: Sequence[Group], histograms: Mapping[str, Histogram]) -> dict[str, Histogram]:
    merged = {group.name: histogram(group, histograms) for group in found}
    return {name: h for name, h in merged.items() if h is not None}


def with_best_weights(
    start: Candidate,
    files: Mapping[str, Int8File],
    floor: Score,
    *,
    methods: Sequence[str],
    note: Note,
) -> Candidate:
    """The weights (of ``files``, by name), with one of ``methods`` for all ranges, that score best and spare the rare."""
    tried: dict[tuple[str, str], Choice] = {}

    def spared(name: str, score: Score) -> bool:
        true = tried.get((name, MIN_MAX))
        return spares_the_rare(score, floor) and (true is None or spares_the_rare(score, true.score))

    def attempt(name: str, method: str) -> None:
        if (name, method) not in tried:
            tried[name, method] = start.search.whole(files[name], method)
            note(f"{name} weights, {method} ranges", tried[name, method].score)

    def best() -> tuple[str, str]:
        allowed = {key: choice for key, choice in tried.items() if spared(key[0], choice.score)} or tried
        return max(allowed, key=lambda key: allowed[key].score.value)

    some = [m for m in methods if m in FEW_METHODS] if start.search.tries == 0 and len(methods) > 1 else list(methods)
    for name in files if MIN_MAX in some else ():
        attempt(name, MIN_MAX)
    best_first = sorted(files, key=lambda name: -tried[name, MIN_MAX].score.value if MIN_MAX in some else 0.0)
    for name in best_first[:2] if SECOND in some and len(some) > 1 else ():
        attempt(name, SECOND)
    for name in best_first if not tried else [best()[0]]:
        for method in some:
            attempt(name, method)
    chosen = best()
    return replace(start, file=files[chosen[0]], weights=chosen[0], choice=tried[chosen])
