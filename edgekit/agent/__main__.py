"""The agent's command line: ``run FOLDER``, ``facts``, ``do ERRAND``, ``--version``; ``worker`` and ``health`` are for the agent itself."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import List, Optional

from edgekit import __version__
from edgekit.agent.readings import Roots
from edgekit.errors import EdgekitError


def main(argv: Optional[List[str]] = None) -> int:
    """Runs the agent; returns the exit code."""
    parser = argparse.ArgumentParser(prog="agent", description="edgekit's agent on the board")
    parser.add_argument("--version", action="version", version=f"edgekit agent {__version__}")
    parser.add_argument("--sys", default="/sys", help=argparse.SUPPRESS)  # recorded boards in the tests
    parser.add_argument("--proc", default="/proc", help=argparse.SUPPRESS)
    parser.add_argument("--dev", default="/dev", help=argparse.SUPPRESS)
    parser.add_argument("--commands", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="carry out the request.json in a folder")
    run.add_argument("folder")
    run.add_argument("--home", help="folder whose lock keeps two runs apart")
    verbs.add_parser("facts", help="print what this board is, as JSON")
    worker = verbs.add_parser("worker")
    worker.add_argument("descriptor", type=int)
    errand = verbs.add_parser("do", help="one errand of the workstation, as JSON")
    errand.add_argument("what")
    errand.add_argument("--home", required=True)
    verbs.add_parser("health")
    options = parser.parse_args(argv)
    if options.verb == "worker":
        from edgekit.agent.worker import main as work

        return work(options.descriptor)
    if options.verb == "do":
        from edgekit.agent.errands import main as do

        return do(options.what, options.home)
    if options.verb == "health":
        from edgekit.agent.health import main as check

        return check(json.load(sys.stdin))
    roots = Roots(sys=options.sys, proc=options.proc, dev=options.dev, commands=options.commands)
    try:
        if options.verb == "facts":
            return _facts(roots)
        return _run(options.folder, options.home, roots)
    except EdgekitError as error:
        print(error.message, file=sys.stderr)
        return 1


def _run(path: str, home: Optional[str], roots: Roots) -> int:
    from edgekit.agent.lock import BoardLock
    from edgekit.agent.run_folder import RunFolder
    from edgekit.agent.supervisor import Supervisor
    from edgekit.agent.worker_process import worker_command

    lock = None if home is None else BoardLock(os.path.expanduser(home))
    program = sys.argv[0]
    supervisor = Supervisor(RunFolder(path), worker=worker_command(program, sys.executable), roots=roots, lock=lock)
    return supervisor.run()


def _facts(roots: Roots) -> int:
    from edgekit.agent.facts import board_facts

    json.dump(board_facts(roots), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
