"""``ledgermq monitoring DIR``: alerts for Prometheus and dashboards for Grafana, in a folder.

They are those of this version: of the metrics that its brokers serve (docs/metrics.md). Files that
are there are replaced. Prometheus reads ``prometheus/ledgermq.rules.yml`` (rule_files), Grafana
imports the four files of ``grafana/``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ledgermq.broker.watching.monitoring_files import monitoring_files
from ledgermq.cli.failure import fail


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="made when it is not there")
    parser.add_argument("--json", action="store_true", help="print the names as JSON")


def run(options: argparse.Namespace) -> int:
    """Writes the files; returns the exit code."""
    names = []
    try:
        for name, text in monitoring_files().items():
            path = options.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            names.append(str(path))
    except OSError as error:
        return fail(str(error))
    print(json.dumps(names) if options.json else "\n".join(names))
    return 0
