"""The range of each group of tensors, chosen by the error it causes at the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.calibrate.clipping import METHODS, Range
from edgekit.calibrate.histogram import Histogram
from edgekit.quantize.groups import Group, parameters
from edgekit.quantize.int8_file import Int8File
from edgekit.quantize.judge import Judge, Score

MIN_MAX, HEAD_ROOM = "min-max", "head-room"
TRIES = 64
"""So many times at most another method is tried for one group, from the input on: what goes wrong early goes wrong in all that follows."""
SEARCH_MACS = 60e9
"""So many multiply-accumulates at most for those tries together: a large network gets fewer of them. A count, so that the same inputs
give the same file on every machine."""
WORTHWHILE = 10
"""Fewer tries than this do not get far into a network, and none is made."""
PATIENCE = 16
"""So many tries without a gain end the search."""
GAIN_DB = 0.03
"""Less than this is noise of the few samples that judge."""
RARE_LOSS_DB = 0.5
"""How much worse rare inputs may become than with the true extremes of every tensor: rare is not unimportant."""
_ALIKE = 0.03
"""Ranges whose width differs by less than this are one."""


@dataclass(frozen=True)
class Choice:
    """The method of each group by its name, and the score with it."""

    methods: Mapping[str, str]
    score: Score


class Search:
    """Tries ranges on ``file`` as they follow from ``histograms`` (by group name), judged by ``judge``.

    The ranges of inputs stay the true extremes, and those of outputs are never narrower: what is clipped there is clipped for the user.
    ``tries`` bounds the search for single groups (:func:`affordable`).
    """

    def __init__(
        self, judge: Judge, groups: Sequence[Group], histograms: Mapping[str, Histogram], *, tries: int = TRIES
    ) -> None:
        self.judge = judge
        self.tries = tries
        self.groups = tuple(g for g in groups if not g.is_input and g.name in histograms)
        self._ranges = {group.name: _choices(group, histograms[group.name]) for group in self.groups}

    def whole(self, file: Int8File, method: str) -> Choice:
        """One method for every group."""
        methods = {group.name: allowed(group, method) for group in self.groups}
        return Choice(methods, self.judge.score(self.apply(file, methods).content))

    def apply(self, file: Int8File, methods: Mapping[str, str]) -> Int8File:
        """A copy of ``file`` with these methods' ranges."""
        changed = file.copy()
        for group in self.groups:
            limits = self._ranges[group.name][methods[group.name]]
            if changed.takes_range(group, limits):
                changed.set_range(group, limits)
        return changed

    def each(self, file: Int8File, start: Choice, floor: Score, *, alive: Callable[[], None] = lambda: None) -> Choice:
        """Other methods for one group after the other; what makes the outputs better stays. ``floor`` is the score of min-max."""
        current, working, idle = start, self.apply(file, start.methods), 0
        for group, method in self._candidates(start)[: self.tries]:
            limits = self._ranges[group.name][method]
            if idle == PATIENCE or not working.takes_range(group, limits):
                continue
            trial = working.copy()
            trial.set_range(group, limits)
            score = self.judge.score(trial.content)
            idle += 1
            if better(score, current.score, floor):
                current, working, idle = Choice({**current.methods, group.name: method}, score), trial, 0
            alive()
        return current

    def _candidates(self, start: Choice) -> list[tuple[Group, str]]:
        """Group and method in the order of the network behind the outputs, each range once."""
        found = []
        for group in sorted(self.groups, key=lambda group: not group.is_output):
            seen = [_width(self._ranges[group.name][start.methods[group.name]])]
            for method, limits in self._ranges[group.name].items():
                width = _width(limits)
                if all(abs(math.log(width / other)) > _ALIKE for other in seen):
                    seen.append(width)
                    found.append((group, method))
        return found


def affordable(macs: int | None, samples: int) -> int:
    """How many tries a network of ``macs`` multiply-accumulates (None: unknown) gets, each on so many samples; 0 for a large one."""
    tries = TRIES if not macs else min(TRIES, int(SEARCH_MACS // (macs * max(samples, 1))))
    return tries if tries >= WORTHWHILE else 0


def allowed(group: Group, method: str) -> str:
    """``method``, or for an output the true extremes in place of one that may cut them."""
    return method if not group.is_output or method == HEAD_ROOM else MIN_MAX


def _choices(group: Group, histogram: Histogram) -> dict[str, Range]:
    return {method: METHODS[method](histogram) for method in METHODS if allowed(group, method) == method}


def better(score: Score, than: Score, floor: Score) -> bool:
    """Whether a choice is kept: a gain on the whole, on both halves of the ordinary samples, and no loss of the rare ones."""
    if score.value < than.value + GAIN_DB or not spares_the_rare(score, floor):
        return False
    return all(now > before for now, before in zip(score.halves_db, than.halves_db, strict=True))


def spares_the_rare(score: Score, floor: Score) -> bool:
    """Whether peaks and rare inputs are as well off as with ``floor``; of a few samples, a mean loss that chance explains is none."""
    changes = [now - before for now, before in zip(score.each_rare_db, floor.each_rare_db, strict=True)]
    mean = sum(changes) / len(changes)
    if score.peaks_db < floor.peaks_db - RARE_LOSS_DB:
        return False
    if mean >= -RARE_LOSS_DB:
        return True
    spread = math.sqrt(sum((change - mean) ** 2 for change in changes) / max(len(changes) - 1, 1))
    return len(changes) > 1 and mean + spread / math.sqrt(len(changes)) > 0.0


def _width(limits: Range) -> float:
    return parameters(limits)[0]
