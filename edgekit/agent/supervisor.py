"""One benchmark on the board, from the request to the result. Standard library only: it outlives a crash of the interpreter.

The order: facts and cool-down, then each variant's worker opens its model, runs it for the first time and warms up; then the sustained part, in
blocks of about a second, the variants interleaved in a seeded random order. Sensors are read beside it. Whatever ends the run, the
folder afterwards holds a ``result.json`` that says so.
"""

from __future__ import annotations

import datetime
import errno
import os
import random
import signal
import time
import traceback
from typing import Any, Dict, FrozenSet, Mapping, Optional, Sequence

from edgekit.agent import facts
from edgekit.agent.affinity import split_cores
from edgekit.agent.cooldown import CooldownRule, judge
from edgekit.agent.goal import Goal
from edgekit.agent.lock import BoardLock
from edgekit.agent.monitor import Monitor
from edgekit.agent.readings import Roots
from edgekit.agent.result import Tally, verdicts
from edgekit.agent.run_folder import RunFolder, latency_file, warmup_file
from edgekit.agent.worker_process import WorkerDied, WorkerFailed, WorkerProcess
from edgekit.errors import EdgekitError, JobError
from edgekit.values import SCHEMA

MIN_FREE_BYTES = 4 << 20
"""What a run leaves free on the board's disk, and needs to begin at all."""

CANCEL_GRACE_S = 5.0
"""How long a cancelled run waits for the worker to end its block and hand over what it has."""


class Cancelled(Exception):
    """Somebody asked the run to end early."""


