"""What the user may SELECT, by the answers of servers."""

from __future__ import annotations

import pymysql
import pytest

from pyspark_mysql_cdc_wm.lookup.rights import Rights, hidden_from_user, readable_tables
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_tables
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection, checked_server, in_turn
from watermark_source.errors import RefusedError, SourceError, UnknownSplitError

MYSQL, MARIADB = "9.7.4", "11.8.9-MariaDB"
T = TableName("shop", "t")


def error(code: int) -> SourceError:
    failure = SourceError("refused")
    failure.__cause__ = pymysql.err.OperationalError(code, "")
    return failure


def test_tables_of_which_not_every_column_may_be_read_are_found() -> None:
    names = [TableName("shop", name) for name in ("granted", "refused", "locked")]
    grants = [f"GRANT SELECT (`id`) ON `shop`.`{name}` TO `cdc`@`%`" for name in ("refused", "locked")]
    asked = RecordedConnection({
        "SELECT CURRENT_ROLE()": [("NONE",)],
        "SHOW GRANTS FOR CURRENT_USER()": [("GRANT SELECT ON `shop`.* TO `cdc`@`%`",), *((each,) for each in grants)],
        "SELECT * FROM `shop`.`refused`": RefusedError("no"), "SELECT * FROM `shop`.`locked`": error(1205),
        "SHOW CREATE TABLE": [("locked", "CREATE TABLE `locked` (\n  `id` int\n)")],
        "SELECT COLUMN_NAME": [("id",)],
    })  # fmt: skip
    assert [name.table for name in filter(Rights(asked).are_in_part, names)] == ["refused"]
    # Without a grant for columns of it, a table is read as a whole or not at all.
    assert not any("granted" in sent for sent in asked.sent)
    # A lock is waited for for seconds, not for the server's year.
    assert (
        asked.sent[asked.sent.index("SELECT * FROM `shop`.`locked` LIMIT 0") - 1] == "SET SESSION lock_wait_timeout = 5"
    )
    broken: dict[str, Answer] = {
        "SHOW GRANTS": [(each,) for each in grants], "SELECT COLUMN_NAME": [("id",)], "SELECT * FROM": error(1064)
    }  # fmt: skip
    with pytest.raises(SourceError):
        Rights(RecordedConnection(broken, MARIADB)).are_in_part(names[1])


@pytest.mark.parametrize("version", [MYSQL, MARIADB])
def test_an_invisible_column_that_may_not_be_read_is_found_where_columns_are_granted(version: str) -> None:
    names = [TableName("shop", name) for name in ("hidden", "whole", "written")]
    declared = "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `n` int /* INVISIBLE */,\n  KEY (`id`)\n) COMMENT='  `x'"
    grant = [(f"GRANT SELECT (`id`, `n`), INSERT ON `shop`.`{name.table}` TO `reads`@`%`",) for name in names]
    readable = {"hidden": [("id",)], "whole": [("id",), ("n",)], "written": [("id",)]}
    asked = RecordedConnection({
        "SELECT CURRENT_ROLE()": [("`reads`@`%`",)],
        "SHOW GRANTS FOR CURRENT_USER() USING `reads`@`%`": grant, "SHOW GRANTS": grant,
        "SELECT * FROM": [],
        "SHOW CREATE TABLE `shop`.`hidden`": RefusedError("no"), "SHOW CREATE TABLE": [("t", declared)],
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS": lambda _, name: readable[name],
    }, version)  # fmt: skip
    assert [name.table for name in filter(Rights(asked).are_in_part, names)] == ["hidden", "written"]


def test_a_column_that_was_added_since_a_table_was_met_is_counted_in_what_is_declared_and_in_what_is_readable() -> None:
    declared = "CREATE TABLE `t` (\n  `id` int,\n  `n` int,\n  `new` int\n)"
    before, after = [("id",), ("n",)], [("id",), ("n",), ("new",)]
    for readable, in_part in ((after, False), ([*after, ("newer",)], False), (before, True)):
        rights = Rights(RecordedConnection({
            "SHOW GRANTS": [("GRANT SELECT (`id`, `n`) ON `shop`.`t` TO `cdc`@`%`",)], "SELECT * FROM": [],
            "SHOW CREATE TABLE": [("t", declared)], "SELECT COLUMN_NAME": in_turn(before, readable),
        }, MARIADB))  # fmt: skip
        assert len(rights.columns(T)) == 2
        assert rights.are_in_part(T) is in_part


@pytest.mark.parametrize("columns", [[()], [[("id",)], []]], ids=["before", "meanwhile"])
def test_a_table_that_is_dropped_while_a_query_is_loaded_is_not_granted_in_part(columns: list[Answer]) -> None:
    gone = UnknownSplitError("no such table")
    server = checked_server({
        "SHOW GRANTS": [("GRANT SELECT (`id`) ON `shop`.`t` TO `cdc`@`%`",)], "SELECT COLUMN_NAME": in_turn(*columns),
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": [("shop", "t", "BASE TABLE", "InnoDB")],
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME": [("shop", "t", "id", "int", "select", "")],
        "SELECT CURRENT_USER(), CURRENT_ROLE()": [("cdc", "NONE")], "SHOW GLOBAL VARIABLES": [],
        "SELECT * FROM": gone, "SHOW CREATE TABLE": gone,
    }, MARIADB)  # fmt: skip
    assert server.table_names == (T,)
    assert server.granted_in_part == ()


def test_many_tables_of_many_databases_are_asked_for_by_few_statements() -> None:
    names = {TableName(f"shop{number % 100}", f"t{number}") for number in range(12_000)}
    asked = RecordedConnection({"SELECT DISTINCT": lambda *values: [(values[0], values[-1]), ("shop0", "t1")]})
    assert readable_tables(asked, names) <= names
    assert len(asked.sent) == 3


@pytest.mark.parametrize(
    ("columns", "answer", "refused"),
    [
        ([("id",)], RefusedError("no"), False),
        ([], RefusedError("no"), True),
        # It was dropped, or is locked.
        ([], UnknownSplitError("no such table"), False),
        ([], error(1205), False),
        ([], [], False),
    ],
)
def test_a_table_that_may_not_be_read_is_distinguished_from_one_that_was_dropped(
    columns: Answer, answer: Answer, refused: bool
) -> None:
    asked = RecordedConnection({"SELECT COLUMN_NAME": columns, "SELECT 1 FROM `shop`.`t`": answer})
    rights = Rights(asked)
    assert rights.are_refused(T) is refused
    once = len(asked.sent)
    assert rights.are_refused(T) is refused
    assert len(asked.sent) == once


def test_databases_are_named_in_which_a_pattern_may_match_what_the_user_does_not_see() -> None:
    asked = RecordedConnection({
        "SELECT 1 FROM `shop`.": RefusedError("no"), "SELECT 1 FROM `all`.": UnknownSplitError("no such table"),
        "SELECT 1 FROM": in_turn(RefusedError("no"), UnknownSplitError("no such database")),
    })  # fmt: skip
    # One table by its name hides nothing.
    selection = parse_tables(r"shop.*,all.*,one.t,.*\.orders")
    assert hidden_from_user(asked, selection) == ("*", "`shop`")
    assert hidden_from_user(asked, selection) == ("`shop`",)
