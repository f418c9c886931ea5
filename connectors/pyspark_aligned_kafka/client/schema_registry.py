"""SchemaRegistry: requests schemas by their ids (Confluent's API), with limits on time, bytes and references.

Error messages hold no credentials, neither those in the address nor those given beside it.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

from watermark_source.connection_deadline import DeadlineConnection, body_of, json_object
from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SchemaError,
    UnreachableError,
    UsageError,
    shortened,
)

_LARGEST = 4 << 20
"""Limit on the bytes of a response, and of a schema with its references. Registries accept a megabyte; most schemas
have thousands of bytes."""
_MOST_REFERENCES = 1_000
_PAUSE_S = 0.2
_REFUSED = (401, 403)
_BUSY = 429
_SERVERS_FAULT = 500
_SHOWN = 80
"""Bytes of a response that an error contains."""
VERSIONS = IDS = range(2**31)
"""Registries number by Java's int, and answer a larger number as a page that they do not have."""
_UNKNOWN = range(40_401, 40_500)
"""A registry's ``error_code`` with status 404: no such subject, version or schema."""
_SERIALIZED = "?format=serialized"
"""Requests the text of a schema of Protobuf as a ``FileDescriptorProto`` in Base64."""


class RegisteredSchema(NamedTuple):
    """A schema of the registry."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[str, ...]
    """Texts of all schemas that it refers to, directly or through others."""
    names: tuple[str, ...] = ()
    """The names by which schemas refer to each of these, such as the path in an import of Protobuf."""


@dataclass(frozen=True)
class SchemaRegistry:
    """A client of one registry."""

    host: str
    port: int | None
    path: str
    tls: bool
    authorization: str | None = field(repr=False)
    timeout_ms: int

    @classmethod
    def of(cls, url: str, *, login: str | None, timeout_ms: int) -> SchemaRegistry:
        """Return the client of an address, validated without connecting.

        Args:
            url: the address, which may hold ``user:password@``.
            login: ``user:password``, or ``Bearer`` and a token.
            timeout_ms: time limit for a schema, all retries included.

        Raises:
            UsageError: the address or the login is invalid.
        """
        accepted = 'must be an address such as "https://registry:8081"'
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{accepted}; seen one that cannot be parsed") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{accepted}; seen one with scheme {parts.scheme!r} and host {parts.hostname!r}")
        if parts.query or parts.fragment:
            raise UsageError(f"{accepted}; seen one with ? or # in it, which has no meaning to a registry")
        if "@" in parts.path:
            raise UsageError(f"{accepted}; seen one with @ behind its host: write a / in a password as %2F")
        if not _is_sendable(parts.hostname, parts.path):
            raise UsageError(f"{accepted}; seen one with a host or a path that no request can have")
        within = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
        authorization = login = login or within
        if login is not None and login.startswith("Bearer "):
            if within is not None:
                raise UsageError("a schema registry takes a user or a token, and the address has a user")
            if not (login.isascii() and login.isprintable()):
                # The HTTP client would refuse the header with an error that holds the token.
                raise UsageError("must be of ASCII characters without line breaks; seen a token with others")
        elif login is not None:
            if ":" not in login:
                raise UsageError('must be "user:password", or "Bearer TOKEN"; seen a text without a colon')
            authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
        return cls(parts.hostname, port, parts.path.rstrip("/"), parts.scheme == "https", authorization, timeout_ms)

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}{port}{self.path}"

    def schema(self, number: int | UUID, *, serialized: bool = False) -> RegisteredSchema | None:
        """Return a schema and the schemas it refers to; ``None`` if the registry has no schema of this id or GUID.

        With ``serialized`` the texts of Protobuf are requested as ``FileDescriptorProto`` in Base64. A registry that
        does not have this format returns .proto files.

        Raises:
            SchemaError: it refers to schemas that the registry does not have, or to too many of them.
            RefusedError: the registry refuses the login.
            UnreachableError, ResponseTimeoutError: no connection, or no valid response, within the time limit.
        """
        return self._schema(f"/schemas/{'guids' if isinstance(number, UUID) else 'ids'}/{number}", serialized)

    def version(self, subject: str, version: int, *, serialized: bool = False) -> RegisteredSchema | None:
        """Return a version of a subject, as ``schema``."""
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/{version}", serialized)

    def _schema(self, path: str, serialized: bool) -> RegisteredSchema | None:
        end, form = time.monotonic() + self.timeout_ms / 1_000, _SERIALIZED if serialized else ""
        schema = self._requested(f"{path}{form}", end)
        if schema is None:
            return None
        references = self._references(schema, form, end)
        kind = str(schema.get("schemaType") or "AVRO")
        return RegisteredSchema(
            kind, schema["schema"], tuple(t for _, t in references), tuple(n for n, _ in references)
        )

    def _references(self, schema: dict[str, Any], form: str, end: float) -> list[tuple[str, str]]:
        """Return name and text of all schemas that a schema refers to, each once, even if they refer to each other."""
        texts: dict[tuple[str, int], tuple[str, str]] = {}
        waiting, size = deque(self._references_in(schema)), len(schema["schema"])
        while waiting:
            name, subject, version = waiting.popleft()
            if (subject, version) in texts:
                continue
            named = f"version {version} of subject {shortened(subject)}"
            if len(texts) == _MOST_REFERENCES:
                raise SchemaError(f"it refers to more than {_MOST_REFERENCES} schemas, the last of them {named}")
            inner = self._requested(f"/subjects/{quote(subject, safe='')}/versions/{version}{form}", end)
            if inner is None:
                raise SchemaError(f"it refers to {named}, which the schema registry {self} does not have")
            texts[subject, version] = name, inner["schema"]
            size += len(inner["schema"])
            if size > _LARGEST:
                raise SchemaError(f"it has more than {_LARGEST} bytes, with the schemas that it refers to")
            waiting.extend(self._references_in(inner))
        return list(texts.values())

    def _references_in(self, schema: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
        references = schema.get("references") or []
        for reference in references if isinstance(references, list) else [references]:
            named = isinstance(reference, dict)
            subject, version = (reference.get("subject"), reference.get("version")) if named else (None, None)
            is_text = isinstance(subject, str) and subject.isprintable()
            if not is_text or type(version) is not int or version not in VERSIONS:
                raise SchemaError(
                    f"its references, from the schema registry {self}, name no subject and version: "
                    f"{self._shown(reference, reference)}"
                )
            yield str(reference.get("name", "")), str(subject), version

    def _requested(self, path: str, end: float) -> dict[str, Any] | None:
        """Return a response, with retries until ``end``; ``None`` if the registry does not have the schema."""
        while True:
            try:
                status, body = self._response(path, end)
                problem = f"status {status}"
            except (OSError, http.client.HTTPException) as error:
                status, body = 0, b""
                problem = f"{type(error).__name__}: {self._shown(error, error)}"
            if status == http.client.OK:
                return self._read(body)
            if status in _REFUSED:
                raise RefusedError(
                    f"the schema registry {self} refuses the login (status {status}); give schemaRegistryUserInfo: "
                    "user:password, or Bearer and a token"
                )
            if status == http.client.NOT_FOUND and self._is_unknown(body):
                return None
            if status == http.client.NOT_IMPLEMENTED and path.endswith(_SERIALIZED):
                # The format is unknown, or the schema is not one of Protobuf.
                path = path.removesuffix(_SERIALIZED)
                continue
            if status and status != _BUSY and status < _SERVERS_FAULT:
                raise UnreachableError(
                    f"the schema registry {self} answers {problem} to {shortened(path)}; is schemaRegistry its address?"
                )
            if time.monotonic() + _PAUSE_S >= end:
                kind = ResponseTimeoutError if status else UnreachableError
                raise kind(f"the schema registry {self} returned no schema within {self.timeout_ms} ms: {problem}")
            time.sleep(_PAUSE_S)

    def _response(self, path: str, end: float) -> tuple[int, bytes]:
        with closing(self._client(max(0.01, end - time.monotonic()))) as client:
            client.connect()
            client.sock = DeadlineConnection(client.sock, end)
            headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
            if self.authorization is not None:
                headers["Authorization"] = self.authorization
            # Redirections are not followed: they would send the login to another server.
            client.request("GET", self.path + path, headers=headers)
            with client.getresponse() as response:
                body = body_of(response, _LARGEST)
            if len(body) > _LARGEST:
                raise UnreachableError(
                    f"the schema registry {self} answers {shortened(path)} with more than {_LARGEST} bytes; is "
                    "schemaRegistry its address?"
                )
            return response.status, body

    def _client(self, limit_s: float) -> http.client.HTTPConnection:
        # Without a port the HTTP client would take the end of an IPv6 address for one.
        usual = http.client.HTTPS_PORT if self.tls else http.client.HTTP_PORT
        port = usual if self.port is None else self.port
        if not self.tls:
            return http.client.HTTPConnection(self.host, port, timeout=limit_s)
        return http.client.HTTPSConnection(self.host, port, timeout=limit_s, context=ssl.create_default_context())

    def _is_unknown(self, body: bytes) -> bool:
        """Return whether a registry reports an unknown schema, and not a web server an unknown page."""
        code = (json_object(body) or {}).get("error_code")
        return type(code) is int and code in _UNKNOWN

    def _read(self, body: bytes) -> dict[str, Any]:
        response = json_object(body)
        if response is None or not isinstance(response.get("schema"), str):
            shown = self._shown(body[:_SHOWN], body.decode(errors="replace"))
            raise UnreachableError(f"the server at {self} does not answer as a schema registry: {shown}")
        return response

    def _shown(self, seen: object, whole: object) -> str:
        """Return what a server sent, for a message; not what contains the login: a server may return what it receives.

        ``seen`` is the beginning of ``whole``, which is searched.
        """
        _, _, credential = (self.authorization or "").partition(" ")
        secrets = [credential]
        if self.authorization is not None and self.authorization.startswith("Basic"):
            secrets.append(base64.b64decode(credential).decode().partition(":")[2])
        text = str(whole)
        return "(it contains the login)" if any(each and each in text for each in secrets) else shortened(seen)


def _is_sendable(host: str, text: str) -> bool:
    """Return whether a host has a name, and a text can be in a request: libraries' errors would show what it is."""
    try:
        name = host.encode("idna").decode()
    except UnicodeError:
        return False
    return all("!" <= each <= "~" for each in name + text)
