"""A push as a release: what is on the board afterwards, whatever happened."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.errors import ModelFileError, UsageError
from edgekit.push.contact import Agent
from edgekit.push.release import Pushed, push_bundle, roll_back

Make = Callable[..., Path]


def home_of(agent: Agent) -> Path:
    return Path(agent.home)


def current(agent: Agent, app: str = "app") -> bytes | None:
    """The bytes that an app would load now."""
    path = home_of(agent) / "apps" / app / "current" / "model.tflite"
    return path.read_bytes() if path.exists() else None


def push(agent: Agent, bundle: Path, **more: object) -> Pushed:
    return push_bundle(agent, bundle, app="app", **more)  # type: ignore[arg-type]


def test_the_first_push_and_an_unchanged_one(agent: Agent, make_bundle: Make) -> None:
    bundle = make_bundle()
    first = push(agent, bundle)
    assert (first.state, first.before, first.release) == ("done", None, f"0001-{first.release[5:]}")  # type: ignore[index]
    assert first.health is not None and first.health["pairs"] == 4 and first.health["outputs"][0]["worst_steps"] == 0
    assert first.sent_bytes == sum((bundle / name).stat().st_size for name in os.listdir(bundle))
    for name in ("model.tflite", "manifest.json", "golden.npz", "labels.txt"):
        assert (home_of(agent) / "apps/app/current" / name).read_bytes() == (bundle / name).read_bytes()
    second = push(agent, bundle)
    assert (second.state, second.sent_bytes, second.release) == ("unchanged", 0, first.release)
    assert not list(home_of(agent).rglob("*.part")) and not (home_of(agent) / "apps/app/pending.json").exists()


def test_the_last_three_stay_and_rollback_goes_back_one_after_the_other(agent: Agent, make_bundle: Make) -> None:
    bundles = [make_bundle(f"{n}.bundle", seed=n) for n in range(5)]
    models = [(bundle / "model.tflite").read_bytes() for bundle in bundles]
    for bundle, model in zip(bundles, models, strict=True):
        assert push(agent, bundle).state == "done"
        assert current(agent) == model
    assert [name[:4] for name in sorted(os.listdir(home_of(agent) / "apps/app/releases"))] == ["0003", "0004", "0005"]
    assert roll_back(agent, app="app").release[:4] == "0004"  # type: ignore[index]
    assert current(agent) == models[3]
    # A release after a rollback: what was rolled back from is not what one comes back to.
    assert push(agent, bundles[0]).release[:4] == "0006"  # type: ignore[index]
    assert roll_back(agent).release[:4] == "0004"  # type: ignore[index]
    assert roll_back(agent).release[:4] == "0003"  # type: ignore[index]
    with pytest.raises(UsageError) as caught:
        roll_back(agent)
    assert caught.value.code == "release_missing"
    assert roll_back(agent, to="6").state == "done"
    assert current(agent) == models[0]


def test_a_model_that_answers_otherwise_is_not_switched_to(agent: Agent, make_bundle: Make) -> None:
    good = make_bundle("good.bundle")
    push(agent, good)
    bad = push(agent, make_bundle("bad.bundle", seed=1, steps_off=40))
    assert (bad.state, bad.stage, bad.release) == ("failed", "health", f"0001-{bad.release[5:]}")  # type: ignore[index]
    assert "40 steps" in bad.reasons[0]
    assert current(agent) == (good / "model.tflite").read_bytes()
    assert len(os.listdir(home_of(agent) / "apps/app/releases")) == 1
    assert push(agent, make_bundle("near.bundle", seed=2, steps_off=2)).state == "done"  # two kernels may round so


def test_a_model_that_is_too_slow_is_not_switched_to(agent: Agent, make_bundle: Make) -> None:
    slow = push(agent, make_bundle(), max_latency_ms=1e-6)
    assert (slow.state, slow.release) == ("failed", None)
    assert "ms" in slow.reasons[0]
    assert current(agent) is None


def test_the_app_is_restarted_and_sees_the_new_release(agent: Agent, make_bundle: Make, tmp_path: Path) -> None:
    bundle = make_bundle()
    seen = tmp_path / "seen"
    done = push(agent, bundle, restart=f"cp -L \"$EDGEKIT_RELEASE/model.tflite\" '{seen}'; echo up")
    assert done.restart is not None and done.restart["ok"] and done.restart["log_tail"] == ["up"]
    assert seen.read_bytes() == (bundle / "model.tflite").read_bytes()


@pytest.mark.parametrize("command", ["exit 3", "sleep 60"])
def test_an_app_that_does_not_come_up_gets_its_old_release_back(
    agent: Agent, make_bundle: Make, tmp_path: Path, command: str
) -> None:
    good, log = make_bundle("good.bundle"), tmp_path / "log"
    push(agent, good, restart=f"echo old >>{log}")
    bad = push(agent, make_bundle("bad.bundle", seed=1), restart=f"echo new >>{log}; {command}", restart_timeout_s=0.5)
    assert (bad.state, bad.stage) == ("failed", "restart")
    assert log.read_text().split() == ["old", "new", "old"]  # and was restarted with it
    assert current(agent) == (good / "model.tflite").read_bytes()
    assert not (home_of(agent) / "apps/app/pending.json").exists()
    assert len(os.listdir(home_of(agent) / "apps/app/releases")) == 1


def test_the_first_release_of_an_app_that_does_not_come_up_leaves_nothing_current(
    agent: Agent, make_bundle: Make
) -> None:
    assert push(agent, make_bundle(), restart="false").state == "failed"
    assert current(agent) is None
    assert not os.path.lexists(home_of(agent) / "apps/app/current")


def test_a_running_app_keeps_its_old_file(agent: Agent, make_bundle: Make) -> None:
    """The mapped bytes are the old ones until the app opens its model anew, also when the old release is long gone."""
    size = 4 << 20
    old = make_bundle("old.bundle", size=size)
    push(agent, old)
    code = (
        "import mmap, sys, hashlib\nwith open(sys.argv[1], 'rb') as f: m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
        "print('mapped', flush=True)\nsys.stdin.readline()\nprint(hashlib.sha256(m[:]).hexdigest())"
    )
    path = home_of(agent) / "apps/app/current/model.tflite"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as app:
        assert app.stdout is not None and app.stdout.readline() == "mapped\n"
        for seed in range(1, 5):
            push(agent, make_bundle(f"{seed}.bundle", seed=seed))
        output, _ = app.communicate("\n", timeout=30)
    import hashlib

    assert app.returncode == 0
    assert output.strip() == hashlib.sha256((old / "model.tflite").read_bytes()).hexdigest()


def test_a_bundle_that_is_not_whole_is_refused_before_anything_is_sent(agent: Agent, make_bundle: Make) -> None:
    bundle = make_bundle()
    (bundle / "golden.npz").write_bytes(b"other")
    with pytest.raises(ModelFileError) as caught:
        push(agent, bundle)
    assert caught.value.code == "bundle_damaged"
    assert not home_of(agent).exists()


def test_two_apps_on_one_board_share_files_and_nothing_else(agent: Agent, make_bundle: Make) -> None:
    bundle = make_bundle()
    push_bundle(agent, bundle, app="one")
    assert push_bundle(agent, bundle, app="two").sent_bytes == 0
    with pytest.raises(UsageError, match="2 apps"):
        roll_back(agent)
    with pytest.raises(UsageError):
        push_bundle(agent, bundle, app="../one")
