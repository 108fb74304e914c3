"""The border to the TFLite interpreter: one small class over whichever package is installed.

The packages are tried in the order of :data:`BACKENDS`: they carry the same Python class, from ``ai-edge-litert`` (newest, on
Python 3.10 and later) over ``tflite-runtime`` (older boards) to the whole of TensorFlow. Everything here is positional and knows
nothing of quantisation rules or names; :class:`edgekit.runtime.Model` is the friendly face.

The interpreters write ``INFO: Created TensorFlow Lite XNNPACK delegate for CPU.`` to file descriptor 2 when the first model is
opened. No switch turns that off (the log level is compiled in and its setter not exported), and moving the descriptor away would
lose what other threads write meanwhile, so it is left: whoever minds opens models in a child process and captures its stderr.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Type, Union

import numpy as np

from edgekit.errors import DataError, ModelFileError, UsageError
from edgekit.runtime.flatbuffer import check_model, check_model_file

ModelSource = Union[str, "os.PathLike[str]", bytes]
"""A ``.tflite`` file by path, or its bytes."""

BACKENDS = ("ai_edge_litert", "tflite_runtime", "tensorflow")
"""The packages that carry an interpreter, in the order of preference."""

_INSTALL_HINT = (
    "pip install ai-edge-litert   (Python 3.10 and later; on older Pythons: pip install tflite-runtime 'numpy<2')"
)


@dataclasses.dataclass(frozen=True)
class TensorDetail:
    """One tensor of the model. ``dtype`` is numpy's name for it.

    ``is_quantized`` says whether the integers stand for real numbers. A tensor with one scale has ``scale`` and ``zero_point``;
    one with a scale for each channel has ``scale`` 0 and all of them in ``scales`` and ``zero_points``.
    """

    index: int
    name: str
    shape: Tuple[int, ...]
    dtype: str
    scale: float
    zero_point: int
    is_quantized: bool
    scales: Tuple[float, ...] = ()
    zero_points: Tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Delegation:
    """How much of the graph a delegate took over: operators in ``partitions`` pieces, of ``total_operators`` in all."""

    name: Optional[str]
    partitions: int
    delegated_operators: int
    total_operators: int


def available_backends() -> Tuple[str, ...]:
    """The interpreter packages that are installed, best first. Nothing is imported, so a broken one is still listed."""
    return tuple(name for name in BACKENDS if importlib.util.find_spec(name) is not None)


def cpu_cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_backend(
    model: ModelSource,
    *,
    threads: int = 0,
    backend: Optional[str] = None,
    preserve_all_tensors: bool = False,
    delegate: bool = True,
    reference: bool = False,
    on_loaded: Optional[Callable[[], None]] = None,
) -> Backend:
    """An interpreter with its tensors allocated, ready for :meth:`Backend.set_input`.

    ``threads`` 0 means every core that this process may use. ``backend`` names one of :data:`BACKENDS`; without it the first that
    can be imported is taken. ``preserve_all_tensors`` keeps every intermediate tensor readable with :meth:`Backend.read_tensor`
    (the resolver stays the ordinary one). ``delegate=False`` opens without the delegates that are on by default (XNNPACK);
    ``reference=True`` takes the plain kernels without SIMD, which stand for an interpreter that was built badly.
    ``on_loaded`` is called when the model is read and its tensors are not allocated yet.

    Raises :class:`UsageError` (code ``interpreter_missing``) when no interpreter can be imported, and :class:`ModelFileError`
    when the file is missing, is truncated or no model, or needs an operator that this interpreter does not have; ``details`` then
    hold the interpreter's own words.
    """
    if threads < 0:
        raise UsageError(f"threads must be 0 (all cores) or more, not {threads}")
    if not isinstance(model, bytes):
        _refuse_what_is_no_file(os.fspath(model))
    name, version, module = import_interpreter(backend)
    if name == "tflite_runtime":
        _check(model)  # it does not verify, and a truncated file would end the process
    options: Dict[str, Any] = {"num_threads": threads or cpu_cores()}
    if isinstance(model, bytes):
        options["model_content"] = model
    else:
        options["model_path"] = os.fspath(model)
    if preserve_all_tensors:
        options["experimental_preserve_all_tensors"] = True
    if reference or not delegate:
        options["experimental_op_resolver_type"] = _resolver_without_delegates(module, reference=reference)
    what = "the model" if isinstance(model, bytes) else os.fspath(model)
    try:
        with warnings.catch_warnings():
            # tensorflow announces the end of tf.lite, and keeping tensors is announced as costly: both are known here.
            warnings.simplefilter("ignore")
            interpreter = module.Interpreter(**options)
            if on_loaded is not None:
                on_loaded()
            interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        if name != "tflite_runtime":
            _check(model)  # says what is wrong with the file, where it is the file
        raise _not_loadable(what, name, version, error) from error
    return Backend(interpreter, name=name, version=version)


class Backend:
    """One interpreter with one model, addressed by position. Owned by one thread; only copies leave it.

    ``inputs`` and ``outputs`` are the model's tensors in the interpreter's order; ``signatures`` maps a signature's key to two
    maps from name to position (inputs, outputs). Nothing here guards against a second thread, and one interpreter that is called
    from two at once fails or returns garbage: :class:`edgekit.runtime.Model` has the guard.
    """

    def __init__(self, interpreter: Any, *, name: str, version: str) -> None:
        self._interpreter = interpreter
        self.name = name
        self.version = version
        self.inputs = tuple(_tensor_detail(raw) for raw in interpreter.get_input_details())
        self.outputs = tuple(_tensor_detail(raw) for raw in interpreter.get_output_details())
        self.signatures = _signatures(interpreter, self.inputs, self.outputs)
        self._input_indices = tuple(detail.index for detail in self.inputs)
        self._output_indices = tuple(detail.index for detail in self.outputs)

    def set_input(self, position: int, array: np.ndarray[Any, Any]) -> None:
        """Copies ``array`` into input ``position``; dtype and shape must be the tensor's own, else :class:`DataError`."""
        try:
            self._open().set_tensor(self._input_indices[position], array)
        except ValueError as error:
            wanted = self.inputs[position]
            raise DataError(
                f"input {wanted.name!r} takes {wanted.dtype} of shape {list(wanted.shape)}, "
                f"not {np.asarray(array).dtype} of shape {list(np.shape(array))}",
                details={"interpreter": str(error)},
            ) from error

    def invoke(self) -> None:
        """Runs the model once. Raises :class:`DataError` (code ``inference_failed``) when an operator refuses its input."""
        try:
            self._open().invoke()
        except (RuntimeError, ValueError) as error:
            raise DataError(
                f"the model could not be run on this input: {_words(error)}",
                code="inference_failed",
                details={"interpreter": str(error), "backend": self.name, "version": self.version},
            ) from error

    def get_output(self, position: int) -> np.ndarray[Any, Any]:
        """A copy of output ``position`` after :meth:`invoke`, in the tensor's own dtype."""
        output: np.ndarray[Any, Any] = self._open().get_tensor(self._output_indices[position])
        return output

    def tensor_details(self) -> Tuple[TensorDetail, ...]:
        """Every tensor of the main graph: inputs, weights, intermediate results and outputs."""
        return tuple(_tensor_detail(raw) for raw in self._open().get_tensor_details())

    def read_tensor(self, index: int) -> np.ndarray[Any, Any]:
        """A copy of the tensor with this ``index`` (not position).

        An intermediate result needs ``preserve_all_tensors``; without it the memory may already serve another tensor. Raises
        :class:`DataError` when the tensor holds no data (it does not exist, or a delegate computes past it).
        """
        try:
            tensor: np.ndarray[Any, Any] = self._open().get_tensor(index)
        except ValueError as error:
            raise DataError(f"tensor {index} cannot be read: {_words(error)}") from error
        return tensor

    def delegation(self) -> Delegation:
        """How many operators a delegate runs. Counted in the interpreter's own list of nodes.

        Delegated operators stay in the list, followed by one DELEGATE node for each partition. Walking from such a node's outputs
        back to its inputs over the operators in between gives the operators it took.
        """
        nodes: List[Mapping[str, Any]] = self._open()._get_ops_details()
        delegates = [node for node in nodes if node["op_name"] == "DELEGATE"]
        operators = [node for node in nodes if node["op_name"] != "DELEGATE"]
        taken: Set[int] = set()
        producer = {int(tensor): node for node in operators for tensor in node["outputs"]}
        for delegate in delegates:
            taken |= _between(producer, delegate["inputs"], delegate["outputs"])
        # Only delegates that are on by default are ever applied here, and on a CPU that is XNNPACK alone.
        return Delegation("XNNPACK" if delegates else None, len(delegates), len(taken), len(operators))

    def close(self) -> None:
        """Frees the interpreter. Calling it twice is harmless; any other call afterwards raises :class:`UsageError`."""
        self._interpreter = None

    def __enter__(self) -> Backend:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _open(self) -> Any:
        if self._interpreter is None:
            raise UsageError("the model is closed", hint="open it again")
        return self._interpreter


