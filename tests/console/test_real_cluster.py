"""The page on real clusters, in a real Chromium; `make console-test` runs this."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledgermq.client import Message
from ledgermq.client.blocking import Producer
from tests.console.test_browser import ROOT, missing
from tests.e2e.console.api_client import Api
from tests.e2e.console.test_changes import done
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(900),
]
SECONDS_MAX = 800
LETTERS = 1000
TOPIC, GROUP = "Buried", "Gravediggers"
# The broker refuses other characters in names of topics; in keys, tags and bodies all may stand.
HOSTILE = "<img src=x onerror=alert(1)>"
ADMIN = {"accessKey": "operator", "secretKey": "operator-secret", "admin": True}
GUEST = {
    "accessKey": "guestling",
    "secretKey": "guestling-secret",
    "admin": False,
    "defaultTopicPerm": "DENY",
    "defaultGroupPerm": "SUB",
    "topicPerms": ["Mine=PUB|SUB"],
}


def run(script: str, cluster: UpCluster, **values: str) -> None:
    """Runs a script of browser/ at a cluster's console; fails with all that it printed."""
    finished = subprocess.run(
        ["node", "--test", "--test-reporter=spec", f"tests/console/browser/{script}"],
        cwd=ROOT,
        env={
            **os.environ,
            "CONSOLE_PYTHON": sys.executable,
            "CONSOLE_URL": cluster.console,
            "CONSOLE_READY": str(cluster.folder / "ready.json"),
            **values,
        },
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(finished.stdout)
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """Three brokers with messages of all kinds, and a thousand dead letters."""
    folder = tmp_path_factory.mktemp("page")
    with UpCluster(folder, node_count=3, console=True) as found:
        api = Api(found.console).opened()
        for topic in (TOPIC, "Orders", f"%DLQ%{GROUP}"):
            done(api, "create_topic", topic=topic, read_queues=1, write_queues=1)
        done(api, "create_group", group=GROUP)
        for topic in (TOPIC, "Orders", f"%DLQ%{GROUP}"):
            wait_until(lambda name=topic: api.call("get_topic", topic=name).route, what="the route")
        send_all(found.name_server)
        yield found


def send_all(name_server: str) -> None:
    bodies = [
        json.dumps({"order": 1, "note": HOSTILE}).encode(),
        bytes(range(256)),
        b"\xff\xfe broken \xc3",
        (HOSTILE + "\0\x07\u202e").encode() * 100_000,
        b"",
    ]
    with Producer(name_server) as producer:
        for number, body in enumerate(bodies):
            keys, tags = f"k{number}", HOSTILE if number else "paid"
            producer.send(
                Message("Orders", body, keys=keys, tags=tags, properties={"<b>": "\u202e"})
            )
        for number in range(LETTERS):
            properties = {"RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": f"o{number}"}
            body = f"letter {number}".encode()
            letter = Message(f"%DLQ%{GROUP}", body, keys=f"d{number}", properties=properties)
            producer.send(letter)


def found_in(api: Api, topic: str) -> Any:
    begun = api.call("start_search", {"topic": topic, "found_max": 1000})
    wait_until(lambda: api.call("get_search", search=begun.id).state != "running", what="a search")
    return api.call("get_search", search=begun.id)


def test_the_page_on_a_real_cluster(cluster: UpCluster) -> None:
    run("cluster.mjs", cluster)
    # Each letter once: the page confirmed one change, and no more.
    assert found_in(Api(cluster.console).opened(), TOPIC).found == LETTERS


def test_sign_in_and_roles(tmp_path: Path) -> None:
    rules = tmp_path / "plain_acl.yml"
    rules.write_text(yaml.safe_dump({"accounts": [ADMIN, GUEST]}))
    rules.chmod(0o600)
    settings = ("aclEnable=true", f"aclFile={rules}")
    with UpCluster(tmp_path, node_count=1, settings=settings, console=True) as closed:
        api = Api(closed.console)
        wait_until(lambda: api.call("get_session").sign_in_needed, what="a broker that asks")
        run("sign_in.mjs", closed)
