"""The border to a front end: whatever the program behind it does, the user gets one sentence, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fake_frontends
import networks
import numpy as np
import pytest
from command_line import Said, run

from edgekit.errors import ConversionError
from edgekit.intake.convert import ConversionRequest, Converted, convert
from edgekit.intake.session import WORKER, Session


def converted(tmp_path: Path, text: str, *, timeout_s: float = 60.0) -> Converted:
    """What comes of a front end that is this shell script."""
    python = fake_frontends.program(tmp_path / "bin" / "python", f"#!/bin/sh\n{text}\n")
    return with_python(tmp_path, python, timeout_s=timeout_s)


def with_python(tmp_path: Path, python: Path, *, timeout_s: float = 60.0) -> Converted:
    work = tmp_path / "work"
    work.mkdir()
    model = tmp_path / "private.onnx"
    model.write_bytes(b"a copy")
    with Session(fake_frontends.frontend("onnx2tf", python), tmp_path) as session:
        return convert(session, ConversionRequest(model, ["x"], ["y"], False, work, timeout_s))


def test_success_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(
        ConversionError, match=r"front end onnx2tf ended with status 0 after .* s without a result"
    ) as caught:
        converted(tmp_path, "echo all is well; exit 0")
    assert caught.value.details["log_tail"] == ["all is well"]


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_success_claimed_without_a_model(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "m.tflite").write_bytes(content)
    python = fake_frontends.answering(tmp_path / "bin" / "python", tflite=str(tmp_path / "m.tflite"))
    with pytest.raises(ConversionError, match="reported success after .* s but wrote no model"):
        with_python(tmp_path, python)


@pytest.mark.parametrize(("number", "word"), [("KILL", "SIGKILL"), ("ABRT", "SIGABRT"), ("SEGV", "SIGSEGV")])
def test_death_by_a_signal(tmp_path: Path, number: str, word: str) -> None:
    with pytest.raises(ConversionError, match=f"front end onnx2tf was killed by {word} after") as caught:
        converted(tmp_path, f"echo last words >&2; kill -{number} $$")
    assert caught.value.details["log_tail"][-1] == "last words"
    assert ("free memory" in caught.value.hint) == (word == "SIGKILL")


def test_an_exit_status_and_the_last_words(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="ended with status 7") as caught:
        converted(tmp_path, "for i in $(seq 50); do echo line $i; done; exit 7")
    assert caught.value.details["log_tail"] == [f"line {i}" for i in range(31, 51)]


def test_a_converter_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="did not finish within 1 s") as caught:
        converted(tmp_path, f"sleep 600 & echo $! >{tmp_path}/child; wait", timeout_s=1.0)
    assert (caught.value.code, caught.value.hint) == ("conversion_timeout", "allow more with --timeout SECONDS")
    child = int((tmp_path / "child").read_text())
    for _ in range(200):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split(")")[1][:3]:
            return
        time.sleep(0.02)
    pytest.fail(f"process {child} is still there")


def test_an_interpreter_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("not a program")
    (tmp_path / "python").chmod(0o644)
    with pytest.raises(ConversionError, match="front end onnx2tf cannot be started") as caught:
        with_python(tmp_path, tmp_path / "python")
    assert caught.value.code == "frontend_broken" and "edgekit frontend remove onnx2tf" in caught.value.hint


def test_a_converter_that_asks_a_question_gets_no_answer(tmp_path: Path) -> None:
    """Nor does it wait for one: its standard input is empty or closed, never the user's terminal."""
    python = fake_frontends.program(
        tmp_path / "bin" / "python",
        f"#!{sys.executable}\nimport subprocess, sys\nsys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))\n",
    )
    with pytest.raises(
        ConversionError, match="front end onnx2tf failed: ModuleNotFoundError: No module named 'onnx2tf'"
    ):
        with_python(tmp_path, python)  # the real worker, in this environment, which has no onnx2tf


