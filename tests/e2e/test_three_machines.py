"""docs/three-machines.md as it stands; three sets of ports stand for the three machines."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.free_ports import free_ports
from tests.processes import LiveProgram, run_ledgermq
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "three-machines.md"
UNITS = ROOT / "packaging" / "systemd"
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
PORTS = ("9876", "10911", "40911")
# What only root may do, on a machine of its own.
OF_THE_SYSTEM = ("sudo ", "echo ")


class Guide:
    """What the page says, with addresses that are free here."""

    def __init__(self) -> None:
        free = iter(free_ports(len(HOSTS) * len(PORTS)))
        self._ports = {host: {port: str(next(free)) for port in PORTS} for host in HOSTS}
        text = PAGE.read_text(encoding="utf-8")
        blocks = re.findall(r"^```(ini|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        [self.broker] = (block for kind, block in blocks if kind == "ini")
        [units] = re.findall(r"^sudo systemctl enable --now (.*)$", text, re.MULTILINE)
        self.starts = dict(self._start(unit) for unit in units.split())
        lines = [line for kind, block in blocks if kind == "sh" for line in block.splitlines()]
        commands = (line for line in lines if not line.startswith(OF_THE_SYSTEM))
        self.commands = [shlex.split(self.placed(line, HOSTS[0])) for line in commands]
        [self.doctor] = [line.partition("/ledgermq ")[2] for line in lines if " doctor " in line]

    def _start(self, unit: str) -> tuple[str, str]:
        """Program and command line of a unit, in the folders that systemd gives it."""
        name, _, instance = unit.partition("@")
        text = (UNITS / f"{name}{'@' if instance else ''}.service").read_text(encoding="utf-8")
        [line] = re.findall(r"^ExecStart=/opt/ledgermq/bin/ledgermq (.*)$", text, re.MULTILINE)
        [state] = re.findall(r"^StateDirectory=(.*)$", text, re.MULTILINE)
        line = line.replace("${STATE_DIRECTORY}", f"/var/lib/{state}")
        line = line.replace("${CONFIGURATION_DIRECTORY}", "/etc/ledgermq").replace("%i", instance)
        return line.split()[0], line

    def placed(self, text: str, own_host: str) -> str:
        """A text of the page, as it is on one machine."""
        for host, ports in self._ports.items():
            for port, here in ports.items():
                text = text.replace(f"{host}:{port}", f"127.0.0.1:{here}")
        for port, here in self._ports[own_host].items():
            text = text.replace(f"listenPort={port}", f"listenPort={here}")
        return text.replace(f"brokerIP1={HOSTS[0]}", "brokerIP1=127.0.0.1")


class Machine:
    """One of the three: its files, and the programs of its units."""

    def __init__(self, guide: Guide, number: int, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        broker = guide.broker.replace("dLegerSelfId=n0", f"dLegerSelfId=n{number}")
        text = guide.placed(broker, HOSTS[number])
        (folder / "broker-a.conf").write_text(self._in_folder(text))
        self.doctor = shlex.split(self._in_folder(guide.doctor))
        self._starts = guide.starts
        # The page lets it listen where it does by itself.
        self._name_server_port = guide.placed("listenPort=9876", HOSTS[number])

    def _in_folder(self, text: str) -> str:
        """Its own folder stands for those of the system."""
        for path in ("/etc/ledgermq", "/var/lib/ledgermq"):
            text = text.replace(path, str(self._folder))
        return text

    def start(self) -> None:
        self.name_server = self._start(f"{self._starts['namesrv']} {self._name_server_port}")
        self.broker = self._start(self._starts["broker"])

    def _start(self, line: str) -> LiveProgram:
        words = shlex.split(self._in_folder(line))
        return LiveProgram([*words, "--json"], self._folder / f"{words[0]}.log")

    def stop(self) -> None:
        self.broker.stop()
        self.name_server.stop()


@pytest.fixture
def guide() -> Guide:
    return Guide()


@pytest.fixture
def machines(guide: Guide, tmp_path: Path) -> Iterator[list[Machine]]:
    made = [Machine(guide, number, tmp_path / host) for number, host in enumerate(HOSTS)]
    with contextlib.ExitStack() as ends:
        for machine in made:
            machine.start()
            ends.callback(machine.stop)
        yield made


def serving(machines: list[Machine]) -> list[Machine]:
    return [machine for machine in machines if machine.broker.status.get("serving")]


def run(command: list[str]) -> str:
    """A command of the page, which must not fail; returns what it prints."""
    assert command[0] == "ledgermq"
    done = run_ledgermq(*command[1:])
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.timeout(300)
def test_page_leads_to_a_group_that_loses_a_machine_and_nothing_else(
    guide: Guide, machines: list[Machine]
) -> None:
    [leader] = wait_until(
        lambda: serving(machines),
        what="a leader",
        deadline_s=90,
        detail=lambda: "\n".join(one.broker.log_text()[-2000:] for one in machines),
    )
    look, send, consume, look_again, send_again = guide.commands
    assert [command[1] for command in guide.commands] == [
        "admin",
        "send",
        "consume",
        "admin",
        "send",
    ]
    wait_until(lambda: run(look).count("broker-a") == 3, what="three lines of clusterList")
    run(send)
    assert "hello" in run(consume)
    leader.broker.kill()
    others = [machine for machine in machines if machine is not leader]
    wait_until(lambda: serving(others), what="the next leader", deadline_s=60)
    run(look_again)
    run(send_again)
    found = run(consume)
    assert "still" in found and "here" in found and "hello" not in found


def test_doctor_says_what_is_not_there_yet(guide: Guide, tmp_path: Path) -> None:
    """Before anything runs: no other member, no name server, and nothing else."""
    machine = Machine(guide, 0, tmp_path / HOSTS[0])
    lines = run_ledgermq(*machine.doctor).stdout.splitlines()
    assert len(lines) >= 12
    bad = [line.split("  ")[0:1] + line[9:].split("  ")[:1] for line in lines]
    found = {(words[0], words[1]) for words in bad if words[0] != "good"}
    # How full this machine's disk is, is its own affair.
    found.discard(("warning", "disk space"))
    assert found == {("warning", "member"), ("warning", "name server")}
