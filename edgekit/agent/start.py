"""``__main__`` of the agent's file: what the board compiled once is not compiled again.

A Python that runs a zip compiles every module each time, which on a small board takes longer than most errands. So the code that an errand
used is kept beside the file, ``agent-HASH.CACHE_TAG.code``: a CRC-32 and the marshalled code by module. Its key is the Python and the
file's size and time; whatever does not match, half a file too, is made anew, and a folder that cannot be written only costs time.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib

TYPE_CHECKING = False  # typing's own, without importing it: this file is compiled at every start
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Dict, Tuple


class CompiledOnce:
    """Imports ``edgekit`` from the zip that ``importer`` reads, by way of the code that was kept."""

    def __init__(self, importer: Any) -> None:
        self._importer = importer
        self._archive: str = importer.archive
        stat = os.stat(self._archive)
        self._key = repr((sys.version, stat.st_size, stat.st_mtime_ns)).encode()
        self._path = f"{os.path.splitext(self._archive)[0]}.{sys.implementation.cache_tag}.code"
        self._modules = self._kept()
        self._new = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """For the import system."""
        if name.partition(".")[0] != "edgekit":
            return None
        if name not in self._modules and not self._compile(name):
            return None
        is_package = self._modules[name][0]
        origin = self._file(name, is_package)
        kind: Any = type(__spec__)  # the import system's ModuleSpec, without an import
        spec = kind(name, self, origin=origin, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations.append(os.path.dirname(origin))
        return spec

    def create_module(self, spec: Any) -> None:
        """For the import system: an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """For the import system."""
        exec(self._modules[module.__name__][1], module.__dict__)

    def get_source(self, name: str) -> str:
        """For tracebacks."""
        source: bytes = self._importer.get_data(self._file(name, self._modules[name][0]))
        return source.decode("utf-8")

    def keep(self) -> None:
        """Has what was compiled now ready for the next time."""
        if not self._new:
            return
        body = marshal.dumps(self._modules)
        folder, name = os.path.split(self._path)
        beside = os.path.join(folder, f".{name}.{os.getpid()}.part")
        try:
            with open(beside, "wb") as file:
                file.write(self._crc(body) + body)
            os.replace(beside, self._path)
        except OSError:
            try:
                os.unlink(beside)
            except OSError:
                pass

    def _kept(self) -> Dict[str, Tuple[bool, CodeType]]:
        try:
            with open(self._path, "rb") as file:
                data = file.read()
            known: Dict[str, Tuple[bool, CodeType]] = marshal.loads(data[4:]) if self._crc(data[4:]) == data[:4] else {}
            return known
        except (OSError, ValueError, EOFError, TypeError):
            return {}

    def _crc(self, body: bytes) -> bytes:
        return zlib.crc32(body, zlib.crc32(self._key)).to_bytes(4, "little")

    def _compile(self, name: str) -> bool:
        for is_package in (False, True):
            file = self._file(name, is_package)
            try:
                source = self._importer.get_data(file)
            except OSError:
                continue
            self._modules[name] = is_package, compile(source, file, "exec", dont_inherit=True)
            self._new = True
            return True
        return False

    def _file(self, name: str, is_package: bool) -> str:
        return os.path.join(self._archive, *name.split(".")) + (os.sep + "__init__.py" if is_package else ".py")


def start() -> int:
    """Runs the agent; an errand with the code that was kept."""
    if len(sys.argv) != 5 or sys.argv[1] != "do" or sys.argv[3] != "--home":
        from edgekit.agent.__main__ import main

        return main()
    finder = CompiledOnce(globals()["__loader__"])
    sys.meta_path.insert(0, finder)
    from edgekit.agent.errands import main as do

    try:
        return do(sys.argv[2], sys.argv[4])
    finally:
        finder.keep()


if __name__ == "__main__":
    sys.exit(start())
