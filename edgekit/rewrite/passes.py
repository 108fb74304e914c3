"""The passes that every conversion goes through, and the ones that were asked for: a float model in, another one out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from edgekit.intake import tflite
from edgekit.rewrite import (
    clip_by_relu6,
    fuse_activations,
    pad_for_max_pool,
    pad_with_zero,
    plain_forms,
    prune,
    transpose_ends,
)
from edgekit.values import FloatModel

_EVERY_TIME: dict[str, Callable[[tflite.ModelT], tuple[str, ...]]] = {
    "pad_with_zero": pad_with_zero.apply,
    "pad_for_max_pool": pad_for_max_pool.apply,
    "plain_forms": plain_forms.apply,
    "clip_by_relu6": clip_by_relu6.apply,
    "fuse_activations": fuse_activations.apply,
}
"""The passes that every conversion goes through, in order."""


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """The float model afterwards, and each thing that was changed, by pass; the model as it came where nothing was."""

    model: FloatModel
    changes: dict[str, tuple[str, ...]]


def rewrite(model: FloatModel, *, to: Path, keep_layout: bool) -> Rewritten:
    """``model`` with what the int8 engine cannot take made into what it can, and with the source's axes where ``keep_layout``.

    Written to ``to`` when something changed. That the result still equals the source is for the parity stage to say.
    """
    graph = tflite.read(model.path)
    changes = {name: apply(graph) for name, apply in _EVERY_TIME.items()}
    ends = (model.inputs, model.outputs)
    if keep_layout:
        ends, changes["transpose_ends"] = transpose_ends.apply(graph, *ends)
    changes = {name: said for name, said in changes.items() if said}
    if not changes:
        return Rewritten(model, {})
    prune.apply(graph)
    tflite.write(graph, to)
    return Rewritten(dataclasses.replace(model, path=to, inputs=ends[0], outputs=ends[1]), changes)
