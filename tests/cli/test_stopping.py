"""A signal whose exception was lost on its way is raised again at the next sign of progress."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from edgekit.cli import show, stopping


@pytest.fixture
def listening() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping.listen()
    yield
    stopping._told.clear()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, "^$"), (signal.SIGTERM, "SIGTERM")])
def test_a_swallowed_signal_comes_back(number: signal.Signals, words: str) -> None:
    bar = show.Bar(quiet=True, sign=stopping.check)
    bar.step(1)
    with pytest.raises(KeyboardInterrupt):  # as native code may swallow it
        os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt, match=words):
        bar.step(2)
    with pytest.raises(KeyboardInterrupt, match=words):
        bar.stage("next", None)


@pytest.mark.usefixtures("listening")
def test_what_was_ignored_stays_ignored() -> None:
    os.kill(os.getpid(), signal.SIGHUP)
    stopping.check()
