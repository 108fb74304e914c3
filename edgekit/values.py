"""The vocabulary: the nouns that travel between the rooms, frozen.

Every class turns into plain JSON with :func:`to_json` and back with its ``from_json``. Standard library and numpy only, Python 3.8:
the board reads the same manifest with the same classes.
"""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

SCHEMA = 1
"""Version of every JSON document that edgekit writes (manifest, run folder, ``--json``)."""


def to_json(value: Any) -> Any:
    """``value`` as plain JSON types: dataclasses become objects, enums their value, tuples lists, paths strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # numpy scalars
        return value.item()
    return value


@dataclasses.dataclass(frozen=True)
class QuantParams:
    """Per-tensor affine quantisation: ``real = scale * (integer - zero_point)``."""

    scale: float
    zero_point: int


@dataclasses.dataclass(frozen=True)
class IoSpec:
    """One input or output of a model, as its author knows it and as it is delivered.

    ``permutation`` (if any) leads from the source's axes to the delivered ones: ``delivered = source.transpose(permutation)``.
    ``layout`` says how the source's axes lie where that is known ("nchw", "nhwc", "" otherwise). ``quant`` is None where the delivered
    tensor is not quantised. ``meaning`` is a word for the reader: "image", "logits", "". ``slice_axis`` is the delivered axis whose slices
    are to be compared one by one, where that is known to be another than the shape suggests.
    """

    name: str
    source_shape: Tuple[int, ...]
    source_dtype: str
    tensor: str
    shape: Tuple[int, ...]
    dtype: str
    permutation: Optional[Tuple[int, ...]] = None
    layout: str = ""
    quant: Optional[QuantParams] = None
    meaning: str = ""
    slice_axis: Optional[int] = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IoSpec:
        """The inverse of :func:`to_json`."""
        quant = data.get("quant")
        slice_axis = data.get("slice_axis")
        permutation = data.get("permutation")
        return cls(
            name=data["name"],
            source_shape=tuple(data["source_shape"]),
            source_dtype=data["source_dtype"],
            tensor=data["tensor"],
            shape=tuple(data["shape"]),
            dtype=data["dtype"],
            permutation=None if permutation is None else tuple(permutation),
            layout=data.get("layout", ""),
            quant=None if quant is None else QuantParams(float(quant["scale"]), int(quant["zero_point"])),
            meaning=data.get("meaning", ""),
            slice_axis=None if slice_axis is None else int(slice_axis),
        )


@dataclasses.dataclass(frozen=True)
class Piece:
    """A step on the way from delivered outputs to one of the source's: what ``op`` makes of the pieces ``of``.

    ``op`` is "output" (the delivered output called ``name``), "concat" (along the axis ``numbers[0]``), "reshape" (to the shape
    ``numbers``), "transpose" (axes in the order ``numbers``) or "multiply" (by ``factor``, in float32).
    """

    op: str
    name: str = ""
    numbers: Tuple[int, ...] = ()
    of: Tuple[Piece, ...] = ()
    factor: float = 1.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Piece:
        """The inverse of :func:`to_json`."""
        return cls(
            op=str(data["op"]),
            name=str(data["name"]),
            numbers=tuple(int(number) for number in data["numbers"]),
            of=tuple(cls.from_json(item) for item in data["of"]),
            factor=float(data["factor"]),
        )


@dataclasses.dataclass(frozen=True)
class Joined:
    """An output of the source that is delivered in parts: ``output`` describes it as it is once joined, ``plan`` says how."""

    output: IoSpec
    plan: Piece

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Joined:
        """The inverse of :func:`to_json`."""
        return cls(IoSpec.from_json(data["output"]), Piece.from_json(data["plan"]))


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How a picture file becomes a model input; one spec for calibration, verification and the board.

    Order: decode to ``color``, ``resize`` with ``fit`` and ``filter``, centre ``crop``, then ``x = (pixel - mean) / std`` with pixels
    0..255. ``resize`` and ``crop`` are (height, width) in pixels or None; for ``fit="short-side"`` only ``resize[0]`` counts.
    ``mean`` and ``std`` have one value, or one for each channel.
    """

    resize: Optional[Tuple[int, int]] = None
    fit: str = "short-side"
    filter: str = "bilinear"
    crop: Optional[Tuple[int, int]] = None
    color: str = "rgb"
    mean: Tuple[float, ...] = (0.0,)
    std: Tuple[float, ...] = (1.0,)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preprocessing:
        """The inverse of :func:`to_json`."""

        def pair(value: Any) -> Optional[Tuple[int, int]]:
            return None if value is None else (int(value[0]), int(value[1]))

        return cls(
            resize=pair(data.get("resize")),
            fit=data.get("fit", "short-side"),
            filter=data.get("filter", "bilinear"),
            crop=pair(data.get("crop")),
            color=data.get("color", "rgb"),
            mean=tuple(float(v) for v in data.get("mean", (0.0,))),
            std=tuple(float(v) for v in data.get("std", (1.0,))),
        )


