"""A world of its own for a run: processes, mounts and networks that end with its first process.

The run is the first process of a PID namespace. However it ends, by SIGKILL too, the kernel kills
all processes in it, and with them go the mounts, the disks and the networks. Two runs side by side
do not see each other.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# It ends with who started it, and its child with it.
_MORTAL = ("setpriv", "--pdeathsig", "KILL")
_WORLD = (
    *_MORTAL,
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_TOOLS = {"setpriv": "util-linux", "unshare": "util-linux", "mount": "util-linux", "ip": "iproute2"}
TUN_DEVICE = Path("/dev/net/tun")


def find_obstacle() -> str | None:
    """Says why no hosts can be made on this machine; None when nothing speaks against it."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"the command {tool} is not there (package {package})"
    if os.geteuid() != 0:
        return "only root may make network namespaces; run as root"
    if not TUN_DEVICE.exists():
        return f"the kernel has no {TUN_DEVICE}"
    done = subprocess.run([*_WORLD, "true"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        return f"this machine lets nobody make namespaces: {done.stderr.strip()}"
    return None


def isolated(words: list[str]) -> list[str]:
    """Returns a command that runs a command in such a world; it ends with the same exit code.

    Of the signals it minds SIGKILL only, which ends all, as the end of its parent does.
    """
    return [*_WORLD, *words]
