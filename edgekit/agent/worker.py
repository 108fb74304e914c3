"""The process that holds one interpreter, and does what the supervisor says.

It is started as ``worker`` with nothing but the number of a pipe. Its stdin brings one JSON object a line, the first the
configuration, each further one a command; the pipe takes one JSON object back for each. What the native code prints goes to the
run's log. When the supervisor is gone stdin ends, and so does the worker.

Commands, in this order: ``open``, ``first``, ``warmup``, any number of ``block``, ``finish``.
"""

from __future__ import annotations

import errno
import faulthandler
import gc
import hashlib
import json
import os
import sys
import time
import traceback
from array import array
from typing import TYPE_CHECKING, Any, Callable, Dict, List

from edgekit.agent.arrivals import gaps_ns
from edgekit.agent.memory import StageMemory
from edgekit.errors import EdgekitError, ModelFileError

if TYPE_CHECKING:
    from edgekit.agent.inputs import Feed
    from edgekit.agent.latencies import LatencyLog
    from edgekit.runtime.backend import Backend

_CHUNK = 1 << 16


class Worker:
    """One model in one process. ``config`` is the first line of stdin."""

    def __init__(self, config: Dict[str, Any]) -> None:
        self._config = config
        self._memory = StageMemory()
        self._stages: Dict[str, Any] = {}
        self._backend: Backend
        self._feed: Feed
        self._log: LatencyLog
        self._warmup: LatencyLog
        self._warmup_ns = 0
        self._next = 0
        pace = config.get("pace")
        self._gaps = None if pace is None else gaps_ns(pace["rate_per_s"], pace["arrivals"], config["seed"])
        self._arrival_ns = 0
        self._late = 0

    def handle(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to one command."""
        handlers: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "open": self._open,
            "first": self._first,
            "warmup": self._warm_up,
            "block": self._block,
            "finish": self._finish,
        }
        return handlers[command["do"]](command)

    def _open(self, command: Dict[str, Any]) -> Dict[str, Any]:
        config = self._config
        _verify(config["path"], config["sha256"])
        self._memory.begin()
        with_memory = _Stages(self._memory, self._stages)
        from edgekit.agent.inputs import choose_feed, describe_io
        from edgekit.agent.latencies import LatencyLog
        from edgekit.runtime.backend import cpu_cores, import_interpreter, open_backend

        import_interpreter(config["backend"])
        with_memory.next("import")
        self._backend = open_backend(
            config["path"],
            threads=config["threads"],
            backend=config["backend"],
            delegate=config["kernels"] == "default",
            reference=config["kernels"] == "reference",
            on_loaded=lambda: with_memory.next("load"),
        )
        with_memory.end("allocate")
        self._feed = choose_feed(self._backend, golden=config["golden"], names=config["names"], seed=config["seed"])
        self._log = LatencyLog(config["latencies"], budget_bytes=config["byte_budget"])
        self._warmup = LatencyLog(config["warmup"], budget_bytes=config["byte_budget"])
        delegation = self._backend.delegation()
        return {
            "memory": self._stages,
            "interpreter": {"name": self._backend.name, "version": self._backend.version},
            "delegate": {**vars(delegation), "kernels": config["kernels"]},
            "threads": config["threads"] or cpu_cores(),
            "io": describe_io(self._backend),
            "input": {"kind": self._feed.kind, "samples": len(self._feed.samples), "note": self._feed.note},
        }

    def _first(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """The first inference, which allocates what the kernels allocate late."""
        self._memory.begin()
        times = self._timed(0.0)
        memory = self._memory.end()
        self._warm(times)
        self._memory.begin()  # of the sustained part; nothing between here and its end sets the mark back
        return {"latency_ns": times[0], "memory": {"first_invoke": memory}}

    def _warm_up(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """At least ``min_runs`` and ``min_s``, the first inference counted among them."""
        self._warm(self._timed(command["min_s"]))
        while self._warmup.count < command["min_runs"]:
            self._warm(self._timed(0.0))
        return {"count": self._warmup.count, "total_ns": self._warmup_ns}

    def _warm(self, times: array[int]) -> None:
        self._warmup.append(times, len(times))
        self._warmup_ns += sum(times)

    def _block(self, command: Dict[str, Any]) -> Dict[str, Any]:
        """Inferences for ``seconds``, at most ``runs`` (0: any number), after ``settle`` that are not recorded.

        Without a pause, or at their arrivals where the run has a pace.
        """
        import numpy as np

        for _ in range(command["settle"]):
            self._timed(0.0)
        first, late = self._log.count, self._late
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        limit = command.get("runs", 0)
        if self._gaps is None:
            times = self._timed(command["seconds"], limit=limit)
        else:
            # Who had to wait for the other variant does not make up for what arrived meanwhile.
            times = self._paced(command["seconds"], limit=limit, anew=command["settle"] > 0)
        wall = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - start
        self._log.append(times, len(times))
        return {
            "start_ns": start,
            "first": first,
            "count": len(times),
            "wall_ns": wall,
            "late": self._late - late,
            "median_ns": int(np.median(np.frombuffer(times, np.int64))) if times else 0,
            "kept_every": self._log.kept_every,
        }

    def _paced(self, seconds: float, *, limit: int, anew: bool) -> array[int]:
        """Latencies (ns) from each intended arrival to the outputs, until ``seconds`` are over, at least one.

        An input that arrived while the one before was still at work is late and waits; its wait counts. One for which the worker had
        to wait begins when the kernel wakes it, as in an app, and that counts too.
        """
        assert self._gaps is not None
        now, raw = time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW
        begin = now(raw)
        end = begin + int(seconds * 1e9)
        if anew or not self._arrival_ns:
            self._arrival_ns = begin + next(self._gaps)
        times = array("q")
        gc.disable()
        try:
            while not times or (self._arrival_ns < end and now(raw) < end):
                wait_ns = self._arrival_ns - now(raw)
                if wait_ns > 0:
                    time.sleep(wait_ns / 1e9)
                else:
                    self._late += 1
                self._infer()
                times.append(now(raw) - self._arrival_ns)
                self._arrival_ns += next(self._gaps)
                if len(times) == limit:
                    break
        finally:
            gc.enable()
        return times

    def _infer(self) -> None:
        """Set the inputs, invoke, copy the outputs."""
        for position, values in enumerate(self._feed.samples[self._next]):
            self._backend.set_input(position, values)
        self._backend.invoke()
        for position in range(len(self._backend.outputs)):
            self._backend.get_output(position)
        self._next = (self._next + 1) % len(self._feed.samples)

    def _finish(self, command: Dict[str, Any]) -> Dict[str, Any]:
        memory = {"sustained": self._memory.end()}
        reply = {"memory": memory, "kept_every": self._log.kept_every, "histogram": self._log.histogram()}
        self._backend.close()
        return reply

    def _timed(self, seconds: float, *, limit: int = 0) -> array[int]:
        """Latencies (ns) of inferences run one after the other until ``seconds`` are over or ``limit`` is reached, at least one.

        One inference is what an app waits for: set the inputs, invoke, copy the outputs. Nothing else happens between the two readings
        of the clock, and between two inferences only a store into memory that is there already.
        """
        samples, outputs = self._feed.samples, range(len(self._backend.outputs))
        set_input, invoke, get_output = self._backend.set_input, self._backend.invoke, self._backend.get_output
        now, raw = time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW
        chunks: List[array[int]] = []
        inputs = range(len(self._backend.inputs))
        gc.disable()
        try:
            end = now(raw) + int(seconds * 1e9)
            after = 0
            while not after or after < end:
                room = _CHUNK if seconds else 1
                if limit:
                    room = min(room, limit - sum(map(len, chunks)))
                times = array("q", bytes(8 * room))
                filled = 0
                for filled in range(len(times)):
                    sample = samples[self._next]
                    before = now(raw)
                    for position in inputs:
                        set_input(position, sample[position])
                    invoke()
                    for position in outputs:
                        get_output(position)
                    after = now(raw)
                    times[filled] = after - before
                    self._next = (self._next + 1) % len(samples)
                    if after >= end:
                        break
                chunks.append(times[: filled + 1])
                if limit and sum(map(len, chunks)) >= limit:
                    break
        finally:
            gc.enable()
        joined: array[int] = chunks[0]
        for chunk in chunks[1:]:
            joined.extend(chunk)
        return joined


class _Stages:
    """Ends one stage of memory and begins the next."""

    def __init__(self, memory: StageMemory, stages: Dict[str, Any]) -> None:
        self._memory = memory
        self._stages = stages

    def end(self, ended: str) -> None:
        self._stages[ended] = self._memory.end()

    def next(self, ended: str) -> None:
        self.end(ended)
        self._memory.begin()


def _verify(path: str, sha256: str) -> None:
    """The file is the one that was asked for: a copy that was cut short must not be measured."""
    if not os.path.isfile(path):
        raise ModelFileError(f"{path} is not on this board", code="model_file_missing")
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != sha256:
        raise ModelFileError(
            f"{path} has sha256 {digest.hexdigest()[:12]}..., {sha256[:12]}... was asked for", code="model_file_damaged"
        )


def main(reply_descriptor: int) -> int:
    """Runs one worker until its stdin ends. Returns the exit code."""
    faulthandler.enable()  # a crash in native code leaves the Python frame in the log
    with os.fdopen(reply_descriptor, "w", encoding="utf-8") as replies:
        try:
            worker = Worker(json.loads(sys.stdin.readline()))
            for line in sys.stdin:
                command = json.loads(line)
                replies.write(json.dumps({"done": command["do"], **worker.handle(command)}) + "\n")
                replies.flush()
                if command["do"] == "finish":
                    break
        except BrokenPipeError:
            return 1  # the supervisor is gone
        except Exception as error:
            traceback.print_exc()
            replies.write(json.dumps({"error": _as_error(error)}) + "\n")
            return 1
    return 0


def _as_error(error: Exception) -> Dict[str, Any]:
    if isinstance(error, EdgekitError):
        return error.as_dict()
    code = "disk_full" if isinstance(error, OSError) and error.errno == errno.ENOSPC else "agent_failed"
    return {"code": code, "message": f"{type(error).__name__}: {error}", "hint": "", "details": {}}
