"""Places of pages of metrics: who does not read keeps its own, and not those of others."""

import pytest

from ledgermq.broker.watching.page_places import PagePlaces
from ledgermq.http.replies import RequestError


def test_one_network_takes_half_of_the_places() -> None:
    places = PagePlaces()
    held = [places.written("2001:db8::/64", iter([b"a", b"b"])) for _ in range(2)]
    assert [next(page) for page in held] == [b"a", b"a"]
    with pytest.raises(RequestError) as refused:
        places.written("2001:db8::/64", iter([]))
    assert refused.value.status == 503
    others = [places.written(f"10.0.0.{number}", iter([b"a", b"b"])) for number in (1, 2)]
    assert [next(page) for page in others] == [b"a", b"a"]
    with pytest.raises(RequestError):
        places.written("10.0.0.3", iter([]))
    # One is read to its end, one loses its connection.
    assert list(held[0]) == [b"b"]
    others[0].close()  # type: ignore[attr-defined]
    assert list(places.written("10.0.0.3", iter([b"c"]))) == [b"c"]
    assert list(places.written("2001:db8::/64", iter([b"c"]))) == [b"c"]
