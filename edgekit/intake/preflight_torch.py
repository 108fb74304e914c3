"""The PyTorch part of :mod:`edgekit.intake.preflight`: a ``.pt2`` archive is whole, holds no machine code, and what its graph calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.errors import ModelFileError, UnsupportedModelError
from edgekit.intake.archives import corrupt, read_json, require_sound_archive
from edgekit.intake.formats import require_file
from edgekit.intake.preflight import Finding, Level, found

_COMPILED = "data/aotinductor/"
_PROGRAMS = ("models/model.json", "serialized_exported_program.json")
_OWN = ("aten", "prims", "prim", "higher_order", "quantized_decomposed")
_LOOPS = ("cond", "while_loop", "map_impl", "map", "scan", "associative_scan")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell")


def require_program(path: Path) -> dict[str, Any]:
    """The program's description, out of a sound archive.

    Raises ModelFileError for what is no such archive, UnsupportedModelError for one with compiled code: PyTorch would run it.
    """
    names = require_sound_archive(require_file(path))
    compiled = [name for name in names if _COMPILED in name]
    if compiled:
        raise UnsupportedModelError(
            f"{path.name}: it holds machine code that would run when it is opened, and edgekit does not run it: {compiled[0]}",
            hint="save the program itself: torch.export.save(torch.export.export(model, inputs), 'model.pt2')",
            code="model_unsafe",
            details={"members": compiled[:20]},
        )
    programs = [name for name in names if name.endswith(_PROGRAMS)]
    if not programs:
        raise ModelFileError(f"{path.name}: the archive holds no exported program", code="not_a_model")
    return read_json(path, programs[0])


def program_findings(path: Path) -> Iterator[Finding]:
    """Findings for a ``.pt2`` file. Raises what :func:`require_program` raises, and ModelFileError where it describes no graph."""
    called: dict[str, list[str]] = {}
    for node in _nodes(path, require_program(path)):
        called.setdefault(str(node.get("target", "")), []).append(str(node.get("name") or ""))
    for target, names in called.items():
        parts = target.split(".")
        if parts[:2] != ["torch", "ops"] or len(parts) < 4:
            continue
        named = [name for name in names if name]
        if parts[2] not in _OWN:
            reason = "an operator that is not PyTorch's own: its code is not in the file"
            yield found(Level.WARN, "operator_custom", reason, "export without it", operator=target, nodes=named)
        elif parts[3] in _LOOPS:
            reason = "control flow: no integer kernels, and boards' delegates stop there"
            advice = "unroll it, or export one branch"
            yield found(Level.WARN, "operator_difficult", reason, advice, operator=target, nodes=named)
        elif parts[3] in _RECURRENT:
            reason = (
                "recurrent layer: written out step by step, and its states share scales that rarely fit both in int8"
            )
            advice = "give states as inputs and outputs, and look at the worst slice of every state in the report"
            yield found(Level.WARN, "recurrent", reason, advice, operator=target, nodes=named)
        elif parts[3].endswith("3d"):
            reason = "volumes have five axes: TFLite's kernels for them are float only, and delegates leave them out"
            yield found(Level.WARN, "rank_high", reason, "work on slices", operator=target, nodes=named)


def _nodes(path: Path, program: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        nodes = program["graph_module"]["graph"]["nodes"]
    except (KeyError, TypeError):
        nodes = None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise corrupt(path, "its program has no graph")
    return nodes
