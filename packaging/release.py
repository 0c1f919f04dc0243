"""Every step of a release but the upload, in `dist/`; each is told with its result.

    .venv/bin/python packaging/release.py [--tag vX.Y.Z] [--only STEP[,STEP]]

    version    the package's version is that of the newest part of CHANGELOG.md, and of the tag
    tree       all that is released is committed
    files      wheels and sources, made twice: the same commit gives the same bytes
    metadata   what PyPI would refuse (twine), and what the stable interface lacks (abi3audit)
    trial      each wheel installed in a fresh environment, one message there and back
    contents   what an installation brings along, as CycloneDX (an SBOM)
    notes      the newest part of CHANGELOG.md
    image      the image from packages alone, where Debian's mmdebstrap and buildah are
    started    that image runs: the group of the compose file, its health, its stops
    units      the units for systemd, on a machine that boots it
    chart      rendered by helm, read by our own configuration and by Kubernetes' schemas
    compose    the compose file, read by Docker's own loader
    sums       SHA-256 of all files

A step that this machine cannot do is left out with the reason, which is no success: the last line
counts both. The exit code is 1 when a step failed. Tools come from PyPI into `build/release`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
TOOLS: Final = ROOT / "build" / "release"
# Versions are part of a release: a new tool must not change what one commit gives.
TOOL_PACKAGES: Final = (
    "twine==7.0.0", "abi3audit==0.0.26", "cyclonedx-bom==7.5.0", "kubernetes-validate==1.37.0",
    "pytest==9.2.0",
)  # fmt: skip
HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
COMPOSE_LOADER: Final = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
# What a program of the tests says first where it cannot run.
_LEFT_OUT: Final = "left out: "
SUMS: Final = "SHA256SUMS"
_PART = re.compile(r"^## (\S+)(.*)$", re.MULTILINE)


class ReleaseError(Exception):
    """A step failed; the text says why."""


class LeftOutError(Exception):
    """A step that this machine cannot do; the text says what is missing."""


def run(*words: object, cwd: Path = ROOT, **variables: str) -> str:
    """Runs a program to its end and returns what it printed.

    Raises:
        ReleaseError: it failed; with what it said.
    """
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, words))} said:\n{done.stdout.strip()}")
    return done.stdout


def own_version() -> str:
    """Returns `ledgermq.__version__` of this tree."""
    text = (ROOT / "ledgermq" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise ReleaseError("ledgermq/__init__.py has no __version__")
    return found[1]


def newest_part(changelog: str) -> tuple[str, str, str]:
    """Returns version, rest of its heading, and text of a changelog's newest part.

    Raises:
        ReleaseError: it has none.
    """
    headings = list(_PART.finditer(changelog))
    if not headings:
        raise ReleaseError("CHANGELOG.md has no heading of a version (`## X.Y.Z`)")
    end = headings[1].start() if len(headings) > 1 else len(changelog)
    text = changelog[headings[0].end() : end].strip()
    return headings[0][1], headings[0][2].strip(), text


def check_version(tag: str | None) -> str:
    """One version everywhere."""
    version = own_version()
    told, rest, _ = newest_part((ROOT / "CHANGELOG.md").read_text())
    if told != version:
        raise ReleaseError(f"the newest part of CHANGELOG.md is {told}, the package is {version}")
    if tag is None:
        return f"{version}{' ' + rest if rest else ''}; no tag to compare"
    if tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag}, the package is {version}: the tag must be v{version}"
        )
    if "not yet released" in rest:
        raise ReleaseError(f"CHANGELOG.md says of {version}: {rest}")
    return f"{version}, as the tag"


def check_tree() -> str:
    """Nothing is released that is not committed."""
    changed = run("git", "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError("not committed: " + ", ".join(line[3:] for line in changed[:5]))
    return run("git", "rev-parse", "--short=12", "HEAD").strip()


def sums_of(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.name != SUMS
    }


def make_files() -> str:
    """Wheels and sources, twice."""
    words = [sys.executable, ROOT / "packaging" / "wheels.py"]
    said = run(*words)
    first = sums_of(DIST)
    run(*words)
    second = sums_of(DIST)
    differing = sorted(name for name in first | second if first.get(name) != second.get(name))
    if differing:
        raise ReleaseError("not the same bytes when made again: " + ", ".join(differing))
    lacking = [line for line in said.splitlines() if line.startswith("no wheel")]
    return "; ".join([f"{len(first)} files, twice the same bytes", *lacking])


def tool(name: str) -> Path:
    """Returns a tool's program; all are installed when the first is asked for."""
    if not (TOOLS / "bin" / name).exists():
        run(sys.executable, "-m", "venv", TOOLS)
        words = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run(TOOLS / "bin" / "python", *words, *TOOL_PACKAGES)
    return TOOLS / "bin" / name


