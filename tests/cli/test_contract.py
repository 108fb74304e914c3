"""The command line as programs and people meet it: exit codes, two streams, one JSON document, words that were mistyped."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import SAMPLES, Bundle
from command_line import Said, command, environment, run
from onnx import helper

PIXELS = ("--color", "gray", "--mean", "127.5", "--std", "127.5")


@pytest.fixture(scope="module")
def sine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network that has no full integer form, and data for it."""
    folder = tmp_path_factory.mktemp("sine")
    node = helper.make_node("Sin", ["c"], ["r"])
    networks.save(networks.between_convolutions(node), folder / "sine.onnx")
    np.savez(folder / "d.npz", x=networks.normal(60, 3, 8, 8))
    return folder


def test_done_is_0(tmp_path: Path, any_frontend: str) -> None:
    """The result goes to standard output, and nothing else does; with --quiet nothing else is said at all."""
    said = run(
        *("convert", SAMPLES / "fashion_relu6.onnx", "--data", SAMPLES / "calibration", *PIXELS),
        *("--calibration", "50", "--frontend", any_frontend, "--out", "f.bundle", "--quiet"),
        cwd=tmp_path,
    )
    assert (said.exit_code, said.err) == (0, "")
    assert "Float against int8" in said.out and "f.bundle: passed" in said.out
    assert os.listdir(tmp_path) == ["f.bundle"]


def test_a_failed_gate_is_1_and_still_ok(sine: Path, any_frontend: str) -> None:
    out = sine / "json.bundle"
    said = run("convert", "sine.onnx", "--data", "d.npz", "--out", out, "--json", "--frontend", any_frontend, cwd=sine)
    assert (said.exit_code, said.err) == (1, "")
    document = said.document
    assert document["ok"] is True and document["passed"] is False
    gates = {gate["name"]: gate for gate in document["manifest"]["verification"]["gates"]}
    assert "SIN x1" in gates["full-integer"]["message"] and "no int8 form" in gates["full-integer"]["message"]
    (island,) = document["manifest"]["verification"]["islands"]
    assert (island["op"], island["layer"]) == ("SIN", "r") and "polynomial" in island["fix"]
    page = (out / "report.html").read_text()
    assert all(island[key] in html.unescape(page) for key in ("tensor", "reason", "fix"))
    assert (out / "rejected.tflite").is_file() and not (out / "model.tflite").exists()
    assert json.loads((out / "manifest.json").read_text()) == document["manifest"]


def test_undecided_is_1(tmp_path: Path, any_frontend: str) -> None:
    networks.save(networks.small_classifier(), tmp_path / "net.onnx")
    np.savez(
        tmp_path / "d.npz", x=networks.normal(16, 3, 8, 8)
    )  # eight judge: no share of eight reaches 80 % for certain
    line = ("convert", "net.onnx", "--data", "d.npz", "--out", "b", "--force", "--frontend", any_frontend)
    said = run(*line, cwd=tmp_path)
    assert said.exit_code == 1 and "undecided" in said.out
    assert "b: not passed (agreement); kept for study as b/rejected.tflite" in said.out


def test_what_cannot_be_converted_is_3(tmp_path: Path, any_frontend: str) -> None:
    """No front end has an operator whose output size depends on the values."""
    node = helper.make_node("Unique", ["f"], ["y"], sorted=1)
    model = networks.onnx_model(
        [helper.make_node("Flatten", ["x"], ["g"]), helper.make_node("Reshape", ["g", "s"], ["f"]), node],
        {"x": [1, 4]},
        {"y": None},
        {"s": np.array([4])},
    )
    networks.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "d.npz", x=networks.normal(20, 4))
    line = ("convert", "net.onnx", "--data", "d.npz", "--out", "b", "--frontend", any_frontend)
    said = run(*line, "--json", cwd=tmp_path)
    assert said.exit_code == 3, said.out + said.err
    assert said.error["code"] and said.error["message"]
    assert sorted(os.listdir(tmp_path)) == ["d.npz", "net.onnx"]


WRONG_CALLS = [
    (("convrt",), "there is no verb 'convrt'", 'did you mean "convert"?'),
    (("zzz",), "there is no verb 'zzz'", "verbs: inspect, convert"),
    (("convert", "m.onnx", "--dat", "d"), "No such option '--dat'", "see edgekit convert --help"),
    (("convert", "m.onnx", "--out", "o", "--frobnicate"), "No such option", "see edgekit convert --help"),
    (("convert", "m.onnx", "--out", "o", "--seed", "x"), "'x' is not a valid integer", "see edgekit convert --help"),
    (("convert", "m.onnx"), "Missing option '--out'", "see edgekit convert --help"),
    (("inspect",), "Missing argument 'MODEL'", "see edgekit inspect --help"),
    (("inspect", "missing.onnx"), "missing.onnx: no such file", "look into"),
    (("frontend", "lst"), "No such command 'lst'", "see edgekit frontend --help"),
    (("frontend", "add", "tensorflw"), "there is no front end named 'tensorflw'", 'did you mean "tensorflow"?'),
    (("--versoin",), "No such option '--versoin'", "see edgekit --help"),
]


