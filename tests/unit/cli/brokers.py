"""What the brokers of a group tell of themselves, as values."""

from __future__ import annotations

from ledgermq.client.admin import BrokerState


def member(number: int, failure: str | None = None, **figures: str) -> BrokerState:
    told = {
        "ledgerRole": "LEADER" if number == 0 else "FOLLOWER",
        "ledgerTerm": "4",
        "ledgerSelfId": f"n{number}",
        "commitLogMaxOffset": "100000000",
        "commitLogDiskRatio": "0.5",
        "ledgerMembers": "n0,n1,n2",
        "ledgerClusterId": "51f1",
        "ledgerBootstrap": "",
    }
    return BrokerState(
        cluster="c",
        broker_name="g",
        broker_id=number,
        address=f"10.0.0.{number}:10911",
        failure=failure,
        figures={} if failure else told | figures,
    )
