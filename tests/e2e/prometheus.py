"""Judges of a page of metrics: Prometheus' own tool and its parser for Python.

Neither is needed to run LedgerMQ; where one is absent, its test says so and is skipped. promtool is
looked for in PATH and in the folder that LEDGERMQ_PROMETHEUS names.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from typing import Any

import pytest


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
