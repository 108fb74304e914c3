"""What can be said of a model within a second, before a converter has seen it: what certainly cannot work, and what may not.

A refusal here saves minutes of a converter's time and its unreadable last words. It must never hit a model that can be converted, so it
is for what no front end and no runtime has; everything else that has often gone wrong is a warning.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgekit.errors import UnsupportedModelError
from edgekit.intake.formats import detect_format, is_function


class Level(enum.Enum):
    """How serious a finding is: ``refuse`` certainly cannot work, ``warn`` often does not, ``note`` is good to know."""

    REFUSE = "refuse"
    WARN = "warn"
    NOTE = "note"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing found. ``code`` is the stable word for programs, ``operator`` the kind concerned ("" where it is none), ``nodes`` up to
    five of the ``count`` places by name, ``reason`` what is the matter, ``advice`` what to do."""

    level: Level
    code: str
    operator: str
    nodes: tuple[str, ...]
    count: int
    reason: str
    advice: str

    @property
    def sentence(self) -> str:
        """The finding in one line, places included."""
        where = f" at {', '.join(repr(name) for name in self.nodes)}" if self.nodes else ""
        more = f" and {self.count - len(self.nodes)} more" if self.nodes and self.count > len(self.nodes) else ""
        what = f"{self.operator}{where}{more}: " if self.operator else ""
        return f"{what}{self.reason}"


NAMED = 5
"""The most places that a finding names."""


def found(
    level: Level, code: str, reason: str, advice: str, *, operator: str = "", nodes: Sequence[str] = ()
) -> Finding:
    """A finding about ``nodes`` (all of them; the first few are kept by name)."""
    return Finding(level, code, operator, tuple(nodes[:NAMED]), len(nodes), reason, advice)


def preflight(path: str | Path) -> tuple[Finding, ...]:
    """All findings for the model at ``path``, the most serious first; none for what a function will make.

    Raises what the readers raise for a file that is no complete model. No weight of an external file is read.
    """
    kind = "" if is_function(Path(path)) else detect_format(path)
    findings: Iterable[Finding] = ()
    if kind == "onnx":
        from edgekit.intake.onnx_external import check_external_data
        from edgekit.intake.onnx_reader import read_onnx
        from edgekit.intake.preflight_onnx import onnx_findings

        model = read_onnx(path, external_data=False)
        external = sum(item.size_bytes for item in check_external_data(model, Path(path)))
        findings = onnx_findings(model, external_bytes=external)
    elif kind == "tflite":
        from edgekit.intake import tflite
        from edgekit.intake.preflight_tflite import tflite_findings

        findings = tflite_findings(tflite.read(path))
    elif kind in ("keras", "h5"):
        from edgekit.intake import preflight_keras

        findings = (preflight_keras.archive_findings if kind == "keras" else preflight_keras.hdf5_findings)(Path(path))
    elif kind == "savedmodel":
        from edgekit.intake.preflight_savedmodel import savedmodel_findings

        findings = savedmodel_findings(Path(path))
    elif kind == "pt2":
        from edgekit.intake.preflight_torch import program_findings

        findings = program_findings(Path(path))
    return in_order(findings)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The most serious first, otherwise as they come."""
    ranks = list(Level)
    return tuple(sorted(findings, key=lambda item: ranks.index(item.level)))


def require(findings: Sequence[Finding], path: Path) -> None:
    """Raises UnsupportedModelError (``preflight_refused``) with every refusal when there is one among ``findings``."""
    refused = [item for item in findings if item.level is Level.REFUSE]
    if not refused:
        return
    more = f" (and {len(refused) - 1} more such findings)" if len(refused) > 1 else ""
    raise UnsupportedModelError(
        f"{path.name} cannot be converted: {refused[0].sentence}{more}",
        hint="; ".join(dict.fromkeys(item.advice for item in refused)),
        code="preflight_refused",
        details={"findings": [as_details(item) for item in refused]},
    )


def as_details(finding: Finding) -> dict[str, object]:
    """The finding as JSON types."""
    return {**dataclasses.asdict(finding), "level": finding.level.value, "nodes": list(finding.nodes)}


def remarks(findings: Sequence[Finding]) -> tuple[str, ...]:
    """What a conversion that went well should still say: the warnings, each in a line."""
    return tuple(f"pre-flight: {item.sentence}; {item.advice}" for item in findings if item.level is Level.WARN)
