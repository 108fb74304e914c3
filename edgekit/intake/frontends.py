"""Front ends: converter environments of their own, made once under the user's cache and found again.

Converters pin exact versions that conflict with each other and with the rest of edgekit, so each lives in a virtual environment
made from a requirements file of this package. A front end that is importable in edgekit's own environment is used too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from edgekit.errors import FrontendMissingError, OutputError, UsageError
from edgekit.resources import did_you_mean

REQUIREMENTS = Path(__file__).parent / "requirements"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class FrontendKind:
    """What a front end needs and what it costs to have (sizes measured on x86-64 Linux)."""

    name: str
    purpose: str
    minimum_python: tuple[int, int]
    maximum_python: tuple[int, int]
    size_mb: int
    proof: str
    """Distribution whose version tells that the environment is the right one."""
    proof_version: str
    brings: tuple[str, ...]
    """Distributions that must all be importable before edgekit's own environment counts as this front end."""

    @property
    def requirements(self) -> Path:
        """The pinned requirements file kept in the package."""
        return REQUIREMENTS / f"{self.name}.txt"

    def fits(self, version: tuple[int, int]) -> bool:
        """Whether a Python of this version can hold the front end."""
        return self.minimum_python <= version <= self.maximum_python


KINDS = {
    kind.name: kind
    for kind in (
        FrontendKind(
            "onnx2tf",
            "ONNX, first choice: no TensorFlow",
            (3, 12),
            (3, 13),
            660,
            "onnx2tf",
            "2.6.9",
            ("onnx2tf", "onnxsim"),
        ),
        FrontendKind(
            "tensorflow",
            "Keras files, SavedModels; ONNX, second route",
            (3, 11),
            (3, 13),
            2700,
            "onnx2tf",
            "1.28.8",
            ("onnx2tf", "tensorflow", "tf-keras", "onnx-graphsurgeon", "sng4onnx", "psutil"),
        ),
        FrontendKind(
            "torch",
            "PyTorch programs and modules; several GB where pip finds a CUDA build (see --index-url)",
            (3, 11),
            (3, 13),
            1000,
            "torch",
            "2.13.0",
            ("torch", "onnx", "onnxscript"),
        ),
    )
}
"""Every front end, in the order in which they are tried for ONNX."""


@dataclass(frozen=True)
class Frontend:
    """An installed front end: the interpreter to start its worker with."""

    kind: FrontendKind
    python: Path
    folder: Path | None
    """Its environment; None where edgekit's own environment serves."""

    @property
    def name(self) -> str:
        """The name as used on the command line."""
        return self.kind.name


def home() -> Path:
    """Where environments live: ``$XDG_CACHE_HOME/edgekit/frontends``, by default under ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "edgekit" / "frontends"


def kind_named(name: str) -> FrontendKind:
    """The kind of that name. Raises UsageError with the known names."""
    if name not in KINDS:
        raise UsageError(
            f"there is no front end named {name!r}",
            hint=f"{did_you_mean(name, KINDS)} known front ends: {', '.join(KINDS)}".strip(),
            code="frontend_unknown",
        )
    return KINDS[name]


def installed() -> list[Frontend]:
    """The front ends that can be used now, in order of preference."""
    return [found for kind in KINDS.values() if (found := find(kind)) is not None]


def find(kind: FrontendKind) -> Frontend | None:
    """The front end of this kind, or None: its own environment first, then edgekit's."""
    folder = home() / folder_name(kind)
    python = folder / "bin" / "python"
    if (folder / "ready.json").is_file() and python.exists():
        return Frontend(kind, python, folder)
    if kind.fits((sys.version_info.major, sys.version_info.minor)) and _importable_here(kind):
        return Frontend(kind, Path(sys.executable), None)
    return None


def folder_name(kind: FrontendKind) -> str:
    """Name and a digest of the pins: new pins make a new environment, an old one is never half changed."""
    return f"{kind.name}-{hashlib.sha256(kind.requirements.read_bytes()).hexdigest()[:12]}"


def _importable_here(kind: FrontendKind) -> bool:
    try:
        return metadata.version(kind.proof) == kind.proof_version and all(
            metadata.version(name) for name in kind.brings
        )
    except metadata.PackageNotFoundError:
        return False


def require(names: Sequence[str]) -> list[Frontend]:
    """Those of ``names`` that are installed, in that order. Raises FrontendMissingError when none is."""
    found = [frontend for name in names if (frontend := find(kind_named(name))) is not None]
    if found:
        return found
    choices = [KINDS[name] for name in names if pythons_for(KINDS[name])] or [KINDS[name] for name in names]
    first = choices[0]
    offered = "; or ".join(f"edgekit frontend add {kind.name} (about {kind.size_mb} MB)" for kind in choices)
    raise FrontendMissingError(
        f"no front end that reads this kind of model is installed (looked for {', '.join(names)} in {home()})",
        hint=f"type: {offered}",
        details={"wanted": list(names), "first_choice": first.name, "size_mb": first.size_mb},
    )


