"""What a ``.tflite``'s inputs and outputs are called and how large they are: from its signature, its tensors, and ``--input-shape``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from edgekit.errors import UsageError
from edgekit.intake import tflite
from edgekit.intake.adopt import SIGNATURE
from edgekit.resources import did_you_mean
from edgekit.rewrite.edit import unused_name


@dataclasses.dataclass(frozen=True)
class Ends:
    """The names of the inputs and outputs of graph ``subgraph``, each once, in the file's order."""

    subgraph: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def sign(self, model: tflite.ModelT) -> None:
        """Gives ``model`` one signature with these names."""
        from ai_edge_litert import schema_py_generated as schema

        graph = model.subgraphs[0]
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
        for side, names, tensors in (("inputs", self.inputs, graph.inputs), ("outputs", self.outputs, graph.outputs)):
            entries = []
            for name, tensor in zip(names, tensors, strict=True):
                entry = schema.TensorMapT()
                entry.name, entry.tensorIndex = name, int(tensor)
                entries.append(entry)
            setattr(signature, side, entries)
        model.signatureDefs = [signature]


def choose_ends(model: tflite.ModelT, wanted: str | None) -> Ends:
    """The ends of the graph that the signature called ``wanted`` enters, or of the only one.

    A name is the signature's where it has one for that tensor, else the tensor's own; empty names become ``input_0``, repeated ones
    get a number. Raises UsageError when ``wanted`` does not exist, or several signatures leave the choice open.
    """
    found = [
        signature
        for index in range(len(model.subgraphs))
        for signature in tflite.graph(model, subgraph=index).signatures
    ]
    keys = [signature.key for signature in found]
    if wanted is not None and wanted not in keys:
        known = ", ".join(keys) or "none"
        raise UsageError(
            f"the model has no signature {wanted!r}",
            hint=f"{did_you_mean(wanted, keys)} its signatures: {known}".strip(),
            code="signature_unknown",
        )
    if wanted is None and len(found) > 1:
        raise UsageError(
            f"the model has {len(found)} signatures: {', '.join(keys)}",
            hint=f"say which: --signature {keys[0]}",
            code="signature_open",
            details={"signatures": keys},
        )
    signature = next((item for item in found if wanted in (None, item.key)), None)
    graph = tflite.graph(model, subgraph=signature.subgraph if signature else 0)
    return Ends(
        signature.subgraph if signature else 0,
        _names(graph, graph.inputs, signature.inputs if signature else {}, "input"),
        _names(graph, graph.outputs, signature.outputs if signature else {}, "output"),
    )


def _names(graph: tflite.Graph, indices: Sequence[int], signature: Mapping[str, int], what: str) -> tuple[str, ...]:
    unclaimed = list(signature.items())
    names: list[str] = []
    for position, index in enumerate(indices):
        # A tensor may be an output twice, under two names.
        entry = next((item for item in unclaimed if item[1] == index), None)
        if entry is not None:
            unclaimed.remove(entry)
        wanted = (entry[0] if entry else graph.tensors[index].name) or f"{what}_{position}"
        names.append(unused_name(wanted, names))
    return tuple(names)


def static_shapes(model: tflite.ModelT, ends: Ends, given: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """The shape of each input of the (only) graph by tensor index, open sizes filled from ``given`` (by name).

    Raises UsageError with code ``input_unknown``, ``input_shape_invalid`` (another number of axes, another size where the file fixes
    one) or ``input_shape_open``; the hint is the option to type.
    """
    graph = tflite.graph(model)
    tensors = dict(zip(ends.inputs, (graph.tensors[index] for index in graph.inputs), strict=True))
    for name in given:
        if name not in tensors:
            hint = f"{did_you_mean(name, list(tensors))} its inputs: {', '.join(tensors)}".strip()
            raise UsageError(f"the model has no input {name!r}", hint=hint, code="input_unknown")
    shapes, missing = {}, {}
    for name, tensor in tensors.items():
        declared = tensor.shape_signature if tensor.has_open_size and tensor.shape_signature else tensor.shape
        if name in given:
            shapes[tensor.index] = _fitting(name, declared, tuple(given[name]))
        elif min(declared, default=0) < 0:
            missing[name] = (declared, tensor.shape)
        else:
            shapes[tensor.index] = tensor.shape
    if missing:
        words = "; ".join(f"{name} is {_shape(declared)}" for name, (declared, _) in missing.items())
        options = " ".join(f"--input-shape {name}={_example(*pair)}" for name, pair in missing.items())
        raise UsageError(
            f"the model leaves the shape of its input open: {words}",
            hint=f"fix it: {options}",
            code="input_shape_open",
            details={"inputs": {name: list(declared) for name, (declared, _) in missing.items()}},
        )
    return shapes


def _fitting(name: str, declared: tuple[int, ...], given: tuple[int, ...]) -> tuple[int, ...]:
    fits = len(declared) == len(given) and all(d in (-1, g) for d, g in zip(declared, given, strict=True))
    if not fits or min(given, default=1) < 1:
        raise UsageError(
            f"input {name!r} is {_shape(declared)} in the model, and {_shape(given)} was given",
            hint=f"only what the model leaves open (?) can be chosen: --input-shape {name}={_example(declared, given)}",
            code="input_shape_invalid",
        )
    return given


def _shape(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _example(declared: Sequence[int], placeholder: Sequence[int]) -> str:
    """A shape that the model takes: its own sizes, its placeholders (or 1) where it leaves them open."""
    filled = list(placeholder) if len(placeholder) == len(declared) else [1] * len(declared)
    return "x".join(str(d if d >= 0 else max(1, f)) for d, f in zip(declared, filled, strict=True))
