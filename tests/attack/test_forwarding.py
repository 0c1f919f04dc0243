"""What the broker hands on to a client does not say by whose signature it was asked for."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_broker import ROOT, THIEF, ask, beat, closed_broker
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import LiveProgram
from tests.waiting import wait_until

RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO.value
GROUP = "shared-readers"
# The values of fields that make an account an admin, in the order of their names.
CLIENT_ID = "thief-app" + "true" + "secret-of-thief"


def handed_on(program: LiveProgram, who: Credentials, client_id: str) -> RemotingCommand:
    """Returns what the thief's consumer is asked when somebody looks at it."""
    fields = {"consumerGroup": GROUP, "clientId": client_id, "jstackEnable": "false"}
    with WireClient(program.address) as thief, WireClient(program.address) as looking:
        assert beat(thief, THIEF, client_id, consumers=(GROUP,)).code == 0
        looking.ask_later(RUNNING_INFO, who.signed(fields, b"", RUNNING_INFO))
        for _ in range(20):
            asked = thief.read()
            assert asked is not None
            if asked.code == RUNNING_INFO:
                return asked
    raise AssertionError("the consumer was not asked")


def test_admin_who_looks_at_a_consumer_gives_it_no_signature(program: LiveProgram) -> None:
    """A stock signature marks no end of a value and no code: the values of the question, cut
    elsewhere, are another request of the admin, and the id of a client is for it to choose.
    """
    told = handed_on(program, ROOT, CLIENT_ID).ext_fields or {}
    forged = {
        "AccessKey": "root-app",
        "Signature": told.get("Signature", ""),
        "accessKey": "thief-app",
        "admin": "true",
        "secretKey": "secret-of-thief",
        "zz": GROUP + "false",
    }
    with WireClient(program.address) as thief:
        refused = thief.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG.value, forged)
        assert "Check signature failed" in str(refused.remark)
        settings = ask(thief, THIEF, RequestCode.GET_BROKER_CONFIG)
        assert "Need admin permission" in str(settings.remark)


def test_look_at_a_broker_is_no_key_to_all_accounts(tmp_path: Path) -> None:
    """Whoever registers a broker is asked by an admin's tools how it is: a request without fields,
    whose stock signature is that of every other one without fields.

    A broker that shows secrets to nobody: all clients of a test are on its machine.
    """
    seen = ROOT.signed({}, b"", RequestCode.GET_BROKER_RUNTIME_INFO)
    with closed_broker(tmp_path, "aclShowSecretKeys=never") as program:
        program.wait_until_serving()
        with WireClient(program.address) as thief:
            told = thief.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG.value, seen)
    assert told.code == 0 and b"thief-app" in told.body
    assert b"secret" not in told.body


@pytest.mark.parametrize("form", ["stock", "strong"])
def test_question_has_all_but_what_proves_who_asked(program: LiveProgram, form: str) -> None:
    who = replace(ROOT, form=form)  # type: ignore[arg-type]
    told = handed_on(program, who, f"thief@{form}").ext_fields or {}
    assert told["consumerGroup"] == GROUP and told["jstackEnable"] == "false"
    assert not {"AccessKey", "Signature", "SignForm", "SignedAt", "SignNonce"} & told.keys()


def test_nobody_is_asked_behind_what_it_has_not_read(program: LiveProgram) -> None:
    """Each question brings a message of 4 MiB: fifteen closed the connection of who is asked."""
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    with WireClient(program.address) as slow, WireClient(program.address) as asking:
        assert beat(slow, THIEF, "slow@1", consumers=(GROUP,)).code == 0
        sent = ask(
            asking, THIEF, RequestCode.SEND_MESSAGE, send_fields("bait", 0), bytes(4_000_000)
        )
        fields = {
            "consumerGroup": GROUP,
            "clientId": "slow@1",
            "msgId": (sent.ext_fields or {})["msgId"],
        }
        for _ in range(15):
            asking.ask_later(code.value, THIEF.signed(fields, b"", code.value))
        # The kernel takes some of it.
        refusals = [str(getattr(asking.read(), "remark", "")) for _ in range(10)]
        assert all("slow@1 has" in one and "too slowly to be asked" in one for one in refusals)
        # What it was asked is there for it to read, and its connection as well.
        asked = [slow.read() for _ in range(2)]
        assert code in {one.code for one in asked if one is not None}


def test_members_are_asked_for_their_offsets_once_at_a_time(program: LiveProgram) -> None:
    """Each question waited five seconds for six hundred members that say nothing."""
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    fields = {"topic": "bait", "group": GROUP}
    with ExitStack() as stack:
        silent = [stack.enter_context(WireClient(program.address)) for _ in range(20)]
        for number, client in enumerate(silent):
            assert beat(client, THIEF, f"silent@{number}", consumers=(GROUP,)).code == 0
        asking = [stack.enter_context(WireClient(program.address)) for _ in range(2)]
        for client in asking:
            for _ in range(10):
                client.ask_later(code.value, THIEF.signed(fields, b"", code.value))
        refusals = [asking[1].read() for _ in range(10)] + [asking[0].read() for _ in range(9)]
        assert {one.code for one in refusals if one is not None} == {ResponseCode.SYSTEM_BUSY}
        last = asking[0].read()
        assert last is not None and last.code == ResponseCode.SUCCESS
        # It is over: they may be asked again, also when who asked has gone.
        with WireClient(program.address) as gone:
            gone.ask_later(code.value, THIEF.signed(fields, b"", code.value))
        wait_until(
            lambda: ask(asking[1], THIEF, code, fields).code == ResponseCode.SUCCESS,
            what="an answer",
        )
