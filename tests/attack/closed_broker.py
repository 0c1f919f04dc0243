"""A real broker under access control, and requests that are signed by one of its accounts.

`shop` is the application that is attacked, `thief` an application with rights of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import Credentials
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram, broker

SHOP: Final = Credentials(access_key="shop-app", secret_key="secret-of-shop")
THIEF: Final = Credentials(access_key="thief-app", secret_key="secret-of-thief")
ROOT: Final = Credentials(access_key="root-app", secret_key="secret-of-root")
_RULES: Final = """
accounts:
- {accessKey: root-app, secretKey: secret-of-root, admin: true}
- accessKey: shop-app
  secretKey: secret-of-shop
  topicPerms: [orders=PUB|SUB, stock=PUB|SUB]
  groupPerms: [order-readers=SUB, shared-readers=SUB]
- accessKey: thief-app
  secretKey: secret-of-thief
  topicPerms: [bait=PUB|SUB, stock=PUB|SUB]
  groupPerms: [shared-readers=SUB]
"""


def write_rules(folder: Path) -> Path:
    """Writes the rules of the three accounts; returns their file."""
    rules = folder / "plain_acl.yml"
    rules.write_text(_RULES)
    rules.chmod(0o600)
    return rules


def closed_broker(folder: Path, *settings: str) -> LiveProgram:
    """Starts a broker with the three accounts."""
    rules = write_rules(folder)
    return broker(
        folder, "flushDiskType=ASYNC_FLUSH", "aclEnable=true", f"aclFile={rules}", *settings
    )


def ask(
    client: WireClient,
    who: Credentials,
    code: RequestCode,
    fields: dict[str, Any] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Sends a signed request and returns its answer."""
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return client.ask(code.value, who.signed(texts, body, code.value), body)


def beat(
    client: WireClient,
    who: Credentials,
    client_id: str,
    *,
    producers: tuple[str, ...] = (),
    consumers: tuple[str, ...] = (),
) -> RemotingCommand:
    """Sends a heart beat and returns its answer."""
    body = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": name} for name in producers],
        "consumerDataSet": [
            {
                "groupName": name,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [],
            }
            for name in consumers
        ],
    }
    return ask(client, who, RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
