"""The ONNX half of :mod:`edgekit.intake.preflight`: operators, ranks, sizes and types of a ``ModelProto``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.intake.onnx_check import stored_bytes
from edgekit.intake.preflight import Finding, Level, found

_LARGEST_TFLITE = 2**31 - 1
_OWN = ("", "ai.onnx")
_RUNTIME_DOMAINS = frozenset((
    *_OWN, "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc",
    "com.microsoft.experimental", "com.ms.internal.nhwc", "org.pytorch.aten",
))  # fmt: skip
"""Domains whose operators ONNX Runtime may have; a model with others cannot even be run for comparison."""

_APP = "end the export before it and do its work in the app"
_NOWHERE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
        ("it works on text and word counts, and TFLite kernels on boards take numbers only", _APP),
    ),
    "ImageDecoder": ("it decodes picture files", "feed decoded pixels: edgekit's preprocessing decodes them"),
    **dict.fromkeys(
        ("Adagrad", "Adam", "Momentum", "Gradient"),
        ("it belongs to training", "export the network for inference (PyTorch: model.eval() before the export)"),
    ),
    "SequenceMap": ("it maps over a list of tensors, which TFLite does not have", "write the loop out in the export"),
    "Scan": ("it loops over slices, and no front end converts it", "write the steps out, or use LSTM, GRU or RNN"),
}
"""ONNX operators that neither a front end nor a TFLite kernel has."""
_LEARNERS = ("a tree, vector machine or encoder of ai.onnx.ml, for which TFLite has no operator", _APP)

_SHAPE_FROM_DATA = "the size of its result depends on the data, which TFLite on a board cannot plan memory for"
_OFTEN_WRONG: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("NonZero", "Compress", "Unique"), (_SHAPE_FROM_DATA, f"{_APP}, or mask with Where")),
    "NonMaxSuppression": (_SHAPE_FROM_DATA, "export the raw boxes and scores, and suppress in the app"),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"),
        ("it draws random numbers, so that no two runs agree", "make the random numbers an input of the network"),
    ),
    **dict.fromkeys(
        ("Loop", "If"),
        ("control flow: no integer kernels, and boards' delegates stop there", "unroll it, or export one branch"),
    ),
    **dict.fromkeys(
        ("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
         "ConcatFromSequence", "SplitToSequence", "Optional", "OptionalGetElement", "OptionalHasElement"),
        ("it works on a list of tensors, which TFLite does not have", "replace it by Split, Concat and Slice"),
    ),
    **dict.fromkeys(
        ("DFT", "STFT", "Det", "Inverse", "DeformConv", "MaxRoiPool", "RoiAlign", "MaxUnpool"),
        ("TFLite has no kernel of this kind; front ends write it out in many operators, or need the Flex delegate, "
         "which boards do not have", _APP),
    ),
    **dict.fromkeys(
        ("BitCast", "CausalConvWithState", "LinearAttention", "FlexAttention"),
        ("no front end is known to convert it", "export it as the operators that it stands for (a lower opset)"),
    ),
}  # fmt: skip
_RECURRENT = ("LSTM", "GRU", "RNN")
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")
_SMALL_CONSTANT = 256


def onnx_findings(model: Any, *, external_bytes: int = 0) -> Iterator[Finding]:
    """Findings for a ``ModelProto`` whose external weights, if any, are ``external_bytes`` large."""
    nodes = list(_live_nodes(model))
    yield from _size(model, external_bytes)
    yield from _by_kind(nodes, model)
    yield from _quantized([node for node, _ in nodes])
    yield from _types(model)
    yield from _ranks(model)


def _live_nodes(model: Any) -> Iterator[tuple[Any, bool]]:
    """Every node, and whether it depends on an input of the model: what does not is a constant that simplification folds."""
    stored = {tensor.name for tensor in model.graph.initializer}
    live = {info.name for info in model.graph.input if info.name not in stored}
    for node in model.graph.node:
        bodies = [body for item in node.attribute for body in (*([item.g] if item.HasField("g") else []), *item.graphs)]
        depends = bool(bodies) or any(name in live for name in node.input)
        if depends:
            live.update(node.output)
        yield node, depends
        for body in bodies:
            yield from ((inner, True) for inner in _all_nodes(body))
    for function in model.functions:
        yield from ((node, False) for node in function.node)


def _all_nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for item in node.attribute:
            for body in (*([item.g] if item.HasField("g") else []), *item.graphs):
                yield from _all_nodes(body)


def _name(node: Any) -> str:
    return str(node.name or next((name for name in node.output if name), ""))


def _size(model: Any, external_bytes: int) -> Iterator[Finding]:
    # In fields (int32_data and so on) protobuf packs numbers smaller than they are: their size as tensors counts.
    inside = sum(stored_bytes(tensor) for tensor in model.graph.initializer if tensor.data_location != tensor.EXTERNAL)
    total = inside + external_bytes
    if total > _LARGEST_TFLITE:
        yield found(
            Level.REFUSE,
            "weights_too_large",
            f"the weights are {total / 1e9:.2f} GB, and a .tflite file holds at most 2 GB",
            "split the network, or start from a smaller one",
        )


def _by_kind(nodes: list[tuple[Any, bool]], model: Any) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[tuple[Any, bool]]] = {}
    for node, depends in nodes:
        groups.setdefault((node.domain, node.op_type), []).append((node, depends))
    own = {(function.domain, function.name) for function in model.functions}
    for (domain, kind), members in groups.items():
        if (domain, kind) not in own:
            yield from _kind(domain, kind, [_name(node) for node, _ in members], any(live for _, live in members))


def _kind(domain: str, kind: str, names: list[str], live: bool) -> Iterator[Finding]:
    """Findings about one kind of operator. What only folds away is no reason to refuse."""
    refuse = Level.REFUSE if live else Level.WARN
    if domain not in _RUNTIME_DOMAINS:
        reason = f"an operator of the domain {domain!r}, which ONNX Runtime and the front ends do not have"
        advice = "export without custom operators, or put their definition into the model as an ONNX function"
        yield found(Level.REFUSE, "operator_custom", reason, advice, operator=f"{domain}::{kind}", nodes=names)
    elif domain in _OWN and not _is_onnx(kind):
        reason = f"ONNX has no operator of this name{_near(kind)}"
        yield found(Level.REFUSE, "operator_unknown", reason, "export the model again", operator=kind, nodes=names)
    elif domain.endswith("training") or (domain in _OWN and kind in _NOWHERE):
        reason, advice = _NOWHERE.get(kind, _NOWHERE["Gradient"])
        yield found(refuse, "operator_unsupported", reason, advice, operator=kind, nodes=names)
    elif domain == "ai.onnx.ml":
        yield found(refuse, "operator_unsupported", *_LEARNERS, operator=f"{domain}::{kind}", nodes=names)
    elif domain in (*_OWN, "ai.onnx.preview") and kind in _OFTEN_WRONG:
        yield found(Level.WARN, "operator_difficult", *_OFTEN_WRONG[kind], operator=kind, nodes=names)
    elif domain in _OWN and kind in _RECURRENT:
        reason = "recurrent layer: written out step by step, and its states share scales that rarely fit both in int8"
        advice = "give states as inputs and outputs, and look at the worst slice of every state in the report"
        yield found(Level.WARN, "recurrent", reason, advice, operator=kind, nodes=names)
    elif domain not in _OWN and kind not in _QUANTIZED and not kind.startswith("QLinear"):
        reason = f"a fused operator of {domain}, which front ends know in part only"
        advice = "give the model as it was exported, before ONNX Runtime's optimiser or transformers.optimizer"
        yield found(Level.WARN, "operator_fused", reason, advice, operator=f"{domain}::{kind}", nodes=names)


def _is_onnx(kind: str) -> bool:
    import onnx

    return bool(onnx.defs.has(kind)) or kind in ("Inverse", "Gelu", "Mish", "HardSwish", "GroupNorm")


def _near(kind: str) -> str:
    import difflib

    import onnx

    names = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
    close = difflib.get_close_matches(kind, names, n=1)
    return f" (the nearest is {close[0]})" if close else ""


def _quantized(nodes: list[Any]) -> Iterator[Finding]:
    quantizing = [node for node in nodes if node.op_type in _QUANTIZED or node.op_type.startswith(("QLinear", "QGemm"))]
    if quantizing:
        yield found(
            Level.WARN,
            "quantised_already",
            f"the model is quantised already ({len(quantizing)} quantising operators): its scales are not those of TFLite, and "
            "quantising twice adds the errors of both",
            "give the float model that it was made from; edgekit calibrates and quantises itself",
            operator="/".join(dict.fromkeys(node.op_type for node in quantizing)),
            nodes=[_name(node) for node in quantizing],
        )


_TYPE_NOTES = {
    10: (Level.NOTE, "weights_float16", "float16 weights: they become float32 first, so the float file is twice as large"),
    11: (Level.NOTE, "weights_float64", "float64 weights: TFLite computes in float32, which is less exact"),
    16: (Level.WARN, "weights_bfloat16", "bfloat16 weights, which ONNX Runtime computes with on few processors"),
}  # fmt: skip
_FLOAT8_AND_BELOW = range(17, 27)


def _types(model: Any) -> Iterator[Finding]:
    kinds: dict[int, list[str]] = {}
    for tensor in model.graph.initializer:
        kinds.setdefault(int(tensor.data_type), []).append(tensor.name)
    for number, names in kinds.items():
        if number in _TYPE_NOTES:
            level, code, reason = _TYPE_NOTES[number]
            advice = "nothing to do" if level is Level.NOTE else "export in float32"
            yield found(level, code, f"{reason} ({len(names)} tensors)", advice)
        elif number in _FLOAT8_AND_BELOW:
            reason = f"weights of less than eight bits, or float8 ({len(names)} tensors)"
            yield found(Level.WARN, "weights_narrow", reason, "export in float32; edgekit quantises")


def _ranks(model: Any) -> Iterator[Finding]:
    """Nodes with tensors of more than four axes: TFLite's convolutions and pools of volumes have no integer kernels."""
    ranks = _known_ranks(model)
    high = [
        node
        for node in model.graph.node
        if any(ranks.get(name, 0) >= 5 for name in (*node.input, *node.output)) and node.op_type != "Constant"
    ]
    if high:
        most = max(ranks.get(name, 0) for node in high for name in (*node.input, *node.output))
        yield found(
            Level.WARN,
            "rank_high",
            f"tensors of {most} axes: many TFLite kernels end at four, and delegates leave the rest to slow ones",
            "reshape to four axes where that is possible (for channel shuffles: two axes merged)",
            operator="/".join(dict.fromkeys(node.op_type for node in high)),
            nodes=[_name(node) for node in high],
        )


def _known_ranks(model: Any) -> dict[str, int]:
    """Ranks of values as onnx infers them; large constants are left out of the inference, which then takes milliseconds."""
    import onnx

    from edgekit.intake.onnx_reader import infer_shapes, value_shape

    light = onnx.ModelProto()
    light.opset_import.extend(model.opset_import)
    light.ir_version = max(model.ir_version, 4)
    light.functions.extend(model.functions)
    light.graph.name = "light"
    light.graph.node.extend(node for node in model.graph.node if node.ByteSize() < 65536)
    light.graph.output.extend(model.graph.output)
    light.graph.value_info.extend(model.graph.value_info)
    named = {info.name for info in model.graph.input}
    light.graph.input.extend(model.graph.input)
    for tensor in model.graph.initializer:
        if (
            len(tensor.raw_data) + len(tensor.int64_data) * 8 <= _SMALL_CONSTANT
            and tensor.data_location != tensor.EXTERNAL
        ):
            light.graph.initializer.append(tensor)
        elif tensor.name not in named:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    graph = infer_shapes(light).graph
    shapes = {info.name: value_shape(info) for info in (*graph.input, *graph.value_info, *graph.output)}
    return {name: len(shape) for name, shape in shapes.items() if shape is not None}