def pythons_for(kind: FrontendKind) -> list[Path]:
    """Interpreters on this machine that can hold the front end and really run, the newest first.

    Looks at edgekit's own interpreter, the path, and the versions folder of pyenv, whose shims on the path may fail.
    """
    names = [f"python{major}.{minor}" for major, minor in _versions(kind)]
    candidates = [Path(sys.executable)] if kind.fits((sys.version_info.major, sys.version_info.minor)) else []
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for name in names:
        candidates += [Path(found)] if (found := shutil.which(name)) else []
        candidates += sorted(pyenv.glob(f"{name[6:]}.*/bin/python3"), reverse=True)
    working = []
    for candidate in candidates:
        version = _version_of(candidate)
        if version is not None and kind.fits(version) and candidate not in working:
            working.append(candidate)
    return working


def _versions(kind: FrontendKind) -> list[tuple[int, int]]:
    return [(3, minor) for minor in range(kind.maximum_python[1], kind.minimum_python[1] - 1, -1)]


def _version_of(python: Path) -> tuple[int, int] | None:
    """(major, minor) as the interpreter itself says, or None when it does not run or cannot make environments."""
    script = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([str(python), "-c", script], capture_output=True, text=True, timeout=30, check=True)
        major, minor = answer.stdout.split()
        return int(major), int(minor)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def add(
    name: str, *, python: Path | None = None, index_url: str | None = None, progress: Progress = lambda _: None
) -> Frontend:
    """Install the front end ``name`` with pip into an environment of its own; done at once if it is there.

    Raises UsageError when no suitable Python is found, OutputError when the installation fails (nothing is left behind).
    """
    kind = kind_named(name)
    ready = find(kind)
    if ready is not None and ready.folder is not None:
        return ready
    interpreter = _chosen_python(kind, python)
    try:
        home().mkdir(parents=True, exist_ok=True)
        with (home() / f"{kind.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another call may be at it: wait, and find its result
            ready = find(kind)
            if ready is None or ready.folder is None:
                ready = _install(kind, interpreter, index_url, progress)
        return ready
    except (OSError, subprocess.CalledProcessError) as error:
        log = _log(kind)
        last = "\n".join(log.read_text(errors="replace").splitlines()[-5:]) if log.exists() else ""
        raise OutputError(
            f"the front end {kind.name} could not be installed: {error}\n{last}".rstrip(),
            hint=f"read {log}; pip's own settings (index, proxy) apply; then type: edgekit frontend add {kind.name}",
            code="frontend_install_failed",
        ) from error


def _install(kind: FrontendKind, interpreter: Path, index_url: str | None, progress: Progress) -> Frontend:
    target, log = home() / folder_name(kind), _log(kind)
    progress(f"making an environment for {kind.name} with {interpreter} (about {kind.size_mb} MB; log: {log})")
    shutil.rmtree(target, ignore_errors=True)
    try:
        with log.open("w") as output:
            _logged([str(interpreter), "-m", "venv", str(target)], output=output)
            pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
            progress(f"installing {kind.name}")
            index = ["--extra-index-url", index_url] if index_url else []
            _logged([*pip, *index, "-r", str(kind.requirements)], output=output)
        (target / "ready.json").write_text(json.dumps({"name": kind.name, "python": str(interpreter)}))
    except BaseException:  # an interrupted installation must not look like a finished one, nor keep gigabytes
        shutil.rmtree(target, ignore_errors=True)
        raise
    return Frontend(kind, target / "bin" / "python", target)


def _log(kind: FrontendKind) -> Path:
    return home() / f"{kind.name}-install.log"


def _chosen_python(kind: FrontendKind, python: Path | None) -> Path:
    low, high = (".".join(map(str, version)) for version in (kind.minimum_python, kind.maximum_python))
    if python is not None:
        version = _version_of(python)
        if version is None or not kind.fits(version):
            said = "does not run or has no venv module" if version is None else f"is Python {version[0]}.{version[1]}"
            raise UsageError(
                f"the front end {kind.name} needs Python {low} to {high}, and {python} {said}",
                hint="give another one with --python PATH",
                code="python_unsuitable",
            )
        return python
    found = pythons_for(kind)
    if not found:
        raise UsageError(
            f"the front end {kind.name} needs Python {low} to {high}, and none was found on the path or under ~/.pyenv/versions",
            hint=f"install one (Debian, Ubuntu: apt-get install python3-venv), or give it with --python PATH; "
            f"{'with Python 3.11 use: edgekit frontend add tensorflow' if kind.name == 'onnx2tf' else ''}".rstrip("; "),
            code="python_unsuitable",
        )
    return found[0]


def _logged(command: Sequence[str], *, output: object) -> None:
    environment = {**os.environ, "PYTHONNOUSERSITE": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=True, env=environment)  # type: ignore[call-overload]


def remove(name: str) -> bool:
    """Delete the front end's environments (of every set of pins). Returns whether there was one."""
    kind = kind_named(name)
    folders = [path for path in home().glob(f"{kind.name}-*") if path.is_dir()]
    for folder in folders:
        (folder / "ready.json").unlink(missing_ok=True)
        shutil.rmtree(folder)
    return bool(folders)
