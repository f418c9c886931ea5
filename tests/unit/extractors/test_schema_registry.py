"""The schema registry, with a server of its kind on this machine."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.avro_examples import encoded, found, message, records
from tests.schema_registry import Registry, schema_registry
from tests.unit.endless_responses import ENDLESS, endless_responses
from watermark_source.errors import RefusedError, ResponseTimeoutError, UnreachableError
from watermark_source.extractors import avro_event_time

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


def test_each_schema_is_asked_for_once_with_what_it_refers_to(registry: Registry) -> None:
    event_time = avro_event_time("times.at", schema_registry=url(registry))
    assert found(event_time(records(ORDER, None, ORDER))) == [5_000, None, 5_000]
    assert found(event_time(records(ORDER))) == [5_000]
    assert registry.asked == ["/base/schemas/ids/7", "/base/subjects/times%2Fv/versions/3"]
    assert registry.logins == [None, None]


def test_a_login_goes_with_every_request(registry: Registry) -> None:
    for given in (
        avro_event_time("times.at", schema_registry=url(registry), user_info=f"me:{PASSWORD}"),
        avro_event_time("times.at", schema_registry=url(registry, f"me:{PASSWORD}@")),
    ):
        assert found(given(records(ORDER))) == [5_000]
    assert set(registry.logins) == {f"Basic {LOGIN}"}
    registry.logins.clear()
    event_time = avro_event_time("times.at", schema_registry=url(registry), token=PASSWORD)
    assert found(event_time(records(ORDER))) == [5_000]
    assert set(registry.logins) == {f"Bearer {PASSWORD}"}
    assert PASSWORD not in repr(vars(event_time))


def test_a_request_is_repeated_after_a_fault_of_the_server_and_half_a_response(registry: Registry) -> None:
    registry.statuses, registry.cut = [503, 429], 3
    assert found(avro_event_time("times.at", schema_registry=url(registry))(records(ORDER))) == [5_000]
    assert len(registry.asked) == 5


@pytest.mark.parametrize(
    ("schema", "statuses", "error", "says"),
    [
        (7, [401], RefusedError, r"127.0.0.1:\d+/base refuses the login \(status 401\)"),
        (7, [403], RefusedError, "give user_info or token"),
        (7, [302], UnreachableError, "answers status 302"),
        (7, [404], UnreachableError, "answers status 404"),
        (7, [500] * 99, ResponseTimeoutError, "returned no schema within 3000 ms: status 500"),
        (11, [], UnreachableError, "is no schema registry: b'<html>'"),
        (12, [], UnreachableError, r"is no schema registry: b'\[\[\[\["),
        (13, [], UnreachableError, "is no schema registry"),
        (14, [], UnreachableError, "with more than 4194304 bytes"),
        (15, [], UnreachableError, "is no schema registry"),
        (24, [], UnreachableError, r"is no schema registry: \(it contains the login\)"),
        (25, [], UnreachableError, r"is no schema registry: \(it contains the login\)"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_an_error_without_the_login(
    registry: Registry, schema: int, statuses: list[int], error: type[Exception], says: str
) -> None:
    registry.statuses = statuses
    event_time = avro_event_time(
        "times.at",
        schema_registry=url(registry),
        user_info=f"me:{PASSWORD}",
        # What is tried again is tried until the time is over.
        timeout="3 seconds" if statuses == [500] * 99 else "1 minute",
    )
    with pytest.raises(error, match=says) as raised:
        event_time(records(message(schema, b"")))
    assert not any(secret[:5] in str(raised.value) for secret in (PASSWORD, LOGIN))
    assert "elsewhere" not in registry.asked


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (6, r"the schema registry http://127.0.0.1:\d+/base has no schema of this id"),
        (8, "its type is PROTOBUF, not AVRO"),
        (9, "it has no field times.at"),
        (10, r"field times\.at: the field's type is boolean, which is no timestamp"),
        (16, "an Avro schema is JSON; seen"),
        (17, r"it refers to version 9 of subject gone, which the schema registry http.* does not have"),
        (18, "name no subject and version: 5"),
        (19, r"name no subject and version: \{'subject': 'a', 'version': '1'\}"),
        (20, "it refers to more than 1000 schemas"),
        (22, "name no subject and version: "),
        (23, "name no subject and version: "),
    ],
)
def test_a_record_whose_schema_cannot_be_used_has_no_event_time_and_the_reason_is_logged_once(
    registry: Registry, schema: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    event_time = avro_event_time("times.at", schema_registry=url(registry), user_info=f"me:{PASSWORD}")
    for _ in range(2):
        assert found(event_time(records(message(schema, b""), ORDER))) == [None, 5_000]
    (line,) = caplog.messages
    assert re.search(says, line)
    assert re.search(says, event_time.explain(records(message(schema, b""))))  # type: ignore[attr-defined]
    assert PASSWORD not in line
    assert registry.asked.count(f"/base/schemas/ids/{schema}") == 1


def test_schemas_that_refer_to_each_other_are_each_requested_once(registry: Registry) -> None:
    event_time = avro_event_time("at", schema_registry=url(registry))
    assert found(event_time(records(message(21, b"\4")))) == [2_000]
    assert len(registry.asked) == 3


def test_ids_by_chance_are_no_flood_of_requests_and_registered_ones_come_first(registry: Registry) -> None:
    event_time = avro_event_time("times.at", schema_registry=url(registry))
    values = [message(number, b"") for number in range(2**32 - 1_000, 2**32)]
    for _ in range(3):
        assert found(event_time(records(*values, ORDER))) == [None] * 1_000 + [5_000]
    assert len(registry.asked) == 102


def test_a_response_without_end_ends_within_the_time_limit() -> None:
    for start, more in ENDLESS.values():
        with endless_responses(start, more) as port:
            event_time = avro_event_time("at", schema_registry=f"http://127.0.0.1:{port}", timeout="500 ms")
            began = time.monotonic()
            with pytest.raises((UnreachableError, ResponseTimeoutError), match="returned no schema within 500 ms"):
                event_time(records(ORDER))
            assert time.monotonic() - began < 60


def test_no_answer_and_no_server_end_within_the_time_limit(registry: Registry) -> None:
    registry.may_answer.clear()
    for address in (url(registry), "http://127.0.0.1:1"):
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="returned no schema within 500 ms"):
            avro_event_time("at", schema_registry=address, timeout="500 ms")(records(ORDER))
        assert time.monotonic() - began < 60
    registry.may_answer.set()
