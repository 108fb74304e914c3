"""Peak memory of a stage, from the kernel's own mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.agent.memory import StageMemory

MB = 1 << 20


def test_each_stage_has_a_peak_of_its_own() -> None:
    memory = StageMemory()
    memory.begin()
    before = memory.end()
    if "memory_unknown" in before:
        pytest.skip("this kernel does not let us set the peak back: {}".format(before["memory_unknown"]))
    memory.begin()
    block = bytearray(b"x") * (80 * MB)
    del block
    large = memory.end()
    memory.begin()
    small = memory.end()
    assert large["peak_rss_bytes"] >= before["rss_bytes"] + 70 * MB
    assert large["rss_bytes"] < large["peak_rss_bytes"]
    assert small["peak_rss_bytes"] < large["peak_rss_bytes"] - 60 * MB


def process(folder: Path, peak_kb: int, rss_kb: int) -> None:
    (folder / "status").write_text(f"Name:\tpython\nVmHWM:\t{peak_kb} kB\nVmRSS:\t{rss_kb} kB\n")


def test_a_mark_that_cannot_be_wiped_hides_lower_peaks_only(tmp_path: Path) -> None:
    memory = StageMemory(str(tmp_path))  # no clear_refs: opening a folder's missing file for writing makes one
    (tmp_path / "clear_refs").mkdir()  # a folder cannot be written
    process(tmp_path, 1000, 900)
    memory.begin()
    process(tmp_path, 1000, 800)
    hidden = memory.end()
    assert hidden["peak_rss_bytes"] is None
    assert hidden["rss_bytes"] == 800 * 1024
    assert "clear_refs" in hidden["memory_unknown"]
    memory.begin()
    process(tmp_path, 1500, 1400)  # higher than ever: this stage's own
    assert memory.end() == {"peak_rss_bytes": 1500 * 1024, "rss_bytes": 1400 * 1024}


def test_no_status_is_unknown(tmp_path: Path) -> None:
    memory = StageMemory(str(tmp_path / "gone"))
    memory.begin()
    value = memory.end()
    assert value["peak_rss_bytes"] is None
    assert "status" in value["memory_unknown"]
