"""What every front door gives: a source model that is checked, described, runnable in its own runtime, and convertible to float TFLite.

A door is opened by :func:`open_door`; the rest of the house knows no source format. Doors are context managers: some hold a worker.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from numpy.typing import NDArray

from edgekit.errors import UnsupportedModelError
from edgekit.intake.formats import FORMATS, detect_format, is_function
from edgekit.values import FloatModel, IoSpec, SourceModel

Sample = Mapping[str, NDArray[Any]]
"""Arrays by source name, in the source's own layout, with the batch axis."""


class Reference(Protocol):
    """The float truth: the source model in its own runtime. ``name`` says which, with its version."""

    name: str

    def run(self, sample: Sample, *, name: str = "a sample") -> dict[str, NDArray[Any]]:
        """All outputs for one sample, called ``name`` in messages. Raises DataError when the runtime refuses it."""
        ...


@dataclass(frozen=True)
class Delivered:
    """What a route made: the float model, the peak memory of the process that did it, and remarks for the report."""

    model: FloatModel
    peak_rss_bytes: int | None = None
    remarks: tuple[str, ...] = ()


class Route(Protocol):
    """One way from this source to float TFLite. Its result is judged by parity, not by what it says."""

    name: str

    def convert(
        self,
        samples: Sequence[Sample],
        references: Sequence[Sample],
        *,
        work: Path,
        timeout_s: float,
        tick: Callable[[], None],
    ) -> Delivered:
        """The float model in a new folder below ``work``; ``samples`` and the source's outputs for them decide the order of axes.

        Raises ConversionError when it cannot be made, or does not load and run.
        """
        ...


class Door(Protocol):
    """A source model. ``inputs`` are static; their delivered fields are those of the source until a route has run."""

    source: SourceModel
    inputs: tuple[IoSpec, ...]
    output_names: tuple[str, ...]
    frontends: tuple[str, ...]
    """Every front end that reads this format, installed or not."""

    def __enter__(self) -> Door: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def reference(self, *, threads: int) -> Reference:
        """The source in its own runtime."""
        ...

    def routes(self) -> Sequence[Route]:
        """The ways that can be gone on this machine, the best first. Raises FrontendMissingError when there is none."""
        ...


@dataclass(frozen=True)
class DoorOptions:
    """What the user said about the source, and where to work. ``frontend`` restricts the routes; ``signature`` chooses one of several."""

    work: Path
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    frontend: str | None = None
    signature: str | None = None
    timeout_s: float = 1800.0
    tick: Callable[[], None] = lambda: None


DOORS: Mapping[str, str] = {
    "onnx": "edgekit.intake.onnx",
    "keras": "edgekit.intake.keras",
    "h5": "edgekit.intake.keras",
    "savedmodel": "edgekit.intake.savedmodel",
    "tflite": "edgekit.intake.tflite_door",
    "pt2": "edgekit.intake.torch",
}
"""Format to the module whose ``open_model(path, options)`` opens it."""


def open_door(path: Path, options: DoorOptions) -> Door:
    """The door for the file or folder at ``path``, told by its content.

    Raises ModelFileError for what is no model, UnsupportedModelError for a format that this version does not convert, and what the
    door itself refuses.
    """
    kind = "pt2" if is_function(path) else detect_format(path)
    if kind not in DOORS:
        raise UnsupportedModelError(
            f"{path.name} is a {FORMATS.get(kind, kind)}, and this version converts {', '.join(DOORS)}",
            hint="export the network to ONNX (PyTorch: torch.onnx.export) and convert that",
        )
    door: Door = importlib.import_module(DOORS[kind]).open_model(path, options)
    return door
