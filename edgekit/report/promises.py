"""What a run had to keep to be compared: enough data, the percentile that it was made for, a steady end, and a board of its own."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.report.folder import RunFolder, mapping, number
from edgekit.report.percentiles import MEDIAN_NEEDS, required_count
from edgekit.report.summary import MAIN, Sustained, Thermal, VariantSummary


def broken_promises(
    run: RunFolder, variants: Sequence[VariantSummary], thermal: Thermal, sustained: Sustained | None
) -> list[str]:
    """Why the run supports no verdict, as sentences; empty when it does."""
    return [*_too_little(run, variants), *_not_steady(run, sustained), *_company(run, variants, thermal)]


def _too_little(run: RunFolder, variants: Sequence[VariantSummary]) -> list[str]:
    found = [
        f"{variant.name}: {variant.count} steady inferences, a median needs {MEDIAN_NEEDS}; run longer"
        for variant in variants
        if variant.count < MEDIAN_NEEDS
    ]
    asked = number(run.request.get("percentile"))
    if asked is None or not 50.0 <= asked < 100.0:
        return found
    needs = required_count(asked)
    return found + [
        f"{variant.name}: p{asked:g} needs {needs} independent inferences, this run's are worth {variant.effective_count}"
        for variant in variants
        if variant.effective_count < needs
    ]


def _not_steady(run: RunFolder, sustained: Sustained | None) -> list[str]:
    """Only of a run that was to go on until it is steady."""
    if run.request.get("until_steady") is None or run.state != "done" or (sustained is not None and sustained.steady):
        return []
    capped = mapping(run.result.get("protocol")).get("ended_by") == "cap"
    when = "when its time was over" if capped else "at its end"
    why = "; ".join(sustained.unsteady) if sustained is not None else "it is too short to tell"
    return [f"the run was not steady {when}: {why}"]


def _company(run: RunFolder, variants: Sequence[VariantSummary], thermal: Thermal) -> list[str]:
    """Other processes beyond the request's limit, in cores."""
    limit, cores = number(run.request.get("max_other_load")), number(run.facts.get("cpu_count"))
    if limit is None or cores is None or thermal.busy_other_mean is None:
        return []
    busy = thermal.busy_other_mean * cores
    if busy <= limit:
        return []
    main = next((item for item in variants if item.name == MAIN), None)
    beside = "" if main is None or main.threads is None else f" beside the {main.threads} threads of the run"
    return [f"other processes kept {100 * busy:.0f} % of a core busy{beside}; the limit is {100 * limit:.0f} %"]
