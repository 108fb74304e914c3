"""``~/.ssh/config`` as OpenSSH reads it: what ``ssh -G`` says is the truth where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lab_fixtures import Desk

from edgekit.errors import UsageError
from edgekit.link.sshconfig import resolve


def config(desk: Desk, text: str, name: str = "config") -> None:
    (desk.home / ".ssh" / name).write_text(text)


def test_without_files_the_defaults(desk: Desk) -> None:
    target = resolve("10.0.0.4", user="pi")
    assert (target.host, target.port, target.user) == ("10.0.0.4", 22, "pi")
    assert target.keys == tuple(desk.home / ".ssh" / name for name in ("id_ed25519", "id_ecdsa", "id_rsa"))
    assert target.known_hosts[0] == desk.known_hosts
    assert (target.only_these_keys, target.jumps, target.strict, target.accept_new) == (False, (), False, False)
    assert target.alive_every_s is None


def test_every_word_that_is_honoured(desk: Desk) -> None:
    config(
        desk,
        "Host pi4 other\n  HostName 10.0.0.4\n  Port=2222\n  User maker\n  IdentityFile ~/.ssh/board\n  IdentityFile ~/keys/%h\n"
        "  IdentitiesOnly yes\n  ProxyJump jump1, maker@jump2:2200\n  ServerAliveInterval 1\n"
        "  UserKnownHostsFile ~/.ssh/boards /other/file\n  HostKeyAlias the-pi\n  StrictHostKeyChecking accept-new\n"
        "  HashKnownHosts yes\nHost *\n  User nobody\n  Port 1\n",
    )
    target = resolve("pi4")
    assert (target.host, target.port, target.user, target.alias) == ("10.0.0.4", 2222, "maker", "the-pi")
    assert target.keys == (desk.home / ".ssh/board", desk.home / "keys/10.0.0.4")
    assert target.only_these_keys
    assert target.jumps == ("jump1", "maker@jump2:2200")
    assert target.alive_every_s == 1
    assert target.known_hosts == (desk.home / ".ssh/boards", Path("/other/file"))
    assert target.accept_new
    assert target.hash_known_hosts


def test_what_was_typed_comes_before_the_file(desk: Desk) -> None:
    config(desk, "Host *\n  User nobody\n  Port 1\n  IdentityFile ~/.ssh/other\n  ProxyJump none\n")
    target = resolve("pi4", user="pi", port=2222, key="~/board")
    assert (target.user, target.port, target.keys, target.jumps) == ("pi", 2222, (desk.home / "board",), ())
    assert target.only_these_keys
    assert resolve("pi4").port == 1


def test_included_files(desk: Desk, tmp_path: Path) -> None:
    config(desk, f"Include boards/*.conf {tmp_path}/elsewhere none-such\nHost *\n  User last\n")
    (desk.home / ".ssh" / "boards").mkdir()
    config(desk, "Host pi4\n  Port 2222\n", "boards/a.conf")
    config(desk, "Host pi5\n  Port 5555\n", "boards/b.conf")
    (tmp_path / "elsewhere").write_text("Host pi?\n  HostName %h.lab\n")
    assert (resolve("pi4").port, resolve("pi4").host, resolve("pi4").user) == (2222, "pi4.lab", "last")
    assert (resolve("pi5").port, resolve("pi6").port) == (5555, 22)


def test_an_include_inside_a_block_belongs_to_it(desk: Desk) -> None:
    config(desk, "Host pi4\n  Include more\n  Port 4444\nHost pi5\n  Port 5555\n")
    config(desk, "User included\nHost pi5\n  User never\nHost pi4\n  HostName ten\n", "more")
    assert (resolve("pi4").user, resolve("pi4").port, resolve("pi4").host) == ("included", 4444, "ten")
    assert resolve("pi5").user != "never"
    assert resolve("pi5").port == 5555


def test_files_that_include_one_another_without_end(desk: Desk) -> None:
    config(desk, "Include config\n")
    with pytest.raises(UsageError, match="deeper than 16"):
        resolve("pi4")


def test_a_condition_that_nobody_knows_takes_no_host_in(desk: Desk) -> None:
    config(desk, "Match unheardof x\n  Port 1\nMatch host pi4\n  User matched\nMatch all\n  Port 2222\n")
    assert (resolve("pi4").user, resolve("pi4").port) == ("matched", 2222)


@pytest.mark.parametrize(
    ("text", "words"),
    [("Port many\n", "many"), ("Host x\n\n   loneword\n", "config:3: 'loneword'")],
    ids=["port", "word"],
)
def test_a_file_that_cannot_be_understood(desk: Desk, text: str, words: str) -> None:
    config(desk, text)
    with pytest.raises(UsageError) as caught:
        resolve("pi4")
    assert caught.value.code == "ssh_config_invalid"
    assert words in caught.value.message


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh to compare with")
def test_openssh_reads_it_the_same_way(desk: Desk, tmp_path: Path) -> None:
    config(
        desk,
        '# comment\nHost pi* !pi9\n  Include sub\n  Port 2200\n  user = "some one"\n\nHost jet?\n  HostName %h.lab\n'
        "  IdentitiesOnly yes\n\nMatch host *.lab\n  Port 77\n\nMatch originalhost pi1\n  ServerAliveInterval 7\n\nHost *\n"
        "  User fallback\n  StrictHostKeyChecking yes\n  ProxyJump hop@gate:44\n",
    )
    config(desk, "Host pi1\n  HostName one\nHost pi2\n  HostName two\n", "sub")
    for host in ("pi1", "pi2", "pi9", "jet1", "else"):
        text = (desk.home / ".ssh/config").read_text().replace("Include sub", f"Include {desk.home}/.ssh/sub")
        (tmp_path / "config").write_text(text)
        said = subprocess.run(
            ["ssh", "-G", "-F", str(tmp_path / "config"), host],
            capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(desk.home)},
        ).stdout  # fmt: skip
        truth = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
        target = resolve(host)
        assert target.host == truth["hostname"], host
        assert target.port == int(truth["port"]), host
        assert target.user == truth["user"], host
        assert target.only_these_keys is (truth["identitiesonly"] == "yes"), host
        assert target.strict is (truth["stricthostkeychecking"] in ("true", "yes")), host
        assert ",".join(target.jumps) == truth["proxyjump"], host
        assert (target.alive_every_s or 0) == float(truth["serveraliveinterval"]), host
