"""Brokers on hosts of their own: two cheap faults. `make faults` does all, and minds times."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.fault.hosts.isolation import find_obstacle, isolated
from tests.fault.hosts.network_probe import COUNT

pytestmark = pytest.mark.timeout(400)
_RUN_S = 360
_ALL = list(range(COUNT))


@pytest.fixture
def world() -> None:
    """Skips the test where no hosts can be made."""
    obstacle = find_obstacle()
    if obstacle is not None:
        pytest.skip(f"hosts are network namespaces: {obstacle}")


def run(*words: str) -> str:
    """Runs a program that must end well; returns what it wrote."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=_RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_network_does_what_it_is_told(world: None) -> None:
    """What hurts others must be beyond doubt itself."""
    lines = run(*isolated([sys.executable, "-m", "tests.fault.hosts.network_probe"])).splitlines()
    found = {name: (there, back) for name, there, back in map(json.loads, lines)}
    assert found["nothing"] == found["delay"] == (_ALL, _ALL)
    assert found["cut"] == found["cut out"] == found["blackout"] == ([], [])
    assert found["cut in"] == (_ALL, [])
    there, back = found["loss"]
    assert 0 < len(there) < COUNT and set(back) <= set(there)
    for came in found["reorder"]:
        assert came != _ALL and sorted(came) == _ALL


def test_a_leader_that_is_cut_off_and_one_that_is_killed_lose_nothing(world: None) -> None:
    faults = "leader-cut,leader-killed"
    options = ("--faults", faults, "--hold", "4", "--rate", "100", "--no-limits")
    text = run(sys.executable, "-m", "tests.fault.hosts.run", *options)
    assert text.count("healed after") == 3, text
    assert "WRONG" not in text and text.rstrip().endswith("all is well"), text


def test_a_run_that_is_ended_leaves_nothing(world: None) -> None:
    """Its processes are in a namespace of their own, whose first one is killed with it."""
    ours = os.readlink("/proc/self/ns/net")
    words = [sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'), flush=True)"]
    assert run(*isolated(words)).strip() != ours
    with subprocess.Popen(
        isolated(["sh", "-c", "echo $$; (echo ready; exec cat <&3) 3<&0"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "1\n"
        assert process.stdout.readline() == "ready\n"
        process.kill()
        # The end of the pipe: nobody holds its other end any more.
        assert process.stdout.read() == ""