def check_metadata() -> str:
    """What an index of packages refuses, before it does."""
    files = [*sorted(DIST.glob("*.whl")), *sorted(DIST.glob("*.tar.gz"))]
    if not files:
        raise ReleaseError("dist/ holds no wheels: the step `files` comes first")
    run(tool("twine"), "check", "--strict", *files)
    stable = [path for path in files if "-abi3-" in path.name]
    for path in stable:
        run(tool("abi3audit"), "--strict", path)
    return f"{len(files)} files accepted, {len(stable)} within the stable interface"


def try_files() -> str:
    """As a user would install them."""
    return run(sys.executable, ROOT / "packaging" / "try_wheels.py").strip()


def wheel_of(name: str) -> Path:
    """Returns the first wheel of a distribution in `dist/`, the pure one first.

    Raises:
        ReleaseError: there is none.
    """
    found = sorted(DIST.glob(f"{name}-*.whl"), key=lambda path: "-none-any" not in path.name)
    if not found:
        raise ReleaseError(f"dist/ holds no wheel of {name}: the step `files` comes first")
    return found[0]


def list_contents() -> str:
    """A fresh installation of each distribution, listed."""
    shown = []
    for distribution in ("ledgermq", "ledgermq_client"):
        wheel = wheel_of(distribution)
        target = DIST / f"{distribution}-{own_version()}.cdx.json"
        with tempfile.TemporaryDirectory(prefix="ledgermq-contents-") as name:
            python = Path(name) / "bin" / "python"
            run(sys.executable, "-m", "venv", name)
            words = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
            run(python, *words, "-c", ROOT / "constraints.txt", wheel)
            run(python, "-m", "pip", "uninstall", "-q", "-y", "setuptools", "pip")
            words = ["environment", "--output-reproducible", "--of", "JSON", "-o", target]
            run(tool("cyclonedx-py"), *words, python)
        components = json.loads(target.read_text()).get("components", [])
        if not any(part["name"].replace("-", "_") == distribution for part in components):
            raise ReleaseError(f"{target.name} does not list {distribution} itself")
        shown.append(f"{target.name}: {len(components)} components")
    return "; ".join(shown)


def cut_notes() -> str:
    """The newest part of the changelog, as the release's text."""
    version, _, text = newest_part((ROOT / "CHANGELOG.md").read_text())
    if not text:
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}")
    (DIST / "NOTES.md").write_text(f"# LedgerMQ {version}\n\n{text}\n")
    return f"NOTES.md, {len(text.splitlines())} lines"


def make_image() -> str:
    """The image of packages; `docker build` needs a registry, this does not."""
    lacking = [name for name in ("mmdebstrap", "buildah") if shutil.which(name) is None]
    if lacking:
        raise LeftOutError(f"needs {' and '.join(lacking)} (Debian: apt install)")
    if os.geteuid():
        raise LeftOutError("makes a root file system: needs root")
    folder = ROOT / "build" / "image"
    said = run(ROOT / "packaging" / "image" / "from-packages.sh", folder)
    image = DIST / f"ledgermq-{own_version()}-image.tar.gz"
    shutil.copy(folder / "ledgermq.tar.gz", image)
    return ", ".join(said.splitlines()[-1:]) + f": {image.name}"


