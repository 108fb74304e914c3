"""Repeating cases: each once in a run, also when the run was interrupted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import conformance
import pytest


class Counted:
    """Stands for the workers: every case is delivered; the third one interrupts the run while ``interrupts`` is set."""

    asked: list[str]
    interrupts: bool

    def __init__(self, judge: str, frontends: str, work: Path, commit: str) -> None:
        self._commit = commit

    def case(self, case: Any) -> dict[str, Any]:
        if Counted.interrupts and len(Counted.asked) == 2:
            raise KeyboardInterrupt
        Counted.asked.append(case.name)
        return {"name": case.name, "verdict": "delivered", "why": "", "commit": self._commit}

    def close(self) -> None:
        """Nothing is held."""


def test_an_interrupted_repetition_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "Run", Counted)

    def run(*, again: str, name: str) -> list[str]:
        Counted.asked = []
        conformance.run(
            argparse.Namespace(
                judge="edgekit",
                frontends="",
                sample=5,
                seed=0,
                only="",
                again=again,
                run=name,
                jobs=1,
                results=tmp_path,
            )
        )
        return Counted.asked

    Counted.interrupts = False
    first = run(again="", name="one")
    assert len(first) == 5
    assert run(again="", name="two") == []
    Counted.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        run(again="delivered", name="two")
    assert Counted.asked == first[:2]
    Counted.interrupts = False
    assert run(again="delivered", name="two") == first[2:]
    assert run(again="delivered", name="two") == []
    known = conformance.known_results(tmp_path / "edgekit.jsonl")
    assert {record["run"] for record in known.values()} == {"two"}
    assert {record["commit"] for record in known.values()} == {conformance.present_commit()}
