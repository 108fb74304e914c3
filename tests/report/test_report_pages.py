"""The pages as files: whole, offline, escaped, drawn by a real browser where there is one."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import OutputError, UsageError
from edgekit.report.downsample import envelope_of
from edgekit.report.html import write_bundle_report, write_run_report
from edgekit.report.offline_plotly import figure_json, validate
from edgekit.report.plots import Figure, figures_of
from edgekit.report.stats import RunFolder, summarise
from edgekit.report.timeline import Block

MakeRun = Callable[..., Path]
MakeReport = Callable[..., dict[str, Any]]
EVIL = "</script><script>alert(1)</script><img src=\"http://evil.example/x\" onerror='alert(2)'>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags and attributes of a page as a browser reads them: what is inside scripts is text."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        where = {"script": self.scripts, "style": self.styles}.get(self.tags[-1][0] if self.tags else "", self.texts)
        where.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def assert_offline(page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name, value in attributes.items():
            if name in ("src", "href", "srcset", "action", "poster", "data", "background"):
                assert (value or "").startswith("#"), f"{tag} {name}={value}"
            assert not name.startswith("on"), f"{tag} has a handler {name}"
    assert not any("url(" in style or "@import" in style for style in page.styles)
    policies = [
        attributes["content"] or ""
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1 and "default-src 'none'" in policies[0] and "http" not in policies[0]


def test_a_run_page_leads_with_the_table_and_ends_with_the_next_step(make_run: MakeRun, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    summaries = write_run_report([make_run(seconds=60, float_ms=21.0)], out)
    page = Page(out)
    assert_offline(page)
    assert [summary.validity.valid for summary in summaries] == [True]
    wanted = [
        "int8 is faster than float: 2.6",
        "file size",
        "accuracy",
        "p50 latency",
        "Latency over time",
        "Distribution of latency",
        "Memory by stage",
        "Accuracy before and after",
        "Operators",
        "Worth trying next",
    ]
    places = [page.text.rindex(words) if words == "Worth trying next" else page.text.index(words) for words in wanted]
    assert places == sorted(places)


def test_plotly_is_embedded_once_however_many_runs(make_run: MakeRun, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_run_report(
        [make_run("one", seconds=5), make_run("two", seconds=5), make_run("three", seconds=5, state="cancelled")], out
    )
    page = Page(out)
    assert_offline(page)
    assert sum("plotly.js v" in script for script in page.scripts) == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "The runs side by side" not in page.text and "3 runs" in page.text
    for tag, attributes in page.tags:
        if tag == "a":
            assert (attributes["href"] or "")[1:] in ids


SHAPES: dict[str, dict[str, Any]] = {
    "int8 only": {},
    "with float": {"float_ms": 20.0},
    "cancelled": {"state": "cancelled", "seconds": 4},
    "crashed": {"state": "failed", "error": {"code": "crash", "message": "the worker died of signal 11"}, "seconds": 3},
    "too few": {"seconds": 0.05},
    "no sensor": {"temperature": False},
    "throttled": {"seconds": 130, "throttle": ((60.0, 100.0),), "float_ms": 20.0, "block_s": 5.0},
    "byte budget": {"kept_every": 8, "seconds": 40},
    "no memory": {"memory": False},
    "lone file": {"kind": "tflite", "manifest": False},
    "microseconds": {"median_ms": 0.05, "seconds": 10},
    "even to the last digit": {"noise": 0.0},
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_run_has_a_page_that_plotly_accepts(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    path = make_run(**SHAPES[name])
    out = tmp_path / "report.html"
    (summary,) = write_run_report([path], out)
    assert_offline(Page(out))
    for figure in figures_of(RunFolder.load(path), summary):
        validate(figure)
        json.loads(figure_json(figure))


def test_only_a_request_still_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"schema": 1, "id": "x", "model": {"name": "m", "kind": "tflite"}}')
    (summary,) = write_run_report([tmp_path], tmp_path / "report.html")
    assert not summary.validity.valid
    assert "This run supports no verdict" in Page(tmp_path / "report.html").text


def test_unknown_temperature_is_said_beside_the_figure(make_run: MakeRun, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_run_report([make_run(seconds=5, temperature=False)], out)
    assert "temperature is unknown: no thermal zone under /sys/class/thermal" in Page(out).text


def test_a_crash_shows_the_last_lines_of_the_log(make_run: MakeRun, tmp_path: Path) -> None:
    error = {"code": "crash", "message": "the worker died of signal 11", "log_tail": ["Fatal Python error", "<module>"]}
    out = tmp_path / "report.html"
    write_run_report([make_run(seconds=5, state="failed", error=error)], out)
    text = Page(out).text
    assert text.index("the worker died of signal 11") < text.index("Fatal Python error <module>")


def test_names_from_models_and_boards_are_only_text(make_run: MakeRun, tmp_path: Path) -> None:
    path = make_run(seconds=5, name=EVIL, governor=EVIL)
    bundle = json.loads((path / "bundle.json").read_text())
    bundle["verification"]["audit"]["operators"][0]["op"] = EVIL
    bundle["verification"]["accuracy"]["metric"] = EVIL
    (path / "bundle.json").write_text(json.dumps(bundle))
    out = tmp_path / "report.html"
    write_run_report([path], out)
    page = Page(out)
    assert_offline(page)
    assert "alert(1)" in page.text  # shown, as text
    assert not any(tag == "img" for tag, _ in page.tags)
    assert sum(tag == "script" for tag, _ in page.tags) == 2 + 5  # plotly, the drawing code, five figures
    for script in page.scripts:
        assert script.strip() != "alert(1)"
    plain = next(
        figure
        for figure in figures_of(RunFolder.load(path), summarise(RunFolder.load(path)))
        if figure.key == "operators"
    )
    assert "<" not in json.dumps(plain.data)  # plotly reads tags in labels


def test_figure_json_cannot_leave_its_script_element() -> None:
    text = figure_json(Figure("k", "t", "c", ({"name": EVIL},), {}, 100))
    assert "<" not in text and ">" not in text
    assert json.loads(text)["data"][0]["name"] == EVIL


def test_downsampling_loses_no_extreme() -> None:
    rng = np.random.default_rng(1)
    latencies = np.round(rng.lognormal(15, 0.1, 200_000)).astype(np.int64)
    latencies[123_456] = 10**10
    blocks = [Block(float(i), 1.0, part.size, part) for i, part in enumerate(np.array_split(latencies, 1000))]
    for chosen in (blocks, [Block(0.0, 1000.0, latencies.size, latencies)]):
        envelope = envelope_of(chosen)
        assert len(envelope.times_s) <= 400
        assert max(envelope.max_ns) == 10**10
        assert min(envelope.min_ns) == np.min(latencies)
        assert np.median(envelope.median_ns) == pytest.approx(np.median(latencies), rel=0.01)
        assert list(envelope.times_s) == sorted(envelope.times_s)
        assert len(envelope.p95_ns) == len(envelope.times_s)


def test_no_run_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        write_run_report([], tmp_path / "report.html")


def test_a_bundle_page_says_everything(make_report: MakeReport, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_bundle_report(make_report(floats=True), out)
    page = Page(out)
    assert_offline(page)
    for words in (
        "All 2 gates passed",
        "edgekit bench BUNDLE",
        "onnxruntime 1.32.0",
        "112.4 dB",
        "13.2 dB at index 412 of axis 1",
        "72.2 % [68.3 %, 76.1 %]",
        "13 right answers were lost and 6 were gained",
        "the recipe keeps it float",
        "seeded with 0",
        "short-side",
        "onnx2tf 2.6.9",
        "812 MB at its peak",
    ):
        assert words in page.text, words
    assert out.stat().st_size < 200_000
    assert not any(tag == "script" for tag, _ in page.tags)


def test_a_bundle_page_of_evil_names(make_report: MakeReport, tmp_path: Path) -> None:
    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {EVIL if key == "x" else key: poison(item) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item) for item in value]
        return EVIL if isinstance(value, str) else value

    out = tmp_path / "report.html"
    write_bundle_report(poison(make_report(floats=True)), out)
    page = Page(out)
    assert_offline(page)
    assert not {tag for tag, _ in page.tags} & {"script", "img"}


@pytest.mark.parametrize("verdict", ["failed", "undecided"])
def test_a_rejected_bundle_says_so_on_top(make_report: MakeReport, tmp_path: Path, verdict: str) -> None:
    report = make_report()
    report["manifest"]["verification"]["gates"][1].update(verdict=verdict, message="loses 9 points, at most 3")
    report["manifest"]["verification"]["passed"] = False
    out = tmp_path / "report.html"
    write_bundle_report(report, out)
    text = Page(out).text
    assert text.index("Rejected" if verdict == "failed" else "Not decided") < text.index("file size")
    assert "accuracy: loses 9 points, at most 3" in text


def prunings(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every key of a document."""
    found = []
    if isinstance(value, dict):
        for key, item in value.items():
            found += [(*path, key), *prunings(item, (*path, key))]
    return found


