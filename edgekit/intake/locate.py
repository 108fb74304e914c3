"""Where a conversion goes wrong, in the words of the source model: the first layer whose result differs, or that cannot be converted.

Values that differ: results of the delivered model that kept their names are compared with those of ONNX Runtime. What is left in doubt,
or all of it where names are lost, is narrowed down by converting again with some intermediate values as outputs. A front end that
fails: prefixes of the graph are converted, halving. Everything is bounded in conversions and in time and raises nothing.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import ConversionError, EdgekitError, ParityError
from edgekit.intake import tflite
from edgekit.intake.export_advice import advice_for
from edgekit.intake.layers import plain_value_names
from edgekit.intake.layout import delivered, permutations, permuted
from edgekit.intake.onnx_cut import Cuttable, NodeWords, words_of
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.measures import json_db, sqnr_db, words_db

if TYPE_CHECKING:
    from edgekit.intake.onnx import OnnxRoute

Sample = Mapping[str, NDArray[Any]]

CONVERSIONS = 8
SECONDS = 60.0
PROBES = 12
"""Intermediate values that one more conversion gives out."""
CLEARLY_WRONG_DB = 40.0
"""A fault in a layer is far below this; rounding in float32 far above."""
NAMED = 6
_NAMED = re.compile(r"""[='"`]([^\s'"`,;]+)""")
"""How front ends name a node in their last words: ``op=NAME``, ``'NAME'``."""


@dataclasses.dataclass(frozen=True)
class Parting:
    """The first place where source and conversion part.

    ``what`` is "differs" or "fails". ``nodes`` is one node, or those among which the culprit is (in order) where the search ended
    before. ``tensor`` is the first wrong value with its largest difference and its SQNR (None: exact), for "differs".
    """

    what: str
    nodes: tuple[NodeWords, ...]
    tensor: str | None
    max_abs_error: float | None
    sqnr_db: float | None
    conversions: int
    note: str = ""

    @property
    def sentence(self) -> str:
        """For the error's message."""
        first, last = self.nodes[0], self.nodes[-1]
        one = len(self.nodes) == 1
        where = (
            f"node {first.phrase}" if one else f"one of {len(self.nodes)} nodes from {first.phrase} to {last.phrase}"
        )
        if self.what == "fails":
            reads = f", which reads {', '.join(first.inputs)}" if one and first.inputs else ""
            return f"everything before {where} can be converted, and with it the conversion fails{reads}"
        off = "" if self.max_abs_error is None else f" by up to {self.max_abs_error:.3g} ({words_db(self.sqnr_db)})"
        return (
            f"the two part at {where}: value {self.tensor!r} differs{off}, and all that was compared before it is equal"
        )

    @property
    def advice(self) -> str:
        """What to change in the export."""
        known = dict.fromkeys(text for node in self.nodes[:3] if (text := advice_for(node.operator, node.attributes)))
        return "; ".join(known)

    def as_details(self) -> dict[str, Any]:
        """As JSON types, for the error's details."""
        return {
            "what": self.what,
            "nodes": [dataclasses.asdict(node) for node in self.nodes[:NAMED]],
            "node_count": len(self.nodes),
            "tensor": self.tensor,
            "max_abs_error": self.max_abs_error,
            "sqnr_db": self.sqnr_db,
            "conversions": self.conversions,
            "note": self.note,
        }


def locate(
    route: OnnxRoute,
    error: ConversionError,
    made: FloatModel | None,
    samples: Sequence[Sample],
    *,
    limit_db: float,
    work: Path,
    tick: Callable[[], None],
    seconds: float = SECONDS,
) -> Parting | None:
    """Where ``route`` went wrong; None when that cannot be found in :data:`CONVERSIONS` conversions and ``seconds``.

    ``made`` is what it delivered, if it did; ``error`` what was wrong with it. Never raises for what the model or the tools do.
    """
    if error.code in ("conversion_timeout", "frontend_broken") or seconds <= 0:
        return None
    try:
        search = _Search(route, samples[0], limit_db, work, tick, time.monotonic() + seconds)
        with search:
            return search.wrong_values(made, error) if isinstance(error, ParityError) else search.failure(error)
    except (EdgekitError, OSError, ValueError, KeyError, IndexError, RuntimeError, TypeError, MemoryError):
        return None  # the search is a courtesy: the first error stands without it


