"""Run folders as they are found after crashes, cuts and full disks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.report.stats import RunFolder, summarise
from edgekit.report.timeline import blocks_of, timeline_of

MakeRun = Callable[..., Path]


def test_a_whole_run_is_read_without_a_note(make_run: MakeRun) -> None:
    path = make_run(seconds=10, float_ms=20.0)
    run = RunFolder.load(path)
    assert run.notes == ()
    assert run.state == "done"
    assert set(run.latencies_ns) == {"model", "float"}
    written = np.fromfile(path / "latencies.bin", dtype="<i8")
    assert np.array_equal(run.latencies_ns["model"], written)
    assert run.warmup_ns["float"].size == 12
    assert len(run.samples) == 20
    assert run.manifest is not None


@pytest.mark.parametrize(
    "name", ["facts.json", "samples.jsonl", "events.jsonl", "status.json", "warmup.bin", "bundle.json", "log.txt"]
)
def test_every_optional_file_may_be_missing(make_run: MakeRun, name: str) -> None:
    path = make_run(seconds=5)
    (path / name).unlink()
    run = RunFolder.load(path)
    summary = summarise(run)
    assert summary.validity.valid
    if name in ("facts.json", "samples.jsonl", "events.jsonl"):
        assert any(name in note for note in run.notes)


def test_the_torn_last_line_of_a_cut_is_dropped_and_told(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    with (path / "samples.jsonl").open("a") as file:
        file.write('{"t_s": 5.0, "temperat')
    run = RunFolder.load(path)
    assert len(run.samples) == 10
    assert run.notes == ("samples.jsonl: the last line is torn and was dropped",)


def test_lines_of_garbage_in_the_middle_are_counted(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    lines = (path / "samples.jsonl").read_text().splitlines()
    lines[3], lines[4] = "\0\0\0\0", "[1, 2]"
    (path / "samples.jsonl").write_text("\n".join(lines) + "\n")
    run = RunFolder.load(path)
    assert len(run.samples) == 8
    assert run.notes == ("samples.jsonl: 2 lines cannot be read and were dropped (first: line 4)",)


def test_a_torn_last_number_is_dropped_and_told(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    whole = (path / "latencies.bin").read_bytes()
    (path / "latencies.bin").write_bytes(whole[:-3])
    run = RunFolder.load(path)
    assert run.latencies_ns["model"].size == len(whole) // 8 - 1
    assert run.notes == ("latencies.bin ends in the middle of a number: 5 bytes dropped",)
    assert any("result counts" in warning for warning in summarise(run).warnings)


def test_zeros_of_a_block_that_was_never_written_are_no_latencies(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    with (path / "latencies.bin").open("ab") as file:
        file.write(bytes(4096))
    run = RunFolder.load(path)
    assert np.min(run.latencies_ns["model"]) > 0
    assert run.notes == ("latencies.bin has 512 latencies that are not positive: dropped",)


def test_without_a_result_the_run_is_kept_and_invalid(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    (path / "result.json").unlink()
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps({**status, "state": "running"}))
    summary = summarise(RunFolder.load(path))
    assert summary.state == "running"
    assert summary.validity.reasons == ("the run ended as running",)
    assert summary.main is not None and summary.main.median_ns == pytest.approx(8e6, rel=0.01)


def test_only_a_request_is_still_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"schema": 1, "id": "x", "model": {"name": "m"}}')
    summary = summarise(RunFolder.load(tmp_path))
    assert summary.variants == ()
    assert "no inference was timed" in summary.validity.reasons


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folder at") as caught:
        RunFolder.load(tmp_path / "nowhere")
    assert caught.value.code == "run_folder_missing"
    assert caught.value.exit_code == 2


def test_a_file_is_not_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="is a file"):
        RunFolder.load(tmp_path / "x.bin")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no request\.json"):
        RunFolder.load(tmp_path)


def test_the_folder_above_names_what_is_in_it(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    with pytest.raises(UsageError, match="holds 1") as caught:
        RunFolder.load(path.parent)
    assert str(path) in caught.value.hint


@pytest.mark.parametrize("name", ["request.json", "result.json"])
@pytest.mark.parametrize("text", ["{", "", "[]"])
def test_torn_documents_that_carry_the_run_are_refused(make_run: MakeRun, name: str, text: str) -> None:
    path = make_run(seconds=5)
    (path / name).write_text(text)
    with pytest.raises(UsageError, match=name):
        RunFolder.load(path)


def test_a_newer_schema_is_refused(make_run: MakeRun) -> None:
    path = make_run(seconds=5)
    request = json.loads((path / "request.json").read_text())
    (path / "request.json").write_text(json.dumps({**request, "schema": 2}))
    with pytest.raises(UsageError, match="schema 2") as caught:
        RunFolder.load(path)
    assert caught.value.code == "run_folder_newer"


def test_blocks_place_every_kept_latency_in_time(make_run: MakeRun) -> None:
    run = RunFolder.load(make_run(seconds=10, float_ms=20.0))
    blocks = blocks_of(run, "float")
    assert [block.start_s for block in blocks] == [1.0, 3.0, 5.0, 7.0, 9.0]
    line = timeline_of(blocks)
    assert np.array_equal(line.latencies_ns, run.latencies_ns["float"])
    assert (np.diff(line.times_s) > 0).all()
    assert line.times_s[0] == 1.0
    assert line.times_s[-1] < 10.1


def test_a_byte_budget_keeps_blocks_and_latencies_together(make_run: MakeRun) -> None:
    everything = make_run("all", seconds=10, seed=3)
    thinned = make_run("thin", seconds=10, seed=3, kept_every=7)
    whole, kept = RunFolder.load(everything), RunFolder.load(thinned)
    inferences = whole.latencies_ns["model"]
    assert np.array_equal(kept.latencies_ns["model"], inferences[::7])
    owner = np.concatenate([np.full(block.latencies_ns.size, block.start_s) for block in blocks_of(whole, "model")])
    thinned_owner = [np.full(block.latencies_ns.size, block.start_s) for block in blocks_of(kept, "model")]
    assert np.array_equal(np.concatenate(thinned_owner), owner[::7])
    assert sum(block.count for block in blocks_of(kept, "model")) == inferences.size
