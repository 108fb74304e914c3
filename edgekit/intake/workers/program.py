"""A network in TensorFlow, whatever it was stored as: its ends described, and one function of tensors in order."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One end. ``shape`` has None for an open size, and is None where even the rank is open."""

    name: str
    shape: Optional[List[Optional[int]]]
    dtype: str


def distinct(ends: Sequence[TensorSpec]) -> List[TensorSpec]:
    """``ends`` with a number behind each name that another one has too, or that is empty."""
    names = [end.name for end in ends]
    made: List[TensorSpec] = []
    for position, end in enumerate(ends):
        name = end.name
        if not name or names.count(name) > 1:
            name, taken = f"{name or 'tensor'}_{position}", {*names, *(one.name for one in made)}
            while name in taken:
                name += "_"
        made.append(dataclasses.replace(end, name=name))
    return made


class Program:
    """Inputs and outputs in the model's own order; ``call`` takes and gives lists of tensors. ``runtime`` says what computes it."""

    def __init__(
        self,
        inputs: List[TensorSpec],
        outputs: List[TensorSpec],
        call: Callable[[List[Any]], List[Any]],
        runtime: str,
        remarks: Tuple[str, ...] = (),
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.runtime = runtime
        self.remarks = remarks
        self._call = call
        self._traced: Dict[str, Any] = {}

    def describe(self) -> Dict[str, Any]:
        """As JSON."""
        return {
            "inputs": [dataclasses.asdict(end) for end in self.inputs],
            "outputs": [dataclasses.asdict(end) for end in self.outputs],
            "runtime": self.runtime,
            "remarks": list(self.remarks),
        }

    def traced(self, shapes: Sequence[Sequence[int]]) -> Tuple[Any, List[Any]]:
        """The concrete function for inputs of these shapes, and the specs of its inputs; traced once for each set of shapes.

        Raises Refused when it would touch files, the network or Python: tracing executes nothing.
        """
        import frozen
        import tensorflow as tf
        import unsafe_operators

        key = repr(shapes)
        if key not in self._traced:
            specs = frozen.specs([(shape, end.dtype) for shape, end in zip(shapes, self.inputs, strict=True)])

            def call(*tensors: Any) -> List[Any]:
                # An output that is an input, or twice the same, would otherwise lose its own place.
                return [tf.identity(result) for result in self._call(list(tensors))]

            function = tf.function(call, input_signature=specs, autograph=False)
            concrete = function.get_concrete_function()
            unsafe_operators.refuse(unsafe_operators.of_graph(concrete.graph.as_graph_def()))
            self._traced[key] = (concrete, specs)
        return self._traced[key]
