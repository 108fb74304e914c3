"""O19: which interpreter a board can have is decided from its facts; where there is none, the one fact in the way is named."""

from __future__ import annotations

import itertools

import pytest

from edgekit.errors import UsageError
from edgekit.push.wheels import WHEELS, BoardFacts, choose_wheel


@pytest.mark.parametrize(
    ("facts", "requirement", "numpy_from_system"),
    [
        (BoardFacts("aarch64", 64, (3, 11), "glibc", (2, 36)), "ai-edge-litert==2.3.0", False),
        (BoardFacts("aarch64", 64, (3, 13), "glibc", (2, 41)), "ai-edge-litert==2.3.0", False),
        (BoardFacts("aarch64", 64, (3, 9), "glibc", (2, 31)), "ai-edge-litert==2.1.0", False),
        (BoardFacts("aarch64", 64, (3, 8), "glibc", (2, 31)), "tflite-runtime==2.13.0", False),
        (BoardFacts("armv7l", 32, (3, 9), "glibc", (2, 31)), "tflite-runtime==2.13.0", True),
        (BoardFacts("armv7l", 32, (3, 11), "glibc", (2, 36)), "tflite-runtime==2.14.0", True),
        # a 64-bit kernel under a 32-bit system
        (BoardFacts("aarch64", 32, (3, 11), "glibc", (2, 36)), "tflite-runtime==2.14.0", True),
    ],
)
def test_a_package_by_name_and_version(facts: BoardFacts, requirement: str, numpy_from_system: bool) -> None:
    chosen = choose_wheel(facts)
    assert (chosen.requirement, chosen.numpy_from_system) == (requirement, numpy_from_system)
    assert (chosen.numpy == "numpy<2") == (chosen.package == "tflite-runtime")


@pytest.mark.parametrize(
    ("facts", "fact", "word", "way_on"),
    [
        (BoardFacts("armv6l", 32, (3, 11), "glibc", (2, 36)), "machine", "armv6l", "ARMv7"),
        (BoardFacts("aarch64", 64, (3, 6), "glibc", (2, 27)), "python", "Python 3.6", "python3.8"),
        (BoardFacts("aarch64", 64, (3, 12), "musl", (1, 2)), "libc", "musl", "glibc"),
        (BoardFacts("armv7l", 32, (3, 13), "glibc", (2, 41)), "python", "Python 3.13", "64-bit system"),
        (BoardFacts("aarch64", 32, (3, 12), "glibc", (2, 39)), "python", "armv7l", "64-bit system"),
        (BoardFacts("aarch64", 64, (3, 11), "glibc", (2, 24)), "libc", "glibc 2.24", "newer release"),
        (BoardFacts("riscv64", 64, (3, 12), "glibc", (2, 39)), "machine", "riscv64", "ARMv7"),
    ],
)
def test_a_refusal_names_the_one_fact(facts: BoardFacts, fact: str, word: str, way_on: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_wheel(facts)
    assert (caught.value.code, caught.value.details["fact"]) == ("no_wheel", fact)
    assert word in caught.value.message
    assert way_on in caught.value.hint


def test_every_board_gets_an_answer() -> None:
    """All combinations: a wheel of the table that fits each fact, or a refusal."""
    machines = ("aarch64", "armv7l", "armv6l", "x86_64")
    pythons = [(3, minor) for minor in range(6, 16)]
    for machine, bits, python, libc, version in itertools.product(
        machines, (32, 64), pythons, ("glibc", "musl"), ((2, 17), (2, 27), (2, 31), (2, 34), (2, 41))
    ):
        try:
            chosen = choose_wheel(BoardFacts(machine, bits, python, libc, version))
        except UsageError as error:
            assert error.details["fact"] in ("machine", "python", "libc")
            assert error.hint
            continue
        wheel = next(
            item
            for item in WHEELS
            if (item.package, item.version) == (chosen.package, chosen.version) and chosen.machine in item.machines
        )
        assert python in wheel.pythons and version >= wheel.glibc and libc == "glibc"
        assert not (chosen.package == "ai-edge-litert" and bits == 32 and machine == "aarch64")
