"""The TFLite half of :func:`edgekit.intake.inspect.inspect_model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.intake import tflite
from edgekit.intake.arena import arena_peak
from edgekit.intake.formats import require_file
from edgekit.intake.inspect import Inspection, QuantInfo, SignatureInfo, TensorInfo, WeightInfo, file_sha256, tally
from edgekit.intake.inspect_costs import by_kind, tflite_costs
from edgekit.intake.macs import product
from edgekit.intake.macs_tflite import count_macs
from edgekit.intake.precision import float_islands, is_full_integer, operator_dtype
from edgekit.intake.preflight import in_order
from edgekit.intake.preflight_tflite import tflite_findings
from edgekit.intake.probe import probe
from edgekit.intake.runtimes import has_weights_outside, requirements
from edgekit.intake.tflite_graph import Graph, Tensor


def inspect_tflite(path: Path, *, run_interpreter: bool, timeout_s: float) -> Inspection:
    """Looks into a TFLite file; see :func:`edgekit.intake.inspect.inspect_model`."""
    raw = require_file(path).read_bytes()
    model = tflite.read(path)
    graphs = tuple(tflite.graph(model, subgraph=number) for number in range(len(model.subgraphs)))
    main = graphs[0]
    arena, costs = arena_peak(main), tflite_costs(graphs)
    operators = [
        (item.name, operator_dtype(graph, item), item.is_custom) for graph in graphs for item in graph.operators
    ]
    custom = dict.fromkeys(name for name, _, is_custom in operators if is_custom)
    return Inspection(
        path=str(path),
        format="tflite",
        size_bytes=path.stat().st_size,
        sha256=file_sha256(path),
        inputs=tuple(_tensor_info(main.tensors[index]) for index in main.inputs),
        outputs=tuple(_tensor_info(main.tensors[index]) for index in main.outputs),
        operators=tally(operators),
        weights=_weights(model, graphs),
        macs=count_macs(graphs),
        facts=_facts(model, graphs),
        custom_operators=tuple(custom),
        signatures=_signatures(graphs),
        full_integer=all(is_full_integer(graph) for graph in graphs),
        float_islands=tuple(
            island for number, graph in enumerate(graphs) for island in float_islands(graph, number=number)
        ),
        activation_peak_bytes=arena.peak_bytes if arena is not None else None,
        interpreter=probe(path, invoke=True, timeout_s=timeout_s) if run_interpreter else None,
        notes=_notes(main),
        findings=in_order(tflite_findings(model)),
        costs=costs,
        costs_by_kind=by_kind(costs),
        arena=arena,
        runtimes=requirements(model, weights_outside=has_weights_outside(raw)),
    )


def _tensor_info(tensor: Tensor) -> TensorInfo:
    signature = tensor.shape_signature
    shape = tensor.shape if signature is None else tuple("?" if size < 0 else size for size in signature)
    quant = None
    if tensor.quant is not None and tensor.quant.scales.size:
        single = tensor.quant.axis is None
        quant = QuantInfo(
            scale=float(tensor.quant.scales[0]) if single else None,
            zero_point=int(tensor.quant.zero_points[0]) if single else None,
            axis=tensor.quant.axis,
        )
    return TensorInfo(tensor.name, shape, tensor.dtype, quant)


def _weights(model: Any, graphs: Sequence[Graph]) -> WeightInfo:
    parameters = 0
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    for number, graph in enumerate(graphs):
        for tensor in graph.tensors:
            buffer = model.subgraphs[number].tensors[tensor.index].buffer
            if not tensor.is_constant or buffer in seen or not tensor.size_bytes:
                continue
            seen.add(buffer)
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size_bytes
            if tensor.is_float or tensor.quant is not None:
                parameters += product(tensor.shape)
    return WeightInfo(parameters, dict(sorted(sizes.items(), key=lambda item: -item[1])))


def _facts(model: Any, graphs: Sequence[Graph]) -> dict[str, int | str]:
    description = model.description
    text = description.decode("utf-8", errors="replace") if isinstance(description, bytes) else description or ""
    return {"schema": int(model.version), "description": text, "graphs": len(graphs)}


def _signatures(graphs: Sequence[Graph]) -> tuple[SignatureInfo, ...]:
    found = []
    for graph in graphs:
        for item in graph.signatures:
            inputs = {name: graph.tensors[index].name for name, index in item.inputs.items()}
            outputs = {name: graph.tensors[index].name for name, index in item.outputs.items()}
            found.append(SignatureInfo(item.key, inputs, outputs))
    return tuple(found)


def _notes(main: Graph) -> tuple[str, ...]:
    notes = []
    for index in main.inputs:
        tensor = main.tensors[index]
        if tensor.has_open_size:
            notes.append(
                f"input {tensor.name} leaves sizes open ({list(tensor.shape_signature or ())}): everything is counted at {list(tensor.shape)}"
            )
    return tuple(notes)
