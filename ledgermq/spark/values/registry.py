"""A client of schema registries that speak Confluent's REST API, as small as reading needs it.

    GET /subjects/SUBJECT/versions/latest     {"id": 7, "schema": "...", "schemaType": "JSON", ...}
    GET /schemas/ids/7                        {"schema": "...", "schemaType": ..., "references": []}
    GET /subjects/SUBJECT/versions/3          what a reference names

An answer has a bound in bytes and in time. What may pass (no connection, 429, 5xx) is tried again
until the timeout; what does not is an error at once. Redirects are not followed: they would carry
the account to another host. An AVRO schema has no "schemaType".
"""

import base64
import binascii
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Final, NamedTuple

import msgspec

from ledgermq.spark.cluster import PassingError, Patience
from ledgermq.spark.errors import ClusterError, ValueSchemaError
from ledgermq.spark.values.codec import SchemaDocument
from ledgermq.spark.values.limits import SCHEMA_BYTES_MAX, shortened
from ledgermq.spark.values.timed_http import TimedHttp, TimedHttps
from ledgermq.spark.values.value_options import AVRO, JSON, PROTOBUF, RegistryAddress

# An answer repeats a schema as a text in JSON, which is longer.
_ANSWER_BYTES_MAX: Final = 4 * SCHEMA_BYTES_MAX
_CHUNK_BYTES: Final = 64 * 1024
# Of one request; the timeout of the read is that of all its tries.
_REQUEST_S_MAX: Final = 10.0
# Schemas that one schema refers to, directly or through others.
_REFERENCES_MAX: Final = 64
_FORMATS: Final = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTOBUF}
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchemaError(Exception):
    """The registry has no such id or subject; its text names it."""


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    # Text; base64 of a FileDescriptorProto for Protobuf.
    schema: str
    schema_type: str = "AVRO"
    references: list[_Reference] | None = None
    id: int = -1


class Registered(NamedTuple):
    """A schema with its number."""

    id: int
    document: SchemaDocument


class Registry:
    """Asks a registry; holds no connection between two requests."""

    def __init__(self, address: RegistryAddress, timeout_s: float) -> None:
        """Takes whom to ask.

        Args:
            address: of the registry.
            timeout_s: how long a registry may be gone.
        """
        self._address = address
        self._timeout_s = timeout_s
        self._opener = urllib.request.OpenerDirector()
        for part in (
            urllib.request.ProxyHandler(),
            TimedHttp(),
            TimedHttps(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(part)

    def latest(self, subject: str) -> Registered:
        """Returns the latest schema of a subject.

        Raises:
            UnknownSchemaError: there is no such subject.
            ClusterError: the registry does not answer, or not with a schema.
            ValueSchemaError: the schema cannot be had whole.
        """
        answer = self._schema(f"/subjects/{_quoted(subject)}/versions/latest")
        if not 0 <= answer.id < 2**31:
            raise self._error(f"the latest schema of {subject} has the id {answer.id}")
        return Registered(answer.id, self._document(f"subject {subject}", answer))

    def by_id(self, schema_id: int) -> SchemaDocument:
        """Returns the schema of an id; raises as `latest` does."""
        return self._document(f"id {schema_id}", self._schema(f"/schemas/ids/{schema_id}"))

    def _document(self, name: str, answer: _Answer) -> SchemaDocument:
        value_format = _FORMATS.get(answer.schema_type)
        if value_format is None:
            raise ValueSchemaError(name, f"its type is {shortened(answer.schema_type, 40)!r}")
        parts: dict[str, bytes] = {}
        self._collect(name, answer, value_format, parts, ())
        return SchemaDocument(
            value_format, name, (*parts.items(), ("", _content(name, answer, value_format)))
        )

    def _collect(
        self,
        name: str,
        answer: _Answer,
        value_format: str,
        parts: dict[str, bytes],
        above: tuple[str, ...],
    ) -> None:
        """Adds what a schema refers to, each after what it refers to itself."""
        for reference in answer.references or ():
            if reference.name in parts:
                continue
            if reference.name in above or len(parts) + len(above) >= _REFERENCES_MAX:
                reason = f"its references go in a circle, or are more than {_REFERENCES_MAX}"
                raise ValueSchemaError(name, f"{reason}, at {shortened(reference.name, 80)}")
            path = f"/subjects/{_quoted(reference.subject)}/versions/{reference.version}"
            try:
                found = self._schema(path)
            except UnknownSchemaError as error:
                raise ValueSchemaError(name, f"a reference is missing: {error}") from error
            self._collect(name, found, value_format, parts, (*above, reference.name))
            parts[reference.name] = _content(name, found, value_format)

    def _schema(self, path: str) -> _Answer:
        # The sources of Protobuf would need its compiler; other formats do not look at this.
        data = self._get(f"{path}?format=serialized")
        try:
            return msgspec.json.decode(data, type=_Answer)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise self._error(f"{path} is answered with no schema: {error}") from error

    def _get(self, path: str) -> bytes:
        """Returns the answer to a request, of any size up to the bound."""
        patience = Patience(self._timeout_s)
        while True:
            try:
                return self._try(path)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404:
                        told = f"the registry {self._address.url} does not know {path}"
                        raise UnknownSchemaError(told) from error
                    if error.code != 429 and error.code < 500:
                        raise self._error(f"{path}: {error.code} {error.reason}") from error
                    failure = PassingError(f"{path}: {error.code} {error.reason}")
            except (OSError, http.client.HTTPException) as error:
                failure = PassingError(f"{path}: {error!r}")
            patience.wait(f"registry {self._address.url}", failure)

    def _try(self, path: str) -> bytes:
        request = urllib.request.Request(self._address.url + path, headers={"Accept": _ACCEPT})
        if self._address.user:
            account = f"{self._address.user}:{self._address.password}".encode()
            request.add_unredirected_header(
                "Authorization", f"Basic {base64.b64encode(account).decode()}"
            )
        request_s = min(self._timeout_s, _REQUEST_S_MAX)
        deadline_s = time.monotonic() + request_s
        data = bytearray()
        with self._opener.open(request, timeout=request_s) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                data += chunk
                if len(data) > _ANSWER_BYTES_MAX:
                    raise self._error(f"{path} is answered with more than {_ANSWER_BYTES_MAX} B")
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"the answer took more than {request_s:g} s")
        return bytes(data)

    def _error(self, reason: str) -> ClusterError:
        return ClusterError(f"registry {self._address.url}", shortened(reason))


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _content(name: str, answer: _Answer, value_format: str) -> bytes:
    """Returns the schema of an answer as bytes."""
    if _FORMATS.get(answer.schema_type) != value_format:
        raise ValueSchemaError(name, f"it refers to a schema of the type {answer.schema_type!r}")
    if value_format != PROTOBUF:
        data = answer.schema.encode()
    else:
        try:
            data = base64.b64decode(answer.schema, validate=True)
        except (binascii.Error, ValueError) as error:
            reason = (
                "the registry gives it as source, it does not know ?format=serialized; take"
                " value.schema.file with descriptors instead"
            )
            raise ValueSchemaError(name, reason) from error
    if len(data) > SCHEMA_BYTES_MAX:
        raise ValueSchemaError(name, f"it has {len(data)} bytes, limit {SCHEMA_BYTES_MAX}")
    return data
