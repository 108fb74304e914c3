"""docs/conformance.md out of the results of the conformance run."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

Records = Mapping[str, Mapping[str, Any]]

VERDICTS = ("delivered", "refused", "dead", "wrong")
TITLES = {"edgekit": "edgekit", "plain-2x": "onnx2tf 2.6.9 alone", "plain-1x": "onnx2tf 1.28.8 alone"}
_HEAD = """# Conformance: ONNX's own node tests

What becomes of the node tests of the `onnx` package (`onnx.backend.test`): each is imported as `edgekit convert` imports a model, and the
delivered float file is run by a judge that knows nothing of edgekit (`tools/conformance_judge.py`) and compared with the outputs that are
recorded in the test. A value is right within 1e-3 of itself plus 1e-4 of the largest in its output; integers and booleans are right
when equal, NaN and infinities where the test has the same. The same judge looks at what onnx2tf writes on its own. edgekit's files are
addressed by name and by the permutation that it declares; for the others, which declare nothing, every order of axes that fits is tried, and the
file counts as right when one of them is.

- **delivered**: a file, and it is right
- **refused**: no file, and the reason is said
- **dead**: a file, exit status 0, and no interpreter loads and runs it
- **wrong**: a file that runs and is not right

A single-operator test is harder than a real model in one way: weights, axes and sizes come as inputs, where a network has constants. What needs
them at conversion time is refused. Where only the size of a result depends on an input's value (the k of TopK, the condition of Compress), the
result is delivered in the size that the test declares for it. The delivered file neither cuts nor fills: where an input asks for another size it
stops with an error, or gives that size.

edgekit judges each file itself before it delivers it: on the test's own input, and on up to three more with the float values (and lists of
conditions) shuffled within each tensor. So a file that is right for the recorded input alone is refused.

The seconds are of workers that stay, on a busy machine, and edgekit's include every attempt that it made and its own comparison: they rank nothing.

