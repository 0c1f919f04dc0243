"""Is a request signed by an account? The stock form, the strong one, or only the latter.

A strong signature holds for `WINDOW_MS` around its time, by the wall clocks of both machines: no
other clock is common to them. Within that time each request counts once (`replays.py`), for as long
as this process lives, and of each process for itself.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from ledgermq.protocol.replays import Replays
from ledgermq.protocol.signature import (
    NONCE,
    SIGNED_AT,
    SIGNED_FOR,
    SIGNED_FORM,
    STRONG_FORM,
    is_signed_by,
    is_strongly_signed_by,
)

ANY: Final = "any"
STRONG: Final = "strong"
WINDOW_MS: Final = 300_000
_NONCE: Final = re.compile(r"([0-9a-f]{32})-([0-9]{1,15})", re.ASCII)
_SHOWN_MAX: Final = 128
_TIME: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_WRONG: Final = "Check signature failed for accessKey="


def is_of_who_reads_strong_form(refusal: str | None, access_key: str) -> bool:
    """Tells whether a refusal of a strong signature says more of it than that it is wrong: whoever
    does not know that form cannot.
    """
    return (refusal or "").startswith(f"{_WRONG}{access_key}: ")


class SignatureCheck:
    """Looks at signatures, and remembers those of the strong form."""

    def __init__(
        self,
        wanted: str = ANY,
        now_ms: Callable[[], float] = lambda: time.time_ns() // 1_000_000,
        clock_ms: Callable[[], float] = lambda: time.monotonic() * 1000.0,
    ) -> None:
        """Begins with nothing seen.

        Args:
            wanted: ANY or STRONG.
            now_ms: wall clock.
            clock_ms: a clock that never goes back.
        """
        self._is_strong_wanted = wanted == STRONG
        self._now_ms, self._clock_ms = now_ms, clock_ms
        # After twice the window everything signed before is too old, whatever its time said.
        self._replays = Replays(2 * WINDOW_MS)

    def find_refusal(
        self,
        code: int,
        ext_fields: Mapping[str, str],
        body: bytes,
        access_key: str,
        secret_key: str,
        is_own: Callable[[str], bool] | None = None,
    ) -> str | None:
        """Returns why a request does not count as signed by an account; None when it does.

        It counts once: a second call with the same request gives a reason.

        Args:
            is_own: whether a "host:port" is one by which this program is reached; None: nobody
                looks for whom it was signed.
        """
        wrong = f"{_WRONG}{access_key}"
        form = ext_fields.get(SIGNED_FORM)
        if form is None:
            if self._is_strong_wanted:
                return f"{wrong}: it is of the stock form, allowed is strong (key aclSignature)"
            return None if is_signed_by(ext_fields, body, secret_key) else wrong
        if form != STRONG_FORM:
            return f"{wrong}: {SIGNED_FORM} is {form[:16]!r}, allowed is {STRONG_FORM}"
        nonce = _NONCE.fullmatch(ext_fields.get(NONCE, ""))
        signed_at = _TIME.fullmatch(ext_fields.get(SIGNED_AT, ""))
        if nonce is None or signed_at is None:
            return f"{wrong}: {NONCE} or {SIGNED_AT} is missing or malformed"
        if not is_strongly_signed_by(code, ext_fields, body, secret_key):
            return wrong
        signed_for = ext_fields.get(SIGNED_FOR)
        if signed_for and is_own is not None and not any(map(is_own, signed_for.split(","))):
            return (
                f"{wrong}: it was signed for {signed_for[:_SHOWN_MAX]!r}, which is another one"
                " (key aclSignedAddresses)"
            )
        age_ms = int(self._now_ms()) - int(signed_at[0])
        if abs(age_ms) > WINDOW_MS:
            return (
                f"{wrong}: it was signed {age_ms} ms ago by the clocks of both machines, allowed"
                f" are {WINDOW_MS} before and after"
            )
        reason = self._replays.find_refusal(access_key, nonce[1], int(nonce[2]), self._clock_ms())
        return None if reason is None else f"{wrong}: {reason}"
