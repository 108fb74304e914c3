"""Pools in ceil mode, dilated or unevenly padded become pools that every converter knows, or the few operations that they stand for.

A maximum over a border of zeros would let the border win where everything is negative, and a border of the lowest float ruins an int8
scale. So each place of the kernel becomes a strided slice of the input whose border repeats the edge: within a window that reaches
over the edge, the edge's own values are members already, so they change no maximum. (Not so with dilation, where windows skip values:
there the border must be the lowest float.) An average is the sum of those slices over a border of zeros, times the constant reciprocal of
the number of values in each window; a pool by a norm is the root of the sum of powers.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import Chain, Graph, attributes, int64

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

LARGEST_KERNEL = 128
"""Places of a kernel beyond which the slices would be too many."""
_LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Window:
    """A pool's geometry along each spatial axis; ``ends`` includes what ceil mode adds."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    declared_ends: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The number of windows along each axis."""
        rows = zip(self.sizes, self.kernel, self.strides, self.dilations, self.starts, self.ends, strict=True)
        return tuple((n + a + e - (k - 1) * d - 1) // s + 1 for n, k, s, d, a, e in rows)


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was such a pool."""
    graph = Graph(model)
    changed = False
    for node in graph.nodes("MaxPool", "AveragePool", "LpPool"):
        window = _window(node, graph)
        if window is None or len(node.output) > 1 or math.prod(window.kernel) > LARGEST_KERNEL:
            continue
        graph.replace(node, _spelled_out(node, graph, window))
        changed = True
    return changed


def _window(node: onnx.NodeProto, graph: Graph) -> Window | None:
    """The geometry of a pool that needs to be spelled out; None for the others."""
    given, shape = attributes(node), graph.shape(node.input[0])
    if shape is None or given.get("auto_pad", "NOTSET") != "NOTSET" or graph.dtype(node.input[0]) != "float32":
        return None
    rank = len(shape) - 2
    ones, zeros = [1] * rank, [0] * 2 * rank
    strides, dilations = given.get("strides") or ones, given.get("dilations") or ones
    pads, kernel = given.get("pads") or zeros, given["kernel_shape"]
    native = node.op_type != "LpPool" and rank < 3  # TFLite has no pools over three axes
    if native and not given.get("ceil_mode") and dilations == ones and not any(pads):
        return None
    ends = list(pads[rank:])
    if given.get("ceil_mode"):
        for axis, n in enumerate(shape[2:]):
            room = n + pads[axis] + ends[axis] - (kernel[axis] - 1) * dilations[axis] - 1
            count = -(-room // strides[axis])
            if count * strides[axis] >= n + pads[axis]:  # a window that would begin beyond the input is none
                count -= 1
            ends[axis] += max(count * strides[axis] - room, 0)
    return Window(
        shape[2:], tuple(kernel), tuple(strides), tuple(dilations), tuple(pads[:rank]), tuple(ends), tuple(pads[rank:])
    )


def _spelled_out(node: onnx.NodeProto, graph: Graph, window: Window) -> list[onnx.NodeProto]:
    import numpy as np
    from onnx import helper

    stem, maximum = node.output[0], node.op_type == "MaxPool"
    source = Chain(graph, node.input[0], stem)
    power = attributes(node).get("p", 2) if node.op_type == "LpPool" else 1
    if node.op_type == "LpPool":
        source.then("Abs")
    if power != 1:
        source.then("Pow", graph.add_constant(f"{stem}.power", np.array(power, np.float32)))
    if maximum and set(window.dilations) == {1}:
        _repeat_edges(source, window)
    elif any((*window.starts, *window.ends)):
        pads = graph.add_constant(f"{stem}.pads", int64(0, 0, *window.starts, 0, 0, *window.ends))
        border = graph.add_constant(f"{stem}.border", np.array(_LOWEST if maximum else 0.0, np.float32))
        source.then("Pad", pads, border, mode="constant")
    places, nodes = [], list(source.nodes)
    for place in itertools.product(*map(range, window.kernel)):
        slices = Chain(graph, source.value, stem).sliced(*_bounds(window, place))
        nodes += slices.nodes
        places.append(slices.value)
    total = Chain(graph, places[0], stem)
    for value in places[1:]:
        total.then("Max" if maximum else "Add", value)
    if power != 1:
        total.then("Pow", graph.add_constant(f"{stem}.root", np.array(1.0 / power, np.float32)))
    if node.op_type == "AveragePool":
        total.then("Mul", graph.add_constant(f"{stem}.weights", _weights(window, attributes(node))))
    return (
        [*nodes, *total.ending_as(stem)] if total.nodes else [*nodes, helper.make_node("Identity", [places[0]], [stem])]
    )


def _bounds(window: Window, place: tuple[int, ...]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Slice bounds of the values that this place of the kernel meets."""
    starts = [k * d for k, d in zip(place, window.dilations, strict=True)]
    ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, window.outputs, window.strides, strict=True)]
    return starts, ends, list(range(2, 2 + len(place))), list(window.strides)


def _repeat_edges(chain: Chain, window: Window) -> None:
    """Borders made of the first and last rows: parts joined along each axis in turn."""
    from onnx import helper

    for axis, (size, before, after) in enumerate(zip(window.sizes, window.starts, window.ends, strict=True), start=2):
        if not before and not after:
            continue
        whole = chain.value
        edges = []
        for begin, count in ((0, before), (size - 1, after)):
            if count:
                edge = chain.graph.fresh(f"{whole}.edge")
                bounds = [
                    chain.graph.add_constant(f"{edge}.{word}", int64(value))
                    for word, value in (("starts", begin), ("ends", begin + 1), ("axes", axis))
                ]
                chain.nodes.append(helper.make_node("Slice", [whole, *bounds], [edge]))
            edges.append([edge] * count if count else [])
        joined = chain.graph.fresh(f"{whole}.bordered")
        chain.nodes.append(helper.make_node("Concat", [*edges[0], whole, *edges[1]], [joined], axis=axis))
        chain.value = joined


def _weights(window: Window, given: dict[str, Any]) -> NDArray[np.float32]:
    """One over the number of values that each window averages: padding counts if the node says so, what ceil mode adds never."""
    import numpy as np

    counts = np.ones((1, 1), np.float64)
    for axis in range(len(window.sizes)):
        n, a, e = window.sizes[axis], window.starts[axis], window.declared_ends[axis]
        counted = np.zeros(a + n + window.ends[axis] + 1)
        counted[a : a + n] = 1
        if given.get("count_include_pad"):
            counted[: a + n + e] = 1
        k, d, s = window.kernel[axis], window.dilations[axis], window.strides[axis]
        members = [sum(counted[i * s + j * d] for j in range(k)) for i in range(window.outputs[axis])]
        counts = counts[..., None] * np.array(members)
    return (1.0 / counts).astype(np.float32)
