"""``verify``: a copy of a table against the server, of any type and key, damaged in any way, while both are written."""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation
from pyspark.sql.types import StringType, StructType

from pyspark_mysql_cdc_wm import certify, verify_certified, verify_copy
from pyspark_mysql_cdc_wm.lookup import replicas
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.verify import Verdict
from pyspark_mysql_cdc_wm.verifying import cutting, pieces
from pyspark_mysql_cdc_wm.verifying.compared_table import ComparedTable
from pyspark_mysql_cdc_wm.verifying.comparison import Kind, compare, fingerprints_of
from pyspark_mysql_cdc_wm.verifying.logged_rows import KeyStates
from pyspark_mysql_cdc_wm.verifying.row_text import RowText, too_long
from services.wait_until import wait_until
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_columns import samples_of
from tests.integration.mysql_keys import KINDS
from tests.integration.mysql_streams import PASSWORD, USER, MySqlStreams
from tests.integration.mysql_writers import writers
from tests.integration.test_mysql_snapshot import fill
from tests.unit.docs_blocks import ROOT, blocks
from watermark_source.command_line import main
from watermark_source.errors import OffsetError, UnsupportedFormatError, UsageError

pytestmark = pytest.mark.service
_log = logging.getLogger(__name__)

_NOT_COMPARED = ("VECTOR(3)", "SET('','a','b')")
"""Types that servers and Spark have no common text of."""
_BY_DAY = ("three columns", "0900_ai_ci", "uca1400_ai_ci")
_KEYS = (*_BY_DAY, "two columns", "uuid")
_LINE = re.compile(r"(.*): (\d+) (\w+): (.*?)(?: and \d+ more)?")


@pytest.fixture(autouse=True)
def short_binlog(mysql_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a file of the binlog with the test, and look for earlier rows in the last file alone."""
    mysql_database.run("FLUSH BINARY LOGS")
    monkeypatch.setattr(sys.modules["pyspark_mysql_cdc_wm.verify"], "_EARLIER_BYTES", 0)


def options(streams: MySqlStreams, table: str = "t", **more: Any) -> dict[str, str]:
    server = streams.database.server
    given = {
        "hostname": server.host, "port": server.port, "username": USER, "password": PASSWORD,
        "tables": f"{streams.database.name}.{table}", **more,
    }  # fmt: skip
    return {name: str(value) for name, value in given.items()}


def verified(
    streams: MySqlStreams, copy: DataFrame | Callable[[], DataFrame], checkpoint: str = "copy", **more: Any
) -> Verdict:
    load = (lambda: copy) if isinstance(copy, DataFrame) else copy
    return verify_copy(load, checkpoint=streams.checkpoint(checkpoint), options=options(streams, **more))


def certified(streams: MySqlStreams, name: str, checkpoint: str = "copy", **more: Any) -> Path:
    """Return the file of a new certificate."""
    file = streams.root / f"{name}.json"
    said = certify(file, checkpoint=streams.checkpoint(checkpoint), options=options(streams, **more))
    assert said.startswith(f"{file}: {streams.database.name}.")
    return file


def kinds(differences: Iterable[object]) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return by kind the number of rows and the keys that differences name, as they are printed."""
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for each in differences:
        line = _LINE.fullmatch(str(each))
        assert line is not None, each
        rows, keys = found.get(line[3], (0, ()))
        found[line[3]] = (rows + int(line[2]), (*keys, *line[4].split(", ")))
    return found


def kept(changes: DataFrame) -> DataFrame:
    """Return a table by its changes: the last row of each key that is not deleted."""
    newest = Window.partitionBy("id").orderBy(F.desc("_commit_version"), F.desc("_change_number"))
    last = changes.where("marker IS NULL AND _change_type <> 'update_preimage'").withColumn(
        "n", F.row_number().over(newest)
    )
    return last.where("n = 1 AND _change_type <> 'delete'").select("id", "name", "amount")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "_PIECE_ROWS", 100)
    monkeypatch.setattr(pieces, "_KEYS_A_STATEMENT", 2)


