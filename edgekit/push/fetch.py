"""Wheels for a board, fetched on the workstation by pip and kept: the board needs neither pip nor a way out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.push.wheels import WheelChoice

FETCH_TIMEOUT_S = 600.0
_OLDEST_GLIBC_MINOR = 5


def wheel_cache() -> Path:
    """Where fetched wheels are kept."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "edgekit" / "wheels"


def wheels_for(choice: WheelChoice, *, folder: Path | None = None) -> list[Path]:
    """The interpreter's wheel and, where there is one, numpy's.

    They come from ``folder`` when it is given (an offline workstation), else from the cache, else by pip from its index. Raises
    :class:`UsageError` (``wheel_missing``, ``wheel_not_fetched``) with what to do.
    """
    requirements = [choice.requirement, *([] if choice.numpy_from_system else [choice.numpy_requirement])]
    if folder is not None:
        return [_in_folder(requirement, choice, folder) for requirement in requirements]
    return [_cached(requirement, choice) or _fetched(requirement, choice) for requirement in requirements]


def fits(name: str, requirement: str, choice: WheelChoice) -> bool:
    """Whether a wheel's file name is that of ``requirement`` for the Python, machine and C library of ``choice``."""
    package, version = requirement.split("==")
    parts = name.removesuffix(".whl").split("-")
    if (
        not name.endswith(".whl")
        or len(parts) not in (5, 6)
        or _plain(parts[0]) != _plain(package)
        or parts[1] != version
    ):
        return False
    tag = f"cp{choice.python[0]}{choice.python[1]}"
    if parts[-3] != tag or parts[-2] not in (tag, "abi3"):
        return False
    return any(_platform_fits(platform, choice) for platform in parts[-1].split("."))


def _platform_fits(platform: str, choice: WheelChoice) -> bool:
    if platform == f"manylinux2014_{choice.machine}":
        return choice.glibc >= (2, 17)
    match = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{choice.machine}", platform)
    return match is not None and choice.glibc >= (int(match[1]), int(match[2]))


def _in_folder(requirement: str, choice: WheelChoice, folder: Path) -> Path:
    for path in sorted(folder.glob("*.whl")) if folder.is_dir() else []:
        if fits(path.name, requirement, choice):
            return path
    tag = f"cp{choice.python[0]}{choice.python[1]}"
    raise UsageError(
        f"{folder} holds no wheel of {requirement} for {tag} on {choice.machine} with glibc {choice.glibc[0]}.{choice.glibc[1]}",
        code="wheel_missing",
        hint=f"on a machine with a network: {' '.join(['pip', *_arguments(requirement, choice, str(folder))])}",
    )


def _cached(requirement: str, choice: WheelChoice) -> Path | None:
    found = [path for path in wheel_cache().glob("*.whl") if fits(path.name, requirement, choice)]
    return found[0] if found else None


def _fetched(requirement: str, choice: WheelChoice) -> Path:
    cache = wheel_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
            _pip(requirement, choice, scratch)
            wheels = [path for path in Path(scratch).glob("*.whl") if fits(path.name, requirement, choice)]
            if not wheels:
                raise _not_fetched(requirement, choice, "pip brought another file")
            return Path(shutil.move(wheels[0], cache / wheels[0].name))
    except OSError as error:
        raise UsageError(f"{cache} cannot be written: {error.strerror or error}", code="output_unwritable") from error


def _pip(requirement: str, choice: WheelChoice, folder: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *_arguments(requirement, choice, folder)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _not_fetched(requirement, choice, f"pip did not end within {FETCH_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line] or lines
        raise _not_fetched(requirement, choice, errors[-1].removeprefix("ERROR: ")[:300] if errors else "pip failed")


def _arguments(requirement: str, choice: WheelChoice, folder: str) -> list[str]:
    """``pip download`` for another machine: every platform tag that its glibc can load."""
    major, minor = choice.python
    platforms = [
        f"manylinux_2_{number}_{choice.machine}" for number in range(choice.glibc[1], _OLDEST_GLIBC_MINOR - 1, -1)
    ]
    platforms.append(f"manylinux2014_{choice.machine}")
    tags = [word for platform in platforms for word in ("--platform", platform)]
    python = ["--python-version", f"{major}.{minor}", "--implementation", "cp", "--abi", f"cp{major}{minor}"]
    return ["download", "--no-deps", "--only-binary=:all:", *python, *tags, "--dest", folder, requirement]


def _not_fetched(requirement: str, choice: WheelChoice, why: str) -> UsageError:
    return UsageError(
        f"{requirement} for Python {choice.python[0]}.{choice.python[1]} on {choice.machine} could not be fetched: {why}",
        code="wheel_not_fetched",
        hint="is this machine online? without a network: edgekit device prepare NAME --wheels DIR, with the wheels in DIR",
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
