"""Apache's mqadmin 4.9.3 against LedgerMQ and against Apache's own broker, side by side.

Both clusters are in the middle of work: a stock producer sends and traces, a stock consumer that
filters by SQL92 consumes. Every subcommand of mqadmin is run on both at the same time, all in one
JVM for each side, and the answers are compared line by line (`admin_cases.py`). The table
subcommand x result is printed, and must be that of docs/compatibility.md.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.interop.admin_cases import CASES, GROUP, TOPIC, WORK_TOPIC, Case, lines_of, unexplained
from tests.interop.builds import java_program
from tests.interop.closed import ACCOUNTS, ADMIN, WHITE, closed_settings, is_on
from tests.interop.mqadmin import CLUSTER_NAME, mqadmin_command, prepare_home
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
_MESSAGES: Final = 40
EXPRESSION: Final = "price >= 10 AND price NOT BETWEEN 20 AND 29 AND kind IN ('a')"
_WANTED: Final = {n for n in range(_MESSAGES) if n % 2 == 0 and (10 <= n < 20 or n >= 30)}
# What comes true a moment later is asked again for so long.
_PATIENCE_S: Final = 120.0
pytestmark = pytest.mark.timeout(600)


def _account() -> dict[str, str]:
    """What the program signs with: as the admin, as mqadmin in it."""
    if not is_on():
        return {}
    return {"INTEROP_ACCESS_KEY": ADMIN.access_key, "INTEROP_SECRET_KEY": ADMIN.secret_key}


class Tour:
    """The program java/AdminTour.java at work on one cluster."""

    def __init__(self, namesrv: str, log_path: Path) -> None:
        command = [
            *java_program("4.9.3", "AdminTour", pom="broker-pom.xml"),
            namesrv, TOPIC, WORK_TOPIC, GROUP, EXPRESSION,
        ]  # fmt: skip
        home = prepare_home()
        # The queues are shared out again each second, so that the answers are steady soon.
        command[1:1] = [
            f"-Drocketmq.home.dir={home}", "-Drocketmq.client.rebalance.waitInterval=1000",
        ]  # fmt: skip
        self._log = log_path.open("w")
        # consumerStatus writes what it finds into the working directory.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=log_path.parent,
            env={**os.environ, **_account()},
        )

    def ask(self, *words: str) -> str:
        """Gives one command and returns what it printed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line == "END\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError("the program ended:\n" + "".join(lines[-20:]))

    def stop(self) -> None:
        """Kills the program."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            assert pipe is not None
            pipe.close()


@dataclass(frozen=True, slots=True)
class Site:
    """One cluster of the comparison, at work."""

    tour: Tour
    namesrv: str
    broker: str
    broker_name: str
    message_id: str
    unique_id: str
    client_id: str
    folder: Path

    def prices(self) -> list[int]:
        """What the consumer got of the topic with prices."""
        return sorted(map(int, self.tour.ask("got").split()))

    def worked(self) -> tuple[int, int]:
        """How much of the work was sent and consumed."""
        sent, done = self.tour.ask("worked").split()
        return int(sent), int(done)

    def run(self, case: Case) -> str:
        """Runs a subcommand, again and again where a case waits for something."""
        words = [case.name, "-n", self.namesrv, *case.arguments(self)]
        answers: list[str] = []

        def ask() -> bool:
            if case.command != "run":
                answers.append(self.tour.ask(case.command))
            elif case.cut_lines:
                answers.append(self.tour.ask("cut", str(case.cut_lines), *words))
            else:
                answers.append(self.tour.ask("run", *words))
            return not case.is_awaited or re.search(case.wanted, answers[-1]) is not None

        wait_until(ask, what=f"{case.name} to tell it", deadline_s=_PATIENCE_S)
        content = (self.folder / case.file).read_text() if case.file else ""
        return answers[-1] + "\n" + content


@contextmanager
def _site(namesrv: str, folder: Path) -> Iterator[Site]:
    for topic in (TOPIC, WORK_TOPIC):
        words = ("updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", topic)
        subprocess.run(mqadmin_command(*words), capture_output=True, timeout=60, check=True)
    tour = Tour(namesrv, folder / "tour.log")
    try:
        ids = tour.ask("send", str(_MESSAGES)).split()
        tour.ask("work")
        wait_until(
            lambda: int(tour.ask("worked").split()[1]) > 50,
            what="some work done in each queue",
            deadline_s=_PATIENCE_S,
        )
        client_id = tour.ask("client").strip()
        listing = tour.ask("run", "clusterList", "-n", namesrv)
        rows = [line.split() for line in listing.splitlines() if line.startswith(CLUSTER_NAME)]
        master = next(row for row in rows if row[2] == "0")
        yield Site(tour, namesrv, master[3], master[1], ids[0], ids[1], client_id, folder)
    finally:
        tour.stop()


def _put_rules(rules: str, *folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)
        path = folder / "plain_acl.yml"
        path.write_text(rules)
        path.chmod(0o600)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Site]]:
    folder = tmp_path_factory.mktemp("mqadmin")
    keys = {"enablePropertyFilter": "true", "aclEnable": "true", "traceTopicEnable": "true"}
    java = JavaCluster(folder / "stock", JavaClusterPlan(broker_keys=keys))
    # Members of ours share rules that tools change when they have a secret to seal them with.
    secret = folder / "secret"
    secret.write_text("of-all-members-and-of-nobody-else")
    secret.chmod(0o600)
    ours_alone = {"dLegerGroupSecretFile": str(secret)}
    settings = tuple(f"{key}={value}" for key, value in (keys | ours_alone).items())
    settings += closed_settings(folder) if is_on() else ()
    ours = UpCluster(folder / "ours", settings=settings)
    # The stock broker knows none of its accounts any more once a tool has changed one, so that
    # nobody is let in but from white addresses.
    _put_rules(WHITE + ACCOUNTS, java.directory / "home" / "conf")
    folders = [ours.data / name / "config" for name in ("n0", "n1", "n2")]
    _put_rules(ACCOUNTS if is_on() else WHITE + ACCOUNTS, *folders)
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        list(pool.map(stack.enter_context, (java, ours)))
        begun = (_site(java.namesrv, java.directory), _site(ours.name_server, ours.folder))
        stock_site, our_site = pool.map(stack.enter_context, begun)
        yield stock_site, our_site


def test_consumer_with_a_sql_filter_gets_what_it_wants(sites: tuple[Site, Site]) -> None:
    for site in sites:
        what = "what the consumer's expression wants"
        wait_until(lambda one=site: len(one.prices()) >= len(_WANTED), what=what)
        assert site.prices() == sorted(_WANTED)


def test_every_subcommand_answers_like_the_stock_broker(sites: tuple[Site, Site]) -> None:
    stock, ours = sites
    before = [site.worked() for site in sites]
    rows: list[str] = []
    wrong: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        for case in CASES:
            texts = list(pool.map(lambda site, one=case: site.run(one), sites))
            theirs, mine = (lines_of(text, site) for text, site in zip(texts, sites, strict=True))
            differences = unexplained(case, theirs, mine)
            differences += [
                f"{name}: no {case.wanted!r} in\n{text[-1500:]}"
                for name, text in zip(("stock", "ours"), texts, strict=True)
                if re.search(case.wanted, text) is None
            ]
            verdict = (
                "DIFFERS" if differences else "differs as expected" if theirs != mine else "same"
            )
            rows.append(f"{case.name:<28} {len(theirs):>4} lines  {verdict}")
            if differences:
                wrong.append("\n".join([f"{case.name}:", *differences]))
    print("\n" + "\n".join(rows))
    for site, (sent, done) in zip(sites, before, strict=True):
        wait_until(lambda one=site, old=done: one.worked()[1] > old, what="more work done")
        assert site.worked()[0] > sent
    assert not wrong, "\n\n".join(wrong)


def test_every_subcommand_of_the_tool_is_run(sites: tuple[Site, Site]) -> None:
    listing = sites[0].tour.ask("run")
    assert set(re.findall(r"(?m)^   (\w+) ", listing)) == {case.name for case in CASES}


def test_guide_says_which_subcommands_differ() -> None:
    guide = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`[^|]*) \| [^|]* \| (same|differs) \|", guide)
    told = {name: verdict for names, verdict in rows for name in re.findall(r"`(\w+)`", names)}
    differing = {case.name for case in CASES if case.why}
    assert told == {case.name: "differs" if case.name in differing else "same" for case in CASES}