def program(module: str, *words: object) -> str:
    """Returns the lines of a program of the tests.

    Raises:
        ReleaseError: it failed.
        LeftOutError: it cannot run here.
    """
    said = run(sys.executable, "-m", module, *words).strip()
    if said.startswith(_LEFT_OUT):
        raise LeftOutError(said.removeprefix(_LEFT_OUT))
    return said


def start_image() -> str:
    """As containers of nobody's trust, without a daemon."""
    return program("tests.fault.started_image", ROOT / "build" / "image" / "ledgermq.tar.gz")


def start_units() -> str:
    """On a machine of namespaces."""
    return program("tests.fault.booted_units", ROOT / "build" / "image")


def go_program(name: str, module: str) -> Path:
    """Returns a program of Go's, from the path or built from its module.

    Raises:
        LeftOutError: there is none, and no Go.
    """
    if found := shutil.which(name):
        return Path(found)
    target = TOOLS / "go" / name
    if not target.exists():
        if shutil.which("go") is None:
            raise LeftOutError(f"needs {name}, or Go to build it: go install {module}")
        run("go", "install", module, GOBIN=str(TOOLS / "go"))
        built = TOOLS / "go" / module.partition("@")[0].rpartition("/")[2]
        built.rename(target)
    return target


def check_chart() -> str:
    """Its tests, with all that they need."""
    helm = go_program("helm", HELM)
    tool("kubernetes-validate")
    (packages,) = (TOOLS / "lib").glob("python3*/site-packages")
    words = ["-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "--noconftest"]
    path = f"{helm.parent}:{os.environ['PATH']}"
    tests = ROOT / "tests" / "unit" / "packaging" / "test_chart.py"
    said = run(sys.executable, *words, tests, PATH=path, PYTHONPATH=f"{ROOT}:{packages}")
    last = said.strip().splitlines()[-1]
    if "skipped" in last:
        raise ReleaseError(said)
    return last


def check_compose() -> str:
    """What `docker compose config` reads with."""
    loader = go_program("compose-spec", COMPOSE_LOADER)
    said = run(loader, "-format", "json", ROOT / "packaging" / "compose" / "compose.yaml")
    services = json.loads(said)["services"]
    unwatched = [name for name, service in services.items() if "healthcheck" not in service]
    if unwatched:
        raise ReleaseError(f"no health check: {', '.join(unwatched)}")
    return f"{len(services)} services, each with a health check"


def write_sums() -> str:
    """`sha256sum -c SHA256SUMS` in `dist/` checks them."""
    sums = sums_of(DIST)
    (DIST / SUMS).write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    run("sha256sum", "--quiet", "-c", SUMS, cwd=DIST)
    return f"{len(sums)} files"


def steps(tag: str | None) -> dict[str, Callable[[], str]]:
    """All of them, in order."""
    return {
        "version": lambda: check_version(tag),
        "tree": check_tree,
        "files": make_files,
        "metadata": check_metadata,
        "trial": try_files,
        "contents": list_contents,
        "notes": cut_notes,
        "image": make_image,
        "started": start_image,
        "units": start_units,
        "chart": check_chart,
        "compose": check_compose,
        "sums": write_sums,
    }


def main() -> int:
    """Does the steps that are asked for."""
    parser = argparse.ArgumentParser(description="Every step of a release but the upload.")
    parser.add_argument("--tag", metavar="vX.Y.Z")
    names = list(steps(None))
    parser.add_argument("--only", default=",".join(names), metavar="STEP[,STEP]")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if not {*chosen} <= {*names}:
        parser.error(f"--only {arguments.only}: steps are {', '.join(names)}")
    DIST.mkdir(exist_ok=True)
    failed, left_out = 0, 0
    for name, step in steps(arguments.tag).items():
        if name not in chosen:
            continue
        try:
            result = "ok        " + step()
        except LeftOutError as error:
            left_out += 1
            result = f"left out  {error}"
        except ReleaseError as error:
            failed += 1
            result = f"FAILED    {error}"
        first, *rest = result.splitlines()
        print("\n".join([f"{name:<10}{first}", *(f"{'':<20}{line}" for line in rest)]), flush=True)
    print(f"{len(chosen)} steps, {failed} failed, {left_out} left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
