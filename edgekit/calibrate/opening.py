"""The data that a conversion needs, opened and parted: what calibrates, what judges, and what parity runs on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgekit.calibrate.sources import DataOptions, Dataset, Sample, is_labelled, open_dataset
from edgekit.calibrate.split import Split, split, spread
from edgekit.calibrate.synthetic import SyntheticData
from edgekit.errors import DataError, UsageError
from edgekit.values import IoSpec
from edgekit.verify.parity import SAMPLES

if TYPE_CHECKING:
    from edgekit.quantize.recipe import Recipe


class Wanted(Protocol):
    """What a conversion says of its data; the fields of :class:`edgekit.flow.ConvertRequest`."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def data(self) -> str | None: ...
    @property
    def eval_data(self) -> str | None: ...
    @property
    def options(self) -> DataOptions: ...
    @property
    def eval_labels(self) -> str | None: ...
    @property
    def calibration_limit(self) -> int | None: ...
    @property
    def evaluation_limit(self) -> int | None: ...
    @property
    def seed(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class OpenData:
    """Two data sets (they may be one), and which of their samples are used for what."""

    calibration: Dataset
    evaluation: Dataset
    split: Split


def open_data(request: Wanted, inputs: Sequence[IoSpec]) -> OpenData:
    """The data of ``request`` for a model with ``inputs``. Labels belong to the data that judge, and those never calibrate.

    Where nothing is quantised all are for parity, made up if need be. Raises UsageError for options that contradict each other or the
    recipe, DataError for data that do not fit or leave nothing to judge.
    """
    if request.recipe.quantize is None:
        return _open_parity_data(request, inputs)
    if request.recipe.calibration is None:
        return _open_judging_data(request, inputs)
    if request.data is None:
        raise UsageError(
            f"recipe {request.recipe.name} calibrates, and no --data were given",
            hint="give --data DATA (a folder of images, a .npz, a .npy, or module:function), or stop at float with --recipe float32",
            code="data_missing",
        )
    if request.eval_data is not None and _same_place(request.data, request.eval_data):
        raise DataError(
            f"--data and --eval-data are the same, {request.data}: what calibrated cannot judge",
            hint="leave out --eval-data: the data are then split into two parts that share no sample",
            code="data_overlap",
        )
    plain = _without_labels(request.options)
    labelled = dataclasses.replace(plain, labels=request.eval_labels)
    if request.eval_data is None:
        calibration = evaluation = open_dataset(request.data, inputs, labelled)
    else:
        calibration = open_dataset(request.data, inputs, plain)
        evaluation = open_dataset(request.eval_data, inputs, labelled)
    chosen = split(
        count=len(calibration),
        evaluation_count=None if request.eval_data is None else len(evaluation),
        labelled=is_labelled(evaluation),
        calibration_limit=request.calibration_limit,
        evaluation_limit=request.evaluation_limit,
        seed=request.seed,
    )
    return OpenData(calibration, evaluation, chosen)


def _open_parity_data(request: Wanted, inputs: Sequence[IoSpec]) -> OpenData:
    """Inputs for parity alone: of ``--data``, or made up. Raises UsageError for options that nothing would use."""
    unused = {
        "--eval-data": request.eval_data,
        "--labels": request.eval_labels,
        "--calibration": request.calibration_limit,
        "--evaluation": request.evaluation_limit,
    }
    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise UsageError(
            f"recipe {request.recipe.name} stops at the float model: nothing is calibrated or judged with {', '.join(given)}",
            hint=f"leave out {', '.join(given)}, or choose another --recipe",
        )
    if request.data is None:
        dataset: Dataset = SyntheticData(inputs, seed=request.seed)
    else:
        dataset = open_dataset(request.data, inputs, _without_labels(request.options))
    chosen = spread(range(len(dataset)), SAMPLES, seed=request.seed)
    return OpenData(dataset, dataset, Split(chosen, chosen, request.seed, same_data=False))


def _open_judging_data(request: Wanted, inputs: Sequence[IoSpec]) -> OpenData:
    """Where nothing calibrates, all data judge: ``--eval-data``, or else ``--data``."""
    name, place = request.recipe.name, request.eval_data or request.data
    if request.calibration_limit is not None:
        raise UsageError(f"recipe {name} calibrates nothing with --calibration", hint="leave out --calibration")
    if place is None:
        raise UsageError(
            f"recipe {name} needs no calibration, but data to judge the result on, and none were given",
            hint="give --data DATA (a folder of images, a .npz, a .npy, or module:function)",
            code="data_missing",
        )
    plain = _without_labels(request.options)
    dataset = open_dataset(place, inputs, dataclasses.replace(plain, labels=request.eval_labels))
    chosen = split(
        count=len(dataset),
        evaluation_count=len(dataset),
        labelled=is_labelled(dataset),
        calibration_limit=None,
        evaluation_limit=request.evaluation_limit,
        seed=request.seed,
    )
    return OpenData(dataset, dataset, chosen)


def _same_place(one: str, other: str) -> bool:
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


def _without_labels(options: DataOptions) -> DataOptions:
    return dataclasses.replace(options, labels=None)


def require_class_names(names: Sequence[str], outputs: Sample) -> None:
    """Raises DataError when there are class names and not as many classes."""
    classes = {name: values.shape[1] for name, values in outputs.items() if values.ndim == 2}
    if names and len(classes) == 1 and len(names) not in classes.values():
        output, count = next(iter(classes.items()))
        raise DataError(
            f"--class-names holds {len(names)} names, and output {output!r} has {count} classes",
            hint="one name a line, in the order of the model's output",
        )
