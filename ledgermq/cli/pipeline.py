"""``ledgermq pipeline``: the jobs on Spark, each with arguments of its own.

A job's module offers ``add_arguments(parser)`` and ``run(session, options)``; it is loaded, and
Spark with it, only when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Final

from ledgermq.cli.failure import fail

_JOBS: Final = {
    "archive": "topics into Parquet files, by topic and date, each message exactly once",
    "audit": "checks the ledgers of many stores, compares replicas, makes queues anew",
    "copy-store": "the log of a broker's store to where every worker sees it",
    "dead-letters": "what consumer groups gave up on, and sending it again",
    "replay": "messages of an archive back into topics, each exactly once",
    "trace": "what clients wrote about their own sends and deliveries",
    "traffic": "how much goes through topics, how large it is, hot keys, lag",
}
_NEEDED: Final = frozenset({"pyspark", "pyarrow", "numpy", "py4j"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    lines = "\n".join(f"  {name:13} {summary}" for name, summary in _JOBS.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = f"Jobs on Spark:\n{lines}\n\nledgermq pipeline JOB --help lists its own."
    parser.add_argument("job", choices=sorted(_JOBS), metavar="JOB")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="of the job")


def run(options: argparse.Namespace) -> int:
    """Runs one job in a session of Spark."""
    try:
        job = importlib.import_module(f"ledgermq.spark.jobs.{options.job.replace('-', '_')}")
        running = importlib.import_module("ledgermq.spark.jobs.running")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            raise
        return fail(f"{error.name} is missing: install LedgerMQ with its extra spark")
    parser = argparse.ArgumentParser(prog=f"ledgermq pipeline {options.job}")
    job.add_arguments(parser)
    return int(running.run_parsed(job.run, parser.parse_args(options.words)))
