"""Class paths and compiled programs of the suite, kept in `tests/interop/.build`.

Everything is made from sources in this directory and packages from the public registries, through
their ordinary clients (mvn, go, npm, pip), once; a later run finds it in place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.interop.closed import java_options

HERE: Final = Path(__file__).resolve().parent
BUILD_DIR: Final = Path(os.environ.get("INTEROP_BUILD_DIR", HERE / ".build"))

# Packages by which brokers of 4.9 and DLedger unmap files, through reflection. On Java 17
# a member without them that has to remove a file fails once, and then waits for ever with its state
# locked.
OPENED: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang")
)

_BUILD_SECONDS: Final = 900
# An orderly consumer looks for its queue locks 1 s after its start and then each 20 s, a setting of
# stock clients. A JVM that has found no queue by then would consume nothing for those 20 s.
_LOCK_INTERVAL_MS: Final = 2000


class BuildError(RuntimeError):
    """A build tool is missing or failed; the text ends with what it printed."""


def run_tool(command: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a build tool to its end and return its output.

    Raises:
        BuildError: it is not installed, failed, or took too long.
    """
    if shutil.which(command[0]) is None:
        raise BuildError(f"{command[0]} is not installed; the interop suite needs it")
    done = subprocess.run(
        list(command),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed in {cwd}:\n{done.stdout[-4000:]}")
    return done.stdout


@contextmanager
def build_lock(name: str) -> Iterator[Path]:
    """Yield the directory of one build while no other run builds the same thing."""
    directory = BUILD_DIR / name
    directory.mkdir(parents=True, exist_ok=True)
    with (BUILD_DIR / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def is_fresh(stamp: Path, sources: Sequence[Path], extra: str = "") -> bool:
    """Tell whether `stamp` holds the digest of these sources; write_stamp makes it so."""
    return stamp.exists() and stamp.read_text() == _digest(sources, extra)


def write_stamp(stamp: Path, sources: Sequence[Path], extra: str = "") -> None:
    """Note that a build of these sources is complete."""
    stamp.write_text(_digest(sources, extra))


def maven_class_path(pom: Path, version: str) -> str:
    """Return the class path that Maven resolves for a pom at one RocketMQ version."""
    with build_lock(f"{pom.stem}-{version}") as directory:
        listing, stamp = directory / "classpath", directory / "stamp"
        if not (is_fresh(stamp, [pom], version) and _all_exist(listing)):
            run_tool(
                [
                    "mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath",
                    f"-Drocketmq.version={version}", f"-Dmdep.outputFile={listing}",
                ],
                cwd=directory,
            )  # fmt: skip
            write_stamp(stamp, [pom], version)
        return listing.read_text().strip()


def _all_exist(listing: Path) -> bool:
    return listing.exists() and all(
        Path(jar).exists() for jar in listing.read_text().strip().split(os.pathsep)
    )


def _digest(sources: Sequence[Path], extra: str) -> str:
    digest = hashlib.sha256(extra.encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def java_program(
    version: str, main_class: str = "StockClient", *, pom: str = "client-pom.xml"
) -> list[str]:
    """Compile one of our Java programs against a release; returns the command to run it."""
    source = HERE / "java" / f"{main_class}.java"
    class_path = maven_class_path(HERE / "java" / pom, version)
    with build_lock(f"java-{main_class}-{version}") as directory:
        stamp = directory / "stamp"
        if not is_fresh(stamp, [source], class_path):
            run_tool(
                ["javac", "--release", "17", "-cp", class_path, "-d", str(directory), str(source)],
                cwd=directory,
            )
            write_stamp(stamp, [source], class_path)
    return [
        "java", "-Xms64m", "-Xmx768m", f"-Duser.home={directory}", "-Dfile.encoding=UTF-8",
        *java_options(),
        f"-Drocketmq.client.rebalance.lockInterval={_LOCK_INTERVAL_MS}",
        "-cp", f"{directory}{os.pathsep}{class_path}", main_class,
    ]  # fmt: skip


def go_program(package: str = ".") -> list[str]:
    """Build one Go program; returns the command to run it."""
    folder = HERE / "go"
    sources = [folder / package / "main.go", folder / "go.mod", folder / "go.sum"]
    with build_lock("go") as directory:
        name = "stock-client" if package == "." else package
        binary, stamp = directory / name, directory / f"{name}.stamp"
        if not is_fresh(stamp, sources):
            run_tool(["go", "build", "-o", str(binary), f"./{package}"], cwd=folder)
            write_stamp(stamp, sources)
    return [str(binary)]


def node_program(script: str = "stock_client.js") -> list[str]:
    """Install ali-ons beside copies of the Node programs; returns the command to run one."""
    folder = HERE / "node"
    names = ("stock_client.js", "features.js", "package.json", "package-lock.json")
    sources = [folder / name for name in names]
    with build_lock("node") as directory:
        stamp = directory / "stamp"
        if not is_fresh(stamp, sources):
            for source in sources:
                shutil.copy(source, directory)
            run_tool(["npm", "ci", "--no-audit", "--no-fund"], cwd=directory)
            write_stamp(stamp, sources)
    return ["node", str(directory / script)]


def cpp_program(script: str = "stock_client.py") -> list[str]:
    """Install the C++ client's Python face into a directory of its own; returns the command."""
    program = HERE / "cpp" / script
    requirements = HERE / "cpp" / "requirements.txt"
    with build_lock("cpp") as directory:
        packages, stamp = directory / "packages", directory / "stamp"
        if not is_fresh(stamp, [requirements]):
            run_tool(
                [
                    sys.executable, "-m", "pip", "install", "--quiet", "--upgrade",
                    "--target", str(packages), "--requirement", str(requirements),
                ],
                cwd=directory,
            )  # fmt: skip
            write_stamp(stamp, [requirements])
    # The library writes its log below HOME.
    return [
        "env", f"PYTHONPATH={packages}", f"HOME={directory}", sys.executable, "-u", str(program),
    ]  # fmt: skip
