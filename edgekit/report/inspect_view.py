"""What ``edgekit inspect`` found, as one offline page: the same facts as on the terminal, and every operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.report.page import Banner, Bar, Grid, Section, facts_grid, render
from edgekit.report.quantity import size_text
from edgekit.report.write import write_text

_LONGEST_LIST = 2000
_HOLDERS = 12
_WORDS = {"refuse": "cannot be converted", "warn": "may go wrong", "note": "note"}
_MARKS = {"refuse": "bad", "warn": "warn", "note": ""}


@dataclass(frozen=True)
class InspectPage:
    """The page's parts, in order."""

    title: str
    subtitle: str
    banner: Banner | None
    sections: tuple[Section, ...]


def write_inspection(inspection: Mapping[str, Any], out: Path) -> None:
    """Writes the page of an inspection (as JSON types) to ``out``. Raises OutputError when it cannot be written."""
    page = inspect_page(inspection)
    write_text(Path(out), render("inspect.html.j2", title=page.title, page=page))


def inspect_page(inspection: Mapping[str, Any]) -> InspectPage:
    """The page of an inspection as ``edgekit inspect --json`` gives it."""
    sections = (
        _facts(inspection),
        _findings(inspection["findings"]),
        _ends(inspection),
        _kinds(inspection),
        _memory(inspection["arena"]),
        _runtimes(inspection["runtimes"], inspection["interpreter"]),
        _operators(inspection["costs"]),
    )
    refused = [item for item in inspection["findings"] if item["level"] == "refuse"]
    return InspectPage(
        title=Path(inspection["path"]).name,
        subtitle=f"{inspection['format']}, {size_text(inspection['size_bytes'])}, sha256 {inspection['sha256'][:16]}",
        banner=Banner("bad", "This model cannot be converted", tuple(_sentence(item) for item in refused))
        if refused
        else None,
        sections=tuple(section for section in sections if section is not None),
    )


def _facts(inspection: Mapping[str, Any]) -> Section:
    macs = inspection["macs"]
    counted = f"{macs['total']:,}" if macs["total"] is not None else f"unknown; at least {macs['counted']:,}"
    pairs = [(str(key), str(value)) for key, value in inspection["facts"].items()]
    pairs += [("parameters", f"{inspection['weights']['parameters']:,}"), ("MACs of one run", counted)]
    if inspection["full_integer"] is not None:
        pairs.append(("full integer", "yes" if inspection["full_integer"] else "no"))
    pairs += [("note", note) for note in inspection["notes"]]
    return Section("facts", "The file", grids=(facts_grid(pairs),))


def _findings(findings: Sequence[Mapping[str, Any]]) -> Section:
    if not findings:
        return Section("findings", "Pre-flight", ("Nothing that is known to stand in the way of a conversion.",))
    rows = tuple((_WORDS[item["level"]], _sentence(item), item["advice"]) for item in findings)
    marks = tuple(_MARKS[item["level"]] for item in findings)
    return Section("findings", "Pre-flight", grids=(Grid(("", "what", "what to do"), rows, marks=marks),))


def _sentence(finding: Mapping[str, Any]) -> str:
    places = ", ".join(finding["nodes"])
    more = f" and {finding['count'] - len(finding['nodes'])} more" if finding["count"] > len(finding["nodes"]) else ""
    what = f"{finding['operator']}{f' at {places}{more}' if places else ''}: " if finding["operator"] else ""
    return f"{what}{finding['reason']}"


def _ends(inspection: Mapping[str, Any]) -> Section:
    rows = []
    for word, key in (("input", "inputs"), ("output", "outputs")):
        for tensor in inspection[key]:
            quant = tensor["quant"]
            scale = "" if quant is None or quant["scale"] is None else f"{quant['scale']:.6g}, {quant['zero_point']}"
            shape = "unknown" if tensor["shape"] is None else "x".join(map(str, tensor["shape"])) or "scalar"
            rows.append((word, tensor["name"], shape, tensor["dtype"], scale))
    return Section(
        "ends", "Inputs and outputs", grids=(Grid(("", "name", "shape", "type", "scale, zero point"), tuple(rows)),)
    )