@pytest.mark.parametrize(("line", "message", "hint"), WRONG_CALLS, ids=[" ".join(call[0]) for call in WRONG_CALLS])
def test_wrong_use_is_2_in_words_and_in_json(tmp_path: Path, line: tuple[str, ...], message: str, hint: str) -> None:
    plain = run(*line, cwd=tmp_path)
    assert (plain.exit_code, plain.out) == (2, "")
    first, second = plain.err.splitlines()[:2]
    assert first.startswith("edgekit: ") and message in first and second.startswith("  -> ") and hint in second
    said = run(*line, "--json", cwd=tmp_path)
    assert (said.exit_code, said.err) == (2, "")
    assert message in said.error["message"] and hint in said.error["hint"]
    assert os.listdir(tmp_path) == []


def test_no_verb_shows_the_help(tmp_path: Path) -> None:
    said = run(cwd=tmp_path)
    assert said.exit_code == 2 and said.out == "" and "edgekit convert" in said.err


def broken(*arguments: str, cwd: Path, **env: str) -> Said:
    """The command line with a fault put into the library."""
    script = "import edgekit.intake.frontends as f; f.installed = None; from edgekit.cli.main import main; main()"
    return run(*arguments, cwd=cwd, start=[sys.executable, "-c", script], env=env)


def test_edgekits_own_fault_is_70_with_a_trace_in_a_file(tmp_path: Path) -> None:
    said = broken("frontend", "list", cwd=tmp_path)
    assert (said.exit_code, said.out) == (70, "")
    assert "a fault of edgekit itself: TypeError" in said.err and "please report it" in said.err
    said = broken("frontend", "list", "--json", cwd=tmp_path)
    assert (said.exit_code, said.error["code"], said.err) == (70, "internal", "")
    trace = Path(said.error["details"]["trace"])
    assert trace.parent == tmp_path / "state" / "edgekit"
    assert "Traceback" in trace.read_text() and "frontend list --json" in trace.read_text()


def test_a_trace_that_can_be_saved_nowhere_is_no_second_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    script = (
        "import tempfile; tempfile.gettempdir = lambda: '/proc/none'; "
        "import edgekit.intake.frontends as f; f.installed = None; from edgekit.cli.main import main; main()"
    )
    env = {"XDG_STATE_HOME": str(tmp_path / "file")}
    said = run("frontend", "list", cwd=tmp_path, start=[sys.executable, "-c", script], env=env)
    assert said.exit_code == 70 and "the trace could not be saved" in said.err


def test_version_and_help(tmp_path: Path) -> None:
    import edgekit

    assert run("--version", cwd=tmp_path).out == f"edgekit, version {edgekit.__version__}\n"
    for flag in ("-h", "--help"):
        said = run(flag, cwd=tmp_path)
        assert said.exit_code == 0 and said.err == "" and said.out.startswith("Usage: edgekit")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(tmp_path: Path, shell: str) -> None:
    said = run(cwd=tmp_path, env={"_EDGEKIT_COMPLETE": f"{shell}_source"})
    assert said.exit_code == 0 and said.err == "" and "_EDGEKIT_COMPLETE" in said.out
    env = {"_EDGEKIT_COMPLETE": "bash_complete", "COMP_WORDS": "edgekit con", "COMP_CWORD": "1"}
    assert run(cwd=tmp_path, env=env).out.split() == ["plain,convert"]


def test_the_start_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = ["numpy", "onnx", "onnxruntime", "scipy", "rich", "plotly", "paramiko", "PIL", "jinja2", "edgekit.flow"]
    script = (
        "import sys\nfrom edgekit.cli.main import run\n"
        "code = run(['--help'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], code, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment(tmp_path)
    )
    assert done.stderr.strip() == "[] 0"


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    """``edgekit ... | head -1``"""
    line = " ".join(command("frontend", "list", "--json"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_a_data_function_that_prints_does_not_spoil_the_document(tmp_path: Path) -> None:
    networks.save(networks.small_classifier(), tmp_path / "net.onnx")
    (tmp_path / "camera.py").write_text(
        "import os, sys, numpy as np\n"
        "print('loading the camera')\n"
        "def frames():\n"
        "    os.write(1, b'from native code')\n"
        "    for value in range(8):\n"
        "        print('frame', value)\n"
        "        yield {'x': np.full((3, 8, 8), value, np.float32)}\n"
    )
    line = ("convert", "net.onnx", "--data", "camera:frames", "--out", "b", "--dry-run")
    said = run(*line, "--json", cwd=tmp_path)
    if said.exit_code == 2 and said.error["code"] == "frontend_missing":
        pytest.skip("no front end is installed: edgekit frontend add onnx2tf")
    assert said.exit_code == 0 and said.document["plan"]["calibration_count"] == 4
    assert "loading the camera" in said.err and "native" not in said.out + said.err


def test_inspect_and_frontends_as_documents(
    tmp_path: Path, fashion: Callable[[str], Bundle], any_frontend: str
) -> None:
    bundle = fashion(any_frontend)
    said = run("inspect", bundle.path, "--json", cwd=tmp_path)
    assert said.exit_code == 0 and said.err == ""
    inspection: dict[str, Any] = said.document["inspection"]
    assert (
        inspection["full_integer"] is True
        and inspection["sha256"] == bundle.manifest["files"]["model.tflite"]["sha256"]
    )
    listed = run("frontend", "list", "--json", cwd=tmp_path).document["frontends"]
    assert {entry["name"]: entry["installed"] for entry in listed}[any_frontend] is True
