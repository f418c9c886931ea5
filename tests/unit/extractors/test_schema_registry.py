"""The schema registry, with a server of its kind on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.avro_examples import encoded, found, message, records
from tests.schema_registry import Registry, schema_registry
from watermark_source.errors import EventTimeError, RefusedError, ResponseTimeoutError, UnreachableError
from watermark_source.extractors import avro_event_time

INNER = {"type": "record", "name": "shop.Times", "fields": [{"name": "at", "type": "long"}]}
OUTER = {
    "type": "record", "name": "shop.Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "times", "type": ["null", "shop.Times"]}],
}  # fmt: skip
WHOLE = {**OUTER, "fields": [OUTER["fields"][0], {"name": "times", "type": ["null", INNER]}]}
PASSWORD = "s3cret-pw"


ANSWERS: dict[str, Any] = {
    "/base/schemas/ids/7": {
        "schema": json.dumps(OUTER), "references": [{"name": "shop.Times", "subject": "times/v", "version": 3}],
    },
    "/base/subjects/times%2Fv/versions/3": {"subject": "times/v", "version": 3, "schema": json.dumps(INNER)},
    "/base/schemas/ids/8": {"schema": "message A {}", "schemaType": "PROTOBUF"},
    "/base/schemas/ids/9": {"schema": json.dumps({"type": "array", "items": "long"})},
    "/base/schemas/ids/10": {"schema": json.dumps(WHOLE).replace('"long"', '"boolean"')},
    "/base/schemas/ids/11": b"<html>",
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
    assert set(registry.logins) == {"Basic bWU6czNjcmV0LXB3"}
    registry.logins.clear()
    event_time = avro_event_time("times.at", schema_registry=url(registry), token=PASSWORD)
    assert found(event_time(records(ORDER))) == [5_000]
    assert set(registry.logins) == {f"Bearer {PASSWORD}"}
    assert PASSWORD not in repr(vars(event_time))


def test_a_server_in_trouble_is_asked_again(registry: Registry) -> None:
    registry.statuses = [503, 429]
    assert found(avro_event_time("times.at", schema_registry=url(registry))(records(ORDER))) == [5_000]
    assert len(registry.asked) == 4


@pytest.mark.parametrize(
    ("schema", "statuses", "error", "says"),
    [
        (7, [401], RefusedError, r"127.0.0.1:\d+/base refuses the login \(status 401\)"),
        (7, [403], RefusedError, "give user_info or token"),
        (7, [302], UnreachableError, "answers status 302"),
        (7, [500] * 99, ResponseTimeoutError, "gave no schema within 700 ms: status 500"),
        (6, [], EventTimeError, "of schema 6, which the schema registry .* has not"),
        (8, [], EventTimeError, "which is one of PROTOBUF and not of Avro"),
        (10, [], EventTimeError, r"schema 10, field times\.at: the field's type is boolean, which is no moment"),
        (11, [], UnreachableError, "is no schema registry: b'<html>'"),
    ],
)
def test_what_goes_wrong_is_said_without_the_login(
    registry: Registry, schema: int, statuses: list[int], error: type[Exception], says: str
) -> None:
    registry.statuses = statuses
    event_time = avro_event_time(
        "times.at", schema_registry=url(registry), user_info=f"me:{PASSWORD}", timeout="700 ms"
    )
    with pytest.raises(error, match=says) as raised:
        event_time(records(message(schema, b"")))
    assert PASSWORD not in str(raised.value)
    assert "elsewhere" not in registry.asked


def test_no_answer_and_no_server_end_within_the_time_limit(registry: Registry) -> None:
    registry.wait_s = 3
    for address in (url(registry), "http://127.0.0.1:1"):
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="gave no schema within 500 ms"):
            avro_event_time("at", schema_registry=address, timeout="500 ms")(records(ORDER))
        assert time.monotonic() - began < 2


def test_a_schema_that_is_no_record_has_no_field(registry: Registry) -> None:
    event_time = avro_event_time("at", schema_registry=url(registry))
    assert found(event_time(records(message(9, b"\0")))) == [None]
