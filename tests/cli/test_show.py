"""Progress where nobody looks at a terminal, tables, and words turned into values."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from edgekit.cli import options, show
from edgekit.errors import EdgekitError, UsageError
from edgekit.report.table import Cell, Row, Table
from edgekit.values import Preprocessing


def test_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Across stages too: many short ones are as silent to a log file as one long one."""
    now = [100.0]
    monkeypatch.setattr(show.time, "monotonic", lambda: now[0])
    bar = show.Bar(quiet=False)
    with bar.shown():
        for number in range(1, 8):
            bar.stage(f"stage {number}", 5)
            for done in (1, 2):
                now[0] += 2.0
                bar.step(done)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["stage 3 1 of 5", "stage 5 2 of 5"]


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    """Drawn on a real pseudo-terminal, on standard error only, and wiped away at the end; no count where none is known."""
    import os
    import pty
    import subprocess
    import sys

    from command_line import environment

    script = (
        "from edgekit.cli import show\n"
        "bar = show.Bar(quiet=False)\n"
        "with bar.shown():\n"
        "    bar.stage('reading', None); bar.step(0); bar._bar.refresh()\n"
        "    bar.stage('calibrate', 8); bar.step(3, 'of them'); bar._bar.refresh()\n"
        "show.line('the result')\n"
    )
    outer, inner = pty.openpty()
    env = environment(tmp_path, {"TERM": "xterm", "COLUMNS": "100"})
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=inner, env=env, check=True)
    os.close(inner)
    drawn = os.read(outer, 65536).decode()
    os.close(outer)
    assert done.stdout == b"the result\n"
    assert "reading" in drawn and "calibrate of them" in drawn and "3/8" in drawn and "/?" not in drawn


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter(range(0, 10_000, 100))
    monkeypatch.setattr(show.time, "monotonic", lambda: next(now))
    bar = show.Bar(quiet=True)
    with bar.shown():
        bar.stage("convert", None)
        bar.step(1)
    show.note("by the way", quiet=True)
    assert capsys.readouterr() == ("", "")


def test_errors_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    show.error(
        EdgekitError("it failed", hint="type this", details={"log_tail": [f"line {i}" for i in range(9)]}),
        as_json=False,
    )
    assert capsys.readouterr().err.splitlines() == [
        "edgekit: it failed",
        *(f"  | line {i}" for i in range(4, 9)),
        "  -> type this",
    ]
    show.error(EdgekitError("no way", details={"routes": ["a: x", "b: y"], "log_tail": ["z"]}), as_json=False)
    assert capsys.readouterr().err.splitlines() == ["edgekit: no way", "  | a: x", "  | b: y"]


def test_intervals_have_one_pair_of_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        Row("a", "accuracy", (Cell("91.7 %", "[89.8 %, 93.3 %]"), Cell("3 ms", "of 5"))),
        Row("b", "p99", (Cell("", "edgekit bench", "not measured"), Cell("", "edgekit bench", "not measured"))),
    )
    show.report_table(Table("T", ("float", "int8"), rows))
    out = capsys.readouterr().out
    assert "91.7 % [89.8 %, 93.3 %]" in out and "3 ms (of 5)" in out
    assert "Not measured: p99 (edgekit bench)" in out


def given(**words: str | None) -> Preprocessing | None:
    names = ("resize", "fit", "filter_", "crop", "color", "mean", "std")
    return options.preprocessing(**{name: words.get(name) for name in names})


def test_preprocessing_words() -> None:
    assert given() is None
    assert given(mean="127", std="128", resize="256", crop="224x192", color="bgr") == Preprocessing(
        resize=(256, 256), crop=(224, 192), color="bgr", mean=(127.0,), std=(128.0,)
    )
    assert given(mean="123.7,116.3,103.5", std="1") == Preprocessing(mean=(123.7, 116.3, 103.5), std=(1.0,))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"resize": "256", "std": "1"}, "--mean is missing: the numbers that the model was trained on are not guessed"),
        ({"mean": "0"}, "--std is missing"),
        ({"mean": "0", "std": "0"}, "--std 0: pixels are divided by it"),
        ({"mean": "a", "std": "1"}, "--mean 'a' is not one number or three"),
        ({"mean": "1,2", "std": "1"}, "--mean '1,2' is not one number or three"),
        ({"mean": "0", "std": "1", "crop": "0"}, "--crop '0' is not a size in pixels"),
        ({"mean": "0", "std": "1", "resize": "5x"}, "--resize '5x' is not a size in pixels"),
        ({"mean": "0", "std": "1", "resize": "1x2x3"}, "is not a size in pixels"),
    ],
)
def test_half_a_preprocessing(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(**words)
    assert said in caught.value.message


def test_input_shapes() -> None:
    assert options.input_shapes(["image=1x3x224x224", "a=b=2"]) == {"image": (1, 3, 224, 224), "a=b": (2,)}
    for word in ("image", "image=", "=1x3", "image=1xNx3", "image=1,3"):
        with pytest.raises(UsageError, match="is not name=SHAPE"):
            options.input_shapes([word])


def test_class_names(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("cat\n dog \n")
    assert options.class_names(path) == ("cat", "dog") and options.class_names(None) == ()
    for text, said in (("", "line 1 is empty"), ("cat\n\ndog\n", "line 2 is empty")):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            options.class_names(path)
    with pytest.raises(UsageError, match="--class-names"):
        options.class_names(tmp_path / "missing.txt")


def test_documents_hold_no_nan() -> None:
    with pytest.raises(ValueError, match="[Oo]ut of range float values|not JSON compliant"):
        show.document({"ok": True, "value": float("nan")})


def test_click_is_told_apart_from_edgekit() -> None:
    from edgekit.cli.main import _from_click

    error = _from_click(click.UsageError("Missing argument 'MODEL'."))
    assert (error.message, error.exit_code) == ("Missing argument 'MODEL'", 2)


def test_an_interruption_keeps_its_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark says where it kept what was measured; click would replace that by "Aborted!"."""
    from edgekit.cli import main
    from edgekit.intake import inspect

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("interrupted; what was measured is in runs/7")

    monkeypatch.setattr(inspect, "inspect_model", stopped)
    assert main.run(["inspect", "x"]) == 130
    assert capsys.readouterr() == ("", "edgekit: interrupted; what was measured is in runs/7\n")
