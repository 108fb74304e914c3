"""Which interpreter can be installed on a board: decided from a table and the board's facts, never by trying.

The table says what exists as a wheel (Linux, CPython). Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.errors import UsageError

OLDEST_PYTHON = (3, 8)
"""What edgekit's own code needs on the board."""


@dataclass(frozen=True)
class BoardFacts:
    """What decides: ``machine`` as ``uname -m`` says it, ``userland_bits`` as ``getconf LONG_BIT`` does, the Python that is there, and
    the C library ("glibc" or "musl") with its version."""

    machine: str
    userland_bits: int
    python: tuple[int, int]
    libc: str = "glibc"
    libc_version: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Wheel:
    """An interpreter package for some Pythons, machines and C libraries. ``numpy`` is the bound that it was built against."""

    package: str
    version: str
    pythons: tuple[tuple[int, int], ...]
    machines: tuple[str, ...]
    glibc: tuple[int, int]
    numpy: str


@dataclass(frozen=True)
class WheelChoice:
    """What to install. ``numpy_from_system``: there is no numpy wheel for this machine, and the system's package serves."""

    package: str
    version: str
    numpy: str
    numpy_from_system: bool
    python: tuple[int, int] = (0, 0)
    machine: str = ""
    glibc: tuple[int, int] = (0, 0)
    """What the board has: wheels built for an older one do."""

    @property
    def numpy_requirement(self) -> str:
        """``"numpy==2.4.6"``"""
        return f"numpy=={(_NUMPY_BELOW_2 if '<2' in self.numpy else _NUMPY)[self.python]}"

    @property
    def requirement(self) -> str:
        """``"tflite-runtime==2.13.0"``"""
        return f"{self.package}=={self.version}"


_64_BIT = ("aarch64", "x86_64")
WHEELS = (
    Wheel("ai-edge-litert", "2.3.0", tuple((3, minor) for minor in range(10, 15)), _64_BIT, (2, 27), "numpy>=1.23.2"),
    Wheel("ai-edge-litert", "2.1.0", ((3, 9),), _64_BIT, (2, 27), "numpy>=1.23.2"),
    Wheel("tflite-runtime", "2.14.0", tuple((3, m) for m in range(8, 12)), ("aarch64", "armv7l"), (2, 34), "numpy<2"),
    Wheel("tflite-runtime", "2.14.0", tuple((3, m) for m in range(8, 12)), ("x86_64",), (2, 17), "numpy<2"),
    Wheel("tflite-runtime", "2.13.0", tuple((3, m) for m in range(8, 11)), (*_64_BIT, "armv7l"), (2, 17), "numpy<2"),
)
"""The best first."""
_NUMPY_WHEELS = _64_BIT
_NUMPY_BELOW_2 = {(3, 8): "1.24.4", (3, 9): "1.26.4", (3, 10): "1.26.4", (3, 11): "1.26.4"}
_NUMPY = {(3, 9): "2.0.2", (3, 10): "2.2.6", (3, 11): "2.4.6", (3, 12): "2.5.5", (3, 13): "2.5.5", (3, 14): "2.5.5"}
"""The newest numpy of each Python; none of them needs a newer glibc than the interpreter does."""


def choose_wheel(facts: BoardFacts) -> WheelChoice:
    """The interpreter for a board with these ``facts``.

    Raises UsageError (``no_wheel``) that names the one fact that stands in the way, with what would work; the fact is in ``details``.
    """
    machine = _userland(facts)
    if facts.python < OLDEST_PYTHON:
        raise _none(
            "python",
            f"Python {_dotted(facts.python)} is too old: {_dotted(OLDEST_PYTHON)} or later is needed",
            "install a newer one beside it (Ubuntu 18.04: sudo apt-get install python3.8), or a newer system",
        )
    if facts.libc != "glibc":
        raise _none(
            "libc",
            f"the C library is {facts.libc}, and every interpreter wheel is built for glibc",
            "use a system with glibc: Raspberry Pi OS, Debian, Ubuntu",
        )
    for_machine = [wheel for wheel in WHEELS if machine in wheel.machines]
    if not for_machine:
        known = sorted({name for wheel in WHEELS for name in wheel.machines})
        raise _none(
            "machine",
            f"there is no interpreter wheel for {machine}; there are some for {', '.join(known)}",
            "use a board with ARMv7 or later: Raspberry Pi 2 or later, Zero 2",
        )
    for_python = [wheel for wheel in for_machine if facts.python in wheel.pythons]
    if not for_python:
        pythons = sorted({version for wheel in for_machine for version in wheel.pythons})
        system = ", or a 64-bit system, which has them for later Pythons too" if machine == "armv7l" else ""
        raise _none(
            "python",
            f"on {machine} there is no interpreter wheel for Python {_dotted(facts.python)}; there are some for "
            f"{_dotted(pythons[0])} to {_dotted(pythons[-1])}",
            f"install one of those Pythons{system}",
        )
    for wheel in for_python:
        if facts.libc_version >= wheel.glibc:
            return WheelChoice(
                wheel.package,
                wheel.version,
                wheel.numpy,
                machine not in _NUMPY_WHEELS,
                python=facts.python,
                machine=machine,
                glibc=facts.libc_version,
            )
    lowest = min(wheel.glibc for wheel in for_python)
    raise _none(
        "libc",
        f"glibc {_dotted(facts.libc_version)} is too old: the wheels for Python {_dotted(facts.python)} on {machine} need "
        f"{_dotted(lowest)} or later",
        "use a newer release of the system",
    )


def _userland(facts: BoardFacts) -> str:
    """The machine that programs see: a 64-bit kernel may carry a 32-bit system, and then only 32-bit wheels load."""
    if facts.userland_bits == 32 and facts.machine in ("aarch64", "armv8l"):
        return "armv7l"
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(facts.machine, facts.machine)


def _none(fact: str, message: str, hint: str) -> UsageError:
    return UsageError(
        f"no interpreter can be installed on this board: {message}", hint=hint, code="no_wheel", details={"fact": fact}
    )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
