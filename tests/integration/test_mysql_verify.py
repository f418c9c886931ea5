"""``verify``: a copy of a table against the server, of any type and key, damaged in any way, while both are written."""

from __future__ import annotations

import logging
import random
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation

from pyspark_mysql_cdc_wm import verify_copy
from pyspark_mysql_cdc_wm.verify import Verdict
from pyspark_mysql_cdc_wm.verifying import pieces
from services.wait_until import wait_until
from tests.integration.mysql_columns import samples_of
from tests.integration.mysql_keys import KINDS
from tests.integration.mysql_streams import PASSWORD, USER, MySqlStreams
from tests.integration.mysql_writers import writers
from tests.integration.test_mysql_snapshot import fill
from tests.unit.docs_blocks import ROOT, blocks
from watermark_source.command_line import main
from watermark_source.errors import UnsupportedFormatError, UsageError

pytestmark = pytest.mark.service
_log = logging.getLogger(__name__)

_NOT_COMPARED = ("VECTOR(3)", "SET('','a','b')")
"""Types that servers and Spark have no common text of."""
_KEYS = ("two columns", "three columns", "0900_ai_ci", "uca1400_ai_ci")


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


def kinds(verdict: Verdict) -> dict[str, tuple[int, tuple[str, ...]]]:
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for each in verdict.differences:
        rows, keys = found.get(each.kind.value, (0, ()))
        found[each.kind.value] = (rows + each.rows, keys + each.keys)
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
    monkeypatch.setattr(pieces, "_PIECE_ROWS", 100)


def test_a_copy_of_every_type_is_accepted_and_a_value_that_differs_is_found_in_each(
    mysql_streams: MySqlStreams,
) -> None:
    database = mysql_streams.database
    samples = [each for each in samples_of(database.server) if each.declaration not in _NOT_COMPARED]
    values = [(*each.literals, "NULL") for each in samples]
    rows = max(len(samples), *map(len, values)) + 1
    declared = ", ".join(f"{each.name} {each.declaration}" for each in samples)
    database.run(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"CREATE TABLE t (id INT PRIMARY KEY, {declared}) ROW_FORMAT = DYNAMIC",
        *(
            f"INSERT INTO t VALUES ({row}, {', '.join(each[row % len(each)] for each in values)})"
            for row in range(rows)
        ),
    )
    mysql_streams.run(mysql_streams.source("t"), "copy")
    copy = mysql_streams.result("copy").where("marker IS NULL")
    verdict = verified(mysql_streams, copy)
    assert verdict.accepted, verdict
    assert f"the {rows} rows of {database.name}.t at " in verdict.summary
    # A row for each column has the next row's value in it.
    next_of = copy.alias("one").join(copy.alias("next"), F.expr("next.id = one.id + 1"), "left")
    names = [each.name for each in samples]
    replaced = [F.expr(f"IF(one.id = {at}, next.{name}, one.{name})").alias(name) for at, name in enumerate(names)]
    damaged = next_of.select("one.id", *replaced).localCheckpoint()
    before, after = ({row["id"]: row for row in each.select("id", *names).collect()} for each in (copy, damaged))
    differ = [str(at) for at in range(len(samples)) if str(before[at]) != str(after[at])]
    # Two dates in a row are none, and null.
    assert len(differ) >= len(samples) - 3
    verdict = verified(mysql_streams, damaged)
    assert kinds(verdict) == {"altered": (len(differ), tuple(differ[:10]))}


