"""Releases on the board: a folder of links into the store, and ``current``, switched in one step. Standard library only.

``apps/APP/releases/0007-1a2b3c4d5e6f/`` holds ``model.tflite``, ``manifest.json``... as links and ``release.json``; the number, not a
clock, says what is newer. ``apps/APP/current`` points to one. ``pending.json`` is there from before a switch until the app has come up
with it: who finds it, and nobody holding the lock, knows that the power went in between, and puts the earlier release back.

A file that an app has open is never written to: releases are links to files that are only ever made, and removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from edgekit.agent.signature import NoCryptography, check_signature
from edgekit.agent.store import SCHEMA, Store, read_json, sync_folder, write_json
from edgekit.errors import BoardBusyError, JobError, UsageError

KEPT = 3
"""Releases that stay: the current one and those before it."""

LOCK_WAIT_S = 30.0
RESTART_TIMEOUT_S = 30.0

Health = Callable[[str], Dict[str, Any]]
"""Given a release's folder, the report of :func:`edgekit.agent.health.check_health`. Raises JobError when there is none."""


class App:
    """The releases of one app. ``health`` judges a release before it is switched to."""

    def __init__(self, home: str, name: str, *, health: Health) -> None:
        self._store = Store(home)
        self._health = health
        self.folder = os.path.join(home, "apps", name)
        self._releases = os.path.join(self.folder, "releases")
        self._pending = os.path.join(self.folder, "pending.json")

    def current(self) -> Optional[str]:
        """The id of the current release."""
        try:
            return os.path.basename(os.readlink(os.path.join(self.folder, "current")))
        except OSError:
            return None

    def releases(self) -> List[str]:
        """The ids of all releases that are there as a whole, oldest first."""
        try:
            names = os.listdir(self._releases)
        except OSError:
            return []
        return sorted((name for name in names if re.match(r"\d+-", name)), key=lambda name: int(name.split("-")[0]))

    def describe(self) -> Dict[str, Any]:
        """Current, releases, and whether a switch was cut in between."""
        current = self.current()
        return {
            "current": current,
            "folder": self.folder,
            "files": read_json(os.path.join(self._releases, current or "", "release.json")).get("files"),
            "releases": self.releases(),
            "pending": os.path.exists(self._pending) and not self._is_locked(),
        }

    def install(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """Makes a release of files in the store and switches to it; or says what is ``missing``, or why it was not (``failed``).

        ``request`` has ``files`` (name to ``sha256`` and ``size_bytes``), ``restart``, ``restart_timeout_s``, ``require_signed`` and ``about``.
        """
        import shutil

        with self._locked():
            repaired = self._repair()
            absent = self._store.damaged(list(request["files"].values()))
            if absent:
                return {"state": "missing", "missing": absent, "repaired": repaired}
            if self.describe()["files"] == request["files"] and not request.get("again"):
                return {"state": "unchanged", "release": self.current(), "repaired": repaired}
            release = self._make(request)
            path = os.path.join(self._releases, release)
            try:
                signed = _signed(path, request.get("require_signed", ""))
                report = self._health(path)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
            if not report["passed"]:
                shutil.rmtree(path, ignore_errors=True)
                return self._unhealthy(report, repaired)
            outcome = self._switch(release, drop_failed=True)
            if outcome["state"] == "done":
                outcome["pruned"] = self._prune()
            return {**outcome, "health": report, "signed": signed, "repaired": repaired}

    def _unhealthy(self, report: Dict[str, Any], repaired: Any) -> Dict[str, Any]:
        """The outcome where the golden pairs did not pass: nothing was switched."""
        outcome = {"state": "failed", "stage": "health", "health": report}
        return {**outcome, "repaired": repaired, "current": self.current()}

    def roll_back(self, *, to: Optional[str] = None, again: bool = False) -> Dict[str, Any]:
        """Switches to the release before the current one, or to the one called ``to`` (its id, or its number)."""
        with self._locked():
            repaired = self._repair()
            target = self._earlier(to)
            path = os.path.join(self._releases, target)
            absent = self._store.damaged(list(read_json(os.path.join(path, "release.json")).get("files", {}).values()))
            if absent:
                raise JobError(
                    f"release {target} has lost {len(absent)} of its files",
                    code="release_damaged",
                    hint="push it again",
                )
            report = self._health(path)
            if not report["passed"]:
                return self._unhealthy(report, repaired)
            return {**self._switch(target, drop_failed=False), "health": report, "repaired": repaired}

    def repair(self) -> Dict[str, Any]:
        """Puts the earlier release back where a switch was cut in between."""
        with self._locked():
            return {"state": "done", "repaired": self._repair(), "current": self.current()}

    def _earlier(self, to: Optional[str]) -> str:
        there, current = self.releases(), self.current()
        if to is not None:
            found = [name for name in there if name == to or name.split("-")[0].lstrip("0") == to.lstrip("0")]
            if len(found) == 1:
                return found[0]
            raise UsageError(
                f"there is no release {to!r}", code="release_missing", hint=f"there are {', '.join(there) or 'none'}"
            )
        before = [name for name in self._stack() if name != current]
        if not before:
            raise UsageError(
                "there is no release before the current one" if current else "nothing was released yet",
                code="release_missing",
                hint=f"there are {', '.join(there)}: edgekit rollback --to ID"
                if there
                else "edgekit push BUNDLE first",
            )
        return before[-1]

    def _make(self, request: Mapping[str, Any]) -> str:
        """A new release folder, which appears as a whole."""
        import shutil

        os.makedirs(self._releases, exist_ok=True)
        for name in os.listdir(self._releases):
            if name.startswith(".new-"):  # of a push that was cut; nobody else is here
                shutil.rmtree(os.path.join(self._releases, name), ignore_errors=True)
        number = max([int(name.split("-")[0]) for name in self.releases()] or [0]) + 1
        release = f"{number:04d}-{request['files']['model.tflite']['sha256'][:12]}"
        beside = os.path.join(self._releases, f".new-{os.getpid()}")
        try:
            os.mkdir(beside)
            for name, file in request["files"].items():
                target = os.path.relpath(self._store.path(file["sha256"]), os.path.join(self._releases, release))
                os.symlink(target, os.path.join(beside, os.path.basename(name)))
            known = {key: request[key] for key in ("files", "restart", "restart_timeout_s", "about") if key in request}
            write_json(os.path.join(beside, "release.json"), {"schema": SCHEMA, "id": release, **known})
            os.rename(beside, os.path.join(self._releases, release))
            sync_folder(self._releases)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return release

    def _switch(self, release: str, *, drop_failed: bool) -> Dict[str, Any]:
        """``current`` to ``release`` and the app restarted; back again when the app does not come up."""
        before, stack = self.current(), self._stack()
        try:
            write_json(self._pending, {"schema": SCHEMA, "from": before, "to": release, "drop": drop_failed})
            self._point(release)
        except OSError:
            self._undo(before, release, drop=drop_failed)
            raise
        restarted = self._restart(release)
        if restarted is None or restarted["ok"]:
            self._clear_pending()
            self._remember(stack, release)
            return {"state": "done", "release": release, "before": before, "restart": restarted}
        self._undo(before, release, drop=drop_failed)
        back = self._restart(before) if before else None
        return {"state": "failed", "stage": "restart", "restart": restarted, "restart_back": back, "current": before}

    def _undo(self, before: Optional[str], release: str, *, drop: bool) -> None:
        import shutil

        if self.current() == release and before != release:
            if before is None:
                os.unlink(os.path.join(self.folder, "current"))
            else:
                self._point(before)
        if drop and before != release:
            shutil.rmtree(os.path.join(self._releases, release), ignore_errors=True)
        self._clear_pending()

    def _repair(self) -> Optional[str]:
        """The id of the release that was put back (or "" when nothing was current before); None when nothing had to be."""
        if not os.path.exists(self._pending):
            return None
        crumb = read_json(self._pending)
        before, release = crumb.get("from"), crumb.get("to")
        if release is None or (before is not None and before not in self.releases()):
            self._clear_pending()  # it was never written whole, so nothing was switched; or there is nothing to go back to
            return None
        switched = self.current() == release
        self._undo(before, release, drop=bool(crumb.get("drop")))
        if not switched:
            return None
        if before is not None:
            self._restart(before)
        return before or ""

    def _point(self, release: str) -> None:
        beside = os.path.join(self.folder, ".current.new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        os.symlink(os.path.join("releases", release), beside)
        os.replace(beside, os.path.join(self.folder, "current"))
        sync_folder(self.folder)

    def _clear_pending(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._pending)
        sync_folder(self.folder)

    def _restart(self, release: str) -> Optional[Dict[str, Any]]:
        """What became of the app's own command, ended with all its children when its time is up; None when there is none."""
        import subprocess

        known = read_json(os.path.join(self._releases, release, "release.json"))
        command = known.get("restart")
        if not command:
            return None
        limit_s = float(known.get("restart_timeout_s") or RESTART_TIMEOUT_S)
        log = os.path.join(self.folder, "restart.log")
        environment = {**os.environ, "EDGEKIT_RELEASE": os.path.join(self.folder, "current")}
        began = time.monotonic()
        with _log_file(log) as output:
            process = subprocess.Popen(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.folder, env=environment, start_new_session=True,
            )  # fmt: skip
            try:
                code: Optional[int] = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
        said = "did not end" if code is None else f"ended with {code}"
        seconds = time.monotonic() - began
        return {
            "ok": code == 0,
            "command": command,
            "message": f"{command!r} {said} within {limit_s:g} s" if code is None else f"{command!r} {said}",
            "seconds": round(seconds, 3),
            "log_tail": _tail(log),
        }

    def _prune(self) -> List[str]:
        """Removes all but the last three releases that were current one after the other."""
        import shutil

        keep = set(self._stack()[-KEPT:])
        gone = [name for name in self.releases() if name not in keep]
        for name in gone:
            shutil.rmtree(os.path.join(self._releases, name), ignore_errors=True)
        return gone

    def _stack(self) -> List[str]:
        """The releases that were current one after the other up to now; one that was rolled back from is no longer among them."""
        there, current = self.releases(), self.current()
        kept = read_json(os.path.join(self.folder, "history.json")).get("releases", [])
        stack = [name for name in kept if name in there]
        if current in stack:
            return stack[: stack.index(current) + 1]
        return [*stack, current] if current in there and current is not None else stack

    def _remember(self, before: List[str], release: str) -> None:
        stack = before[: before.index(release)] if release in before else before
        with contextlib.suppress(OSError):  # a full disk: what is current is known all the same
            write_json(os.path.join(self.folder, "history.json"), {"releases": [*stack, release]})

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The app to oneself. The kernel takes the lock back however the holder ends."""
        os.makedirs(self.folder, exist_ok=True)
        descriptor = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            end = time.monotonic() + LOCK_WAIT_S
            while not _try_lock(descriptor):
                if time.monotonic() > end:
                    raise BoardBusyError(
                        f"another push to this app is still at work after {LOCK_WAIT_S:.0f} s",
                        code="push_busy",
                        hint="try again when it has ended",
                    )
                time.sleep(0.05)
            yield
        finally:
            os.close(descriptor)

    def _is_locked(self) -> bool:
        try:
            descriptor = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _try_lock(descriptor)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def _signed(path: str, key: str) -> Optional[str]:
    """ "board", or why it could not be checked here; None when no signature is asked for."""
    if not key:
        return None
    try:
        check_signature(path, key)
    except NoCryptography as error:
        return f"not checked on the board, whose Python has no cryptography ({error})"
    return "board"


@contextlib.contextmanager
def _log_file(path: str) -> Iterator[Any]:
    """The file to write to; nowhere when the disk is full."""
    try:
        file = open(path, "wb")  # noqa: SIM115 - closed below
    except OSError:
        file = open(os.devnull, "wb")  # noqa: SIM115
    with file:
        yield file


def _tail(path: str, lines: int = 10) -> List[str]:
    try:
        with open(path, "rb") as file:
            return file.read()[-16384:].decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []
