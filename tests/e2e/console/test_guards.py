"""Who may ask: names, origins, tokens, accounts; and how often somebody may try."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledgermq.console.routes import ROUTES
from tests.e2e.console.api_client import Api, Refused
from tests.e2e.up_cluster import UpCluster
from tests.free_ports import free_first_port
from tests.processes import LiveProgram, run_ledgermq
from tests.waiting import wait_until

ADMIN = ("console-admin", "admin-secret-1234")
READER = ("console-reader", "reader-secret-1234")
WRITER = ("console-writer", "writer-secret-1234")
RULES = {
    "accounts": [
        {"accessKey": ADMIN[0], "secretKey": ADMIN[1], "admin": True},
        {
            "accessKey": WRITER[0],
            "secretKey": WRITER[1],
            "admin": False,
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "DENY",
            "topicPerms": ["Mine=PUB|SUB"],
            "groupPerms": ["MyGroup=SUB"],
        },
        {
            "accessKey": READER[0],
            "secretKey": READER[1],
            "admin": False,
            "defaultTopicPerm": "SUB",
            "defaultGroupPerm": "SUB",
        },
    ]
}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("", 421),
        ("localhost", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
    ],
)
def test_pages_of_strangers_do_not_reach_it_by_a_name_of_theirs(
    api: Api, host: str, status: int
) -> None:
    for target in ("/api/v1/session", "/api/v1/clusters", "/"):
        found = api.raw("GET", target, headers={"Host": host or " "})[0]
        assert found in (status, 404) if target == "/" else found == status


@pytest.mark.parametrize(
    "headers",
    [
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "x" * 43},
        {"X-CSRF-Token": "\xe9"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_nothing_is_changed_without_token_and_own_origin(api: Api, headers: dict[str, str]) -> None:
    body = {"kind": "create_topic", "topic": "Forged"}
    if headers.get("X-CSRF-Token") == "":
        api.token, headers = "", {}
    status, _, answer = api.raw("POST", "/api/v1/clusters/DefaultCluster/actions", body, headers)
    assert status == 403, answer


def test_a_form_is_no_request(api: Api) -> None:
    status, _, _ = api.raw(
        "POST",
        "/api/v1/clusters/DefaultCluster/actions",
        b"kind=create_topic",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert status == 415


def test_answers_are_no_pages_and_are_not_kept(api: Api) -> None:
    for target in ("/api/v1/session", "/api/v1/openapi.json", "/api/v1/none"):
        _, headers, _ = api.raw("GET", target)
        assert headers["content-type"] == "application/json"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """A cluster with accounts, and its console."""
    folder = tmp_path_factory.mktemp("closed")
    rules = folder / "plain_acl.yml"
    rules.write_text(yaml.safe_dump(RULES))
    rules.chmod(0o600)
    settings = ("aclEnable=true", f"aclFile={rules}")
    with UpCluster(folder, node_count=1, settings=settings, console=True) as cluster:
        yield cluster


@pytest.fixture
def stranger(closed: UpCluster) -> Api:
    api = Api(closed.console)
    wait_until(lambda: api.call("get_session").sign_in_needed, what="a broker that asks")
    return api


def test_without_an_account_nothing_is_shown(stranger: Api) -> None:
    session = stranger.call("get_session")
    assert (session.signed_in, session.role, session.may_change) == (False, "none", False)
    assert session.csrf_token == ""
    for route in ROUTES:
        if route.name in ("get_session", "sign_in", "sign_out"):
            continue
        target = stranger.target(route, None, dict.fromkeys(_PARTS, "1"))
        body = None if route.method == "GET" else {}
        assert stranger.raw(route.method, target, body)[0] == 401, route.name


_PARTS = (
    "broker", "topic", "group", "client", "queue", "offset", "search", "action", "level",
    "message_id",
)  # fmt: skip


def test_an_admin_signs_in_changes_and_signs_out(stranger: Api) -> None:
    session = stranger.sign_in(*ADMIN)
    assert (session.account, session.role, session.may_change) == (ADMIN[0], "admin", True)
    assert session.ends_ms is not None
    accounts = {one.access_key: one for one in stranger.call("get_access").accounts}
    assert accounts[ADMIN[0]].is_admin and accounts[WRITER[0]].topics == ["Mine=PUB|SUB"]
    assert ADMIN[1] not in repr(accounts)
    question = {"access_key": WRITER[0], "kind": "topic", "name": "Mine", "what": "PUB"}
    assert stranger.call("ask_may", question).allowed
    assert not stranger.call("ask_may", question | {"name": "Other"}).allowed
    for topic in ("Mine", "Others"):
        _done(stranger, {"kind": "create_topic", "topic": topic})
    cookie, token = stranger.cookie, stranger.token
    assert not stranger.call("sign_out").signed_in
    stranger.cookie, stranger.token = cookie, token
    with pytest.raises(Refused) as refused:
        stranger.call("get_overview")
    assert refused.value.status == 401


def _done(api: Api, body: dict[str, Any]) -> Any:
    action = api.call("preview_action", body)
    api.call("confirm_action", {"token": action.token}, action=action.id)
    wait_until(lambda: api.call("get_action", action=action.id).state == "done", what="a change")
    return api.call("get_action", action=action.id)


def test_others_see_and_do_what_their_rules_allow(stranger: Api) -> None:
    assert stranger.sign_in(*WRITER).role == "user"
    assert {row.topic for row in stranger.call("get_topics").rows} == {"Mine"}
    with pytest.raises(Refused) as refused:
        stranger.call("get_topic", topic="Others")
    assert refused.value.status == 404
    sent = _done(stranger, {"kind": "send_message", "topic": "Mine", "body": "x"})
    assert sent.counts == {"done": 1}, sent
    # What the brokers refuse is refused, and told.
    made = _done(stranger, {"kind": "create_topic", "topic": "Theirs"})
    assert made.counts == {"failed": 1}, made
    assert not stranger.call("get_access").enabled


def test_cookies_are_out_of_reach_of_pages(stranger: Api) -> None:
    status, headers, _ = stranger.raw(
        "POST", "/api/v1/session", {"access_key": READER[0], "secret_key": READER[1]}
    )
    assert status == 200
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    stranger.cookie = "ledgermq_session=" + "x" * 43
    with pytest.raises(Refused):
        stranger.call("get_clusters")


@pytest.fixture
def own_console(closed: UpCluster, tmp_path: Path) -> Iterator[Api]:
    """A console of its own, where tries count for nobody else."""
    words = ["console", "-n", closed.name_server, "--listen", "127.0.0.1:0", "--json"]
    words += ["--reader", WRITER[0]]
    with LiveProgram(words, tmp_path / "console.log") as program:
        wait_until(lambda: "url" in program.status, what="the console")
        api = Api(program.status["url"])
        wait_until(lambda: api.call("get_session").sign_in_needed, what="a broker that asks")
        yield api


def test_a_wrong_secret_is_refused_and_tries_are_counted(own_console: Api) -> None:
    for key, secret in ((ADMIN[0], "wrong-secret-1"), ("nobody", "wrong-secret-1")) * 2:
        with pytest.raises(Refused) as refused:
            own_console.sign_in(key, secret)
        assert refused.value.status == 401
        assert refused.value.error.message == "access key or secret key is wrong"
    assert own_console.sign_in(*ADMIN).signed_in
    with pytest.raises(Refused) as refused:
        own_console.sign_in(*ADMIN)
    assert refused.value.status == 429
    assert 0 < int(refused.value.headers["retry-after"]) <= 61


def test_tries_that_no_broker_could_judge_lock_nobody_out(tmp_path: Path) -> None:
    """Who signs in while a cluster starts, or moves its leader, comes in as soon as it can tell."""
    words = ["console", "-n", f"127.0.0.1:{free_first_port()}", "--listen", "127.0.0.1:0", "--json"]
    with LiveProgram(words, tmp_path / "console.log") as program:
        wait_until(lambda: "url" in program.status, what="the console")
        api = Api(program.status["url"])
        for _ in range(7):
            with pytest.raises(Refused) as refused:
                api.sign_in(*ADMIN)
            assert refused.value.status == 502


def test_a_reader_changes_nothing(own_console: Api) -> None:
    session = own_console.sign_in(*WRITER)
    assert (session.role, session.may_change) == ("reader", False)
    assert own_console.call("get_topics").total >= 0
    for name, body in (
        ("preview_action", {"kind": "send_message", "topic": "Mine", "body": "x"}),
        ("confirm_action", {"token": "x"}),
    ):
        with pytest.raises(Refused) as refused:
            own_console.call(name, body, action="x")
        assert refused.value.status == 403


def test_a_session_ends_with_its_account(stranger: Api, own_console: Api) -> None:
    stranger.sign_in(*ADMIN)
    account = {"access_key": "short-lived", "secret_key": "short-secret-1"}
    made = _done(
        stranger,
        {"kind": "put_account", **account, "default_topic": "SUB", "default_group": "SUB"},
    )
    assert made.counts == {"done": 1}, made
    assert "short-secret-1" not in repr(made)
    assert own_console.sign_in(*account.values()).role == "user"
    gone = _done(stranger, {"kind": "delete_account", "access_key": "short-lived"})
    assert gone.counts == {"done": 1}, gone
    entries = stranger.call("get_audit", query={"filter": "short-lived"}).entries
    assert {one.account for one in entries} == {ADMIN[0]}
    assert "short-secret-1" not in repr(entries)
    with pytest.raises(Refused) as refused:
        own_console.call("get_topic", topic="Mine")
    assert refused.value.status in (401, 403, 502)


def test_on_an_open_address_an_account_is_always_asked_for(
    api: Api, name_server: str, tmp_path: Path
) -> None:
    words = ["console", "-n", name_server, "--listen", "0.0.0.0:0", "--json"]
    with LiveProgram(words, tmp_path / "console.log") as program:
        wait_until(lambda: "url" in program.status, what="the console")
        open_api = Api(program.status["url"].replace("0.0.0.0", "127.0.0.1"))
        assert open_api.call("get_session").sign_in_needed
        with pytest.raises(Refused) as refused:
            open_api.call("get_clusters")
        assert refused.value.status == 401
        # The brokers ask for none: then nobody is who he says he is.
        with pytest.raises(Refused) as refused:
            open_api.sign_in("anybody", "anything")
        assert "ask for no account" in refused.value.error.message


def test_behind_a_proxy_browsers_come_by_https(closed: UpCluster, tmp_path: Path) -> None:
    words = ["console", "-n", closed.name_server, "--listen", "127.0.0.1:0", "--json"]
    words += ["--behind-proxy", "--host-name", "console.example"]
    with LiveProgram(words, tmp_path / "console.log") as program:
        wait_until(lambda: "url" in program.status, what="the console")
        api = Api(program.status["url"])
        wait_until(lambda: api.call("get_session").sign_in_needed, what="a broker that asks")
        body = {"access_key": ADMIN[0], "secret_key": ADMIN[1]}
        headers = {"Host": "console.example", "Origin": "https://console.example"}
        for peer in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
            # Tries are counted for whom the proxy saw, whatever stands before that.
            for _ in range(2):
                told = headers | {"X-Forwarded-For": f"198.51.100.9, {peer}"}
                status, answer, _ = api.raw("POST", "/api/v1/session", body, told)
                assert status == 200 and "Secure" in answer["set-cookie"]
        plain = headers | {"Origin": "http://console.example"}
        assert api.raw("POST", "/api/v1/session", body, plain)[0] == 403


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1:x", "127.0.0.1:70000", ":80"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    done: subprocess.CompletedProcess[str] = run_ledgermq("console", "--listen", listen)
    assert done.returncode == 78 and "--listen" in done.stderr
