"""What clients say of themselves makes a bounded number of series."""

import pytest

from ledgermq.broker.service.topic_metrics import version_of


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (477, "477"), (1023, "1023"), (1024, "_other"), (-1, "_other")]
)
def test_versions_that_no_client_has_are_one(number: int, shown: str) -> None:
    assert version_of(number) == shown