@pytest.fixture
def worker_script(tmp_path: Path) -> Any:
    """Runs a snippet after the real worker's own guard was put up."""

    def ran(snippet: str) -> str:
        script = (
            f"import sys; sys.path.insert(0, {str(WORKER.parent)!r})\nimport worker\nworker.refuse_network()\n{snippet}"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip()

    return ran


@pytest.mark.parametrize(
    "attempt",
    [
        "import urllib.request as u; u.urlopen('http://127.0.0.1:9/')",
        "import urllib.request as u; u.urlopen('https://example.invalid/data.npy')",
        "import socket; socket.getaddrinfo('example.invalid', 80)",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect_ex(('127.0.0.1', 9))",
        "import http.client as h; h.HTTPConnection('127.0.0.1', 9).request('GET', '/')",
    ],
)
def test_no_way_out_to_the_network(worker_script: Any, attempt: str) -> None:
    snippet = f"try:\n    {attempt}\nexcept OSError as error:\n    print(error)\n"
    assert "the conversion runs offline" in worker_script(snippet)


def test_pipes_within_the_machine_stay_open(worker_script: Any) -> None:
    """Converters start processes of their own, which talk through local sockets."""
    snippet = "import socket; a, b = socket.socketpair(); a.sendall(b'hello'); print(b.recv(5).decode())"
    assert worker_script(snippet) == "hello"


def call(folder: Path, first: Path, second: Path | None, *more: str) -> Said:
    """``edgekit convert`` of the three-output network on a machine with these programs as its front ends."""
    networks.save(networks.three_outputs(), folder / "net.onnx")
    data = np.random.default_rng(0).uniform(-4, 4, (60, 1, 4)).astype(np.float32)
    np.savez(folder / "d.npz", x=data)
    cache = folder.parent / "cache"
    fake_frontends.installed(cache, "onnx2tf", first)
    if second is not None:
        fake_frontends.installed(cache, "tensorflow", second)
    line = ("convert", "net.onnx", "--data", "d.npz", "--out", "b", *more)
    return run(*line, cwd=folder, env={"XDG_CACHE_HOME": str(cache)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A front end that is sure of a model whose third output is wrong by one in a thousand."""
    model = fake_frontends.three_outputs(tmp_path / "wrong.tflite", mid=3.003)
    return fake_frontends.answering(tmp_path / "wrong" / "python", tflite=str(model))


@pytest.fixture
def right(tmp_path: Path) -> Path:
    model = fake_frontends.three_outputs(tmp_path / "right.tflite", reverse=True)
    return fake_frontends.answering(tmp_path / "right" / "python", tflite=str(model))


def test_a_wrong_result_is_refused_and_the_second_route_is_gone(folder: Path, wrong: Path, right: Path) -> None:
    said = call(folder, wrong, right, "--json")
    assert said.exit_code == 0, said
    frontend = said.document["manifest"]["frontend"]
    assert frontend["name"] == "tensorflow" and len(frontend["route_notes"]) == 2
    assert "onnx2tf: the float model from onnx2tf does not equal the source: output 'mid'" in frontend["route_notes"][0]
    assert frontend["route_notes"][1].startswith("tensorflow: equals the source")
    assert [entry["name"] for entry in said.document["manifest"]["outputs"]] == ["zeta", "alpha", "mid"]


def test_two_wrong_results_are_3_and_both_are_told(folder: Path, wrong: Path, tmp_path: Path) -> None:
    dying = fake_frontends.program(tmp_path / "dying" / "python", "#!/bin/sh\nkill -ABRT $$\n")
    before = sorted(os.listdir(folder))
    said = call(folder, wrong, dying, "--json")
    assert said.exit_code == 3 and said.error["code"] == "parity_failed"
    assert (
        "output 'mid' differs by up to 0.00" in said.error["message"] and "80 dB are required" in said.error["message"]
    )
    routes = said.error["details"]["routes"]
    assert len(routes) == 2 and "does not equal" in routes[0] and "was killed by SIGABRT" in routes[1]
    assert sorted(os.listdir(folder)) == [*before, "d.npz", "net.onnx"]


def test_both_in_words(folder: Path, wrong: Path, tmp_path: Path) -> None:
    dying = fake_frontends.program(tmp_path / "dying" / "python", "#!/bin/sh\nkill -ABRT $$\n")
    said = call(folder, wrong, dying, "--quiet")
    lines = said.err.splitlines()
    assert (
        said.exit_code == 3 and said.out == "" and lines[0].startswith("edgekit: the float model from onnx2tf does not")
    )
    assert any("| the front end tensorflow was killed by SIGABRT" in line for line in lines)


def test_one_wrong_result_names_the_front_end_that_is_not_there(folder: Path, wrong: Path) -> None:
    said = call(folder, wrong, None, "--json")
    assert said.exit_code == 3
    assert "the front end tensorflow may do better: edgekit frontend add tensorflow (2700 MB)" in said.error["hint"]


def test_a_front_end_that_was_left_out_is_not_to_be_installed(folder: Path, wrong: Path, right: Path) -> None:
    said = call(folder, wrong, right, "--json", "--frontend", "onnx2tf")
    assert said.exit_code == 3
    assert "the front end tensorflow may do better: leave out --frontend" in said.error["hint"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"TFL3 in name only" * 9, "damaged model"), (b"\x1c\0\0\0TFL3" + b"\xff" * 400, "damaged model")],
    ids=["text", "broken tables"],
)
def test_a_delivery_that_is_no_model(folder: Path, tmp_path: Path, content: bytes, said: str) -> None:
    """The user's model is fine, so it is not the user's mistake: 3, not 2."""
    (tmp_path / "m.tflite").write_bytes(content)
    python = fake_frontends.answering(tmp_path / "damaged" / "python", tflite=str(tmp_path / "m.tflite"))
    found = call(folder, python, None, "--json")
    assert found.exit_code == 3 and said in found.error["message"], found


def test_a_delivery_without_an_output(folder: Path, tmp_path: Path) -> None:
    from edgekit.intake import tflite

    model = tflite.read(fake_frontends.three_outputs(tmp_path / "m.tflite"))
    del model.signatureDefs[0].outputs[2]
    tflite.write(model, tmp_path / "m.tflite")
    python = fake_frontends.answering(tmp_path / "lossy" / "python", tflite=str(tmp_path / "m.tflite"))
    found = call(folder, python, None, "--json")
    assert found.exit_code == 3 and found.error["code"] == "names_lost"
    assert found.error["details"]["converted"] == ["alpha", "zeta"]
    assert json.loads(found.out)["ok"] is False
