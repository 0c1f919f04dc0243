"""From which addresses a member may speak."""

from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ledgermq.dledger.addresses import ConfigValueError
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.member_addresses import MemberAddresses, address_of, look_up_by


class Connection:
    """The two ends of a connection."""

    def __init__(self, source: str, own: str = "10.0.0.1") -> None:
        self.peer_host = source
        self.own_host = own


class Rig:
    def __init__(self, peers: str, networks: tuple[str, ...] = (), **names: list[str]) -> None:
        self.names: dict[str, list[str] | Exception | None] = {**names}
        self.asked: list[str] = []
        self.waiting: list[Deferred[list[str]]] = []
        self.clock = Clock()
        config = ReplicaConfig(group="g", self_id="n0", peers=peers, member_networks=networks)
        self.addresses = MemberAddresses(config, self.look_up, self.clock.seconds)

    def look_up(self, name: str) -> Deferred[list[str]]:
        self.asked.append(name)
        found: Deferred[list[str]] = Deferred()
        known = self.names.get(name, [])
        if known is None:
            self.waiting.append(found)
        elif isinstance(known, Exception):
            found.errback(known)
        else:
            found.callback(known)
        return found

    def may_be(self, peer_id: str, source: str, own: str = "10.0.0.1") -> bool:
        connection: Any = Connection(source, own)
        return self.addresses.may_be(peer_id, connection)

    def look_again(self, peer_id: str) -> bool:
        """Whether it was over at once."""
        done: list[None] = []
        self.addresses.look_again(peer_id).addCallback(done.append)
        return done == [None]


@pytest.mark.parametrize(
    ("source", "own", "may_be"),
    [
        ("10.0.0.2", "10.0.0.1", True),
        ("::ffff:10.0.0.2", "::ffff:10.0.0.1", True),
        ("10.0.0.3", "10.0.0.1", False),
        # On this machine there is no n1.
        ("127.0.0.1", "127.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", False),
        ("::1", "::1", False),
        ("", "10.0.0.1", False),
        ("a socket in the file system", "10.0.0.1", False),
    ],
)
def test_member_speaks_from_the_address_of_its_host(source: str, own: str, may_be: bool) -> None:
    rig = Rig("n0-10.0.0.1:1;n1-10.0.0.2:2")
    assert rig.may_be("n1", source, own) is may_be
    assert rig.look_again("n1") and rig.asked == []


@pytest.mark.parametrize("peers", [
    "n0-127.0.0.1:1;n1-127.0.0.1:2", "n0-localhost:1;n1-localhost:2", "n0-[::1]:1;n1-[::1]:2",
    "n0-10.0.0.1:1;n1-10.0.0.1:2", "n0-10.0.0.1:1;n1-127.0.0.1:2", "n0-10.7.7.7:1;n1-10.0.0.1:2",
    # As some systems name themselves.
    "n0-10.0.0.1:1;n1-127.0.1.1:2",
])  # fmt: skip
def test_members_on_one_machine_speak_from_any_address_of_it(peers: str) -> None:
    rig = Rig(peers)
    assert rig.may_be("n1", "10.0.0.1", "10.0.0.1")
    assert rig.may_be("n1", "127.0.0.1", "10.0.0.1") and rig.may_be("n1", "::1", "::1") == (
        "10.0.0.1" not in peers.partition("n1")[2] or "n0-10.0.0.1" in peers
    )
    assert not rig.may_be("n1", "10.0.0.2", "10.0.0.1")


def test_names_are_looked_up_when_a_source_is_not_known() -> None:
    rig = Rig("n0-a:1;n1-b:2;n2-c:3", b=["10.0.0.2", "fd00::2"], a=["10.0.0.1"])
    assert not rig.may_be("n1", "10.0.0.2")
    assert rig.look_again("n1")
    assert sorted(rig.asked) == ["a", "b"]
    assert rig.may_be("n1", "10.0.0.2") and rig.may_be("n1", "fd00::2%eth0")
    assert not rig.may_be("n1", "10.0.0.3") and not rig.may_be("n2", "10.0.0.2")


def test_strangers_have_names_looked_up_once_a_second_at_most() -> None:
    rig = Rig("n0-10.0.0.1:1;n1-b:2", b=["10.0.0.2"])
    for _ in range(20):
        assert rig.look_again("n1")
        rig.clock.advance(0.1)
    assert len(rig.asked) == 2
    rig.names["b"] = ["10.0.0.9"]
    rig.clock.advance(1)
    assert rig.look_again("n1")
    assert rig.may_be("n1", "10.0.0.9") and not rig.may_be("n1", "10.0.0.2")


def test_all_who_wait_for_a_name_hear_of_it_together() -> None:
    rig = Rig("n0-10.0.0.1:1;n1-b:2")
    rig.names["b"] = None
    assert not rig.look_again("n1") and not rig.look_again("n1")
    done: list[None] = []
    rig.addresses.look_again("n1").addCallback(done.append)
    (waiting,) = rig.waiting
    waiting.callback(["10.0.0.2"])
    assert done == [None] and rig.may_be("n1", "10.0.0.2")


@pytest.mark.parametrize("failure", [[], OSError("no name server"), ["no address"]])
def test_what_was_found_stays_when_nobody_answers(failure: list[str] | Exception) -> None:
    rig = Rig("n0-10.0.0.1:1;n1-b:2", b=["10.0.0.2"])
    rig.look_again("n1")
    rig.names["b"] = failure
    rig.clock.advance(5)
    assert rig.look_again("n1")
    assert rig.may_be("n1", "10.0.0.2")


def test_other_addresses_are_allowed_by_configuration() -> None:
    rig = Rig("n0-10.0.0.1:1;n1-b:2", ("172.16.0.0/12", "10.9.9.9", "fd00::/8"))
    for source in ("172.17.0.1", "10.9.9.9", "fd00::7", "::ffff:172.17.0.1"):
        assert rig.may_be("n1", source), source
    for source in ("172.32.0.1", "10.9.9.8", "fe80::1"):
        assert not rig.may_be("n1", source), source
    with pytest.raises(ConfigValueError, match="member_networks is '10.0.0.0/99'"):
        Rig("n0-10.0.0.1:1;n1-b:2", ("10.0.0.0/99",))


def test_refusal_names_source_member_host_and_key() -> None:
    rig = Rig("n0-10.0.0.1:1;n1-b:2", b=["10.0.0.2"])
    connection: Any = Connection("10.0.0.3")
    assert "no address that was found" in rig.addresses.refusal("n1", connection)
    rig.look_again("n1")
    assert rig.addresses.refusal("n1", connection) == (
        "10.0.0.3 is no address of n1, whose host b has 10.0.0.2"
        " (key ledgerMemberAddresses allows others)"
    )


def test_addresses_have_one_form() -> None:
    assert address_of("::ffff:1.2.3.4") == address_of("1.2.3.4") != address_of("1.2.3.5")
    assert address_of("fe80::1%eth0") == address_of("fe80:0::1")
    assert address_of("host") is None and address_of("") is None


class LookUp(TestCase):
    """The resolver of the system, asked in threads of the reactor."""

    timeout = 30

    async def test_name_is_looked_up(self) -> None:
        found = await look_up_by(reactor)("localhost")
        assert "127.0.0.1" in found
