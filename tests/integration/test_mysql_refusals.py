"""What keeps a stream from starting is reported at load(), in one error that names what was found and what mends it."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm import DefaultSource
from pyspark_mysql_cdc_wm.lookup import table_list
from services.local_server import free_ports
from services.mysql import MySql, mysql_service
from services.mysql_client import run
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import end_of_binlog
from tests.integration.mysql_streams import PASSWORD, RIGHTS, make_user
from watermark_source.errors import (
    OptionError,
    RefusedError,
    SchemaError,
    UnknownSplitError,
    UnreachableError,
    UnsupportedFormatError,
    WatermarkSourceError,
)

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server() -> Iterator[MySql]:
    """A server whose settings the tests change."""
    with mysql_service() as own:
        run(
            own.host, own.port, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, name TEXT)",
            "CREATE TABLE shop.other (id INT PRIMARY KEY)",
            "CREATE TABLE shop.two (a INT, kind ENUM('x', ''), PRIMARY KEY (a, kind))",
            "CREATE TABLE shop.long_key (id DECIMAL(50,2) PRIMARY KEY)",
            "CREATE TABLE shop.unkeyed (id INT)",
        )  # fmt: skip
        make_user(own, "cdc", *RIGHTS)
        yield own


def given(server: MySql, **changes: Any) -> dict[str, str]:
    settings = {
        "hostname": server.host, "port": server.port, "username": "cdc", "password": PASSWORD, "tables": "shop.t",
        "startingOffsets": "latest", **changes,
    }  # fmt: skip
    return {name: str(value) for name, value in settings.items()}


def refused(kind: type[WatermarkSourceError], settings: dict[str, str]) -> str:
    with pytest.raises(kind) as error:
        DefaultSource(settings).schema()
    assert type(error.value) is kind
    assert settings["password"] not in "".join(traceback.format_exception(error.value))
    return str(error.value)


def test_what_is_refused_below_works_otherwise(server: MySql) -> None:
    assert DefaultSource(given(server)).schema().fieldNames()[:2] == ["id", "name"]


def test_a_wrong_password_is_never_shown(server: MySql) -> None:
    message = refused(RefusedError, given(server, password="wr0ng-one"))
    assert "refuses the login of the user 'cdc': Access denied" in message
    assert "ALTER USER 'cdc'@'%' IDENTIFIED BY '…'" in message


def test_an_unreachable_server_is_named_with_its_port(server: MySql) -> None:
    (port,) = free_ports(1)
    message = refused(UnreachableError, given(server, port=port))
    assert f"MySQL at 127.0.0.1:{port} cannot be reached" in message
    assert "Check the options hostname and port" in message
    assert "cannot be reached" in refused(UnreachableError, given(server, hostname="nobody.invalid"))


@pytest.mark.parametrize(
    ("setting", "value", "usual"),
    [
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_image", "NOBLOB", "FULL"),
    ],
)
def test_a_setting_that_leaves_something_out_is_refused(server: MySql, setting: str, value: str, usual: str) -> None:
    run(server.host, server.port, f"SET GLOBAL {setting} = '{value}'")
    try:
        message = refused(UnsupportedFormatError, given(server))
    finally:
        run(server.host, server.port, f"SET GLOBAL {setting} = '{usual}'")
    assert f"{setting} is {value}, and must be {usual}" in message
    assert f" {setting} = '{usual}'" in message


def test_a_server_without_a_binlog_is_refused() -> None:
    without = {"skip_log_bin": "1", "loose_gtid_mode": "OFF", "loose_enforce_gtid_consistency": "OFF"}
    with mysql_service(config=without) as own:
        run(own.host, own.port, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        make_user(own, "cdc", *RIGHTS)
        message = refused(UnsupportedFormatError, given(own))
    assert "log_bin is OFF, and must be ON" in message
    assert "set log_bin in the server's configuration" in message


def test_a_replica_that_does_not_log_what_it_applies_is_refused() -> None:
    # MariaDB's default, and on MySQL a choice. Both names of the setting are MySQL's.
    with mysql_service(config={"log_slave_updates": "OFF"}) as own:
        run(own.host, own.port, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        make_user(own, "cdc", *RIGHTS)
        DefaultSource(given(own)).schema()
        words = {Flavour.MYSQL: ("REPLICATION SOURCE", "SOURCE"), Flavour.MARIADB: ("MASTER", "MASTER")}
        what, prefix = words[own.flavour]
        address = f"{prefix}_HOST = '127.0.0.1', {prefix}_PORT = 9, {prefix}_USER = 'repl'"
        run(own.host, own.port, f"CHANGE {what} TO {address}", "START REPLICA SQL_THREAD")
        message = refused(UnsupportedFormatError, given(own))
        if own.flavour is Flavour.MARIADB:
            assert "log_slave_updates is OFF, and must be ON: the server is a replica (Slaves_running is 1)" in message
            run(own.host, own.port, "GRANT SLAVE MONITOR ON *.* TO 'cdc'@'%'")
            message = refused(UnsupportedFormatError, given(own))
        assert "updates is OFF, and must be ON: the server is a replica of 127.0.0.1:9, and its binlog lacks" in message


def test_a_table_that_comes_later_in_a_database_that_is_not_logged_ends_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    # Names are compared with their case, whichever the databases have.
    with mysql_service(config={"binlog_do_db": "shop", "sync_binlog": "1"}) as own:
        run(
            own.host,
            own.port,
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "CREATE DATABASE Shop",
        )
        make_user(own, "cdc", *RIGHTS)
        source = DefaultSource(given(own, tables="*.t", startingOffsets="initial"))
        reader = source.streamReader(source.schema())
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2**63 - 1))
        run(own.host, own.port, "CREATE TABLE Shop.t (id INT PRIMARY KEY)")
        try:
            with pytest.raises(UnsupportedFormatError, match=r"leaves out the database Shop \(binlog_do_db\)"):
                reader.latestOffset(end, ReadMaxRows(2**63 - 1))
        finally:
            reader.stop()


@pytest.mark.parametrize("missing", RIGHTS)
def test_a_missing_grant_is_reported_with_the_statement(server: MySql, missing: str) -> None:
    make_user(server, "poor", *(grant for grant in RIGHTS if grant != missing))
    if missing == "SELECT ON *.*":
        message = refused(UnknownSplitError, given(server, username="poor"))
        assert "there is no table shop.t, or the user 'poor' may not see it" in message
        assert "GRANT SELECT ON `shop`.`t` TO 'poor'@'%'" in message
    else:
        message = refused(RefusedError, given(server, username="poor"))
        assert "refuses the user 'poor'" in message
        assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'poor'@'%'" in message


def test_a_table_that_can_be_seen_and_not_read_is_refused(server: MySql) -> None:
    make_user(server, "poor", "INSERT ON shop.t", *RIGHTS[1:])
    message = refused(RefusedError, given(server, username="poor"))
    assert "the user 'poor' may not read shop.t" in message
    assert "GRANT SELECT ON `shop`.`t` TO 'poor'@'%'" in message


def test_a_missing_table_and_a_missing_column_are_named(server: MySql) -> None:
    assert "there is no table shop.gone" in refused(UnknownSplitError, given(server, tables="shop.gone"))
    message = refused(UnknownSplitError, given(server, tables="shop.othr"))
    assert "The tables it may see: shop.other, " in message
    message = refused(OptionError, given(server, columns="id,nick"))
    assert "there is no column nick; the columns are id, name" in message


def test_what_matches_nothing_is_reported_with_what_there_is(server: MySql) -> None:
    message = refused(UnknownSplitError, given(server, tables=r"shop\.orders_\d+"))
    assert r"there is no table like shop\.orders_\d+" in message
    assert "shop.other" in message
    assert "mysql." not in refused(UnknownSplitError, given(server, tables="nowhere.*"))
    # Of several, each that is named must be there; a pattern may find its first table later.
    refused(UnknownSplitError, given(server, tables="shop.t,shop.gone"))
    assert DefaultSource(given(server, tables="shop.t,shop.later_*")).schema().fieldNames()[:2] == ["id", "name"]


def test_a_view_is_refused_and_matches_no_pattern(server: MySql) -> None:
    run(server.host, server.port, "CREATE VIEW shop.v AS SELECT id FROM shop.t")
    try:
        assert "shop.v is a view, not a table" in refused(UnknownSplitError, given(server, tables="shop.v"))
        schema = DefaultSource(given(server, tables="shop.t,shop.v*")).schema()
    finally:
        run(server.host, server.port, "DROP VIEW shop.v")
    assert schema.fieldNames()[:2] == ["id", "name"]


def test_columns_can_be_left_out_and_what_cannot_be_is_reported(server: MySql) -> None:
    def names(**options: Any) -> list[str]:
        return DefaultSource(given(server, **options)).schema().fieldNames()

    assert names(excludeColumns="NAME")[:2] == ["id", "_change_type"]
    assert "there is no column nam; the columns are id, name; the nearest is name" in refused(
        OptionError, given(server, excludeColumns="nam")
    )
    assert "leaves no column of shop.t" in refused(OptionError, given(server, excludeColumns="id,name"))
    assert "the option columns already lists" in refused(OptionError, given(server, excludeColumns="id", columns="id"))
    # Tables that differ only in what is left out are one stream.
    assert names(tables="shop.t,shop.other", excludeColumns="name")[:2] == ["id", "_change_type"]
    assert names(tables="shop.t,shop.other", columns="id")[:2] == ["id", "_change_type"]
    # What shows about changes goes with both options.
    about = "_snapshot,_change_number,_Commit_Timestamp,_database,_table"
    assert names(columns="id", excludeColumns=about) == [
        "id",
        "_change_type",
        "_commit_version",
        "event_time",
        "marker",
    ]
    assert names(excludeColumns=f"{about},name")[:2] == ["id", "_change_type"]


def test_a_password_may_have_any_characters(server: MySql) -> None:
    password = "pä€漢😀 '\""
    make_user(server, "any", *RIGHTS, password=password)
    for mode in ("preferred", "disabled"):
        settings = given(server, username="any", password=password, sslMode=mode)
        assert DefaultSource(settings).schema().fieldNames()[:2] == ["id", "name"]
    message = refused(RefusedError, given(server, username="any", password="pä€漢😁"))
    assert "refuses the login of the user 'any'" in message


def test_rows_as_json_take_tables_with_any_columns(server: MySql) -> None:
    settings = given(server, tables="shop.t,shop.other", rowFormat="json")
    assert DefaultSource(settings).schema().fieldNames()[:2] == ["_row", "_change_type"]
    assert DefaultSource({**settings, "columns": "name"}).schema().fieldNames()[0] == "_row"
    assert "there is no column nick" in refused(OptionError, {**settings, "columns": "name,nick"})


def test_tables_with_different_columns_are_refused(server: MySql) -> None:
    message = refused(SchemaError, given(server, tables="shop.t,shop.other"))
    assert "shop.other and shop.t have different columns" in message
    assert "Set rowFormat to json" in message


def test_a_column_of_the_streams_own_name_is_refused_unless_it_is_left_out(server: MySql) -> None:
    columns = "id INT PRIMARY KEY, Event_Time TIMESTAMP, marker INT, _Table INT"
    run(server.host, server.port, f"CREATE TABLE shop.named ({columns})")
    message = refused(SchemaError, given(server, tables="shop.named"))
    assert (
        "shop.named has columns with the names of the stream's own columns: Event_Time, marker, _Table. Name the others"
        in message
    )
    left_out = {"columns": "id,marker", "eventTimeColumn": "Event_Time"}
    assert "own columns: marker. " in refused(SchemaError, given(server, tables="shop.named", **left_out))
    names = DefaultSource(given(server, tables="shop.named", includeMarkers="false", **left_out)).schema().fieldNames()
    assert names == [
        "id", "marker", "_change_type", "_snapshot", "_commit_version", "_change_number", "_commit_timestamp",
        "_database", "_table", "event_time",
    ]  # fmt: skip
    assert DefaultSource(given(server, tables="shop.named", rowFormat="json")).schema().fieldNames()[0] == "_row"


@pytest.mark.parametrize(
    ("table", "key", "text"),
    [("two", "(a, kind)", "kind is an ENUM with an empty label"), ("long_key", "(id)", "id is of the type NEWDECIMAL")],
)
def test_a_snapshot_by_a_key_that_is_not_ordered_here_is_refused(
    server: MySql, table: str, key: str, text: str
) -> None:
    message = refused(UnsupportedFormatError, given(server, tables=f"shop.{table}", startingOffsets="initial"))
    assert f"is cut by the primary key or snapshotChunkColumn, here {key}" in message
    assert text in message
    assert "Name another column of the table by snapshotChunkColumn, or set startingOffsets to latest" in message
    DefaultSource(given(server, tables=f"shop.{table}")).schema()


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_a_snapshot_without_gtids_takes_tables_with_a_key_alone(server: MySql) -> None:
    steps = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
    run(server.host, server.port, *(f"SET GLOBAL gtid_mode = {step}" for step in steps))
    try:
        DefaultSource(given(server, startingOffsets="initial")).schema()
        message = refused(UnsupportedFormatError, given(server, tables="shop.unkeyed", startingOffsets="initial"))
        DefaultSource(given(server, tables="shop.unkeyed")).schema()
    finally:
        run(server.host, server.port, *(f"SET GLOBAL gtid_mode = {step}" for step in [*steps[1::-1], "ON"]))
    assert "gtid_mode is not ON" in message
    assert "would lack transactions that are being committed: shop.unkeyed" in message
    assert "SET PERSIST gtid_mode = ON." in message


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ('{"file":"binlog.999999","position":4}', "the server's binlog begins in binlog.000001 and ends at binlog"),
        ('{"file":"mysql-bin.000001","position":4}', "the server's files are named binlog.000001"),
    ],
)
def test_a_place_that_the_server_has_not_is_refused_at_the_start(server: MySql, place: str, text: str) -> None:
    source = DefaultSource(given(server, startingOffsets=place))
    reader = source.streamReader(source.schema())
    with pytest.raises(OptionError, match=text):
        reader.initialOffset()


def test_a_place_within_an_event_or_a_transaction_is_refused_at_once(server: MySql) -> None:
    run(server.host, server.port, "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (77, 'n')")
    file = end_of_binlog(server).file
    events: Sequence[tuple[Any, ...]] = run(server.host, server.port, f"SHOW BINLOG EVENTS IN '{file}'")
    began = time.monotonic()
    # What MariaDB notes by itself, at any moment, is between transactions.
    events = [event for event in events if str(event[2]).lower() != "binlog_checkpoint"]
    # After the events of the file itself and the one that the transaction begins with.
    inside = 1 + next(i for i, event in enumerate(events) if str(event[2]).lower() == "gtid")
    for position in (*(int(event[1]) for event in events[inside:]), *(int(event[1]) + 7 for event in events)):
        place = json.dumps({"file": file, "position": position})
        source = DefaultSource(given(server, startingOffsets=place))
        reader = source.streamReader(source.schema())
        with pytest.raises(OptionError, match=f"position {position}.*no transaction begins there"):
            reader.initialOffset()
    assert time.monotonic() - began < 120
    for event in events[:inside]:
        place = json.dumps({"file": file, "position": int(event[1])})
        source = DefaultSource(given(server, startingOffsets=place))
        source.streamReader(source.schema()).initialOffset()


def test_load_shows_the_error_and_no_password(spark: SparkSession, server: MySql) -> None:
    reader = spark.readStream.format("mysql-cdc-wm").options(**given(server, password="wr0ng-one"))
    with pytest.raises(PySparkException, match="refuses the login of the user 'cdc'") as error:
        reader.load()
    assert "wr0ng-one" not in "".join(traceback.format_exception(error.value))


def test_what_is_found_at_the_start_is_not_hidden(spark: SparkSession, server: MySql, tmp_path: Path) -> None:
    source = spark.readStream.format("mysql-cdc-wm").schema("value STRING").options(**given(server)).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match=r"(?s)SchemaError.*seen struct<value:string>.*struct<id:int") as caught:
        query.awaitTermination(200)
    assert "UnboundLocalError" not in str(caught.value)