@pytest.mark.parametrize("of", [3, pytest.param(1, marks=pytest.mark.long("every third of them"))])
def test_a_copy_of_every_type_is_accepted_and_a_value_that_differs_is_found_in_each(
    mysql_streams: MySqlStreams, of: int
) -> None:
    database = mysql_streams.database
    samples = samples_of(database.server)
    every = [each for n, each in enumerate(samples) if n % of == 0 or each.declaration in _NOT_COMPARED]
    values = [(*each.literals, "NULL") for each in every]
    rows = max(len(every), *map(len, values)) + 1
    declared = ", ".join(f"{each.name} {each.declaration}" for each in every)
    database.run(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"CREATE TABLE t (id INT PRIMARY KEY, Piece INT, {declared}) ROW_FORMAT = DYNAMIC",
        *(
            f"INSERT INTO t VALUES ({row}, {row}, {', '.join(each[row % len(each)] for each in values)})"
            for row in range(rows)
        ),
    )
    mysql_streams.run(mysql_streams.source("t"), "copy")
    copy = mysql_streams.result("copy").where("marker IS NULL")
    with pytest.raises(UnsupportedFormatError, match=r"set_empty: values of SET with an empty label .* excludeColumns"):
        verified(mysql_streams, copy)
    with pytest.raises(UsageError, match=f"the copy has no column {every[0].name}; it has id"):
        verified(mysql_streams, copy.select("id"), columns=f"id,{every[0].name}")
    with pytest.raises(UsageError, match="column id is left out"):
        verified(mysql_streams, copy, columns=every[0].name)
    left_out = ",".join(each.name for each in every if each.declaration in _NOT_COMPARED)
    verdict = verified(mysql_streams, copy, excludeColumns=left_out)
    assert verdict.accepted, verdict
    assert f"the {rows} rows of {database.name}.t at " in verdict.summary
    certificate = certified(mysql_streams, "every", excludeColumns=left_out)
    assert verify_certified(copy, certificate).accepted
    # A row for each column has the next row's value in it.
    names = [each.name for each in every if each.declaration not in _NOT_COMPARED]
    held = copy.select("id", "Piece", *names).orderBy("id")
    before = held.collect()
    after = [
        {**row.asDict(), name: before[at + 1][name]} for at, (row, name) in enumerate(zip(before, names, strict=False))
    ]
    rest = [row.asDict() for row in before[len(names) :]]
    damaged = mysql_streams.spark.createDataFrame([*after, *rest], held.schema)
    differ = [str(at) for at, name in enumerate(names) if str(before[at][name]) != str(after[at][name])]
    # Two dates in a row are none, and null.
    assert len(differ) >= len(names) - 3
    verdict = verified(mysql_streams, damaged, excludeColumns=left_out)
    assert kinds(verdict.differences) == {"altered": (len(differ), tuple(differ[:10]))}
    assert verify_certified(damaged, certificate).unexamined == ("all id",)


