"""O20: an int8 model that is no faster than the float one, and an interpreter with plain kernels: the report says what it ran with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bundles import Bundle, convert, require_frontend
from onnx import TensorProto, helper, numpy_helper

from edgekit.bench import jobs
from edgekit.bench.plan import macs_of, make_plan
from edgekit.bench.runs import collect
from edgekit.errors import UsageError
from edgekit.link.local import LocalLink
from edgekit.report.folder import RunFolder
from edgekit.report.kernels import macs_per_cycle, set_up_text
from edgekit.report.next_steps import advise_run
from edgekit.report.stats import summarise
from edgekit.report.summary import RunSummary

# Three convolutions of 3 by 3 and stride 2 without padding, 3 to 32 to 64 to 64 channels on 128 by 128 pixels: outputs of 63, 31, 15.
MACS = 63 * 63 * 32 * 27 + 31 * 31 * 64 * 9 * 32 + 15 * 15 * 64 * 9 * 64


def three_convolutions(path: Path) -> Path:
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for index, (cin, cout) in enumerate(((3, 32), (32, 64), (64, 64))):
        kernel = rng.normal(0, (2.0 / (9 * cin)) ** 0.5, (cout, cin, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{index}"))
        nodes.append(helper.make_node("Conv", [name, f"w{index}"], [f"c{index}"], strides=[2, 2], kernel_shape=[3, 3]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"]))
        name = f"r{index}"
    nodes.append(helper.make_node("ReduceMean", [name], ["y"], axes=[2, 3], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "three",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 128, 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    require_frontend("onnx2tf")
    folder = tmp_path_factory.mktemp("three")
    np.save(folder / "x.npy", np.random.default_rng(1).normal(0, 1, (96, 3, 128, 128)).astype(np.float32))
    return convert(three_convolutions(folder / "three.onnx"), folder / "x.npy", folder / "three.bundle")


@pytest.fixture(scope="module")
def measured(three: Bundle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunSummary]:
    """The bundle with its float model on one thread, with each kind of kernels."""
    found = {}
    for kernels in ("default", "builtin", "reference"):
        folder = tmp_path_factory.mktemp(kernels)
        plan = make_plan(three.path, duration_s=1.2, threads=1, with_float=True, kernels=kernels)
        link = LocalLink()
        job = jobs.start(link, plan, home=str(folder / "home"))
        jobs.wait(link, job)
        found[kernels] = summarise(RunFolder.load(collect(link, job, folder / "runs")))
    return found


def advice(summary: RunSummary) -> dict[str, str]:
    return {item.key: item.reason for item in advise_run(summary)}


def test_the_work_is_counted(three: Bundle) -> None:
    assert macs_of(three.delivered) == MACS


def test_a_run_says_what_it_ran_with(measured: dict[str, RunSummary]) -> None:
    for kernels, summary in measured.items():
        assert summary.main is not None
        text = set_up_text(summary, summary.main)
        interpreter = summary.facts["interpreter"]
        assert f"{interpreter['name']} {interpreter['version']}" in text
        assert "1 thread" in text
        assert "the processor has" in text
        assert "operators delegated" in text
        assert (f"kernels: {kernels}" in text) == (kernels != "default")
    delegated = {
        kernels: summary.main.delegate.delegated_operators for kernels, summary in measured.items() if summary.main
    }
    assert delegated["builtin"] == delegated["reference"] == 0 < (delegated["default"] or 0)


def test_plain_kernels_are_known_by_what_they_do_and_no_others(measured: dict[str, RunSummary]) -> None:
    """Without looking at what was asked for: a bad build does not say that it is one."""
    if macs_per_cycle(measured["default"], measured["default"].variants[0]) is None:
        pytest.skip("the clock of this machine is not known")
    assert "without SIMD" in advice(measured["reference"])["plain_kernels"]
    assert "plain_kernels" not in advice(measured["default"])
    assert "no_delegate" in advice(measured["builtin"])
    assert "no_delegate" not in advice(measured["default"])


def test_int8_that_is_no_faster_is_told_with_what_it_ran_with(measured: dict[str, RunSummary], tmp_path: Path) -> None:
    """The integer model with plain kernels beside the float one with the best: the numbers are of two runs, the verdict of one."""
    summary = measured["default"]
    assert summary.speedup is not None
    assert not any(key.startswith("int8_") for key in advice(summary)) or summary.speedup.ratio < 1.1
    slow = with_verdict(summary, "slower")
    reason = advice(slow)["int8_slower"]
    for fact in ("1 thread", "operators delegated", "the processor has", slow.facts["interpreter"]["version"]):
        assert fact in reason


def with_verdict(summary: RunSummary, verdict: str) -> RunSummary:
    from dataclasses import replace

    assert summary.speedup is not None
    return replace(summary, speedup=replace(summary.speedup, verdict=verdict, ratio=0.98))


def test_kernels_that_nobody_knows_are_refused(three: Bundle) -> None:
    with pytest.raises(UsageError, match="default, builtin, reference"):
        make_plan(three.path, kernels="fast")


@pytest.mark.parametrize("change", [{"macs": None}, {"macs": 1000}])
def test_a_model_too_small_or_uncounted_is_not_judged(measured: dict[str, RunSummary], change: dict[str, Any]) -> None:
    from dataclasses import replace

    summary = measured["reference"]
    request = json.loads(json.dumps(summary.request))
    request["model"].update(change)
    request["float_model"].update(change)
    assert "plain_kernels" not in advice(replace(summary, request=request))
