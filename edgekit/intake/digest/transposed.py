"""Transposed convolutions whose pads fit no SAME or VALID: computed without pads, then cut to size.

Pads of a transposed convolution crop its output, ``output_padding`` lets it begin or end elsewhere; both are bounds of a slice. Where the output
reaches beyond the full result, it holds the bias alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import Chain, Graph, attributes, int64

if TYPE_CHECKING:
    import onnx


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was one."""
    graph = Graph(model)
    changed = False
    for node in graph.nodes("ConvTranspose"):
        given = attributes(node)
        geometry = _geometry(node, graph, given)
        if geometry is None:
            continue
        graph.replace(node, _cut(node, graph, given, *geometry))
        changed = True
    return changed


def _geometry(
    node: onnx.NodeProto, graph: Graph, given: dict[str, Any]
) -> tuple[list[int], list[int], list[int]] | None:
    """Full size, first place and length of the output along each spatial axis; None where nothing is cut or sizes are unknown."""
    shape, weights, wanted = graph.shape(node.input[0]), graph.shape(node.input[1]), graph.shape(node.output[0])
    if shape is None or weights is None or wanted is None:
        return None
    rank = len(shape) - 2
    kernel = given.get("kernel_shape") or weights[2:]
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    extra = given.get("output_padding") or [0] * rank
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(shape[2:], strides, kernel, dilations, strict=True)]
    how = given.get("auto_pad", "NOTSET")
    if how == "NOTSET" and not given.get("output_shape"):
        first = list((given.get("pads") or [0] * 2 * rank)[:rank])
    else:
        totals = [f + x - w for f, x, w in zip(full, extra, wanted[2:], strict=True)]
        # ONNX: the larger half lies at the start, except for SAME_UPPER
        first = [max(t, 0) // 2 if how == "SAME_UPPER" else max(t, 0) - max(t, 0) // 2 for t in totals]
    if first == [0] * rank and list(wanted[2:]) == full and how == "NOTSET" and not given.get("output_shape"):
        return None
    return full, first, list(wanted[2:])


def _cut(
    node: onnx.NodeProto, graph: Graph, given: dict[str, Any], full: list[int], first: list[int], wanted: list[int]
) -> list[onnx.NodeProto]:
    rank, stem = len(full), node.output[0]
    options = {key: given[key] for key in ("kernel_shape", "strides", "dilations", "group") if key in given}
    chain = Chain(graph, node.input[0], stem).then("ConvTranspose", node.input[1], **options)
    missing = [max(a + n - f, 0) for a, n, f in zip(first, wanted, full, strict=True)]
    if any(missing):
        pads = graph.add_constant(f"{stem}.pads", int64(*[0] * (2 + rank), 0, 0, *missing))
        chain.then("Pad", pads)
    ends = [a + n for a, n in zip(first, wanted, strict=True)]
    chain.sliced(first, ends, range(2, 2 + rank), [1] * rank)
    if len(node.input) > 2 and node.input[2]:
        bias = graph.constant(node.input[2])
        if bias is None:
            raise ValueError("a bias that is computed")
        chain.then("Add", graph.add_constant(f"{stem}.bias", bias.reshape(-1, *[1] * rank)))
    return chain.ending_as(stem)