def test_damage_is_named_by_range_and_key(
    mysql_streams: MySqlStreams, small_pieces: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = mysql_streams.database
    fill(database, rows=1_000)
    database.run("UPDATE t SET amount = -1 WHERE id = 40", "DELETE FROM t WHERE id = 1998")
    mysql_streams.run(mysql_streams.source("t"), "copy")
    copy = kept(mysql_streams.result("copy")).localCheckpoint()
    others = copy.where("id NOT IN (10, 20, 30, 40, 1500) AND (id < 600 OR id >= 800)")
    damaged = others.unionByName(
        copy.sparkSession.createDataFrame(
            # 10 is lost. Of two rows the amounts are swapped, whose lengths are equal.
            [
                (20, "n10", 15),
                (30, "n15", 10),
                (40, "n20", 20),
                (1_998, "n999", 999),
                (1_500, "n750", 750),
                (1_500, "n750", 750),
                (9_999, "new", 1),
            ],
            copy.schema,
        )
    )
    damaged.write.parquet(str(mysql_streams.root / "damaged"))
    copy.write.parquet(str(mysql_streams.root / "whole"))
    given = options(mysql_streams)
    monkeypatch.setenv("WATERMARK_SOURCE_PASSWORD", given.pop("password"))
    given["checkpoint"] = str(mysql_streams.checkpoint("copy"))
    words = [word for name, value in given.items() for word in (f"--{name}", value)]

    def command(folder: str, *more: str) -> int:
        return main(["verify", "--mysql", "--copy", f"parquet:{mysql_streams.root / folder}", *words, *more])

    assert command("damaged") == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    assert kinds(lines) == {
        "missing": (101, ("10", *(str(key) for key in range(600, 620, 2)))),
        "altered": (2, ("20", "30")),
        "stale": (2, ("40", "1998")),
        "doubled": (1, ("1500",)),
        "extra": (1, ("9999",)),
    }
    assert lines[0].startswith("id to below 2")
    assert re.fullmatch(
        rf"rejected: the copy differs from {database.name}\.t at \S+ position \d+ in 4 of 10 ranges: "
        "101 missing, 1 doubled, 2 altered, 2 stale, 1 extra", summary,
    )  # fmt: skip
    assert command("whole") == 0
    assert capsys.readouterr().out.startswith("accepted: ")
    assert command("whole", "--rowFormat", "json") == 2
    assert command("nowhere") == 2
    assert "nowhere cannot be read: " in capsys.readouterr().err
    # By a certificate it is the same ranges, whatever has become of the table.
    certificate = ["--certificate", str(mysql_streams.root / "t.json")]
    copies = ["verify", "--mysql", *certificate, "--copy"]
    assert main(["certify", "--mysql", *certificate, *words]) == 0
    said = re.fullmatch(r".*t\.json: \w+\.t with 999 rows, as of (.*)\n", capsys.readouterr().out)
    assert said is not None
    database.run("UPDATE t SET amount = -2 WHERE id = 800", "INSERT INTO t VALUES (3, '', 3)")
    for folder, expected in (("damaged", 1), ("whole", 0)):
        assert main([*copies, f"parquet:{mysql_streams.root / folder}"]) == expected
    *ranges, rejected, accepted = capsys.readouterr().out.splitlines()
    assert ranges == [f"{piece}: rows differ" for piece in dict.fromkeys(line.split(": ")[0] for line in lines)]
    was = f"{database.name}.t as of {said[1]}"
    assert rejected == f"rejected: the copy differs from {was} in 4 of 10 ranges"
    assert accepted == f"accepted: the copy has the 999 rows of {was}"
    later = certified(mysql_streams, "later")
    stated = json.loads(later.read_text())
    assert f"batch {stated['batch']}, {stated['position']}" == said[1]
    assert verify_certified(copy, later).accepted
    assert main(["certify", "--mysql", *certificate, *words]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*copies, "parquet:x", "--hostname", "db1"]) == 2
    assert "leave out --hostname" in capsys.readouterr().err
    mysql_streams.run(mysql_streams.source("t", rereadTables=f"{database.name}.t:mend"), "copy")
    again = mysql_streams.result("copy").where("_change_type = 'reread'").select(*copy.columns)
    mended = damaged.join(again, "id", "left_anti").unionByName(again)
    found = kinds(verified(mysql_streams, mended).differences)
    assert found == {"stale": (1, ("1998",)), "extra": (1, ("9999",))}


@pytest.mark.parametrize(
    "names", [_BY_DAY, pytest.param(_KEYS, marks=pytest.mark.long("_BY_DAY"))], ids=["some", "all"]
)
def test_keys_of_any_kind_are_compared(mysql_streams: MySqlStreams, small_pieces: None, names: tuple[str, ...]) -> None:
    database, spark = mysql_streams.database, mysql_streams.spark
    chosen = {name: KINDS[name] for name in names if KINDS[name].flavour in (None, database.server.flavour)}
    for at, kind in enumerate(chosen.values()):
        rows = ", ".join(f"({kind.values(n)}, 'n{n}', {n})" for n in range(300))
        database.run(kind.create(f"t{at}"), f"INSERT IGNORE INTO t{at} VALUES {rows}")
    everything = ",".join(f"t{at}" for at in range(len(chosen)))
    mysql_streams.run(mysql_streams.source(everything, rowFormat="json"), "copy")
    for at, (name, kind) in enumerate(chosen.items()):
        schema = mysql_streams.source(f"t{at}").select(*kind.names, "name", "amount").schema
        held = [
            tuple(Decimal(v) if f.dataType.typeName() == "decimal" else v for v, f in zip(row, schema, strict=True))
            for row in database.run(f"SELECT * FROM t{at}")
        ]
        database.run(f"UPDATE t{at} SET amount = amount + 1 WHERE amount % 50 = 7")
        # All is accepted but one row that is lost, and one that is doubled.
        wrong = spark.createDataFrame([*held[1:], (*held[5][:-1], -5)], schema)
        verdict = verified(mysql_streams, wrong, table=f"t{at}")
        found = {kind: count for kind, (count, _) in kinds(verdict.differences).items()}
        assert found == {"missing": 1, "doubled": 1}, (name, verdict)
        certificate = certified(mysql_streams, f"t{at}", table=f"t{at}")
        assert verify_certified(spark.createDataFrame(held, schema), certificate).accepted, name
        assert 0 < len(verify_certified(wrong, certificate).unexamined) <= 2, name


