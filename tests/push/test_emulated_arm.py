"""From a bare aarch64 system to a benchmark, for real but for the time it takes: an ARM Python, ARM wheels, the wheels' own kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_arm import ArmLink, userland, why_not

from edgekit.bench import run_benchmark
from edgekit.bench.runs import read_result
from edgekit.errors import UsageError
from edgekit.push.bootstrap import prepare, purge
from edgekit.push.contact import Agent
from edgekit.push.facts import gather
from edgekit.push.release import push_bundle


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ArmLink]:
    if why_not():
        pytest.skip(why_not())
    try:
        root = userland()
    except RuntimeError as error:
        pytest.skip(str(error))
    home = tmp_path / "pi"
    home.mkdir()
    link = ArmLink(root, home)
    yield link
    link.close()


@pytest.mark.timeout(600)
def test_from_bare_to_benchmark(arm: ArmLink, make_bundle: Callable[..., Path], tmp_path: Path) -> None:
    facts = gather(arm)
    assert (facts.machine, facts.userland_bits, facts.libc) == ("aarch64", 64, "glibc 2.36")
    assert facts.python is not None and facts.python.version[:2] == (3, 11) and not facts.python.ready
    agent = Agent(arm)
    try:
        prepared = prepare(agent)
    except UsageError as error:
        if error.code != "wheel_not_fetched":
            raise
        pytest.skip(error.message)
    assert prepared.packages == ("ai_edge_litert 2.3.0", "numpy 2.4.6")
    # ARM kernels round some halves the other way than those of the machine that computed the pairs: one step, and no more.
    assert prepared.proof["outputs"][0]["worst_steps"] <= 1

    bundle = make_bundle()
    first = push_bundle(agent, bundle, app="app")
    assert first.state == "done" and first.health is not None and first.health["passed"]
    assert push_bundle(agent, make_bundle("off.bundle", seed=1, steps_off=40), app="app").stage == "health"
    assert push_bundle(agent, bundle, app="app").state == "unchanged"

    run = run_benchmark(bundle, device="emulated", link=arm, duration_s=0.5, threads=1, runs_dir=tmp_path / "runs")
    result = read_result(run)
    assert result["state"] == "done" and result["variants"]["model"]["count"] > 0
    assert json.loads((run / "facts.json").read_text())["machine"] == "aarch64"
    assert purge(agent)
    assert list(Path(tmp_path / "pi").iterdir()) == []
