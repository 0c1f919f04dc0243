"""What 5.x says of a group beyond 4.9: read, kept within bounds, written back."""

import json
from typing import Any

import pytest

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.group_settings import SETTINGS_BYTES_MAX, GroupSettings

# As a tool of 5.3 sends them.
TOLD: dict[str, Any] = {
    "attributes": {},
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 30,
    "groupRetryPolicy": {
        "customizedRetryPolicy": {"next": [1000, 5000]},
        "exponentialRetryPolicy": {"initial": 100, "max": 2000, "multiplier": 3},
        "type": "EXPONENTIAL",
    },
    "groupSysFlag": 4,
    "subscriptionDataSet": [
        {"expression": "*", "expressionType": "TAG", "topic": "T", "version": 7}
    ],
}


def test_settings_are_given_back_as_they_came() -> None:
    settings = GroupSettings.decode(json.dumps({"groupName": "g", **TOLD}).encode())
    assert settings.to_plain() == TOLD
    assert settings.changes() == {name: TOLD[name] for name in TOLD if name != "attributes"}
    assert GroupSettings.kept({"groupName": "g", **settings.changes()}) == settings


def test_new_group_changes_nothing_and_is_shown_with_what_holds() -> None:
    told = b'{"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"subscriptionDataSet":null}'
    for settings in (GroupSettings.decode(told), GroupSettings.decode(b'{"groupName":"g"}')):
        assert settings.changes() == {}
        assert settings.to_plain() == {
            "attributes": {},
            "consumeMessageOrderly": False,
            "consumeTimeoutMinute": 15,
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "groupSysFlag": 0,
        }


@pytest.mark.parametrize(
    "wrong",
    [
        {"groupRetryPolicy": {"type": "SOMETIMES"}},
        {"consumeTimeoutMinute": 2**31},
        {"subscriptionDataSet": [{"expression": "*"}]},
        {"consumeMessageOrderly": "perhaps"},
    ],
)
def test_what_does_not_fit_is_refused_from_a_tool_and_left_out_of_a_file(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(RemoteProtocolError):
        GroupSettings.decode(json.dumps(wrong).encode())
    assert GroupSettings.kept({**wrong, "groupSysFlag": 4}) == GroupSettings(group_sys_flag=4)


def test_too_much_is_not_kept() -> None:
    policy = {"customizedRetryPolicy": {"next": [2**60] * 4000}}
    told = GroupSettings.decode(json.dumps({"groupRetryPolicy": policy}).encode())
    assert told.json_bytes > SETTINGS_BYTES_MAX
    assert GroupSettings.kept(told.changes()) == GroupSettings()