def test_a_column_without_a_common_text_is_refused_and_can_be_left_out(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql("CREATE TABLE t (id INT PRIMARY KEY, s SET('','a'), n INT)", "INSERT INTO t VALUES (1, 1, 5)")
    mysql_streams.run(mysql_streams.source("t"), "copy")
    copy = mysql_streams.result("copy").where("marker IS NULL")
    with pytest.raises(UnsupportedFormatError, match=r"column s: values of SET with an empty label .* excludeColumns"):
        verified(mysql_streams, copy)
    assert verified(mysql_streams, copy, excludeColumns="s").accepted
    with pytest.raises(UsageError, match="the copy has no column n; it has id"):
        verified(mysql_streams, copy.select("id"), excludeColumns="s")
    with pytest.raises(UsageError, match="column id is left out"):
        verified(mysql_streams, copy, columns="n")


def test_damage_is_named_by_range_and_key(
    mysql_streams: MySqlStreams, small_pieces: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = mysql_streams.database
    fill(database, rows=1_000)
    frame = mysql_streams.source("t")
    mysql_streams.run(frame, "copy")
    database.run("UPDATE t SET amount = -1 WHERE id = 40", "DELETE FROM t WHERE id = 1998")
    mysql_streams.run(frame, "copy")
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
    verdict = verified(mysql_streams, damaged)
    assert not verdict.accepted
    assert kinds(verdict) == {
        "missing": (101, ("10", *(str(key) for key in range(600, 620, 2)))),
        "altered": (2, ("20", "30")),
        "stale": (2, ("40", "1998")),
        "doubled": (1, ("1500",)),
        "extra": (1, ("9999",)),
    }
    assert str(verdict.differences[0]).startswith("id to below 2")
    assert re.fullmatch(
        rf"rejected: the copy differs from {database.name}\.t at \S+ position \d+ in 4 of 10 ranges: "
        "101 missing, 1 doubled, 2 altered, 2 stale, 1 extra", verdict.summary,
    )  # fmt: skip
    mysql_streams.run(mysql_streams.source("t", rereadTables=f"{database.name}.t:mend"), "copy")
    again = mysql_streams.result("copy").where("_change_type = 'reread'").select(*copy.columns)
    mended = damaged.join(again, "id", "left_anti").unionByName(again)
    assert kinds(verified(mysql_streams, mended)) == {"stale": (1, ("1998",)), "extra": (1, ("9999",))}
    damaged.write.parquet(str(mysql_streams.root / "damaged"))
    copy.write.parquet(str(mysql_streams.root / "whole"))
    given = options(mysql_streams)
    monkeypatch.setenv("WATERMARK_SOURCE_PASSWORD", given.pop("password"))
    given["checkpoint"] = str(mysql_streams.checkpoint("copy"))
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    for name, status, last in (("whole", 0, "accepted: "), ("damaged", 1, "rejected: ")):
        place = ["--copy", f"parquet:{mysql_streams.root / name}"]
        assert main(["verify", "--mysql", *place, *words]) == status
        assert capsys.readouterr().out.splitlines()[-1].startswith(last)
    assert main(["verify", "--mysql", *place, *words, "--rowFormat", "json"]) == 2


def test_keys_of_any_kind_are_compared(mysql_streams: MySqlStreams, small_pieces: None) -> None:
    database, spark = mysql_streams.database, mysql_streams.spark
    chosen = {name: KINDS[name] for name in _KEYS if KINDS[name].flavour in (None, database.server.flavour)}
    for at, kind in enumerate(chosen.values()):
        rows = ", ".join(f"({kind.values(n)}, 'n{n}', {n})" for n in range(600))
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
        found = {kind: count for kind, (count, _) in kinds(verdict).items()}
        assert found == {"missing": 1, "doubled": 1}, (name, verdict)


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
        assert kinds(verdict) == {"missing": (1, ("3000",))}
    query.stop()
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


def test_a_row_that_was_changed_and_is_none_of_what_it_was_is_altered(mysql_streams: MySqlStreams) -> None:
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
    schema = "id int, name string, amount bigint"
    verdict = verified(mysql_streams, mysql_streams.spark.createDataFrame(held, schema))
    assert verdict.accepted, verdict
    assert "; 6 keys that changed since" in verdict.summary
    wrong = [(2, "n1", 70), (4, "n2", 2), (4, "n2", 2), *(row for row in held if row[0] not in (2, 8))]
    found = kinds(verified(mysql_streams, mysql_streams.spark.createDataFrame(wrong, schema)))
    assert found == {"altered": (1, ("2",)), "doubled": (1, ("4",)), "missing": (1, ("8",))}


def test_a_checkpoint_that_says_nothing_of_the_table_is_refused(mysql_streams: MySqlStreams, tmp_path: Path) -> None:
    fill(mysql_streams.database, rows=10)
    fill(mysql_streams.database, "u", rows=10)
    mysql_streams.run(mysql_streams.source("t"), "copy")
    copy = kept(mysql_streams.result("copy"))
    with pytest.raises(UsageError, match=r"the snapshot of \w+\.u is not complete"):
        verified(mysql_streams, copy, table="u")
    with pytest.raises(UsageError, match="expected the option tables to name one table"):
        verified(mysql_streams, copy, table="*")
    with pytest.raises(UsageError, match="there is no folder"):
        verify_copy(lambda: copy, checkpoint=tmp_path / "none", options=options(mysql_streams))


@pytest.mark.timeout(14_400)
@pytest.mark.long("test_damage_is_named_by_range_and_key")
def test_snapshots_under_writes_are_accepted_and_five_damages_of_each_are_named(
    mysql_streams: MySqlStreams, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, chance = mysql_streams.database, random.Random(1)
    fill(database, rows=5_000)
    # Of earlier rows those of the last file.
    monkeypatch.setattr(sys.modules["pyspark_mysql_cdc_wm.verify"], "_EARLIER_BYTES", 0)
    for number in range(200):
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
            found = kinds(verified(mysql_streams, damaged, name))
        assert {kind: (count, keys[0]) for kind, (count, keys) in found.items()} == {
            "missing": (201, str(lost)), "doubled": (1, str(doubled)), "altered": (1, str(altered)),
            "stale": (1, str(stale)),
        }, (number, found)  # fmt: skip
        _log.info("%d snapshots; %s", number + 1, verdict.summary)
