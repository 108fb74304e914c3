"""Damaged files must end in an error that a user can act on: never in a traceback, a hang or a dead process.

    python tools/fuzz.py --out DIR [--formats onnx,tflite,npz,npy] [--light 2000] [--whole 100] [--seed 0]

Seeds (sound files) are mutated and truncated, each case by its own number, so that any can be made again. Light cases go through the
pre-flight and the readers in a warm worker; whole ones through a conversion (recipe float32). A case is good when it succeeds or ends in
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
sys.path.insert(0, str(ROOT))

LIGHT_S, WHOLE_S = 20.0, 240.0
"""Seconds after which a case counts as hanging."""
_INTERESTING = (0, 1, 2, 3, 4, 16, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
_ARRAY_FORMATS = ("npz", "npy")
_REPLACED = (
    b"Conv",
    b"Relu",
    b"Add",
    b"Gemm",
    b"Reshape",
    b"Clip",
    b"Concat",
    b"Softmax",
    b"MatMul",
    b"TFL3",
    b"PK\x03\x04",
    b"descr",
)


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes]) -> tuple[bytes, str]:
    """``data`` damaged in one to four ways, and which."""
    if rng.random() < 0.15:
        return data[: rng.randrange(len(data))], "truncated"
    words = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        way = rng.choice((_bits, _bytes, _number, _cut, _insert, _repeat, _word, _splice))
        data = way(data or b"\0", rng, others)
        words.append(way.__name__[1:])
    return data, "+".join(words)


def _place(data: bytes, rng: random.Random) -> int:
    """Often near the beginning or the end, where the structure is."""
    reach = len(data) if rng.random() < 0.5 else min(len(data), 2048)
    at = rng.randrange(max(reach, 1))
    return len(data) - 1 - at if rng.random() < 0.4 else at


def _bits(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64))):
        changed[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _bytes(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at, size = _place(data, rng), rng.choice((1, 4, 16, 256))
    fill = rng.choice((b"\0" * size, b"\xff" * size, rng.randbytes(size)))
    return data[:at] + fill[: max(len(data) - at, 0)] + data[at + size :]


def _number(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng) & ~3
    return data[:at] + rng.choice(_INTERESTING).to_bytes(4, "little") + data[at + 4 :]


def _cut(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 4, 64, 1024)) :]


def _insert(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 64))) + data[at:]


def _repeat(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at, size = _place(data, rng), rng.choice((4, 64, 1024))
    return data[: at + size] + data[at:]


def _word(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    here = [word for word in _REPLACED if word in data]
    if not here:
        return _bits(data, rng, ())
    word = rng.choice(here)
    places = [at for at in range(len(data)) if data.startswith(word, at)] if len(data) < 50_000 else [data.index(word)]
    at = rng.choice(places)
    other = rng.choice([item for item in _REPLACED if len(item) == len(word)] + [word[:-1] + b"x"])
    return data[:at] + other + data[at + len(word) :]


def _splice(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others) if others else data
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def restructured(data: bytes, rng: random.Random) -> bytes:
    """An ONNX model that still parses, with one to three things in it that do not fit."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((_kind, _attributes, _wiring, _without, _shapes, _versions))(model, rng)
    return model.SerializeToString()


def _node(model: Any, rng: random.Random) -> Any:
    return rng.choice(model.graph.node) if model.graph.node else model.graph.node.add(op_type="Relu")


def _kind(model: Any, rng: random.Random) -> None:
    kinds = (
        "Relu",
        "Conv",
        "LSTM",
        "Loop",
        "If",
        "Scan",
        "Reshape",
        "NonZero",
        "Nothing",
        "TopK",
        "Resize",
        "Einsum",
        "",
        "Identity",
    )
    node = _node(model, rng)
    node.op_type = rng.choice(kinds)
    node.domain = rng.choice(("", "", "", "ai.onnx.ml", "com.microsoft", "made.up"))


def _attributes(model: Any, rng: random.Random) -> None:
    node = _node(model, rng)
    if not node.attribute:
        node.attribute.add(name=rng.choice(("axis", "pads", "group", "to")), i=rng.choice((-1, 0, 7, 2**40)), type=2)
        return
    item = rng.choice(node.attribute)
    item.i = rng.choice((-(2**63), -1, 0, 1, 3, 2**31, 2**62))
    if item.ints:
        item.ints[rng.randrange(len(item.ints))] = rng.choice((-1, 0, 2, 5, 2**31))
    if rng.random() < 0.2:
        item.type = rng.randrange(0, 14)
    if rng.random() < 0.2:
        node.attribute.remove(item)


def _wiring(model: Any, rng: random.Random) -> None:
    node, other = _node(model, rng), _node(model, rng)
    names = [*other.input, *other.output, "nowhere", ""]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(names)


def _without(model: Any, rng: random.Random) -> None:
    part = rng.choice((model.graph.node, model.graph.initializer, model.graph.input, model.graph.output))
    if part:
        del part[rng.randrange(len(part))]


def _shapes(model: Any, rng: random.Random) -> None:
    if model.graph.initializer and rng.random() < 0.5:
        tensor = rng.choice(model.graph.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice((-1, 0, 1, 2, 2**31, 2**62))
        else:
            tensor.data_type = rng.randrange(0, 30)
        return
    ends = [*model.graph.input, *model.graph.output]
    if ends:
        tensor_type = rng.choice(ends).type.tensor_type
        tensor_type.elem_type = rng.choice((1, 1, 6, 7, 8, 9, 10, 11, 16, 99))
        for dim in tensor_type.shape.dim:
            if rng.random() < 0.3:
                dim.dim_value = rng.choice((-1, 0, 1, 3, 2**20, 2**40))


def _versions(model: Any, rng: random.Random) -> None:
    model.ir_version = rng.choice((1, 3, 8, 10, 99))
    for item in model.opset_import:
        item.version = rng.choice((0, 1, 6, 7, 13, 21, 99))


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
    from edgekit.intake.inspect import inspect_model
    from edgekit.values import to_json

    findings = preflight.preflight(path)
    preflight.require(findings, path)
    json.dumps(to_json(inspect_model(path, run_interpreter=False)), allow_nan=False)
    return "read"


def _whole(request: dict[str, Any]) -> str:
    from edgekit import flow
    from edgekit.quantize import recipe

    out = Path(request["path"]).with_suffix(".bundle")
    asked = flow.ConvertRequest(
        model=Path(request["path"]), data=None, out=out, recipe=recipe.load("float32"), timeout_s=60.0, force=True
    )
    done = flow.convert(asked)
    return "passed" if done.passed else "not passed"


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
    own = [*sorted((ROOT / "sample_models").glob(f"*.{kind}")), *sorted((ROOT / "tests").rglob(f"*.{kind}"))]
    files = [*own, *(path for path in given if path.suffix == f".{kind}")]
    return [(path.name, path.read_bytes()) for path in files]


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
    path.write_bytes(data)
    started = time.monotonic()
    request = {"path": str(path), "format": kind, "whole": whole}
    answer = worker.ask(request, WHOLE_S if whole else LIGHT_S)
    left = [item.name for item in place.iterdir() if item.name not in (path.name, "case.bundle")]
    if left and answer["outcome"] != "BAD":
        answer = {"outcome": "BAD", "code": "left_behind", "message": ", ".join(left)}
    if path.read_bytes() != data:
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
    parser.add_argument("--formats", default="onnx,tflite,npz,npy")
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
