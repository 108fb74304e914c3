"""Known hosts: read as OpenSSH reads them, appended to and nothing else. ``ssh-keygen -F`` is asked for its opinion where it can be."""

from __future__ import annotations

import base64
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.errors import LinkError, OutputError
from edgekit.link.hostkeys import (
    Verdict,
    append_host_key,
    check_host_key,
    fingerprint,
    judge,
    label_of,
    read_known_hosts,
    types_of,
)
from edgekit.link.questions import NewHostKey, Questions

ED25519 = "ssh-ed25519"
KEY = bytes.fromhex("0000000b7373682d6564323535313900000020") + bytes(range(32))
OTHER = bytes.fromhex("0000000b7373682d6564323535313900000020") + bytes(range(1, 33))
needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def b64(key: bytes) -> str:
    return base64.b64encode(key).decode()


def known(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return file


def verdict(file: Path, label: str, key: bytes = KEY, kind: str = ED25519) -> Verdict:
    return judge(read_known_hosts([file]), label, kind, key)[0]


def test_a_host_is_known_by_its_name_and_port(tmp_path: Path) -> None:
    file = known(
        tmp_path, f"pi4.local,10.0.0.4 {ED25519} {b64(KEY)} a comment\n[pi4.local]:2222 {ED25519} {b64(OTHER)}\n"
    )
    assert verdict(file, "pi4.local") is Verdict.KNOWN
    assert verdict(file, "PI4.local") is Verdict.KNOWN
    assert verdict(file, "10.0.0.4") is Verdict.KNOWN
    assert verdict(file, label_of("pi4.local", 2222), OTHER) is Verdict.KNOWN
    assert verdict(file, label_of("pi4.local", 2222)) is Verdict.CHANGED
    assert verdict(file, "pi5.local") is Verdict.NEW
    assert verdict(file, label_of("10.0.0.4", 2222)) is Verdict.NEW


def test_patterns_and_exceptions(tmp_path: Path) -> None:
    file = known(tmp_path, f"*.lab,!bad.lab,pi? {ED25519} {b64(KEY)}\n[*.desk]:2222 {ED25519} {b64(KEY)}\n")
    for label in ("one.lab", "pi4", "[x.desk]:2222"):
        assert verdict(file, label) is Verdict.KNOWN, label
    for label in ("bad.lab", "pi44", "x.desk", "[x.desk]:22222"):
        assert verdict(file, label) is Verdict.NEW, label


@needs_ssh_keygen
@pytest.mark.parametrize("label", ["pi4.local", "[pi4.local]:2222", "fe80::1"])
def test_names_that_were_hashed_by_openssh(tmp_path: Path, label: str) -> None:
    file = known(tmp_path, f"{label} {ED25519} {b64(KEY)}\nother {ED25519} {b64(OTHER)}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "pi4" not in file.read_text()
    assert verdict(file, label) is Verdict.KNOWN
    assert verdict(file, label, OTHER) is Verdict.CHANGED
    assert verdict(file, "pi5.local") is Verdict.NEW


def test_lines_that_stop_other_readers_are_passed_over(tmp_path: Path) -> None:
    file = known(
        tmp_path,
        f"@cert-authority *.lab {ED25519} {b64(OTHER)}\n\n# a comment\n   \nonly two\nhost {ED25519} not/base64!\n"
        f"host ssh-unheard-of {b64(OTHER)}\n@unknown-marker host {ED25519} {b64(OTHER)}\n|1|broken {ED25519} {b64(OTHER)}\n"
        f"1024 35 1234567890\nhost {ED25519} {b64(KEY)}",
    )
    file.write_bytes(b"\xff\xfe\x00 junk \x80\n" + file.read_bytes())
    assert verdict(file, "host") is Verdict.KNOWN
    assert verdict(file, "pi.lab") is Verdict.NEW


def test_a_revoked_key_is_refused_even_where_it_is_known(tmp_path: Path) -> None:
    file = known(tmp_path, f"host {ED25519} {b64(KEY)}\n@revoked * {ED25519} {b64(KEY)}\nhost {ED25519} {b64(OTHER)}\n")
    assert verdict(file, "host") is Verdict.REVOKED
    assert verdict(file, "host", OTHER) is Verdict.KNOWN


def test_another_type_than_the_known_one_is_a_change(tmp_path: Path) -> None:
    """Servers are asked for the type that is known; one that shows another has lost the first."""
    file = known(tmp_path, f"host ssh-rsa {b64(OTHER)}\n")
    assert verdict(file, "host") is Verdict.CHANGED
    assert types_of(read_known_hosts([file]), "host") == ["ssh-rsa"]
    assert types_of(read_known_hosts([file]), "nobody") == []


def test_files_that_are_not_there_know_nothing(tmp_path: Path) -> None:
    assert read_known_hosts([tmp_path / "none", tmp_path]) == []


def accept(file: Path, questions: Questions, label: str = "host", *, hashed: bool = False) -> None:
    check_host_key(
        read_known_hosts([file]),
        label=label,
        key_type=ED25519,
        key=KEY,
        append_to=file,
        hashed=hashed,
        questions=questions,
    )


def test_a_new_key_is_shown_and_kept_once(tmp_path: Path) -> None:
    before = (
        f"# mine\n@cert-authority *.x {ED25519} {b64(OTHER)}\nother {ED25519} {b64(OTHER)}"  # no newline at its end
    )
    file = known(tmp_path, before)
    shown: list[NewHostKey] = []
    accept(file, Questions(confirm_host_key=lambda new: not shown.append(new)))  # type: ignore[func-returns-value]
    assert shown == [NewHostKey("host", ED25519, fingerprint(KEY))]
    assert file.read_text() == f"{before}\nhost {ED25519} {b64(KEY)}\n"
    accept(file, Questions())
    assert file.read_text().count("\n") == 4


def test_a_new_key_that_nobody_accepts(tmp_path: Path) -> None:
    file = known(tmp_path, "")
    for questions in (Questions(), Questions(confirm_host_key=lambda new: False)):
        with pytest.raises(LinkError) as caught:
            accept(file, questions)
        assert (caught.value.code, caught.value.exit_code) == ("hostkey_unknown", 4)
        assert fingerprint(KEY) in caught.value.message
        assert "--accept-new" in caught.value.hint
    assert file.read_text() == ""


def test_a_changed_key_is_refused_whatever_was_said(tmp_path: Path) -> None:
    file = known(tmp_path, f"# first\nhost {ED25519} {b64(OTHER)}\n")
    before = file.read_bytes()
    with pytest.raises(LinkError) as caught:
        accept(file, Questions(accept_new=True, confirm_host_key=lambda new: True))
    assert (caught.value.code, caught.value.exit_code) == ("hostkey_changed", 4)
    assert f"{file}:2" in caught.value.message
    assert caught.value.hint.endswith(f"ssh-keygen -R 'host' -f {file}")
    assert file.read_bytes() == before


@needs_ssh_keygen
def test_the_line_to_type_does_what_it_should(tmp_path: Path) -> None:
    file = known(tmp_path, f"[host]:2222 {ED25519} {b64(OTHER)}\nkept {ED25519} {b64(OTHER)}\n")
    with pytest.raises(LinkError) as caught:
        accept(file, Questions(accept_new=True), "[host]:2222")
    line = caught.value.hint[caught.value.hint.index("ssh-keygen") :]
    subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    accept(file, Questions(accept_new=True), "[host]:2222")
    assert verdict(file, "[host]:2222") is Verdict.KNOWN
    assert verdict(file, "kept", OTHER) is Verdict.KNOWN


@needs_ssh_keygen
@pytest.mark.parametrize("hashed", [False, True])
def test_openssh_finds_what_was_appended(tmp_path: Path, hashed: bool) -> None:
    file = tmp_path / "new folder" / "known_hosts"
    accept(file, Questions(accept_new=True), "[host]:2222", hashed=hashed)
    found = subprocess.run(
        ["ssh-keygen", "-F", "[host]:2222", "-f", str(file)], check=True, capture_output=True, text=True
    ).stdout
    assert b64(KEY) in found
    assert ("host" in file.read_text()) is not hashed
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@needs_ssh_keygen
def test_the_fingerprint_is_the_one_that_people_compare(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(f"{ED25519} {b64(KEY)}\n")
    said = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "key.pub")], check=True, capture_output=True, text=True)
    assert fingerprint(KEY) == said.stdout.split()[1]


def test_a_key_that_cannot_be_kept_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        append_host_key(tmp_path / "file" / "known_hosts", "host", ED25519, KEY, hashed=False)


def test_many_who_append_at_once_lose_no_line(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    code = (
        "import sys; from pathlib import Path; from edgekit.link.hostkeys import append_host_key\n"
        "for turn in range(20):\n"
        "    append_host_key(Path(sys.argv[1]), f'host{sys.argv[2]}-{turn}', 'ssh-ed25519', b'key', hashed=False)\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(file), str(number)]) for number in range(8)]
    assert [child.wait(60) for child in children] == [0] * 8
    assert {one.names for one in read_known_hosts([file])} == {f"host{n}-{t}" for n in range(8) for t in range(20)}
