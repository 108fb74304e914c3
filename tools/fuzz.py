"""Damaged files must end in an error that a user can act on: never in a traceback, a hang or a dead process.

    python tools/fuzz.py --out DIR [--formats onnx,tflite,keras,h5,savedmodel,pt2,npz,npy] [--light 2000] [--whole 100] [--seed 0]

Seeds (sound files) are mutated and truncated, each case by its own number, so that any can be made again. Light cases go through the
pre-flight and the readers in a warm worker; whole ones, of what passes there, through a conversion (recipe float32), for which the front
ends of Keras files, SavedModels and PyTorch programs stay. Of archives and folders half the cases are damaged inside of a sound shell. A case is good when it succeeds or ends in
an edgekit error of exit code 2 or 3. Results are kept line by line in ``DIR/results.jsonl``: what is there is not run again. Files of bad
cases are kept in ``DIR/bad``. The exit status is 1 when there is a bad case.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from fuzz_mutations import mutated, repacked, restructured, retarred, tarred, untarred  # noqa: E402

LIGHT_S, WHOLE_S = 20.0, 240.0
"""Seconds after which a case counts as hanging."""
_ARRAY_FORMATS = ("npz", "npy")
_ARCHIVES = ("keras", "pt2")
_FOLDER = "savedmodel"
_REQUESTS_OF_A_WORKER = 40
"""Conversions after which a front end gets a new process: it leaks, and damaged files leave things behind."""


# What runs in the worker: one line of JSON in (path, format, whole), one out.


def work() -> None:
    """The warm worker: answers each request on standard input."""
    import resource

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = 6 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(_judged(request)) + "\n")
        answers.flush()


def _judged(request: dict[str, Any]) -> dict[str, Any]:
    from edgekit.errors import EdgekitError

    try:
        word = _whole(request) if request["whole"] else _light(request)
        return {"outcome": "ok", "code": word}
    except EdgekitError as error:
        good = error.exit_code in (2, 3) and bool(error.message)
        return {"outcome": "refused" if good else "BAD", "code": error.code, "message": error.message[:300]}
    except BaseException as error:
        return {"outcome": "BAD", "code": type(error).__name__, "message": traceback.format_exc()[-1500:]}


def _light(request: dict[str, Any]) -> str:
    path = Path(request["path"])
    if request["format"] in _ARRAY_FORMATS:
        from edgekit.calibrate.sources import DataOptions, open_dataset
        from edgekit.values import IoSpec

        spec = IoSpec("x", (1, 4, 4, 2), "float32", "x", (1, 4, 4, 2), "float32")
        dataset = open_dataset(str(path), [spec], DataOptions())
        return f"{sum(1 for _ in dataset.iterate())} samples"
    from edgekit.intake import preflight
    from edgekit.intake.inspect import READABLE, inspect_model
    from edgekit.values import to_json

    findings = preflight.preflight(path)
    preflight.require(findings, path)
    if request["format"] not in READABLE:
        return "read"
    json.dumps(to_json(inspect_model(path, run_interpreter=False)), allow_nan=False)
    return "read"


def _whole(request: dict[str, Any]) -> str:
    from edgekit import flow
    from edgekit.quantize import recipe

    if request["format"] in (*_ARCHIVES, "h5", _FOLDER):
        keep_front_ends(Path(request["path"]).parents[1] / "front-ends")
    out = Path(request["path"]).with_suffix(".bundle")
    asked = flow.ConvertRequest(
        model=Path(request["path"]), data=None, out=out, recipe=recipe.load("float32"), timeout_s=60.0, force=True
    )
    done = flow.convert(asked)
    return "passed" if done.passed else "not passed"


class KeptSession:
    """Stands for :class:`edgekit.intake.session.Session`: one worker of each front end serves conversion after conversion."""

    place: Path
    kept: dict[str, tuple[Any, int]] = {}

    def __init__(self, frontend: Any, work: Path, *, tick: Any = None) -> None:
        from edgekit.intake.session import Session

        self.frontend = frontend
        session, served = self.kept.get(frontend.name, (None, _REQUESTS_OF_A_WORKER))
        if served >= _REQUESTS_OF_A_WORKER:
            if session is not None:
                session.close()
            self.place.mkdir(exist_ok=True)
            session, served = Session(frontend, self.place), 0
        self.kept[frontend.name] = (session, served + 1)
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def __enter__(self) -> KeptSession:
        return self

    def __exit__(self, *_: object) -> None:
        """The worker stays."""

    def close(self) -> None:
        """The worker stays."""


def keep_front_ends(place: Path) -> None:
    """From here on conversions share their front ends' workers, whose logs lie in ``place``."""
    from edgekit.intake import onnx, tensorflow_model, torch

    KeptSession.place = place
    for module in (onnx, tensorflow_model, torch):
        module.Session = KeptSession  # type: ignore[attr-defined, misc, assignment]


# What runs in the parent.


class Worker:
    """The warm worker, started again when it died or hung."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The worker's answer, or what became of the worker."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if ready:
            status = process.wait()
            self.close()
            died = signal.Signals(-status).name if status < 0 else f"status {status}"
            return {"outcome": "BAD", "code": "died", "message": died}
        self.close()
        return {"outcome": "BAD", "code": "hang", "message": f"no answer within {seconds:g} s"}

    def close(self) -> None:
        """Ends the worker and what it started."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass  # a request that nobody read
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, "--work"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        return self._process


