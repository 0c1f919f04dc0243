"""A cluster of Spark on this machine: master and workers as processes, each as on its own host.

    driver      127.0.0.4, in the test's folder, with the package
    master      127.0.0.1
    worker-1    127.0.0.2, in a folder of its own
    worker-2    127.0.0.3, likewise; does not see the folder `only-here`, where the system allows it
    worker-3    127.0.0.5, where three are asked for

With `ApartHosts` workers have loopbacks and addresses of their own, see there.
Python is called the same on all of them. The driver's has the package; that of the workers has what
`ledgermq[spark]` needs, and gets the package with each application by `--py-files`. Where mount and
UTS namespaces may be made, each worker has a host name of its own. The programs are those in
PySpark's jars, with little memory and quick to start.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from ledgermq.spark.jobs.running import what_is_missing
from tests.free_ports import free_ports
from tests.processes import ChildProcess
from tests.spark.apart_hosts import ApartHosts
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
SPARK_HOME: Final = Path(pyspark.__file__).parent
WORKERS: Final = ("worker-1", "worker-2")
THREE_WORKERS: Final = (*WORKERS, "worker-3")
# Of the second worker, where namespaces may be made.
BLIND_WORKER: Final = WORKERS[1]
DRIVER_ADDRESS: Final = "127.0.0.4"
_PYTHON: Final = "python-of-the-host"
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_START_S: Final = 120.0
_UNSHARED: Final = ("unshare", "--mount", "--uts", "sh", "-c")
# Gives a worker its host name, covers a folder, and becomes the worker.
_APART: Final = 'echo "$1" > /proc/sys/kernel/hostname; [ -z "$2" ] || mount -t tmpfs none "$2"'
_APPLICATION: Final[Mapping[str, str]] = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    # All workers take part from the first task on.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


def why_no_cluster() -> str:
    """Returns what is missing for a cluster on this machine, "" when nothing is."""
    if sys.platform != "linux":
        return "workers have addresses 127.0.0.2 and up, and are watched in /proc: Linux has both"
    return what_is_missing()


@functools.cache
def why_no_namespaces() -> str:
    """Returns why workers cannot have a view of their own of the file system, "" when they can."""
    if shutil.which("unshare") is None:
        return "no unshare is here (Debian: util-linux)"
    words = [*_UNSHARED, _APART, "sh", "worker", "/mnt"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no namespaces may be made: {done.stderr.strip()}" if done.stderr else ""


def pack_package(archive: Path) -> Path:
    """Makes the archive that docs/spark.md has users make; returns it."""
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "ledgermq").rglob("*.py"):
            packed.write(path, path.relative_to(ROOT))
    return archive


def make_python(folder: Path) -> Path:
    """Makes a Python that has every package of this one but LedgerMQ; returns its program.

    Args:
        folder: gets its environment.
    """
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Directories that a .pth file names are not searched for .pth files, which is where an
    # editable installation stands.
    (packages / "all.pth").write_text(f"{SPARK_HOME.parent}\n")
    python = folder / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import pyspark, pyarrow, ledgermq"],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'ledgermq'" in done.stderr, done.stderr
    return python


def make_wheel(folder: Path) -> Path:
    """Builds a wheel of the package for every machine; returns the file."""
    tree = folder / "tree"
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "ledgermq", tree / "ledgermq", ignore=unwanted)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    words = ["wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    pip = [sys.executable, "-m", "pip", *words, "--wheel-dir", str(folder), str(tree)]
    subprocess.run(pip, check=True, env={**os.environ, "LEDGERMQ_PURE": "1"})
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> None:
    """Installs a wheel, and nothing else, into an environment of `make_python`."""
    (packages,) = folder.glob("lib/python*/site-packages")
    words = ["install", "-q", "--no-deps", "--no-index", "--target", str(packages), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


class SparkCluster:
    """A master and some workers; use it in a `with` block, which always stops them.

    Executors end with their worker, whichever way that ends.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = WORKERS,
        hosts: ApartHosts | None = None,
        *,
        wheel: Path | None = None,
    ) -> None:
        """Makes folders; nothing runs yet.

        Args:
            folder: gets a folder for each worker, the logs, and `only-here`.
            names: of the workers.
            hosts: those of some workers; the others, master and driver are where these reach them.
            wheel: the package, which is installed for all workers; without, applications bring it.
        """
        assert not why_no_cluster(), why_no_cluster()
        self.folder = folder
        # What is in there the second worker does not see.
        self.hidden = folder / "only-here"
        self.are_apart = not why_no_namespaces()
        (port,) = free_ports(1)
        self._hosts = hosts
        self._master_address = hosts.master_address if hosts else "127.0.0.1"
        self._driver_address = hosts.driver_address if hosts else DRIVER_ADDRESS
        self.url = f"spark://{self._master_address}:{port}"
        self._port = port
        self._master: ChildProcess | None = None
        self._names = names
        self._workers: dict[str, ChildProcess] = {}
        self._starts = 0
        for name in (*names, "only-here"):
            (folder / name).mkdir(parents=True)
        self._archive = None if wheel else pack_package(folder / "ledgermq.zip")
        self._make_programs(folder / "driver-bin", Path(sys.executable))
        python = make_python(folder / "python")
        if wheel:
            install(wheel, folder / "python")
        self._make_programs(folder / "worker-bin", python)

    def start_worker(self, name: str) -> None:
        """Starts a worker; wait_for_workers tells when the master knows it."""
        address = f"127.0.0.{self._names.index(name) + (2 if name in WORKERS else 3)}"
        on_host: tuple[str, ...] = ()
        if self._hosts is not None:
            address, on_host = self._hosts.address_of(name), self._hosts.command(name)
        words = ["--host", address, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
        words += ["--work-dir", str(self.folder / name / "work"), self.url]
        command = self._java("worker.Worker", *words)
        if self.are_apart:
            hidden = str(self.hidden) if name == BLIND_WORKER else ""
            script = f'{_APART}; shift 2; exec "$@"'
            command = [
                "unshare",
                "--mount",
                "--uts",
                "sh",
                "-c",
                script,
                "sh",
                name,
                hidden,
            ] + command
        self._workers[name] = ChildProcess(
            [*on_host, *command],
            self.folder / f"{name}.log",
            self._environment(address),
            folder=self.folder / name,
        )
        self._starts += 1

    def wait_for_workers(self) -> None:
        """Waits until the master knows all that were started."""
        wait_until(
            lambda: self._log("master").count("Registering worker") >= self._starts,
            what="workers at the master",
            deadline_s=_START_S,
            detail=self.last_words,
        )

    def pid_of(self, name: str) -> int:
        """Returns the process of a worker."""
        return self._workers[name].pid

    def kill_worker(self, name: str) -> None:
        """Ends a worker by SIGKILL, and with it its executors."""
        executors = self.executors(name)
        self._workers.pop(name).kill()
        for pid in executors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_executor(self, name: str) -> None:
        """Ends the executors of a worker by SIGKILL; the worker starts others."""
        for pid in self.executors(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def executors(self, name: str) -> list[int]:
        """Returns the processes of the executors that a worker runs."""
        found = []
        for children in Path(f"/proc/{self._workers[name].pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in children.read_text().split()]
        return [pid for pid in found if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def submit(
        self,
        program: object,
        *words: object,
        folder: Path,
        log: Path,
        settings: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Starts an application, which brings the package where workers do not have it.

        Args:
            program: a Python file, or what else `spark-submit` takes.
            words: its arguments.
            folder: the driver's working directory.
            log: gets all that the driver writes.
            settings: of Spark, besides those that every application has here.
        """
        places = dict.fromkeys(
            ("spark.driver.host", "spark.driver.bindAddress"), self._driver_address
        )
        # The cores of all workers; the master waits for as many as are told here.
        count = str(len(self._names))
        cores = {"spark.cores.max": count, "spark.default.parallelism": count}
        pairs = {**_APPLICATION, **cores, **places, **(settings or {})}.items()
        command = [SPARK_HOME / "bin" / "spark-submit", "--master", self.url]
        command += [word for pair in pairs for word in ("--conf", "=".join(pair))]
        if self._archive is not None:
            command += ["--py-files", self._archive]
        command += [program, *words]
        return ChildProcess(command, log, self.driver_environment(), folder=folder)

    def driver_environment(self) -> dict[str, str]:
        """Variables of a process that runs a driver."""
        return {
            **self._environment(self._driver_address, "driver-bin"),
            "PYSPARK_PYTHON": _PYTHON,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def last_words(self) -> str:
        """The ends of all logs, for the text of a failure."""
        logs = sorted([*self.folder.glob("*.log"), *self.folder.glob("worker-*/**/stderr")])
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    def __enter__(self) -> Self:
        try:
            words = ("--host", self._master_address, "--port", str(self._port))
            command = self._java("master.Master", *words)
            self._master = ChildProcess(
                [*command, "--webui-port", "0"],
                self.folder / "master.log",
                self._environment(self._master_address),
                folder=self.folder,
            )
            for name in self._names:
                self.start_worker(name)
            self.wait_for_workers()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            error.add_note(self.last_words())
        for name in list(self._workers):
            self.kill_worker(name)
        if self._master is not None:
            self._master.kill()

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _java(self, program: str, *words: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = [f"{home}/bin/java" if home else "java", *_QUICK.split(), "-Xmx128m"]
        java += ["-Dspark.master.rest.enabled=false", "-cp", f"{SPARK_HOME}/jars/*"]
        return [*java, f"org.apache.spark.deploy.{program}", *words]

    def _make_programs(self, folder: Path, python: Path) -> None:
        """Makes a folder with one program, Python as all hosts call it."""
        folder.mkdir()
        program = folder / _PYTHON
        program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        program.chmod(0o755)

    def _environment(self, address: str, programs: str = "worker-bin") -> dict[str, str]:
        """Variables of a process that is on a host of its own: nothing of the tests' paths."""
        (core,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
        return {
            "SPARK_HOME": str(SPARK_HOME),
            # What Spark's own scripts find out before they start a worker.
            "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
            "SPARK_LOCAL_IP": address,
            "PYTHONPATH": "",
            "PATH": f"{self.folder / programs}:{os.environ['PATH']}",
        }


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
