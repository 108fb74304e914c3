"""O21: a remote command that says much on both streams returns, and one that never ends is ended with its last words shown."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from edgekit.errors import LinkError
from edgekit.link.ssh import SshLink

FIVE_MIB = 5 << 20

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("python3") is None, reason="needs a python3 in the path"),
]


def program(*steps: str) -> list[str]:
    return ["python3", "-c", "import sys, time\n" + "\n".join(steps)]


def digest(letter: bytes) -> bytes:
    return hashlib.sha256(letter * FIVE_MIB).digest()


def test_five_mib_on_each_stream_one_after_the_other(ssh_link: SshLink) -> None:
    steps = (f"sys.stderr.write('e' * {FIVE_MIB}); sys.stderr.flush()", f"sys.stdout.write('o' * {FIVE_MIB})")
    for order in (steps, steps[::-1]):
        done = ssh_link.run(program(*order), timeout_s=50)
        assert done.returncode == 0
        assert (len(done.stdout), len(done.stderr)) == (FIVE_MIB, FIVE_MIB)
        assert hashlib.sha256(done.stdout).digest() == digest(b"o")
        assert hashlib.sha256(done.stderr).digest() == digest(b"e")


def test_only_the_errors(ssh_link: SshLink) -> None:
    done = ssh_link.run(program(f"sys.stderr.write('e' * {FIVE_MIB})"), timeout_s=50)
    assert (done.returncode, done.stdout, len(done.stderr)) == (0, b"", FIVE_MIB)


def test_no_word_until_the_time_is_up(ssh_link: SshLink) -> None:
    with pytest.raises(LinkError) as caught:
        ssh_link.run(program("print('begun', flush=True)", "time.sleep(600)"), timeout_s=2)
    assert caught.value.code == "command_timeout"
    assert caught.value.details["stdout_tail"] == "begun\n"


def test_the_streams_stay_open_after_the_end(ssh_link: SshLink) -> None:
    """A child that was left behind holds them."""
    with pytest.raises(LinkError) as caught:
        ssh_link.run(["sh", "-c", "sleep 600 & echo last words; echo complaint >&2"], timeout_s=2)
    assert caught.value.code == "command_timeout"
    assert caught.value.details == {"stdout_tail": "last words\n", "stderr_tail": "complaint\n"}
    assert ssh_link.run(["echo", "next"], timeout_s=50).text == "next"
