"""Settings from the URL and the transport options."""

from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

import ledgermq.celery  # noqa: F401
from ledgermq.celery.options import Settings, read_settings
from ledgermq.client import ConfigError
from tests.certificate_files import write_tls_file


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("ledgermq://h:1", {"name_servers": "h:1"}),
        ("ledgermq://", {"name_servers": "127.0.0.1:9876"}),
        ("ledgermq://h1,h2:77/shop", {"name_servers": "h1:9876;h2:77", "namespace": "shop"}),
        ("ledgermq://h:1//", {"name_servers": "h:1", "namespace": ""}),
        (
            "ledgermq://me:s%40crt@h:1,g:2/?tls=/etc/tls.properties&lost_after_s=5",
            {
                "name_servers": "h:1;g:2",
                "access_key": "me",
                "secret_key": "s@crt",
                "tls": "/etc/tls.properties",
                "lost_after_s": 5.0,
            },
        ),
    ],
)
def test_url(url: str, fields: dict[str, Any]) -> None:
    assert read_settings(url, {}) == Settings(**fields)


def test_secret_is_not_shown() -> None:
    settings = read_settings("ledgermq://me:hidden@h:1", {})
    assert settings.secret_key == "hidden" and "hidden" not in repr(settings)


def test_options_win_and_those_of_kombu_are_left_out() -> None:
    options = {"lost_after_s": 7, "secret_key": "k", "polling_interval": 1, "max_retries": 3}
    settings = read_settings("ledgermq://a:b@h:1?lost_after_s=5", options)
    assert settings == Settings(
        name_servers="h:1", access_key="a", secret_key="k", lost_after_s=7.0
    )


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("redis://h:1", {}, "redis"),
        ("ledgermq://h:1", {"lost_after": 3}, "lost_after_s"),
        ("ledgermq://h:1", {"lost_after_s": "soon"}, "soon"),
        ("ledgermq://h:1", {"lost_after_s": 0.1}, "lost_after_s is 0.1"),
        ("ledgermq://h:1", {"worker_deaths_max": -1}, "worker_deaths_max is -1; allowed: 0"),
        ("ledgermq://h:1?worker_deaths_max=many", {}, "many"),
    ],
)
def test_what_is_wrong_is_told(url: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_settings(url, options)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ledgermq://h:1,g:2/shop", "ledgermq://h:1,g:2/shop"),
        ("ledgermq://me:key@h:1,g:2/shop", "ledgermq://me:**@h:1,g:2/shop"),
        ("ledgermq://h:1/?secret_key=k/y&tls=f", "ledgermq://h:1/?secret_key=**&tls=f"),
    ],
)
def test_people_do_not_see_the_secret_key(url: str, shown: str) -> None:
    transport = Connection(url).transport
    assert transport.as_uri(url) == shown
    assert transport.as_uri(url, include_password=True) == url


def test_tls_is_read_from_its_file(tmp_path: Path) -> None:
    path = write_tls_file(tmp_path / "tls.properties")
    assert read_settings(f"ledgermq://h:1?tls={path}", {}).producer().client.tls is not None


def test_client_has_namespace_and_keys() -> None:
    client = read_settings("ledgermq://me:key@h:1/shop", {}).client()
    assert client.namespace == "shop"
    assert client.credentials is not None and client.credentials.secret_key == "key"
