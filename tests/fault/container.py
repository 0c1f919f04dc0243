"""Containers without a daemon: an image's archive, unpacked, and its programs in namespaces.

As orchestrators run them that trust nobody: the root is read-only, a volume and a tmpfs are all
that may be written to, the user is the image's, no privilege can be gained, and the program is the
first process of its own. The containers of a `Network` share its loopback, nothing of the host's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.waiting import wait_until

TOOLS: Final = ("unshare", "nsenter", "setpriv", "ip")
# $1: root, $2: what lies in the volume, $3: working directory, $4 and $5: user and group, $6: how
# many variables come next; then the program.
_RUN: Final = """
set -e
root=$1 volume=$2 place=$3 user=$4 group=$5 count=$6
shift 6
mount --make-rprivate /
mount --bind $root $root
mount -o remount,bind,ro $root
mount --bind $volume $root/data
mount -t tmpfs tmpfs $root/tmp
mount -t proc proc $root/proc
mount -t tmpfs -o mode=755 tmpfs $root/dev
for name in null zero full random urandom; do
  touch $root/dev/$name
  mount --bind /dev/$name $root/dev/$name
done
# The variables are the image's: what is run from outside is named by its place.
exec env -i "${@:1:count}" $(command -v setpriv) --no-new-privs \\
  $(command -v unshare) --root=$root --wd=$place --setgid=$group --setuid=$user "${@:count+1}"
"""


class NoContainerError(Exception):
    """No container can be here; the text says why."""


def check_tools() -> None:
    """
    Raises:
        NoContainerError: a tool or a right is missing.
    """
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        raise NoContainerError(f"not here: {', '.join(missing)}")
    if os.geteuid():
        raise NoContainerError("makes namespaces: needs root")


class Image:
    """What an OCI archive of one image holds.

    Attributes:
        root: its files.
        config: what it says of user, program and variables.
    """

    def __init__(self, archive: Path, folder: Path) -> None:
        """Unpacks it into `folder`, which is new."""
        parts = folder / "parts"
        with tarfile.open(archive) as packed:
            packed.extractall(parts, filter="data")

        def blob(digest: str) -> Path:
            return parts / "blobs" / digest.replace(":", "/")

        (described,) = json.loads((parts / "index.json").read_text())["manifests"]
        manifest = json.loads(blob(described["digest"]).read_text())
        self.config: dict[str, Any] = json.loads(blob(manifest["config"]["digest"]).read_text())[
            "config"
        ]
        self.root = folder / "root"
        self.root.mkdir()
        for layer in manifest["layers"]:
            # By the program: owners and modes stay as they are.
            subprocess.run(["tar", "-xf", blob(layer["digest"]), "-C", self.root], check=True)
        shutil.rmtree(parts)

    @property
    def user(self) -> tuple[int, int]:
        """Its user and group."""
        user, group = self.config["User"].split(":")
        return int(user), int(group)


class Network:
    """A loopback that its containers share."""

    def __enter__(self) -> Network:
        line = "ip link set lo up && exec sleep infinity"
        self._holder = subprocess.Popen(["unshare", "--net", "sh", "-c", line])
        wait_until(self._is_up, what="a network")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.wait()

    def _is_up(self) -> bool:
        if self._holder.poll() is not None:
            raise NoContainerError("no network namespace can be made")
        return Path(f"/proc/{self._holder.pid}/comm").read_text() == "sleep\n"

    @property
    def words(self) -> list[str]:
        """What runs a program in it."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net"]


class Container:
    """One program of an image, from its start to its end."""

    def __init__(
        self,
        image: Image,
        network: Network,
        volume: Path,
        *,
        command: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        Args:
            image: whose program runs.
            network: where.
            volume: the folder that is its /data; made where it is not there.
            command: instead of the image's own.
            variables: beside the image's own.
        """
        if not volume.exists():
            volume.mkdir(mode=0o700)
            os.chown(volume, *image.user)
        self._image = image
        own = dict(line.split("=", 1) for line in image.config["Env"])
        self._variables = {**own, **(variables or {})}
        self._log = volume.with_name(f"{volume.name}.log")
        self._holder = self._started(network, volume, [*(command or image.config["Cmd"])])

    def _started(
        self, network: Network, volume: Path, command: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        own = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        place = [self._image.root, volume, self._image.config["WorkingDir"], *self._image.user]
        given = [f"{name}={value}" for name, value in self._variables.items()]
        program = [*self._image.config["Entrypoint"], *command]
        words = [*network.words, *own, "bash", "-c", _RUN, "run", *place, len(given), *given]
        words += program
        with self._log.open("ab") as log:
            return subprocess.Popen(
                list(map(str, words)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.wait()

    @property
    def said(self) -> str:
        """What it wrote to its streams, also before its last start."""
        return self._log.read_text(errors="replace")

    @property
    def first(self) -> int:
        """The host's number of its program's process.

        Raises:
            AssertionError: it has ended.
        """
        assert self._holder.poll() is None, self.said[-2000:]
        path = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        return int(wait_until(path.read_text, what="the program's process").split()[0])

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs another program in it, as its user, to its end.

        Raises:
            AssertionError: it failed, and `check` is set; with what it said.
        """
        user, group = self._image.user
        place = ["--mount", "--pid", "--ipc", "--uts", "--net", "--root", "--wd"]
        given = [f"{name}={value}" for name, value in self._variables.items()]
        who = [f"--setuid={user}", f"--setgid={group}"]
        first = ["nsenter", "-t", str(self.first), *place, *who]
        # What looks for the program has the image's variables, and stands outside of it.
        enter = [str(shutil.which("env")), "-i", *given, str(shutil.which(first[0])), *first[1:]]
        done = subprocess.run([*enter, *words], capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def stop(self, grace_s: float) -> int:
        """Sends SIGTERM, and returns the exit code.

        Raises:
            AssertionError: it runs on after the time that it has.
        """
        os.kill(self.first, signal.SIGTERM)
        try:
            return self._holder.wait(grace_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"runs on after {grace_s} s: {self.said[-2000:]}") from error
