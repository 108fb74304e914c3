"""A model in an app: float in, float out, by name.

::

    from edgekit.runtime import Model

    with Model.open("mobilenet.bundle", threads=4) as model:
        scores = model(picture)            # one input, one output: arrays
        result = model({"image": picture, "state": state})["scores"]
"""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

import numpy as np

from edgekit.errors import DataError, ModelFileError, UsageError
from edgekit.runtime.backend import Backend, Delegation, ModelSource, cpu_cores, open_backend
from edgekit.runtime.join import join
from edgekit.runtime.naming import BundleFiles, describe, fingerprint, read_bundle
from edgekit.runtime.tensors import dequantize, quantize
from edgekit.values import IoSpec, Joined, Preprocessing

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from edgekit.runtime.stream import Policy, Stream
    from edgekit.runtime.submit import Submitter
    from edgekit.runtime.swap import Swapped, Watcher


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What runs: the interpreter, its threads, what the delegate took, and the sha256 of the model's bytes.

    ``float_io`` is True when no input and no output is quantised, so that nothing is converted on the way.
    """

    backend: str
    backend_version: str
    threads: int
    delegation: Delegation
    sha256: str
    size_bytes: int
    float_io: bool


class _Slot(NamedTuple):
    """One input, with what every call needs of it worked out once."""

    spec: IoSpec
    dtype: np.dtype[Any]
    batched: bool


class Model:
    """A model that is loaded and ready. Made by :meth:`open`.

    ``inputs`` and ``outputs`` describe it (:class:`edgekit.values.IoSpec`, in the interpreter's order), ``info`` says what runs it,
    ``preprocessing`` how a picture becomes its input (None unless the model came in a bundle that says so). Where a bundle delivers
    an output in parts, ``outputs`` are those of the source, put together again, and ``parts`` the interpreter's own; else both are the same.

    Any thread may call it: calls take turns, each in the thread that makes it, so one interpreter never runs twice at once. To compute on
    several frames at the same time open the model several times; the file's pages are shared, the arena is not. A process that was forked
    while the model was open cannot use it (the interpreter's threads stay behind): calls there raise :class:`UsageError` (``model_forked``).
    """

    def __init__(
        self,
        backend: Backend,
        *,
        inputs: Tuple[IoSpec, ...],
        outputs: Tuple[IoSpec, ...],
        info: ModelInfo,
        preprocessing: Optional[Preprocessing] = None,
        joins: Sequence[Joined] = (),
    ) -> None:
        self.inputs = inputs
        self.parts = outputs
        self.outputs = tuple(joined.output for joined in joins) or outputs
        self.info = info
        self.preprocessing = preprocessing
        self._joins = tuple(joins)
        self._backend = backend
        self._running = threading.Lock()
        self._starting = threading.Lock()
        self._pid = os.getpid()
        self._submitter: Optional[Submitter] = None
        self._watcher: Optional[Watcher] = None
        self._closed = False
        self._slots = [_Slot(spec, np.dtype(spec.dtype), spec.shape[:1] == (1,)) for spec in inputs]

    @classmethod
    def open(cls, path: ModelSource, *, threads: int = 0, backend: Optional[str] = None) -> Model:
        """A model from a bundle folder, a ``.tflite`` file, or the bytes of one.

        ``threads`` 0 means all cores that this process may use; ``backend`` asks for one interpreter package by name. Raises
        :class:`ModelFileError` when there is no model, when a bundle's file is not the one of its manifest (code ``bundle_damaged``)
        or was rejected by a gate (code ``model_rejected``), and :class:`UsageError` when no interpreter is installed.
        """
        bundle: Optional[BundleFiles] = None
        if not isinstance(path, bytes) and os.path.isdir(path):
            bundle = read_bundle(Path(path))
            path = bundle.model
        opened = open_backend(path, threads=threads, backend=backend)
        sha256, size_bytes = fingerprint(path)
        if bundle is not None and sha256 != bundle.sha256:
            raise ModelFileError(
                f"{bundle.model} has sha256 {sha256[:12]}..., its manifest says {bundle.sha256[:12]}...",
                code="bundle_damaged",
                hint="copy the bundle again, or convert the model again",
            )
        inputs, outputs = describe(opened, bundle)
        info = ModelInfo(
            backend=opened.name,
            backend_version=opened.version,
            threads=threads or cpu_cores(),
            delegation=opened.delegation(),
            sha256=sha256,
            size_bytes=size_bytes,
            float_io=all(spec.quant is None for spec in inputs + outputs),
        )
        return cls(
            opened,
            inputs=inputs,
            outputs=outputs,
            info=info,
            preprocessing=bundle.preprocessing if bundle is not None else None,
            joins=bundle.joins if bundle is not None else (),
        )

    def __call__(self, x: Any, *, raw: bool = False) -> Any:
        """Runs the model once.

        ``x`` is the array for the only input, or a dict of arrays by input name; each in the shape of ``inputs`` (the layout as
        delivered, channels last for pictures), where a leading axis of 1 may be left out. Real-valued inputs take floats, whatever
        the tensor's type is: quantising happens here. Integer inputs (indices, bytes) take integers. With ``raw=True`` every array
        is passed in the tensor's own dtype and comes back so, outputs in parts as ``parts`` describes them.

        Returns float32 (integers as they are for outputs that are no real numbers): one array for one output, else a dict by
        output name. The leading axis is left out where the inputs left it out. The arrays are the caller's own: the next call
        does not touch them.

        Raises :class:`DataError` for a wrong name, shape or type, for NaN in a quantised input, and for input that an operator
        refuses; :class:`UsageError` when the model is closed or was opened by the process that this one was forked from.
        """
        if self._pid != os.getpid():
            raise _forked()
        with self._running:
            return self._answer(x, raw)

    def _answer(self, x: Any, raw: bool) -> Any:
        """One inference, by whoever holds the lock."""
        without_batch = self._fill(x, raw=raw)
        self._backend.invoke()
        results = [self._result(position, raw) for position in range(len(self.parts))]
        specs = self.parts if raw else self.outputs
        if self._joins and not raw:
            results = join(self._joins, {spec.name: result for spec, result in zip(self.parts, results)})
        if without_batch:
            results = [result[0] if result.shape[:1] == (1,) else result for result in results]
        if len(results) == 1:
            return results[0]
        return {spec.name: result for spec, result in zip(specs, results)}

    def submit(self, x: Any, *, raw: bool = False, wait: bool = True) -> Future[Any]:
        """The same as a call, later: a future of its result. Inferences run one after the other in a thread of the model's own.

        At most 16 wait; one more waits here for its turn, or with ``wait=False`` raises :class:`ModelBusyError`. What is attached with
        ``add_done_callback`` runs in another thread than inferences do. In a coroutine: ``await asyncio.wrap_future(model.submit(x))``.
        """
        from edgekit.runtime.submit import Submitter

        if self._pid != os.getpid():
            raise _forked()
        with self._starting:
            if self._submitter is None:
                self._submitter = Submitter()
            submitter = self._submitter
        return submitter.submit(lambda: self(x, raw=raw), wait=wait)

    def stream(
        self,
        frames: Iterable[Any],
        *,
        policy: Policy,
        preprocess: Optional[Callable[[Any], Any]] = None,
        workers: int = 1,
    ) -> Stream:
        """The results of ``frames`` (a camera, a generator, a list) in their order: see :class:`edgekit.runtime.stream.Stream`.

        ``policy`` says what becomes of frames that come faster than the model computes: "latest" leaves out all but the newest, "all"
        makes ``frames`` wait, "reject" ends the stream with :class:`ModelBusyError`. ``preprocess`` makes the model's input of a frame, in
        ``workers`` threads of its own.
        """
        from edgekit.runtime.stream import Stream

        if self._pid != os.getpid():
            raise _forked()
        return Stream(self, frames, policy=policy, preprocess=preprocess, workers=workers)

    def swap(self, path: ModelSource) -> None:
        """Goes over to the model at ``path`` between two calls. It is opened, warmed and held against its golden pairs beside the old one,
        which goes on answering meanwhile, and for good when that fails.

        Raises what :meth:`open` does, and :class:`ModelFileError` when the new one answers otherwise than where it was made
        (``golden_differs``) or takes or gives something else than the old one (``swap_differs``).
        """
        from edgekit.runtime.swap import open_beside

        new = open_beside(path, self)
        with self._running:
            if self._closed:
                new.close()
                raise UsageError("the model is closed", code="model_closed")
            old = self._backend
            for name in _OF_ONE_MODEL:
                setattr(self, name, getattr(new, name))
        old.close()

    def watch(self, link: str, *, every_s: float = 1.0, on_swap: Optional[Callable[[Swapped], None]] = None) -> None:
        """Follows ``link``, such as ``~/.edgekit/apps/NAME/current``: whenever it points elsewhere the model there is swapped in.

        ``on_swap`` is told of each attempt in the watching thread; one that fails is logged, and not tried again until the link changes.
        """
        from edgekit.runtime.swap import Watcher

        with self._starting:
            if self._watcher is not None:
                raise UsageError("the model watches a link already", code="watching_already")
            self._watcher = Watcher(self, link, every_s=every_s, on_swap=on_swap)

    def close(self) -> None:
        """Frees the interpreter after the call that is running; calling it twice is harmless. What was submitted and has not begun is cancelled."""
        if self._pid != os.getpid():
            return  # the interpreter belongs to the parent, and so may the lock
        submitter = self._submitter
        if submitter is not None:
            submitter.close()
        if self._watcher is not None:
            self._watcher.close()
        with self._running:
            self._closed = True
            self._backend.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _fill(self, x: Any, *, raw: bool) -> bool:
        """Sets all inputs; says whether they came without their leading axis."""
        left_out: List[bool] = []
        for position, (slot, value) in enumerate(zip(self._slots, self._by_position(x))):
            array = np.asarray(value)
            if array.shape != slot.spec.shape:
                array = _with_leading_axis(array, slot.spec)
                left_out.append(True)
            elif slot.batched:
                left_out.append(False)
            self._backend.set_input(position, _as_raw(array, slot) if raw else _as_tensor(array, slot))
        return bool(left_out) and all(left_out)

    def _by_position(self, x: Any) -> Sequence[Any]:
        """The arrays in the order of the inputs."""
        if not isinstance(x, Mapping) and len(self._slots) == 1:
            return [x]
        names = [slot.spec.name for slot in self._slots]
        if not isinstance(x, Mapping):
            raise DataError(
                f"this model has {len(names)} inputs, one array was given",
                hint=f"pass a dict with the names {_quoted(names)}",
            )
        if x.keys() != set(names):
            missing = [name for name in names if name not in x]
            unknown = [str(name) for name in x if name not in names]
            said = [f"missing: {_quoted(missing)}"] * bool(missing) + [f"unknown: {_quoted(unknown)}"] * bool(unknown)
            raise DataError(
                f"the inputs do not fit the model ({'; '.join(said)})",
                hint=f"its inputs are {_quoted(names)}",
                details={"inputs": names, "missing": missing, "unknown": unknown},
            )
        return [x[name] for name in names]

    def _result(self, position: int, raw: bool) -> NDArray[Any]:
        array: NDArray[Any] = self._backend.get_output(position)
        quant = self.parts[position].quant
        if quant is not None and not raw:
            array = dequantize(array, scale=quant.scale, zero_point=quant.zero_point)
        return array


_OF_ONE_MODEL = ("inputs", "parts", "outputs", "info", "preprocessing", "_joins", "_backend", "_slots")
"""What belongs to the model that is running, and goes when another takes its place."""


def _forked() -> UsageError:
    return UsageError(
        "this process was forked from the one that opened the model, and the interpreter's threads stayed there",
        code="model_forked",
        hint="open the model in the process that uses it, or start processes with multiprocessing's 'spawn'",
    )


def _with_leading_axis(array: NDArray[Any], spec: IoSpec) -> NDArray[Any]:
    """``array`` with the leading 1 that it was given without; :class:`DataError` when that is not what is wrong with it."""
    if spec.shape[:1] == (1,) and array.shape == spec.shape[1:]:
        return array[np.newaxis]
    hint = ""
    if spec.permutation is not None and array.shape in (spec.source_shape, spec.source_shape[1:]):
        hint = f"this is the layout of the source model: transpose it by {spec.permutation}"
    raise DataError(
        f"input {spec.name!r} has shape {list(spec.shape)}, the array has {list(array.shape)}",
        hint=hint,
        details={"input": spec.name, "shape": list(spec.shape), "given": list(array.shape)},
    )


def _as_raw(array: NDArray[Any], slot: _Slot) -> NDArray[Any]:
    if array.dtype != slot.dtype:
        raise DataError(f"raw input {slot.spec.name!r} is {slot.dtype.name}, the array is {array.dtype.name}")
    return array


def _as_tensor(array: NDArray[Any], slot: _Slot) -> NDArray[Any]:
    """``array`` in the dtype of the tensor, converted as its meaning asks; :class:`DataError` when it has another meaning."""
    spec, quant = slot.spec, slot.spec.quant
    real = quant is not None or slot.dtype.kind == "f"
    if real and array.dtype.kind != "f":
        raise DataError(
            f"input {spec.name!r} takes real numbers, the array is {array.dtype.name}",
            hint="pass floats as the network was trained on them"
            + (f", or raw=True for {spec.dtype} as it is" if quant is not None else ""),
        )
    if quant is not None:
        try:
            return quantize(array, scale=quant.scale, zero_point=quant.zero_point, dtype=spec.dtype)
        except DataError as error:
            raise DataError(f"input {spec.name!r}: {error.message}", hint=error.hint) from error
    if array.dtype == slot.dtype:
        return array
    return array.astype(slot.dtype) if real else _as_integers(array, spec)


def _as_integers(array: NDArray[Any], spec: IoSpec) -> NDArray[Any]:
    """Integers of another width, when every value fits."""
    if array.dtype.kind not in "iu" or np.dtype(spec.dtype).kind not in "iu":
        raise DataError(f"input {spec.name!r} takes {spec.dtype}, the array is {array.dtype.name}")
    limits = np.iinfo(spec.dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise DataError(
            f"input {spec.name!r} takes {spec.dtype}, the array has values from {array.min()} to {array.max()}"
        )
    return array.astype(spec.dtype)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