@pytest.mark.parametrize("replacement", ["missing", None])
def test_a_bundle_page_survives_any_field_being_absent(
    make_report: MakeReport, tmp_path: Path, replacement: str | None
) -> None:
    out = tmp_path / "report.html"
    for path in prunings(make_report(floats=True)):
        report = make_report(floats=True)
        parent = report
        for key in path[:-1]:
            parent = parent[key]
        if replacement is None:
            parent[path[-1]] = None
        else:
            del parent[path[-1]]
        write_bundle_report(report, out)
    write_bundle_report({}, out)
    assert "Not verified" in Page(out).text


def test_a_run_page_survives_any_result_field_being_null(make_run: MakeRun) -> None:
    path = make_run(seconds=5, float_ms=20.0)
    whole = json.loads((path / "result.json").read_text())
    for keys in prunings(whole):
        result = json.loads(json.dumps(whole))
        parent = result
        for key in keys[:-1]:
            parent = parent[key]
        parent[keys[-1]] = None
        (path / "result.json").write_text(json.dumps(result))
        run = RunFolder.load(path)
        figures_of(run, summarise(run))


def test_a_bundle_page_needs_neither_plotly_nor_scipy(make_report: MakeReport, tmp_path: Path) -> None:
    program = (
        "import json, sys; from pathlib import Path\n"
        "from edgekit.report.html import write_bundle_report\n"
        "write_bundle_report(json.load(sys.stdin), Path(sys.argv[1]))\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'plotly', 'scipy', 'numpy'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "r.html")],
        input=json.dumps(make_report()),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() in ("[]", "['numpy']")


def test_writing_replaces_the_whole_file(make_report: MakeReport, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder" / "report.html"
    write_bundle_report(make_report(), out)
    write_bundle_report(make_report(name="second"), out)
    assert "second" in out.read_text(encoding="utf-8")
    assert [item.name for item in out.parent.iterdir()] == ["report.html"]


def test_a_full_disk_leaves_the_old_report(
    make_report: MakeReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("edgekit.report.write.os.fsync", full)
    with pytest.raises(OutputError, match="the disk is full") as caught:
        write_bundle_report(make_report(), out)
    assert caught.value.exit_code == 2
    assert "--out" in caught.value.hint
    assert out.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_really_full_device(make_report: MakeReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **kwargs: real_open(Path("/dev/full"), *args, **kwargs))
    with pytest.raises(OutputError, match="the disk is full"):
        write_bundle_report(make_report(), tmp_path / "report.html")


def test_places_that_cannot_be_written(make_report: MakeReport, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        write_bundle_report(make_report(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_bundle_report(make_report(), tmp_path / "file" / "report.html")


def dump_dom(page: Path, profile: Path, *flags: str) -> str:
    """The page's HTML after its scripts ran in a headless browser that has no network."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ]
    command += [
        "--disable-background-networking",
        "--disable-component-update",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    command += [f"--user-data-dir={profile}", "--virtual-time-budget=10000", *flags, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to draw the page with")
def test_a_browser_draws_every_figure_without_a_network(make_run: MakeRun, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_run_report([make_run(seconds=20, float_ms=20.0)], out)
    dom = dump_dom(out, tmp_path / "profile")
    plots = re.findall(r'<div class="plot[^"]*" id="(run1-[a-z]+-plot)"', dom)
    assert plots == [f"run1-{key}-plot" for key in ("latency", "distribution", "memory", "accuracy", "operators")]
    pieces = re.split(r' id="run1-[a-z]+-plot"', dom)[1:]
    assert all('class="main-svg"' in piece for piece in pieces)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to draw the page with")
def test_nothing_sticks_out_on_a_phone(make_run: MakeRun, make_report: MakeReport, tmp_path: Path) -> None:
    long_name = "model_" + "x" * 90
    write_run_report(
        [make_run(long_name, seconds=20, float_ms=20.0, name=long_name), make_run("two", seconds=5)],
        tmp_path / "run.html",
    )
    write_bundle_report(make_report(name=long_name, floats=True), tmp_path / "bundle.html")
    frames = ""
    for name in ("run", "bundle"):
        text = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        text = re.sub(r"<meta http-equiv[^>]*>", "", text)  # the measuring script below is not the page's own
        tell = f"parent.postMessage('{name} '+document.documentElement.scrollWidth,'*')"
        measure = f"<script>setTimeout(()=>{tell},3000)</script>"
        (tmp_path / f"{name}-measured.html").write_text(text.replace("</body>", measure + "</body>"), encoding="utf-8")
        frames += f'<iframe src="{name}-measured.html" style="width:390px;height:800px;border:0"></iframe>'
    listen = "<script>onmessage=e=>{document.body.append('['+e.data+']')}</script>"
    (tmp_path / "phone.html").write_text(f"<body>{listen}{frames}</body>")
    dom = dump_dom(tmp_path / "phone.html", tmp_path / "profile", "--allow-file-access-from-files")
    widths = dict(re.findall(r"\[(run|bundle) (\d+)\]", dom))
    assert set(widths) == {"run", "bundle"}
    assert all(int(width) <= 390 for width in widths.values()), widths
