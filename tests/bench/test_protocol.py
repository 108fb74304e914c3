"""What is asked of a run: words understood, and what it cannot give refused before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edgekit.agent.steadiness import SteadyRule
from edgekit.bench import run_benchmark
from edgekit.bench.plan import make_plan
from edgekit.bench.protocol import Protocol, parse_percentile, parse_rate, parse_threads
from edgekit.bench.runs import read_result
from edgekit.cli.bench import bench as bench_verb
from edgekit.errors import UsageError
from edgekit.report.html import write_run_report
from edgekit.report.table import turns_table


def test_words() -> None:
    assert [parse_rate(text) for text in ("15/s", "900/min", "0.5", "7200/h")] == [15.0, 15.0, 0.5, 2.0]
    assert (parse_percentile("p99.9"), parse_percentile("50")) == (99.9, 50.0)
    assert (parse_threads("4"), parse_threads("1, 2,4"), parse_threads("0")) == ((4,), (1, 2, 4), (0,))
    for parse, words in (
        (parse_rate, ("", "0/s", "fast", "-1/s", "15/day")),
        (parse_percentile, ("p100", "49", "best")),
        (parse_threads, ("", "1,1", "0,2", "-1", "two")),
    ):
        for word in words:
            with pytest.raises(UsageError):
                parse(word)


@pytest.mark.parametrize(
    ("protocol", "duration_s", "said"),
    [
        (Protocol(percentile=99.0, count=661), 60.0, "p99 needs 662 inferences, this run makes 661"),
        (Protocol(percentile=99.0, rate_per_s=15.0), 30.0, "p99 needs 662 inferences, this run makes 450"),
        (Protocol(percentile=99.9, rate_per_s=15.0, count=10**6), 30.0, "makes 450"),
        (Protocol(count=0), 30.0, "measures nothing"),
        (Protocol(until_steady=SteadyRule()), 119.0, "takes 120 s"),
        (Protocol(rate_per_s=-1.0), 30.0, "no sense"),
        (Protocol(arrivals="bursts"), 30.0, "fixed or poisson"),
    ],
)
def test_what_cannot_be_had_is_refused(models: Path, protocol: Protocol, duration_s: float, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        make_plan(models / "convs.tflite", protocol=protocol, duration_s=duration_s)
    assert caught.value.exit_code == 2


def test_what_can_be_had_is_not_refused(models: Path) -> None:
    make_plan(models / "convs.tflite", protocol=Protocol(percentile=99.0, count=662))
    make_plan(models / "convs.tflite", protocol=Protocol(percentile=99.0, rate_per_s=15.0), duration_s=44.2)
    make_plan(models / "convs.tflite", protocol=Protocol(percentile=99.9), duration_s=0.1)  # who knows how fast it is


@pytest.mark.parametrize(
    "options",
    [
        ["--duration", "5s", "--count", "10"],
        ["--count", "10", "--until-steady"],
        ["--cap", "5m"],
        ["--arrivals", "poisson"],
        ["--count", "100", "--percentile", "p99"],
        ["--threads", "1,1"],
    ],
)
def test_options_that_contradict_each_other(models: Path, options: list[str]) -> None:
    result = CliRunner().invoke(bench_verb, [str(models / "convs.tflite"), *options])
    assert isinstance(result.exception, UsageError), result.output


def test_thread_settings_and_a_second_model_in_one_run(bundle: Callable[..., Path], home: Path, tmp_path: Path) -> None:
    one, two = bundle(), bundle("second.bundle")
    run = run_benchmark(
        one, duration_s=0.3, threads=1, more_threads=(2,), other=two, runs_dir=tmp_path / "runs", protocol=Protocol()
    )
    variants = read_result(run)["variants"]
    assert list(variants) == ["model", "threads-2", "other"]
    assert [variants[name]["threads"] for name in variants] == [1, 2, 1]
    assert variants["other"]["input"]["kind"] == "golden"
    for name in ("threads-2", "other"):
        assert len(np.fromfile(run / f"latencies-{name}.bin", "<i8")) == variants[name]["count"] > 0
    assert [more["name"] for more in json.loads((run / "request.json").read_text())["more_variants"]] == [
        "threads-2",
        "other",
    ]


def test_a_thread_setting_is_given_once(models: Path) -> None:
    with pytest.raises(UsageError, match="once"):
        make_plan(models / "convs.tflite", threads=2, more_threads=(1, 2))


def test_the_page_and_the_table_hold_every_setting(models: Path, home: Path, tmp_path: Path) -> None:
    run = run_benchmark(
        models / "islands.tflite", duration_s=0.5, threads=1, more_threads=(2,), runs_dir=tmp_path / "runs"
    )
    summary = write_run_report([run], run / "report.html")[0]
    table = turns_table(summary)
    assert table is not None and table.columns == ("1 thread", "2 threads")
    for column, name in enumerate(("model", "threads-2")):
        variant = summary.variant(name)
        assert variant is not None
        assert table.rows[3].cells[column].value == variant.throughput_per_s
    assert "2 threads" in (run / "report.html").read_text()
