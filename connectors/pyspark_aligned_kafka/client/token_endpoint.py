"""Tokens for OAUTHBEARER: requested with a client's id and secret (OAuth 2.0), cached, and renewed in time."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.request import HTTPRedirectHandler, Request

from kafka.errors import KafkaConnectionError
from kafka.net.sasl.oauth import AbstractTokenProvider

from pyspark_aligned_kafka.client.token_source import TokenSource
from watermark_source.connection_deadline import HttpsUntil, HttpUntil, body_of, json_object
from watermark_source.errors import RefusedError, shortened

_log = logging.getLogger(__name__)
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_LARGEST_ANSWER = 1 << 20
_LONGEST_LIFETIME = 1e9
"""Seconds."""
_RENEWED_AFTER = 0.8
"""Share of a token's lifetime after which it is renewed, the default of Java's clients."""
_LONGEST_UNRENEWED = 3_600
"""Seconds after which a token is renewed at the latest. Its endpoint may state milliseconds, or a token that is
revoked, and nothing else ends its use."""
_REFUSALS = range(300, 500)
_TOO_OFTEN = (408, 429)
_NO_ANSWER = (OSError, ValueError, HTTPException)
"""Errors of a response that does not arrive, is truncated or not HTTP."""
_CHECK = (
    "check kafka.sasl.oauthbearer.token.endpoint.url, kafka.sasl.oauthbearer.scope and the client's id and secret in "
    "kafka.sasl.jaas.config"
)


class _Token(NamedTuple):
    text: str
    renew_at: float
    """By ``time.monotonic()``."""
    ends_at: float


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's token provider: one token for all connections of a process, renewed before it expires."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._kept: _Token | None = None
        self._lock = threading.Lock()

    def token(self) -> str:
        """Return a valid token.

        Raises:
            KafkaConnectionError: the endpoint does not answer, or the file cannot be read; a retry may help.
            RefusedError: the endpoint refuses, or answers without a token.
        """
        with self._lock:
            now, kept = time.monotonic(), self._kept
            if kept is None or now >= kept.renew_at:
                try:
                    kept = _request(self._source)
                except (KafkaConnectionError, RefusedError) as trouble:
                    if kept is None or now >= kept.ends_at:
                        raise
                    _log.warning("%s. The previous token is still valid and stays in use", trouble)
                self._kept = kept
            return kept.text

    def extensions(self) -> dict[str, str]:
        """Return the extensions that the login sends to the broker with the token."""
        return dict(self._source.extensions)


@lru_cache(maxsize=16)
def tokens_of(source: TokenSource) -> Tokens:
    """Return this process's provider for a source."""
    return Tokens(source)


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirections: a redirected request would send the client's secret to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _request(source: TokenSource) -> _Token:
    url = urllib.parse.urlsplit(source.url)
    asked_at = time.monotonic()
    if url.scheme == "file":
        path = urllib.request.url2pathname(url.path)
        try:
            with open(path, encoding="ascii") as file:
                return _checked(source, file.read(_LARGEST_ANSWER).strip(), None, asked_at)
        except (OSError, ValueError) as problem:
            raise KafkaConnectionError(f"the token file {path} cannot be read: {problem}") from None
    answer = json_object(_post(source))
    if answer is None:
        raise RefusedError(f"the token endpoint {source.place} answered no JSON object; {_CHECK}")
    lifetime = answer.get("expires_in")
    is_number = isinstance(lifetime, (int, float)) and 0 < lifetime < _LONGEST_LIFETIME
    seconds = float(lifetime) if is_number else None  # type: ignore[arg-type]  # a number, as checked
    return _checked(source, str(answer.get("access_token", "")), seconds, asked_at)


def _post(source: TokenSource) -> bytes:
    form = {"grant_type": "client_credentials"} | ({} if source.scope is None else {"scope": source.scope})
    headers = {"Authorization": f"Basic {source.login}", "Accept": "application/json"}
    request = Request(source.url, urllib.parse.urlencode(form).encode(), headers)  # noqa: S310 - checked: https or http
    try:
        context = ssl.create_default_context(cafile=source.trusted_file)
        opener = urllib.request.build_opener(_NoRedirect, HttpUntil(), HttpsUntil(context=context))
        with opener.open(request, timeout=source.limit_s) as response:
            return body_of(response, _LARGEST_ANSWER)
    except urllib.error.HTTPError as error:
        raise _trouble(source, error) from None
    except _NO_ANSWER as problem:
        why = getattr(problem, "reason", problem)
        if isinstance(why, ssl.SSLCertVerificationError):
            raise RefusedError(
                f"the token endpoint {source.place} is not trusted: {why}; name its CA in ssl.truststore.location of "
                "kafka.sasl.jaas.config"
            ) from None
        raise KafkaConnectionError(
            f"the token endpoint {source.place} does not answer: {_shown(source, why)}"
        ) from None


def _trouble(source: TokenSource, error: urllib.error.HTTPError) -> KafkaConnectionError | RefusedError:
    """Return the error for an answer with such a status, whether or not the rest of it arrives."""
    with error:
        try:
            body = body_of(error.fp, _LARGEST_ANSWER)  # type: ignore[arg-type]  # in fact an HTTPResponse
        except _NO_ANSWER:
            body = b""
    what = f"{error.code} {_shown(source, error.reason)}{_reported(source, body)}"
    if error.code in _REFUSALS and error.code not in _TOO_OFTEN:
        return RefusedError(f"the token endpoint {source.place} refused: {what}; {_CHECK}")
    return KafkaConnectionError(f"the token endpoint {source.place} answered {what}")


def _reported(source: TokenSource, answer: bytes) -> str:
    """Return the error that an OAuth response reports."""
    parsed = json_object(answer) or {}
    parts = [str(parsed[name]) for name in ("error", "error_description") if name in parsed]
    return _shown(source, ": ".join(["", *parts]))


def _shown(source: TokenSource, seen: object) -> str:
    """Return what an endpoint sent, for a message: without the secret, which some send back."""
    text = str(seen)
    for secret in (source.login, source.client_secret):
        text = text.replace(secret, "***") if secret else text
    return shortened(text)


def _checked(source: TokenSource, text: str, lifetime: float | None, asked_at: float) -> _Token:
    if _TOKEN.fullmatch(text) is None:
        raise RefusedError(f"what {source.place} gives is not a token, which is one word, such as a JWT; {_CHECK}")
    if lifetime is None:
        lifetime = _lifetime(text)
    # A file is read at each login, because another program may renew its token.
    is_file = source.url.startswith("file:")
    unrenewed = 0 if is_file else min(_RENEWED_AFTER * lifetime, _LONGEST_UNRENEWED)
    return _Token(text, asked_at + unrenewed, asked_at + lifetime)


def _lifetime(token: str) -> float:
    """Return for how many seconds a JWT is valid; 0 for another token or one without ``exp``, which is not cached."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return max(0.0, float(claims["exp"]) - time.time())
    except (IndexError, KeyError, TypeError, ValueError, RecursionError, OverflowError, binascii.Error):
        return 0.0
