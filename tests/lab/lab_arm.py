"""A board made of an aarch64 Debian userland whose programs run under user-mode emulation: real wheels, a real ARM Python, no ARM time.

What it answers is what an ARM board answers; how long it takes says nothing. It needs root, ``qemu-aarch64-static`` and ``mmdebstrap``,
and a kernel (6.7 or later) in which a user namespace may have program formats of its own: nothing of this machine's is changed.

The userland is unpacked once into the user's cache from Debian's packages, without running any of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from edgekit.link.base import Completed
from edgekit.link.local import LocalLink

QEMU = "/usr/bin/qemu-aarch64-static"
PACKAGES = "python3,libstdc++6,dash,bash,coreutils,util-linux,base-files,libc-bin,grep,sed,findutils,procps"
SUITE = "bookworm"
UNPACK_TIMEOUT_S = 240
_FORMAT = (
    r":qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:" + QEMU + ":OCF"
)
_HOLD = """\
set -e
mount --make-rprivate /
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' '{format}' >/proc/sys/fs/binfmt_misc/register
for name in proc dev; do mount --rbind /$name '{root}'/$name; done
mount -t tmpfs tmpfs '{root}/tmp'
mount --bind '{home}' '{root}/home/pi'
echo ready
exec sleep infinity
"""


def why_not() -> str:
    """Why there can be no such board here; "" when there can."""
    if os.geteuid() != 0:
        return "an emulated aarch64 userland needs root"
    if not Path(QEMU).exists() or not shutil.which("mmdebstrap"):
        return "needs emulation and Debian's packages: apt-get install qemu-user-static mmdebstrap"
    probe = "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && [ -w /proc/sys/fs/binfmt_misc/register ]"
    if subprocess.run(["unshare", "-Um", "--map-root-user", "sh", "-c", probe], capture_output=True).returncode:
        return "this kernel gives user namespaces no program formats of their own (6.7 or later does)"
    return ""


def userland() -> Path:
    """The unpacked userland, made now if it is not there. Raises RuntimeError when Debian's packages cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit" / "lab"
    root = cache / f"debian-{SUITE}-arm64-1"
    if root.is_dir():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".unpack-", dir=cache))
    command = [
        *(
            "mmdebstrap",
            "--mode=root",
            "--architectures=arm64",
            "--variant=extract",
            f"--include={PACKAGES}",
            "--quiet",
        ),
        *("--aptopt=Acquire::Languages none", "--aptopt=Apt::Install-Recommends false", "--skip=check/qemu"),
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")),
        *(SUITE, str(beside)),  # from the mirror that mmdebstrap knows
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=UNPACK_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"the arm64 userland could not be unpacked: {done.stderr.strip().splitlines()[-1:]}")
        for name in ("proc", "sys", "dev", "tmp", "home/pi"):
            (beside / name).mkdir(parents=True, exist_ok=True)
        (beside / "etc/passwd").write_text("pi:x:0:0:pi:/home/pi:/bin/sh\n")
        (beside / "etc/group").write_text("pi:x:0:\n")
        beside.chmod(0o755)
        os.rename(beside, root)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("the arm64 userland was not unpacked in time") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return root


class ArmLink(LocalLink):
    """The board; files are reached from outside, programs run inside. ``close`` ends everything that runs there."""

    def __init__(self, root: Path, home: Path) -> None:
        self._root, self._home = root, home
        script = _HOLD.format(format=_FORMAT, root=root, home=home)
        self._holder = subprocess.Popen(
            ["unshare", "-Um", "--map-root-user", "--pid", "--fork", "--kill-child", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"the emulated board did not start: {self._holder.stderr.read()}")
        self._inside = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()[0]

    @property
    def name(self) -> str:
        return "emulated"

    def home(self) -> str:
        return "/home/pi"

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"", idempotent: bool = False) -> Completed:
        """In the namespaces of the holder, in the userland."""
        variables = ("HOME=/home/pi", "PATH=/usr/local/bin:/usr/bin:/bin", "TMPDIR=/tmp")
        enter = ["nsenter", "-t", self._inside, "-U", "-m", "chroot", str(self._root), "/usr/bin/env", "-i", *variables]
        done = super().run([*enter, *argv], timeout_s=timeout_s, stdin=stdin, idempotent=idempotent)
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{self._inside}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _path(self, remote: str) -> Path:
        path = self.absolute(remote)
        if path.startswith("/home/pi"):
            return Path(f"{self._home}{path[len('/home/pi') :]}")
        return Path(path) if path.startswith("/proc/") else Path(f"{self._root}{path}")