def _check(model: ModelSource) -> None:
    """Refuses a file that is no complete model, naming the file."""
    try:
        if isinstance(model, bytes):
            check_model(model)
        else:
            check_model_file(model)
    except ModelFileError as error:
        if isinstance(model, bytes):
            raise
        raise ModelFileError(
            f"{os.fspath(model)}: {error.message}", hint=error.hint, code=error.code, details=error.details
        ) from error


def import_interpreter(wanted: Optional[str] = None) -> Tuple[str, str, Any]:
    """Name, version and module of the interpreter package that :func:`open_backend` would use.

    Raises :class:`UsageError` (code ``interpreter_missing``) when none can be imported.
    """
    if wanted is not None and wanted not in BACKENDS:
        raise UsageError(f"no interpreter backend is called {wanted!r}", hint=f"one of {', '.join(BACKENDS)}")
    refused: Dict[str, str] = {}
    for name in BACKENDS if wanted is None else (wanted,):
        try:
            module = _interpreter_module(name)
            # A package built for another numpy or libc fails with all sorts of errors while it is imported.
        except (ImportError, AttributeError, OSError, RuntimeError, SystemError) as error:
            refused[name] = _words(error)
            continue
        version = str(getattr(importlib.import_module(name), "__version__", "unknown"))
        return name, version, module
    said = "; ".join(f"{name}: {why}" for name, why in refused.items())
    raise UsageError(
        f"no TFLite interpreter can be imported ({said})",
        code="interpreter_missing",
        hint=_INSTALL_HINT,
        details={"refused": refused},
    )


