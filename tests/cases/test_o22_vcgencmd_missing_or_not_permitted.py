"""O22: a firmware tool that is absent, refused, or hangs leaves the throttle state unknown with the reason, and everything else as it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.agent.sensors.board import BoardSensors

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "boards"))

from board_files import Board, recorded

REFUSED = "VCHI initialization failed\n"


def absent(tree: Board) -> None:
    tree.remove("commands/vcgencmd")


def refused(tree: Board) -> None:
    tree.script("vcgencmd", f"printf '{REFUSED[:-1]}\\n'; exit 255\n")


def refused_with_success(tree: Board) -> None:
    tree.script("vcgencmd", f"printf '{REFUSED[:-1]}\\n'; exit 0\n")


def hangs(tree: Board) -> None:
    tree.script("vcgencmd", "exec sleep 60\n")


def on_the_board(tmp_path: Path) -> Board:
    tree = Board(tmp_path / "board", *recorded("raspberry-pi-4"))
    tree.write("sys/class/thermal/thermal_zone0/temp", "48312\n")
    return tree


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (absent, "there is no vcgencmd"),
        (refused, REFUSED.strip()),
        (refused_with_success, REFUSED.strip()),
        (hangs, "no answer within"),
    ],
)
def test_the_throttle_state_is_unknown_and_the_temperature_is_not(
    tmp_path: Path, spoil: Callable[[Board], None], reason: str
) -> None:
    tree = on_the_board(tmp_path)
    spoil(tree)
    sensors = BoardSensors(tree.roots)
    said = sensors.describe()
    assert reason in said["unknown"]["throttle_word"]
    assert said["throttle_source"] is None
    sample = sensors.sample({})
    assert "throttle_word" not in sample.more
    assert sample.temperature_c == pytest.approx(48.312)
    sensors.close()


def test_a_tool_that_answers_is_believed(tmp_path: Path) -> None:
    tree = on_the_board(tmp_path)
    tree.script("vcgencmd", "echo throttled=0x0\n")
    sensors = BoardSensors(tree.roots)
    end = time.monotonic() + 20
    sample = sensors.sample({})
    while "throttle_word" not in sample.more and time.monotonic() < end:
        time.sleep(0.02)
        sensors.tend()
        sample = sensors.sample({})
    assert sample.more["throttle_word"] == 0
    sensors.close()
