"""A bundle's model on data: agreement and accuracy measured anew, and the gates judged on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.bundle.check import delivered_file, float_model, load_manifest
from edgekit.bundle.rebuild import rebuild
from edgekit.calibrate.fingerprint import Fingerprint
from edgekit.calibrate.sources import DataOptions, open_dataset
from edgekit.errors import UsageError
from edgekit.quantize.audit import audit
from edgekit.quantize.contract import contract, weight_types
from edgekit.quantize.recipe import FloatGates, Recipe
from edgekit.quantize.soundness import unsound
from edgekit.values import GateResult, Preprocessing
from edgekit.verify import gates
from edgekit.verify.accuracy import Evaluation, evaluate, task


@dataclass(frozen=True)
class Measured:
    """``same_data``: the inputs are those that the bundle was judged on, bit for bit, as far as that is on record."""

    source: str
    count: int
    digest: str
    same_data: bool
    evaluation: Evaluation
    gates: tuple[GateResult, ...]
    passed: bool


def measure(
    bundle: Path,
    *,
    data: str,
    labels: str | None = None,
    metric: str | None = None,
    decode: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Measured:
    """The quantised model of ``bundle`` against its float model on all of ``data``, fed as the manifest says.

    Raises UsageError for a bundle in which nothing is quantised, DataError for data that do not fit.
    """
    document = load_manifest(bundle)
    recipe = rebuild(Recipe, document["recipe"])
    if recipe.quantize is None or isinstance(recipe.gates, FloatGates):
        raise UsageError("nothing is quantised in this bundle: there is no loss to measure", hint="leave out --data")
    model, path, said = float_model(bundle, document), delivered_file(bundle, document), document["request"]
    preprocessing = document["preprocessing"]
    options = DataOptions(
        preprocessing=None if preprocessing is None else Preprocessing.from_json(preprocessing),
        raw_pixel_arrays=said["raw_pixel_arrays"],
        layout=said["layout"],
        labels=labels,
        metric=metric,
    )
    dataset = open_dataset(data, model.inputs, options)
    indices, fingerprint = range(len(dataset)), Fingerprint()
    found = evaluate(
        model,
        path,
        fingerprint.over(dataset.iterate()),
        task=task(model, dataset, indices, metric=metric, decode=decode or said["decode"]),
        source=dataset.source,
        seed=said["seed"],
        progress=progress,
    )
    verdicts = gates.judge(
        recipe.gates, audit(path), found, contract(recipe.quantize), weight_types(path), unsound(path)
    )
    same = fingerprint.digest == (document["verification"].get("judged_on") or {}).get("digest")
    passed = gates.all_passed(verdicts, allow_undecided=said["allow_undecided"])
    return Measured(dataset.source, len(dataset), fingerprint.digest, same, found, verdicts, passed)
