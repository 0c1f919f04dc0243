"""Who of the admins that list the accounts gets their secret keys, too."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.broker.access.processor import AccessProcessor
from ledgermq.broker.access.rules import parse_rules
from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import Credentials

RULES = {"accounts": [{"accessKey": "operator", "secretKey": "secret-of-all", "admin": True}]}
OWN_HOST = "10.0.0.1"
LIST = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG


def listed(peer_host: str, form: Any, **settings: str) -> bytes:
    """What the operator gets who asks from an address with a form of signature."""
    unused: Any = None
    table = cast(Any, SimpleNamespace(rules=parse_rules(RULES)))
    config = load_broker_config(None, settings)
    processor = AccessProcessor(config, unused, table, address=f"{OWN_HOST}:10911")
    signer = Credentials(access_key="operator", secret_key="secret-of-all", form=form)
    command = RemotingCommand(code=LIST, ext_fields=signer.signed({}, b"", LIST))
    connection = cast(Any, SimpleNamespace(peer_host=peer_host, own_host=OWN_HOST))
    answer = processor.list_accounts(connection, command)
    assert isinstance(answer, RemotingCommand) and b"operator" in answer.body
    return answer.body


@pytest.mark.parametrize(
    ("peer_host", "form", "settings", "is_shown"),
    [
        # A look at a broker, of which the signature is seen, is signed as this request is.
        ("10.0.0.2", "stock", {}, False),
        ("10.0.0.2", "strong", {}, True),
        (OWN_HOST, "stock", {}, True),
        (OWN_HOST, "strong", {"aclShowSecretKeys": "never"}, False),
        ("10.0.0.2", "stock", {"aclShowSecretKeys": "always"}, True),
    ],
)
def test_secrets_are_shown_to_who_is_on_the_machine_or_signs_strongly(
    peer_host: str, form: str, settings: dict[str, str], is_shown: bool
) -> None:
    assert (b"secret-of-all" in listed(peer_host, form, **settings)) == is_shown
