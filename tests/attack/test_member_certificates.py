"""Attacks on the ledger port of a group whose members show certificates to each other."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol

from ledgermq.cli.certificates import Authority
from ledgermq.dledger.replica.member_tls import MemberTls
from ledgermq.protocol.tls.contexts import TlsSettingsError, load_client_tls
from ledgermq.protocol.tls.engine import TlsEngine
from ledgermq.protocol.transport.tls_link import TlsLink
from tests.attack.test_ledger_port import SECRET, Attacker, ClosedGroup, hello
from tests.e2e.replica_group import Member

HOSTS = {"n0": "10.9.9.1", "n1": "10.9.9.2", "n2": "10.9.9.3"}


def write_files(folder: Path, name: str, authority: Authority, **changes: str) -> str:
    """Writes the certificate of a name, and a file that uses it; returns the file's path."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    pair = authority.sign(name, "10.9.9.9", 1)
    (place / "certificate.pem").write_bytes(pair.certificate)
    (place / "key.pem").write_bytes(pair.key)
    (place / "authority.pem").write_bytes(authority.pair.certificate)
    keys = {"tls.server.need.client.auth": "require"}
    for end in ("server", "client"):
        keys |= {
            f"tls.{end}.certPath": str(place / "certificate.pem"),
            f"tls.{end}.keyPath": str(place / "key.pem"),
            f"tls.{end}.trustCertPath": str(place / "authority.pem"),
        }
    keys |= {key.replace("_", "."): value for key, value in changes.items()}
    path = place / "tls.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items() if value))
    return str(path)


def member_tls(path: str, *, is_required: bool = True) -> MemberTls:
    return MemberTls(path, HOSTS, is_required=is_required, serves_plain=False)


class TlsAttacker(Attacker):
    """An attacker behind TLS, as TlsLink wants it."""

    peer = "attacker"

    def use(self, transport: Any) -> None:
        self.transport = transport

    def close(self, reason: str) -> None:
        self.is_over = True
        self.transport.loseConnection()


class CertifiedGroup(ClosedGroup):
    changes: dict[str, Any] = {}
    is_required = True

    def prepare(self, directory: Path) -> None:
        self.authority, self.folder = Authority("the group's"), directory
        for id_, member in self.group.members.items():
            path = write_files(directory, id_, self.authority)
            tls = member_tls(path, is_required=self.is_required)
            member.config = replace(member.config, tls=tls)

    async def attack_by_tls(self, victim: Member, context: ssl.SSLContext, sender: str) -> Attacker:
        target = victim.config.self_id
        port = victim.config.addresses()[target].port
        endpoint: Any = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        attacker = TlsAttacker()
        link = TlsLink(attacker, engine=TlsEngine(context, is_server=False))
        await connectProtocol(endpoint, link)
        self.attackers.append(attacker)
        attacker.send(hello(target, sender))
        return attacker

    def context_of(self, name: str, authority: Authority) -> ssl.SSLContext:
        return load_client_tls(write_files(self.folder / "foreign", name, authority))


class CertificateAttacks(CertifiedGroup):
    async def test_only_the_certificate_of_a_member_makes_one(self) -> None:
        victim = self.victims()[0]
        target = victim.config.self_id
        sender, other = (id_ for id_ in self.group.members if id_ != target)
        # Without TLS, with the certificate of an application, and with that of another member.
        plain = await self.attack(victim, hello(target, sender))
        await self.end_of(plain)
        self.assertEqual(plain.answers, [])
        for name in ("orders-app", other):
            context = self.context_of(name, self.authority)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            attacker = await self.attack_by_tls(victim, context, sender)
            await self.end_of(attacker)
            self.assertEqual([answer.code for answer in attacker.answers], [401])
        self.assertIn(
            f"{sender} at 127.0.0.1: its certificate names {other}, 10.9.9.9, not"
            f" {' or '.join(sorted((sender, HOSTS[sender])))}",
            victim.running.refusals.texts(),
        )
        # Signed by somebody else; and none at all.
        foreign = self.context_of(sender, Authority("somebody's"))
        none = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (foreign, none):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            attacker = await self.attack_by_tls(victim, context, sender)
            await self.end_of(attacker)
            self.assertEqual(attacker.answers, [])
        await self.assert_unharmed()

    async def test_a_new_certificate_is_used_without_a_stop(self) -> None:
        for id_, member in self.group.members.items():
            write_files(self.folder, id_, self.authority)
            tls = member.config.tls
            assert tls is not None
            self.assertTrue(tls.files.reload())
        follower = self.victims()[1]
        await follower.stop()
        await follower.start(follower.applier.ranges[-1][1] - 1)
        await self.assert_unharmed()


