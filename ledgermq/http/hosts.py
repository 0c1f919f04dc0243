"""HostGuard: who may be asked, and by whose pages.

A page of a stranger can have its own name resolve to this machine (DNS rebinding) and then ask what
it likes, from inside of the network; the name that it asks for gives it away. And it can post forms
here under this machine's own name; then the browser says where they come from.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from ledgermq.http.replies import RequestError
from ledgermq.http.requests import Request

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"", "none", "same-origin"})


class HostGuard:
    """Lets in requests for names of this machine, and changes from its own pages."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """
        Args:
            names: further host names under which this machine is asked. Addresses and localhost
                are always let in: nobody can have them resolve to anything else.
        """
        self._names = frozenset(name.strip().lower().rstrip(".") for name in names) - {""}

    def __call__(self, request: Request) -> None:
        """
        Raises:
            RequestError: 421 the name is none of ours, 403 a page of another place asks.
        """
        host = request.headers.get("host", "")
        name = host_name(host)
        if name is None or not (_is_address(name) or name == "localhost" or name in self._names):
            raise RequestError(
                421,
                "this name is not known here; ask for the address, or have the name let in",
                field="Host",
                value=host,
                limit=sorted(self._names | {"localhost"}),
            )
        site = request.headers.get("sec-fetch-site", "")
        if request.method in _SAFE_METHODS:
            return
        origin = request.headers.get("origin")
        scheme = "https" if request.is_secure else "http"
        if origin is not None and origin.lower() != f"{scheme}://{host.lower()}":
            raise RequestError(
                403, "changes come from our own pages only", field="Origin", value=origin
            )
        if site.lower() not in _OWN_SITES:
            raise RequestError(
                403, "changes come from our own pages only", field="Sec-Fetch-Site", value=site
            )


def host_name(host: str) -> str | None:
    """Returns the name of a Host header in small letters, without its port; None when malformed."""
    host = host.lower()
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port.removeprefix(":")
    else:
        name, _, port = host.partition(":")
    if not name or (port and not (port.isascii() and port.isdigit() and len(port) <= 5)):
        return None
    return name.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