def test_a_copy_that_is_written_like_its_table_is_accepted_and_damage_to_it_is_not(
    mysql_streams: MySqlStreams, small_pieces: None
) -> None:
    database = mysql_streams.database
    fill(database, rows=2_000)
    frame = mysql_streams.source("t", snapshotChunkRows=500)
    mysql_streams.run(frame, "copy")
    query = mysql_streams.start_file(frame, "copy")
    # Half of the keys are written to.
    with writers(database, "t", count=2, keys=2_000, pause=0.002):
        begun = len(mysql_streams.offsets("copy"))
        wait_until(lambda: len(mysql_streams.offsets("copy")) > begun + 2, 120, "more batches")
        verdict = verified(mysql_streams, lambda: kept(mysql_streams.result("copy")))
        assert verdict.accepted, verdict
        assert "keys that changed since" in verdict.summary
        verdict = verified(mysql_streams, lambda: kept(mysql_streams.result("copy")).where("id <> 3000"))
        assert kinds(verdict.differences) == {"missing": (1, ("3000",))}
        query.stop()
        # What is in the copy is committed then.
        mysql_streams.run(frame, "copy")
        certificate = certified(mysql_streams, "written")
    assert verify_certified(kept(mysql_streams.result("copy")), certificate).accepted
    kept(mysql_streams.result("copy")).write.parquet(str(mysql_streams.root / "lake"))
    (code,) = (block.code for block in blocks(ROOT / "docs" / "verify.md") if block.language == "python")
    given = options(mysql_streams)
    for shown, real in (
        ("/lake/orders", str(mysql_streams.root / "lake")),
        ("/data/orders_copy", str(mysql_streams.checkpoint("copy"))),
        ('"db1.example.org"', f'"{given["hostname"]}", "port": "{given["port"]}"'), ("shop.orders", given["tables"]),
    ):  # fmt: skip
        code = code.replace(shown, real)
    exec(code, {"spark": mysql_streams.spark, "password": PASSWORD})


