"""Front ends that misbehave: programs in the place of a front end's Python, called as the real one is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from tiny_models import TinyTflite

from edgekit.intake import frontends, tflite

ANSWER = """#!{python}
import json, pathlib, sys
answer = {answer!r}
def carry_out(request):
    pathlib.Path(request).with_name("result.json").write_text(json.dumps(answer))
carry_out(sys.argv[-1])
for line in sys.stdin:
    carry_out(line.rstrip("\\n"))
"""


def program(path: Path, text: str) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def answering(path: Path, **answer: object) -> Path:
    """A program that answers each request so, in the shape of a worker's ``result.json``."""
    whole = {"ok": True, "versions": {}, "names": None, "simplified": False, **answer}
    return program(path, ANSWER.format(python=sys.executable, answer=whole))


def installed(cache: Path, name: str, python: Path) -> None:
    """Makes ``python`` the front end ``name`` of the cache folder ``cache`` (``XDG_CACHE_HOME``)."""
    kind = frontends.KINDS[name]
    folder = cache / "edgekit" / "frontends" / frontends.folder_name(kind)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(python)
    (folder / "ready.json").write_text(json.dumps({"name": name, "python": str(python)}))


def frontend(name: str, python: Path) -> frontends.Frontend:
    """The same, found already."""
    return frontends.Frontend(frontends.KINDS[name], python, python.parent)


def three_outputs(path: Path, *, mid: float = 3.0, reverse: bool = False) -> Path:
    """:func:`networks.three_outputs` as a float .tflite with a signature, written by hand; ``mid`` is what is subtracted."""
    tiny = TinyTflite()
    x = tiny.tensor("x", (1, 4))
    outputs = {name: tiny.tensor(name, (1, 4)) for name in ("zeta", "alpha", "mid")}
    for kind, name, value in (("ADD", "zeta", 1.0), ("MUL", "alpha", 2.0), ("SUB", "mid", mid)):
        constant = tiny.tensor(f"{name}/constant", (1,), data=np.float32([value]))
        tiny.operator(kind, [x, constant], [outputs[name]])
    order = list(outputs.values())
    model = tiny.model(tiny.graph([x], order[::-1] if reverse else order))
    signature = tiny.schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "main", 0
    signature.inputs, signature.outputs = [entry(tiny, "x", x)], [entry(tiny, n, i) for n, i in outputs.items()]
    model.signatureDefs = [signature]
    tflite.write(model, path)
    return path


def entry(tiny: TinyTflite, name: str, tensor: int) -> object:
    """One name of a signature."""
    found = tiny.schema.TensorMapT()
    found.name, found.tensorIndex = name, tensor
    return found
