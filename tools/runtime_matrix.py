"""Which TFLite runtimes can run what edgekit delivers? Asked of the runtimes themselves, each in an environment of its own.

    python tools/runtime_matrix.py BUNDLE [BUNDLE ...] [--json FILE] [--operators FILE]

For each runtime: a virtual environment under the cache (made once), then two questions to it. First, the golden pairs of every bundle:
does the int8 file give the integers that it gave where it was made, and the float file its floats? Second, with ``--operators``: the
highest version of each operator that it has, found by opening files that list one operator code and nothing else; that file is what
``edgekit inspect`` reads (``edgekit/intake/runtime_operators.json``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

_HIGHEST_VERSION = 30


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime to ask: its wheel, the Pythons that it exists for (best first), and the numpy that it was built with."""

    package: str
    version: str
    pythons: tuple[str, ...]
    numpy: str = "numpy<2"

    @property
    def name(self) -> str:
        return f"{self.package} {self.version}"


RUNTIMES = (
    Runtime("tflite-runtime", "2.13.0", ("3.8", "3.9", "3.10")),
    Runtime("tflite-runtime", "2.14.0", ("3.8", "3.9", "3.10", "3.11")),
    Runtime("ai-edge-litert", "1.0.1", ("3.9", "3.10", "3.11")),
    Runtime("ai-edge-litert", "2.1.0", ("3.9", "3.10", "3.11", "3.12", "3.13"), "numpy"),
    Runtime("ai-edge-litert", "2.3.0", ("3.13", "3.12", "3.11", "3.10"), "numpy"),
)

_CHILD = r"""
import json, sys
import numpy as np
from edgekit.runtime.backend import import_interpreter, open_backend
from edgekit.runtime.tensors import quantize

def golden(folder):
    manifest = json.load(open(folder + "/manifest.json"))
    pairs = np.load(folder + "/golden.npz", allow_pickle=False)
    names = [entry["name"] for entry in manifest["inputs"]], [entry["name"] for entry in manifest["outputs"]]
    import os
    delivered = "model.tflite" if os.path.exists(folder + "/model.tflite") else "rejected.tflite"
    found = {}
    for kind, file in (("int8", delivered), ("float", "float.tflite")):
        try:
            found[kind] = run(folder + "/" + file, kind, pairs, *names)
        except Exception as error:
            found[kind] = {"ok": False, "error": str(getattr(error, "message", error)).splitlines()[0][:300]}
    return found

def run(path, kind, pairs, inputs, outputs):
    worst_step, same, total, signal, noise = 0, 0, 0, 0.0, 0.0
    with open_backend(path) as backend:
        for number in range(len(pairs["input/" + inputs[0]])):
            for position, name in enumerate(inputs):
                value, spec = pairs["input/" + name][number], backend.inputs[position]
                if spec.is_quantized:
                    value = quantize(value, scale=spec.scale, zero_point=spec.zero_point, dtype=spec.dtype)
                backend.set_input(position, value.astype(spec.dtype))
            backend.invoke()
            for position, name in enumerate(outputs):
                got, wanted = backend.get_output(position), pairs[kind + "/" + name][number]
                step = np.abs(got.astype(np.float64) - wanted)
                worst_step = max(worst_step, float(step.max()))
                same, total = same + int((step == 0).sum()), total + step.size
                signal, noise = signal + float((wanted.astype(np.float64) ** 2).sum()), noise + float((step ** 2).sum())
    ratio = None if noise == 0 else 10 * float(np.log10(max(signal, 1e-300) / noise))
    return {"ok": True, "largest_difference": worst_step, "same": same, "values": total, "sqnr_db": ratio}

def operators(folder):
    import pathlib
    _, _, module = import_interpreter()
    found = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        code, version = path.stem.split("@")
        try:
            module.Interpreter(model_content=path.read_bytes())
        except (ValueError, RuntimeError):
            continue
        found.setdefault(code, []).append(int(version))
    return found

name, version, _ = import_interpreter()
task, arguments = sys.argv[1], sys.argv[2:]
answer = {"package": name, "version": version, "python": sys.version.split()[0], "numpy": np.__version__}
if task == "operators":
    answer["operators"] = operators(arguments[0])
else:
    answer["bundles"] = {folder: golden(folder) for folder in arguments}
print("ANSWER " + json.dumps(answer))
"""


