"""A console of a closed cluster (accounts, TLS, a secret): signed in, it hands the lead on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.console.api_client import Api, Refused
from tests.e2e.console.test_changes import confirmed, preview
from tests.free_ports import free_first_port
from tests.processes import SMALL_STORE, LiveProgram, run_ledgermq
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
WAIT_S = 120.0


class ClosedWithConsole:
    """What `secure init` makes, with its programs and a console beside them."""

    def __init__(
        self,
        folder: Path,
        stack: contextlib.ExitStack,
        members: tuple[str, ...],
        settings: tuple[str, ...],
    ) -> None:
        self.root = folder / "closed"
        base = free_first_port()
        name_server = f"127.0.0.1:{base + 5}"
        places = [f"{name}-127.0.0.1:{base + 10 * i + 30_000}" for i, name in enumerate(members)]
        made = run_ledgermq(
            "secure", "init", self.root, "--members", ";".join(places),
            "--name-servers", name_server,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        for name in ("namesrv-0", *members):
            kind = "namesrv" if name.startswith("namesrv") else "broker"
            more = (*SMALL_STORE, *settings) if kind == "broker" else ()
            words = [kind, "--json", "-c", self.root / name / f"{kind}.conf", *more]
            stack.enter_context(LiveProgram(words, folder / f"{name}.log"))
        words = [
            "console", "--json", "-n", name_server, "--listen", "127.0.0.1:0",
            "--tls-config", self.root / "operator" / "tls.properties",
        ]  # fmt: skip
        self.console = stack.enter_context(LiveProgram(words, folder / "console.log"))
        wait_until(lambda: self.console.status.get("url"), what="the console")
        self.url: str = self.console.status["url"]

    def signed_in(self, who: str) -> Api:
        """A browser of an account, as soon as the brokers know it."""
        keys: dict[str, str] = yaml.safe_load((self.root / who / "tools.yml").read_text())
        api = Api(self.url)

        def enters() -> bool:
            try:
                api.sign_in(keys["accessKey"], keys["secretKey"])
            except Refused as refused:
                # Nobody serves yet; too many tries of one minute are not made.
                assert refused.status in (401, 409, 502, 503), refused
                return False
            return True

        wait_until(lambda: self._leads(), what="a leader", deadline_s=WAIT_S)
        wait_until(enters, what="the sign-in", deadline_s=WAIT_S)
        return api

    def _leads(self) -> bool:
        keys = self.root / "operator" / "tools.yml"
        tls = self.root / "operator" / "tls.properties"
        server = self.console.words[self.console.words.index("-n") + 1]
        words = ("admin", "topicList", "-n", server, "--acl-config", keys, "--tls-config", tls)
        return run_ledgermq(*words).returncode == 0


@contextlib.contextmanager
def closed(folder: Path, members: tuple[str, ...], *settings: str) -> Iterator[ClosedWithConsole]:
    with contextlib.ExitStack() as stack:
        yield ClosedWithConsole(folder, stack, members, settings)


def leader_of(api: Api) -> str:
    groups = api.call("get_broker_groups").broker_groups
    return str(groups[0].leader or "") if groups else ""


def test_signed_in_it_shows_judges_and_hands_the_lead_on(tmp_path: Path) -> None:
    members = ("n0", "n1", "n2")
    with closed(tmp_path, members, "dLegerToolAddresses=127.0.0.1") as cluster:
        api = cluster.signed_in("operator")
        stranger = Api(cluster.url)
        assert stranger.call("get_session").sign_in_needed
        with pytest.raises(Refused) as refused:
            stranger.call("get_overview")
        assert refused.value.status == 401

        def whole() -> bool:
            told = api.call("get_overview")
            return bool(told.members == told.members_answering == 3 and leader_of(api))

        wait_until(whole, what="three members", deadline_s=WAIT_S)

        def may(account: str, what: str, name: str) -> Any:
            question = {"access_key": account, "kind": "topic", "what": what, "name": name}
            return api.call("ask_may", question).allowed

        assert may("operator", "PUB", "whatever")
        assert not may("application", "PUB", "other")
        old = leader_of(api)
        other = next(name for name in members if name != old)
        action = preview(api, "transfer_leader", broker="broker-a", member=other)
        assert confirmed(api, action).counts == {"done": 1}
        wait_until(lambda: leader_of(api) == other, what="the new leader", deadline_s=WAIT_S)
        # Who is no admin may not.
        with pytest.raises(Refused) as refused:
            preview(
                cluster.signed_in("application"), "transfer_leader", broker="broker-a", member=old
            )
        assert refused.value.status in (403, 404, 409)


def test_a_group_that_serves_no_tools_says_which_key_is_missing(tmp_path: Path) -> None:
    with closed(tmp_path, ("n0",)) as cluster:
        api = cluster.signed_in("operator")
        wait_until(lambda: leader_of(api), what="a leader", deadline_s=WAIT_S)
        with pytest.raises(Refused) as refused:
            preview(api, "transfer_leader", broker="broker-a", member="n0")
        assert (refused.value.status, refused.value.error.code) == (409, "closed")
        assert refused.value.error.field == "dLegerToolAddresses"
