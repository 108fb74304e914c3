"""How the fuzzing damages files: bytes of any format, the structure of an ONNX model, members of archives, values in JSON."""

from __future__ import annotations

import io
import json
import random
import tarfile
import zipfile
from collections.abc import Sequence
from typing import Any

INTERESTING = (0, 1, 2, 3, 4, 16, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
_REPLACED = (
    b"Conv",
    b"Relu",
    b"Add",
    b"Gemm",
    b"Reshape",
    b"Clip",
    b"Concat",
    b"Softmax",
    b"MatMul",
    b"TFL3",
    b"PK\x03\x04",
    b"descr",
)


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes]) -> tuple[bytes, str]:
    """``data`` damaged in one to four ways, and which."""
    if rng.random() < 0.15:
        return data[: rng.randrange(len(data))], "truncated"
    words = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        way = rng.choice((_bits, _bytes, _number, _cut, _insert, _repeat, _word, _splice))
        data = way(data or b"\0", rng, others)
        words.append(way.__name__[1:])
    return data, "+".join(words)


def _place(data: bytes, rng: random.Random) -> int:
    """Often near the beginning or the end, where the structure is."""
    reach = len(data) if rng.random() < 0.5 else min(len(data), 2048)
    at = rng.randrange(max(reach, 1))
    return len(data) - 1 - at if rng.random() < 0.4 else at


def _bits(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64))):
        changed[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _bytes(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at, size = _place(data, rng), rng.choice((1, 4, 16, 256))
    fill = rng.choice((b"\0" * size, b"\xff" * size, rng.randbytes(size)))
    return data[:at] + fill[: max(len(data) - at, 0)] + data[at + size :]


def _number(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng) & ~3
    return data[:at] + rng.choice(INTERESTING).to_bytes(4, "little") + data[at + 4 :]


def _cut(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 4, 64, 1024)) :]


def _insert(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 64))) + data[at:]


