"""The schema registry, with a server of its kind on this machine."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry
from tests.avro_examples import encoded, message
from tests.member_times import MemberTimes, avro_times
from tests.schema_registry import Registry, schema_registry
from tests.unit.endless_responses import ENDLESS, endless_responses
from watermark_source.errors import RefusedError, ResponseTimeoutError, UnreachableError, UsageError

INNER = {"type": "record", "name": "shop.Times", "fields": [{"name": "at", "type": "long"}]}
OUTER = {
    "type": "record", "name": "shop.Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "times", "type": ["null", "shop.Times"]}],
}  # fmt: skip
WHOLE = {**OUTER, "fields": [OUTER["fields"][0], {"name": "times", "type": ["null", INNER]}]}
PASSWORD, LOGIN = "s3cret-pw", "bWU6czNjcmV0LXB3"


ANSWERS: dict[str, Any] = {
    "/base/schemas/ids/7": {
        "schema": json.dumps(OUTER), "references": [{"name": "shop.Times", "subject": "times/v", "version": 3}],
    },
    "/base/subjects/times%2Fv/versions/3": {"subject": "times/v", "version": 3, "schema": json.dumps(INNER)},
    "/base/schemas/ids/8": {"schema": "message A {}", "schemaType": "PROTOBUF"},
    "/base/schemas/ids/9": {"schema": json.dumps({"type": "array", "items": "long"})},
    "/base/schemas/ids/10": {"schema": json.dumps(WHOLE).replace('"long"', '"boolean"')},
    "/base/schemas/ids/11": b"<html>",
    "/base/schemas/ids/12": b"[" * 100_000,
    "/base/schemas/ids/13": {"schema": 5},
    "/base/schemas/ids/14": b'{"schema": "' + b"x" * (5 << 20),
    "/base/schemas/ids/15": gzip.compress(b'{"schema": "' + b"x" * (5 << 20)),
    "/base/schemas/ids/16": {"schema": "[" * 100_000},
    "/base/schemas/ids/17": {"schema": json.dumps(OUTER), "references": [{"subject": "gone", "version": 9}]},
    "/base/schemas/ids/18": {"schema": json.dumps(OUTER), "references": 5},
    "/base/schemas/ids/19": {"schema": json.dumps(OUTER), "references": [{"subject": "a", "version": "1"}]},
    "/base/schemas/ids/20": {"schema": json.dumps(OUTER), "references": [{"subject": "many", "version": 0}]},
    **{f"/base/subjects/many/versions/{n}": {"schema": '"int"', "references": [{"subject": "many", "version": n + 1}]}
       for n in range(1_001)},
    "/base/schemas/ids/21": {
        "schema": json.dumps({**INNER, "name": "C"}), "references": [{"subject": "x", "version": 1}],
    },
    "/base/schemas/ids/22": {"schema": json.dumps(OUTER), "references": [{"subject": "\ud800", "version": 1}]},
    "/base/schemas/ids/23": {"schema": json.dumps(OUTER), "references": [{"subject": "a", "version": -1}]},
    "/base/schemas/ids/24": f"GET /base/schemas/ids/24 HTTP/1.1\r\nAuthorization: Basic {LOGIN}\r\n".encode(),
    "/base/schemas/ids/25": f"{'wrong password ' * 5}{PASSWORD} of me".encode(),
    "/base/subjects/x/versions/1": {"schema": '"int"', "references": [{"subject": "y", "version": 1}]},
    "/base/subjects/y/versions/1": {"schema": '"int"', "references": [{"subject": "x", "version": 1}]},
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry(ANSWERS) as registry:
        yield registry


ORDER = message(7, encoded(WHOLE, {"id": "a", "times": {"at": 5}}))


def url(registry: Registry, login: str = "") -> str:
    return f"http://{login}127.0.0.1:{registry.port}/base/"


def client(address: str, *, timeout_ms: int = 30_000, login: str | None = None) -> SchemaRegistry:
    return SchemaRegistry.of(address, login=login, timeout_ms=timeout_ms)


def times(registry: SchemaRegistry) -> MemberTimes:
    """Return event times of records whose schemas a registry has."""
    return avro_times("times.at", WHOLE, registry, eventTimeFormat="millis")


def test_each_schema_is_asked_for_once_with_what_it_refers_to(registry: Registry) -> None:
    event_times = times(client(url(registry)))
    assert event_times(ORDER, None, ORDER) == [5_000, None, 5_000]
    assert event_times(ORDER) == [5_000]
    assert registry.asked == ["/base/schemas/ids/7", "/base/subjects/times%2Fv/versions/3"]
    assert registry.logins == [None, None]


def test_a_login_goes_with_every_request(registry: Registry) -> None:
    for by in (client(url(registry), login=f"me:{PASSWORD}"), client(url(registry, f"me:{PASSWORD}@"))):
        assert by.schema(7) is not None
    assert set(registry.logins) == {f"Basic {LOGIN}"}
    registry.logins.clear()
    by_token = client(url(registry), login=f"Bearer {PASSWORD}")
    assert by_token.schema(7) is not None
    assert set(registry.logins) == {f"Bearer {PASSWORD}"}
    assert PASSWORD not in repr(by_token)


def test_a_request_is_repeated_after_a_fault_of_the_server_and_half_a_response(registry: Registry) -> None:
    registry.statuses, registry.cut = [503, 429], 3
    assert times(client(url(registry)))(ORDER) == [5_000]
    assert len(registry.asked) == 5


@pytest.mark.parametrize(
    ("schema", "statuses", "error", "text"),
    [
        (7, [401], RefusedError, r"127.0.0.1:\d+/base refuses the login \(status 401\)"),
        (7, [403], RefusedError, "give schemaRegistryUserInfo: user:password, or Bearer"),
        (7, [302], UnreachableError, "answers status 302"),
        (7, [404], UnreachableError, "answers status 404"),
        (7, [500] * 99, ResponseTimeoutError, "returned no schema within 3000 ms: (status 500|TimeoutError)"),
        (11, [], UnreachableError, "does not answer as a schema registry: b'<html>'"),
        (12, [], UnreachableError, r"does not answer as a schema registry: b'\[\[\[\["),
        (13, [], UnreachableError, "does not answer as a schema registry"),
        (14, [], UnreachableError, "with more than 4194304 bytes"),
        (15, [], UnreachableError, "does not answer as a schema registry"),
        (24, [], UnreachableError, r"does not answer as a schema registry: \(it contains the login\)"),
        (25, [], UnreachableError, r"does not answer as a schema registry: \(it contains the login\)"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_an_error_without_the_login(
    registry: Registry, schema: int, statuses: list[int], error: type[Exception], text: str
) -> None:
    registry.statuses = statuses
    # What is tried again is tried until the time is over.
    limit = 3_000 if statuses == [500] * 99 else 60_000
    with pytest.raises(error, match=text) as raised:
        times(client(url(registry), login=f"me:{PASSWORD}", timeout_ms=limit))(message(schema, b""))
    assert not any(secret[:5] in str(raised.value) for secret in (PASSWORD, LOGIN))
    assert "elsewhere" not in registry.asked


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (6, r"the schema registry http://127.0.0.1:\d+/base has no schema of its id"),
        (8, "the type of schema 8 is PROTOBUF, not AVRO"),
        (9, "the writer's array does not resolve to shop.Order"),
        (10, "times.at: the writer's boolean does not resolve to long"),
        (16, "an Avro schema is JSON; seen"),
        (17, r"it refers to version 9 of subject gone, which the schema registry http.* does not have"),
        (18, "name no subject and version: 5"),
        (19, r"name no subject and version: \{'subject': 'a', 'version': '1'\}"),
        (20, "it refers to more than 1000 schemas"),
        (22, "name no subject and version: "),
        (23, "name no subject and version: "),
    ],
)
def test_a_record_whose_schema_cannot_be_used_has_no_event_time_and_the_reason_is_logged(
    registry: Registry, schema: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    event_times = times(client(url(registry), login=f"me:{PASSWORD}"))
    for _ in range(2):
        assert event_times(message(schema, b"\0\2\2"), ORDER) == [None, 5_000]
    assert all(re.search(text, line) and PASSWORD not in line for line in caplog.messages)
    assert registry.asked.count(f"/base/schemas/ids/{schema}") == 1


def test_schemas_that_refer_to_each_other_are_each_requested_once(registry: Registry) -> None:
    found = client(url(registry)).schema(21)
    assert found is not None
    assert found.references == ('"int"', '"int"')
    assert len(registry.asked) == 3


def test_a_response_without_end_ends_within_the_time_limit() -> None:
    for start, more in ENDLESS.values():
        with endless_responses(start, more) as port:
            began = time.monotonic()
            with pytest.raises((UnreachableError, ResponseTimeoutError), match="returned no schema within 500 ms"):
                client(f"http://127.0.0.1:{port}", timeout_ms=500).schema(7)
            assert time.monotonic() - began < 60


def test_no_answer_and_no_server_end_within_the_time_limit(registry: Registry) -> None:
    registry.may_answer.clear()
    for address in (url(registry), "http://127.0.0.1:1"):
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="returned no schema within 500 ms"):
            client(address, timeout_ms=500).schema(7)
        assert time.monotonic() - began < 60
    registry.may_answer.set()


@pytest.mark.parametrize(
    ("address", "login", "text"),
    [
        ("r:8081", {}, 'such as "https://registry'),
        ("http://u:pw@r:x", {}, "cannot be parsed"),
        (
            "http://r",
            {"login": "Bearer pw\nhidden"},
            "^must be of ASCII characters without line breaks; seen a token w",
        ),
        ("http://r", {"login": "pw"}, "seen a text without a colon"),
        ("http://me:pw@r", {"login": "Bearer x"}, "takes a user or a token, and the address has a user"),
    ],
)
def test_a_mistake_is_named_without_the_login(address: str, login: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text) as raised:
        client(address, **login)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize("address", ["https://[::1]:8081/base", "http://registry", "http://127.0.0.1:81"])
def test_a_registry_is_named_by_its_address(address: str) -> None:
    assert str(SchemaRegistry.of(address, login="user:secret", timeout_ms=1)) == address


@pytest.mark.parametrize(
    ("address", "asked"),
    [("http://[::1]", ("::1", 80)), ("https://[::1]/base", ("::1", 443)), ("https://registry", ("registry", 443))],
)
def test_a_registry_without_a_port_is_asked_at_the_usual_one(
    address: str, asked: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    def refuse(place: tuple[str, int], *_: object, **__: object) -> NoReturn:
        seen.append(place)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(UnreachableError):
        client(address, timeout_ms=1).schema(7)
    assert seen == [asked]


def test_the_client_imports_no_compiled_code() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from pyspark_aligned_kafka.client import kept_schemas, schema_registry\n"
        "schema_registry.SchemaRegistry.of('http://registry:8081', login=None, timeout_ms=1)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
