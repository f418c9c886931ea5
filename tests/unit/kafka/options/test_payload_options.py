"""Options of decoded values: which schemas there are, and which of the options belong together."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from pyspark_aligned_kafka.options.kafka_options import KafkaOptions, parse
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, InColumn, InJson
from pyspark_aligned_kafka.records.json_path import parse_path
from pyspark_aligned_kafka.records.payload_schema import parse_schema
from pyspark_aligned_kafka.source import KafkaBatch, KafkaSource
from watermark_source.errors import OptionError
from watermark_source.option_table import _warn_once

NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
JSON = {"valueFormat": "json", "valueSchema": "id STRING, amount DOUBLE"}


def parsed(**options: str) -> KafkaOptions:
    """Parse the options of a query."""
    return parse({**NEEDED, **options})


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("a INT, b string", "struct<a:int,b:string>"),
        ("STRUCT<a: BIGINT, b: Array<Double>>", "struct<a:bigint,b:array<double>>"),
        ("`a b` MAP<STRING, STRUCT<x TINYINT>> NOT NULL", "struct<a b:map<string,struct<x:tinyint>>>"),
        (
            "d DECIMAL, e DEC(5), f NUMERIC(20, 3) COMMENT 'text'",
            "struct<d:decimal(10,0),e:decimal(5,0),f:decimal(20,3)>",
        ),
        ("b BINARY, d DATE, f REAL, o BOOLEAN, s SHORT", "struct<b:binary,d:date,f:float,o:boolean,s:smallint>"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":false,"metadata":{}}]}', "struct<a:bigint>"),
    ],
)
def test_a_schema_is_spark_s_ddl_or_json(text: str, schema: str) -> None:
    found = parse_schema(text)
    assert found.simpleString() == schema
    assert all(field.nullable for field in found.fields)


@pytest.mark.parametrize(
    ("text", "logged"),
    [
        ("", "without members"),
        ("a", "its end where"),
        ("a INT,", "its end where"),
        ("a INT b", 'has "b" where , is expected'),
        ("a-b INT", "backquotes"),
        ("a INT, a INT", "has a twice"),
        ("a VARIANT", "accepted are BOOLEAN"),
        ("a TIMESTAMP_NTZ", "accepted are BOOLEAN"),
        ("a VARCHAR(5)", "accepted are BOOLEAN"),
        ("a STRUCT<>", "without members"),
        ("a MAP<INT, INT>", "keys are not STRING"),
        ("a DECIMAL(39,0)", "up to 38 digits"),
        ("_corrupt_record INT, a INT", "must be a STRING"),
        ("_corrupt_record STRING", "has no member"),
        ("a " + "ARRAY<" * 100 + "INT" + ">" * 100, "types in each other"),
        ('{"type":"struct"}', "not a schema of Spark"),
        ('{"type":"struct","fields":[{"name":1,"type":"int","nullable":true,"metadata":{}}]}', "not a schema of Spark"),
        ('{"type":"struct","fields":[{"name":"\\ud800","type":"integer"}]}', "not a schema of Spark.* surrogates"),
        ('{"type":"struct","fields":[{"name":"a","type":"geography(4326)"}]}', "not a schema of Spark"),
        ('{"type":"array","elementType":' * 20_000, "types in each other"),
        (", ".join(f"a{number} INT" for number in range(10_001)), "has 10002 columns"),
        ('{"type":"struct","fields":[{"name":"a","type":"variant","nullable":true,"metadata":{}}]}', "accepted are"),
    ],
)
def test_another_schema_is_refused_with_what_is_accepted(text: str, logged: str) -> None:
    with pytest.raises(OptionError, match=logged):
        parsed(valueFormat="json", valueSchema=text)


@pytest.mark.parametrize(
    ("options", "logged"),
    [
        ({"valueFormat": "xml"}, r'must be json.*: values in other formats .*"xml" is not decoded'),
        ({"valueFormat": "avro", "valueSchema": "a INT"}, "must be a schema of Avro in JSON.*seen 'a INT'"),
        ({"valueFormat": "avro", "valueSchema": "orders:1"}, "needs the option schemaRegistry"),
        ({"valueFormat": "avro", "valueSchema": "int", "timeZone": "UTC"}, "has no meaning without a TIMESTAMP"),
        ({"valueFormat": "avro", "valueSchema": "int", "valueFraming": "confluent"}, "needs schemaRegistry"),
        ({"schemaRegistry": "http://me:secret@h:1"}, "no key and no value is decoded by its schemas"),
        ({"schemaRegistryUserInfo": "Bearer x"}, "has no meaning without schemaRegistry"),
        ({**JSON, "schemaRegistry": "http://h:1?token=x"}, r"seen one with \? or #"),
        ({**JSON, "schemaRegistry": "http://h..i:1"}, "a host or a path that no request can have"),
        ({**JSON, "schemaRegistry": "http://h:1/a b"}, "a host or a path that no request can have"),
        ({**JSON, "schemaRegistry": "h:1"}, r"schemaRegistry = \"\*\*\*\": must be an address"),
        ({**JSON, "valueFraming": "five"}, "must be confluent or none"),
        ({"keySchema": "a INT"}, "has no meaning without keyFormat"),
        ({"keyFormat": "json"}, "option keySchema: is needed"),
        ({**JSON, "keyFormat": "json", "keySchema": "a INT", "keyColumn": "payload"}, "name of another column"),
        ({"valueFormat": "json"}, "option valueSchema: is needed"),
        ({"valueSchema": "a INT"}, "has no meaning without valueFormat"),
        ({"valueMode": "FAILFAST"}, "has no meaning without valueFormat or keyFormat"),
        ({"timeZone": "UTC"}, "has no meaning without valueFormat or keyFormat"),
        ({**JSON, "keyFormat": "json", "keySchema": "a TIMESTAMP"}, "is needed because keySchema has a TIMESTAMP"),
        ({**JSON, "valueMode": "DROPMALFORMED"}, "must be PERMISSIVE or FAILFAST"),
        ({**JSON, "valueColumn": "Offset"}, "name of another column"),
        ({**JSON, "valueColumn": "event_time"}, "name of another column"),
        ({**JSON, "timeZone": "UTC"}, "has no meaning without a TIMESTAMP"),
        ({"valueFormat": "json", "valueSchema": "a ARRAY<TIMESTAMP>"}, "is needed because valueSchema has a TIMESTAMP"),
        ({"valueFormat": "json", "valueSchema": "a TIMESTAMP", "timeZone": "Nowhere/City"}, "no such zone"),
        ({**JSON, "columns": "value,order"}, 'or payload .*"order" is none of them'),
        ({"columns": "value,payload"}, '"payload" is none of them'),
        ({"recordsInErrors": "false"}, "and with valueFormat"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], logged: str) -> None:
    with pytest.raises(OptionError, match=logged):
        parsed(**options)


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, ["key", "topic", "partition", "offset", "timestamp", "timestampType", "payload"]),
        ({"includeHeaders": "true", "valueColumn": "order"},
         ["key", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "order"]),
        ({"columns": "value,event_time"}, ["value", "payload"]),
        ({"columns": "payload,offset"}, ["offset", "payload"]),
        ({"columns": "payload"}, ["payload"]),
        ({"recordsInErrors": "false", "columns": "event_time"}, ["payload"]),
    ],
)  # fmt: skip
def test_decoded_values_are_a_column_behind_kafkas_own(options: dict[str, str], columns: list[str]) -> None:
    found = parsed(**JSON, **options)
    assert KafkaSource(found).columns.names == columns
    readers = KafkaSource(found).range_reader, KafkaBatch.of(found).range_reader, KafkaSource(found).observing_reader
    decoded = [reader.payloads for reader in readers if isinstance(reader, KafkaRangeReader)]
    assert decoded == [found.payloads, found.payloads, ()]


AVRO = {
    "valueFormat": "avro",
    "valueSchema": '{"type":"record","name":"R","fields":[{"name":"at","type":"long"},{"name":"x","type":"double"},'
    '{"name":"m","type":{"type":"long","logicalType":"timestamp-millis"}},'
    '{"name":"l","type":{"type":"array","items":"long"}}]}',
}


@pytest.mark.parametrize(
    ("path", "framed"),
    [("$.at", False), ("$.m", False), ("$.at", True)],
)
def test_event_time_is_a_member_of_what_is_decoded(path: str, framed: bool) -> None:
    registry = {"schemaRegistry": "http://registry:8081"} if framed else {}
    found = parsed(**AVRO, **registry, eventTimeColumn=f"value:{path}")
    choice = found.event_time
    assert choice is not None
    assert isinstance(choice.place, InColumn)
    assert KafkaSource(found).event_time == f"eventTimeColumn = value:{path}"
    assert pickle.loads(pickle.dumps(found)) == found
    # Of keys, which are bytes here, it is a path into JSON.
    in_key = parsed(**AVRO, **registry, eventTimeColumn=f"key:{path}").event_time
    assert in_key == EventTimeChoice(InJson("key", parse_path(path)))
    in_json = parsed(**JSON, **registry, eventTimeColumn=f"value:{path}").event_time
    assert in_json == EventTimeChoice(InJson("value", parse_path(path), framed))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"eventTimeColumn": "value:$.no"}, r"names no member of valueSchema: \$ of valueSchema has at, l, m, x"),
        ({"eventTimeColumn": "value:$.at.x"}, r"\$\.at of valueSchema is BIGINT, no struct"),
        ({"eventTimeColumn": "value:$.x"}, "is DOUBLE in valueSchema; an event time is of one of these types"),
        ({"eventTimeColumn": "value:$.l"}, "is ARRAY<BIGINT> in valueSchema"),
        ({"eventTimeColumn": "value:$.l[0]"}, r"\$\.l of valueSchema is ARRAY<BIGINT>, no struct"),
        ({"eventTimeColumn": "value:$.at or value:$.no"}, "names no member of valueSchema"),
        ({"eventTimeColumn": "value:$.m or value:$.m", "eventTimeFormat": "millis"}, "the members' types are ones"),
        ({"eventTimeColumn": "value:$"}, "is STRUCT<.* in valueSchema"),
        ({"eventTimeColumn": "value:$.m", "eventTimeFormat": "millis"}, "where the member's type is one of times"),
        ({"watermarkColumn": "value:$.at", "watermarkStrategy": "punctuated"}, "valueFormat is avro: let a function"),
    ],
)
def test_a_member_that_holds_no_event_time_is_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parsed(**AVRO, **options)


def test_the_schema_is_that_of_the_column() -> None:
    source = KafkaSource(parsed(valueFormat="JSON", valueSchema="at TIMESTAMP", timeZone="Europe/Berlin"))
    assert source.columns["payload"] == StructField("payload", StructType([StructField("at", TimestampType())]))
    assert [each.zone for each in source.options.payloads] == ["Europe/Berlin"]


@pytest.mark.parametrize(
    ("options", "framed"),
    [
        ({}, False),
        ({"valueFraming": "confluent"}, True),
        ({"schemaRegistry": "http://registry:8081"}, True),
        ({"schemaRegistry": "http://registry:8081", "keyFormat": "avro", "keySchema": "string", "valueFraming": "none"},
         False),
    ],
)  # fmt: skip
def test_values_are_behind_ids_where_there_is_a_registry(options: dict[str, str], framed: bool) -> None:
    assert parsed(**JSON, **options).payloads[-1].framed == framed


def test_keys_and_values_of_avro_are_columns_of_any_type() -> None:
    found = parsed(
        keyFormat="avro", keySchema="string", valueFormat="avro", valueSchema='{"type":"map","values":"int"}'
    )
    kinds = [KafkaSource(found).columns[name].dataType.simpleString() for name in ("key_payload", "payload")]
    assert kinds == ["string", "map<string,int>"]


def test_no_error_and_no_option_shows_the_registry_s_login() -> None:
    login = {"schemaRegistry": "http://me:s3cret@registry:8081", "valueFormat": "avro", "valueSchema": "int"}
    assert "s3cret" not in repr(parsed(**login))
    with pytest.raises(OptionError) as raised:
        parsed(**login, schemaRegistryUserInfo="Bearer s3cret")
    assert "s3cret" not in str(raised.value)


def test_the_token_s_earlier_option_still_logs_in_and_its_warning_shows_none(caplog: pytest.LogCaptureFixture) -> None:
    _warn_once.cache_clear()
    given = {"schemaRegistry": "http://registry:8081", "valueFormat": "avro", "valueSchema": "int"}
    (before,) = parsed(**given, schemaRegistryToken="s3cret").payloads
    assert [before] == list(parsed(**given, schemaRegistryUserInfo="Bearer s3cret").payloads)
    assert 'write .option("schemaRegistryUserInfo", "Bearer ***")' in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("login", "wrong"),
    [
        ({"schemaRegistryUserInfo": "s3cret"},
         'schemaRegistryUserInfo = .*must be "user:password", or "Bearer TOKEN"; seen a'),
        ({"schemaRegistryUserInfo": "Bearer s3\ncret"}, "schemaRegistryUserInfo = .*must be of ASCII characters"),
        ({"schemaRegistryToken": "s3\ncret"}, "schemaRegistryUserInfo = .*must be of ASCII characters"),
        ({"schemaRegistryToken": "s3cret", "schemaRegistryUserInfo": "me:s3cret"},
         r'schemaRegistryToken = "\*\*\*": is schemaRegistryUserInfo now, which is given too'),
        ({"schemaRegistryToken": "s3cret", "schemaRegistry": "http://me:s3cret@registry:8081"},
         "schemaRegistryUserInfo = .*takes a user or a token, and the address has a user"),
        ({"schemaRegistry": "http://me:12/s3cret@registry:8081"},
         r'schemaRegistry = "\*\*\*": .*seen one with @ behind its host: write a / in a password as %2F'),
    ],
)  # fmt: skip
def test_a_login_for_the_registry_that_is_none_is_named_by_its_option(login: dict[str, str], wrong: str) -> None:
    options = {"schemaRegistry": "http://registry:8081", "valueFormat": "avro", "valueSchema": "int"}
    with pytest.raises(OptionError, match=f"^option {wrong}") as raised:
        parsed(**{**options, **login})
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("version", ["0", "00", "٣", "2147483648", "9" * 5_000, "-1", "latest", ""])
def test_a_version_that_no_subject_has_is_refused_without_a_request(version: str) -> None:
    with pytest.raises(OptionError, match="is not a version, which is a number from 1 to 2147483647, so"):
        parsed(valueFormat="avro", schemaRegistry="http://127.0.0.1:1", valueSchema=f"orders-value:{version}")


def test_a_version_without_a_subject_is_refused() -> None:
    with pytest.raises(OptionError, match="no subject before the colon"):
        parsed(valueFormat="avro", schemaRegistry="http://127.0.0.1:1", valueSchema=":1")


def test_descriptors_are_read_of_files_that_have_an_end(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    for path, why in ((pipe, "is not a regular file"), (Path("/dev/zero"), "is not a regular file"),
                      (large, "descriptors have at most"), (tmp_path, "Is a directory")):  # fmt: skip
        with pytest.raises(OptionError, match=why):
            parsed(valueFormat="protobuf", valueSchema=f"{path}:shop.Order")


def test_keys_are_decoded_before_values() -> None:
    keys = {"keyFormat": "json", "keySchema": "id STRING"}
    found = parsed(**JSON, **keys, valueMode="FAILFAST", columns="offset")
    assert KafkaSource(found).columns.names == ["offset", "key_payload", "payload"]
    assert [(each.field, each.fail_fast) for each in found.payloads] == [("key", True), ("value", True)]
    assert KafkaSource(parsed(**keys)).columns.names[:2] == ["value", "topic"]
