"""Tasks of the worker: PyTorch programs (``.pt2``) and modules (``module:function``) described, exported to ONNX, and run.

describe: ``{"program": PATH}`` or ``{"module": "package.module:function", "path": FOLDER, "shapes": {name: [sizes]}, "onnx": PATH}`` gives
``{"inputs": [names], "outputs": [names]}`` and writes the ONNX file. run: ``{"samples": NPZ, "results": NPZ, "float64": BOOL}`` runs the program described last.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
import zipfile
from typing import Any, Dict, List

OPSET = 18
_LOADED: Dict[str, Any] = {}
"""What ``describe`` loaded, for ``run`` in the same conversation: program, input names, output names."""


class Refused(Exception):
    """The model cannot be used; the message is for the user."""


def describe(request: Dict[str, Any]) -> Dict[str, Any]:
    """Load the program, or make it from the user's module, and export it to ONNX."""
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    if "program" in request:
        refuse_pickles(request["program"])
        program = torch.export.load(request["program"])
    else:
        program = traced(request)
    inputs, outputs = input_names(program), output_names(program)
    _LOADED.update(program=program, inputs=inputs, outputs=outputs)
    exported = torch.onnx.export(
        program, (), input_names=inputs, output_names=outputs, dynamo=True, opset_version=OPSET, external_data=False
    )
    exported.save(request["onnx"])
    return {"inputs": inputs, "outputs": outputs, "torch": torch.__version__}


def refuse_pickles(path: str) -> None:
    """A program archive may hold pickled weights or constants, which would run code while they are read."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith("_config.json") and '"use_pickle": true' in archive.read(name).decode():
                entries = json.loads(archive.read(name)).get("config", {})
                pickled = [key for key, entry in entries.items() if entry.get("use_pickle")]
                raise Refused(
                    f"the program holds pickled values ({', '.join(pickled[:3])}), which could run code while they are read; "
                    "export it again with plain tensors as weights and constants"
                )


def traced(request: Dict[str, Any]) -> Any:
    """The user's function called, and the module that it returns exported for inputs of the given shapes."""
    import torch

    sys.path.insert(0, request["path"])
    module_name, _, function_name = request["module"].partition(":")
    module = getattr(importlib.import_module(module_name), function_name)()
    if not isinstance(module, torch.nn.Module):
        raise Refused(f"{request['module']} returned {type(module).__name__}, not a torch.nn.Module")
    module.eval()
    given, asked = request["shapes"], forward_parameters(module)
    missing = [name for name, needed in asked.items() if needed and name not in given]
    unknown = [name for name in given if name not in asked]
    if missing or unknown:
        wrong = f"no shape is given for {', '.join(missing)}" if missing else f"there is no input {', '.join(unknown)}"
        raise Refused(
            f"{wrong}; forward() of {type(module).__name__} takes {', '.join(asked)}: give --input-shape "
            f"{(missing or list(asked))[0]}=1x3x224x224 with the real sizes, for each"
        )
    example = {name: torch.zeros(given[name]) for name in asked if name in given}
    return torch.export.export(module, (), kwargs=example)


def forward_parameters(module: Any) -> Dict[str, bool]:
    """Name of each parameter of ``forward`` to whether it must be given."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    return {p.name: p.default is inspect.Parameter.empty for p in parameters if p.kind not in kinds}


def input_names(program: Any) -> List[str]:
    """The program's own names of what the user feeds."""
    return [str(name) for name in program.graph_signature.user_inputs]


def output_names(program: Any) -> List[str]:
    """The keys of a dictionary of results, or the program's own names; made distinct from the inputs and from one another."""
    import torch.utils._pytree as pytree

    count = len(program.graph_signature.user_outputs)
    spec = program.call_spec.out_spec
    is_dict = spec.type is dict and all(child == pytree.LeafSpec() for child in spec.children())
    names = [str(key) for key in spec.context] if is_dict else [str(n) for n in program.graph_signature.user_outputs]
    taken = set(input_names(program))
    distinct = []
    for position, name in enumerate(names[:count]):
        unique = name if name not in taken and name != "None" else f"output_{position}"
        taken.add(unique)
        distinct.append(unique)
    return distinct


def run(request: Dict[str, Any]) -> Dict[str, Any]:
    """The program on one sample: ``samples`` holds an array for each input, ``results`` gets one for each output. ``float64``: everything
    that is float32 in the program, weights and inputs included, is float64."""
    import numpy as np
    import torch
    import torch.utils._pytree as pytree

    program = _LOADED["program"]
    with np.load(request["samples"], allow_pickle=False) as arrays:
        tensors = [torch.from_numpy(np.array(arrays[f"a{i}"])) for i in range(len(_LOADED["inputs"]))]
    module = program.module()
    if request.get("float64"):
        module = in_float64(module)
        tensors = [value.double() if value.is_floating_point() else value for value in tensors]
    arguments, keywords = pytree.tree_unflatten(tensors, program.call_spec.in_spec)
    with torch.no_grad():
        results = pytree.tree_leaves(module(*arguments, **keywords))
    np.savez(request["results"], **{f"a{i}": value.numpy() for i, value in enumerate(results)})
    return {}


def in_float64(module: Any) -> Any:
    """The module of a program with float64 for float32, in its weights and where its graph names a type."""
    import torch
    from torch.fx.node import map_aggregate

    def wide(value: Any) -> Any:
        return torch.float64 if value in (torch.float32, torch.float16, torch.bfloat16) else value

    for node in module.graph.nodes:
        if node.op == "call_module" and "guards" in str(node.target):
            continue
        node.args = map_aggregate(node.args, lambda value: wide(value) if isinstance(value, torch.dtype) else value)
        node.kwargs = map_aggregate(node.kwargs, lambda value: wide(value) if isinstance(value, torch.dtype) else value)
    module.recompile()
    return module.double()