def _repeat(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at, size = _place(data, rng), rng.choice((4, 64, 1024))
    return data[: at + size] + data[at:]


def _word(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    here = [word for word in _REPLACED if word in data]
    if not here:
        return _bits(data, rng, ())
    word = rng.choice(here)
    places = [at for at in range(len(data)) if data.startswith(word, at)] if len(data) < 50_000 else [data.index(word)]
    at = rng.choice(places)
    other = rng.choice([item for item in _REPLACED if len(item) == len(word)] + [word[:-1] + b"x"])
    return data[:at] + other + data[at + len(word) :]


def _splice(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others) if others else data
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def restructured(data: bytes, rng: random.Random) -> bytes:
    """An ONNX model that still parses, with one to three things in it that do not fit."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((_kind, _attributes, _wiring, _without, _shapes, _versions))(model, rng)
    return model.SerializeToString()


def _node(model: Any, rng: random.Random) -> Any:
    return rng.choice(model.graph.node) if model.graph.node else model.graph.node.add(op_type="Relu")


def _kind(model: Any, rng: random.Random) -> None:
    kinds = (
        "Relu",
        "Conv",
        "LSTM",
        "Loop",
        "If",
        "Scan",
        "Reshape",
        "NonZero",
        "Nothing",
        "TopK",
        "Resize",
        "Einsum",
        "",
        "Identity",
    )
    node = _node(model, rng)
    node.op_type = rng.choice(kinds)
    node.domain = rng.choice(("", "", "", "ai.onnx.ml", "com.microsoft", "made.up"))


def _attributes(model: Any, rng: random.Random) -> None:
    node = _node(model, rng)
    if not node.attribute:
        node.attribute.add(name=rng.choice(("axis", "pads", "group", "to")), i=rng.choice((-1, 0, 7, 2**40)), type=2)
        return
    item = rng.choice(node.attribute)
    item.i = rng.choice((-(2**63), -1, 0, 1, 3, 2**31, 2**62))
    if item.ints:
        item.ints[rng.randrange(len(item.ints))] = rng.choice((-1, 0, 2, 5, 2**31))
    if rng.random() < 0.2:
        item.type = rng.randrange(0, 14)
    if rng.random() < 0.2:
        node.attribute.remove(item)


def _wiring(model: Any, rng: random.Random) -> None:
    node, other = _node(model, rng), _node(model, rng)
    names = [*other.input, *other.output, "nowhere", ""]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(names)


def _without(model: Any, rng: random.Random) -> None:
    part = rng.choice((model.graph.node, model.graph.initializer, model.graph.input, model.graph.output))
    if part:
        del part[rng.randrange(len(part))]


def _shapes(model: Any, rng: random.Random) -> None:
    if model.graph.initializer and rng.random() < 0.5:
        tensor = rng.choice(model.graph.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice((-1, 0, 1, 2, 2**31, 2**62))
        else:
            tensor.data_type = rng.randrange(0, 30)
        return
    ends = [*model.graph.input, *model.graph.output]
    if ends:
        tensor_type = rng.choice(ends).type.tensor_type
        tensor_type.elem_type = rng.choice((1, 1, 6, 7, 8, 9, 10, 11, 16, 99))
        for dim in tensor_type.shape.dim:
            if rng.random() < 0.3:
                dim.dim_value = rng.choice((-1, 0, 1, 3, 2**20, 2**40))


def _versions(model: Any, rng: random.Random) -> None:
    model.ir_version = rng.choice((1, 3, 8, 10, 99))
    for item in model.opset_import:
        item.version = rng.choice((0, 1, 6, 7, 13, 21, 99))


def repacked(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A zip archive with sound checksums, one or two of whose members are damaged, renamed, missing or new."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(members)) if members else 0
        kind = rng.random()
        if kind < 0.6 and members:
            members[place] = (members[place][0], _member(*members[place], rng, others))
        elif kind < 0.75 and members:
            del members[place]
        elif kind < 0.9 and members:
            name = rng.choice((members[place][0] + "x", "../" + members[place][0], "config.json", "/a", "", "x" * 300))
            members[place] = (name, members[place][1])
        else:
            members.append((rng.choice(("new", "data/aotinductor/m.so", "models/other.json")), rng.randbytes(40)))
    return zipped(members, compressed=rng.random() < 0.3)


def zipped(members: Sequence[tuple[str, bytes]], *, compressed: bool = False) -> bytes:
    """An archive of these members; the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        for number, (name, content) in enumerate(members):
            if not name or name in archive.namelist():
                name = f"{name}{number}"
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _member(name: str, content: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    if name.endswith(".json") and rng.random() < 0.8:
        try:
            return _json(content, rng)
        except ValueError:
            pass
    return mutated(content, rng, others)[0]


def _json(content: bytes, rng: random.Random) -> bytes:
    """The document with one to three values replaced, taken away or renamed."""
    document = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        holders = [item for item in _holders(document) if item]
        if not holders:
            break
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        kind = rng.random()
        if kind < 0.7:
            holder[key] = _odd(holder[key], rng)
        elif kind < 0.9 or isinstance(holder, list):
            del holder[key]
        else:
            holder[f"{key}_"] = holder.pop(key)
    return json.dumps(document).encode()


def _holders(document: Any) -> list[Any]:
    found, waiting = [], [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (dict, list)):
            found.append(item)
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return found


def _odd(value: Any, rng: random.Random) -> Any:
    """Something else of the same kind, mostly."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((-1, 0, 1, 2, 7, 2**31, 2**62, None))
    if isinstance(value, str):
        return rng.choice(("", "x", value + "x", "Conv2D", "Lambda", "float16", "relu", "keras.layers", "os.system", 3))
    deep: Any = []
    for _ in range(50):
        deep = [deep]
    return rng.choice((None, -1, 1.5, "x", [], {}, [1, 2], deep, 2**40, True))


def retarred(data: bytes, rng: random.Random, others: Sequence[bytes]) -> tuple[bytes, str]:
    """A folder, as :func:`tarred` keeps it, with one file in it damaged or gone."""
    files = untarred(data)
    weights = [8 if name.endswith(".pb") and "saved" in name else 1 for name in files]
    name = rng.choices(list(files), weights)[0]
    if rng.random() < 0.05:
        return tarred({key: content for key, content in files.items() if key != name}), f"{name} gone"
    files[name], way = mutated(files[name], rng, [files[name], *others])
    return tarred(files), f"{name} {way}"


def tarred(files: dict[str, bytes]) -> bytes:
    """The files of a folder as one piece."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def untarred(data: bytes) -> dict[str, bytes]:
    """What :func:`tarred` took."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive.getmembers()}  # type: ignore[union-attr]
