"""The commands against boards behind a real sshd, typed as a user does, from a bare board to one that edgekit has left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Said, run
from lab_proxy import Proxy
from lab_sshd import LabBoard, has_accounts, make_key, why_not

from edgekit.errors import LinkError
from edgekit.link.boards import Board, add_board
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink
from edgekit.push.contact import Agent
from edgekit.push.release import Pushed, push_bundle

Edgekit = Callable[..., Said]


@pytest.fixture(scope="module")
def boards() -> Iterator[list[LabBoard]]:
    """Two boards with a user of their own and this system's Python, on which nothing of edgekit is."""
    if why_not() or not has_accounts():
        pytest.skip(why_not() or "boards with a user of their own need root and mount namespaces")
    made = [LabBoard(), LabBoard()]
    for board in made:
        board.start()
    yield made
    for board in made:
        board.close()


@pytest.fixture(scope="module")
def desk_folder(boards: list[LabBoard], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workstation that knows them as pi4 and pi5."""
    home = tmp_path_factory.mktemp("desk")
    (home / ".ssh").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        for name, board in zip(("pi4", "pi5"), boards, strict=True):
            with open(home / ".ssh/known_hosts", "a") as file:
                file.write(board.host_key_line())
            add_board(Board(name, board.host, user=board.user, port=board.port, key=str(board.key)))
    return home


@pytest.fixture
def edgekit(desk_folder: Path) -> Edgekit:
    """``edgekit(words...)`` at that workstation; wheels come from the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = {"HOME": str(desk_folder), "XDG_CONFIG_HOME": str(desk_folder / "config"), "XDG_CACHE_HOME": cache}
    return lambda *words, **more: run(*words, cwd=desk_folder, env=env, **more)


@pytest.fixture
def ready(edgekit: Edgekit) -> Edgekit:
    """The same, with both boards prepared; skips where the wheels cannot be had."""
    said = edgekit("device", "prepare", "pi4,pi5", "--json")
    if said.exit_code == 2 and "wheel_not_fetched" in said.out:
        pytest.skip("the wheels for the board are not in the cache, and there is no index")
    assert said.exit_code == 0, said.out
    return edgekit


def test_a_bare_board_says_what_it_is_and_what_it_lacks(edgekit: Edgekit, boards: list[LabBoard]) -> None:
    facts = edgekit("device", "info", "pi4", "--json").document
    assert (facts["profile"], facts["user"], facts["home"]) == ("generic-linux", "pi", f"{boards[0].home}/.edgekit")
    assert facts["pythons"] and facts["home_writable"]
    said = edgekit("doctor", "--device", "pi4", "--json")
    assert said.exit_code == 1
    problem = next(
        one
        for one in said.document["findings" if "findings" in said.document else "result"]
        if one["level"] == "problem"
    )
    assert "edgekit device prepare pi4" in problem["fix"]
    assert not (boards[0].home / ".edgekit").exists()  # looking leaves nothing


def test_from_bare_to_released_to_rolled_back(
    ready: Edgekit, boards: list[LabBoard], make_bundle: Callable[..., Path]
) -> None:
    assert ready("doctor", "--device", "pi4").exit_code == 0
    bundle, second = make_bundle("a.bundle"), make_bundle("b.bundle", seed=1)
    done = ready("push", bundle, "--device", "pi4", "--app", "shop", "--json").document
    assert (done["state"], done["passed"], done["release"][:4]) == ("done", True, "0001")
    assert done["sent_bytes"] > 0
    again = ready("push", bundle, "--device", "pi4", "--app", "shop", "--json").document
    assert (again["state"], again["sent_bytes"]) == ("unchanged", 0)
    both = ready("push", second, "--device", "pi4,pi5", "--app", "shop", "--restart", "true")
    assert both.exit_code == 0 and "pi4" in both.out and "pi5" in both.out
    assert "0001" in ready("rollback", "--device", "pi4").out
    current = boards[0].home / ".edgekit/apps/shop/current/model.tflite"
    assert current.read_bytes() == (bundle / "model.tflite").read_bytes()


def test_one_board_that_fails_stops_no_other(
    ready: Edgekit, boards: list[LabBoard], make_bundle: Callable[..., Path]
) -> None:
    for name in ("pi4", "pi5"):
        assert ready("device", "set", name, "--group", "kitchen").exit_code == 0
    boards[1].stop()
    try:
        said = ready("push", make_bundle("c.bundle", seed=2), "--device", "kitchen", "--json")
    finally:
        boards[1].start()
    assert said.exit_code == 4
    first, second = said.document["devices"]
    assert (first["device"], first["ok"], first["state"]) == ("pi4", True, "done")
    assert (second["device"], second["ok"]) == ("pi5", False)
    assert said.document["error"]["code"] == second["error"]["code"] == "connection_refused"
    bad = ready("push", make_bundle("d.bundle", seed=3, steps_off=40), "--device", "pi4")
    assert bad.exit_code == 1 and "stays at" in bad.out


def test_a_board_that_takes_signed_bundles_only(
    ready: Edgekit, boards: list[LabBoard], make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    key, other = make_key(tmp_path / "signing"), make_key(tmp_path / "other")
    assert ready("device", "set", "pi5", "--require-signed", f"{key}.pub").exit_code == 0
    bundle = make_bundle("s.bundle", seed=5)
    assert ready("push", bundle, "--device", "pi5", "--json").error["code"] == "signature_missing"
    ready("sign", bundle, "--key", other)
    assert ready("push", bundle, "--device", "pi5", "--json").error["code"] == "signature_invalid"
    assert ready("sign", bundle, "--key", key).exit_code == 0
    assert ready("push", bundle, "--device", "pi5", "--json").document["state"] == "done"
    # The board asks for it itself: a workstation that was not told learns it there.
    assert ready("device", "set", "pi5", "--no-groups").exit_code == 0
    config = json.loads(json.dumps((boards[1].home / ".edgekit/require-signed").read_text().strip()))
    assert len(config) == 44
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["edgekit"] = "changed later"
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert ready("push", bundle, "--device", "pi5", "--json").error["code"] == "signature_invalid"
    assert ready("device", "set", "pi5", "--allow-unsigned").exit_code == 0
    assert not (boards[1].home / ".edgekit/require-signed").exists()
    (bundle / "manifest.sig").unlink()
    assert ready("push", bundle, "--device", "pi5", "--json").document["state"] == "done"


def test_a_benchmark_that_outlives_the_link(
    ready: Edgekit, boards: list[LabBoard], make_bundle: Callable[..., Path], desk_folder: Path
) -> None:
    bundle = make_bundle("bench.bundle", seed=6)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    from command_line import command, environment

    env = environment(
        desk_folder,
        {"HOME": str(desk_folder), "XDG_CONFIG_HOME": str(desk_folder / "config"), "XDG_CACHE_HOME": cache},
    )
    words = command("bench", bundle, "--device", "pi4", "--duration", "600s")
    with subprocess.Popen(
        words, cwd=desk_folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as typed:
        waiting = wait_for(lambda: [job for job in listed(ready) if job["state"] == "running"])
        typed.kill()  # the workstation goes away without a word
        typed.communicate()
    job = waiting[0]["id"]
    boards[0].stop()  # and so does every session on the board
    boards[0].start()
    assert [one["state"] for one in listed(ready)] == ["running"]
    assert ready("bench", bundle, "--device", "pi4", "--json").error["code"] == "board_busy"
    assert ready("cancel", job).exit_code == 0
    said = ready("collect", job, "--json")
    assert said.exit_code == 6  # a run that was cancelled supports no verdict
    assert (desk_folder / "runs" / job / "latencies.bin").stat().st_size > 0
    assert listed(ready) == []


def listed(edgekit: Edgekit) -> list[Any]:
    document = edgekit("jobs", "--device", "pi4", "--json").document
    return list(document["result"])


def wait_for(found: Callable[[], list[Any]]) -> list[Any]:
    end = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return value


POINTS = 20


def test_a_link_cut_at_twenty_points_of_a_push(
    ready: Edgekit, boards: list[LabBoard], desk: Any, make_bundle: Callable[..., Path]
) -> None:
    """Cut once, a push mends its link and is done. Each time another model, so that each push sends as much as the first."""
    board = boards[0]
    proxy = Proxy((board.host, board.port))
    try:
        frail = desk.add(board, "frail", port=proxy.port)
        before = proxy.up_bytes
        assert pushed(frail, make_bundle("p0.bundle", seed=100, size=300000)).state == "done"
        total = proxy.up_bytes - before
        for point in range(1, POINTS + 1):
            bundle = make_bundle(f"p{point}.bundle", seed=100 + point, size=300000)
            proxy.cut_after(total * point // (POINTS + 1))
            assert pushed(frail, bundle).state in ("done", "unchanged"), point
            assert released(board) == (bundle / "model.tflite").read_bytes(), point
    finally:
        proxy.close()


def test_a_link_that_is_cut_for_good(
    ready: Edgekit, boards: list[LabBoard], desk: Any, make_bundle: Callable[..., Path]
) -> None:
    board = boards[0]
    proxy = Proxy((board.host, board.port))
    try:
        frail = desk.add(board, "frail", port=proxy.port)
        old, new = make_bundle("old.bundle", seed=200), make_bundle("new.bundle", seed=201, size=3_000_000)
        pushed(frail, old)
        proxy.bytes_per_s = 1e6

        began = proxy.up_bytes

        def stop() -> None:
            wait_for(lambda: [proxy] if proxy.up_bytes - began > 1_500_000 else [])
            proxy.refuse()

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(LinkError) as caught:
            pushed(frail, new, retry_for_s=2)
        stopper.join()
        assert caught.value.exit_code == 4
        assert released(board) == (old / "model.tflite").read_bytes()
        proxy.restore()
        proxy.bytes_per_s = 0
        again = pushed(frail, new)
        assert again.state == "done" and again.sent_bytes < 2_500_000  # it went on from the part that was there
        assert released(board) == (new / "model.tflite").read_bytes()
    finally:
        proxy.close()


def pushed(board: Board, bundle: Path, *, retry_for_s: float = 20) -> Pushed:
    with SshLink(board, questions=Questions(), retry_for_s=retry_for_s) as link:
        return push_bundle(Agent(link), bundle, app="cut")


def released(board: LabBoard) -> bytes:
    return (board.home / ".edgekit/apps/cut/current/model.tflite").read_bytes()


def test_what_is_left_after_a_purge(ready: Edgekit, boards: list[LabBoard], desk_folder: Path) -> None:
    shutil.copy(desk_folder / "config/edgekit/boards.toml", desk_folder / "boards.toml")
    said = ready("device", "remove", "pi5", "--purge", "--json").document
    assert said["purged"] and said["removed"]
    assert not (boards[1].home / ".edgekit").exists()
    assert ready("push", "none.bundle", "--device", "pi5", "--json").error["code"] == "board_unknown"
    shutil.copy(desk_folder / "boards.toml", desk_folder / "config/edgekit/boards.toml")
