"""Getting in, and every way of not getting in told apart."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_fixtures import Desk
from lab_sshd import LabBoard, Setup, free_port, make_key

from edgekit.errors import LinkError
from edgekit.link.boards import Board
from edgekit.link.questions import NewHostKey, Questions
from edgekit.link.ssh import SshLink

pytestmark = pytest.mark.timeout(60)


def link_to(board: LabBoard, *, questions: Questions | None = None, **words: object) -> SshLink:
    where = {"host": board.host, "user": board.user, "port": board.port, **words}
    return SshLink(Board("board", **where), questions=questions or Questions(), retry_for_s=0)  # type: ignore[arg-type]


def refused(link: SshLink, code: str) -> LinkError:
    with pytest.raises(LinkError) as caught:
        link.run(["true"], timeout_s=30)
    assert caught.value.code == code, caught.value.message
    assert caught.value.exit_code == 4
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ed25519", ()),
        ("rsa", ("-b", "2048")),
        ("rsa", ("-b", "2048", "-m", "PEM")),
        ("rsa", ("-b", "2048", "-m", "PKCS8")),
        ("ecdsa", ("-b", "256")),
        ("ecdsa", ("-b", "384", "-m", "PEM")),
        ("ecdsa", ("-b", "521", "-m", "PKCS8")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
@pytest.mark.parametrize("passphrase", ["", "it's secret"], ids=["plain", "encrypted"])
def test_keys_of_every_type(
    lab_board: LabBoard,
    desk: Desk,
    kind: str,
    options: tuple[str, ...],
    passphrase: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = make_key(desk.home / "a key", kind, passphrase=passphrase, options=options)
    lab_board.authorize(key)
    desk.trust(lab_board)
    if passphrase:
        refused(link_to(lab_board, key=str(key)), "passphrase_missing")
        monkeypatch.setenv("EDGEKIT_PASSPHRASE", passphrase)
    with link_to(lab_board, key=str(key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_keys_in_their_usual_place(lab_board: LabBoard, desk: Desk) -> None:
    desk.trust(lab_board)
    shutil.copy(lab_board.key, desk.home / ".ssh" / "id_ed25519")
    with link_to(lab_board) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_a_certificate_beside_the_key(lab_board: LabBoard, desk: Desk, tmp_path: Path) -> None:
    """The board trusts an authority and knows no key."""
    authority, key = make_key(tmp_path / "ca"), make_key(desk.home / "mine")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", lab_board.user, f"{key}.pub"]
    subprocess.run(sign, check=True, capture_output=True)
    public = Path(f"{authority}.pub").read_text()
    (lab_board.folder / "authorized_keys").write_text(f"cert-authority {public}")
    desk.trust(lab_board)
    with link_to(lab_board, key=str(key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_a_wrong_key(lab_board: LabBoard, desk: Desk) -> None:
    desk.trust(lab_board)
    key = make_key(desk.home / "wrong")
    error = refused(link_to(lab_board, key=str(key)), "auth_refused")
    assert str(key) in error.message
    assert "SHA256:" in error.message
    assert f"ssh-copy-id -p {lab_board.port} {lab_board.user}@{lab_board.host}" in error.hint


def test_no_key_at_all(lab_board: LabBoard, desk: Desk) -> None:
    desk.trust(lab_board)
    assert "there is no key and no password" in refused(link_to(lab_board), "auth_refused").message


def test_a_wrong_passphrase(lab_board: LabBoard, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.trust(lab_board)
    key = make_key(desk.home / "mine", passphrase="right")
    monkeypatch.setenv("EDGEKIT_PASSPHRASE", "wrong")
    assert str(key) in refused(link_to(lab_board, key=str(key)), "passphrase_wrong").message


def test_the_passphrase_is_asked_for_once(lab_board: LabBoard, desk: Desk) -> None:
    key = make_key(desk.home / "mine", passphrase="right")
    lab_board.authorize(key)
    desk.trust(lab_board)
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "right"

    with link_to(lab_board, key=str(key), questions=Questions(ask_secret=answer)) as link:
        for _ in range(3):
            assert link.run(["echo", "in"], timeout_s=30).text == "in"
            link.close()
    assert asked == [f"Passphrase of {key}: "]


@pytest.mark.parametrize(
    "content", ["no key at all", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"]
)
def test_a_file_that_is_no_key(lab_board: LabBoard, desk: Desk, content: str) -> None:
    desk.trust(lab_board)
    (desk.home / "mine").write_text(content)
    assert "is no private key" in refused(link_to(lab_board, key=str(desk.home / "mine")), "key_invalid").message


def test_a_password(make_board: Callable[..., LabBoard], desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    board = make_board(Setup(password="p ä'ss\"wd"), accounts=True)
    desk.trust(board)
    monkeypatch.setenv("EDGEKIT_PASSWORD", "wrong")
    refused(link_to(board), "password_wrong")
    monkeypatch.setenv("EDGEKIT_PASSWORD", "p ä'ss\"wd")
    with link_to(board) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
    for path in desk.home.rglob("*"):
        assert not path.is_file() or b'ss"wd' not in path.read_bytes()


def test_a_password_may_be_typed_wrong_twice(make_board: Callable[..., LabBoard], desk: Desk) -> None:
    board = make_board(accounts=True)
    desk.trust(board)
    answers = iter(["wrong", "wrong again", "raspberry"])
    with link_to(board, questions=Questions(ask_secret=lambda prompt: next(answers))) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
        link.close()
        assert link.run(["echo", "again"], timeout_s=30).text == "again"


@pytest.fixture
def agent(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """``agent(key)`` hands a key to an agent of its own."""
    if not shutil.which("ssh-agent"):
        pytest.skip("needs ssh-agent: apt-get install openssh-client")
    said = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"SSH_AUTH_SOCK=([^;]+);.*SSH_AGENT_PID=(\d+);", said, re.DOTALL)
    assert found is not None
    monkeypatch.setenv("SSH_AUTH_SOCK", found[1])
    yield lambda key: subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)  # type: ignore[func-returns-value]
    os.kill(int(found[2]), 15)


def test_the_agent(lab_board: LabBoard, desk: Desk, agent: Callable[[Path], None]) -> None:
    desk.trust(lab_board)
    agent(lab_board.key)
    with link_to(lab_board) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_an_encrypted_key_that_the_agent_holds_needs_no_passphrase(
    lab_board: LabBoard, desk: Desk, agent: Callable[[Path], None], tmp_path: Path
) -> None:
    key = make_key(desk.home / "mine")
    lab_board.authorize(key)
    desk.trust(lab_board)
    agent(key)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], check=True, capture_output=True
    )
    Path(f"{key}.pub").unlink()  # the public part is in the file itself
    with link_to(lab_board, key=str(key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_too_many_keys_in_the_agent(
    lab_board: LabBoard, desk: Desk, agent: Callable[[Path], None], tmp_path: Path
) -> None:
    """sshd hangs up after six; a key that is named has its turn before them."""
    desk.trust(lab_board)
    for number in range(8):
        agent(make_key(tmp_path / f"junk{number}"))
    agent(lab_board.key)
    error = refused(link_to(lab_board), "too_many_keys")
    assert "hung up after" in error.message
    assert "--key" in error.hint
    with link_to(lab_board, key=str(lab_board.key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
    (desk.home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {lab_board.key}\n")
    with link_to(lab_board) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_identities_only_keeps_the_agent_out(
    lab_board: LabBoard, desk: Desk, agent: Callable[[Path], None], tmp_path: Path
) -> None:
    desk.trust(lab_board)
    agent(lab_board.key)
    wrong = make_key(desk.home / "wrong")
    (desk.home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {wrong}\n  IdentitiesOnly yes\n")
    error = refused(link_to(lab_board), "auth_refused")
    assert len(error.details["tried"]) == 1


OLD = "KexAlgorithms diffie-hellman-group14-sha1\n"


def test_an_sshd_that_is_too_old(make_board: Callable[..., LabBoard], desk: Desk) -> None:
    board = make_board(Setup(config=OLD))
    desk.trust(board)
    error = refused(link_to(board, key=str(board.key)), "sshd_too_old")
    assert "OpenSSH" in error.message
    assert "upgrade" in error.hint


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_host_keys_of_every_type(make_board: Callable[..., LabBoard], desk: Desk, kind: str) -> None:
    board = make_board(Setup(host_key_type=kind))
    desk.trust(board)
    with link_to(board, key=str(board.key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_the_known_one_of_several_host_keys_is_asked_for(
    make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    board = make_board(Setup(host_key_type="rsa", config=f"HostKey {other}\n"))
    desk.trust(board)
    with link_to(board, key=str(board.key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_a_board_that_was_set_up_anew(lab_board: LabBoard, desk: Desk) -> None:
    desk.trust(lab_board)
    before = desk.known_hosts.read_bytes()
    lab_board.new_host_key()
    error = refused(link_to(lab_board, key=str(lab_board.key), questions=Questions(accept_new=True)), "hostkey_changed")
    assert f"ssh-keygen -R '[{lab_board.host}]:{lab_board.port}' -f {desk.known_hosts}" in error.hint
    assert desk.known_hosts.read_bytes() == before


def test_a_new_board_is_asked_about_once(lab_board: LabBoard, desk: Desk) -> None:
    shown: list[NewHostKey] = []
    questions = Questions(confirm_host_key=lambda new: not shown.append(new))  # type: ignore[func-returns-value]
    with link_to(lab_board, key=str(lab_board.key), questions=questions) as link:
        link.run(["true"], timeout_s=30)
        link.close()
        link.run(["true"], timeout_s=30)
    assert len(shown) == 1
    assert desk.known_hosts.read_text() == lab_board.host_key_line()
    refused(link_to(lab_board, key="/none"), "auth_refused")  # and the next link knows it


def test_configured_strictness(lab_board: LabBoard, desk: Desk) -> None:
    (desk.home / ".ssh" / "config").write_text("Host *\n  StrictHostKeyChecking yes\n")
    yes = Questions(accept_new=True, confirm_host_key=lambda new: True)
    refused(link_to(lab_board, key=str(lab_board.key), questions=yes), "hostkey_unknown")
    (desk.home / ".ssh" / "config").write_text(
        "Host *\n  StrictHostKeyChecking accept-new\n  UserKnownHostsFile ~/mine\n"
    )
    with link_to(lab_board, key=str(lab_board.key)) as link:
        link.run(["true"], timeout_s=30)
    assert (desk.home / "mine").read_text() == lab_board.host_key_line()
    assert not desk.known_hosts.exists()


def test_through_a_jump_host(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    """Two of them; each with a key and a host key of its own."""
    gate, middle, board = make_board(), make_board(), make_board()
    for one in (gate, middle, board):
        desk.trust(one)
    (desk.home / ".ssh" / "config").write_text(
        "".join(
            f"Host {name}\n  HostName {one.host}\n  Port {one.port}\n  User {one.user}\n  IdentityFile {one.key}\n"
            f"  IdentitiesOnly yes\n"
            for name, one in (("gate", gate), ("middle", middle), ("inner", board))
        )
        + "Match originalhost inner\n  ProxyJump gate,middle\n"
    )
    (tmp_path / "a").write_bytes(os.urandom(3_000_000))
    with SshLink(Board("b", "inner"), questions=Questions(), retry_for_s=5) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
        link.put(tmp_path / "a", "a")
        assert (board.home / "a").read_bytes() == (tmp_path / "a").read_bytes()
        middle.restart()
        assert link.exists("a")  # mended, through all of them
    gate.stop()
    refused(SshLink(Board("b", "inner"), questions=Questions(), retry_for_s=0), "connection_refused")


def test_a_jump_host_that_does_not_pass_on(make_board: Callable[..., LabBoard], desk: Desk) -> None:
    gate, board = make_board(Setup(config="AllowTcpForwarding no\n")), make_board()
    desk.trust(gate)
    desk.trust(board)
    (desk.home / ".ssh" / "config").write_text(
        f"Host *\n  IdentityFile {gate.key}\nMatch originalhost inner\n  ProxyJump {gate.user}@{gate.host}:{gate.port}\n"
        f"  HostName {board.host}\n  Port {board.port}\n"
    )
    error = refused(SshLink(Board("b", "inner"), questions=Questions(), retry_for_s=0), "jump_refused")
    assert "AllowTcpForwarding" in error.hint


def test_through_a_proxy_command(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    gate, board = make_board(), make_board()
    desk.trust(board)
    words = f"-F none -i {gate.key} -o UserKnownHostsFile={gate.known_hosts} -p {gate.port} {gate.user}@{gate.host}"
    (desk.home / ".ssh" / "config").write_text(
        f"Host inner\n  HostName {board.host}\n  ProxyCommand ssh {words} -W %h:%p\n"
    )
    (tmp_path / "a").write_bytes(os.urandom(1_000_000))
    with link_to(board, host="inner", key=str(board.key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
        link.put(tmp_path / "a", "a")
    assert (board.home / "a").read_bytes() == (tmp_path / "a").read_bytes()


def test_a_key_and_a_password(make_board: Callable[..., LabBoard], desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wants both."""
    board = make_board(Setup(config="AuthenticationMethods publickey,password\n"), accounts=True)
    desk.trust(board)
    refused(link_to(board, key=str(board.key)), "auth_refused")
    monkeypatch.setenv("EDGEKIT_PASSWORD", "raspberry")
    with link_to(board, key=str(board.key)) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"


