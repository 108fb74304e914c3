"""Another model in the place of one that is running: proved beside it first. And following the releases that are pushed."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Callable, Optional, Sequence, Tuple

import numpy as np

from edgekit.errors import DataError, EdgekitError, ModelFileError
from edgekit.runtime.backend import ModelSource
from edgekit.runtime.golden import GOLDEN_FILE, compared, golden_samples
from edgekit.runtime.naming import MODEL_FILE, fingerprint
from edgekit.values import IoSpec

if TYPE_CHECKING:
    from edgekit.runtime.model import Model

_log = logging.getLogger("edgekit.runtime")


@dataclasses.dataclass(frozen=True)
class Swapped:
    """One attempt to follow a link: the folder or file it points to, and what kept the model from being swapped in (None: it was)."""

    target: str
    error: Optional[EdgekitError]


def open_beside(path: ModelSource, old: Model) -> Model:
    """The model at ``path``, on the interpreter and threads of ``old``, warmed up and proved by its golden pairs where it has any.

    Raises :class:`ModelFileError` when it does not hold (``golden_differs``) or does not fit into the place of ``old`` (``swap_differs``).
    """
    if not isinstance(path, bytes):
        path = os.path.realpath(os.path.expanduser(os.fspath(path)))  # a link may be changed while its files are read
    new = type(old).open(path, threads=old.info.threads, backend=old.info.backend)
    try:
        _refuse_another_kind(old, new)
        _prove(new, None if isinstance(path, bytes) else os.path.join(path, GOLDEN_FILE))
    except BaseException:
        new.close()
        raise
    return new


def _refuse_another_kind(old: Model, new: Model) -> None:
    for what, before, after in (("inputs", old.inputs, new.inputs), ("outputs", old.outputs, new.outputs)):
        if _seen_by_callers(before) != _seen_by_callers(after):
            raise ModelFileError(
                f"the {what} of the new model are {_told(after)}, the running one has {_told(before)}",
                code="swap_differs",
                hint="open it as a model of its own: the app's calls would not fit it",
            )


def _seen_by_callers(specs: Sequence[IoSpec]) -> object:
    """What calls depend on; a single one is passed without its name."""
    seen = [(spec.shape, "real" if _is_real(spec) else spec.dtype) for spec in specs]
    return seen if len(specs) == 1 else dict(zip([spec.name for spec in specs], seen))


def _is_real(spec: IoSpec) -> bool:
    return spec.quant is not None or np.dtype(spec.dtype).kind == "f"


def _told(specs: Sequence[IoSpec]) -> str:
    return ", ".join(f"{spec.name!r} ({'real' if _is_real(spec) else spec.dtype} {list(spec.shape)})" for spec in specs)


def _prove(model: Model, golden: Optional[str]) -> None:
    """Runs it for the first time, on its golden inputs or on zeros."""
    backend = model._backend
    if golden is None or not os.path.isfile(golden):
        for position, spec in enumerate(model.inputs):
            backend.set_input(position, np.zeros(spec.shape, spec.dtype))
        backend.invoke()
        return
    try:
        samples = golden_samples(backend, golden=golden, names={spec.tensor: spec.name for spec in model.inputs})
        answers = []
        for sample in samples:
            for position, array in enumerate(sample):
                backend.set_input(position, array)
            backend.invoke()
            answers.append([backend.get_output(position) for position in range(len(model.parts))])
        found = compared(golden, model.parts, [np.stack(column) for column in zip(*answers)])
    except (DataError, OSError, ValueError) as error:
        raise ModelFileError(f"{golden} does not fit the model: {error}", code="bundle_damaged") from error
    reasons = [output["reason"] for output in found if not output["passed"]]
    if reasons:
        raise ModelFileError("; ".join(reasons), code="golden_differs", hint="the model that was running goes on")


def _is_model_of(target: str, sha256: str) -> bool:
    try:
        return fingerprint(os.path.join(target, MODEL_FILE) if os.path.isdir(target) else target)[0] == sha256
    except OSError:
        return False


class Watcher:
    """A thread that swaps in whatever a link points to, each time it changes. Does not keep its model alive."""

    def __init__(
        self, model: Model, link: str, *, every_s: float, on_swap: Optional[Callable[[Swapped], None]]
    ) -> None:
        self._model = weakref.ref(model)
        self._link = os.path.expanduser(link)
        self._every_s = every_s
        self._on_swap = on_swap
        self._ended = threading.Event()
        self._seen = self._target()
        if not _is_model_of(self._seen[0], model.info.sha256):  # it was changed after the model was opened
            self._seen = ("", 0)
        self._thread = threading.Thread(target=self._follow, name="edgekit-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after the swap that it is at."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _target(self) -> Tuple[str, int]:
        """Where the link points, and which folder or file that is: one that was replaced has another inode."""
        target = os.path.realpath(self._link)
        try:
            return target, os.stat(target).st_ino
        except OSError:
            return target, 0

    def _follow(self) -> None:
        while not self._ended.wait(self._every_s) and self._look():
            pass  # while it waits nothing here holds the model

    def _look(self) -> bool:
        """Follows the link if it has changed; False when the model is gone."""
        model = self._model()
        if model is None:
            return False
        target = self._target()
        if target != self._seen and target[1]:  # 0: nothing is there, a release is about to come
            self._seen = target
            self._try(model, target[0])
        return True

    def _try(self, model: Model, target: str) -> None:
        error: Optional[EdgekitError] = None
        try:
            model.swap(target)
            _log.info("swapped to %s", target)
        except EdgekitError as caught:
            error = caught
            _log.warning("the model that was running goes on, %s was refused: %s", target, caught)
        if self._on_swap is not None:
            self._on_swap(Swapped(target, error))
