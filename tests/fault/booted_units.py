"""Our units under a real systemd: three brokers and a name server on a machine that boots.

python -m tests.fault.booted_units [FOLDER]      as root, with Debian's mmdebstrap; three minutes

FOLDER is what `make image` makes, by default made of the sources as they are now: the program is
taken from it. The machine below is made beside it, once. The units are started as
docs/deployment.md says, told nonsense, killed, frozen, robbed of their store, restarted under load,
upgraded by the playbooks of docs/operations.md, and the machine is switched off and on. Prints a
line for each answer that was as it should be. Exit code 1 with the first that was not; 0 with
`left out` and the reason where no such machine can be.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fault.built_image import NotBuiltError, built_image
from tests.fault.systemd_machine import (
    NoMachineError,
    SystemdMachine,
    check_tools,
    make_root,
)
from tests.waiting import wait_until

_ROOT: Final = Path(__file__).parents[2]
UNITS: Final = _ROOT / "packaging" / "systemd"
_SENDER: Final = Path(__file__).with_name("sender_until_told.py")
MEMBERS: Final = ("n0", "n1", "n2")
# Of systemd's scale from 0 (closed) to 10.
EXPOSURE_MAX: Final = 2.0
# A watchdog of two minutes is waited for by nobody.
_WATCHDOG_S: Final = 5
_STOP_S_MAX: Final = 20.0
_NAMESRV, _PEERS = "127.0.0.1:9876", ";".join(f"n{i}-127.0.0.1:409{i + 1}1" for i in range(3))
_TOPIC: Final = "Booted"
# What is sent while one member restarts: enough that it does so under load.
_LOADED_MIN: Final = 50
# How long a start that fails takes at most.
_GIVES_UP_S: Final = 120.0


def broker_file(number: int) -> str:
    """The configuration of one of three brokers on one machine."""
    return "\n".join(
        (
            "brokerIP1=127.0.0.1", "brokerName=broker-a", f"listenPort=109{number + 1}1",
            f"namesrvAddr={_NAMESRV}", "enableDLegerCommitLog=true", "dLegerGroup=broker-a",
            f"dLegerPeers={_PEERS}", f"dLegerSelfId=n{number}", f"httpPort=808{number + 1}", "",
        )
    )  # fmt: skip


def install(upper: Path, image: Path) -> None:
    """Puts program, units and configurations where docs/deployment.md has them."""
    for place in ("opt/ledgermq", "usr/lib/python3/dist-packages"):
        shutil.copytree(image / "root" / place, upper / place, dirs_exist_ok=True)
    units, files = upper / "etc/systemd/system", upper / "etc/ledgermq"
    shutil.copytree(UNITS, units)
    files.mkdir()
    for number, member in enumerate(MEMBERS):
        (files / f"broker-{member}.conf").write_text(broker_file(number))
    (files / "broker-odd.conf").write_text("brokerName=odd\nlistenPort=many\n")
    shutil.copy(_SENDER, upper / "opt/sender.py")
    hastened = units / "ledgermq-broker@n1.service.d"
    hastened.mkdir()
    (hastened / "watchdog.conf").write_text(f"[Service]\nWatchdogSec={_WATCHDOG_S}\n")


class Trial:
    """The machine and what is asked of it."""

    def __init__(self, machine: SystemdMachine) -> None:
        """The machine is on, nothing of ours runs."""
        self._machine = machine
        self._sent_count = 0

    def told(self, member: str) -> dict[str, str]:
        """What systemd knows of a member's unit."""
        names = ("ActiveState", "SubState", "StatusText", "NRestarts", "MainPID", "Result")
        return self._machine.show(f"ledgermq-broker@{member}", *names, "ExecMainStatus")

    def leader(self) -> str:
        """Returns who leads and serves, by what its status says."""

        def found() -> str:
            for member in MEMBERS:
                status = self.told(member)["StatusText"]
                if status.startswith("LEADER") and status.endswith(", serves"):
                    return member
            return ""

        return wait_until(found, what="a leader by the status of its unit")

    def health(self, member: str, question: str) -> None:
        """Waits until it is well, as the playbooks do."""
        port = 8081 + MEMBERS.index(member)
        self._machine.run(f"ledgermq health --port {port} {question} --wait 120")

    def whole(self) -> None:
        """Every member is ready, and the others of each a majority."""
        for member in MEMBERS:
            self.health(member, "--ready")
            self.health(member, "--quorum-safe")

    def send(self, count: int = 5) -> None:
        """Messages that have to be there at the end."""
        for _ in range(count):
            self._sent_count += 1
            words = f"-n {_NAMESRV} -t {_TOPIC} --key k{self._sent_count}"
            self._machine.run(f"ledgermq send {words} message-{self._sent_count}")

    def read(self) -> int:
        """Returns how many of them a new group finds."""
        group = f"Readers{self._sent_count}"
        words = f"-n {_NAMESRV} -t {_TOPIC} -g {group} --from first --until-idle 3"
        said = self._machine.run(f"ledgermq consume {words}")
        return len({int(number) for number in re.findall(r"message-(\d+)", said)})

    def restarted(self, member: str, hurt: Callable[[], object]) -> None:
        """What was hurt is started again by systemd, once, and the group is whole again."""
        before = self.told(member)
        hurt()

        def is_back() -> bool:
            now = self.told(member)
            again = int(now["NRestarts"]) == int(before["NRestarts"]) + 1
            return again and now["ActiveState"] == "active" and now["MainPID"] != before["MainPID"]

        wait_until(is_back, what=f"a restart of {member}", detail=lambda: str(self.told(member)))
        self.whole()
        self.send()

    def started(self) -> str:
        """As docs/deployment.md says."""
        run = self._machine.run
        run("useradd --system --no-create-home --home-dir /var/lib/ledgermq ledgermq")
        run("systemctl daemon-reload")
        units = " ".join(f"ledgermq-broker@{member}" for member in MEMBERS)
        run(f"systemctl enable --now ledgermq-namesrv {units}")
        status = self._machine.show("ledgermq-namesrv", "StatusText")["StatusText"]
        assert status.startswith("name server serves"), status
        leader = self.leader()
        self.whole()
        self.send()
        return f"{leader} leads; {status}"

    def misset(self) -> str:
        """A setting that cannot be: the journal says why, and it is not tried again."""
        run = self._machine.run
        odd = "/etc/systemd/system/ledgermq-namesrv-odd.service"
        places = "-e s,LEDGERMQ,odd, -e 's,namesrv kv,namesrv listenPort=many kv,'"
        run(f"sed {places} /etc/systemd/system/ledgermq-namesrv.service > {odd}")
        run("systemctl daemon-reload")
        for unit in ("ledgermq-broker@odd", "ledgermq-namesrv-odd"):
            said = run(f"systemctl start {unit} || echo refused")
            assert said.strip() == "refused", said
            wait_until(
                lambda unit=unit: self._machine.show(unit, "SubState")["SubState"] == "failed",
                what=f"systemd giving up {unit}",
                deadline_s=_GIVES_UP_S,
            )
            restarts = self._machine.show(unit, "NRestarts")["NRestarts"]
            assert restarts == "0", restarts
            said = run(f"journalctl --no-pager -o cat -u {unit}")
            assert "listenPort" in said and "'many'" in said and "whole number" in said, said
        return "the journal names key and value; it is not started again"

    def closed(self) -> str:
        """Who they run as, what they may do, and what others may see of their files."""
        exposed = []
        for unit in ("ledgermq-namesrv", "ledgermq-broker@n0"):
            said = self._machine.run(f"systemd-analyze security --no-pager {unit}")
            found = re.search(r"Overall exposure level for .*: ([0-9.]+)", said)
            assert found is not None and float(found[1]) < EXPOSURE_MAX, said
            exposed.append(found[1])
            first = self._machine.show(unit, "MainPID")["MainPID"]
            status = self._machine.run(f"cat /proc/{first}/status")
            user = self._machine.run("id -u ledgermq").strip()
            assert re.search(rf"^Uid:\t{user}\t{user}\t", status, re.MULTILINE), status
            assert "NoNewPrivs:\t1\n" in status and "Seccomp:\t2\n" in status, status
            assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
        mode = self._machine.run("stat -c '%a %U' /var/lib/ledgermq/broker-n0").strip()
        assert mode == "700 ledgermq", mode
        return f"exposure {' and '.join(exposed)} of 10, no capability, own files only"

    def journal(self) -> str:
        """Warnings are warnings to the journal, and information is not."""
        said = self._machine.run("journalctl --no-pager -o cat -p warning -u ledgermq-namesrv")
        assert "no accounts" in said and "#info" not in said, said
        return "warnings have their priority"

    def killed(self) -> str:
        """kill -9 of the leader."""
        member = self.leader()
        self.restarted(
            member,
            lambda: self._machine.run(f"systemctl kill --signal=SIGKILL ledgermq-broker@{member}"),
        )
        return f"{member} was started again"

    def frozen(self) -> str:
        """A program that stands still is ended by its watchdog."""
        first = self.told("n1")["MainPID"]
        self.restarted("n1", lambda: self._machine.run(f"kill -STOP {first}"))
        return f"n1 stood still for {_WATCHDOG_S} s and was started again"

    def failed(self) -> str:
        """A store that is not its own any more: exit code 74, and a new start."""
        lock = "/var/lib/ledgermq/broker-n2/lock"
        self.restarted("n2", lambda: self._machine.run(f"rm {lock}"))
        said = self._machine.run("journalctl --no-pager -o cat -u ledgermq-broker@n2")
        assert "status=74" in said, said[-2000:]
        return "n2 ended with 74 and was started again"

    def loaded(self) -> str:
        """One member after the other restarts while a client sends: it gives up no message."""
        sender = self._machine.begin(
            f"python3 /opt/sender.py {_NAMESRV} {_TOPIC} {self._sent_count + 1}"
        )
        for member in MEMBERS:
            self._machine.run(f"systemctl restart ledgermq-broker@{member}")
            self.whole()
        said, complaint = sender.communicate(timeout=60)
        assert sender.returncode == 0, complaint
        outcome = json.loads(said)
        assert not outcome["given_up"], outcome
        assert outcome["sent"] >= _LOADED_MIN, outcome
        self._sent_count += outcome["sent"]
        assert self.read() == self._sent_count
        return f"{outcome['sent']} messages sent, none given up, all there"

    def handed_over(self) -> str:
        """A leader that is stopped in order hands over first."""
        member = self.leader()
        begun_s = time.monotonic()
        self._machine.run(f"systemctl stop ledgermq-broker@{member}")
        took_s = time.monotonic() - begun_s
        now = self.told(member)
        assert (now["Result"], now["ExecMainStatus"]) == ("success", "0"), now
        assert took_s < _STOP_S_MAX, took_s
        self.send()
        self._machine.run(f"systemctl start ledgermq-broker@{member}")
        self.whole()
        return f"{member} ended in {took_s:.1f} s, {self.leader()} leads"

    def lost(self) -> str:
        """The playbook of a lost member, word for word but for its name."""
        member = next(one for one in MEMBERS if one != self.leader())
        for other in MEMBERS:
            if other != member:
                self.health(other, "--ready")
        place = f"/var/lib/ledgermq/broker-{member}"
        self._machine.run(f"systemctl stop ledgermq-broker@{member}")
        self._machine.run(f"mv {place} {place}.lost")
        self.send()
        self._machine.run(f"systemctl start ledgermq-broker@{member}")
        self.health(member, "--started")
        self.whole()
        return f"{member} was filled by the others"

    def upgraded(self) -> str:
        """The playbook of another version: one after the other, the leader last."""
        leader = self.leader()
        for member in (*(one for one in MEMBERS if one != leader), leader):
            self.health(member, "--quorum-safe")
            self._machine.run(f"systemctl stop ledgermq-broker@{member}")
            self._machine.run(f"systemctl start ledgermq-broker@{member}")
            self.health(member, "--ready")
            self.send(2)
        return "all members, one after the other"

    def switched(self) -> str:
        """Off and on again: all is there, by itself."""
        begun_s = time.monotonic()
        self._machine.switch_off()
        took_s = time.monotonic() - begun_s
        assert took_s < _STOP_S_MAX, took_s
        self._machine.switch_on()
        self.whole()
        found = self.read()
        assert found == self._sent_count, (found, self._sent_count)
        return f"off in {took_s:.1f} s; all {found} messages are there"


def say(text: str) -> None:
    """A line for whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tried(machine: SystemdMachine) -> None:
    """Asks all, in order."""
    trial = Trial(machine)
    for ask in (
        trial.started, trial.misset, trial.closed, trial.journal, trial.killed, trial.frozen,
        trial.failed, trial.loaded, trial.handed_over, trial.lost, trial.upgraded, trial.switched,
    ):  # fmt: skip
        say(f"{ask.__name__.replace('_', ' '):<12} {ask()}")


def main() -> int:
    """Switches the machine on, and tries."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-booted-") as name:
        try:
            check_tools()
            image = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else built_image()
            root = image.parent / "systemd/root"
            make_root(root)
            machine = SystemdMachine(root, Path(name))
            install(machine.upper, image)
        except (NoMachineError, NotBuiltError) as error:
            say(f"left out: {error}")
            return 0
        with machine:
            try:
                machine.switch_on()
            except NoMachineError as error:
                say(f"left out: {error}")
                return 0
            try:
                tried(machine)
            except (AssertionError, NoMachineError) as error:
                say(f"failed: {error}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