class _Search:
    def __init__(
        self, route: OnnxRoute, sample: Sample, limit_db: float, work: Path, tick: Callable[[], None], end_s: float
    ) -> None:
        from edgekit.intake.onnx_reader import read_onnx
        from edgekit.intake.session import Session

        self._route, self._sample, self._limit_db, self._end_s = route, sample, limit_db, end_s
        self._folder = work / f"locate-{route.frontend.name}"
        self._folder.mkdir()
        self._session = route.session or Session(route.frontend, self._folder, tick=tick)
        self._own_session = route.session is None
        self._tick = tick
        self._conversions = 0
        self._note = ""
        self._cut = Cuttable(read_onnx(route.onnx.copy))
        self._values = self._cut.all_values(sample, self._folder)
        self._equal: set[str] = set()
        self._wrong: dict[str, tuple[float, float]] = {}

    def __enter__(self) -> _Search:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own_session:
            self._session.close()

    # Values that differ.

    def wrong_values(self, made: FloatModel | None, error: ConversionError) -> Parting | None:
        named = str(error.details.get("name"))
        if made is None:
            for name in [named] if named in self._cut.outputs else self._cut.outputs:
                self._wrong[name] = (float("nan"), float("-inf"))
        for threshold in (CLEARLY_WRONG_DB, self._limit_db):
            if made is not None:
                self._compare_outputs(made, threshold)
                if self._wrong:
                    self._compare_named(made, threshold)
            if self._wrong:
                return self._narrowed(threshold)
        return None

    def _compare_outputs(self, made: FloatModel, threshold: float) -> None:
        for spec, got in zip(made.outputs, _run(made, self._sample), strict=True):
            if spec.name in self._values:
                self._note_value(spec.name, got, threshold)

    def _compare_named(self, made: FloatModel, threshold: float) -> None:
        """Values whose tensors kept their names. Without the delegate, since with it intermediate results are never written."""
        plain = plain_value_names(self._route.onnx)
        graph = tflite.graph(tflite.read(made.path))
        by_name = {tensor.name: tensor for tensor in graph.tensors if tensor.index in graph.producers()}
        with open_backend(made.path, delegate=False, preserve_all_tensors=True) as backend:
            for position, spec in enumerate(made.inputs):
                backend.set_input(position, delivered(self._sample[spec.name], spec))
            backend.invoke()
            for name in self._values:
                tensor = by_name.get(plain.get(name, name))
                if tensor is not None and name not in self._cut.inputs and name not in self._wrong:
                    self._note_value(name, backend.read_tensor(tensor.index), threshold, only_if_shapes_fit=True)
        self._drop_strays()

    def _drop_strays(self) -> None:
        """A value that differs while everything computed from it is equal is another value under the same name."""
        for name in list(self._wrong):
            if name in self._cut.outputs:
                continue
            above = [
                other
                for other in self._wrong
                if other != name and self._cut.producer[name] in self._cut.ancestors([other])
            ]
            if not above:
                del self._wrong[name]

    def _note_value(self, name: str, got: NDArray[Any], threshold: float, *, only_if_shapes_fit: bool = False) -> None:
        wanted = self._values[name]
        orders = permutations(wanted.shape, got.shape)
        if not orders:
            if not only_if_shapes_fit:
                self._wrong[name] = (float("nan"), float("-inf"))
            return
        ratio, off = max(
            (_difference(permuted(wanted, order, got.shape), got) for order in orders), key=lambda item: item[0]
        )
        if ratio >= threshold:
            self._equal.add(name)
            self._wrong.pop(name, None)
        else:
            self._wrong[name] = (off, ratio)

    def _first_wrong(self) -> str:
        return min(self._wrong, key=lambda name: self._cut.producer.get(name, -1))

    def _suspects(self) -> list[int]:
        """Nodes between the first wrong value and the equal ones before it."""
        first = self._first_wrong()
        return sorted(self._cut.ancestors([first]) - self._cut.ancestors(self._equal))

    def _narrowed(self, threshold: float) -> Parting | None:
        suspects = self._suspects()
        while len(suspects) > 1 and self._left():
            before = (self._first_wrong(), len(suspects))
            if not self._probe(suspects, threshold):
                break
            suspects = self._suspects()
            if (self._first_wrong(), len(suspects)) == before:
                break
        if not suspects:
            return None
        first = self._first_wrong()
        off, ratio = self._wrong[first]
        return self._parting("differs", suspects, first, None if np.isnan(off) else off, json_db(ratio))

    def _probe(self, suspects: Sequence[int], threshold: float) -> bool:
        """Converts again with some of the suspects' results as outputs; False when that fails or hides the fault."""
        first = self._first_wrong()
        results = [
            name
            for index in suspects
            for name in self._cut.nodes[index].output
            if name in self._values and name != first and name not in self._equal
        ]
        chosen = [results[round(i)] for i in np.linspace(0, len(results) - 1, min(PROBES, len(results)))]
        names = [*dict.fromkeys((*chosen, first))]
        try:
            made = self._convert(self._cut.with_outputs(names, self._values), names)
        except ParityError as error:  # an output's shape fits no order: that is the fault
            name = str(error.details.get("name"))
            if name not in names:
                return False
            self._wrong[name] = (float("nan"), float("-inf"))
            return True
        except ConversionError:
            return False
        known = dict(self._wrong)
        self._compare_outputs(made, threshold)
        if not self._wrong:
            self._wrong = known
            self._equal -= set(known)
            self._note = (
                "with the values in between as outputs the result is right: the front end merges these nodes wrongly"
            )
            return False
        return True

    # A front end that fails.

    def failure(self, error: ConversionError) -> Parting | None:
        low, high = 0, len(self._cut.nodes)  # prefixes of `low` nodes convert, those of `high` do not
        guess = self._named_in(error)
        while high - low > 1 and self._left():
            middle, guess = (guess if guess is not None and low < guess < high else (low + high) // 2), None
            if self._converts(middle):
                low = middle
                guess = middle + 1 if middle + 1 < high and self._named_in(error) == middle else None
            else:
                high = middle
        suspects = [index for index in range(low, high) if index in self._cut.live]
        return self._parting("fails", suspects, None, None, None) if suspects else None

    def _named_in(self, error: ConversionError) -> int | None:
        """The node that the front end's last words name, if they name one of the model's."""
        words = set(_NAMED.findall(f"{error.message} {str(error.details.get('trace', ''))[-2000:]}"))
        named = [index for index, node in enumerate(self._cut.nodes) if node.name and node.name in words]
        return named[0] if len(named) == 1 else None

    def _converts(self, count: int) -> bool:
        part = self._cut.prefix(count, self._values)
        if part is None:
            return True
        try:
            self._convert(part, [info.name for info in part.graph.output])
        except ParityError:
            return True  # wrong, but not what is looked for
        except ConversionError as error:
            if error.code == "conversion_timeout":
                raise
            return False
        return True

    # Both.

    def _left(self) -> bool:
        return self._conversions < CONVERSIONS and time.monotonic() < self._end_s

    def _convert(self, part: Any, names: Sequence[str]) -> FloatModel:
        import onnx

        from edgekit.intake.onnx import NOTHING_TO_REWRITE, prepare

        self._tick()
        self._conversions += 1
        work = self._folder / str(self._conversions)
        work.mkdir()
        path = work / "part.onnx"
        onnx.save(part, str(path))
        source = prepare(path, input_shapes={}, work=work)
        sample = {spec.name: self._sample[spec.name] for spec in source.inputs}
        outputs = {name: self._values[name] for name in names}
        route = dataclasses.replace(self._route, onnx=source, session=self._session)
        try:
            return self._by_route(route, sample, outputs)
        except ConversionError as error:
            if error.code != NOTHING_TO_REWRITE:
                raise
        return self._by_route(dataclasses.replace(route, digested=False), sample, outputs)

    def _by_route(self, route: OnnxRoute, sample: Sample, outputs: Sample) -> FloatModel:
        left_s = max(self._end_s - time.monotonic(), 1.0)
        work = self._folder / str(self._conversions)
        return route.convert([sample], [outputs], work=work, timeout_s=left_s, tick=self._tick).model

    def _parting(
        self, what: str, suspects: Sequence[int], tensor: str | None, off: float | None, ratio: float | None
    ) -> Parting:
        nodes = tuple(words_of(self._cut.nodes[index], self._values) for index in suspects)
        return Parting(what, nodes, tensor, off, ratio, self._conversions, self._note)


def _run(made: FloatModel, sample: Sample) -> list[NDArray[Any]]:
    with open_backend(made.path) as backend:
        for position, spec in enumerate(made.inputs):
            backend.set_input(position, delivered(sample[spec.name], spec))
        backend.invoke()
        return [backend.get_output(position) for position in range(len(made.outputs))]


def _difference(wanted: NDArray[Any], got: NDArray[Any]) -> tuple[float, float]:
    """SQNR and largest absolute difference; places where both are the same infinity or NaN do not count."""
    one, other = np.asarray(wanted, np.float64), np.asarray(got, np.float64)
    same = np.isnan(one) & np.isnan(other) | (one == other)
    one, other = np.where(same, 0.0, one), np.where(same, 0.0, other)
    with np.errstate(invalid="ignore"):
        off = np.abs(one - other)
    signal = np.where(np.isfinite(wanted.astype(np.float64)), wanted.astype(np.float64), 0.0)
    ratio = sqnr_db(signal, np.where(same, signal, other))
    return ratio, float(np.nanmax(off)) if off.size else 0.0