def test_a_row_that_was_changed_and_is_none_of_what_it_was_is_altered(
    mysql_streams: MySqlStreams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = mysql_streams.database
    fill(database, rows=10)
    mysql_streams.run(mysql_streams.source("t"), "copy")
    before = [tuple(row) for row in kept(mysql_streams.result("copy")).collect()]
    database.run(
        "UPDATE t SET amount = 50 WHERE id = 2", "UPDATE t SET amount = 60 WHERE id = 2", "DELETE FROM t WHERE id = 4",
        "INSERT INTO t VALUES (5, 'new', 5)", "UPDATE t SET id = 7 WHERE id = 6",
        "UPDATE t SET amount = 80 WHERE id = 8",
    )  # fmt: skip
    # Each is what the key was at some position, also between batches.
    changed = [(2, "n1", 50), (5, "new", 5), (7, "n3", 3)]
    held = [*(row for row in before if row[0] not in (2, 4, 6)), *changed]
    # Of a wider type than the table's.
    schema = "id int, name string, amount decimal(20,1)"

    def made(rows: list[tuple[Any, ...]]) -> DataFrame:
        return mysql_streams.spark.createDataFrame([(*row[:2], Decimal(row[2])) for row in rows], schema)

    verdict = verified(mysql_streams, made(held))
    assert verdict.accepted, verdict
    assert "; 6 keys that changed since" in verdict.summary
    # What the table's type does not hold is no value of the table.
    of_others = [row for row in held if row[0] not in (2, 8, 12)]
    wrong = [(2, "n1", 70), (4, "n2", 2), (4, "n2", 2), (12, "n6", "6.4"), *of_others]
    found = kinds(verified(mysql_streams, made(wrong)).differences)
    assert found == {"altered": (2, ("2", "12")), "doubled": (1, ("4",)), "missing": (1, ("8",))}
    # What is read since the checkpoint's last committed batch may be in the copy: the server must have it.
    newest = max((mysql_streams.checkpoint("copy") / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    planned = newest.with_name(str(int(newest.name) + 1))
    planned.write_text(re.sub(r'(\\?"done\\?": *\\?"[0-9a-f-]+:1-)\d+', r"\g<1>999999999", newest.read_text()))
    if planned.read_text() != newest.read_text():
        monkeypatch.setattr(replicas, "_CATCH_UP_SECONDS", 1)
        with pytest.raises(OffsetError, match="lacks transactions that the query has read"):
            verified(mysql_streams, made(held))
    planned.unlink()
    # A checkpoint that says nothing of the table is refused.
    fill(database, "u", rows=10)
    copy = made(held)
    with pytest.raises(UsageError, match=r"the snapshot of \w+\.u is not complete"):
        verified(mysql_streams, copy, table="u")
    with pytest.raises(UsageError, match="expected the option tables to name one table"):
        verified(mysql_streams, copy, table="*")
    with pytest.raises(UsageError, match="there is no folder"):
        verify_copy(lambda: copy, checkpoint=tmp_path / "none", options=options(mysql_streams))


def test_what_a_table_was_before_it_was_altered_is_not_certified(mysql_streams: MySqlStreams) -> None:
    database = mysql_streams.database
    changes = {
        "t": ("ALTER TABLE t MODIFY name VARCHAR(2)",),
        "u": ("CREATE TABLE u2 LIKE u", "DROP TABLE u", "CREATE TABLE u LIKE u2"),
        "v": ("TRUNCATE TABLE v",),
        "w": ("ALTER TABLE w ADD COLUMN more INT DEFAULT 7",),
    }
    for table in changes:
        fill(database, table, rows=10)
    frame = mysql_streams.source(",".join(changes), ignoredChanges="tables,columns")
    mysql_streams.run(frame, "copy")
    mysql_streams.run(mysql_streams.source("w"), "one")
    for table, statements in changes.items():
        database.run(*statements, f"INSERT INTO {table} (id, name, amount) VALUES (99, 'n', 1)")
        for ignored in ("tables", "tables,columns,statements"):
            with pytest.raises(UnsupportedFormatError, match="altered, emptied, dropped or created again"):
                certified(mysql_streams, table, table=table, ignoredChanges=ignored)
    # Once a query has read on, its last batch is of the table as it is.
    mysql_streams.run(mysql_streams.source("w", excludeColumns="more"), "one")
    certificate = certified(mysql_streams, "later", "one", table="w", excludeColumns="more")
    assert verify_certified(kept(mysql_streams.result("one")), certificate).accepted


def test_a_row_that_the_server_has_no_text_of_is_never_accepted(mysql_streams: MySqlStreams) -> None:
    """A packet is too short for it, and the server's text of such a value is null or empty."""
    database, long = mysql_streams.database, 3 * 2**19
    columns = ("words", "bytes", "doc", "shape")
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, words LONGTEXT, bytes LONGBLOB, doc JSON, shape GEOMETRY)",
        "INSERT INTO t VALUES (1, 1, 'a', 'b', '[]', POINT(1, 1))",
        f"INSERT INTO t VALUES (2, 2, REPEAT('w', {long}), REPEAT('b', {long}), JSON_ARRAY(REPEAT('d', {long})), "
        f"ST_GeomFromText(CONCAT('LINESTRING(0 0', REPEAT(',1 1', {long // 16}), ')')))",
        "INSERT INTO t SELECT 3, 3, words, bytes, doc, shape FROM t WHERE id = 2",
    )
    mysql_streams.run(mysql_streams.source("t"), "copy")
    copy = mysql_streams.result("copy").where("marker IS NULL")
    ((limit,),) = database.run("SELECT @@GLOBAL.max_allowed_packet")
    assert verified(mysql_streams, copy).accepted
    # The exclusive or is that of the one row, and two are lost.
    short = copy.where("id = 1")
    fraction = F.expr("IF(id = 2, 1.5, CAST(n AS DECIMAL(9, 1)))")
    answers = {}
    try:
        database.run(f"SET GLOBAL max_allowed_packet = {2**20}")
        for name in columns:
            without = F.when(F.col("id") == 1, F.col(name))
            for damage, damaged in (
                ("none", copy), ("lacks it", copy.withColumn(name, without)), ("other", copy.withColumn("n", fraction)),
                ("tripled", short.union(short).union(short)),
            ):  # fmt: skip
                try:
                    answers[name, damage] = verified(mysql_streams, damaged, columns=f"id,n,{name}").summary
                except UnsupportedFormatError as error:
                    answers[name, damage] = str(error)
            try:
                answers[name, "certificate"] = str(certified(mysql_streams, name, columns=f"id,n,{name}"))
            except UnsupportedFormatError as error:
                answers[name, "certificate"] = str(error)
    finally:
        database.run(f"SET GLOBAL max_allowed_packet = {limit}")
    assert set(answers.values()) == {str(too_long())}, answers


def test_a_range_that_differs_differs_where_no_row_is_found_that_does(spark: SparkSession) -> None:
    """Of an engine without transactions the rows may be others when they are read again."""
    copy = spark.createDataFrame([(0, "1", 1)], "piece int, key string, sha bigint")
    answers: Iterator[list[tuple[Any, ...]]] = iter([[(0, 1, 9, 1)], [("1", 1)]])
    text, whole = RowText("k", "k"), pieces.KeyRanges((), ())
    found = compare(copy, pieces.Rows(TableName("shop", "t"), text, text, lambda _: next(answers)), whole, {})
    assert (found.wrong, found.unexamined) == ({}, (0,))


def test_a_copy_whose_key_is_null_does_not_have_the_key_with_the_text_of_null(spark: SparkSession) -> None:
    key = Column(ColumnType.VARCHAR, name="K", collation=45, length=1)
    table = ComparedTable(TableName("shop", "t"), ("K",), (key,), StructType().add("k", StringType()))
    hashes = pieces.KeyHashes(table.key, table.key_names, 0)
    right, wrong = (table.fingerprints(spark.createDataFrame([(k,)], "K string"), hashes) for k in ("N", None))
    ((piece, stated),) = fingerprints_of(right).items()
    # By this a certificate is compared.
    assert fingerprints_of(wrong) != {piece: stated}
    answers: Iterator[list[tuple[Any, ...]]] = iter([[("0", *stated, 1)], [("N", stated.sha)], [], []])
    rows = pieces.Rows(table.name, table.key, table.row, lambda _: next(answers))
    assert compare(wrong.localCheckpoint(), rows, hashes, {}).wrong == {piece: {"N": Kind.ALTERED}}
    changed = {"N": KeyStates(piece, stated.sha, rows={stated.sha})}
    for copy, found in ((right, {}), (wrong, {piece: {"N": Kind.ALTERED}})):
        assert compare(copy.localCheckpoint(), rows, hashes, changed).wrong == found


@pytest.mark.timeout(14_400)
@pytest.mark.long("test_damage_is_named_by_range_and_key")
def test_snapshots_under_writes_are_accepted_and_five_damages_of_each_are_named(
    mysql_streams: MySqlStreams, small_pieces: None, request: pytest.FixtureRequest
) -> None:
    first_of_all, count = request.config.getoption("--snapshot-seed"), request.config.getoption("--snapshot-replays")
    database, chance = mysql_streams.database, random.Random(first_of_all)
    fill(database, rows=5_000)
    for number in range(first_of_all, first_of_all + count):
        name = f"copy{number}"
        # Of keys that nobody else writes to, one in each of five ranges.
        keys = [2 * chance.randrange(low, low + 100) for low in (3_500, 3_700, 3_900, 4_100, 4_300)]
        lost, doubled, altered, stale, first = keys
        update = f"UPDATE t SET amount = -amount - {number + 1} WHERE id = {stale}"
        database.run("FLUSH BINARY LOGS", update)
        with writers(database, "t", count=4, keys=6_000, pause=0.002, seed=number):
            mysql_streams.run(mysql_streams.source("t", snapshotChunkRows=500), name)
            verdict = verified(mysql_streams, lambda: kept(mysql_streams.result(name)), name)  # noqa: B023
            assert verdict.accepted, (number, verdict)
            copy = kept(mysql_streams.result(name)).where(f"id <> {lost} AND id NOT BETWEEN {first} AND {first + 398}")
            earlier = f"IF(id = {stale}, -(amount + {number + 1}), IF(id = {altered}, amount + 1000000, amount))"
            damaged = copy.select("id", "name", F.expr(earlier).alias("amount"))
            damaged = damaged.unionByName(damaged.where(f"id = {doubled}"))
            found = kinds(verified(mysql_streams, damaged, name).differences)
            certificate = certified(mysql_streams, name, name)
            assert verify_certified(kept(mysql_streams.result(name)), certificate).accepted, number
            wrong = verify_certified(damaged, certificate)
        assert len(wrong.unexamined) >= 5, (number, wrong)
        assert {kind: (count, keys[0]) for kind, (count, keys) in found.items()} == {
            "missing": (201, str(lost)), "doubled": (1, str(doubled)), "altered": (1, str(altered)),
            "stale": (1, str(stale)),
        }, (number, found)  # fmt: skip
        _log.info("%d snapshots; %s", number - first_of_all + 1, verdict.summary)
