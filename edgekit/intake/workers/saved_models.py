"""SavedModels opened after a look at what they would do while they are loaded: a graph may read and write files, and call Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import unsafe_operators
from program import Program, TensorSpec, distinct
from refusal import Refused, first_line


def open_saved(folder: str, wanted: Optional[str]) -> Program:
    """The signature ``wanted``, or the only one, of the SavedModel in the private copy ``folder``."""
    graph = _parsed(folder)
    chosen = choose_signature(graph, wanted)
    unsafe_operators.refuse(unsafe_operators.run_by_loading(graph))
    _require_variables(folder, graph)
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(folder)
        function = loaded.signatures[chosen]
    except Exception as error:
        raise _unreadable(f"TensorFlow {tf.__version__} cannot load it: {first_line(error)}") from error
    unsafe_operators.refuse(unsafe_operators.of_graph(function.graph.as_graph_def()))
    arguments, specs = _arguments(function, graph.signature_def[chosen])
    results = sorted(function.structured_outputs, key=natural)
    outputs = [_described(name, function.structured_outputs[name]) for name in results]

    def call(tensors: List[Any], kept: Any = loaded) -> List[Any]:  # the variables die with the loaded object
        found = function(**dict(zip(arguments, tensors, strict=True)))
        return [found[name] for name in results]

    return Program(distinct(specs), distinct(outputs), call, f"TensorFlow {tf.__version__}", (f"signature {chosen}",))


def _parsed(folder: str) -> Any:
    from tensorflow.python.saved_model import loader_impl

    try:
        graphs = loader_impl.parse_saved_model(folder).meta_graphs
    except Exception as error:
        raise _unreadable(f"its saved_model.pb is damaged: {first_line(error)}") from error
    serving = [graph for graph in graphs if "serve" in graph.meta_info_def.tags]
    if not serving:
        raise _unreadable("its saved_model.pb holds no graph for serving")
    return serving[0]


def _unreadable(why: str) -> Refused:
    return Refused("file", why, "copy the whole folder again: saved_model.pb and variables/", "model_corrupt")


def choose_signature(graph: Any, wanted: Optional[str]) -> str:
    """The name of the signature to convert. Raises Refused where there is none, or a choice."""
    signatures = {name: signature for name, signature in graph.signature_def.items() if not name.startswith("__")}
    if not signatures:
        raise Refused(
            "unsupported",
            "it has no signature, so nothing says what goes in and what comes out",
            "save it with one: model.export('FOLDER') for Keras, "
            "tf.saved_model.save(module, 'FOLDER', signatures=module.function.get_concrete_function(...)) for others",
            "signature_missing",
        )
    if wanted is not None:
        if wanted not in signatures:
            raise Refused(
                "usage",
                f"it has no signature {wanted!r}",
                f"its signatures: {', '.join(sorted(signatures))}",
                "signature_unknown",
                signatures=sorted(signatures),
            )
        return wanted
    if len(signatures) == 1:
        return str(next(iter(signatures)))
    if set(signatures) == {"serve", "serving_default"} and _same_ends(*signatures.values()):
        return "serving_default"  # Keras' export writes its one function under both names
    listed = {name: _words(signature) for name, signature in sorted(signatures.items())}
    raise Refused(
        "usage",
        f"it has {len(listed)} signatures, and only one can be converted at a time: "
        + "; ".join(f"{name} {words}" for name, words in listed.items()),
        "choose: " + ", or ".join(f"--signature {name}" for name in listed),
        "signature_needed",
        signatures=listed,
    )


def _same_ends(one: Any, other: Any) -> bool:
    return all(
        {key: (info.dtype, str(info.tensor_shape)) for key, info in getattr(one, side).items()}
        == {key: (info.dtype, str(info.tensor_shape)) for key, info in getattr(other, side).items()}
        for side in ("inputs", "outputs")
    )


def _words(signature: Any) -> str:
    return f"({', '.join(sorted(signature.inputs))}) -> ({', '.join(sorted(signature.outputs, key=natural))})"


def natural(name: str) -> List[Any]:
    """A key that sorts output_2 before output_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]


def _require_variables(folder: str, graph: Any) -> None:
    """Raises Refused with the missing part when the graph has variables and the folder has not."""
    has = any(node.op in ("VarHandleOp", "VariableV2") for node in graph.graph_def.node)
    place = Path(folder) / "variables"
    if has and not (place / "variables.index").is_file():
        raise Refused(
            "file",
            "its weights are missing: there is no variables/variables.index",
            "copy the whole folder: saved_model.pb and variables/ belong together",
            "model_incomplete",
        )
    if has and not list(place.glob("variables.data-*")):
        raise Refused(
            "file",
            "its weights are missing: there is no variables/variables.data-00000-of-00001",
            "copy the whole folder: saved_model.pb and variables/ belong together",
            "model_incomplete",
        )


def _arguments(function: Any, signature: Any) -> Tuple[List[str], List[TensorSpec]]:
    """The names of the arguments in the order in which the function was written, and what they are."""
    given: Dict[str, Any] = function.structured_input_signature[1]
    order = [name for name in getattr(function, "_arg_keywords", None) or () if name in given]
    names = order if len(order) == len(given) else sorted(given, key=natural)
    if not names:
        raise Refused("unsupported", "the signature takes no input", "export a function of the network's input")
    return names, [_described(_source_name(name, signature), given[name]) for name in names]


def _source_name(name: str, signature: Any) -> str:
    return (
        name
        if name in signature.inputs
        else next((key for key in signature.inputs if _plain(key) == _plain(name)), name)
    )


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).lower()


def _described(name: str, tensor: Any) -> TensorSpec:
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    return TensorSpec(name, shape, tensor.dtype.name)
