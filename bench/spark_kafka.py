"""Our source for Spark beside Spark's own source for Kafka: the same messages, the same run.

python -m bench.spark_kafka [--messages 500000] [--rounds 5] [--local]

Tasks run on a cluster of Spark on this machine, a master and two workers of a core each as
processes; --local keeps them in the driver's process. Needs Java 17 and Maven. Spark's source for
Kafka is there for PySpark 4.2.0, so both sources run with that one, in an environment of its own
below .build; Kafka's broker (4.1, without ZooKeeper) and the jars come from Maven Central. Prints
rows a second and core, and the ratio that docs/spark.md has.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import requires
from pathlib import Path

from bench.cluster import cluster
from bench.spark import SETTINGS, TOPIC, fill
from tests.free_ports import free_ports
from tests.interop.builds import HERE, build_lock, maven_class_path, run_tool
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
PYSPARK = "pyspark==4.2.0"
# Of what Maven lists, the parts that Spark itself does not bring.
JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def python_with_spark() -> Path:
    """Makes the environment once; returns its Python."""
    with build_lock("spark-kafka") as directory:
        python = directory / "venv" / "bin" / "python"
        stamp = directory / "stamp"
        if not stamp.exists():
            run_tool([sys.executable, "-m", "venv", str(directory / "venv")], cwd=directory)
            plain = [word for word in requires("ledgermq") or () if "extra ==" not in word]
            words = [PYSPARK, "pyarrow", "numpy", *plain]
            pip = [str(python), "-m", "pip", "install", "-q", *words]
            run_tool(pip, cwd=directory)
            stamp.touch()
    return python


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Runs a broker of Kafka with two partitions for each topic; yields its address."""
    port, controller = free_ports(2)
    class_path = maven_class_path(HERE / "java" / "kafka-pom.xml", "none")
    settings = folder / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\nnum.partitions=2\n"
        f"log.dirs={folder / 'data'}\noffsets.topic.replication.factor=1\n"
    )
    java = ["java", "-Xmx1g", "-cp", class_path]
    tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings)]
    run_tool([*java, *tool], cwd=folder)
    log = folder / "kafka.log"
    with open(log, "w") as out:
        program = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=out, stderr=out)
        try:
            wait_until(lambda: listens(port, program, log), what="a broker of Kafka")
            yield f"127.0.0.1:{port}"
        finally:
            program.kill()
            program.wait()


def listens(port: int, program: subprocess.Popen[bytes], log: Path) -> bool:
    """Tells whether a program takes connections; raises when it has ended."""
    if program.poll() is not None:
        raise RuntimeError(f"Kafka has ended: {log.read_text()[-2000:]}")
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return f":{port:04X} 0" in listening


def main() -> int:
    """Starts all and prints what the reads cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--local", action="store_true")
    options = parser.parse_args()
    python = python_with_spark()
    listed = maven_class_path(HERE / "java" / "spark-kafka-pom.xml", "none").split(os.pathsep)
    jars = ",".join(jar for jar in listed if Path(jar).name.startswith(JARS))
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as folder,
        kafka(Path(folder)) as bootstrap,
        cluster(1, SETTINGS) as up,
    ):
        asyncio.run(fill(up, options.messages))
        words = [up.namesrv, bootstrap, TOPIC, str(options.rounds), jars]
        words.append("local" if options.local else "cluster")
        subprocess.run(
            [python, "-m", "bench.spark_kafka_reads", *words],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)},
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