def seeds_of(kind: str, given: Sequence[Path]) -> list[tuple[str, bytes]]:
    """Sound files of one format: those of the project, and those that were given."""
    import numpy as np

    if kind in _ARRAY_FORMATS:
        array = np.arange(3 * 32, dtype=np.float32).reshape(3, 4, 4, 2)
        buffer = io.BytesIO()
        if kind == "npz":
            np.savez(buffer, x=array, label=np.arange(3))
        else:
            np.save(buffer, array)
        return [(f"made.{kind}", buffer.getvalue())]
    places = (ROOT / "sample_models", ROOT / "tests")
    if kind == _FOLDER:
        folders = sorted({graph.parent for place in places for graph in place.rglob("saved_model.pb")})
        folders += [path for path in given if (path / "saved_model.pb").is_file()]
        return [(path.name, content(path)) for path in folders]
    own = [path for place in places for path in sorted(place.rglob(f"*.{kind}"))]
    files = [*own, *(path for path in given if path.suffix == f".{kind}")]
    return [(path.name, path.read_bytes()) for path in files]


def content(path: Path) -> bytes:
    """A file's bytes, or those of a whole folder in one piece."""
    if path.is_file():
        return path.read_bytes()
    return tarred({p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()})


def write(path: Path, data: bytes, kind: str) -> None:
    """What :func:`content` gave, at ``path``."""
    if kind != _FOLDER:
        path.write_bytes(data)
        return
    for name, part in untarred(data).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(part)


def cases(
    kind: str, count: int, seed: int, seeds: Sequence[tuple[str, bytes]]
) -> Iterator[tuple[str, str, str, bytes]]:
    """Key, seed file, mutation and bytes of each case."""
    others = [data for _, data in seeds]
    for number in range(count):
        rng = random.Random(f"{kind} {seed} {number}")
        name, data = rng.choice(list(seeds))
        if kind == "onnx" and rng.random() < 0.5:
            changed, way = restructured(data, rng), "structure"
        elif kind == _FOLDER:
            changed, way = retarred(data, rng, [])
        elif kind in _ARCHIVES and rng.random() < 0.5:
            changed, way = repacked(data, rng, []), "members"
        else:
            changed, way = mutated(data, rng, others)
        yield f"{kind}/{seed}/{number}", name, way, changed


def run(options: argparse.Namespace) -> int:
    """All cases that have no result yet; the number of bad ones among all."""
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    done = {}
    if results.exists():
        done = {entry["case"]: entry for entry in map(json.loads, results.read_text().splitlines())}
    worker = Worker(options.out / "worker.log")
    try:
        with results.open("a") as out:
            for kind in options.formats.split(","):
                for entry in _of_format(kind, options, worker, done):
                    done[entry["case"]] = entry
                    out.write(json.dumps(entry) + "\n")
                    out.flush()
    finally:
        worker.close()
    return _summary(done)


def _of_format(
    kind: str, options: argparse.Namespace, worker: Worker, done: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The cases of one format that have no result yet. Whole conversions see only what the light readers let through."""
    seeds = seeds_of(kind, options.seeds)
    for key, name, way, data in cases(kind, options.light, options.seed, seeds):
        if f"light/{key}" not in done:
            yield {**_one(options.out, worker, f"light/{key}", kind, data, False), "seed": name, "mutation": way}
    if kind in _ARRAY_FORMATS:
        return
    small = [item for item in seeds if len(item[1]) < options.whole_bytes]
    count = sum(key.startswith(f"whole/{kind}/") for key in done)
    for key, name, way, data in cases(kind, 50 * options.whole, options.seed, small):
        if count >= options.whole:
            return
        passes = f"whole/{key}" not in done and _one(options.out, worker, key, kind, data, False)["outcome"] == "ok"
        if passes:
            count += 1
            yield {**_one(options.out, worker, f"whole/{key}", kind, data, True), "seed": name, "mutation": way}


def _one(folder: Path, worker: Worker, key: str, kind: str, data: bytes, whole: bool) -> dict[str, Any]:
    place = folder / "now"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / f"case.{kind}"
    write(path, data, kind)
    started = time.monotonic()
    request = {"path": str(path), "format": kind, "whole": whole}
    answer = worker.ask(request, WHOLE_S if whole else LIGHT_S)
    left = [item.name for item in place.iterdir() if item.name not in (path.name, "case.bundle")]
    if left and answer["outcome"] != "BAD":
        answer = {"outcome": "BAD", "code": "left_behind", "message": ", ".join(left)}
    if content(path) != data:
        answer = {"outcome": "BAD", "code": "source_touched", "message": "the file is not what it was"}
    if answer["outcome"] == "BAD":
        bad = folder / "bad"
        bad.mkdir(exist_ok=True)
        (bad / f"{key.replace('/', '-')}.{kind}").write_bytes(data)
    return {"case": key, "seconds": round(time.monotonic() - started, 2), **answer}


def _summary(done: dict[str, dict[str, Any]]) -> int:
    groups: dict[str, dict[str, int]] = {}
    for key, entry in done.items():
        group = groups.setdefault("/".join(key.split("/")[:2]), {})
        group[entry["outcome"]] = group.get(entry["outcome"], 0) + 1
    for name, counts in sorted(groups.items()):
        slowest = max(entry["seconds"] for key, entry in done.items() if key.startswith(name + "/"))
        print(f"{name}: {', '.join(f'{word} {count}' for word, count in sorted(counts.items()))}; slowest {slowest} s")
    bad = [entry for entry in done.values() if entry["outcome"] == "BAD"]
    for entry in bad[:20]:
        print(json.dumps(entry)[:600])
    return min(len(bad), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("fuzz"))
    parser.add_argument("--formats", default="onnx,tflite,keras,h5,savedmodel,pt2,npz,npy")
    parser.add_argument("--light", type=int, default=2000, help="cases of each format through pre-flight and readers")
    parser.add_argument("--whole", type=int, default=0, help="cases of each model format through a whole conversion")
    parser.add_argument("--whole-bytes", type=int, default=400_000, help="largest seed for whole conversions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], help="more sound files to damage")
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
