"""Compiled SQL92 filters against an evaluator that is obvious and slow.

Each strategy draws the text of an expression together with a function that says what it means, so
the parser is checked as well: the function never sees the text.
"""

from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.broker.selectors.sql_filter import compile_node, compile_sql
from ledgermq.broker.selectors.sql_syntax import parse_sql
from ledgermq.broker.selectors.sql_values import SqlValueError
from ledgermq.state.errors import SubscriptionParseError

Properties = Mapping[str, str]
# TRUE, FALSE, NULL or FAILED.
Meaning = Callable[[Properties], str]
Drawn = tuple[str, Meaning]

names = st.sampled_from(["a", "b", "price", "$x", "_y", "And1"])
small = st.integers(0, 20)
texts = st.one_of(small.map(str), st.sampled_from(["-3", "+4", "abc", "2.5", " 7", "it's", "true"]))
properties = st.dictionaries(names, texts, max_size=6)


def meaning_of_order(sign: str, name: str, number: int, given: Properties) -> str:
    if name not in given:
        return "NULL"
    text = given[name]
    digits = text[1:] if text[0] in "+-" else text
    if not digits.isdigit():
        return "FAILED"
    value = int(text)
    met = {
        "<": value < number,
        "<=": value <= number,
        ">": value > number,
        ">=": value >= number,
        "=": value == number,
        "<>": value != number,
    }
    return "TRUE" if met[sign] else "FALSE"


@st.composite
def orders(draw: st.DrawFn) -> Drawn:
    sign = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]))
    name, number = draw(names), draw(small)
    blank = draw(st.sampled_from(["", " ", " /* c */ ", "\n"]))
    text = f"{name}{blank}{sign}{blank}{number}"
    return text, lambda given: meaning_of_order(sign, name, number, given)


@st.composite
def ranges(draw: st.DrawFn) -> Drawn:
    name = draw(names)
    low, high = sorted((draw(small), draw(small)))
    is_not = draw(st.booleans())

    def meaning(given: Properties) -> str:
        least = meaning_of_order(">=", name, low, given)
        most = meaning_of_order("<=", name, high, given)
        if least in ("NULL", "FAILED"):
            return least
        inside = least == most == "TRUE"
        return "TRUE" if inside is not is_not else "FALSE"

    return f"{name} {'not ' if is_not else ''}between {low} AND {high}", meaning


@st.composite
def lists(draw: st.DrawFn) -> Drawn:
    name, members, is_not = draw(names), draw(st.lists(texts, min_size=1)), draw(st.booleans())
    listed = ", ".join("'" + member.replace("'", "''") + "'" for member in members)

    def meaning(given: Properties) -> str:
        if name not in given:
            return "NULL"
        return "TRUE" if (given[name] in members) is not is_not else "FALSE"

    return f"{name} {'NOT ' if is_not else ''}IN ({listed})", meaning


@st.composite
def null_checks(draw: st.DrawFn) -> Drawn:
    name, is_not = draw(names), draw(st.booleans())
    text = f"{name} IS {'NOT ' if is_not else ''}NULL"
    return text, lambda given: "TRUE" if (name in given) is is_not else "FALSE"


def joined(word: str, drawn: list[Drawn]) -> Drawn:
    decisive = {"AND": "FALSE", "OR": "TRUE"}[word]
    otherwise = {"AND": "TRUE", "OR": "FALSE"}[word]

    def meaning(given: Properties) -> str:
        seen = []
        for _, part in drawn:
            value = part(given)
            if value in (decisive, "FAILED"):
                return value
            seen.append(value)
        return "NULL" if "NULL" in seen else otherwise

    return f" {word} ".join(f"({text})" for text, _ in drawn), meaning


def opposite(drawn: Drawn) -> Drawn:
    turned = {"TRUE": "FALSE", "FALSE": "TRUE", "NULL": "NULL", "FAILED": "FAILED"}
    return f"NOT ({drawn[0]})", lambda given: turned[drawn[1](given)]


leaves = st.one_of(orders(), ranges(), lists(), null_checks())
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=4)),
        inner.map(opposite),
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(expressions, properties)
def test_compiled_filter_means_what_the_slow_one_does(expression: Drawn, given: Properties) -> None:
    text, meaning = expression
    evaluate = compile_node(parse_sql(text))
    try:
        value = str(evaluate(given)).upper().replace("NONE", "NULL")
    except SqlValueError:
        value = "FAILED"
    assert value == meaning(given)
    assert compile_sql(text)(given) is (value == "TRUE")


@settings(max_examples=400, deadline=None)
@given(expressions, expressions, properties)
def test_and_binds_stronger_than_or(left: Drawn, right: Drawn, given: Properties) -> None:
    loose = f"{left[0]} OR ({right[0]}) AND a IS NULL"
    tight = f"({left[0]}) OR (({right[0]}) AND (a IS NULL))"
    assert compile_sql(loose)(given) is compile_sql(tight)(given)


words = st.sampled_from(
    [
        *"a b $x 1 0 2.5 'x' TRUE null and OR not IN between is".split(),
        *"= <> < <= ( ) , + - -- /* */ ! ' é".split(),
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(words, max_size=14).map(" ".join) | st.text(max_size=40), properties)
def test_any_text_is_compiled_or_refused(text: str, given: Properties) -> None:
    try:
        matcher = compile_sql(text)
    except SubscriptionParseError:
        return
    assert matcher(given) in (True, False)
