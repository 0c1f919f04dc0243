"""The table of the API and its document: what they say must be the same, and complete."""

import inspect
import json

import msgspec
import pytest

from ledgermq.console import openapi
from ledgermq.console.routes import ROUTES, Leave, Route
from ledgermq.console.shapes import actions, brokers, groups, messages, session, topics
from ledgermq.console.shapes.elements import Shape


def _each(route: Route) -> str:
    return route.name


def test_the_file_is_what_the_table_says() -> None:
    """`python -m ledgermq.console.openapi` writes it."""
    assert openapi.PATH.read_bytes() == openapi.encoded()


def test_each_name_and_each_place_stands_once() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=_each)
def test_each_route_is_documented(route: Route) -> None:
    operation = openapi.document()["paths"][route.path][route.method.lower()]
    assert operation["operationId"] == route.name
    assert route.gives.value in operation["responses"]["200"]["content"]
    assert ("requestBody" in operation) == (route.body is not None)


@pytest.mark.parametrize("route", ROUTES, ids=_each)
def test_nobody_changes_anything_by_reading(route: Route) -> None:
    if route.method == "GET":
        assert route.leave is not Leave.CHANGER


def test_each_reference_leads_somewhere() -> None:
    text = openapi.encoded().decode()
    schemas = json.loads(text)["components"]["schemas"]
    named = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= set(schemas)


@pytest.mark.parametrize("module", [session, brokers, topics, groups, messages, actions])
def test_fields_of_answers_are_always_there(module: object) -> None:
    """What a page reads has no hidden default; requests may leave out what has one."""
    requests = {route.query for route in ROUTES} | {route.body for route in ROUTES}
    requests |= set(actions.Wanted.__args__)
    for _, found in inspect.getmembers(module, inspect.isclass):
        if not issubclass(found, Shape) or found in requests or found.__name__.startswith("_"):
            continue
        if found.__name__ in ("ListQuery", "Shape"):
            continue
        fields = msgspec.structs.fields(found)
        assert all(field.required for field in fields), found
