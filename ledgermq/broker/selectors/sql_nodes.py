"""SQL92 filter expressions as trees: the nodes.

No frozen classes: a node would take four times as long to make, and an expression of 4 KiB has a
thousand. Nobody changes one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

Value = str | int | float | bool | None


@dataclass(slots=True)
class Literal:
    """A value that stands in the expression."""

    value: Value


@dataclass(slots=True)
class Property:
    """The text of a property of the message, null when it has none."""

    name: str


@dataclass(slots=True)
class Truth:
    """A property where a truth is needed: null stays null, any text is false."""

    operand: "Node"


@dataclass(slots=True)
class Not:
    """The opposite of a truth; null stays null."""

    operand: "Node"


@dataclass(slots=True)
class Negative:
    """A number with the other sign; null for anything else."""

    operand: "Node"


@dataclass(slots=True)
class Comparison:
    """Two values and one of = > >= < <=."""

    sign: str
    left: "Node"
    right: "Node"


@dataclass(slots=True)
class IsNull:
    """True when the operand is null, else false."""

    operand: "Node"


@dataclass(slots=True)
class IsOneOf:
    """True when a property is one of some texts."""

    operand: Property
    texts: frozenset[str]


@dataclass(slots=True)
class And:
    """From left to right, up to the first false."""

    operands: "tuple[Node, ...]"


@dataclass(slots=True)
class Or:
    """From left to right, up to the first true."""

    operands: "tuple[Node, ...]"


Node = Literal | Property | Truth | Not | Negative | Comparison | IsNull | IsOneOf | And | Or
TRUTHS: Final = (Comparison, Not, Truth, IsNull, IsOneOf, And, Or)
# By kind of node, what it is made of.
_OPERANDS: Final[dict[type, Callable[[Any], tuple[Node, ...]]]] = {
    Literal: lambda node: (),
    Property: lambda node: (),
    Truth: lambda node: (node.operand,),
    Not: lambda node: (node.operand,),
    Negative: lambda node: (node.operand,),
    Comparison: attrgetter("left", "right"),
    IsNull: lambda node: (node.operand,),
    IsOneOf: lambda node: (node.operand,),
    And: attrgetter("operands"),
    Or: attrgetter("operands"),
}


def is_higher(root: Node, levels: int) -> bool:
    """Tells whether a tree has more than so many levels."""
    level: list[Node] = [root]
    for _ in range(levels):
        level = [operand for node in level for operand in _OPERANDS[type(node)](node)]
    return bool(level)
