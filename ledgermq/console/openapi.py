"""The OpenAPI 3.1 document of the API, made from the table of routes and from the shapes.

python -m ledgermq.console.openapi      writes openapi.json anew
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from ledgermq import __version__
from ledgermq.console.routes import API, ROUTES, Gives, Leave, Route
from ledgermq.console.shapes.elements import Refusal

PATH: Final = Path(__file__).with_name("openapi.json")
_REFERENCE: Final = "#/components/schemas/{name}"
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_NUMBERS: Final = frozenset({"queue", "offset", "level"})
_DESCRIPTION: Final = (
    "What the console shows and does, for programs. Times are ms since 1970 (_ms) unless the name"
    " says that it is a span; null stands for what is not known. Each request of a session but GET"
    " carries the header X-CSRF-Token with the token of /session; bodies are application/json."
    " Whatever could not be asked is named in `answers`."
)
# Of the document itself.
_OWN: Final = {
    "operationId": "get_openapi",
    "summary": "this document",
    "tags": ["openapi.json"],
    "parameters": [],
    "responses": {
        "200": {
            "description": "this document",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
    "security": [{}],
}


def document() -> dict[str, Any]:
    """Returns the document."""
    types = [route.answer for route in ROUTES if route.gives is Gives.JSON]
    types += [route.body for route in ROUTES if route.body is not None]
    types += [route.query for route in ROUTES if route.query is not None]
    schemas, components = msgspec.json.schema_components([*types, Refusal], ref_template=_REFERENCE)
    found = {repr(one): schema for one, schema in zip([*types, Refusal], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        operation = _operation(route, found, components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    paths[f"{API}/openapi.json"] = {"get": _OWN}
    queries = {route.query.__name__ for route in ROUTES if route.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "LedgerMQ console",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {
                name: schema for name, schema in sorted(components.items()) if name not in queries
            },
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "ledgermq_session"},
                "csrf": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"},
            },
        },
    }


def encoded() -> bytes:
    """Returns the document as the file has it: each operation and each schema on a line."""
    whole = document()
    paths, components = whole.pop("paths"), whole.pop("components")
    schemas = components.pop("schemas")
    lines = [f'"{name}":{_written(value)},' for name, value in whole.items()]
    lines += ['"paths":{', _lines(paths), "},"]
    lines += ['"components":{"securitySchemes":' + _written(components["securitySchemes"]) + ","]
    lines += ['"schemas":{', _lines(schemas), "}}"]
    return ("{\n" + "\n".join(lines) + "\n}\n").encode()


def _lines(table: dict[str, Any]) -> str:
    return ",\n".join(f'"{name}":{_written(value)}' for name, value in table.items())


def _written(value: object) -> str:
    return msgspec.json.encode(_without_titles(value)).decode()


def _without_titles(value: Any) -> Any:
    """Titles repeat the names of the schemas."""
    if isinstance(value, dict):
        return {
            key: _without_titles(one)
            for key, one in value.items()
            if not (key == "title" and isinstance(one, str) and "type" in value)
        }
    return [_without_titles(one) for one in value] if isinstance(value, list) else value


def _operation(
    route: Route, schemas: dict[str, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    described = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.removeprefix(API).replace("/clusters/{cluster}", "").split("/")[1]],
        "parameters": _in_path(route) + _in_query(route, components),
        "responses": {"200": _answer(route, schemas), "default": _problem(schemas)},
        "security": _security(route),
    }
    if route.body is not None:
        content = {"application/json": {"schema": schemas[repr(route.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if name in _NUMBERS else {"type": "string"},
        }
        for name in _IN_PATH.findall(route.path)
    ]


def _in_query(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = components[route.query.__name__]
    return [
        {"name": name, "in": "query", "required": False, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _answer(route: Route, schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    schema = schemas[repr(route.answer)] if route.gives is Gives.JSON else {"type": "string"}
    return {"description": route.summary, "content": {route.gives.value: {"schema": schema}}}


def _problem(schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    content = {"application/json": {"schema": schemas[repr(Refusal)]}}
    return {"description": "Why it was refused", "content": content}


def _security(route: Route) -> list[dict[str, list[str]]]:
    if route.method == "GET":
        return [{} if route.leave is Leave.ANYBODY else {"session": []}]
    # Who signs in has no session yet, and who signs out may have none any more.
    return [{"session": [], "csrf": []}, *([{}] if route.leave is Leave.ANYBODY else [])]


if __name__ == "__main__":
    PATH.write_bytes(encoded())
