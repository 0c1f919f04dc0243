"""A broker with an account signs all that it tells and asks name servers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest
from twisted.internet.testing import MemoryReactorClock, StringTransport

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.registration import Registration
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.signature import (
    ACCESS_KEY,
    SIGNATURE,
    SIGNED_FOR,
    Credentials,
    is_signed_by,
)
from ledgermq.protocol.signature_check import STRONG, SignatureCheck
from ledgermq.protocol.signed_for import own_ends
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state.topics import TopicConfig, TopicTable

ACCOUNT: Final = Credentials(access_key="shop-brokers", secret_key="secret-of-shop")
GROUP: Final = {
    "enableDLegerCommitLog": "true",
    "dLegerPeers": "n0-127.0.0.1:1",
    "dLegerSelfId": "n0",
}


class Broker:
    """One that leads, and its only connection to a name server."""

    def __init__(self, account: Credentials | None, settings: Mapping[str, str] = GROUP) -> None:
        self.clock = MemoryReactorClock()
        config = load_broker_config(None, {"namesrvAddr": "10.0.0.9:9876", **settings})
        self.leadership = Leadership("n0", 1)
        topics = TopicTable(10)
        topics.put(TopicConfig(config.broker_name, 4, 4), 1_700_000_000_000)
        self.registration = Registration(
            config,
            self.leadership,
            topics,
            reactor=self.clock,
            output=TurnOutput(self.clock),
            address=lambda: "10.0.0.1:10911",
            ha_address=lambda: "10.0.0.1:10912",
            account=account,
        )
        self.leadership.changed("LEADER", 7, "n0")
        self.leadership.serve()
        self.registration.start()
        self.transport, self.decoder = StringTransport(), FrameDecoder()
        self.protocol = self.clock.tcpClients[-1][2].buildProtocol(None)
        self.protocol.makeConnection(self.transport)

    def told(self) -> list[RemotingCommand]:
        """What was asked until nothing more is; all is answered with success."""
        told: list[RemotingCommand] = []
        while True:
            self.clock.advance(0)
            frames = self.decoder.feed(self.transport.value())
            self.transport.clear()
            if not frames:
                return told
            for command in map(decode, frames):
                told.append(command)
                answer = command.response(0)
                answer.ext_fields = {"changed": "false"}
                self.protocol.dataReceived(encode(answer))


def test_all_that_is_told_and_asked_is_signed() -> None:
    broker = Broker(ACCOUNT)
    told = broker.told()
    broker.registration.register()
    told += broker.told()
    broker.registration.unregister()
    told += broker.told()
    codes = {command.code for command in told}
    assert codes >= {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
    for command in told:
        fields = command.ext_fields or {}
        assert fields[ACCESS_KEY] == "shop-brokers"
        assert is_signed_by(fields, command.body, "secret-of-shop"), command.code


def test_the_strong_form_names_the_name_server_and_counts_once() -> None:
    broker = Broker(replace(ACCOUNT, form="strong"))
    told = broker.told()
    broker.registration.unregister()
    told += broker.told()
    is_own = own_ends(("10.0.0.9:9876",), lambda: ())
    signatures = SignatureCheck(STRONG)
    assert {command.code for command in told} >= {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
    }
    for command in told:
        fields = command.ext_fields or {}
        assert fields[SIGNED_FOR].split(",")[0] == "10.0.0.9:9876"

        def refusal(command: RemotingCommand = command) -> str | None:
            return signatures.find_refusal(
                command.code, command.ext_fields or {}, command.body,
                "shop-brokers", "secret-of-shop", lambda named: is_own(named, ""),
            )  # fmt: skip

        assert refusal() is None
        assert refusal() is not None


def test_without_an_account_nothing_is_signed() -> None:
    for command in Broker(None).told():
        assert SIGNATURE not in (command.ext_fields or {})


@pytest.mark.parametrize(("settings", "term"), [(GROUP, "7"), ({}, None)])
def test_only_the_leader_of_a_group_tells_its_term(
    settings: Mapping[str, str], term: str | None
) -> None:
    broker = Broker(None, settings)
    told = [command for command in broker.told() if command.code == RequestCode.REGISTER_BROKER]
    assert {(command.ext_fields or {}).get("ledgerTerm") for command in told} == {term}
    broker.leadership.changed("FOLLOWER", 8, "n1")
    broker.registration.register()
    told = [command for command in broker.told() if command.code == RequestCode.REGISTER_BROKER]
    assert told and "ledgerTerm" not in (told[-1].ext_fields or {})
