"""A converter's float file made edgekit's own: one signature in the source's names, inputs and outputs in the source's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.errors import ConversionError, ModelFileError
from edgekit.intake import tflite
from edgekit.intake.convert import Converted

SIGNATURE = "serving_default"


def adopt(converted: Converted, *, inputs: Mapping[str, str], outputs: Mapping[str, str], to: Path) -> None:
    """Write the converted model to ``to`` with one signature that names its inputs and outputs as the source does, in its order.

    ``inputs`` and ``outputs`` map each source name to the name that the front end was given. Tensors are found by name only.
    Raises ConversionError when the file is none, lost an input or output, or has other ones.
    """
    try:
        model = tflite.read(converted.tflite)
        graph = tflite.graph(model)
    except ModelFileError as error:
        raise ConversionError(
            f"the front end delivered a damaged model: {error.message}", code="delivered_dead", details=error.details
        ) from error
    if len(graph.signatures) != 1:
        raise ConversionError(f"the converted model has {len(graph.signatures)} signatures where one was expected")
    signature = graph.signatures[0]
    names = converted.names or {"inputs": {}, "outputs": {}}
    input_tensors = _by_given_name("inputs", signature.inputs, names["inputs"], list(inputs.values()))
    output_tensors = _by_given_name("outputs", signature.outputs, names["outputs"], list(outputs.values()))
    subgraph = model.subgraphs[signature.subgraph]
    subgraph.inputs = [input_tensors[given] for given in inputs.values()]
    subgraph.outputs = [output_tensors[given] for given in outputs.values()]
    definition = model.signatureDefs[0]
    definition.signatureKey = SIGNATURE
    definition.inputs = [_tensor_map(name, input_tensors[given]) for name, given in inputs.items()]
    definition.outputs = [_tensor_map(name, output_tensors[given]) for name, given in outputs.items()]
    tflite.write(model, to)


def _by_given_name(
    what: str, signature: Mapping[str, int], renamed: Mapping[str, str], wanted: Sequence[str]
) -> dict[str, int]:
    found = {renamed.get(key, key): tensor for key, tensor in signature.items()}
    if set(found) == set(wanted):
        return found
    cleaned = {_cleaned(name): tensor for name, tensor in found.items()}
    if len(cleaned) == len(wanted) and {_cleaned(name) for name in wanted} == set(cleaned):
        return {name: cleaned[_cleaned(name)] for name in wanted}
    raise ConversionError(
        f"the converted model does not have the source's {what}: it has {sorted(found)}, the source has {sorted(wanted)}",
        code="names_lost",
        details={"converted": sorted(found), "source": sorted(wanted)},
    )


def _cleaned(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")


def _tensor_map(name: str, tensor: int) -> object:
    from ai_edge_litert import schema_py_generated as schema

    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, tensor
    return entry
