"""The table of wheels against the names of the files that the package index has, as recorded in ``index_tags.txt``.

To record it anew: ``pip download -vvv --no-deps --platform manylinux2014_s390x --python-version 3.5 PACKAGE`` names every file that does
not fit; keep those of the versions in the table for CPython on Linux.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.push.fetch import fits, wheels_for
from edgekit.push.wheels import WHEELS, BoardFacts, choose_wheel

NAMES = (Path(__file__).parent / "index_tags.txt").read_text().split()
MACHINES, PYTHONS = ("aarch64", "x86_64", "armv7l"), [(3, minor) for minor in range(8, 15)]
GLIBCS = [(2, minor) for minor in (17, 26, 27, 28, 31, 33, 34, 35, 36, 41)]


def glibc_of(name: str) -> tuple[int, int]:
    """The oldest C library that a wheel's tags say it runs with."""
    tags = re.findall(r"manylinux_(\d+)_(\d+)", name)
    return min((int(major), int(minor)) for major, minor in tags) if tags else (2, 17)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_what_is_chosen_exists_and_runs_with_the_board_s_libc(machine: str, python: tuple[int, int]) -> None:
    for glibc in GLIBCS:
        try:
            choice = choose_wheel(BoardFacts(machine, 32 if machine == "armv7l" else 64, python, "glibc", glibc))
        except UsageError:
            continue
        wanted = [choice.requirement] + ([] if choice.numpy_from_system else [choice.numpy_requirement])
        for requirement in wanted:
            found = [name for name in NAMES if fits(name, requirement, choice)]
            assert found, f"{requirement} for {python} on {machine} with glibc {glibc}"
            assert all(glibc_of(name) <= glibc for name in found)
        assert choice.numpy_from_system == (machine == "armv7l")


def test_nothing_is_refused_that_the_index_has() -> None:
    """A refusal means that no interpreter of any version in the record fits the board."""
    for machine, python, glibc in itertools.product(MACHINES, PYTHONS, GLIBCS):
        try:
            choose_wheel(BoardFacts(machine, 32 if machine == "armv7l" else 64, python, "glibc", glibc))
        except UsageError:
            tag = f"-cp{python[0]}{python[1]}-"
            there = [n for n in NAMES if not n.startswith("numpy") and tag in n and n.endswith(f"_{machine}.whl")]
            assert all(glibc_of(name) > glibc for name in there), (machine, python, glibc, there)


def test_the_table_names_no_wheel_that_is_not_there() -> None:
    for wheel in WHEELS:
        for python, machine in itertools.product(wheel.pythons, wheel.machines):
            name = f"{wheel.package.replace('-', '_')}-{wheel.version}-cp{python[0]}{python[1]}-"
            files = [one for one in NAMES if one.startswith(name) and one.endswith(f"_{machine}.whl")]
            assert files and all(glibc_of(one) <= wheel.glibc for one in files)


def test_a_folder_of_wheels_serves_without_a_network(tmp_path: Path) -> None:
    choice = choose_wheel(BoardFacts("aarch64", 64, (3, 11), "glibc", (2, 36)))
    for name in NAMES:
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in wheels_for(choice, folder=tmp_path)] == [
        "ai_edge_litert-2.3.0-cp311-cp311-manylinux_2_27_aarch64.whl",
        "numpy-2.4.6-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    ]
    (tmp_path / "numpy-2.4.6-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl").unlink()
    with pytest.raises(UsageError) as caught:
        wheels_for(choice, folder=tmp_path)
    assert caught.value.code == "wheel_missing"
    assert "pip download" in caught.value.hint and "manylinux2014_aarch64" in caught.value.hint


def test_a_workstation_that_cannot_fetch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(UsageError) as caught:
        wheels_for(choose_wheel(BoardFacts("aarch64", 64, (3, 11), "glibc", (2, 36))))
    assert (caught.value.code, caught.value.exit_code) == ("wheel_not_fetched", 2)
    assert "--wheels DIR" in caught.value.hint
    assert not list(tmp_path.rglob("*.whl"))
