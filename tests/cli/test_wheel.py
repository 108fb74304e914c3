"""Installed from a wheel, edgekit is whole: recipes, device profiles, pins and templates travel with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from bundles import ROOT
from command_line import Said, run

NO_NETWORK = (
    "No matching distribution",
    "Could not find a version",
    "Max retries",
    "Temporary failure",
    "ConnectionError",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by pip from a copy of what a checkout holds, so that nothing of a build stays in this one."""
    folder = tmp_path_factory.mktemp("wheel")
    keep_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".venv", "demo", "runs")
    for name in ("edgekit", "recipes", "devices"):
        shutil.copytree(ROOT / name, folder / "checkout" / name, ignore=keep_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "checkout" / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--disable-pip-version-check",
        "-w",
        str(folder / "out"),
    ]
    done = subprocess.run(
        [*command, str(folder / "checkout")], capture_output=True, text=True, timeout=280, check=False
    )
    if done.returncode != 0 and any(word in done.stdout + done.stderr for word in NO_NETWORK):
        pytest.skip("pip cannot fetch setuptools to build a wheel with")
    assert done.returncode == 0, done.stdout + done.stderr
    [found] = (folder / "out").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked where a Python finds it, away from the checkout."""
    place = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--quiet",
    ]
    subprocess.run([*command, "--target", str(place), str(wheel)], check=True, capture_output=True, timeout=280)
    return place


def data_files(root: Path) -> set[str]:
    """What must travel that is not Python, as it is called inside of the wheel."""
    names = {
        f"edgekit/_data/{kind}/{path.name}" for kind in ("recipes", "devices") for path in (root / kind).glob("*.toml")
    }
    for path in (root / "edgekit").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            names.add(str(path.relative_to(root)))
    return names


def test_everything_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = data_files(ROOT)
    assert {
        "edgekit/_data/recipes/full-int8.toml",
        "edgekit/intake/requirements/onnx2tf.txt",
        "edgekit/py.typed",
    } <= wanted
    assert any(name.startswith("edgekit/report/templates/") for name in wanted)
    assert wanted - names == set()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "edgekit").rglob("*.py")}
    assert modules - names == set()
    assert not [name for name in names if name.startswith(("tests", "sample_models", "tools"))]


def call(installed: Path, *arguments: str, cwd: Path) -> Said:
    return run(*arguments, cwd=cwd, env={"PYTHONPATH": str(installed)})


def test_it_runs_from_there(installed: Path, tmp_path: Path) -> None:
    import edgekit

    said = call(installed, "--version", cwd=tmp_path)
    assert (said.exit_code, said.out) == (0, f"edgekit, version {edgekit.__version__}\n")
    script = "import edgekit; from edgekit.quantize.recipe import load; print(edgekit.__file__, load('full-int8').name)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    place, name = done.stdout.split()
    assert Path(place).is_relative_to(installed) and name == "full-int8"


def test_its_front_ends_have_the_same_pins(installed: Path, tmp_path: Path) -> None:
    """An environment made by a checkout is found by the installed wheel, whose pins and worker are its own."""
    said = call(installed, "frontend", "list", "--json", cwd=tmp_path)
    here = run("frontend", "list", "--json", cwd=tmp_path)
    assert said.document == here.document


def test_the_program_is_called_edgekit(installed: Path) -> None:
    program = installed / "bin" / "edgekit"
    assert program.is_file() and "edgekit.cli.main" in program.read_text()
