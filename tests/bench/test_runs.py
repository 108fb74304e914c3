"""Run folders: brought home whole, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bench.jobs import Job
from edgekit.bench.runs import collect, find_run, list_runs, read_result
from edgekit.errors import LinkError, OutputError, UsageError
from edgekit.link.local import LocalLink


def make_run(runs: Path, name: str) -> Path:
    run = runs / name
    run.mkdir(parents=True)
    (run / "request.json").write_text("{}")
    (run / "result.json").write_text('{"state": "done"}')
    return run


def test_runs_are_found_by_path_id_beginning_and_last(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    older = make_run(runs, "20260101T000000Z-net-local")
    newer = make_run(runs, "20260102T000000Z-net-local")
    (runs / ".20260103T000000Z-partial.x").mkdir()
    (runs / "notes").mkdir()
    assert list_runs(runs) == [older, newer]
    assert find_run("last", runs) == newer
    assert find_run(older.name, runs) == older
    assert find_run("20260101", runs) == older
    assert find_run(str(older), tmp_path / "elsewhere") == older
    assert read_result(newer) == {"state": "done"}


def test_an_id_that_is_the_beginning_of_another(tmp_path: Path) -> None:
    one, two = make_run(tmp_path, "20260101T000000Z-a-local"), make_run(tmp_path, "20260101T000000Z-a-local-2")
    assert find_run(one.name, tmp_path) == one
    assert find_run(two.name, tmp_path) == two
    with pytest.raises(UsageError, match="beginning of 2 runs") as caught:
        find_run("2026", tmp_path)
    assert caught.value.code == "run_ambiguous"


def test_runs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run in") as caught:
        find_run("last", tmp_path / "runs")
    assert "edgekit bench" in caught.value.hint
    make_run(tmp_path, "20260101T000000Z-net-local")
    with pytest.raises(UsageError) as caught:
        find_run("20260101T000000Z-ent-local", tmp_path)
    assert caught.value.code == "run_missing"
    assert 'did you mean "20260101T000000Z-net-local"?' in caught.value.hint
    with pytest.raises(UsageError, match="no readable result.json"):
        read_result(tmp_path)


def test_a_run_appears_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    board = make_run(tmp_path / "jobs", "job")
    (board / "latencies.bin").write_bytes(b"12345678")
    (board / "secret.txt").write_text("not part of a run")
    job = Job("job", "local", str(board), 1)
    runs = tmp_path / "runs"

    class Cut(LocalLink):
        def get(self, remote: str, local: Path) -> None:
            if remote.endswith("latencies.bin"):
                assert list_runs(runs) == []
                raise LinkError("the link was cut")
            super().get(remote, local)

    with pytest.raises(LinkError, match="cut"):
        collect(Cut(), job, runs)
    assert list(runs.iterdir()) == []
    run = collect(LocalLink(), job, runs)
    assert sorted(path.name for path in run.iterdir()) == ["latencies.bin", "request.json", "result.json"]
    (board / "log.txt").write_text("more")
    assert (collect(LocalLink(), job, runs) / "log.txt").read_text() == "more"  # collected again: replaced
    assert [path.name for path in runs.iterdir()] == ["job"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        collect(LocalLink(), Job("job", "local", str(tmp_path), 1), tmp_path / "file" / "runs")
