"""A bundle on a board as a release: checked there before it is switched to, and put back when its app does not come up."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import edgekit
from edgekit.agent.signature import SIGNATURE_FILE
from edgekit.errors import JobError, ModelFileError, UsageError
from edgekit.push.contact import Agent
from edgekit.push.sign import verify_bundle
from edgekit.push.store import Content, Progress, as_request, ask_with_files, content, send_missing
from edgekit.runtime.flatbuffer import check_model_file
from edgekit.runtime.naming import MANIFEST_FILE, MODEL_FILE, read_bundle

SHIPPED = (MODEL_FILE, MANIFEST_FILE, "golden.npz", "labels.txt", SIGNATURE_FILE)
"""What of a bundle a board gets, where it is there."""


@dataclasses.dataclass(frozen=True)
class Pushed:
    """What became of a push or rollback.

    ``state`` is "done", "unchanged" or "failed"; ``stage`` says where it failed ("health" or "restart"). ``release`` is what is
    current on the board now. ``sent_bytes`` travelled. ``notes`` are sentences for the reader.
    """

    device: str
    app: str
    state: str
    release: str | None
    before: str | None = None
    stage: str = ""
    sent_bytes: int = 0
    health: dict[str, Any] | None = None
    restart: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the board has what was asked for."""
        return self.state != "failed"

    @property
    def reasons(self) -> list[str]:
        """Why it failed."""
        if self.stage == "health":
            return list((self.health or {}).get("reasons", []))
        return [self.restart["message"]] if self.stage == "restart" and self.restart else []


