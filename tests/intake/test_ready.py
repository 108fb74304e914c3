"""A front end starts before it is needed, serves all attempts, and is gone afterwards; one that cannot start fails when it is used."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import fake_frontends as fake
import onnx
import pytest
from tiny_models import conv_onnx

from edgekit.errors import ConversionError
from edgekit.intake.door import DoorOptions
from edgekit.intake.onnx import OnnxRoute, open_model
from edgekit.intake.ready import ready
from edgekit.intake.session import Session

NOTING = """#!{python}
import json, os, pathlib, sys
def carry_out(request):
    asked = json.loads(pathlib.Path(request).read_text())
    with open({log!r}, "a") as log:
        log.write(f"{{os.getpid()}} {{asked['task']}}\\n")
    answer = {{"ok": False, "versions": {{}}, "error": {{"type": "Odd", "message": "not today", "trace": ""}}}}
    pathlib.Path(request).with_name("result.json").write_text(json.dumps(answer))
carry_out(sys.argv[-1])
for line in sys.stdin:
    carry_out(line.rstrip("\\n"))
"""


def route_by(python: Path, work: Path) -> OnnxRoute:
    onnx.save(conv_onnx(), str(work / "net.onnx"))
    return OnnxRoute(open_model(work / "net.onnx", DoorOptions(work)), fake.frontend("onnx2tf", python))


def wait_for(log: Path, lines: int) -> list[str]:
    while not log.exists() or len(log.read_text().splitlines()) < lines:
        time.sleep(0.01)  # the test's own time limit ends this
    return log.read_text().splitlines()


def is_running(pid: int) -> bool:
    """Not gone, and not a dead one that nobody has asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(60)
def test_the_worker_starts_at_once_and_serves_every_attempt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    python = fake.program(tmp_path / "bin" / "python", NOTING.format(python=sys.executable, log=str(log)))
    route = route_by(python, tmp_path)
    with ready([route], work=tmp_path, tick=lambda: None) as (prepared,):
        (start,) = wait_for(log, 1)
        assert start.endswith("onnx by onnx2tf, to come")
        for number in range(2):
            (tmp_path / f"{number}").mkdir()
            with pytest.raises(ConversionError, match="not today"):
                prepared.convert([], [], work=tmp_path / f"{number}", timeout_s=30, tick=lambda: None)
        lines = wait_for(log, 3)
        assert {line.split()[0] for line in lines} == {start.split()[0]}
        pid = int(start.split()[0])
        assert is_running(pid)
    assert not is_running(pid)


def test_a_second_front_end_waits_until_it_is_needed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    python = fake.program(tmp_path / "bin" / "python", NOTING.format(python=sys.executable, log=str(log)))
    (tmp_path / "one").mkdir()
    broken = route_by(tmp_path / "nothing here", tmp_path / "one")
    with ready([broken, route_by(python, tmp_path)], work=tmp_path, tick=lambda: None) as prepared:
        assert not log.exists()
        (tmp_path / "a").mkdir()
        with pytest.raises(ConversionError) as caught:
            prepared[0].convert([], [], work=tmp_path / "a", timeout_s=30, tick=lambda: None)
        assert caught.value.code == "frontend_broken"
        assert not log.exists()


@pytest.mark.timeout(60)
def test_a_worker_that_died_after_its_answer_is_started_again(tmp_path: Path) -> None:
    """The request that it did not read must not end the conversion as a broken pipe."""
    log = tmp_path / "log"
    once = NOTING[: NOTING.index("for line")].format(python=sys.executable, log=str(log))
    with Session(fake.frontend("onnx2tf", fake.program(tmp_path / "bin" / "python", once)), tmp_path) as session:
        for number in range(3):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            with pytest.raises(ConversionError, match="not today"):
                session.ask({"task": f"number {number}"}, folder, timeout_s=30)
            while is_running(int(log.read_text().split()[-3])):
                time.sleep(0.01)
    assert [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()] == [f"number {i}" for i in range(3)]