def test_a_server_that_gives_one_session(make_board: Callable[..., LabBoard], desk: Desk) -> None:
    board = make_board(Setup(config="MaxSessions 1\n"))
    desk.trust(board)
    with link_to(board, key=str(board.key)) as link:
        link.home()
        assert "MaxSessions" in refused(link, "session_refused").hint


def test_nobody_listens(desk: Desk) -> None:
    board = Board("b", "127.0.0.1", port=free_port())
    assert "no sshd listens" in refused(SshLink(board, questions=Questions()), "connection_refused").message


def test_no_such_host(desk: Desk) -> None:
    refused(SshLink(Board("b", "no-such-host.invalid"), questions=Questions()), "host_unknown")


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["another program", "hangs up"])
def test_a_port_that_speaks_something_else(desk: Desk, greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.link.ssh.HANG_UP_ATTEMPTS", 2)
    came: list[int] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            came.append(1)
            with connection:
                connection.sendall(greeting)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        board = Board("b", "127.0.0.1", port=listener.getsockname()[1])
        refused(SshLink(board, questions=Questions()), "no_ssh_server")
        assert len(came) == 2  # an sshd with too many at its door hangs up, too: asked twice
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_many_who_come_at_once(make_board: Callable[..., LabBoard], desk: Desk) -> None:
    """An sshd as it comes (MaxStartups 10:30:100) hangs up on some of forty."""
    board = make_board(Setup(config="MaxStartups 5:50:20\n"))
    desk.trust(board)
    done: list[str] = []

    def work() -> None:
        with link_to(board, key=str(board.key)) as link:
            done.append(link.run(["echo", "in"], timeout_s=30).text)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == ["in"] * 16
