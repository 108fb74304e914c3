"""What the passes share: attributes, constants, shapes and new names of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The node's attributes as Python values; texts as ``str``."""
    from onnx import helper

    found = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def set_attributes(node: onnx.NodeProto, **values: Any) -> None:
    """Replaces attributes; None takes one away."""
    from onnx import helper

    kept = [item for item in node.attribute if item.name not in values]
    made = [helper.make_attribute(name, value) for name, value in values.items() if value is not None]
    del node.attribute[:]
    node.attribute.extend([*kept, *made])


def opset(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that the model uses."""
    return max((int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), default=1)


class Graph:
    """The main graph of a model that is being rewritten."""

    def __init__(self, model: onnx.ModelProto) -> None:
        from edgekit.intake.onnx_shapes import value_infos

        self.model = model
        self._infos = value_infos(model)
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._made = {node.output[0]: node for node in model.graph.node if node.op_type == "Constant"}
        self._taken = {name for node in model.graph.node for name in (*node.input, *node.output, node.name)}
        self._taken |= set(self._stored) | {info.name for info in (*model.graph.input, *model.graph.output)}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The static shape of a value, None where it is not known."""
        info = self._infos.get(name)
        return None if info is None else info.static_shape

    def dtype(self, name: str) -> str:
        """numpy's word for a value's type, "unknown" where it is not known."""
        info = self._infos.get(name)
        return "unknown" if info is None else info.dtype

    def constant(self, name: str) -> NDArray[Any] | None:
        """The values of a constant, None where ``name`` is no constant."""
        from onnx import numpy_helper

        if name in self._stored:
            return numpy_helper.to_array(self._stored[name])
        if name in self._made and self._made[name].attribute[0].name == "value":
            return numpy_helper.to_array(self._made[name].attribute[0].t)
        return None

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet."""
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def add_constant(self, stem: str, values: NDArray[Any]) -> str:
        """A new initializer and its name."""
        from onnx import numpy_helper

        name = self.fresh(stem)
        tensor = numpy_helper.from_array(values, name)
        self.model.graph.initializer.append(tensor)
        self._stored[name] = tensor
        return name

    def replace(self, node: onnx.NodeProto, new: Sequence[onnx.NodeProto]) -> None:
        """``new`` stands where ``node`` stood, each node with a name that says where it came from."""
        nodes = list(self.model.graph.node)
        place = nodes.index(node)
        for item in new:
            item.name = self.fresh(f"{node.name or node.output[0]}.{item.op_type}")
        nodes[place : place + 1] = new
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)

    def nodes(self, *kinds: str) -> list[onnx.NodeProto]:
        """The nodes of these kinds in ONNX's own domain, as they are now."""
        return [node for node in self.model.graph.node if node.op_type in kinds and node.domain in ("", "ai.onnx")]


class Chain:
    """Nodes one after the other: each takes the last value and gives a new one."""

    def __init__(self, graph: Graph, value: str, stem: str) -> None:
        self.graph = graph
        self.value = value
        self.nodes: list[onnx.NodeProto] = []
        self._stem = stem

    def then(self, kind: str, *others: str, **options: Any) -> Chain:
        """Append a node of ``kind`` on the last value and ``others``."""
        from onnx import helper

        value = self.graph.fresh(f"{self._stem}.{kind}_value")
        self.nodes.append(helper.make_node(kind, [self.value, *others], [value], **options))
        self.value = value
        return self

    def sliced(self, starts: Iterable[int], ends: Iterable[int], axes: Iterable[int], steps: Iterable[int]) -> Chain:
        """A Slice with constant bounds (opset 10 and later)."""
        import numpy as np

        bounds = [
            self.graph.add_constant(f"{self._stem}.{word}", np.array(list(values), np.int64))
            for word, values in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps))
        ]
        return self.then("Slice", *bounds)

    def ending_as(self, output: str) -> list[onnx.NodeProto]:
        """The nodes, the last of which gives ``output``."""
        from onnx import helper

        if not self.nodes:
            return [helper.make_node("Identity", [self.value], [output])]
        self.nodes[-1].output[0] = output
        return self.nodes


def int64(*values: int) -> NDArray[np.int64]:
    """A one-dimensional integer constant."""
    import numpy as np

    return np.array(values, np.int64)
