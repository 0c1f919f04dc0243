"""The four questions about health as views: short for probes, with all checks for people.

    200  ok
    503  {"status": "failed", "reasons": [{"check": "lag", "reason": "is 12000 ..."}]}
         and while files are opened {..., "progress": {"done": 3, "total": 40, "unit": "bytes"}}

`?verbose` lists every check in the form that Kubernetes' own components use.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.broker.watching import health
from ledgermq.broker.watching.health import Check, Facts
from ledgermq.http.replies import Reply, json_reply, text_reply
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes, View

QUESTIONS: Final[dict[str, Callable[[Facts], list[Check]]]] = {
    "livez": health.live,
    "readyz": health.ready,
    "startupz": health.started,
    "quorum-safe": health.quorum_safe,
}


def add_health(routes: Routes, facts: Callable[[], Facts]) -> None:
    """Adds the four views; `facts` is asked at each request."""
    for name, question in QUESTIONS.items():
        routes.add("GET", f"/{name}", _view(name, question, facts))


def _view(name: str, question: Callable[[Facts], list[Check]], facts: Callable[[], Facts]) -> View:
    def view(request: Request) -> Reply:
        is_verbose = request.flag("verbose")
        known = facts()
        checks = question(known)
        failed = [check for check in checks if check.reason]
        status = 503 if failed else 200
        if is_verbose:
            return text_reply(_listed(name, checks), status=status)
        if not failed:
            return text_reply("ok")
        reasons = [{"check": check.name, "reason": check.reason} for check in failed]
        answer: dict[str, object] = {"status": "failed", "reasons": reasons}
        if known.total:
            answer["progress"] = {"done": known.done, "total": known.total, "unit": known.unit}
        return json_reply(answer, status=status)

    return view


def _listed(name: str, checks: list[Check]) -> str:
    lines = [
        f"[-]{check.name} failed: {check.reason}" if check.reason else f"[+]{check.name} ok"
        for check in checks
    ]
    outcome = "failed" if any(check.reason for check in checks) else "passed"
    return "\n".join([*lines, f"{name} check {outcome}", ""])
