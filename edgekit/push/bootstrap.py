"""A board made ready: interpreter and numpy put there as wheels and unpacked, and a real inference that proves it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from edgekit.errors import EdgekitError, JobError, UsageError
from edgekit.push.contact import Agent, no_python
from edgekit.push.facts import Facts, Python, gather
from edgekit.push.fetch import wheels_for
from edgekit.push.store import Content, Progress, as_request, ask_with_files, content, send_missing
from edgekit.push.wheels import WheelChoice, choose_wheel

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A board that runs models: with which Python and packages, and what the proving inference said.

    ``environment`` is the hash of what was unpacked, "" where the board's own packages serve.
    """

    device: str
    python: str
    python_version: str
    packages: tuple[str, ...]
    environment: str
    sent_bytes: int
    proof: dict[str, Any]
    note: str


def prepare(
    agent: Agent, *, wheels: Path | None = None, progress: Progress | None = None, say: Say = lambda _: None
) -> Prepared:
    """Makes the board behind ``agent`` run models, and proves it there; done at once where it does already.

    ``wheels`` is a folder with the wheels, for a workstation without a network. Raises :class:`UsageError` (``no_wheel``) that names
    the one fact in the way, :class:`JobError` (``no_python``, ``numpy_missing``, ``disk_full``, ``proof_failed``), and as
    :func:`edgekit.push.fetch.wheels_for` does.
    """
    say("asking the board what it is")
    facts = gather(agent.link, home=agent.home)
    if facts.python is None:
        raise _too_old(facts)
    if facts.python.ready:
        say("it has an interpreter already; proving it")
        proof, sent = _prove(agent.with_python(facts.python.path), environment=None, progress=progress)
        packages = tuple(f"{name} {version}" for name, version in facts.python.packages.items())
        return _prepared(facts, facts.python, packages, "", sent, proof)
    python, choice = _choose(facts)
    if choice.numpy_from_system and "numpy" not in python.packages:
        raise JobError(
            f"there is no numpy wheel for {choice.machine}, and {python.path} on {facts.name} has no numpy",
            code="numpy_missing",
            hint="on the board: sudo apt-get install python3-numpy, then run it again",
        )
    say(f"fetching {choice.requirement} for Python {python.version[0]}.{python.version[1]} on {choice.machine}")
    files = [content(path) for path in wheels_for(choice, folder=wheels)]
    there = agent.with_python(python.path)
    name, sent = _unpacked(there, files, say, progress)
    say("running a model there")
    proof, more = _prove(there, environment=there.path("env", name), progress=progress)
    there.ask("environment_use", {"hash": name})
    return _prepared(facts, python, tuple(_package(file) for file in files), name, sent + more, proof)


def purge(agent: Agent) -> bool:
    """Ends the benchmarks on the board and removes edgekit's folder there; False when there was none."""
    if not agent.link.exists(agent.home):
        return False
    try:
        agent.ask("purge")
    except JobError as error:
        if error.code not in ("no_python", "disk_full"):
            raise
        agent.link.run(["rm", "-rf", "--", agent.home], timeout_s=60.0, idempotent=True)
    return True


def _unpacked(agent: Agent, files: list[Content], say: Say, progress: Progress | None) -> tuple[str, int]:
    """The hash of the environment made of ``files``, and the bytes that travelled."""
    digest = hashlib.sha256("".join(sorted(file.sha256 for file in files)).encode())
    name = digest.hexdigest()[:16]
    request = {"hash": name, "wheels": [{"name": file.name, **file.as_json()} for file in files]}
    say(f"sending what is missing of {sum(file.size_bytes for file in files) / 1e6:.1f} MB, and unpacking it there")
    answer, sent = ask_with_files(agent, "environment_install", request, files, progress=progress)
    if answer["state"] == "missing":
        raise JobError(f"the wheels on {agent.link.name} do not stay as they were sent", code="bytes_altered")
    return name, sent


def _prove(agent: Agent, *, environment: str | None, progress: Progress | None) -> tuple[dict[str, Any], int]:
    """One real inference of a small int8 network with a known answer; raises :class:`JobError` (``proof_failed``)."""
    with resources.as_file(resources.files("edgekit.push").joinpath("proof")) as folder:
        files = [content(folder / name) for name in ("model.tflite", "manifest.json", "golden.npz")]
        there = agent.ask("contact", {"wanted": [file.as_json() for file in files]})
        sent = send_missing(agent, files, there["missing"], free_bytes=there["free_bytes"], progress=progress)
        try:
            answer = agent.ask("health", {"files": as_request(files), "environment": environment})
        except EdgekitError as error:
            raise _unproved(agent, error) from error
    report: dict[str, Any] = answer["health"]
    if not report["passed"]:
        raise JobError(
            f"the interpreter on {agent.link.name} answers wrongly: {'; '.join(report['reasons'])}", code="proof_failed"
        )
    return report, sent


def _unproved(agent: Agent, error: EdgekitError) -> EdgekitError:
    said = " ".join([error.message, *error.details.get("log_tail", [])])
    if "libstdc++" in said:
        hint = "on the board: sudo apt-get install libstdc++6"
    elif "Illegal instruction" in said or "SIGILL" in said:
        hint = "this interpreter is built for a newer CPU than the board's"
    else:
        hint = error.hint
    return JobError(
        f"no model can be run on {agent.link.name} yet: {error.message}",
        code="proof_failed",
        hint=hint,
        details=error.details,
    )


def _choose(facts: Facts) -> tuple[Python, WheelChoice]:
    """The newest of the board's Pythons that there are wheels for; else the refusal that the newest of all gets."""
    refusal: UsageError | None = None
    usable = sorted((one for one in facts.pythons if one.usable), key=lambda one: one.version, reverse=True)
    for python in sorted(usable, key=lambda one: one != facts.python):
        try:
            return python, choose_wheel(facts.for_wheels(python))
        except UsageError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _too_old(facts: Facts) -> EdgekitError:
    """Which package brings a Python that does."""
    if not facts.pythons:
        return no_python(facts.name)
    newest = max(facts.pythons, key=lambda one: one.version)
    try:
        choose_wheel(facts.for_wheels(newest))
    except UsageError as error:
        error.message = f"{facts.name}: {error.message}"
        return error
    raise AssertionError("a Python that is too old has no wheel")


def _prepared(
    facts: Facts, python: Python, packages: tuple[str, ...], environment: str, sent: int, proof: dict[str, Any]
) -> Prepared:
    version = ".".join(map(str, python.version))
    return Prepared(facts.name, python.path, version, packages, environment, sent, proof, facts.note)


def _package(file: Content) -> str:
    return " ".join(file.name.split("-")[:2])