def _interpreter_module(name: str) -> Any:
    """The module of package ``name`` that has the class ``Interpreter``."""
    if name == "tensorflow":
        module = importlib.import_module(name).lite  # the attribute; the package tensorflow.lite is another thing
    else:
        module = importlib.import_module(f"{name}.interpreter")
    if not hasattr(module, "Interpreter"):
        raise ImportError(f"{name} has no Interpreter")
    return module


def _resolver_without_delegates(module: Any, *, reference: bool) -> Any:
    """The resolver that leaves the default delegates off; TensorFlow keeps the enum one module deeper."""
    holder = module if hasattr(module, "OpResolverType") else module.experimental
    kinds = holder.OpResolverType
    return kinds.BUILTIN_REF if reference else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES


def _refuse_what_is_no_file(path: str) -> None:
    if os.path.isdir(path):
        raise ModelFileError(
            f"{path} is a folder, not a .tflite file", hint="open a bundle with edgekit.runtime.Model.open"
        )
    if not os.path.exists(path):
        raise ModelFileError(f"{path} does not exist", code="model_file_missing")
    if not os.access(path, os.R_OK):
        raise ModelFileError(f"{path} may not be read by this user", code="model_file_unreadable")
    if os.path.getsize(path) == 0:
        raise ModelFileError(f"{path} is empty")


def _not_loadable(what: str, name: str, version: str, error: Exception) -> ModelFileError:
    words = _words(error)
    details = {"interpreter": str(error), "backend": name, "version": version}
    if "find op for builtin opcode" in words or "op code out of range" in words.lower():
        return ModelFileError(
            f"{name} {version} has no operator for {what}: {words}",
            code="operator_unknown",
            hint="use a newer interpreter, or convert the model for the interpreter that is installed",
            details=details,
        )
    if "custom" in words.lower() or "unresolved" in words.lower():
        return ModelFileError(
            f"{name} {version} has no operator for {what}: {words}", code="operator_unknown", details=details
        )
    return ModelFileError(
        f"{what} is not a model that {name} {version} can load: {words}",
        hint="check that the file is a complete .tflite file",
        details=details,
    )


def _words(error: BaseException) -> str:
    """The first line of what an exception says, shortened."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def _tensor_detail(raw: Mapping[str, Any]) -> TensorDetail:
    parameters = raw["quantization_parameters"]
    scales = tuple(float(scale) for scale in parameters["scales"])
    zero_points = tuple(int(zero_point) for zero_point in parameters["zero_points"])
    # A float tensor comes with no scale or with scale 0, by the age of the converter.
    quantized = any(scale > 0 for scale in scales)
    # An interpreter may spell one scale out for every channel while it prepares the graph.
    single = quantized and len(set(scales)) == 1 and len(set(zero_points)) == 1
    return TensorDetail(
        index=int(raw["index"]),
        name=str(raw["name"]),
        shape=tuple(int(length) for length in raw["shape"]),
        dtype=np.dtype(raw["dtype"]).name,
        scale=scales[0] if single else 0.0,
        zero_point=zero_points[0] if single else 0,
        is_quantized=quantized,
        scales=scales if quantized else (),
        zero_points=zero_points if quantized else (),
    )


def _signatures(
    interpreter: Any, inputs: Sequence[TensorDetail], outputs: Sequence[TensorDetail]
) -> Dict[str, Tuple[Dict[str, int], Dict[str, int]]]:
    """Signature key to name-to-position maps; the interpreter gives tensor indices."""

    def positions(names: Mapping[str, int], tensors: Sequence[TensorDetail]) -> Dict[str, int]:
        by_index = {detail.index: position for position, detail in reversed(list(enumerate(tensors)))}
        return {name: by_index[index] for name, index in names.items() if index in by_index}

    return {
        key: (positions(maps["inputs"], inputs), positions(maps["outputs"], outputs))
        for key, maps in interpreter._get_full_signature_list().items()
    }


def _between(producer: Mapping[int, Mapping[str, Any]], inputs: Sequence[int], outputs: Sequence[int]) -> Set[int]:
    """Indices of the operators on any way from ``outputs`` back to ``inputs``."""
    found: Set[int] = set()
    seen = {int(tensor) for tensor in inputs}
    waiting = [int(tensor) for tensor in outputs]
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or tensor not in producer:
            continue
        seen.add(tensor)
        node = producer[tensor]
        found.add(int(node["index"]))
        waiting.extend(int(source) for source in node["inputs"])
    return found
