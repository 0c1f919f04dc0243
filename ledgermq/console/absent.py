"""How something that is not there is told."""

from ledgermq.http.replies import RequestError


def missing(what: str, name: str) -> RequestError:
    """Returns the refusal of something that is not there."""
    return RequestError(404, f"there is no {what} {name!r}", field=what, value=name)
