#!/usr/bin/env python3
"""Conformance: the ONNX package's own node tests through edgekit's import, and through plain onnx2tf for comparison.

usage: .venv/bin/python tools/conformance.py [--judge edgekit|plain-2x|plain-1x] [--frontends onnx2tf,tensorflow] [--sample N] [--only WORD]
                                             [--again refused,wrong [--run WORD]] [--results FOLDER] [--table]

Each case ends as

  delivered   a file was delivered, and an independent judge finds the test's recorded outputs in it
  refused     no file, with the reason
  dead        a file was delivered, and the interpreter does not run it
  wrong       a file was delivered, and it is not right

Results are kept in FOLDER/JUDGE.jsonl (default: conformance/) as they come: a run that was interrupted goes on where it stopped. --again
repeats those with such a verdict, but for what the same --run (default: the commit) has repeated already. --table writes docs/conformance.md from the results of all three judges. Converters, importer and
judge are workers that stay and are started again after a crash or a hang, which costs one case. Needs the front ends that are asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(1, str(ROOT))

import conformance_cases  # noqa: E402
from conformance_resident import Resident  # noqa: E402
from conformance_table import write_table  # noqa: E402

JUDGES = {"edgekit": "", "plain-2x": "onnx2tf", "plain-1x": "tensorflow"}
"""Who is judged, and the front end whose environment serves for plain onnx2tf."""
TIMEOUT_S = 60.0
HERE = Path(__file__).parent


class Run:
    """One judge over the cases; ``work`` is emptied case by case."""

    def __init__(self, judge: str, frontends: str, work: Path, commit: str) -> None:
        self._edgekit = judge == "edgekit"
        self._commit = commit
        self._work = work
        self._renew = frontends.count(",") + 1
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        if self._edgekit:
            command = [sys.executable, str(HERE / "conformance_importer.py"), frontends, str(work)]
        else:
            command = [_python_of(JUDGES[judge]), "-I", str(HERE / "conformance_plain.py")]
            env |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._converter = Resident(command, log=work / "converter.log", env=env, renew_after=300)
        judging = [sys.executable, str(HERE / "conformance_judge.py")]
        self._judge = Resident(judging, log=work / "judge.log", env=env)

    def case(self, case: conformance_cases.Case) -> dict[str, Any]:
        """The record of one case."""
        folder = self._work / case.name
        case.write(folder)
        started = time.monotonic()
        try:
            found = self._imported(folder) if self._edgekit else self._converted(folder)
        finally:
            shutil.rmtree(folder)
        return {
            "name": case.name,
            "operator": case.operator,
            **found,
            "seconds": round(time.monotonic() - started, 2),
            "commit": self._commit,
        }

    def close(self) -> None:
        """End the workers."""
        self._converter.close()
        self._judge.close()

    def _imported(self, folder: Path) -> dict[str, Any]:
        request = {
            "model": str(folder / "model.onnx"),
            "data": str(folder / "data.npz"),
            "work": str(folder / "work"),
            "timeout_s": TIMEOUT_S,
        }
        answer = self._converter.ask(request, timeout_s=8 * TIMEOUT_S)
        if "died" in answer:
            return {"verdict": "refused", "why": f"edgekit {answer['died']}", "code": "died"}
        if "refused" in answer:
            kept = {key: answer[key] for key in ("code", "exit_code", "hint", "notes")}
            return {"verdict": "refused", "why": answer["refused"], **kept}
        return {
            **self._judged(answer["tflite"], folder, answer["io"]),
            "route": answer["route"],
            "notes": answer["notes"],
        }

    def _converted(self, folder: Path) -> dict[str, Any]:
        answer = self._converter.ask(
            {"model": str(folder / "model.onnx"), "out": str(folder / "out")}, timeout_s=TIMEOUT_S
        )
        if "tflite" not in answer:
            return {"verdict": "refused", "why": answer.get("died") or answer["error"]}
        return self._judged(answer["tflite"], folder, None)

    def _judged(self, tflite: str, folder: Path, io: Any) -> dict[str, Any]:
        request = {"tflite": tflite, "data": str(folder / "data.npz"), "io": io}
        answer = self._judge.ask(request, timeout_s=TIMEOUT_S)
        if "died" in answer:
            return {"verdict": "dead", "why": f"the interpreter {answer['died']}"}
        if answer["verdict"] == "right":
            return {"verdict": "delivered", "why": ""}
        return {"verdict": "dead" if answer["verdict"] == "unusable" else "wrong", "why": answer["why"]}


def _python_of(frontend: str) -> str:
    from edgekit.intake import frontends

    return str(frontends.require([frontend])[0].python)


def present_commit() -> str:
    """The commit that is checked out, with a "+" when files differ from it; a copy without history says it in a file ``COMMIT``."""
    note = ROOT / "COMMIT"
    if note.is_file():
        return note.read_text().strip()
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def known_results(file: Path) -> dict[str, dict[str, Any]]:
    """The last record of each case in a results file."""
    lines = file.read_text().splitlines() if file.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return {record["name"]: record for record in records}


def main(arguments: list[str] | None = None) -> int:
    """Runs what is missing, and says how it stands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--judge", choices=list(JUDGES), default="edgekit")
    parser.add_argument("--frontends", default="onnx2tf,tensorflow", help="of edgekit, in the order of trying")
    parser.add_argument("--sample", type=int, metavar="N", help="a seeded subset")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this in their names")
    parser.add_argument("--again", default="", metavar="VERDICT,...", help="repeat cases that ended so")
    parser.add_argument("--run", default="", metavar="WORD", help="name of the run that --again belongs to")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at once")
    parser.add_argument("--results", type=Path, default=Path("conformance"), metavar="FOLDER")
    parser.add_argument("--table", action="store_true", help="only write docs/conformance.md")
    options = parser.parse_args(arguments)
    if options.table:
        cases, left_out = conformance_cases.all_cases()
        results = {judge: known_results(options.results / f"{judge}.jsonl") for judge in JUDGES}
        write_table(ROOT / "docs" / "conformance.md", cases, left_out, results)
        return 0
    records = run(options)
    counts = Counter(record["verdict"] for record in records)
    print(f"{options.judge}: " + ", ".join(f"{counts[v]} {v}" for v in ("delivered", "refused", "dead", "wrong")))
    return 1 if options.judge == "edgekit" and counts["dead"] + counts["wrong"] else 0


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The records of all cases that ``options`` choose; those already there are not made again."""
    cases = list(conformance_cases.all_cases()[0])
    if options.sample:
        cases = conformance_cases.sample(cases, options.sample, seed=options.seed)
    cases = [case for case in cases if options.only in case.name]
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / f"{options.judge}.jsonl"
    known = known_results(file)
    again = set(options.again.split(",")) - {""}
    commit = present_commit()
    label = options.run or commit

    def is_done(name: str) -> bool:
        return name in known and (known[name]["verdict"] not in again or known[name].get("run") == label)

    waiting = [case for case in cases if not is_done(case.name)]
    with tempfile.TemporaryDirectory(prefix="edgekit-conformance-") as work, file.open("a") as output:
        running = queue.SimpleQueue[Run]()
        for job in range(options.jobs):
            folder = Path(work, str(job))
            folder.mkdir()
            running.put(Run(options.judge, options.frontends, folder, commit))

        def one(case: conformance_cases.Case) -> dict[str, Any]:
            run = running.get()
            try:
                return {**run.case(case), "run": label}
            finally:
                running.put(run)

        try:
            with ThreadPoolExecutor(options.jobs) as pool:
                for number, record in enumerate(pool.map(one, waiting), start=1):
                    known[record["name"]] = record
                    output.write(json.dumps(record) + "\n")
                    output.flush()
                    words = f"{record['name']}: {record['verdict']} {record['why'][:120]}"
                    print(f"{number}/{len(waiting)} {words}", file=sys.stderr)
        finally:
            while not running.empty():
                running.get().close()
    return [known[case.name] for case in cases]


if __name__ == "__main__":
    sys.exit(main())
