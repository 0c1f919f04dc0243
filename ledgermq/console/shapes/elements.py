"""What many answers have in common."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

# Where a list begins, and how many rows of it are wanted.
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]
Limit = Annotated[int, Meta(ge=1, le=200)]
Order = Literal["asc", "desc"]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
QueueId = Annotated[int, Meta(ge=0, le=65_535)]
QueueOffset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[int, Meta(ge=0, le=2**53)]


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """What all shapes are: values with names, of which none is unknown."""


class Silent(Shape, frozen=True, kw_only=True):
    """A server that was asked and did not answer, or refused."""

    # Broker name and address, or the address of a name server.
    who: str
    address: str
    reason: str


class Answers(Shape, frozen=True, kw_only=True):
    """How complete an answer is: `answered` of `asked` servers, and who is missing."""

    asked: int
    answered: int
    silent: list[Silent]


class Problem(Shape, frozen=True, kw_only=True):
    """Why a request was refused."""

    # A word for programs and for translations, e.g. not_found, bad_request, not_signed_in.
    code: str
    # What happened, for people.
    message: str
    # The part of the request that is wrong, what it was, and what would have been right.
    field: str | None = None
    value: Any = None
    limit: Any = None


class Refusal(Shape, frozen=True, kw_only=True):
    """The body of every answer from 400 on; with 429, the header Retry-After says when to come."""

    error: Problem


class Event(Shape, frozen=True, kw_only=True):
    """Something that happened in a cluster, as the console saw it."""

    at_ms: int
    # leader_changed, no_leader, member_gone, member_back, disk_high, alarm, group_joined,
    # group_left, console_started
    code: str
    severity: Literal["info", "warning", "critical"]
    # Broker group, member or consumer group.
    subject: str
    # In English.
    text: str
    # What stands in the text, for translations.
    values: dict[str, str]


class Nothing(Shape, frozen=True, kw_only=True):
    """Done; there is nothing to tell."""


class ListQuery(Shape, frozen=True, kw_only=True):
    """A page of a list whose names may be filtered."""

    # Part of a name; upper and lower case are one.
    filter: Annotated[str, Meta(max_length=255)] = ""
    offset: Offset = 0
    limit: Limit = 50
    order: Order = "asc"
