"""A machine whose first process is systemd: a Debian of its own, in namespaces of this one.

Nothing of the host is in it but the kernel: its own processes, network, host name and files. What
it writes lies in an upper layer, so the root below it serves every run, and a machine that was
switched off finds its files again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.waiting import wait_until

_RELEASE: Final = "bookworm"
_PACKAGES: Final = ("systemd-sysv", "dbus", "libstdc++6", "python3", "ca-certificates")
# What the machine needs on the host.
TOOLS: Final = ("unshare", "nsenter", "mmdebstrap")
# Mounts what systemd expects to find, and becomes it. $1: lower root, $2: folder of this machine.
_BOOT: Final = """
set -e
root=$2/root
mkdir -p $root $2/upper $2/work
mount --make-rprivate /
mount -t overlay -o lowerdir=$1,upperdir=$2/upper,workdir=$2/work overlay $root
mount -t proc proc $root/proc
mount -t sysfs -o ro sysfs $root/sys
mount -t tmpfs -o mode=755 tmpfs $root/sys/fs/cgroup
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount -t tmpfs -o mode=755,nosuid tmpfs $root/dev
for name in null zero full random urandom tty; do
  touch $root/dev/$name
  mount --bind /dev/$name $root/dev/$name
done
mkdir $root/dev/pts $root/dev/shm $root/dev/old
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
mount -t tmpfs tmpfs $root/dev/shm
mount -t tmpfs -o mode=755 tmpfs $root/run
ip link set lo up
cd $root
pivot_root . dev/old
exec chroot . /bin/sh -c 'umount -l /dev/old && rmdir /dev/old && exec env -i container=other \
  PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=journal'
"""
_START_S: Final = 60.0
_STOP_S: Final = 120.0


# Of what runs in the machine.
_ENVIRONMENT: Final = {"PATH": "/opt/ledgermq/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


class NoMachineError(Exception):
    """No such machine can be here; the text says why."""


def check_tools() -> None:
    """
    Raises:
        NoMachineError: a tool or a right is missing.
    """
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        raise NoMachineError(f"needs Debian's {', '.join(TOOLS)}; not here: {', '.join(missing)}")
    if os.geteuid():
        raise NoMachineError("makes namespaces and a root file system: needs root")


def make_root(root: Path) -> None:
    """Makes the Debian below all machines, where it is not there yet; some minutes.

    Raises:
        NoMachineError: its packages cannot be had.
    """
    if (root / "etc/os-release").exists():
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    half = root.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    words = ["--quiet", "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
    done = subprocess.run(["mmdebstrap", *words, _RELEASE, half], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise NoMachineError(f"mmdebstrap: {done.stderr.strip()[-500:]}")
    half.rename(root)


def _words(first: int, line: str) -> list[str]:
    return ["nsenter", "-t", str(first), "--all", "sh", "-c", line]


class SystemdMachine:
    """One machine, switched on and off.

    Attributes:
        upper: what differs from the root below; may be written to while the machine is off.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        """It is off; `root` is that of `make_root`."""
        self.upper = folder / "upper"
        self.upper.mkdir(parents=True)
        self._root, self._folder = root, folder
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SystemdMachine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._holder is not None:
            self._holder.send_signal(signal.SIGKILL)
            self._holder.wait()

    def switch_on(self) -> None:
        """Returns when systemd says that all is started.

        Raises:
            NoMachineError: systemd does not run.
        """
        own = ["--pid", "--mount", "--ipc", "--uts", "--net", "--cgroup", "--fork", "--kill-child"]
        words = ["unshare", *own, "sh", "-c", _BOOT, "boot", self._root, self._folder]
        self._holder = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL)
        wait_until(self._is_on, what="systemd", deadline_s=_START_S)

    def _is_on(self) -> bool:
        assert self._holder is not None
        if (code := self._holder.poll()) is not None:
            raise NoMachineError(f"systemd ended with {code}")
        said = self.run("systemctl is-system-running", check=False)
        return said.strip() in ("running", "degraded")

    def switch_off(self) -> None:
        """As by its button: systemd stops all units in order."""
        assert self._holder is not None
        self.run("systemctl poweroff", check=False)
        wait_until(
            lambda: self._holder is None or self._holder.poll() is not None,
            what="the machine's end",
            deadline_s=_STOP_S,
        )
        self._holder = None

    def run(self, line: str, *, check: bool = True) -> str:
        """Runs a line of a shell in the machine, as root, and returns what it printed.

        Raises:
            AssertionError: it failed, and `check` is set; with what it said.
        """
        first = self._first()
        if first is None:
            return ""
        done = subprocess.run(
            _words(first, line), capture_output=True, text=True, env=_ENVIRONMENT, timeout=300
        )
        assert not check or done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def begin(self, line: str) -> subprocess.Popen[str]:
        """Begins a line of a shell in the machine; its three streams are the caller's."""
        first = self._first()
        assert first is not None
        pipe = subprocess.PIPE
        return subprocess.Popen(
            _words(first, line), stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=_ENVIRONMENT
        )

    def _first(self) -> int | None:
        """The host's number of systemd's process; None until there is one."""
        assert self._holder is not None
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        for child in children.read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        return None

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Returns properties of a unit."""
        said = self.run(shlex.join(["systemctl", "show", unit, f"--property={','.join(names)}"]))
        return dict(line.split("=", 1) for line in said.splitlines())
