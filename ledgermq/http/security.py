"""Security headers: every reply has them, whatever its view says."""

from dataclasses import replace
from typing import Final

from ledgermq.http.replies import Reply

# A page loads from its own place only, runs no inline script, and is framed by nobody.
PAGE_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)
# What is no page is not to be taken for one.
DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"
_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Cache-Control", "no-store"),
)


def secured(reply: Reply) -> Reply:
    """Returns the reply with the headers that it does not set itself."""
    is_page = reply.content_type.startswith("text/html")
    policy = PAGE_POLICY if is_page else DATA_POLICY
    told = {name.lower() for name, _ in reply.headers}
    headers = (*_HEADERS, ("Content-Security-Policy", policy))
    missing = tuple(header for header in headers if header[0].lower() not in told)
    return replace(reply, headers=reply.headers + missing)
