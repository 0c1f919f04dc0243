"""Makes what is released, in `dist/`: wheels and sources of the broker and of the client.

    .venv/bin/python packaging/wheels.py [--only KIND[,KIND]]

    sources    of the broker; all that follows is made of them, so they are known to be whole
    pure       a wheel for every machine; the loops run from their sources
    native     a wheel for Python's stable interface and this processor: for 3.11 and all later
    cross      the same for the other of x86-64 and aarch64, where a cross compiler is here
    client     wheel and sources of the client alone

The dates in the files are those of the last commit: the same commit gives the same bytes.
`packaging/try_wheels.py` installs them and sends the first message.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
KINDS: Final = ("sources", "pure", "native", "cross", "client")
# The other processor, by this one's name; it is the name in the compiler's command, too.
OTHER: Final = {"x86_64": "aarch64", "aarch64": "x86_64"}
# Both have the same sizes and byte order, so headers of one serve the other.
CROSS_COMPILER: Final = "{}-linux-gnu-gcc"


def run(words: list[str], cwd: Path, **variables: str) -> str:
    """Runs a program to its end and returns what it printed.

    Raises:
        SystemExit: it failed; what it said is shown.
    """
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(words)} failed in {cwd}")
    return done.stdout


def commit_time() -> str:
    """Seconds of the epoch; of the last commit, or none where there is no repository."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "1577836800"


def make_sources(tree: Path) -> Path:
    """Packs the sources of a tree into `dist/`; returns the file."""
    program = f"import setuptools.build_meta as b; print(b.build_sdist({str(DIST)!r}))"
    said = run([sys.executable, "-c", program], tree, LEDGERMQ_PURE="1")
    sources = DIST / said.split()[-1]
    pack_again(sources, int(os.environ["SOURCE_DATE_EPOCH"]))
    return sources


def pack_again(sources: Path, epoch_s: int) -> None:
    """Packs sources so that the same files give the same bytes: one date, one owner, one order."""

    def neutral(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = epoch_s
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    with tempfile.TemporaryDirectory(prefix="ledgermq-sources-") as name:
        top = unpack(sources, Path(name))
        list_sources(top)
        with (
            open(sources, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch_s) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            # `add` takes the files of a folder in the order of their names.
            archive.add(top, top.name, filter=neutral)


def list_sources(top: Path) -> None:
    """Has the list of the sources name what is there.

    setuptools adds to the list of its last run, so it tells of that, too.
    """
    names = sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
    for listed in top.glob("*.egg-info/SOURCES.txt"):
        listed.write_text("\n".join(names) + "\n")


def unpack(sources: Path, folder: Path) -> Path:
    """Unpacks sources; returns the folder that is in them."""
    with tarfile.open(sources) as archive:
        archive.extractall(folder, filter="data")
    return folder / sources.name.removesuffix(".tar.gz")


def make_wheel(tree: Path, folder: Path, **variables: str) -> Path:
    """Builds a wheel of a tree; returns the file."""
    folder.mkdir()
    words = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    run([sys.executable, *words, "--wheel-dir", str(folder), str(tree)], tree, **variables)
    (wheel,) = folder.glob("*.whl")
    return wheel


def keep(wheel: Path) -> None:
    """Puts a finished wheel into `dist/`."""
    shutil.copy(wheel, DIST)
    print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB", flush=True)


def make_native(tree: Path, folder: Path, **variables: str) -> None:
    """A wheel with a compiled kernel, named by the oldest C library that it runs with."""
    wheel = make_wheel(tree, folder, LEDGERMQ_ABI3="1", **variables)
    words = ["-m", "auditwheel", "repair", "--wheel-dir", str(folder / "named"), str(wheel)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run([sys.executable, *words], folder, PATH=path)
    (named,) = (folder / "named").glob("*.whl")
    keep(named)


def make_cross(tree: Path, folder: Path) -> None:
    """The same for the other processor."""
    other = OTHER.get(platform.machine())
    compiler = other and shutil.which(CROSS_COMPILER.format(other))
    if not compiler:
        wanted = CROSS_COMPILER.format(other or "aarch64")
        print(f"no wheel for {other}: {wanted} is not here (Debian: gcc-{other}-linux-gnu)")
        return
    make_native(
        tree,
        folder,
        CC=compiler,
        LDSHARED=f"{compiler} -shared",
        _PYTHON_HOST_PLATFORM=f"linux-{other}",
    )


def make_client(folder: Path) -> None:
    """Wheel and sources of the client, from a tree that looks like its sources."""
    tree = folder / "client"
    shutil.copytree(
        ROOT / "packaging/client", tree, ignore=shutil.ignore_patterns("build", "*.egg-info")
    )
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "ledgermq", tree / "ledgermq", ignore=unwanted)
    sources = make_sources(tree)
    print(f"{sources.name}  {sources.stat().st_size / 1e6:.1f} MB", flush=True)
    keep(make_wheel(unpack(sources, folder / "unpacked"), folder / "wheel"))


def main() -> int:
    """Makes what is asked for."""
    parser = argparse.ArgumentParser(description="Makes wheels and sources in dist/.")
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND[,KIND]")
    kinds = parser.parse_args().only.split(",")
    if not {*kinds} <= {*KINDS}:
        parser.error(f"--only {','.join(kinds)}: kinds are {', '.join(KINDS)}")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    os.environ["SOURCE_DATE_EPOCH"] = commit_time()
    with tempfile.TemporaryDirectory(prefix="ledgermq-wheels-") as name:
        folder = Path(name)
        sources = make_sources(ROOT)
        print(f"{sources.name}  {sources.stat().st_size / 1e6:.1f} MB", flush=True)
        tree = unpack(sources, folder / "sources")
        if "pure" in kinds:
            keep(make_wheel(tree, folder / "pure", LEDGERMQ_PURE="1"))
        shutil.rmtree(tree / "build", ignore_errors=True)
        if "native" in kinds:
            if shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]):
                make_native(tree, folder / "native")
            else:
                print("no wheel with a compiled kernel: no C compiler is here (Debian: gcc)")
        shutil.rmtree(tree / "build", ignore_errors=True)
        if "cross" in kinds:
            make_cross(tree, folder / "cross")
        if "client" in kinds:
            (folder / "of-client").mkdir()
            make_client(folder / "of-client")
    return 0


if __name__ == "__main__":
    sys.exit(main())