Made by `tools/conformance.py` (`--judge edgekit`, `plain-2x`, `plain-1x`, then `--table`).
"""


def write_table(path: Path, cases: Sequence[Any], left_out: Mapping[str, int], results: Mapping[str, Records]) -> None:
    """The document from the results of each judge, by case name. Judges without results are left out; missing cases are counted."""
    judges = [judge for judge in TITLES if results.get(judge)]
    parts = [
        _HEAD,
        _setting(cases, left_out, results["edgekit"]),
        _totals(cases, judges, results),
        _reasons(results["edgekit"]),
        _only_others(judges, results),
        _operators(cases, judges, results),
    ]
    path.write_text("\n".join(parts))


def _setting(cases: Sequence[Any], left_out: Mapping[str, int], made: Records) -> str:
    names = ("onnx", "onnxruntime", "ai-edge-litert", "numpy")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    reasons = "; ".join(f"{count} with {reason}" for reason, count in sorted(left_out.items(), key=lambda i: -i[1]))
    commits = Counter(record.get("commit", "unknown") for record in made.values())
    made_at = ", ".join(f"{commit} ({count} tests)" for commit, count in commits.most_common())
    return (
        f"{len(cases)} tests are taken; left out are {sum(left_out.values())}: {reasons}.\n\n"
        f"Versions: {versions}; front ends onnx2tf 2.6.9 (direct) and 1.28.8 (through TensorFlow 2.21). "
        f"Machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, shared.\n\n"
        f"edgekit's results are of the commits {made_at}.\n"
    )


def _totals(cases: Sequence[Any], judges: Sequence[str], results: Mapping[str, Records]) -> str:
    lines = [
        "## Totals",
        "",
        f"| | {' | '.join(VERDICTS)} | not run | median s |",
        "|---|" + "---|" * (len(VERDICTS) + 2),
    ]
    for judge in judges:
        found = [results[judge][case.name] for case in cases if case.name in results[judge]]
        counts = Counter(record["verdict"] for record in found)
        median = statistics.median(record["seconds"] for record in found)
        numbers = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
        lines.append(f"| {TITLES[judge]} | {numbers} | {len(cases) - len(found)} | {median:.1f} |")
    routes = Counter(record["route"] for record in results["edgekit"].values() if record["verdict"] == "delivered")
    ways = "; ".join(f"{count} by {route}" for route, count in routes.most_common())
    return "\n".join([*lines, "", f"edgekit delivered {ways}.", ""])


def _reasons(records: Records) -> str:
    """Refusals by kind of reason, with the operators they hit most."""
    kinds: dict[str, Counter[str]] = {}
    for record in records.values():
        if record["verdict"] == "refused":
            kinds.setdefault(_kind(record), Counter())[record["operator"].removesuffix(" (expanded)")] += 1
    lines = ["## Why edgekit refused", "", "| reason | tests | operators |", "|---|---|---|"]
    for kind, operators in sorted(kinds.items(), key=lambda item: -item[1].total()):
        shown = ", ".join(f"{name} {count}" for name, count in operators.most_common(8))
        more = f" and {len(operators) - 8} more" if len(operators) > 8 else ""
        lines.append(f"| {kind} | {operators.total()} | {shown}{more} |")
    return "\n".join([*lines, ""])


_REMARKS = {
    "RoiAlign": "What onnx2tf writes agrees for boxes of a pixel or more inside the picture, the test's own among them. For a box of half a "
    "pixel it was off by 35 % of the largest value, and for one beyond the edge by 27 %: the rules of RoiAlign for both are missing. edgekit "
    "tries other boxes too, so it refuses.",
    "OneHot": "The number of classes is an input, so the size of the result is known at run time only. The file that onnx2tf 1.28.8 writes "
    "gives no shape at all for it, and a shape that is written into the graph makes that converter fail.",
}
"""Why edgekit refuses what another converter delivers, by operator; each was looked into by hand."""


def _only_others(judges: Sequence[str], results: Mapping[str, Records]) -> str:
    """The tests that a converter alone delivers and edgekit does not, with edgekit's reason."""
    others = [judge for judge in judges if judge != "edgekit"]
    lines = ["## What a converter alone delivers, and edgekit refuses", ""]
    operators = []
    for name, record in sorted(results["edgekit"].items()):
        by = [TITLES[j] for j in others if results[j].get(name, {}).get("verdict") == "delivered"]
        if record["verdict"] != "delivered" and by:
            lines.append(f"- `{name}` ({', '.join(by)}): {record['why']}")
            operators.append(record["operator"].removesuffix(" (expanded)"))
    if not operators:
        lines.append("Nothing.")
    lines += [f"\n{operator}: {_REMARKS[operator]}" for operator in dict.fromkeys(operators) if operator in _REMARKS]
    return "\n".join([*lines, ""])


def _kind(record: Mapping[str, Any]) -> str:
    code, why = record.get("code", ""), record["why"]
    if "not constant" in why or "requires_constant" in why or "must be constant" in why:
        return "weights, axes or sizes that are no constants"
    words = {
        "operator_unsupported": "no front end has TFLite operators for it",
        "reference_unloadable": "ONNX Runtime has no such operator, so there is no truth to compare with",
        "parity_failed": "converted, but not equal to the source",
        "delivered_dead": "converted, but no interpreter runs it",
        "conversion_failed": "the front ends failed",
        "data_invalid": "ONNX Runtime refuses the test's own input",
        "conversion_timeout": "a front end did not end in time",
    }
    return words.get(code, re.sub(r"[_-]", " ", code) or "other")


def _operators(cases: Sequence[Any], judges: Sequence[str], results: Mapping[str, Records]) -> str:
    rows: dict[str, dict[str, Counter[str]]] = {}
    sizes: Counter[str] = Counter()
    for case in cases:
        operator = case.operator.removesuffix(" (expanded)")
        sizes[operator] += 1
        for judge in judges:
            record = results[judge].get(case.name)
            counts = rows.setdefault(operator, {}).setdefault(judge, Counter())
            counts[record["verdict"] if record else "not run"] += 1
    lines = [
        "## By operator",
        "",
        "Delivered / refused / dead / wrong; tests of an operator's expanded definition are counted with it.",
        "",
        f"| operator | tests | {' | '.join(TITLES[judge] for judge in judges)} |",
        "|---|---|" + "---|" * len(judges),
    ]
    for operator in sorted(rows):
        cells = [" / ".join(str(rows[operator][judge][verdict]) for verdict in VERDICTS) for judge in judges]
        lines.append(f"| {operator} | {sizes[operator]} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