THROTTLE_BITS = ("under-voltage", "clock capped", "throttled", "soft temperature limit")
"""What the bits 0 to 3 of a Raspberry Pi's throttle word mean (raspberrypi/linux issue 2367; bit 3 since the 3B+)."""

STICKY_SHIFT = 16
"""The same meanings stand this many bits higher for "has happened"."""


@dataclasses.dataclass(frozen=True)
class ThrottleWord:
    """What a Raspberry Pi's firmware says about supply and heat: the lower half is now, the upper half what has happened before."""

    value: int

    @property
    def under_voltage(self) -> bool:
        """The supply is too low now. The clock is then lowered for that reason, whatever the other bits say."""
        return bool(self.value & 1)

    @property
    def live(self) -> Tuple[str, ...]:
        """What is so now."""
        return self._names(self.value)

    @property
    def since_boot(self) -> Tuple[str, ...]:
        """What has happened at some time since the firmware began to remember; it may be long over."""
        return self._names(self.value >> STICKY_SHIFT)

    def new_since(self, before: ThrottleWord) -> Tuple[str, ...]:
        """What this word remembers and ``before`` did not: it happened between the two."""
        return self._names((self.value & ~before.value) >> STICKY_SHIFT)

    def _names(self, bits: int) -> Tuple[str, ...]:
        return tuple(name for bit, name in enumerate(THROTTLE_BITS) if bits >> bit & 1)


@dataclasses.dataclass(frozen=True)
class SourceModel:
    """The file that the user came with. ``sha256`` is of the bytes as they were read."""

    path: Path
    format: str
    sha256: str
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class FloatModel:
    """The waist of the house: a float ``.tflite`` whose inputs and outputs are described in the source's words.

    ``outputs`` are those of the file. Where some of them are parts of an output of the source, ``joins`` has each output of the
    source, in its order, with the way to put it together again; otherwise ``joins`` is empty.
    """

    path: Path
    source: SourceModel
    inputs: Tuple[IoSpec, ...]
    outputs: Tuple[IoSpec, ...]
    frontend: str
    versions: Dict[str, str] = dataclasses.field(default_factory=dict)
    notes: Tuple[str, ...] = ()
    tensor_sources: Dict[str, str] = dataclasses.field(default_factory=dict)
    """Tensors that are known to be a value of the source: tensor to the source's name for it."""
    joins: Tuple[Joined, ...] = ()

    @property
    def answers(self) -> Tuple[IoSpec, ...]:
        """The outputs as the source has them: those of the file, put together where they are parts."""
        return tuple(joined.output for joined in self.joins) or self.outputs


class Verdict(enum.Enum):
    """What a gate may say."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True)
class GateResult:
    """One gate: what was measured, against what limit, and the sentence to show."""

    name: str
    verdict: Verdict
    measured: Optional[float]
    limit: Optional[float]
    message: str


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95