def _kinds(inspection: Mapping[str, Any]) -> Section:
    kinds = inspection["costs_by_kind"]
    largest = max((kind["moved_bytes"] or 0 for kind in kinds), default=0) or 1
    bars = tuple(
        Bar(kind["operator"], f"{_number(kind['moved_bytes'])} bytes moved", (kind["moved_bytes"] or 0) / largest)
        for kind in kinds[:_HOLDERS]
    )
    rows = tuple(
        (kind["operator"], str(kind["count"]), _number(kind["macs"]), _number(kind["moved_bytes"]), _ratio(kind))
        for kind in kinds
    )
    headers = ("operator", "count", "MACs", "bytes moved", "MACs per byte")
    text = "Bytes moved: inputs, weights and outputs, each once. Few MACs per byte: the operator waits for memory."
    return Section(
        "kinds", "What the operators cost", (text,), bars=bars, grids=(Grid(headers, rows, frozenset((1, 2, 3, 4))),)
    )


def _memory(arena: Mapping[str, Any] | None) -> Section | None:
    if arena is None:
        return None
    text = (
        f"At most {arena['peak_bytes']:,} bytes of activations are alive at once, while {arena['operator']} {arena['index']} writes "
        f"{arena['tensor']!r}. Packed as the interpreter packs them, the whole graph takes {arena['planned_bytes']:,} bytes. "
        "A delegate keeps memory of its own beside it."
    )
    bars = tuple(
        Bar(
            holder["tensor"],
            f"{holder['size_bytes']:,} bytes, {holder['producer']}",
            holder["size_bytes"] / arena["peak_bytes"],
        )
        for holder in arena["holders"][:_HOLDERS]
    )
    return Section("memory", "Who holds the memory at its peak", (text,), bars=bars)


def _runtimes(asked: Mapping[str, Any] | None, ran: Mapping[str, Any] | None) -> Section | None:
    if asked is None:
        return None
    rows = []
    for fit in asked["runtimes"]:
        lacks = ", ".join(f"{item['operator']} version {item['version']}" for item in fit["missing"]) or fit["obstacle"]
        rows.append((fit["name"], "lacks something" if lacks else "can run it", lacks))
    if ran is not None:
        name = f"{ran['interpreter'] or 'the interpreter'} {ran['version'] or ''}".strip()
        rows.append((f"{name}, here", "ran it" if ran["ok"] else "failed", ran["failure"]))
    marks = tuple("bad" if row[2] else "" for row in rows)
    wanted = f"The file itself asks for TensorFlow {asked['declared']} or newer." if asked["declared"] else ""
    text = "By the versions of its operators, asked of each runtime; the last line is a run on this machine."
    paragraphs = tuple(item for item in (wanted, text) if item)
    return Section(
        "runtimes", "Runtimes", paragraphs, grids=(Grid(("runtime", "", "what it lacks"), tuple(rows), marks=marks),)
    )


def _operators(costs: Sequence[Mapping[str, Any]]) -> Section:
    rows = tuple(
        (
            str(cost["index"]),
            cost["operator"],
            cost["name"],
            _number(cost["macs"]),
            _number(cost["moved_bytes"]),
            _ratio(cost),
        )
        for cost in costs[:_LONGEST_LIST]
    )
    text = (
        (f"The first {_LONGEST_LIST} of {len(costs)}; all of them with --json.",) if len(costs) > _LONGEST_LIST else ()
    )
    headers = ("", "operator", "result", "MACs", "bytes moved", "MACs per byte")
    return Section("operators", "Every operator, in order", text, grids=(Grid(headers, rows, frozenset((0, 3, 4, 5))),))


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _ratio(cost: Mapping[str, Any]) -> str:
    macs, moved = cost["macs"], cost["moved_bytes"]
    return f"{macs / moved:.1f}" if macs and moved else ""
