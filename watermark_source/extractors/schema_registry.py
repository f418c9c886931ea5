"""A schema registry (Confluent's API): schemas by their ids, each asked for once, within a time limit.

Credentials are in no message: neither those of the address nor those given beside it.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from watermark_source.errors import RefusedError, ResponseTimeoutError, UnreachableError, UsageError, shortened

_LARGEST = 16 << 20
"""Bytes of an answer; a schema has a few thousand."""
_PIECE = 1 << 16
_PAUSE_S = 0.2
_REFUSED = (401, 403)
_BUSY = 429
_SERVERS_FAULT = 500


class RegisteredSchema(NamedTuple):
    """A schema as the registry keeps it."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[str, ...]
    """Texts of the schemas it refers to, those that they refer to among them, before them."""


@dataclass(frozen=True)
class SchemaRegistry:
    """Asks one registry."""

    host: str
    port: int | None
    path: str
    tls: bool
    authorization: str | None = field(repr=False)
    timeout_ms: int

    @classmethod
    def of(cls, url: str, *, user_info: str | None, token: str | None, timeout_ms: int) -> SchemaRegistry:
        """Check where a registry is; nothing is connected to.

        Raises:
            UsageError: the address is none.
        """
        accepted = 'schema_registry must be an address such as "https://registry:8081"'
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{accepted}; seen one that cannot be read as such") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{accepted}; seen one of scheme {parts.scheme!r} and host {parts.hostname!r}")
        within = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
        if (user_info is not None or within is not None) and token is not None:
            raise UsageError("a schema registry takes a user or a token, not both")
        if user_info is not None and ":" not in user_info:
            raise UsageError('user_info must be "user:password"; seen a text without a colon')
        login = user_info or within
        authorization = f"Bearer {token}" if token is not None else None
        if login is not None:
            authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
        return cls(parts.hostname, port, parts.path.rstrip("/"), parts.scheme == "https", authorization, timeout_ms)

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{'https' if self.tls else 'http'}://{self.host}{port}{self.path}"

    def schema(self, number: int) -> RegisteredSchema | None:
        """Return a schema and all it refers to; ``None`` if the registry has none of this id.

        Raises:
            RefusedError: it refuses the login.
            UnreachableError, ResponseTimeoutError: no connection, or no answer, within the time limit.
        """
        end = time.monotonic() + self.timeout_ms / 1_000
        found = self._asked(f"/schemas/ids/{number}", end)
        return None if found is None else self._with_references(found, end)

    def _with_references(self, found: dict[str, Any], end: float) -> RegisteredSchema:
        texts: dict[tuple[str, int], str] = {}
        self._refer(found, texts, end)
        return RegisteredSchema(str(found.get("schemaType", "AVRO")), str(found.get("schema")), tuple(texts.values()))

    def _refer(self, found: dict[str, Any], texts: dict[tuple[str, int], str], end: float) -> None:
        for each in found.get("references") or ():
            subject, version = str(each["subject"]), int(each["version"])
            if (subject, version) in texts:
                continue
            inner = self._asked(f"/subjects/{quote(subject, safe='')}/versions/{version}", end)
            if inner is None:
                raise UnreachableError(
                    f"{self} has no version {version} of subject {subject}, which a schema refers to"
                )
            texts[subject, version] = str(inner.get("schema"))
            self._refer(inner, texts, end)

    def _asked(self, path: str, end: float) -> dict[str, Any] | None:
        while True:
            try:
                status, body = self._answer(path, end)
                problem = f"status {status}"
            except (OSError, http.client.HTTPException) as error:
                status, body = 0, b""
                problem = f"{type(error).__name__}: {error}"
            if status == http.client.OK:
                return self._read(body)
            if status in _REFUSED:
                raise RefusedError(
                    f"the schema registry {self} refuses the login (status {status}); give user_info or token"
                )
            if status == http.client.NOT_FOUND:
                return None
            if status and status != _BUSY and status < _SERVERS_FAULT:
                raise UnreachableError(f"the schema registry {self} answers {problem} to {path}; is that its address?")
            if time.monotonic() + _PAUSE_S >= end:
                kind = ResponseTimeoutError if status else UnreachableError
                raise kind(f"the schema registry {self} gave no schema within {self.timeout_ms} ms: {problem}")
            time.sleep(_PAUSE_S)

    def _answer(self, path: str, end: float) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=max(0.01, end - time.monotonic()))
        try:
            headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
            if self.authorization is not None:
                headers["Authorization"] = self.authorization
            # Redirections are not followed: they would carry the login elsewhere.
            connection.request("GET", self.path + path, headers=headers)
            response = connection.getresponse()
            body = b""
            while piece := response.read1(_PIECE):
                body += piece
                if len(body) > _LARGEST or time.monotonic() > end:
                    raise TimeoutError(f"{len(body)} bytes and no end")
            return response.status, body
        finally:
            connection.close()

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise UnreachableError(f"what answers at {self} is no schema registry: {shortened(body[:80])}")
        return found
