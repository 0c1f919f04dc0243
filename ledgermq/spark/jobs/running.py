"""Running a job: its arguments, a Spark session, and exit codes, from command and spark-submit.

ledgermq pipeline archive -n 127.0.0.1:9876 -t Orders --path DIR
spark-submit .../ledgermq/spark/jobs/archive.py -n 127.0.0.1:9876 -t Orders --path DIR
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ledgermq.spark.errors import SparkSourceError
from ledgermq.spark.segment_source import SegmentsDataSource
from ledgermq.spark.source import RocketMQDataSource

JAVA_MIN: Final = 17
_WHAT_IS_MISSING: Final = (
    f"Spark needs Java {JAVA_MIN} or newer, found {{found}}; on Debian:"
    f" apt install openjdk-{JAVA_MIN}-jre-headless"
)


def run_job(
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[SparkSession, argparse.Namespace], int],
    words: list[str] | None = None,
) -> int:
    """Parses arguments, runs a job in a session of its own, and returns its exit code.

    Args:
        add_arguments: declares them.
        run: the job.
        words: the arguments; None for those of this process.

    Returns:
        0 done, 1 failed (the reason is on stderr); argparse exits with 2 by itself.
    """
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run_parsed(run, parser.parse_args(words))


def run_parsed(
    run: Callable[[SparkSession, argparse.Namespace], int], options: argparse.Namespace
) -> int:
    """Runs a job whose arguments are parsed; see run_job."""
    missing = what_is_missing()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    session = make_session()
    try:
        return run(session, options)
    except (SparkSourceError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except PySparkException as error:
        sys.stderr.write(f"{short_reason(str(error))}\n")
        return 1
    finally:
        session.stop()


def positive_number(text: str) -> int:
    """Reads a number of 1 or more; what else is given, argparse refuses by this name."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def short_reason(text: str) -> str:
    """Returns the last line of a worker's error: the whole text is a traceback of two languages."""
    found = re.findall(r"ledgermq\.spark\.errors\.\w+: (.*)", text)
    return found[-1] if found else text.strip().splitlines()[0]


def what_is_missing() -> str:
    """Returns what has to be installed before Spark can run, "" when it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return _WHAT_IS_MISSING.format(found="none")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if version is None or int(version[1]) < JAVA_MIN:
        return _WHAT_IS_MISSING.format(found=version[1] if version else "one of unknown version")
    return ""


def make_session(settings: dict[str, str] | None = None) -> SparkSession:
    """Returns the session of spark-submit, or a local one, with both sources registered.

    Args:
        settings: of Spark, for a session that is not there yet.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    if "SPARK_ENV_LOADED" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Not started by spark-submit: on this machine, and heard by nobody else.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (
            builder.master("local[*]")
            .appName("ledgermq")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "true")
        )
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.dataSource.register(RocketMQDataSource)
    session.dataSource.register(SegmentsDataSource)
    return session
