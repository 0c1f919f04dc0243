"""Asks every port that a program listens at, without an account: in plain and by TLS.

A port that does not know its asker closes; bytes of a strange protocol that come before that (a
handshake's alert, a challenge) are no answer.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledgermq.client import load_client_tls
from ledgermq.dledger.addresses import parse_peers
from ledgermq.dledger.messages import DLedgerCode, JsonCode
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.properties_file import parse_properties
from tests.e2e.wire_client import request, send_fields
from tests.processes import LOOPBACK, LiveProgram, listening_ports

# Kinds of ports.
NAME_SERVER: Final = "port of the name server"
BROKER: Final = "port for clients"
VIP: Final = "VIP port"
LEDGER: Final = "ledger port"
SLAVES: Final = "port for slaves"
HTTP: Final = "HTTP port"
_ANSWER_S: Final = 10.0
_MEMBER: Final = {
    "group": "broker-a",
    "remoteId": "n0",
    "localId": "n1",
    "leaderId": "n1",
    "term": 1,
}
# What somebody asks who is not asked for anything himself: clients, members, slaves, tools.
_QUESTIONS: Final = {
    "topics": request(RequestCode.GET_ALL_TOPIC_CONFIG.value),
    "settings": request(RequestCode.GET_BROKER_CONFIG.value),
    "send": request(RequestCode.SEND_MESSAGE.value, send_fields("orders"), b"forged"),
    "route": request(RequestCode.GET_ROUTEINFO_BY_TOPIC.value, {"topic": "orders"}),
    "names": request(RequestCode.GET_BROKER_CLUSTER_INFO.value),
    "members": request(JsonCode.METADATA.value, {}, json.dumps(_MEMBER).encode()),
    "entries": request(JsonCode.GET.value, {}, json.dumps({**_MEMBER, "beginIndex": 0}).encode()),
    "vote": request(JsonCode.VOTE.value, {}, json.dumps(_MEMBER).encode()),
    "slave": bytes(8),
}


def ports_of(program: LiveProgram) -> dict[int, str]:
    """What each port is for at which a program listens: name server, broker, VIP, ledger, slaves.

    A port that is none of these is not known here, and fails.
    """
    own = int(program.address.rpartition(":")[2])
    if program.words[0] == "namesrv":
        known = {own: NAME_SERVER}
    else:
        known = {own: BROKER, own - 2: VIP, own + 1: SLAVES, **_configured_ports(program)}
    found = listening_ports(program.pid)
    strange = sorted(found - known.keys())
    assert not strange, f"nobody knows what the ports {strange} are for"
    return {port: known[port] for port in found}


def _configured_ports(program: LiveProgram) -> dict[int, str]:
    """The ledger port of a member of a group, and the HTTP port, by its configuration."""
    settings = dict(word.split("=", 1) for word in program.words if "=" in word)
    if "-c" in program.words:
        path = Path(program.words[program.words.index("-c") + 1])
        settings = parse_properties(path.read_text()) | settings
    found = {int(settings["httpPort"]): HTTP} if "httpPort" in settings else {}
    if "dLegerPeers" in settings:
        found[parse_peers(settings["dLegerPeers"])[settings["dLegerSelfId"]].port] = LEDGER
    return found


def find_open(programs: Mapping[str, LiveProgram], client_file: Path) -> list[str]:
    """Returns who is answered where, and should not be; each port of all programs is asked.

    An answer is a refusal only where somebody has come through TLS with a certificate of the
    cluster, and says that an account is missing. Who comes in plain, or shows no certificate, gets
    no answer at all: a port that refuses him in words listens to him.

    Args:
        programs: by their names.
        client_file: a tls.properties with the certificate of a client of the cluster.
    """
    settings = parse_properties(client_file.read_text())
    bare = ssl.create_default_context(cafile=settings["tls.client.trustCertPath"])
    certified = load_client_tls(str(client_file))
    found = []
    for name, program in programs.items():
        ports = ports_of(program)
        assert ports, f"{name} listens nowhere"
        for port, kind in sorted(ports.items()):
            for what, question in _QUESTIONS.items():
                for way, context in (("in plain", None), ("by TLS", bare)):
                    answer = _ask(port, question, context)
                    if answer is not None:
                        found.append(f"{name}, {kind}: {what} {way} is answered {answer.code}")
                answer = _ask(port, question, certified)
                if answer is not None and not _is_refusal(kind, answer):
                    found.append(f"{name}, {kind}: {what} with a certificate: {answer}")
    return found


def assert_closed(programs: Mapping[str, LiveProgram], client_file: Path) -> None:
    """Nothing is answered in plain or with TLS alone; a client's certificate alone is refused."""
    found = find_open(programs, client_file)
    assert found == [], f"{len(found)} answers: {found[:5]}"


def _is_refusal(kind: str, answer: RemotingCommand) -> bool:
    """Whether an answer says that its asker is nobody here."""
    if kind == LEDGER:
        # A Java member is told so in the body.
        told = json.loads(answer.body or b"{}").get("code")
        return told == DLedgerCode.UNKNOWN_MEMBER
    if kind == NAME_SERVER:
        is_about = "needs an account at this name server" in (answer.remark or "")
        return answer.code == ResponseCode.NO_PERMISSION and is_about
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        # Of a program of another kind.
        return "not supported" in (answer.remark or "")
    return answer.code != 0 and "No accessKey is configured" in (answer.remark or "")


def _ask(port: int, question: bytes, context: ssl.SSLContext | None) -> RemotingCommand | None:
    """The answer; None when the connection was closed instead."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_ANSWER_S) as plain:
            if context is None:
                return _answer(plain, question)
            with context.wrap_socket(plain, server_hostname=LOOPBACK) as encrypted:
                return _answer(encrypted, question)
    except TimeoutError as error:
        raise AssertionError(f"port {port} neither answers nor closes") from error
    except OSError:
        return None


def _answer(connection: socket.socket, question: bytes) -> RemotingCommand | None:
    connection.sendall(question)
    decoder = FrameDecoder()
    while chunk := connection.recv(65_536):
        if frames := decoder.feed(chunk):
            return decode(frames[0])
    return None
