"""Who may import whom. Read from the sources, so that a forbidden import fails here and not on somebody's board.

* What runs on a board (``errors``, ``values``, ``runtime``, ``agent``) imports the standard library, numpy and each other, in syntax that
  Python 3.8 reads; Pillow, OpenCV and cryptography only inside functions, as they may be absent. The supervisor needs no numpy.
* ``link`` knows no model, ``report`` reads run folders only, nobody imports ``cli``.
* Heavy packages are imported inside the function that needs them, so that ``edgekit --help`` stays fast.
"""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "edgekit"

HEAVY = {
    "tensorflow",
    "onnx",
    "onnxruntime",
    "paramiko",
    "scipy",
    "plotly",
    "rich",
    "PIL",
    "cv2",
    "torch",
    "keras",
    "jinja2",
}
"""Never imported at module level, anywhere."""

BOARD_FILES = ("__init__.py", "errors.py", "values.py", "runtime", "agent")
BOARD_ROOMS = {"errors", "values", "runtime", "agent", ""}

WORKER_ONLY = {"agent/worker.py", "agent/inputs.py", "agent/latencies.py", "agent/health.py"}
"""The agent's modules that run in the worker: they alone may use numpy and the runtime."""


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported module. ``late`` is inside a function; imports for type checkers only are left out."""

    module: str
    line: int
    late: bool

    @property
    def top(self) -> str:
        return self.module.split(".")[0]

    @property
    def room(self) -> str | None:
        """The room of edgekit that is imported, "" for the package itself, None for other packages."""
        if self.top != "edgekit":
            return None
        return self.module.split(".")[1] if "." in self.module else ""


def imports_of(source: str) -> list[Import]:
    """All imports that happen at run time."""
    return list(_walk(ast.parse(source), late=False))


def _walk(node: ast.AST, *, late: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, late)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide what they import"
        if node.module == "edgekit":
            for alias in node.names:
                yield Import("edgekit" if alias.name == "__version__" else f"edgekit.{alias.name}", node.lineno, late)
        elif node.module and node.module != "__future__":
            yield Import(node.module, node.lineno, late)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        for statement in node.orelse:
            yield from _walk(statement, late=late)
    else:
        inside = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from _walk(child, late=inside)


def modules(*parts: str) -> list[Path]:
    """The package's modules, or those of some rooms."""
    paths: list[Path] = []
    for part in parts or (".",):
        path = PACKAGE / part
        paths += sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
    return paths


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


every_module = pytest.mark.parametrize("path", modules(), ids=name)
board_module = pytest.mark.parametrize("path", modules(*BOARD_FILES), ids=name)


def complain(path: Path, found: list[Import], why: str) -> None:
    assert not found, f"{name(path)}: {why}: " + ", ".join(f"{one.module} (line {one.line})" for one in found)


@every_module
def test_heavy_packages_are_imported_late(path: Path) -> None:
    complain(
        path,
        [one for one in imports_of(path.read_text()) if one.top in HEAVY and not one.late],
        "import this inside the function that needs it",
    )


@every_module
def test_nobody_imports_the_command_line(path: Path) -> None:
    if name(path) == "__main__.py" or name(path).startswith("cli/"):
        return
    complain(
        path,
        [one for one in imports_of(path.read_text()) if one.room == "cli"],
        "the command line is the top of the house",
    )


@board_module
def test_the_board_s_code_imports_little(path: Path) -> None:
    allowed = set(sys.stdlib_module_names) | {"numpy"}
    found = []
    for one in imports_of(path.read_text()):
        if one.room is not None:
            ok = one.room in BOARD_ROOMS
        else:
            ok = one.top in allowed or (one.late and one.top in ("PIL", "cv2", "cryptography"))
        if not ok:
            found.append(one)
    complain(path, found, "a board has the standard library, numpy and an interpreter")


@board_module
def test_the_board_s_code_is_python_3_8(path: Path) -> None:
    source = path.read_text()
    ast.parse(source, feature_version=(3, 8))
    if "->" in source:
        assert "from __future__ import annotations" in source, f"{name(path)}: annotations must not be evaluated"


@pytest.mark.parametrize("path", modules("runtime"), ids=name)
def test_the_runtime_does_not_know_the_agent(path: Path) -> None:
    complain(path, [one for one in imports_of(path.read_text()) if one.room == "agent"], "an app has no agent")


@pytest.mark.parametrize("path", [path for path in modules("agent") if name(path) not in WORKER_ONLY], ids=name)
def test_the_supervisor_needs_the_standard_library_only(path: Path) -> None:
    complain(
        path,
        [one for one in imports_of(path.read_text()) if one.top == "numpy" or one.room == "runtime"],
        "the supervisor outlives numpy and the interpreter",
    )


def test_the_worker_imports_numpy_late() -> None:
    path = PACKAGE / "agent" / "worker.py"
    early = [one for one in imports_of(path.read_text()) if not one.late]
    complain(
        path,
        [one for one in early if one.top == "numpy" or one.room == "runtime"],
        "the memory of the import is measured",
    )


@pytest.mark.parametrize("path", modules("link"), ids=name)
def test_a_link_knows_no_model(path: Path) -> None:
    complain(
        path,
        [one for one in imports_of(path.read_text()) if one.room not in (None, "errors", "link")],
        "a link runs commands and moves files",
    )


@pytest.mark.parametrize("path", modules("report"), ids=name)
def test_a_report_reads_run_folders_only(path: Path) -> None:
    complain(
        path,
        [one for one in imports_of(path.read_text()) if one.room not in (None, "", "errors", "values", "report")],
        "a report is a function of the folder",
    )


def test_importing_edgekit_is_cheap() -> None:
    code = "import sys, edgekit; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert not loaded & (HEAVY | {"numpy", "click", "ai_edge_litert", "tflite_runtime"})


def test_this_test_sees_what_it_should() -> None:
    """The reader itself, on sources whose answer is known."""
    source = (
        "from __future__ import annotations\nimport os, onnx.helper\nfrom edgekit import errors, __version__\n"
        "if TYPE_CHECKING:\n    import scipy\nelse:\n    import json\n"
        "try:\n    from edgekit.cli.show import x\nexcept ImportError:\n    pass\n"
        "class A:\n    import rich\n    def f(self):\n        if True:\n            import tensorflow\n"
    )
    assert {(one.module, one.late) for one in imports_of(source)} == {
        ("os", False),
        ("onnx.helper", False),
        ("edgekit.errors", False),
        ("edgekit", False),
        ("json", False),
        ("edgekit.cli.show", False),
        ("rich", False),
        ("tensorflow", True),
    }
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 8))
