"""External data of an ONNX model: which files its tensors name, and whether those are there, long enough and in the model's folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from edgekit.errors import ModelFileError


@dataclasses.dataclass(frozen=True)
class ExternalData:
    """One file next to the model, and how many tensors have their values in it."""

    location: str
    path: Path
    size_bytes: int
    tensors: int


def check_external_data(model: Any, model_path: Path) -> tuple[ExternalData, ...]:
    """The external files of ``model`` in name order; the values themselves are not read.

    Raises :class:`ModelFileError`: ``external_data_outside`` for a path that leaves the model's folder (absolute, ``..``, or through a
    symbolic link), ``external_data_missing``, ``model_truncated`` for a file that ends before the values do.
    """
    folder = model_path.parent
    needed: dict[str, tuple[int, int]] = {}  # location: (bytes needed, tensors)
    for tensor in all_tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        end, count = needed.get(location, (0, 0))
        needed[location] = (max(end, _end(model_path, tensor.name, entries)), count + 1)
    return tuple(_check_file(model_path, folder, location, *needed[location]) for location in sorted(needed))


def all_tensors(model: Any) -> Iterator[Any]:
    """Every stored tensor of the model: initializers and attributes, in subgraphs, functions and training parts too."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)
    for training in model.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)


def _graph_tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        sparse_tensors = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        for sparse in [*sparse_tensors, *attribute.sparse_tensors]:
            yield sparse.values
            yield sparse.indices
        for graph in [attribute.g] if attribute.HasField("g") else []:
            yield from _graph_tensors(graph)
        for graph in attribute.graphs:
            yield from _graph_tensors(graph)


def _end(model_path: Path, name: str, entries: dict[str, str]) -> int:
    try:
        offset, length = (int(entries.get("offset", "0")), int(entries.get("length", "0")))
    except ValueError:
        offset = length = -1
    if offset < 0 or length < 0:
        raise ModelFileError(
            f"{model_path}: damaged ONNX model: tensor {name!r} lies at offset {entries.get('offset')!r}, length {entries.get('length')!r}",
            code="model_corrupt",
        )
    return offset + length


def _check_file(model_path: Path, folder: Path, location: str, end: int, tensors: int) -> ExternalData:
    pure = PurePosixPath(location)
    outside = (
        not location
        or "\0" in location
        or pure.is_absolute()
        or ".." in pure.parts
        or "\\" in location
        or ":" in pure.parts[0]
    )
    if not outside:
        outside = not (folder / location).resolve().is_relative_to(folder.resolve())
    if outside:
        link = (
            "its file is a symbolic link: copy the real file there; otherwise "
            if (folder / location).is_symlink()
            else ""
        )
        raise ModelFileError(
            f"{model_path}: {tensors} of its tensors lie in {location!r}, outside of the model's folder {folder}: refused",
            hint=f"{link}save the model again with its data next to it, and only use models whose origin you trust",
            code="external_data_outside",
            details={"location": location},
        )
    path = folder / location
    if not path.is_file():
        raise ModelFileError(
            f"{model_path}: the values of {tensors} tensors lie in the file {location!r}, which is not in {folder}",
            hint=f"copy {location} into {folder}: the two files belong together",
            code="external_data_missing",
            details={"location": location, "folder": str(folder)},
        )
    size = path.stat().st_size
    if size < end:
        raise ModelFileError(
            f"{path}: {size:,} bytes, but the model's values go on to byte {end:,}: cut short",
            hint="copy or download the file again",
            code="model_truncated",
            details={"size_bytes": size, "needed_bytes": end},
        )
    return ExternalData(location, path, size, tensors)
