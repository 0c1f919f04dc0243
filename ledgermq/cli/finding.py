"""Findings of `ledgermq doctor`, and how they are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.cli.failure import fail
from ledgermq.protocol.plain_text import escaped


class Finding(NamedTuple):
    """The outcome of one check."""

    check: str
    # "good", "warning" or "failed"
    verdict: str
    text: str


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Prints a line for each; returns the exit code, which is 1 when one of them failed."""
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.verdict:<8} {finding.check:<14} {escaped(finding.text)}")
    failed = [finding for finding in findings if finding.verdict == "failed"]
    if not failed:
        return 0
    return fail(f"{len(failed)} of {len(findings)} checks failed", as_json=as_json)
