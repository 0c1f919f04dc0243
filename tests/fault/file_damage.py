"""Every file of a store directory, damaged in every way, while the broker is stopped.

A case is one file and one damage. What follows is judged: nothing that was acknowledged may be
lost, and what cannot be used is named, by a line of the log or by a start that is refused.

    python -m tests.fault.file_damage 1|3    all cases alone, or in a group in which that member
                                             leads next
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from ledgermq.testing.errors import ClusterError
from tests.e2e.kept_cluster import KeptCluster
from tests.waiting import wait_until

DAMAGES: Final = ("noise", "truncation", "older", "empty", "another")
BODIES: Final = [b"%d" % number for number in range(6)]
# How long a member may take that recovers, or that gets its state from another one.
_SERVES_S: Final = 60.0
_LEADS_S: Final = 30.0

# Every file that a broker keeps in its directory: what is right when it is damaged. A file that
# matches none of these fails the test.
#   rebuilt   what it said is made again or proven by other files; whether a line says so is free
#   named     the same, and a line of the log names it
#   refused   the log itself, or whose store this is: a start that is refused names the file
FILES: Final = {
    r"config/(topics|subscriptionGroup|consumerOffset)\.json": "named",
    r"config/(delayOffset|queueLocks|accessRules|stateFormat)\.json": "named",
    r"config/.*\.json\.bak": "rebuilt",
    r"dispatch\.checkpoint": "rebuilt",
    # Upstream's, for a Java broker.
    r"checkpoint": "rebuilt",
    r"lock": "rebuilt",
    r"consumequeue/.*": "rebuilt",
    r"index/\d{17}": "rebuilt",
    r"dledger-n0/(checkpoint|checkpoint\.bak|start|durable)": "rebuilt",
    r"dledger-n0/(currterm|currterm\.bak)": "rebuilt",
    r"dledger-n0/identity": "refused",
    r"dledger-n0/(data|index)/\d{20}": "refused",
}


def entry_of(name: str) -> str | None:
    """Returns what is right for a file, None for one that is not known."""
    found = [right for pattern, right in FILES.items() if re.fullmatch(pattern, name)]
    return found[0] if found else None


def names_in(root: Path) -> list[str]:
    """All files of a directory."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [str(path.relative_to(root)) for path in paths]


@dataclass(kw_only=True)
class Outcome:
    """What followed."""

    name: str
    damage: str
    # Why the start failed; empty when it did not.
    refusal: str = ""
    # What is wrong; empty when the case is right.
    fault: str = ""
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        what = f"refused: {self.refusal}" if self.refusal else "serves"
        return f"{self.name} {self.damage}: {self.fault or 'right'} ({what})"