class Supervisor:
    """Carries out the request in ``folder``. ``worker`` is the command that starts a worker; ``lock`` is held meanwhile."""

    def __init__(self, folder: RunFolder, *, worker: Sequence[str], roots: Roots, lock: Optional[BoardLock]) -> None:
        self._folder = folder
        self._worker = list(worker)
        self._roots = roots
        self._lock = lock
        self._request = folder.request()
        self._workers: Dict[str, WorkerProcess] = {}
        self._tallies: Dict[str, Tally] = {}
        self._monitor = Monitor(folder, self._request, roots)
        self._started_utc = _utc_now()
        self._protocol: Dict[str, Any] = {"cooldown": None, "ended_by": None}

    def run(self) -> int:
        """The exit code: 0 when the run is done or was cancelled, 1 when it failed. Never raises."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self._monitor.cancel(signal.Signals(number).name))
        state = "done"
        error: Optional[Dict[str, Any]] = None
        try:
            self._measure()
        except Cancelled:
            state = "cancelled"
        except (WorkerFailed, WorkerDied, EdgekitError) as failure:
            state, error = "failed", self._explained(failure)
        except Exception as failure:  # a fault of the agent itself must not leave the folder without a result
            traceback.print_exc()
            full = isinstance(failure, OSError) and failure.errno == errno.ENOSPC
            state, error = (
                "failed",
                _error("disk_full" if full else "agent_failed", f"{type(failure).__name__}: {failure}"),
            )
        try:
            self._finish(state, error)
        except OSError:  # a full disk: the workstation sees a supervisor that is gone, and the log says why
            traceback.print_exc()
            return 1
        return 1 if state == "failed" else 0

    def _measure(self) -> None:
        self._monitor.status("starting", stage="open")
        if self._lock is not None:
            self._lock.take(job=self._request["id"])
        board = facts.board_facts(self._roots, sensors=self._monitor.sensors)
        cores = self._leave_the_worker_alone(board)
        self._folder.write("facts.json", board)
        budget = self._byte_budget()
        self._cool_down()
        with open(self._folder.file("log.txt"), "ab") as log:
            for variant, model in self._variants().items():
                config = self._config(variant, model, budget)
                self._workers[variant] = WorkerProcess(self._worker, config, variant=variant, log=log, cores=cores)
                self._monitor.watch(variant, self._workers[variant].pid)
                self._tallies[variant] = Tally(model)
                self._open(variant, board)
        for variant in self._workers:
            self._prepare(variant)
        self._sustain()
        for variant in self._workers:
            self._tallies[variant].finished(self._ask(variant, {"do": "finish"}))

    def _leave_the_worker_alone(self, board: Dict[str, Any]) -> Optional[FrozenSet[int]]:
        """Moves the sampling to a core that the worker does not need, where there is one; returns the worker's cores then."""
        threads = [self._own(variant, "threads") for variant in self._variants()]
        split = split_cores(self._roots, 0 if 0 in threads else max(threads))
        board["sampling_core"] = None if split is None else split[0]
        if split is None:
            return None
        os.sched_setaffinity(0, {split[0]})
        return split[1]

    def _cool_down(self) -> None:
        """Waits for the start condition, where the request has one; a run that starts warm gets a warning."""
        if self._request.get("cooldown") is None:
            return
        rule = CooldownRule(**self._request["cooldown"])
        self._monitor.stage("cooldown")
        began = time.monotonic()
        while True:
            self._monitor.wait()
            if self._monitor.cancelled_for_s() is not None:
                raise Cancelled
            waited_s = time.monotonic() - began
            found = judge(list(self._monitor.recent), waited_s, rule)
            if found is not None:
                break
        if found.said:
            self._monitor.event("warning", found.said)
        self._protocol["cooldown"] = {"waited_s": round(waited_s, 3), "warm_start": found.warm, "said": found.said}

    def _variants(self) -> Dict[str, Mapping[str, Any]]:
        """What is measured in turns, by name; each may have its own ``threads``, ``golden`` and ``kernels``."""
        variants = {"model": self._request["model"]}
        if self._request.get("float_model"):
            variants["float"] = self._request["float_model"]
        variants.update({more["name"]: more["model"] for more in self._request.get("more_variants", ())})
        return variants

    def _own(self, variant: str, key: str) -> Any:
        """A setting of this variant: its own, else the request's."""
        for more in self._request.get("more_variants", ()):
            if more["name"] == variant and key in more:
                return more[key]
        return self._request.get(key)

    def _byte_budget(self) -> int:
        """Bytes for each variant's latencies: the request's, or half of what the disk can give."""
        free = self._folder.free_bytes() - MIN_FREE_BYTES
        if free <= 0:
            raise JobError(
                f"the board's disk has {(free + MIN_FREE_BYTES) / 1e6:.1f} MB free, a run needs more than "
                f"{MIN_FREE_BYTES / 1e6:.1f} MB",
                code="disk_full",
            )
        return int(min(self._request["byte_budget"], free // 2)) // len(self._variants())

    def _config(self, variant: str, model: Mapping[str, Any], budget: int) -> Dict[str, Any]:
        golden = self._own(variant, "golden")
        return {
            "path": self._folder.file(model["path"]),
            "sha256": model["sha256"],
            "threads": self._own(variant, "threads"),
            "pace": self._request.get("pace"),
            "backend": self._request.get("backend"),
            "kernels": self._request.get("kernels", "default"),
            "seed": self._request["seed"],
            "golden": None if golden is None else self._folder.file(golden["path"]),
            "names": {} if golden is None else golden["names"],
            "latencies": self._folder.file(latency_file(variant)),
            "warmup": self._folder.file(warmup_file(variant)),
            "byte_budget": budget,
        }

    def _open(self, variant: str, board: Dict[str, Any]) -> None:
        self._monitor.stage("open", variant)
        opened = self._ask(variant, {"do": "open"})
        self._tallies[variant].opened(opened)
        if opened["input"]["note"]:
            self._monitor.event("warning", opened["input"]["note"], variant=variant)
        if variant == "model":
            board["interpreter"] = opened["interpreter"]
            board["delegate"] = opened["delegate"]
            self._folder.write("facts.json", board)

    def _prepare(self, variant: str) -> None:
        """First inference and warm-up."""
        self._monitor.stage("first", variant)
        self._tallies[variant].first(self._ask(variant, {"do": "first"}))
        self._monitor.stage("warmup", variant)
        command = {
            "do": "warmup",
            "min_runs": self._request["warmup_min_runs"],
            "min_s": self._request["warmup_min_s"],
        }
        self._tallies[variant].warmed_up(self._ask(variant, command))

    def _sustain(self) -> None:
        """Blocks of every variant in turns, in random order, until the request's goal is reached."""
        self._monitor.stage("sustained")
        goal = Goal(self._request, list(self._workers))
        generator = random.Random(self._request["seed"])
        # A worker that waited while the other ran comes back to cold caches: its first inference is not the steady state.
        settle = self._request["settle_runs"] if len(self._workers) > 1 else 0
        while goal.open():
            order = goal.open()
            generator.shuffle(order)
            for variant in order:
                self._monitor.expect(goal.expected_s())
                reply = self._ask(variant, {"do": "block", "settle": settle, **goal.block(variant)})
                self._tallies[variant].block(reply, self._monitor.started_ns)
                self._monitor.measured(reply["count"], reply["wall_ns"] / 1e9)
                goal.measured(variant, reply, (reply["start_ns"] - self._monitor.started_ns) / 1e9)
            goal.look(list(self._monitor.recent))
        self._protocol["ended_by"] = goal.reached

    def _ask(self, variant: str, command: Mapping[str, Any]) -> Dict[str, Any]:
        """Gives a command and waits for the reply, with sensors, status and the wish to cancel looked after meanwhile."""
        if self._monitor.cancelled_for_s() is not None:
            raise Cancelled
        worker = self._workers[variant]
        worker.send(command)
        asked = time.monotonic()
        while True:
            if self._monitor.wait(worker.fileno):
                reply = worker.receive()
                if reply is not None:
                    return reply
            waited = time.monotonic() - asked
            cancelled_for_s = self._monitor.cancelled_for_s()
            if cancelled_for_s is not None and cancelled_for_s > CANCEL_GRACE_S:
                raise Cancelled
            if waited > self._request["stall_s"]:
                raise JobError(
                    f"the worker did not answer to {command['do']!r} within {waited:.0f} s", code="interpreter_stalled"
                )

    def _finish(self, state: str, error: Optional[Dict[str, Any]]) -> None:
        """Ends the workers and writes ``result.json``, then the last status."""
        if state == "cancelled":
            self._collect_what_there_is()
        for worker in self._workers.values():
            if state == "done":
                worker.end()
            else:
                worker.kill()
        invalid, warnings = verdicts(self._monitor, self._tallies)
        self._folder.write(
            "result.json",
            {
                "schema": SCHEMA,
                "state": state,
                "valid": state == "done" and not invalid,
                "invalid_reasons": invalid if state == "done" else [*invalid, f"the run is {state}"],
                "warnings": warnings,
                "error": error,
                "started_utc": self._started_utc,
                "ended_utc": _utc_now(),
                "clock": "CLOCK_MONOTONIC_RAW",
                "timed": "set inputs, invoke, copy outputs",
                "protocol": self._protocol,
                "settle_runs": self._request["settle_runs"] if len(self._workers) > 1 else 0,
                "variants": {variant: tally.as_json() for variant, tally in self._tallies.items()},
            },
        )
        if self._lock is not None:
            self._lock.release()  # before the last status: who reads that may start the next run at once
        self._monitor.close(state, error["message"] if error else "")

    def _collect_what_there_is(self) -> None:
        """After a cancel: the memory and histogram of workers that still answer."""
        for variant, worker in self._workers.items():
            tally = self._tallies[variant]
            if not tally.is_sustained:
                continue
            worker.send({"do": "finish"})
            end = time.monotonic() + 2.0
            try:
                while time.monotonic() < end:
                    reply = worker.receive() if self._monitor.wait(worker.fileno) else None
                    if reply is not None and reply["done"] == "finish":
                        tally.finished(reply)
                        break
                    if reply is not None and reply["done"] == "block":
                        tally.block(reply, self._monitor.started_ns)
            except (WorkerDied, WorkerFailed):
                continue

    def _explained(self, failure: Exception) -> Dict[str, Any]:
        """The ``error`` object of the result; a crash gets an event and the last lines of the log."""
        if isinstance(failure, WorkerFailed):
            return _error(failure.error["code"], failure.error["message"], hint=failure.error.get("hint", ""))
        if isinstance(failure, EdgekitError):
            return _error(failure.code, failure.message, hint=failure.hint)
        assert isinstance(failure, WorkerDied)
        tail = self._folder.log_tail()
        self._monitor.event("crash", str(failure), log_tail=tail)
        return _error(failure.code, str(failure), log_tail=tail)


def _error(code: str, message: str, *, hint: str = "", log_tail: Sequence[str] = ()) -> Dict[str, Any]:
    error: Dict[str, Any] = {"code": code, "message": message}
    if hint:
        error["hint"] = hint
    if log_tail:
        error["log_tail"] = list(log_tail)
    return error


def _utc_now() -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