def environment(runtime: Runtime) -> Path:
    """The interpreter of the runtime's environment, made with venv and pip if it is not there yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit" / "runtimes"
    folder = base / f"{runtime.package}-{runtime.version}"
    python = folder / "bin" / "python"
    if (folder / "ready").is_file():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    base.mkdir(parents=True, exist_ok=True)
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for interpreter in _interpreters(runtime.pythons):
        made = [str(interpreter), "-m", "venv", str(folder)]
        install = [str(python), "-m", "pip", "install", "-q", f"{runtime.package}=={runtime.version}", runtime.numpy]
        if all(subprocess.run(step, env=clean, check=False).returncode == 0 for step in (made, install)):
            (folder / "ready").touch()
            return python
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(f"{runtime.name}: no Python of {', '.join(runtime.pythons)} here can install it")


def _interpreters(versions: tuple[str, ...]) -> list[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found: list[Path] = []
    for version in versions:
        candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python3"), reverse=True), shutil.which(f"python{version}")]
        for candidate in (Path(item) for item in candidates if item):
            check = [str(candidate), "-c", "import venv, ensurepip"]
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                found.append(candidate)
    return found


def ask(python: Path, task: str, arguments: list[str]) -> dict[str, object]:
    """The child's answer, or what it died of."""
    command = [str(python), "-c", _CHILD, task, *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            answer: dict[str, object] = json.loads(line[7:])
            return answer
    return {"error": f"status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"}


def write_probes(folder: Path) -> None:
    """One file for each operator code and version: a graph without operators, and that code in its list."""
    from ai_edge_litert import schema_py_generated as schema

    from edgekit.intake import tflite

    numbers = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    for number, name in sorted(numbers.items()):
        if name in ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"):
            continue
        for version in range(1, _HIGHEST_VERSION + 1):
            (folder / f"{name}@{version}.tflite").write_bytes(tflite.serialize(_probe(schema, number, version)))


def _probe(schema: object, number: int, version: int) -> object:
    part = schema.SubGraphT()  # type: ignore[attr-defined]
    tensor = schema.TensorT()  # type: ignore[attr-defined]
    tensor.name, tensor.shape = "x", [1]
    part.tensors, part.inputs, part.outputs, part.operators = [tensor], [0], [0], []
    code = schema.OperatorCodeT()  # type: ignore[attr-defined]
    code.builtinCode, code.version = number, version
    model = schema.ModelT()  # type: ignore[attr-defined]
    model.version, model.subgraphs, model.operatorCodes = 3, [part], [code]
    model.buffers = [schema.BufferT()]  # type: ignore[attr-defined]
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--json", type=Path, help="write all answers there")
    parser.add_argument("--operators", type=Path, help="write the operator versions of every runtime there")
    options = parser.parse_args()
    answers: dict[str, dict[str, object]] = {}
    tables: dict[str, dict[str, list[int]]] = {}
    probes = Path(os.environ.get("TMPDIR", "/tmp")) / f"edgekit-operator-probes-{os.getpid()}"
    try:
        if options.operators:
            probes.mkdir()
            write_probes(probes)
        for runtime in RUNTIMES:
            python = environment(runtime)
            answers[runtime.name] = ask(python, "golden", [str(bundle.resolve()) for bundle in options.bundles])
            print(runtime.name, json.dumps(answers[runtime.name]), flush=True)
            if options.operators:
                tables[runtime.name] = ask(python, "operators", [str(probes)])["operators"]  # type: ignore[assignment]
    finally:
        shutil.rmtree(probes, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(answers, indent=1) + "\n")
    if options.operators:
        highest = {name: {op: max(found) for op, found in sorted(table.items())} for name, table in tables.items()}
        options.operators.write_text(json.dumps(highest, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
