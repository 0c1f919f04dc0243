"""Judges of a page of metrics: Prometheus, its tool and its parser for Python.

Neither is needed to run LedgerMQ; where one is absent, its test says so and is skipped. promtool is
looked for in PATH and in the folder that LEDGERMQ_PROMETHEUS names.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.watching.alerts import rules_file
from tests.free_ports import free_ports


def find_promtool() -> str:
    """Returns the path of promtool, or skips the test."""
    folder = os.environ.get("LEDGERMQ_PROMETHEUS", "")
    path = shutil.which("promtool", path=os.pathsep.join((folder, os.environ.get("PATH", ""))))
    if path is None:
        pytest.skip("promtool is not there: install Debian's prometheus, or say where it is by"
                    " LEDGERMQ_PROMETHEUS")  # fmt: skip
    return path


def run_promtool(*words: str, text: str = "") -> tuple[int, str]:
    """Runs promtool; returns its exit code and all that it printed."""
    done = subprocess.run(
        [find_promtool(), *words], input=text, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def parsed_open(text: str) -> dict[str, Any]:
    """Returns the families of a page of OpenMetrics by name, as prometheus_client reads them, which
    is stricter than with text; or skips.
    """
    try:
        parser = importlib.import_module("prometheus_client.openmetrics.parser")
    except ImportError:
        pytest.skip("prometheus_client is not there: pip install prometheus_client")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def parsed(text: str) -> dict[str, Any]:
    """Returns the families of a page by name, as prometheus_client reads them; or skips."""
    try:
        parser = importlib.import_module("prometheus_client.parser")
    except ImportError:
        pytest.skip("prometheus_client is not there: pip install prometheus_client")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def find_prometheus() -> str:
    """Returns the path of prometheus, or skips the test."""
    folder = os.environ.get("LEDGERMQ_PROMETHEUS", "")
    path = shutil.which("prometheus", path=os.pathsep.join((folder, os.environ.get("PATH", ""))))
    if path is None:
        pytest.skip("prometheus is not there: install Debian's prometheus, or say where it is by"
                    " LEDGERMQ_PROMETHEUS")  # fmt: skip
    return path


class Prometheus:
    """One that runs, and is asked."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def ask(self, expr: str) -> list[Any]:
        """The series of an expression at this moment; empty as long as it does not answer."""
        query = urllib.parse.urlencode({"query": expr})
        try:
            with urllib.request.urlopen(f"{self._url}?{query}", timeout=20) as reply:
                answer = json.loads(reply.read())
        except OSError as error:
            status = getattr(error, "code", 0)
            assert status != 400, (expr, error)
            return []
        assert answer["status"] == "success", (expr, answer)
        result: list[Any] = answer["data"]["result"]
        return result


@contextmanager
def prometheus_for(folder: Path, ports: list[int], rules: str = "") -> Iterator[Prometheus]:
    """One that scrapes ports each second, by our rules or by others."""
    program = find_prometheus()
    [own] = free_ports(1)
    folder.mkdir()
    (folder / "rules.yml").write_text(rules or rules_file())
    targets = [f"127.0.0.1:{port}" for port in ports]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [
            {"job_name": "ledgermq", "static_configs": [{"targets": targets}]},
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    words = [
        program, f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{own}",
    ]  # fmt: skip
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield Prometheus(own)
        finally:
            process.terminate()
            process.wait(30)
