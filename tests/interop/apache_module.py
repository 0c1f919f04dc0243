"""Apache's module of integration tests, 4.9.3 from Maven Central, with brokers of LedgerMQ.

`make apache-tests` runs it. The classes and the clients are Apache's, unchanged, with their default
times; `java/module/IntegrationTestBase.java` takes the place of the class that starts Apache's name
server and brokers in the process of the tests, and gives them those that are started here: a name
server and two brokers, each alone in its group, with the settings of that class. Every class has a
Java process of its own; one after the other, for some judge times. Prints each class as it ends,
then a table; the exit code is 0 when no test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.certificate_files import write_tls_file
from tests.interop.builds import (
    HERE,
    OPENED,
    build_lock,
    is_fresh,
    maven_class_path,
    run_tool,
    write_stamp,
)
from tests.processes import LEDGERMQ, broker, name_server

_VERSION: Final = "4.9.3"
_SOURCES: Final = HERE / "java" / "module"
_PACKAGE: Final = "org.apache.rocketmq.test."
# Those of the class that is replaced.
_SETTINGS: Final = (
    "enablePropertyFilter=true",
    "mappedFileSizeCommitLog=104857600",
    "maxIndexNum=1000",
    "maxHashSlotNum=4000",
)
_BROKERS: Final = ("TestBrokerName_0", "TestBrokerName_1")
_CLUSTER: Final = "DefaultCluster"
# The longest of them takes four minutes on a calm machine. One that takes longer than this has
# failed, and the others still run.
_CLASS_SECONDS: Final = 900
_STACKS_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ClassRun:
    """What one class of tests came to."""

    name: str
    # (method, outcome), the outcome as ModuleRun.java writes it.
    tests: tuple[tuple[str, str], ...]
    # Whether none failed, and the process of the class ended as it should.
    is_good: bool
    seconds: float
    log: Path

    def count(self, outcome: str) -> int:
        """The tests with this outcome."""
        return sum(found == outcome for _, found in self.tests)


def main(words: Sequence[str]) -> int:
    """Runs the module, or the classes that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help=f"of classes below {_PACKAGE[:-1]}, as CLASS or CLASS#METHOD"
    )
    parser.add_argument("--folder", type=Path, help="for stores and logs; kept")
    options = parser.parse_args(words)
    command, classes = _command()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        where = stack.enter_context(_cluster(folder))
        runs = []
        for name in options.names or classes:
            run = _run(name, [command[0], *where, *command[1:]], folder)
            if run.tests or not run.is_good:
                runs.append(run)
                _print_run(run)
    _print_table(runs)
    return 0 if all(run.is_good for run in runs) else 1


def _command() -> tuple[list[str], list[str]]:
    """Returns the command that runs a class, whose name comes last, and all names."""
    class_path = maven_class_path(HERE / "java" / "module-pom.xml", _VERSION)
    sources = sorted(_SOURCES.glob("*.java"))
    with build_lock(f"java-module-{_VERSION}") as directory:
        stamp = directory / "stamp"
        if not is_fresh(stamp, sources, class_path):
            run_tool(
                ["javac", "--release", "17", "-cp", class_path, "-d", str(directory),
                 *map(str, sources)],
                cwd=directory,
            )  # fmt: skip
            write_stamp(stamp, sources, class_path)
    command = [
        "java", "-Xms64m", "-Xmx1g", f"-Duser.home={directory}", "-Dfile.encoding=UTF-8", *OPENED,
        "-cp", f"{directory}{os.pathsep}{class_path}", "ModuleRun",
    ]  # fmt: skip
    return command, list(_classes(class_path))


def _classes(class_path: str) -> Iterator[str]:
    """Yields the classes with tests, as the module's own build finds them by their names."""
    jar = next(path for path in class_path.split(os.pathsep) if path.endswith("-tests.jar"))
    with zipfile.ZipFile(jar) as archive:
        for path in sorted(archive.namelist()):
            name = path.removesuffix(".class").replace("/", ".")
            last = name.rpartition(".")[2]
            if path.endswith(".class") and (last.endswith("IT") or last.startswith("Test")):
                yield name.removeprefix(_PACKAGE)


@contextmanager
def _cluster(folder: Path) -> Iterator[list[str]]:
    """Runs a name server and two brokers; gives the words by which the tests find them."""
    tls = (
        f"tls.config.file={write_tls_file(folder / 'tls.properties')}",
        "tls.server.mode=permissive",
    )
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(folder, *tls))
        for name in _BROKERS:
            member = broker(
                folder,
                *_SETTINGS,
                *tls,
                f"brokerClusterName={_CLUSTER}",
                namesrv=namesrv,
                name=name,
                log=f"{name}.log",
            )
            stack.enter_context(member).wait_until_serving()
        separator = "\x1f"
        yield [
            f"-Dledgermq.namesrv.port={namesrv.rpartition(':')[2]}",
            f"-Dledgermq.brokers={','.join(_BROKERS)}",
            f"-Dledgermq.cluster={_CLUSTER}",
            f"-Dledgermq.command={separator.join(LEDGERMQ)}",
        ]


def _run(name: str, command: Sequence[str], folder: Path) -> ClassRun:
    log = folder / f"{name.replace('#', '-')}.log"
    begun_s = time.monotonic()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, _PACKAGE + name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            told, _ = process.communicate(timeout=_CLASS_SECONDS)
        except subprocess.TimeoutExpired:
            # Java writes the stacks of its threads to its standard output.
            process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STACKS_SECONDS)
            process.kill()
            told, _ = process.communicate()
            errors.write(f"not done after {_CLASS_SECONDS} s\n{told}")
    lines = [line.split("\t") for line in told.splitlines() if line.startswith("@@\t")]
    tests = tuple((method, outcome) for _, outcome, method in lines)
    return ClassRun(name, tests, process.returncode == 0, time.monotonic() - begun_s, log)


def _print_run(run: ClassRun) -> None:
    print(
        f"{run.name}: {run.count('passed')} of {len(run.tests)} in {run.seconds:.0f} s", flush=True
    )
    for method, outcome in run.tests:
        if outcome != "passed":
            print(f"  {outcome} {method}", flush=True)
    if not run.is_good:
        print(run.log.read_text(errors="replace")[-20000:], flush=True)


def _print_table(runs: Sequence[ClassRun]) -> None:
    outcomes = ("passed", "failed", "ignored")
    width = max((len(run.name) for run in runs), default=0)
    print(f"\n{'class':{width}}  tests   passed   failed  ignored")
    rows = [(run.name, len(run.tests), *map(run.count, outcomes)) for run in runs]
    totals = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    for name, *counts in [*rows, ("all", *totals)]:
        print(f"{name:{width}}  {counts[0]:5}" + "".join(f"  {count:7}" for count in counts[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