class DamagedStore:
    """A cluster whose member n0 gets a damaged directory again and again.

    Attributes:
        pristine, older, another: directories of n0 as it was stopped last, as it was stopped
            before, and of another store.
    """

    def __init__(self, cluster: KeptCluster, folder: Path) -> None:
        self._cluster = cluster
        self._lines: list[str] = []
        self._folder = folder
        self.older = folder / "older"
        self.another = folder / "another"
        self._fill()

    def _fill(self) -> None:
        """Makes two states, and keeps the directories of both."""
        cluster = self._cluster
        cluster.put_topic("orders")
        for number in range(3):
            cluster.send("orders", b"%d" % number, keys=f"k{number}")
        cluster.commit("g", "orders", 1)
        cluster.wait_until_swept()
        cluster.stop()
        shutil.copytree(cluster.root(), self.older)
        cluster.start()
        cluster.put_topic("late")
        for number in range(3, 6):
            cluster.send("orders", b"%d" % number, keys=f"k{number}")
        cluster.commit("g", "orders", 5)
        cluster.commit("h", "late", 0)
        cluster.wait_until_swept()
        cluster.stop()
        for node in cluster.nodes:
            shutil.copytree(cluster.root(node), self._folder / node)

    def names(self) -> list[str]:
        """Files of the directory that is damaged."""
        return names_in(self._folder / "n0")

    def cases(self) -> Iterator[tuple[str, str]]:
        """All files with all damages that differ from the file."""
        for name in self.names():
            good = (self._folder / "n0" / name).read_bytes()
            for damage in DAMAGES:
                bad = self._damaged(name, damage)
                if bad is not None and bad != good:
                    yield name, damage

    def _damaged(self, name: str, damage: str) -> bytes | None:
        """Returns the bytes of a damaged file, None where there is no such damage."""
        good = (self._folder / "n0" / name).read_bytes()
        match damage:
            case "noise":
                return os.urandom(min(len(good), 4096)) + good[4096:]
            case "truncation":
                return good[: len(good) // 2]
            case "empty":
                return b""
            case "older":
                path = self.older / name
            case _:
                path = self._of_another(name)
        return path.read_bytes() if path.is_file() else None

    def _of_another(self, name: str) -> Path:
        """The file of the same purpose: its folder or its name may have another number."""
        for node in ("n0", "n1"):
            path = self.another / name.replace("dledger-n0", f"dledger-{node}")
            if path.is_file():
                return path
            named = sorted(path.parent.glob("*")) if path.parent.is_dir() else []
            if name.startswith("index/") and named:
                return named[0]
        return self.another / name

    def run(self, name: str, damage: str) -> Outcome:
        """Starts the cluster with one damaged file, and looks."""
        cluster, outcome = self._cluster, Outcome(name=name, damage=damage)
        for node in cluster.nodes:
            shutil.rmtree(cluster.root(node))
            shutil.copytree(self._folder / node, cluster.root(node))
        bad = self._damaged(name, damage)
        assert bad is not None
        (cluster.root() / name).write_bytes(bad)
        lines = outcome.lines

        def keep(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(keep)
        try:
            cluster.start()
            outcome.fault = self._look(outcome)
        except Exception as error:  # Whatever a start raises is what its operator reads.
            outcome.refusal = f"{type(error).__name__}: {error}"
            outcome.fault = self._judge_refusal(outcome)
        finally:
            globalLogPublisher.removeObserver(keep)
            cluster.stop_running()
        return outcome

    def _judge_refusal(self, outcome: Outcome) -> str:
        """A start may be refused only where nothing else knows what the file said."""
        right = entry_of(outcome.name)
        # A vote for a member that is none of this group: the directory may be another group's.
        if right != "refused" and not ("currterm" in outcome.name and outcome.damage == "another"):
            return "the start is refused"
        if str(Path(outcome.name).parent) not in outcome.refusal:
            return "the refusal does not say where"
        return ""

    def _look(self, outcome: Outcome) -> str:
        """Returns what is lost, or was done silently; empty when nothing is."""
        cluster = self._cluster
        try:
            cluster.cluster.wait_for_leader(_SERVES_S)
        except ClusterError:
            alarms = [cluster.status(node) for node in cluster.nodes]
            return f"no member serves: {[a['stateAlarm'] or a['ledgerRepair'] for a in alarms]}"
        lost = self._lost()
        if not lost and len(cluster.nodes) > 1:
            # A log that contradicts the group's stays out, until an operator removes it.
            has_other_log = "/data/" in outcome.name and outcome.damage == "another"
            if not self._leads_at_last() and not has_other_log:
                return "the damaged member does not lead any more"
            lost = self._lost()
        if lost:
            return f"lost: {lost}"
        if entry_of(outcome.name) == "named" and not any(outcome.name in x for x in outcome.lines):
            return "no line names the file"
        return ""

    def _leads_at_last(self) -> bool:
        """Waits until the damaged member leads; one that ends is started again, as by its unit."""
        cluster = self._cluster
        for _ in range(2):
            with contextlib.suppress(AssertionError):
                wait_until(
                    lambda: cluster.cluster.leader == "n0", what="n0 to lead", deadline_s=_LEADS_S
                )
                return True
            cluster.cluster.restart("n0")
        return False

    def _bodies(self) -> list[bytes]:
        """What consumers get; a program that finds damage ends, and is started again."""
        cluster = self._cluster
        for _ in range(2):
            leader = cluster.cluster.wait_for_leader()
            with contextlib.suppress(OSError, AssertionError), cluster.client(leader) as client:
                found = [record.body for record in client.read_queue("orders", 0)]
                if found == BODIES:
                    return found
            cluster.cluster.restart(leader)
        return []

    def _lost(self) -> list[str]:
        cluster = self._cluster
        found = {
            "topics": {"orders", "late"} - cluster.topics(),
            "offsets of g": cluster.cluster.offsets("g") != {"orders": {0: 5}},
            "offsets of h": cluster.cluster.offsets("h") != {"late": {0: 0}},
            "messages": self._bodies() != BODIES,
        }
        return [f"{what} {wrong}" for what, wrong in found.items() if wrong]


@contextmanager
def open_damaged(node_count: int, folder: Path) -> Iterator[DamagedStore]:
    """Makes a cluster to be damaged, and the files of another store."""
    for name in ("another", "own", "kept"):
        (folder / name).mkdir()
    with KeptCluster(3, folder / "another") as other:
        other.put_topic("others")
        other.send("others", b"x", keys="x")
        other.commit("g", "others", 1)
        other.wait_until_swept()
        other.stop()
        shutil.copytree(other.root("n1"), folder / "kept" / "another")
    # In a group the damaged member leads next.
    settings = {"preferredLeaderId": "n0"} if node_count > 1 else {}
    with KeptCluster(node_count, folder / "own", **settings) as cluster:
        yield DamagedStore(cluster, folder / "kept")


def main() -> int:
    """Runs all cases; returns how many are wrong."""
    faults = count = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        open_damaged(int(sys.argv[1]), Path(folder)) as store,
    ):
        unknown = [name for name in store.names() if entry_of(name) is None]
        for name, damage in store.cases():
            outcome = store.run(name, damage)
            sys.stdout.write(f"{outcome}\n")
            count += 1
            faults += bool(outcome.fault)
    sys.stdout.write(
        f"{count} cases, {faults} wrong, files without an entry: {unknown or 'none'}\n"
    )
    return int(faults > 0 or bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