def app_name(bundle: Path) -> str:
    """What an app is called when nobody says: the bundle's own name."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "_", bundle.resolve().name.removesuffix(".bundle")).strip("._-")
    return word or "model"


def shipped_files(bundle: Path) -> list[Content]:
    """The files of a bundle that go to a board.

    Raises :class:`ModelFileError` when it is no bundle, was rejected by a gate, or holds other bytes than its manifest says.
    """
    read_bundle(bundle)
    manifest = json.loads((bundle / MANIFEST_FILE).read_text(encoding="utf-8"))
    files = [content(bundle / name) for name in SHIPPED if (bundle / name).is_file()]
    for file in files:
        said = manifest["files"].get(file.name, {}).get("sha256")
        if said is not None and said != file.sha256:
            raise ModelFileError(
                f"{file.path} has sha256 {file.sha256[:12]}..., its manifest says {said[:12]}...",
                code="bundle_damaged",
                hint="convert the model again",
            )
    check_model_file(bundle / MODEL_FILE)
    return files


def required_of(device: str) -> str:
    """The public key that the user asks for on this board; "" for none."""
    from edgekit.link.boards import LOCAL, find_board

    return "" if device == LOCAL else str(find_board(device).settings.get("require_signed", ""))


def push_bundle(
    agent: Agent,
    bundle: Path,
    *,
    app: str | None = None,
    restart: str | None = None,
    restart_timeout_s: float = 30.0,
    max_latency_ms: float | None = None,
    require_signed: str = "",
    again: bool = False,
    progress: Progress | None = None,
) -> Pushed:
    """Makes ``bundle`` the current release of ``app`` on a board.

    What is there already is not sent; what was sent in part is continued. The release is checked on the board (every file's hash, the
    golden pairs, latency up to ``max_latency_ms``) before the switch, ``restart`` is run after it, and anything that fails leaves, or
    puts back, the earlier release. ``require_signed`` is the public key that must have signed the bundle; the board may ask for one
    itself. The release that is current already is left alone unless ``again``.

    Raises :class:`UsageError` for a bundle or signature that does not hold, :class:`JobError` when the board cannot (``no_python``,
    ``interpreter_missing``, ``disk_full``, ``home_read_only``, ``push_busy``), :class:`LinkError` when it cannot be reached.
    """
    files = shipped_files(bundle)
    name = _checked_app(app or app_name(bundle))
    if require_signed:
        verify_bundle(bundle, require_signed)
    there = agent.ask("contact", {"app": name, "wanted": [file.as_json() for file in files]})
    key = there["require_signed"] or require_signed
    if key and key != require_signed:
        verify_bundle(bundle, key)
    notes = _mended(agent, there, name)
    if there["app"]["files"] == as_request(files) and not there["missing"] and not again:
        current = there["app"]["current"]
        return Pushed(agent.link.name, name, "unchanged", current, before=current, notes=tuple(notes))
    sent = send_missing(agent, files, there["missing"], free_bytes=there["free_bytes"], progress=progress)
    request = {
        "app": name,
        "files": as_request(files),
        "restart": restart,
        "restart_timeout_s": restart_timeout_s,
        "max_latency_ms": max_latency_ms,
        "require_signed": key,
        "again": again,
        "about": {
            "bundle": bundle.resolve().name,
            "edgekit": edgekit.__version__,
            "pushed_utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        },
    }
    answer, again_sent = ask_with_files(agent, "install", request, files, progress=progress)
    return _outcome(agent, name, answer, sent + again_sent, notes)


def roll_back(agent: Agent, *, app: str | None = None, to: str | None = None) -> Pushed:
    """Goes back to the release that was current before, or to the one called ``to``. ``app`` may be left out where there is only one.

    Raises :class:`UsageError` (``release_missing``, ``app_missing``) when there is none, and as :func:`push_bundle` does.
    """
    name = _checked_app(app) if app else _only_app(agent)
    there = agent.ask("contact", {"app": name})
    notes = _mended(agent, there, name)
    return _outcome(agent, name, agent.ask("roll_back", {"app": name, "to": to}), 0, notes)


def _mended(agent: Agent, there: dict[str, Any], app: str) -> list[str]:
    """Repairs a switch that was cut in between; what to tell about it."""
    if not there["app"]["pending"]:
        return []
    answer = agent.ask("repair", {"app": app})
    there["app"].update(agent.ask("contact", {"app": app})["app"])
    return _said_of_repair(answer)


def _said_of_repair(answer: dict[str, Any]) -> list[str]:
    if answer.get("repaired") is None:
        return []
    back = f"release {answer['repaired']} was put back" if answer["repaired"] else "nothing was current before"
    return [f"an earlier push was cut between the switch and the restart: {back}"]


def _outcome(agent: Agent, app: str, answer: dict[str, Any], sent_bytes: int, notes: list[str]) -> Pushed:
    if answer["state"] == "missing":
        raise JobError(
            f"{len(answer['missing'])} files on {agent.link.name} do not stay as they were sent",
            code="bytes_altered",
            hint="the board's storage or memory is failing: see dmesg there",
        )
    notes = [*notes, *_said_of_repair(answer)]
    signed = answer.get("signed")
    if signed and signed != "board":
        notes.append(f"the signature was checked on this machine, {signed}")
    failed = answer["state"] == "failed"
    if failed and answer.get("restart_back") and not answer["restart_back"]["ok"]:
        notes.append(f"back on the earlier release its own restart failed too: {answer['restart_back']['message']}")
    return Pushed(
        device=agent.link.name,
        app=app,
        state=answer["state"],
        release=answer.get("current") if failed else answer["release"],
        before=answer.get("before"),
        stage=answer.get("stage", ""),
        sent_bytes=sent_bytes,
        health=answer.get("health"),
        restart=answer.get("restart"),
        notes=tuple(notes),
    )


def _only_app(agent: Agent) -> str:
    apps = agent.link.names(agent.path("apps"))
    if len(apps) == 1:
        return apps[0]
    if not apps:
        raise UsageError(f"nothing was pushed to {agent.link.name} yet", code="app_missing", hint="edgekit push BUNDLE")
    raise UsageError(
        f"{agent.link.name} has {len(apps)} apps",
        code="app_missing",
        hint=f"choose one: --app {' | --app '.join(apps)}",
    )


def _checked_app(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(f"an app cannot be called {name!r}", hint="letters, digits, '.', '-' and '_' only")
    return name