class CertificatesAndSecret(CertifiedGroup):
    changes: dict[str, Any] = {"group_secret": SECRET}

    async def test_both_are_asked_for(self) -> None:
        victim = self.victims()[0]
        sender = next(id_ for id_ in self.group.members if id_ != victim.config.self_id)
        context = self.context_of(sender, self.authority)
        attacker = await self.attack_by_tls(victim, context, sender)
        await self.end_of(attacker)
        self.assertEqual([answer.code for answer in attacker.answers], [401])
        await self.assert_unharmed()


class FromOpenToCertified(ClosedGroup):
    changes: dict[str, Any] = {}

    def prepare(self, directory: Path) -> None:
        self.folder = directory

    async def test_a_group_gets_certificates_member_by_member(self) -> None:
        authority = Authority("the group's")
        paths = {id_: write_files(self.folder, id_, authority) for id_ in self.group.members}
        for is_required in (False, True):
            for id_, member in self.group.members.items():
                await member.stop()
                leader = await self.group.wait_for_leader()
                index = leader.running.propose([b"meanwhile"])[-1].last_index
                await self.group.wait_for_commit(leader.running, index)
                tls = member_tls(paths[id_], is_required=is_required)
                member.config = replace(member.config, tls=tls)
                await member.start(member.applier.ranges[-1][1] - 1)
                await self.group.wait_for_leader()
                await self.group.wait_until_equal()
        leader = self.victims()[0]
        attacker = await self.attack(leader, hello(leader.config.self_id, "n1"))
        await self.end_of(attacker)
        self.assertEqual(attacker.answers, [])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tls_server_need_client_auth": ""}, "tls.server.need.client.auth must be require"),
        ({"tls_client_certPath": ""}, "tls.client.certPath is missing"),
        ({"tls_client_trustCertPath": ""}, "tls.client.trustCertPath is missing"),
        ({"tls_member_names": "n7=x"}, "tls.member.names has 'n7=x'"),
        ({"tls_member_names": "n0="}, "tls.member.names has 'n0='"),
    ],
)
def test_a_file_that_leaves_a_hole_is_refused(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    path = write_files(tmp_path, "n0", Authority("the group's"), **changes)
    with pytest.raises(TlsSettingsError, match=said):
        member_tls(path)


def test_names_of_members_are_those_of_the_file(tmp_path: Path) -> None:
    names = {"tls_member_names": "n0=Broker-A.lan,spiffe://lan/n0; n1=10.0.0.2"}
    tls = member_tls(write_files(tmp_path, "n0", Authority("the group's"), **names))
    assert tls.refusal("n0", ("broker-a.lan",)) is None
    assert tls.refusal("n0", ("x", "spiffe://lan/n0")) is None
    assert tls.refusal("n1", ("10.0.0.2",)) is None
    assert "names n1, not 10.0.0.2" in str(tls.refusal("n1", ("n1",)))
    assert tls.refusal("n2", ("n2",)) is None and tls.refusal("n2", ("10.9.9.3",)) is None
    assert "shows no certificate" in str(tls.refusal("n2", ()))
